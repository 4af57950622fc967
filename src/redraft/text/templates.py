"""Jinja templates and conditions over plain data, sandboxed and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from operator import eq
from typing import TYPE_CHECKING, Any, cast

from redraft.text.template_budget import (
    BUDGET,
    RenderingBudget,
    TemplateError,
    TemplateLimitError,
    TemplateLimits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from redraft.text.yaml import KeyPath

__all__ = ["Template", "TemplateError", "TemplateLimitError", "TemplateLimits"]

Path = tuple[str | int, ...]

_MARKS = ("{{", "{%", "{#")
_DEFAULT = TemplateLimits()


class Template:
    """A text with `{{ state.x }}` in it, checked when it is created and rendered any number of times.

    Raises `TemplateError`, with the line, for syntax errors and for anything that is not allowed. Templates
    read plain data, which they can't change. A text without marks renders to itself.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._tree: Any = None
        self._reads: tuple[frozenset[Path], ...] = (frozenset(), frozenset(), frozenset())
        if any(mark in source for mark in _MARKS):
            from redraft.text.template_sandbox import parse, reads  # noqa: PLC0415 (loads Jinja2)

            self._tree = parse(source)
            self._reads = reads(self._tree)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"

    @property
    def paths(self) -> frozenset[Path]:
        """The paths it reads: `("state", "user", "email")` for `state.user.email`."""
        return self._reads[0]

    @property
    def required(self) -> frozenset[Path]:
        """The paths it needs: reads without `default`, `is defined` or `.get()`."""
        return self._reads[0] - self._reads[1]

    @property
    def certain(self) -> frozenset[Path]:
        """The required paths that it reads for any values, not only in an `if` or a loop."""
        return self._reads[2] - self._reads[1]

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes it reads, such as `state` and `env`."""
        return frozenset(str(path[0]) for path in self.paths)

    def mentions(self, path: str) -> bool:
        """Whether the template reads a dotted path, a part of it, or a value that contains it."""
        parts = path.split(".")
        return any(all(map(eq, parts, map(str, read))) for read in self.paths)

    def render(self, scopes: Mapping[str, Any], limits: TemplateLimits = _DEFAULT) -> Any:
        """Render the template: the value of a single expression such as `{{ state.x }}`, else the text.

        `scopes` maps names such as `state` to plain JSON data; the value is a copy. Raises `TemplateError`
        for missing values and operations that fail, `TemplateLimitError` beyond the limits.
        """
        if self._tree is None:
            return self.source
        token = BUDGET.set(RenderingBudget(limits, scopes))
        try:
            return self._run(scopes, limits)
        except TemplateError as error:
            error.source = self.source
            raise
        finally:
            BUDGET.reset(token)

    @cached_property
    def _run(self) -> Callable[[Mapping[str, Any], TemplateLimits], Any]:
        from redraft.text.template_sandbox import compile_tree  # noqa: PLC0415 (loads Jinja2)

        return compile_tree(self._tree)


FALSE_WORDS = frozenset({"", "false", "no", "none", "null", "0"})
"""The texts that make a condition false."""

template = lru_cache(maxsize=1024)(Template)
"""Compile the template of a text; cached."""


def valid_template(text: str) -> Template:
    """Compile the template of a text, or an empty template if it is not valid, which a check reports."""
    try:
        return template(text)
    except TemplateError:
        return template("")


def holds(condition: str | bool, scopes: Mapping[str, Any]) -> bool:
    """Evaluate a condition, with or without braces around it. Raises `TemplateError`."""
    if isinstance(condition, bool):
        return condition
    value = template(braced(condition)).render(scopes)
    return value.strip().lower() not in FALSE_WORDS if isinstance(value, str) else bool(value)


def braced(condition: str) -> str:
    """A condition as a template, with braces around it."""
    return condition if "{{" in condition or "{%" in condition else f"{{{{ {condition} }}}}"


def templates_in(
    value: object, path: KeyPath, without: Collection[str] = ()
) -> Iterator[tuple[str, KeyPath]]:
    """Yield the texts in plain data, except under the keys of `without`, each with its path."""
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            if key not in without:
                yield from templates_in(item, (*path, key), without)
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from templates_in(item, (*path, at), without)


def render(value: Any, scopes: Mapping[str, Any]) -> Any:
    """Render every text in plain data, once: templates in the results are data."""
    if isinstance(value, str):
        return template(value).render(scopes)
    if isinstance(value, Mapping):
        return {key: render(item, scopes) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [render(item, scopes) for item in cast("list[Any]", value)]
    return value
