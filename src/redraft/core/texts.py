"""Outputs as text: what a judge reads, a diff compares and a person sees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.core.version import Output


def as_text(output: Output) -> str:
    """Render an output as text: a text as it is, everything else as indented JSON."""
    if isinstance(output, str):
        return output
    if hasattr(output, "model_dump_json"):  # a pydantic model, recognised without importing pydantic
        return output.model_dump_json(indent=2)
    return json.dumps(output, ensure_ascii=False, indent=2, default=str)
