"""Load a package's public names on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazily(
    package: str,
    places: Mapping[str, Sequence[str]],
    *,
    unlisted: Mapping[str, Sequence[str]] | None = None,
    features: Sequence[str] = (),
    removed: Mapping[str, str] | None = None,
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__all__`, `__getattr__` and `__dir__` of a package that loads its modules on first use.

    `places` maps modules to their public names; a module outside the package starts with a dot. The names in
    `unlisted` can be imported, too, but are not in `__all__`. For a missing name that is in the `__all__` of
    one of the `features`, the `ImportError` says where to import it from; for a name in `removed`, which an
    earlier version had, what to do instead.
    """
    listed = sorted(name for names in places.values() for name in names)
    place_of = {
        name: place for place, names in (*places.items(), *(unlisted or {}).items()) for name in names
    }

    def load(name: str) -> object:
        if removed and name in removed:
            raise ImportError(f"{name!r} was removed from {package!r}: {removed[name]}.", name=package)
        if name not in place_of:
            raise _missing(package, name, features)
        value = getattr(import_module(f".{place_of[name]}", package), name)
        vars(sys.modules[package])[name] = value
        return value

    return listed, load, lambda: listed


def _missing(package: str, name: str, features: Sequence[str]) -> AttributeError | ImportError:
    from importlib.util import find_spec  # noqa: PLC0415 (only an error needs it)

    # `from package import module` asks for the attribute before it imports the module.
    if features and not name.startswith("_") and not find_spec(f"{package}.{name}"):
        for feature in features:
            home = f"{package}.{feature}"
            if name in import_module(home).__all__:
                # Python replaces the message of an AttributeError by its own in `from package import name`.
                return ImportError(
                    f"{name!r} is not in {package!r}; write: from {home} import {name}", name=home
                )
    return AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
