"""Load and write YAML safely: no objects, no bombs, no surprising types."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import yaml
from yaml import events

from redraft.errors import ConfigError
from redraft.text.characters import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value in a document."""

MAX_CHARACTERS = 1_000_000


def load_yaml(text: str, source: str = "YAML") -> Any:
    """Parse the only document of a YAML text as plain data; `source` names it in errors.

    Plain scalars follow YAML 1.2. Raises `ConfigError` with the line for invalid YAML, duplicate keys, tags
    that make objects, several documents, recursive aliases, and beyond 1,000,000 characters, 50,000 nodes,
    64 levels, 100 aliases, or 200,000 nodes once aliases are expanded.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"{source}: the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed."
        )
    try:
        # Events come one by one, so a document that is too large is never built.
        return YamlReader(yaml.parse(text, Loader=yaml.CSafeLoader), source).document()
    except UnicodeEncodeError as error:  # a lone surrogate
        raise ConfigError(f"{source}: {error}.") from error
    except yaml.YAMLError as error:
        line, message = _explain(error, text)
        raise ConfigError(f"{source}{f', line {line}' if line else ''}: {message}.") from error


def line_of(text: str, path: KeyPath) -> int:
    """The line, from 1, of the value at `path` in a valid text, or of its nearest ancestor."""
    key, _ = _nodes_at(text, path)
    return key.start_mark.line + 1 if key else 1


def line_within(text: str, path: KeyPath, line: int) -> int | None:
    """The line of the file that holds line `line` of the text at `path`, both from 1.

    None if lines of the text are not lines of the file, as in a folded scalar.
    """
    _, node = _nodes_at(text, path)
    if node is None or not isinstance(node.value, str):
        return None
    if node.style == "|":
        return node.start_mark.line + 1 + line
    return node.start_mark.line + 1 if line == 1 and "\n" not in node.value else None


def _nodes_at(text: str, path: KeyPath) -> tuple[Any, Any]:
    """The nodes of the last key on the path that exists, and of its value; None for an absent value."""
    node: Any = cast("Any", yaml).compose(text, Loader=yaml.CSafeLoader)
    last = node
    for part in path:
        if isinstance(part, int):
            if not isinstance(node, yaml.SequenceNode) or part >= len(node.value):
                return last, None
            last = node = node.value[part]
            continue
        if not isinstance(node, yaml.MappingNode):
            return last, None
        entries: dict[Any, Any] = {key.value: (key, value) for key, value in node.value}
        if part not in entries:
            return last, None
        last, node = entries[part]
    return last, node


class ListEnd(NamedTuple):
    """Where an item can be appended to a list in a text."""

    at: int
    """The place in the text: after the last line of the last item, or before the closing bracket."""
    indent: int
    is_flow: bool
    has_items: bool


def end_of_list(text: str, path: KeyPath) -> ListEnd | None:
    """The place at which to append an item to the list at `path` of a valid text; None without a list."""
    _, node = (
        _nodes_at(text, path) if path else (None, cast("Any", yaml).compose(text, Loader=yaml.CSafeLoader))
    )
    if not isinstance(node, yaml.SequenceNode):
        return None
    if node.flow_style:
        return ListEnd(node.end_mark.index - 1, 0, is_flow=True, has_items=bool(node.value))
    last: Any = node.value[-1]
    while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    line = last.end_mark.line if last.end_mark.column else last.end_mark.line - 1
    lines = text.split("\n")
    return ListEnd(
        sum(map(len, lines[: line + 1])) + line + 1, node.start_mark.column, is_flow=False, has_items=True
    )


ADVICE = {
    "alphabetic or numeric character": "a string that begins with '*' or '&' needs quotes",
    "cannot start any token": "a string that begins with {character!r} needs quotes",
    "could not find expected ':'": "the key on line {start} needs a colon and a space after it",
    "did not find expected ',' or": "a bracket on line {start} is not closed, or a string in it needs quotes",
    "did not find expected key": "check that lines begin in the same column and no string has a quote inside",
    "mapping values are not allowed": "a string with ': ' in it needs quotes; else check the indentation",
    "tab character": "indent with spaces",
    "unexpected end of stream": "the quote on line {start} is not closed",
    "unknown escape character": "write the backslash twice, or use single quotes",
}
"""Advice, by a part of the parser's message."""


def _explain(error: yaml.YAMLError, text: str) -> tuple[int | None, str]:
    """The line of a syntax error, if available, and a message with advice."""
    if isinstance(error, yaml.MarkedYAMLError) and (error.problem_mark or error.context_mark):
        return _explain_marked(error, text)
    if isinstance(error, yaml.reader.ReaderError) and isinstance(error.character, int):
        before = text.partition(chr(error.character))[0]
        return before.count("\n") + 1, f"the character U+{error.character:04X} can't be in YAML"
    return None, str(error)


def _explain_marked(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    mark: Any = error.problem_mark or error.context_mark
    start: Any = error.context_mark or mark
    message = str(error.problem or error.context)
    line = "".join(text.split("\n")[mark.line : mark.line + 1])
    character = line[mark.column : mark.column + 1]
    if character == "\t" and "cannot start any token" in message:
        message = "found a tab character where none can be"
    if "exceeded maximum nesting depth" in message:  # the parser looks ahead, and its own limit is higher
        message = f"more than {MAX_DEPTH} levels of nesting"
    advice = next((advice for part, advice in ADVICE.items() if part in message), None)
    if advice is not None:
        message = f"{message}; {advice.format(start=start.line + 1, character=character)}"
    return mark.line + 1, message


MAX_NODES = 50_000
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_EXPANDED = 200_000
MAX_DIGITS = 4_300
"""Digits of a number, as in Python's JSON: longer numbers take long to convert."""


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text[:20]!r}")
    return text.lower() == "true"


