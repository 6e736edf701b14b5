"""Cost models behind one interface: which terms, how they overlap, which layouts exist."""

from ._base import Family as Family, Scenario as Scenario, evaluate_layouts as evaluate_layouts
from ._erdil2025 import Erdil2025 as Erdil2025
from ._serving import Serving as Serving, why_illegal as why_illegal
from ._token_time import TokenWork as TokenWork, token_time as token_time, token_work as token_work
from ._toy import Toy as Toy
