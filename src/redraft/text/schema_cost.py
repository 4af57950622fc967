"""What checking a value against a schema may cost, known before it is done."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from redraft.text.schema_tree import MAX_DEPTH, REFERENCES, ROOT, SchemaTree

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHECKS = 20_000_000
MAX_EXPLAINED = 20_000
MAX_COPIED = 50_000_000
HUGE = 10**12

_WHERE = {
    **dict.fromkeys(("not", "if", "then", "else"), ""),
    **dict.fromkeys(("items", "additionalItems", "unevaluatedItems", "contains"), "[]"),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "propertyNames"), "{}"),
}
_WHERE_LISTS = {"allOf": "", "anyOf": "", "oneOf": "", "items": "[{}]", "prefixItems": "[{}]"}
_WHERE_NAMED = {"dependentSchemas": "", "dependencies": "", "properties": ".", "patternProperties": "{}"}


@dataclass(frozen=True, slots=True)
class Size:
    """Say how large a value is: its values, the characters in it, and its levels."""

    nodes: int
    characters: int
    depth: int


def size_of(value: Any) -> Size:
    """Measure a value; raises `ValueError` for what is no JSON, or nested deeper than 100 levels."""
    level: list[Any] = [value]
    nodes = characters = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, str):
                characters += len(item)
            elif isinstance(item, dict):
                characters += _keys(cast("dict[Any, Any]", item))
                deeper.extend(cast("dict[Any, Any]", item).values())
            elif isinstance(item, list | tuple):
                deeper.extend(cast("list[Any]", item))
            elif not _is_scalar(item):
                raise ValueError(f"{_named(item)} is not JSON")
        level = deeper
    return Size(nodes, characters, depth)


def _keys(item: dict[Any, Any]) -> int:
    for key in item:
        if not isinstance(key, str):
            raise ValueError(f"the key {key!r} is not a text")  # noqa: TRY004 (a value that is no JSON)
    return sum(map(len, item))


def _is_scalar(item: Any) -> bool:
    return item is None or isinstance(item, int) or (isinstance(item, float) and isfinite(item))


def _named(item: Any) -> str:
    """Name what is no JSON: a number that is not finite by itself, all else by its type."""
    return repr(item) if isinstance(item, float) else f"a {type(item).__name__}"


class Cost:
    """Count how often a schema looks at one place of a value, at worst.

    The validator remembers what it knows of schemas that refer to themselves, so that for a plain verdict a
    cycle counts once; to explain a verdict it follows every branch on every level.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self.verdict = self._looks(tree.root, ROOT, {}, set())
        self._explained: dict[int, int] = {}

    def explained(self, depth: int) -> int:
        """Return how often one place, `depth` levels down, is looked at to explain a verdict."""
        if depth not in self._explained:
            self._explained[depth] = self._deep(self.tree.root, ROOT, depth, {})
        return self._explained[depth]

    def _looks(self, schema: Any, base: str, known: dict[int, int], above: set[int]) -> int:
        if not isinstance(schema, dict) or id(cast("Any", schema)) in above:
            return 1
        node = cast("dict[str, Any]", schema)
        if id(node) not in known:
            above.add(id(node))
            looks = _own(node)
            for _, inner, where in children(self.tree, node, base):
                looks += self._looks(inner, where, known, above)
            known[id(node)] = min(looks, HUGE)
            above.discard(id(node))
        return known[id(node)]

    def _deep(self, schema: Any, base: str, depth: int, known: dict[tuple[int, int], int]) -> int:
        """Follow a path down to `depth`: a place holds a list or an object, whose keys differ."""
        if not isinstance(schema, dict):
            return 1
        key = (id(cast("Any", schema)), depth)
        if key in known:
            return known[key]
        known[key] = 1  # a schema that is itself, in place, is looked at once
        own = items = values = 0
        named: dict[str, int] = {}
        for where, inner, document in self._closure(schema, base):
            if where == "":
                own = min(own + _own(inner), HUGE)
            elif depth > 0:
                looks = self._deep(inner, document, depth - 1, known)
                if where == "[]":
                    items += looks
                elif where == "{}":
                    values += looks
                else:
                    named[where] = named.get(where, 0) + looks
        known[key] = min(own + max(items, values + max(named.values(), default=0)), HUGE)
        return known[key]

    def _closure(self, schema: Any, base: str) -> Iterator[tuple[str, Any, str]]:
        """Yield all that looks at one place, with `""`, and what these look at one level down."""
        waiting: list[tuple[Any, str, int]] = [(schema, base, 0)]
        seen = 0
        while waiting:
            node, document, level = waiting.pop()
            seen += 1
            if not isinstance(node, dict) or level > MAX_DEPTH or seen > MAX_EXPLAINED:
                continue
            inner = cast("dict[str, Any]", node)
            yield "", inner, document
            for where, child, home in children(self.tree, inner, document):
                if where:
                    yield where, child, home
                else:
                    waiting.append((child, home, level + 1))


def _own(node: dict[str, Any]) -> int:
    options = node.get("enum")
    return 1 + (len(cast("list[Any]", options)) if isinstance(options, list) else 0)


def children(tree: SchemaTree, node: dict[str, Any], base: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the schemas within a schema, and where they look: `""` here, `[]`, `{}`, or at a key's value."""
    for key, value in node.items():
        if key in REFERENCES:
            # What we can't find may be anything in the schema: the whole is the safe guess.
            target, document = tree.target(value, base) or (tree.root, ROOT)
            yield "", target, document
        elif isinstance(value, list):
            for place, inner in enumerate(cast("list[Any]", value)):
                if key in _WHERE_LISTS:
                    yield _WHERE_LISTS[key].format(place), inner, base
        elif key in _WHERE:
            yield _WHERE[key], value, base
        elif key in _WHERE_NAMED and isinstance(value, dict):
            for name, inner in cast("dict[str, Any]", value).items():
                yield (f".{name}" if key == "properties" else _WHERE_NAMED[key]), inner, base
