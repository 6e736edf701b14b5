"""Reading fields of a config with checks: what is absent or absurd is named, never guessed."""

import math
from collections.abc import Mapping
from typing import Any

from .._errors import InputError


class Fields:
    """A config's text part, with its outer part as fallback for flags."""

    def __init__(self, text: Mapping[str, Any], outer: Mapping[str, Any]) -> None:
        self.text = text
        self.outer = outer

    def has(self, key: str) -> bool:
        """Whether the field is present, not null and not 0."""
        return bool(self.text.get(key))

    def whole(self, key: str, default: int | None = None) -> int:
        """A positive whole number below 1e9; `default` where absent or null.

        Raises:
            InputError: naming the field, where it is missing or absurd.
        """
        value = self.text.get(key)
        value = default if value is None else value
        if value is None:
            raise InputError(f"the config has no '{key}'")
        bad = isinstance(value, bool) or not isinstance(value, (int, float))
        if bad or not math.isfinite(value) or value != int(value) or not 0 < value <= 1e9:
            raise InputError(f"'{key}' must be a positive whole number, got {value!r}")
        return int(value)

    def count(self, key: str) -> int:
        """Like `whole`, but 0 where absent, null or 0."""
        value = self.text.get(key)
        plain_zero = value == 0 and not isinstance(value, bool)
        return 0 if value is None or plain_zero else self.whole(key)

    def first(self, *keys: str, default: int | None = None) -> int:
        """The first of several spellings that is present; the first is named if none is."""
        for key in keys:
            if self.text.get(key) is not None:
                return self.whole(key)
        return self.whole(keys[0], default)

    def flag(self, key: str, default: bool = False) -> bool:
        """A true or false; `default` where absent or null.

        Raises:
            InputError: where the field is something else.
        """
        value = self.text.get(key)
        value = self.outer.get(key) if value is None else value
        value = default if value is None else value
        if not isinstance(value, bool):
            raise InputError(f"'{key}' must be true or false, got {value!r}")
        return value

    def sub(self, key: str) -> "Fields":
        """A nested object."""
        value = self.text.get(key)
        if not isinstance(value, Mapping):
            raise InputError(f"'{key}' must be an object, got {value!r}")
        return Fields(value, self.outer)

    def per_layer(self, key: str, layers: int) -> list[Any] | None:
        """A list with one entry per layer; None where absent.

        Raises:
            InputError: where the field is no list of that length.
        """
        value = self.text.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            raise InputError(f"'{key}' must list {layers} layers, got {value!r:.60}")
        return value
