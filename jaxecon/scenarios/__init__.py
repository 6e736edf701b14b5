"""Cost models behind one interface: which terms, how they overlap, which layouts exist."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ._account import account as account, prepare_account as prepare_account
    from ._base import (
        Across as Across,
        Family as Family,
        Inspection as Inspection,
        Scenario as Scenario,
        evaluate_layouts as evaluate_layouts,
        inspect_layouts as inspect_layouts,
    )
    from ._energy import Energy as Energy, energy as energy
    from ._erdil2025 import Erdil2025 as Erdil2025
    from ._prompts import (
        Pools as Pools,
        Prices as Prices,
        pools as pools,
        prices as prices,
        request_time as request_time,
        time_per_output_token as time_per_output_token,
    )
    from ._serving import Serving as Serving, why_illegal as why_illegal
    from ._toy import Toy as Toy
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "._account": ("account", "prepare_account"),
            "._base": ("Across", "Family", "Inspection", "Scenario", "evaluate_layouts", "inspect_layouts"),
            "._energy": ("Energy", "energy"),
            "._erdil2025": ("Erdil2025",),
            "._prompts": ("Pools", "Prices", "pools", "prices", "request_time", "time_per_output_token"),
            "._serving": ("Serving", "why_illegal"),
            "._toy": ("Toy",),
        },
    )
