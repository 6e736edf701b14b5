r"""Rows whose requests are proven to share their prompts, by arithmetic that no accelerator can do.

A benchmark that sends one prompt again and again is answered from the cache of prefixes: prompts are
not computed, are stored once, and are read once a step for all requests. Tables of measurements seldom
say so. Where a replica ingests its own prompts, a stated rate of output tokens says how many prompts it
took in, and their matrix products alone (2 FLOP per active weight and token; attention and the output
head left out) fill

$$\frac{r\, n_{in}/n_{out}\; 2 N_{active}}{n\, F_{peak}}$$

of the time of its n accelerators, with r output tokens/s in all and the highest rate of any operand
width. Above 1 the prompts cannot have been computed. The threshold is a proof, with nothing to tune.

The rate is close to what is to be predicted. One bit of it is used, on rows that state it, and no
scenario that somebody asks about has one.
"""

import functools

from ..specs import Accelerator, Model
from ._names import Precisions, model_of
from ._table import Measurement

AGGREGATED = ("serving_agg", "e2e_offline")
"""Kinds of rows in which the replica ingests its own prompts."""
_ROUNDING = 1.05


def prompt_load(row: Measurement, precisions: Precisions, accelerator: Accelerator, count: float) -> float:
    """Share of the accelerators' time that the row's prompts fill at peak, by its stated output rate.

    Args:
        row: the measurement.
        precisions: those of the row; how many weights a token passes does not depend on them.
        accelerator: one of the replica's accelerators (a core, where cores are counted).
        count: how many the replica has.

    Returns:
        0 where nothing can be said: no rate is stated; other accelerators ingest the prompts; or the rate
        exceeds one token per request and `tpot`, so that it counts other tokens too.
    """
    if row.out_rate is None or row.kind not in AGGREGATED:
        return 0.0
    if row.out_rate * row.n_gpus * row.tpot > _ROUNDING * row.batch:
        return 0.0
    peak = accelerator.peak
    fastest = max(float(peak.at(bits)) for bits in (16, 8, 4))
    prompts = row.out_rate * row.n_gpus / row.replicas / row.osl
    return prompts * row.isl * _token_flop(row.model, row.hf_model, precisions) / (count * fastest)


@functools.cache
def _token_flop(name: str, repository: str, precisions: Precisions) -> float:
    return least_prompt_flop(model_of(name, repository, precisions))


def least_prompt_flop(model: Model) -> float:
    """FLOP of one prompt token at the least: 2 for every matrix weight that it passes, without the head."""
    total = 0.0
    for group in model.groups:
        if group.mixer is not None:
            total += float(group.count * group.mixer.matrix_parameters(model.width))
        if group.feed_forward is not None:
            total += float(group.count * group.feed_forward.active_matrix_parameters(model.width))
    return 2.0 * total


def shared_tokens(load: float, prompt: float) -> float:
    """Tokens that all requests have in common: the whole prompt where `load` exceeds 1, else none.

    The proof leaves a share of at least 1 - 1/load, and no time to decode; a benchmark that repeats
    prompts repeats them whole. Of such a prompt the last token is computed, as one more decode step.
    """
    return prompt if load > 1.0 else 0.0
