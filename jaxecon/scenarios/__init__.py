"""Cost models behind one interface: which terms, how they overlap, which layouts exist."""

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
