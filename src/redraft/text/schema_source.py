"""A JSON Schema with the files it refers to, and what it costs to check a value against it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Schema = dict[str, Any] | bool

MAX_FILES = 20
MAX_FILE_BYTES = 1_000_000
MAX_NODES = 50_000
MAX_DEPTH = 100

ROOT = "workflow:///schema"
_STRING_KEYWORDS = frozenset(
    ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")
)
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaTree:
    """A schema and the files inside one folder that its `$ref`s name, each read once.

    Without a folder there are no files. Nothing else is ever read: no URL, absolute path, `..`, or symbolic
    link that leads out of the folder. Raises `ConfigError` for those, and beyond 50,000 nodes, 100 levels or
    20 files of 1 MB each.
    """

    def __init__(self, root: Schema, folder: Path | None = None) -> None:
        self.folder = folder
        self.documents: dict[str, Any] = {ROOT: root}
        self.refusal: ConfigError | None = None
        self._anchors: dict[str, dict[str, Any]] = {}
        check_size(root)

    @property
    def root(self) -> Any:
        """The schema itself."""
        return self.documents[ROOT]

    def retrieve(self, address: str) -> Any:
        """Return the document at an address, for the validator; an error is also kept as `refusal`."""
        document = address.partition("#")[0]
        try:
            if document not in self.documents:
                self.documents[document] = self._read(document)
        except ConfigError as error:
            self.refusal = self.refusal or error
            raise
        return self.documents[document]

    def _read(self, address: str) -> Any:
        parts = urlsplit(address)
        if self.folder is None or parts.scheme != "workflow" or parts.netloc:
            where = "files beside the workflow" if self.folder is not None else "the schema's own '$defs'"
            raise ConfigError(f"{address!r} is not fetched; only {where} can be referred to")
        if len(self.documents) > MAX_FILES:
            raise ConfigError(f"the schema refers to more than {MAX_FILES} files")
        name = unquote(parts.path).lstrip("/")
        return _document(_path_inside(self.folder, name), name)

    def target(self, reference: Any, base: str) -> tuple[Any, str] | None:
        """Return the schema that a reference names, and its document; None if it is unknown."""
        if not isinstance(reference, str):
            return None
        address, _, fragment = _resolved(base, reference).partition("#")
        if address not in self.documents:
            return None
        found: Any = self.documents[address]
        if fragment and not fragment.startswith("/"):
            found = self._anchors_of(address).get(fragment)
            return None if found is None else (found, address)
        for step in unquote(fragment).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = cast("dict[str, Any]", found)[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(key)]
            else:
                return None
        return found, address

    def allows_strings(self) -> bool:
        """Say whether the schema, or one of its alternatives, allows strings."""
        seen: set[int] = set()
        waiting: list[tuple[Any, str]] = [(self.root, ROOT)]
        while waiting:
            node, base = waiting.pop()
            if node is True or node == {}:
                return True
            if not isinstance(node, dict) or id(cast("Any", node)) in seen:
                continue
            inner = cast("dict[str, Any]", node)
            seen.add(id(inner))
            if _asks_for_string(inner):
                return True
            waiting += [found for key in REFERENCES if (found := self.target(inner.get(key), base))]
            choices = (inner.get(key) for key in ("anyOf", "oneOf", "allOf"))
            listed = (cast("list[Any]", choice) for choice in choices if isinstance(choice, list))
            waiting += [(one, base) for branches in listed for one in branches]
        return False

    def _anchors_of(self, address: str) -> dict[str, Any]:
        if address not in self._anchors:
            found: dict[str, Any] = {}
            waiting: list[Any] = [self.documents[address]]
            while waiting:
                node: Any = waiting.pop()
                if isinstance(node, dict):
                    inner = cast("dict[str, Any]", node)
                    names = (inner.get("$anchor"), inner.get("$dynamicAnchor"))
                    found |= {name: inner for name in names if isinstance(name, str)}
                    waiting.extend(inner.values())
                elif isinstance(node, list):
                    waiting.extend(cast("list[Any]", node))
            self._anchors[address] = found
        return self._anchors[address]


def _asks_for_string(schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    if types is not None:
        return "string" in types
    options = [schema.get("const"), *schema.get("enum", ())]
    return any(isinstance(option, str) for option in options) or not _STRING_KEYWORDS.isdisjoint(schema)


def _resolved(base: str, reference: str) -> str:
    """Resolve a reference as the validator does; `urljoin` does not know our scheme."""
    if reference.startswith("#") or not reference:
        return base + reference
    if urlsplit(reference).scheme:
        return reference
    path, mark, fragment = reference.partition("#")
    return "workflow://" + normpath(join(dirname(urlsplit(base).path), path)) + mark + fragment


def check_size(schema: Any) -> None:
    """Raise `ConfigError` for a schema that is too large or refers to anything outside its folder."""
    level: list[Any] = [schema]
    nodes = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ConfigError(f"the schema is too large: at most {MAX_NODES:,} parts in {MAX_DEPTH} levels")
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner = cast("dict[str, Any]", node)
                _check_reference(inner.get("$ref"))
                deeper.extend(inner.values())
            elif isinstance(node, list):
                deeper.extend(cast("list[Any]", node))
        level = deeper


def _check_reference(reference: Any) -> None:
    if isinstance(reference, str) and not reference.startswith("#"):
        path = unquote(urlsplit(reference).path).replace("\\", "/")
        if path.startswith("/") or ".." in path.split("/"):
            raise ConfigError(
                f"{reference!r} is not fetched; refer to the schema's own '$defs', or, in a workflow, to a "
                "file beside it or beneath it"
            )


def _path_inside(folder: Path, name: str) -> Path:
    try:
        home = folder.resolve(strict=True)
        path = (home / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the schema refers to {name!r}, which is not beside the workflow") from error
    if not path.is_relative_to(home) or not path.is_file():
        raise ConfigError(f"{name!r} is not fetched; it is no file beside the workflow")
    return path


def _document(path: Path, name: str) -> Any:
    import json  # noqa: PLC0415 (few schemas refer to files)

    from redraft.text.yaml import load_yaml  # noqa: PLC0415 (as above)

    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name!r} is larger than {MAX_FILE_BYTES:,} bytes")
    try:
        text = data.decode()
        document = load_yaml(text, name) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name!r} is not valid JSON: {error}") from error
    if not isinstance(document, dict | bool):
        raise ConfigError(f"{name!r} holds no schema: expected an object")
    check_size(document)
    return cast("Any", document)


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
    """How large a value is: how many values, characters and levels it has."""

    nodes: int
    characters: int
    depth: int


def size_of(value: Any) -> Size:
    """Measure a value; raises `ValueError` if it is not JSON, or nested deeper than 100 levels."""
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
                raise ValueError(f"{_described(item)} is not JSON")
        level = deeper
    return Size(nodes, characters, depth)


def _keys(item: dict[Any, Any]) -> int:
    for key in item:
        if not isinstance(key, str):
            raise ValueError(f"the key {key!r} is not a text")  # noqa: TRY004 (a value that is no JSON)
    return sum(map(len, item))


def _is_scalar(item: Any) -> bool:
    return item is None or isinstance(item, int) or (isinstance(item, float) and isfinite(item))


def _described(item: Any) -> str:
    """Describe a value that is not JSON: NaN and infinities by themselves, anything else by its type."""
    return repr(item) if isinstance(item, float) else f"a {type(item).__name__}"


class Cost:
    """The number of times that a schema looks at one place of a value, at worst.

    For a plain verdict, the validator caches what it knows of recursive schemas, so a cycle counts once; to
    explain a verdict, it follows every branch on every level.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self.verdict = self._looks_at(tree.root, ROOT, {}, set())
        self._explained: dict[int, int] = {}

    def explained(self, depth: int) -> int:
        """Return how often a place `depth` levels down is looked at to explain a verdict."""
        if depth not in self._explained:
            self._explained[depth] = self._looks_at_depth(self.tree.root, ROOT, depth, {})
        return self._explained[depth]

    def _looks_at(self, schema: Any, base: str, known: dict[int, int], above: set[int]) -> int:
        if not isinstance(schema, dict) or id(cast("Any", schema)) in above:
            return 1
        node = cast("dict[str, Any]", schema)
        if id(node) not in known:
            above.add(id(node))
            looks = _own_looks(node)
            for _, inner, where in children(self.tree, node, base):
                looks += self._looks_at(inner, where, known, above)
            known[id(node)] = min(looks, HUGE)
            above.discard(id(node))
        return known[id(node)]

    def _looks_at_depth(self, schema: Any, base: str, depth: int, known: dict[tuple[int, int], int]) -> int:
        """Return the looks of a path down to `depth`: each place is either a list or an object."""
        if not isinstance(schema, dict):
            return 1
        key = (id(cast("Any", schema)), depth)
        if key in known:
            return known[key]
        known[key] = 1  # a schema that refers to itself at the same place is looked at once
        own = items = values = 0
        named: dict[str, int] = {}
        for where, inner, document in self._closure(schema, base):
            if where == "":
                own = min(own + _own_looks(inner), HUGE)
            elif depth > 0:
                looks = self._looks_at_depth(inner, document, depth - 1, known)
                if where == "[]":
                    items += looks
                elif where == "{}":
                    values += looks
                else:
                    named[where] = named.get(where, 0) + looks
        known[key] = min(own + max(items, values + max(named.values(), default=0)), HUGE)
        return known[key]

    def _closure(self, schema: Any, base: str) -> Iterator[tuple[str, Any, str]]:
        """Yield every schema that looks at one place, as `""`, and those that look one level down."""
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


def _own_looks(node: dict[str, Any]) -> int:
    options = node.get("enum")
    return 1 + (len(cast("list[Any]", options)) if isinstance(options, list) else 0)


def children(tree: SchemaTree, node: dict[str, Any], base: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the subschemas and where each looks: `""` (here), `[]`, `{}`, or `.key`."""
    for key, value in node.items():
        if key in REFERENCES:
            # An unknown target may be anything in the schema, so assume the most expensive: all of it.
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
