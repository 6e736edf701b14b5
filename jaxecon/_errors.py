"""The one exception that the package raises for bad input."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used; the message is one sentence with the cure."""


class InfeasibleError(InputError):
    """A question that no allowed layout answers; the message says what is missing."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A phrase naming the valid entry closest to `name`, or all of a short list."""
    options = sorted(valid)
    close = difflib.get_close_matches(name.lower(), [o.lower() for o in options], 1, 0.4)
    if close:
        exact = next(o for o in options if o.lower() == close[0])
        return f"did you mean '{exact}'?"
    if len(options) <= 12:
        return "valid: " + ", ".join(f"'{o}'" for o in options)
    return f"there are {len(options)} valid ones"
