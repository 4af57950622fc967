"""load_yaml: YAML without code, bombs, or surprises."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

Way: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value of a document."""

MAX_CHARACTERS = 1_000_000
MAX_NODES = 50_000
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_EXPANDED = 200_000

# The core schema of YAML 1.2: `no` is a text, `012` is twelve, `12:30` and `2001-01-01` are texts.
_SCALARS = (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"[-+]?[0-9]{1,18}$", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]{1,18}|[0-9]{1,18}(?:\.[0-9]{0,18})?)(?:[eE][-+]?[0-9]{1,3})?$",
        "-+.0123456789",
    ),
    ("null", r"(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("merge", r"<<$", "<"),
)

_TAGS = (
    None,
    *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map")),
)


def load_yaml(text: str, source: str = "YAML") -> Any:
    """Return the one document of a YAML text as plain data; `source` names it in errors.

    Plain scalars follow YAML 1.2. Raises `ConfigError` with the line for what is not valid, a key that comes
    twice, a tag that makes objects, several documents, and for what is too large: 1,000,000 characters,
    50,000 nodes, 64 levels, 100 aliases, 200,000 nodes once aliases are written out, or endless ones.
    """
    import yaml  # noqa: PLC0415 (only who reads YAML pays for it)

    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{source}: {len(text):,} characters; at most {MAX_CHARACTERS:,} are read.")
    try:
        # Events come one by one before anything is built: what is too large never gets built.
        _count(yaml.parse(text, Loader=yaml.CSafeLoader), source)
        value = yaml.load(text, _loader())  # noqa: S506 (ours is a safe loader)
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        line = f", line {place.line + 1}" if place else ""
        raise ConfigError(f"{source}{line}: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: {error}.") from error
    except ValueError as error:  # what a scalar with a tag of its own says, such as `!!int x`
        raise ConfigError(f"{source}: a value does not fit its tag: {error}.") from error
    _check_expanded(value, source)
    return value


def line_of(text: str, way: Way) -> int:
    """Return the 1-based line of what `way` leads to in a text that could be loaded, or the nearest above."""
    import yaml  # noqa: PLC0415 (only an error needs it)

    node: Any = cast("Any", yaml).compose(text, Loader=yaml.CSafeLoader)
    at = node
    for part in way:
        if isinstance(part, int):
            if not isinstance(node, yaml.SequenceNode) or part >= len(node.value):
                break
            at = node = node.value[part]
            continue
        if not isinstance(node, yaml.MappingNode):
            break
        entries: dict[Any, Any] = {key.value: (key, value) for key, value in node.value}
        if part not in entries:
            break
        at, node = entries[part]
    return at.start_mark.line + 1 if at else 1


def _count(events: Iterable[Any], source: str) -> None:
    import yaml  # noqa: PLC0415 (loaded already)

    nodes = depth = aliases = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            aliases += 1
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            tag: Any = cast("Any", event).tag
            if tag not in _TAGS:
                raise _at(event, source, f"the tag {tag!r} is not for plain data")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _at(event, source, f"more than {MAX_DEPTH} levels of nesting")
        if nodes > MAX_NODES:
            raise _at(event, source, f"more than {MAX_NODES:,} nodes")
        if aliases > MAX_ALIASES:
            raise _at(event, source, f"more than {MAX_ALIASES} aliases")


def _at(event: Any, source: str, what: str) -> ConfigError:
    return ConfigError(f"{source}, line {event.start_mark.line + 1}: {what}.")


@lru_cache(maxsize=1)
def _loader() -> Any:
    import yaml  # noqa: PLC0415 (loaded already)

    class Loader(yaml.CSafeLoader):
        """A safe loader that refuses keys that come twice, and merges that grow."""

        yaml_implicit_resolvers: Any = {}  # noqa: RUF012 (PyYAML's own way: a table of each class)

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > MAX_NODES:
                raise yaml.constructor.ConstructorError(
                    None, None, "merged keys are too many", node.start_mark
                )

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        problem = f"the key {key.value!r} comes twice"
                        raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    loader: Any = Loader
    for tag, pattern, first in _SCALARS:
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))

    def whole_number(_loader: Any, node: Any) -> int:
        return int(node.value)

    loader.add_constructor("tag:yaml.org,2002:int", whole_number)
    return loader


def _check_expanded(value: Any, source: str) -> None:
    """Count nodes with aliases written out; refuse what grows too large or contains itself."""
    sizes: dict[int, int] = {}

    def size(item: Any, above: frozenset[int]) -> int:
        if not isinstance(item, dict | list):
            return 1
        key = id(cast("object", item))
        if key in above:
            raise ConfigError(f"{source}: an alias refers to what it stands in.")
        if key not in sizes:
            inside: Iterable[Any] = cast("Any", item.values() if isinstance(item, dict) else item)
            total = 1
            for one in inside:
                total += size(one, above | {key})
                if total > MAX_EXPANDED:
                    raise ConfigError(f"{source}: aliases stand for more than {MAX_EXPANDED:,} nodes.")
            sizes[key] = total
        return sizes[key]

    size(value, frozenset())
