"""A `Model` in the paper's symbols, where the paper can express it."""

from .._errors import InputError
from ..cost._erdil_model import ErdilModel
from ..specs import DenseFeedForward, GroupedQueryAttention, MixtureOfExperts, Model


def as_erdil_model(model: Model | ErdilModel) -> ErdilModel:
    """The paper's description of a model whose layers are all alike.

    Raises:
        InputError: for mixed layers, windows, recurrent or latent attention, shared experts.
    """
    if isinstance(model, ErdilModel):
        return model
    if len(model.groups) != 1:
        raise InputError(
            f"'{model.name}' has {len(model.groups)} kinds of layers, and the paper's equations "
            "know one; use the Serving cost model"
        )
    group = model.groups[0]
    mixer, feed = group.mixer, group.feed_forward
    if not isinstance(mixer, GroupedQueryAttention) or mixer.window is not None or mixer.output_gate:
        raise InputError(
            f"'{model.name}' has attention that the paper's equations do not describe; "
            "use the Serving cost model"
        )
    plain = isinstance(feed, DenseFeedForward) or (
        isinstance(feed, MixtureOfExperts) and feed.latent is None and float(feed.shared_hidden) == 0.0
    )
    if not plain or not isinstance(feed, (DenseFeedForward, MixtureOfExperts)):
        raise InputError(
            f"'{model.name}' has feed-forward layers that the paper's equations do not describe; "
            "use the Serving cost model"
        )
    precision = model.precision
    return ErdilModel(
        d_model=model.width,
        d_ff=feed.hidden,
        layers=group.count,
        num_query_heads=mixer.heads,
        group_size=mixer.heads / mixer.kv_heads,
        d_head=mixer.head_dim,
        vocab_size=model.vocabulary,
        n_experts=feed.experts if isinstance(feed, MixtureOfExperts) else 1.0,
        n_active_experts=feed.active if isinstance(feed, MixtureOfExperts) else 1.0,
        weight_bytes=precision.weight,
        activation_bytes=precision.activation,
        ff_matrices=(feed.matrices - 1, 1),
        compute_bits=precision.compute_bits,
        name=model.name,
    )
