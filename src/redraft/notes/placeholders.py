"""Placeholders: the `{names}` in a task's texts that the inputs of a run fill."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.core.texts import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BRACED = re.compile(r"(?<!\{)(\{++)([^\W\d]\w*+)(\}++)")


def placeholders_of(text: str) -> tuple[str, ...]:
    """Return the names of the placeholders of a text, each once, in the order in which they stand there."""
    names: dict[str, None] = {}

    def note(name: str) -> str:
        names[name] = None
        return name

    _filled(text, note)
    return tuple(names)


def fill(text: str, inputs: Mapping[str, Any], title: str = "") -> str:
    """Return a text with its placeholders filled from the inputs of a run.

    `{name}` is one where the name is an identifier; `{{name}}` stands for a literal `{name}`, as in
    `str.format`. All other braces (JSON, code) stay as they are, and so do those in a value. A value that is
    no text goes in as JSON. Raises `ConfigError` for an input that is missing; `title` names the task there.
    """

    def value_of(name: str) -> str:
        if name not in inputs:
            raise ConfigError(
                f"The task {title or text[:60]!r} has the placeholder {{{name}}}, and no input of this name: "
                f'{nearest(name, inputs)} Give it as run(inputs={{"{name}": ...}}), or write {{{{{name}}}}} '
                f"in the task where the braces are meant as they stand."
            )
        return as_text(inputs[name])

    return _filled(text, value_of)


def fill_known(text: str, inputs: Mapping[str, Any]) -> str:
    """Do what `fill` does in a text that a model wrote: a placeholder without an input stays as it is."""
    return _filled(text, lambda name: as_text(inputs[name]) if name in inputs else f"{{{name}}}")


def _filled(text: str, value_of: Callable[[str], str]) -> str:
    def filled(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        if not name.isidentifier():
            return found[0]
        # Each two braces stand for one; one that is left over makes a placeholder.
        both = min(len(opening), len(closing))
        inner = value_of(name) if both % 2 else name
        kept = both // 2
        return f"{opening[both - kept :]}{inner}{closing[: len(closing) - both + kept]}"

    return _BRACED.sub(filled, text)
