"""Conditions: templates that hold or do not."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redraft.text.templates import Template

if TYPE_CHECKING:
    from collections.abc import Mapping

FALSE_WORDS = frozenset({"", "false", "no", "none", "null", "0"})
"""What a condition that renders to a text says no with."""

template = lru_cache(maxsize=1024)(Template)
"""Compile a template, once for each text."""


def holds(condition: str | bool, scopes: Mapping[str, Any]) -> bool:
    """Say whether a condition is true; it may do without the braces around it. Raises `TemplateError`."""
    if isinstance(condition, bool):
        return condition
    value = template(braced(condition)).render(scopes)
    return value.strip().lower() not in FALSE_WORDS if isinstance(value, str) else bool(value)


def braced(condition: str) -> str:
    """Return a condition as a template."""
    return condition if "{{" in condition or "{%" in condition else f"{{{{ {condition} }}}}"
