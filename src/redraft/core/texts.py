"""Outputs as text, and copies of outputs."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from redraft.core.codec import to_json

if TYPE_CHECKING:
    from redraft.core.version import Output


SHOWN = 80
"""Characters that fit into a line of a message."""
IMMUTABLE = (str, int, float)


def as_text(output: Output) -> str:
    """Render an output as text: a text as it is, everything else as indented JSON, or else its `repr`."""
    if isinstance(output, str):
        return output
    if hasattr(output, "model_dump_json"):  # a pydantic model, recognised without importing pydantic
        return output.model_dump_json(indent=2)
    try:
        return json.dumps(output, ensure_ascii=False, indent=2, default=_data)
    except (TypeError, ValueError):  # keys that are no text, a value that holds itself
        return repr(output)


def _data(value: object) -> object:
    """Return a dataclass as data, anything else as the text that it makes of itself."""
    return to_json(value) if is_dataclass(value) else str(value)


def shortened(text: str, most: int) -> str:
    """Return a text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, cut to what fits into a line of a message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def copy_of(output: Output) -> Output:
    """Return an output that nobody else holds: what a function changes in its own must not change history."""
    return output if isinstance(output, IMMUTABLE) else deepcopy(output)