def _float(text: str) -> float | str:
    number = float(text)
    return number if isfinite(number) else text  # JSON has no infinity


# The core schema of YAML 1.2: `no` is a string, `012` is twelve, `12:30` and `2001-01-01` are strings.
_DIGITS = f"[0-9]{{1,{MAX_DIGITS}}}"
_PLAIN: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text[0] in "tT"),
    (re.compile(rf"[-+]?{_DIGITS}"), int),
    (
        re.compile(rf"[-+]?(?:\.{_DIGITS}|{_DIGITS}(?:\.(?:{_DIGITS})?)?)(?:[eE][-+]?[0-9]{{1,3}})?"),
        _float,
    ),
    (re.compile(r"~|null|Null|NULL|"), lambda _: None),
)


def _plain_value(text: str) -> Any:
    """The value of a plain scalar: itself, or the number, boolean or null that it is written as."""
    return next((make(text) for pattern, make in _PLAIN if pattern.fullmatch(text)), text)


_TAGGED: dict[str | None, Callable[[str], Any]] = {
    "tag:yaml.org,2002:str": str,
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:bool": _truth,
    "tag:yaml.org,2002:null": lambda _: None,
}
_SEQUENCE, _MAPPING = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"


class YamlReader:
    """Builds plain data from the events of a YAML text, and stops at the first event that exceeds a limit."""

    def __init__(self, stream: Iterator[Any], source: str) -> None:
        self._events = stream
        self._source = source
        self._nodes = self._expanded = self._aliases = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """The value of each anchor and its number of nodes; None while it is being read."""

    def document(self) -> Any:
        """Build the value of the only document, None if it is empty; raises `ConfigError` with the line."""
        next(self._events)
        if isinstance(next(self._events), events.StreamEndEvent):
            return None
        value = self._node(next(self._events), 0)
        next(self._events)
        if not isinstance(after := next(self._events), events.StreamEndEvent):
            raise self._error(after, "expected a single document, but found another document")
        return value

    def _node(self, event: Any, depth: int) -> Any:
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        before = self._expanded
        self._nodes += 1
        self._count(event, 1)
        if event.anchor in self._anchors:
            raise self._error(event, f"found duplicate anchor {event.anchor!r}")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, events.ScalarEvent):
            value = self._scalar(event)
        elif depth == MAX_DEPTH:
            raise self._error(event, f"more than {MAX_DEPTH} levels of nesting")
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
                raise self._error(
                    event,
                    "a mapping or a list can't be a key; a string that begins with a brace needs quotes",
                )
            elif key in own:
                raise self._error(event, f"duplicate key {key!r}")
            else:
                own[key] = value
        return merged | own

    def _merge(self, merged: dict[Any, Any], value: Any, event: Any) -> None:
        for mapping in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(mapping, dict):
                raise self._error(event, "expected a mapping, or a list of them, to merge with '<<'")
            for key, item in cast("dict[Any, Any]", mapping).items():
                merged.setdefault(key, item)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.tag is None:
            return _plain_value(text) if event.implicit[0] else text
        if event.tag not in _TAGGED:
            self._check_tag(event, None)
        try:
            return _TAGGED[event.tag](text)
        except ValueError as error:
            raise self._error(event, f"a value does not fit its tag: {error}") from error

    def _check_tag(self, event: Any, own: str | None) -> None:
        if event.tag in (_SEQUENCE, _MAPPING, *_TAGGED) and event.tag != own:
            raise self._error(event, f"a value does not fit its tag {event.tag!r}")
        if event.tag not in (None, own):
            raise self._error(event, f"the tag {event.tag!r} is not allowed: only plain data is read")

    def _alias(self, event: Any) -> Any:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise self._error(event, f"more than {MAX_ALIASES} aliases")
        if event.anchor not in self._anchors:
            raise self._error(event, f"found undefined alias {event.anchor!r}")
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise self._error(event, "an alias refers to a value that contains it")
        value, size = anchored
        self._count(event, size)
        return value

    def _count(self, event: Any, size: int) -> None:
        self._expanded += size
        if self._nodes > MAX_NODES:
            raise self._error(event, f"more than {MAX_NODES:,} nodes")
        if self._expanded > MAX_EXPANDED:
            raise self._error(event, f"aliases expand to more than {MAX_EXPANDED:,} nodes")

    def _error(self, event: Any, what: str) -> ConfigError:
        return ConfigError(f"{self._source}, line {event.start_mark.line + 1}: {what}.")


# --- writing -----------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, which can be edited."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    text = well_formed(text)
    lines = text.split("\n")
    if "".join(lines) != "".join(text.splitlines()):  # only quotation marks preserve U+0085 and U+2028
        style = '"'
    elif not isinstance(_plain_value(text), str):  # PyYAML quotes only what YAML 1.1 reads as a number
        style = "'"
    else:
        style = "|" if len(lines) > 1 and all(line == line.rstrip() for line in lines) else None
    return cast("Any", dumper).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(value: Any) -> str:
    """Write plain data as editable YAML; any text is read back unchanged, except for lone surrogates."""
    return cast("Any", yaml).dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
