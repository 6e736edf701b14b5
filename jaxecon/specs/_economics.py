"""What accelerators cost to own and what their energy costs. Data and closed forms only."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._errors import InputError
from .._numerics import Scalar, is_concrete, scalar
from ._accelerator import Accelerator

_YEAR = 365.25 * 86400.0
_KWH = 3.6e6


class Site(eqx.Module):
    """Where the accelerators stand: overhead of cooling and conversion, and the grid's carbon."""

    pue: Scalar = eqx.field(converter=scalar, default=1.25)
    """Power usage effectiveness: energy of the site over energy of its machines, at least 1."""
    grid_intensity: Scalar = eqx.field(converter=scalar, default=400.0)
    """Grams of CO2 per kilowatt-hour; a round figure, to be replaced by the grid's own."""
    idle_share: Scalar = eqx.field(converter=scalar, default=0.2)
    """Power of an idle accelerator over its rated power; it rises linearly with the load."""

    def __check_init__(self) -> None:
        _check(self, (("pue", 1.0, 100.0), ("grid_intensity", 0.0, 1e5), ("idle_share", 0.0, 1.0)))

    def power(self, rated: Array, load: Array) -> Array:
        """Watts of the site for one accelerator whose work takes a share `load` of the time."""
        return self.pue * rated * (self.idle_share + (1.0 - self.idle_share) * load)

    def grams(self, joules: Array) -> Array:
        """Grams of CO2 for so much energy of the site."""
        return self.grid_intensity * joules / _KWH


class Ownership(eqx.Module):
    """Accelerators bought and run, as an alternative to a rental price."""

    purchase: Scalar = eqx.field(converter=scalar)
    """US dollars per accelerator, its share of server and network included."""
    life_years: Scalar = eqx.field(converter=scalar, default=4.0)
    """Years until it is worth nothing."""
    utilisation: Scalar = eqx.field(converter=scalar, default=0.7)
    """Share of its life in which it serves, in (0, 1]."""
    power_price: Scalar = eqx.field(converter=scalar, default=0.08)
    """US dollars per kilowatt-hour."""
    yearly_share: Scalar = eqx.field(converter=scalar, default=0.0)
    """Upkeep, space and interest per year, as a share of the purchase."""

    def __check_init__(self) -> None:
        _check(
            self,
            (
                ("purchase", 0.0, 1e9),
                ("life_years", 0.01, 100.0),
                ("utilisation", 1e-6, 1.0),
                ("power_price", 0.0, 100.0),
                ("yearly_share", 0.0, 10.0),
            ),
        )

    def price(self, rated: Array, site: Site) -> Array:
        """US dollars per accelerator and second of service.

        Purchase spread over the life, upkeep, and the energy of a fully loaded accelerator through
        the whole life, divided by the share of it in which there is work.
        """
        spread = self.purchase * (1.0 / self.life_years + self.yearly_share) / _YEAR
        power = site.power(rated, jnp.ones_like(rated)) * self.power_price / _KWH
        return (spread + power) / self.utilisation

    def owned(self, accelerator: Accelerator, site: Site | None = None) -> Accelerator:
        """The same accelerator at the price of owning it."""
        price = self.price(accelerator.power, Site() if site is None else site)
        return eqx.tree_at(lambda a: a.price, accelerator, price)


def _check(part: eqx.Module, ranges: tuple[tuple[str, float, float], ...]) -> None:
    for name, low, high in ranges:
        value = getattr(part, name)
        known = np.asarray(value) if is_concrete(value) else np.asarray(low)
        if not np.all((known >= low) & (known <= high)):
            raise InputError(f"{name} must lie between {low:g} and {high:g}, got {value}")
