"""Pure functions of specs and layouts: collectives, bytes, FLOP, step time. No I/O."""

from ._step import StepTime as StepTime
