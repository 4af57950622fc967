"""Objects with their texts redacted: the same classes, of the same shape."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.redact.plain_json import redacted_once, walk_plain

if TYPE_CHECKING:
    from collections.abc import Callable

    Redact = Callable[[str], str]


def walk_object(value: Any, redact: Redact, spared: tuple[type, ...] = ()) -> Any:
    """Return a value with every text in it redacted, each different one looked at once.

    Dataclasses keep their class, mappings become plain ones, models plain data. What is of a `spared` class
    stays as it is.
    """
    once = redacted_once(redact)

    def other(value: Any) -> Any:
        if isinstance(value, spared):
            return value
        if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if field.init]
            return replace(value, **{name: walk_plain(getattr(value, name), once, other) for name in names})
        dump: Any = getattr(value, "model_dump", None)  # a pydantic model, recognised without importing it
        return (
            value if dump is None or isinstance(value, type) else walk_plain(dump(mode="json"), once, other)
        )

    return walk_plain(value, once, other)
