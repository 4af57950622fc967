"""Scope: what templates and code of a workflow see, and rendering within it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from redraft.text.condition import holds, template

SCOPES = ("state", "variables", "env")
"""What templates read from."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Hold the state, the variables and the environment that a node sees, all of them plain JSON data.

    `names` are further names of code: `output`, `reflection_errors` and the like.
    """

    state: Mapping[str, Any]
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def adding(self, state: Mapping[str, Any], **names: Any) -> Scope:
        """Return this scope with more in its state, and more names."""
        return Scope({**self.state, **state}, self.variables, self.env, {**self.names, **names})

    def render(self, value: Any) -> Any:
        """Return `value` with every text in it rendered; raises `TemplateError`."""
        if isinstance(value, str):
            return template(value).render(self._scopes())
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value)
            return {key: self.render(item) for key, item in items.items()}
        if isinstance(value, list):
            return [self.render(item) for item in cast("list[Any]", value)]
        return value

    def text(self, source: str) -> str:
        """Return a template rendered as text; what is no text becomes JSON."""
        value = self.render(source)
        return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})

    def holds(self, condition: str | bool) -> bool:
        """Say whether a condition is true; it may do without the braces around it."""
        return holds(condition, self._scopes())

    def variables_of_code(self) -> dict[str, Any]:
        """Return the names that code sees."""
        return {**self._scopes(), **self.names}

    def _scopes(self) -> dict[str, Any]:
        return dict(zip(SCOPES, (self.state, self.variables, self.env), strict=True))
