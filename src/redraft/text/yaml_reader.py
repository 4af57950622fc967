"""Reader: plain data out of the events of a YAML text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from yaml import events

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_NODES = 50_000
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_EXPANDED = 200_000


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text[:20]!r}")
    return text.lower() == "true"


# The core schema of YAML 1.2: `no` is a text, `012` is twelve, `12:30` and `2001-01-01` are texts.
_PLAIN: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    (r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text in ("true", "True", "TRUE")),
    (r"[-+]?[0-9]{1,18}", "-+0123456789", int),
    (
        r"[-+]?(?:\.[0-9]{1,18}|[0-9]{1,18}(?:\.[0-9]{0,18})?)(?:[eE][-+]?[0-9]{1,3})?",
        "-+.0123456789",
        float,
    ),
    (r"~|null|Null|NULL|", "~nN", lambda _: None),
)
_BY_FIRST = {
    first: [(re.compile(pattern), make) for pattern, firsts, make in _PLAIN if first in firsts]
    for first in "tTfF-+.0123456789~nN"
} | {"": [(re.compile(""), _PLAIN[-1][2])]}
"""What a plain scalar may be, by its first character."""

_TAGGED: dict[str | None, Callable[[str], Any]] = {
    "tag:yaml.org,2002:str": str,
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:bool": _truth,
    "tag:yaml.org,2002:null": lambda _: None,
}
_SEQUENCE, _MAPPING = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"


class Reader:
    """Build plain data from the events of a YAML text, and refuse the first one that is too much."""

    def __init__(self, told: Iterator[Any], source: str) -> None:
        self._events = told
        self._source = source
        self._nodes = self._expanded = self._aliases = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """What an anchor stands for, and how many nodes that is; None inside of it."""

    def document(self) -> Any:
        """Return the value of the one document, None of an empty one; raises `ConfigError` with the line."""
        next(self._events)
        if isinstance(next(self._events), events.StreamEndEvent):
            return None
        value = self._node(next(self._events), 0)
        next(self._events)
        if not isinstance(after := next(self._events), events.StreamEndEvent):
            raise self._wrong(after, "expected a single document, but found another document")
        return value

    def _node(self, event: Any, depth: int) -> Any:
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        before = self._expanded
        self._nodes += 1
        self._count(event, 1)
        if event.anchor in self._anchors:
            raise self._wrong(event, f"found duplicate anchor {event.anchor!r}")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, events.ScalarEvent):
            value = self._scalar(event)
        elif depth == MAX_DEPTH:
            raise self._wrong(event, f"more than {MAX_DEPTH} levels of nesting")
        elif isinstance(event, events.SequenceStartEvent):
            self._check_tag(event, _SEQUENCE)
            value = [self._node(item, depth + 1) for item in self._until(events.SequenceEndEvent)]
        else:
            self._check_tag(event, _MAPPING)
            value = self._mapping(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._expanded - before
        return value

    def _until(self, end: type[Any]) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _mapping(self, depth: int) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for event in self._until(events.MappingEndEvent):
            key, value = self._node(event, depth), self._node(next(self._events), depth)
            if (
                isinstance(event, events.ScalarEvent)
                and event.value == "<<"
                and cast("Any", event).implicit[0]
            ):
                self._merge(merged, value, event)
            elif isinstance(key, dict | list):
                raise self._wrong(
                    event, "a mapping or a list is no key; a text that begins with a brace needs quotes"
                )
            elif key in own:
                raise self._wrong(event, f"the key {key!r} comes twice")
            else:
                own[key] = value
        return merged | own

    def _merge(self, merged: dict[Any, Any], value: Any, event: Any) -> None:
        for one in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise self._wrong(event, "expected a mapping, or a list of them, to merge with '<<'")
            for key, item in cast("dict[Any, Any]", one).items():
                merged.setdefault(key, item)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.tag is None:
            for pattern, make in _BY_FIRST.get(text[:1], ()) if event.implicit[0] else ():
                if pattern.fullmatch(text):
                    return make(text)
            return text
        if event.tag not in _TAGGED:
            self._check_tag(event, None)
        try:
            return _TAGGED[event.tag](text)
        except ValueError as error:
            raise self._wrong(event, f"a value does not fit its tag: {error}") from error

    def _check_tag(self, event: Any, own: str | None) -> None:
        if event.tag in (_SEQUENCE, _MAPPING, *_TAGGED) and event.tag != own:
            raise self._wrong(event, f"a value does not fit its tag {event.tag!r}")
        if event.tag not in (None, own):
            raise self._wrong(event, f"the tag {event.tag!r} is not for plain data")

    def _alias(self, event: Any) -> Any:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise self._wrong(event, f"more than {MAX_ALIASES} aliases")
        if event.anchor not in self._anchors:
            raise self._wrong(event, f"found undefined alias {event.anchor!r}")
        known = self._anchors[event.anchor]
        if known is None:
            raise self._wrong(event, "an alias refers to what it stands in")
        value, size = known
        self._count(event, size)
        return value

    def _count(self, event: Any, size: int) -> None:
        self._expanded += size
        if self._nodes > MAX_NODES:
            raise self._wrong(event, f"more than {MAX_NODES:,} nodes")
        if self._expanded > MAX_EXPANDED:
            raise self._wrong(event, f"aliases stand for more than {MAX_EXPANDED:,} nodes")

    def _wrong(self, event: Any, what: str) -> ConfigError:
        return ConfigError(f"{self._source}, line {event.start_mark.line + 1}: {what}.")
