"""A change of parameters: what the elasticities predict beside the problem solved anew."""

from collections.abc import Mapping

import equinox as eqx
import numpy as np

from .._errors import InfeasibleError, InputError
from ..optimum import Certified, RelaxedOptimum, certified_optimum, relaxed_optimum
from ..optimum._space import MAX_ACCELERATORS, MAX_BATCH
from ..scenarios import Scenario
from ._elasticities import Sided, elasticities, side
from ._parameters import parameters, with_parameters


class Comparison(eqx.Module):
    """Speeds in tokens/s of one request, at the same budget."""

    before: RelaxedOptimum
    after: RelaxedOptimum | None
    """None where the change makes the budget unreachable."""
    predicted: float
    """Relaxed speed before, times the product of factor**elasticity."""
    certified_before: Certified
    certified_after: Certified | None
    certified_predicted: float
    """Likewise with the integer degrees held."""


def whatif(
    scenario: Scenario,
    budget: float,
    changes: Mapping[str, float],
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Comparison:
    """The optimum with the named parameters set to new values, predicted and re-solved.

    At a kink the elasticity of the side towards which the parameter moves is used.

    Raises:
        InputError: for an unknown name, or a value that is not a positive number.
        InfeasibleError: if no layout meets the budget before the change.
    """
    sizes = {"max_accelerators": max_accelerators, "max_batch": max_batch}
    changed = with_parameters(scenario, changes)
    old = parameters(scenario)
    for name, new in changes.items():
        if not np.isfinite(new) or new <= 0:
            raise InputError(f"'{name}' must be set to a positive number, got {new:g}")
        if old[name] <= 0:
            raise InputError(f"'{name}' is {old[name]:g}, so that it has no elasticity to predict from")
    moves = {name: float(np.log(new / old[name])) for name, new in changes.items()}
    found = elasticities(scenario, budget, **sizes)
    before = relaxed_optimum(scenario, budget, **sizes)
    held = found.certified
    after, certified_after = None, None
    try:
        after = relaxed_optimum(changed, budget, **sizes)
        certified_after = certified_optimum(changed, budget, **sizes)
    except InfeasibleError:
        pass
    return Comparison(
        before,
        after,
        before.speed * _product(found, moves),
        held.found,
        certified_after,
        held.found.speed * _product(held.speed, moves),
    )


def _product(by_name: Mapping[str, Sided], moves: Mapping[str, float]) -> float:
    return float(np.exp(sum(side(by_name[name], move) * move for name, move in moves.items())))
