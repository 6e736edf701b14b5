"""Packages that import a module when one of its names is first used (PEP 562).

Every class of equations takes a millisecond to define, and a command waits for all that it imports.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """A package's `__getattr__`, `__dir__` and `__all__` for names by the module they are in."""
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names, sorted(home_of)
