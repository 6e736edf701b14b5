"""Text that travels with numbers without being part of a computation's structure."""

from typing import Any


class Label(str):
    """A string that equals every other `Label`, so that names never cause a recompilation.

    Compiled functions are cached by the static parts of their arguments. Two models that differ
    in numbers and names only share one compilation because their labels compare equal.
    Comparison with an ordinary `str` is the usual one.
    """

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Label) or str(self) == other

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return str.__str__(self)


class Notes(tuple[Any, ...]):
    """Texts, or pairs of (field, text), that, like a `Label`, equal every other `Notes`."""

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Notes)

    def __hash__(self) -> int:
        return 0
