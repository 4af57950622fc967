"""The parts of an agent file, each with the way to it: what is to be checked, and what reads the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import BaseModel

from redraft.cycles.memory import STANDARD_KEYS
from redraft.cycles.spec_reflect import Learn, UpdateState
from redraft.text.condition import braced, template
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from redraft.cycles.spec import AgentSpec
    from redraft.text.yaml import Way

STAGES = ("sense", "reason", "actuate", "reflect")
MEMORY = "memory."

CONDITIONS = frozenset({"when", "require"})
TEMPLATES = frozenset({"prompt", "url", "headers", "body", "message", "reason", "with", "params", "path"})
"""The keys whose texts are rendered; where one holds data of any shape, so are the texts in it."""


class Text(NamedTuple):
    """Hold a text of the file that is rendered, the way to it, and whether it is a condition."""

    text: str
    way: Way
    is_condition: bool

    @property
    def template(self) -> str:
        """The text as a template."""
        return braced(self.text) if self.is_condition else self.text


def substages(spec: AgentSpec) -> Iterator[tuple[str, Any, Way]]:
    """Yield each substage with its stage and the way to it, in the order in which they run."""
    stages = dict(spec.stages)
    for stage in STAGES:
        part: Any = stages[stage]
        for at, substage in enumerate(part.substages if part is not None else ()):
            yield stage, substage, ("stages", stage, "substages", at)


def texts(part: BaseModel, way: Way) -> Iterator[Text]:
    """Yield every template and condition in a part of the file."""
    for name, value in part:
        key = type(part).model_fields[name].alias or name
        if key in CONDITIONS and isinstance(value, str):
            yield Text(value, (*way, key), is_condition=True)
        elif key in TEMPLATES:
            yield from _in_data(value, (*way, key))
        else:
            yield from _inside(value, (*way, key))


def memory_keys(spec: AgentSpec) -> tuple[str, ...]:
    """Return the keys of an agent's memory: the standard ones, and those that its file names.

    A prompt, a condition, a target or a retention policy names one. Specification 004, Memory Keys.
    """
    found: dict[str, None] = dict.fromkeys(STANDARD_KEYS)
    for _, substage, way in substages(spec):
        for text in texts(substage, way):
            found |= dict.fromkeys(keys_read(text.template))
        if isinstance(substage, UpdateState):
            found |= dict.fromkeys(key.removeprefix(MEMORY) for key in substage.config.retention)
        if isinstance(substage, Learn) and substage.config.target is not None:
            found[substage.config.target.removeprefix(MEMORY)] = None
    return tuple(found)


ANY = "*"
"""Stands for every name."""


def parameters_of(action: BaseModel) -> tuple[str, ...]:
    """Return the parameters of a plan that an action reads, sorted; `*` where it reads them as a whole."""
    found: set[str] = set()
    for text in texts(action, ()):
        try:
            paths = template(text.template).paths
        except TemplateError:
            continue
        for path in paths:
            inside = path[1:] if path[0] == "action" and path[1:2] == ("params",) else path
            if path == ("action",):
                found.add(ANY)
            elif inside[0] == "params":
                found.add(str(inside[1]) if len(inside) > 1 else ANY)
    return tuple(sorted(found))


def keys_read(text: str) -> list[str]:
    """Return the memory keys that a template names, sorted; none for one that does not parse."""
    try:
        paths = template(text).paths
    except TemplateError:
        return []
    return sorted({str(path[1]) for path in paths if path[0] == "memory" and len(path) > 1})


def _inside(value: Any, way: Way) -> Iterator[Text]:
    if isinstance(value, BaseModel):
        yield from texts(value, way)
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from _inside(item, (*way, at))


def _in_data(value: Any, way: Way) -> Iterator[Text]:
    if isinstance(value, str):
        yield Text(value, way, is_condition=False)
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _in_data(item, (*way, key))
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from _in_data(item, (*way, at))
