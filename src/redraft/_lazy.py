"""Load a package's public names on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazily(
    package: str, places: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__all__`, `__getattr__` and `__dir__` of a package that loads its modules on first use.

    `places` maps the package's modules to their public names.
    """
    place_of = {name: place for place, names in places.items() for name in names}

    def load(name: str) -> object:
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{place_of[name]}"), name)
        vars(sys.modules[package])[name] = value
        return value

    return sorted(place_of), load, lambda: sorted(place_of)
