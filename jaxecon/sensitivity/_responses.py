r"""How the optimal layout itself moves with the numbers of the question.

At a stationary point of the Lagrangian L(x, theta) with unknowns x = (fractions of the box, ln tokens,
multiplier), the implicit function theorem (Fiacco 1983, chapter 3) gives

$\frac{dx}{d\theta} = -(\partial_{xx} L)^{-1} \partial_{x\theta} L ,$

and the layout z(x, theta), whose box moves with the scenario, follows by the chain rule. One adjoint
solve and one reverse pass per component of the layout.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from ..optimum._relaxation import Limits, degrees_of, rebuilt
from ..optimum._relaxed import Solutions
from ..optimum._space import MAX_ACCELERATORS, MAX_BATCH
from ..scenarios import Scenario
from ._parameters import parameter_names, vector
from ._solved import limits, refined, solve, stationary

COMPONENTS = ("tensor", "pipeline", "tokens_per_pass", "batch")
"""`tokens_per_pass` is 1 + drafted tokens."""


class Responses(dict[str, dict[str, float]]):
    """d ln of a component of the optimal layout / d ln parameter, by component and parameter.

    Components: "accelerators" (their number N), "tensor", "pipeline", "tokens_per_pass" (1 + drafted
    tokens) and "batch"; parameters as in `elasticities`, with "budget".
    """

    status: str
    """Of the relaxed optimum; responses are nan unless it is "success"."""


@eqx.filter_jit
def _responses(scenario: Scenario, limits: Limits, solution: Solutions, x: Array, hessian: Array) -> Array:
    """(component, parameters + 1)."""
    box = solution.box

    def lagrangian(numbers: tuple[Scenario, Limits], x: Array) -> Array:
        return stationary(*numbers, solution, x)

    def layout(numbers: tuple[Scenario, Limits], x: Array) -> Array:
        return degrees_of(x[:4], rebuilt(box, *numbers))

    numbers = (scenario, limits)
    by_unknown = jax.jacobian(layout, argnums=1)(numbers, x)
    weights = jnp.linalg.solve(hessian, by_unknown.T).T

    def component(unit: Array, weight: Array) -> Array:
        def at(numbers: tuple[Scenario, Limits]) -> Array:
            _, along = jax.jvp(lambda z: lagrangian(numbers, z), (x,), (weight,))
            return unit @ layout(numbers, x) - along

        by_scenario, by_limits = eqx.filter_grad(at)(numbers)
        return jnp.append(vector(by_scenario) * vector(scenario), by_limits.budget * limits.budget)

    return jax.vmap(component)(jnp.eye(4), weights)


def responses(
    scenario: Scenario,
    budget: float,
    *,
    max_accelerators: int = MAX_ACCELERATORS,
    max_batch: int = MAX_BATCH,
) -> Responses:
    """How the relaxed optimum's layout moves, d ln N / d ln parameter and so on.

    On a kink (a full domain, a tie of rooflines) the layout moves as the kink does. Where a number
    of domains is left for another the layout jumps, and no derivative tells.

    Raises:
        InputError: for a budget that is not a positive number.
        InfeasibleError: if no relaxed layout meets it.
    """
    if not np.isfinite(budget) or budget <= 0:
        raise InputError(f"the budget must be a positive number of US dollars, got {budget}")
    solved = solve(scenario, limits(budget, max_accelerators, max_batch))
    x, hessian = refined(scenario, solved.limits, solved.solution)
    table = np.asarray(_responses(scenario, solved.limits, solved.solution, x, hessian))
    if solved.status != "success":
        table = np.full_like(table, np.nan)
    names = (*parameter_names(scenario), "budget")
    rows = {"accelerators": table[0] + table[1], **dict(zip(COMPONENTS, table, strict=True))}
    found = Responses({k: dict(zip(names, row.tolist(), strict=True)) for k, row in rows.items()})
    found.status = solved.status
    return found
