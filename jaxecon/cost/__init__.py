"""Pure functions of specs and layouts: collectives, bytes, FLOP, step time. No I/O."""

from ._collectives import collective_time as collective_time
from ._step import StepTime as StepTime
