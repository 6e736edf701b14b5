"""Cost models behind one interface: which terms, how they overlap, which layouts exist."""

from ._base import Scenario as Scenario
from ._erdil2025 import Erdil2025 as Erdil2025
from ._serving import Serving as Serving
from ._toy import Toy as Toy
