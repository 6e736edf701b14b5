"""Speculative decoding: what drafts, and how many of its tokens are accepted."""

import tomllib
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError, nearest
from .._numerics import Scalar, geometric_sum, is_concrete, optional_scalar, safe_divide, scalar
from ._catalogue import configs_dir
from ._heads import eagle_head, prediction_head
from ._model import Model


class Speculation(eqx.Module):
    """Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192).

    A `draft` proposes tokens one after the other, which the target verifies in one pass: a smaller
    model, or a head of the target (`prediction_head`, `eagle_head`). What verifying costs and how
    many tokens are accepted are separate questions; this states the second.
    """

    draft: Model
    acceptance: Scalar = eqx.field(converter=scalar)
    """Probability that a drafted token is accepted once those before it are, 0 to 1 inclusive: one
    for all positions, or an array with one for each."""
    max_draft_tokens: int = eqx.field(static=True, default=8)
    lengths: Scalar | None = eqx.field(converter=optional_scalar, default=None)
    """Measured tokens per step with 1, 2, ... drafted tokens, which then replace `acceptance`."""

    def __check_init__(self) -> None:
        known = np.asarray(self.acceptance) if is_concrete(self.acceptance) else np.zeros(())
        if not np.all((known >= 0.0) & (known <= 1.0)):
            raise InputError(f"acceptance must lie between 0 and 1, got {self.acceptance}")
        for name in ("acceptance", "lengths"):
            table = getattr(self, name)
            if table is not None and table.ndim and self.max_draft_tokens > table.shape[-1]:
                raise InputError(
                    f"{name} has {table.shape[-1]} positions, fewer than max_draft_tokens = "
                    f"{self.max_draft_tokens}"
                )

    def tokens_per_step(self, draft_tokens: Array) -> Array:
        """Expected tokens of a step with so many drafted ones (real numbers allowed).

        With one acceptance alpha for all positions, (1 - alpha^(gamma+1))/(1 - alpha) (Leviathan et
        al. 2023, equation 1), gamma + 1 at alpha = 1. With one for each position,
        1 + a1 + a1 a2 + ..., or the measured lengths, joined by a monotone cubic.
        """
        if self.lengths is not None:
            return _joined(jnp.concatenate([jnp.ones(1), self.lengths]), draft_tokens)
        if not self.acceptance.ndim:
            return geometric_sum(self.acceptance, draft_tokens + 1.0)
        reached = jnp.cumsum(jnp.cumprod(self.acceptance))
        return _joined(jnp.concatenate([jnp.ones(1), 1.0 + reached]), draft_tokens)


def _joined(table: Array, at: Array) -> Array:
    """The cubic through a table at 0, 1, 2, ... that is as monotone as the table.

    Slopes are harmonic means of neighbouring differences, 0 where their signs differ (Fritsch and
    Butland 1984, doi:10.1137/0905021).
    """
    steps = jnp.diff(table)
    left, right = steps[:-1], steps[1:]
    same = left * right > 0.0
    inner = jnp.where(same, safe_divide(2.0 * left * right, jnp.where(same, left + right, 1.0)), 0.0)
    slopes = jnp.concatenate([steps[:1], inner, steps[-1:]])
    k = jnp.clip(jnp.floor(at), 0.0, float(len(steps) - 1)).astype(jnp.int32)
    u = at - k.astype(at.dtype)
    v = 1.0 - u
    value = v * v * (1.0 + 2.0 * u) * table[k] + u * u * (3.0 - 2.0 * u) * table[k + 1]
    return value + u * v * (v * slopes[k] - u * slopes[k + 1])


def list_speculations() -> tuple[str, ...]:
    """Names of the shipped settings of speculative decoding, sorted."""
    return tuple(sorted(p.stem for p in (configs_dir() / "speculation").glob("*.toml")))


def load_speculation(name_or_path: str | Path, target: Model) -> Speculation:
    """Measured acceptance lengths with the drafting head that they were measured with.

    The head is built for `target`; that the lengths hold for it is the caller's claim, since they
    were measured on the model that the file names.

    Raises:
        InputError: for an unknown name or a file that makes no sense.
    """
    text = str(name_or_path)
    path = configs_dir() / "speculation" / f"{text.lower()}.toml"
    if not path.is_file():
        path = Path(text)
    if not path.is_file():
        raise InputError(f"no speculation '{text}'; {nearest(text, list_speculations())}")
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}") from error
    lengths, method = facts.get("acceptance_lengths"), facts.get("method")
    numbers = isinstance(lengths, list) and all(
        isinstance(x, int | float) and 1.0 <= x <= i + 2.0 for i, x in enumerate(lengths)
    )
    if not numbers or not lengths:
        raise InputError(f"'{path}': 'acceptance_lengths' must list tokens per step, got {lengths!r}")
    heads = {"mtp": prediction_head, "eagle3": eagle_head, "dspark": eagle_head}
    if str(method).lower() not in heads:
        raise InputError(f"'{path}': unknown 'method' {method!r}; {nearest(str(method), heads)}")
    draft = heads[str(method).lower()](target)
    return Speculation(draft, lengths[0] - 1.0, len(lengths), lengths)
