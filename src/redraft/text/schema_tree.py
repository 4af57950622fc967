"""A JSON Schema as a tree: its references and files, the cost of a check, and the number of its checks."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from redraft._pointers import path_of
from redraft.errors import ConfigError
from redraft.text.json import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    Schema = dict[str, Any] | bool

MAX_FILES = 20
MAX_FILE_BYTES = 1_000_000
MAX_NODES = 50_000

ROOT = "workflow:///schema"
_STRING_KEYWORDS = frozenset(
    ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")
)
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Place: TypeAlias = "tuple[str | int, ...]"


class Part(NamedTuple):
    """A part of a schema, or of a file that the schema refers to."""

    node: dict[str, Any]
    base: str
    """The address of its document."""
    path: Place
    """Its place in its document."""
    place: Place
    """Its place in the schema itself; for a part of a file, the place of the reference to the file."""


class SchemaTree:
    """A schema and the files inside one folder that its `$ref`s name, each read once.

    Without a folder there are no files. Nothing else is ever read: no URL, absolute path, `..`, or symbolic
    link that leads out of the folder. Raises `ConfigError` beyond 50,000 nodes, 100 levels or 20 files of
    1 MB each.
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

    def parts(self) -> Iterator[Part]:
        """Yield every part of the schema and of the files that have been read, once.

        What a reference names comes last, so that a part with a place in the schema itself has that place.
        """
        seen = set[int]()
        targets = [Part(self.root, ROOT, (), ())]
        while targets:
            waiting, targets = targets, list[Part]()
            for part in waiting:  # grows
                node, base, path, place = part
                if not isinstance(node, dict) or id(node) in seen:  # pyright: ignore[reportUnnecessaryIsInstance] (a part may be a boolean)
                    continue
                seen.add(id(node))
                yield part
                for _, inside, inner, document in children(self, node, base):
                    if inside[0] in REFERENCES:
                        target = path_of(unquote(str(node[inside[0]]).partition("#")[2]))
                        reference = (*place, *inside) if base == ROOT else place
                        targets.append(
                            Part(inner, document, target, target if document == ROOT else reference)
                        )
                    else:
                        inner_place = (*place, *inside) if base == ROOT else place
                        waiting.append(Part(inner, base, (*path, *inside), inner_place))

    def wrong_references(self, part: Part) -> Iterator[tuple[Place, str]]:
        """Yield the references of a part that name nothing, or no file that may be read; reads files."""
        for key in REFERENCES:
            if not isinstance(reference := part.node.get(key), str):
                continue
            place = (*part.place, key) if part.base == ROOT else part.place
            try:
                _check_reference(reference)
                self.retrieve(_resolved(part.base, reference))
            except ConfigError as error:
                yield place, str(error)
            else:
                if self.target(reference, part.base) is None:
                    yield place, f"the schema is not valid: {reference!r} does not exist"

    def retrieve(self, address: str) -> Any:
        """The document at an address, for the validator; an error is also stored as `refusal`."""
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
            where = (
                "files in the folder of the workflow"
                if self.folder is not None
                else "the schema's own '$defs'"
            )
            raise ConfigError(f"{address!r} is not fetched; only {where} can be referred to")
        if len(self.documents) > MAX_FILES:
            raise ConfigError(f"the schema refers to more than {MAX_FILES} files")
        name = name_of(address)
        return _document(_path_inside(self.folder, name), name)

    def target(self, reference: Any, base: str) -> tuple[Any, str] | None:
        """The schema that a reference names, and its document; None if it is unknown."""
        if not isinstance(reference, str):
            return None
        address, _, fragment = _resolved(base, reference).partition("#")
        if address not in self.documents:
            return None
        node: Any = self.documents[address]
        if fragment and not fragment.startswith("/"):
            node = self._anchors_of(address).get(fragment)
            return None if node is None else (node, address)
        for key in path_of(unquote(fragment)):
            if isinstance(node, dict) and key in node:
                node = cast("dict[str, Any]", node)[key]
            elif isinstance(node, list) and key.isdigit() and int(key) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(key)]
            else:
                return None
        return node, address

    def allows_strings(self) -> bool:
        """Whether the schema, or one of its alternatives, allows strings."""
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
            waiting += [
                (part, document)
                for _, inside, part, document in children(self, inner, base)
                if inside[0] in (*REFERENCES, "anyOf", "oneOf", "allOf")
            ]
        return False

    def _anchors_of(self, address: str) -> dict[str, Any]:
        if address not in self._anchors:
            self._anchors[address] = {
                name: node
                for node in _nodes(self.documents[address])
                for name in (node.get("$anchor"), node.get("$dynamicAnchor"))
                if isinstance(name, str)
            }
        return self._anchors[address]


def name_of(address: str) -> str:
    """The name of the file at an address."""
    return unquote(urlsplit(address).path).lstrip("/")


def _asks_for_string(schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    if types is not None:
        return "string" in types
    options = [schema.get("const"), *schema.get("enum", ())]
    return any(isinstance(option, str) for option in options) or not _STRING_KEYWORDS.isdisjoint(schema)


def _resolved(base: str, reference: str) -> str:
    """Resolve a reference as the validator does; `urljoin` does not support this scheme."""
    if reference.startswith("#") or not reference:
        return base + reference
    if urlsplit(reference).scheme:
        return reference
    path, mark, fragment = reference.partition("#")
    return "workflow://" + normpath(join(dirname(urlsplit(base).path), path)) + mark + fragment


def check_size(schema: Any) -> None:
    """Raise `ConfigError` for a schema that is too large."""
    level: list[Any] = [schema]
    nodes = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ConfigError(f"the schema is too large: at most {MAX_NODES:,} parts in {MAX_DEPTH} levels")
        level = [inner for node in level for inner in _inside(node)]


def _inside(node: Any) -> Iterable[Any]:
    return cast(
        "Iterable[Any]", node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    )


def _nodes(document: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a document."""
    waiting = [document]
    while waiting:
        node: Any = waiting.pop()
        if isinstance(node, dict):
            yield cast("dict[str, Any]", node)
        waiting.extend(_inside(node))


def check_references(document: Any) -> None:
    """Raise `ConfigError` for the first reference to anything outside the folder of the schema."""
    for node in _nodes(document):
        _check_reference(node.get("$ref"))


def _check_reference(reference: Any) -> None:
    if isinstance(reference, str) and not reference.startswith("#"):
        path = unquote(urlsplit(reference).path).replace("\\", "/")
        if path.startswith("/") or ".." in path.split("/"):
            raise ConfigError(
                f"{reference!r} is not fetched; refer to the schema's own '$defs', or, in a workflow, to a "
                "file in its folder"
            )


def _path_inside(folder: Path, name: str) -> Path:
    try:
        home = folder.resolve(strict=True)
        path = (home / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"the schema refers to {name!r}, which is not in the folder of the workflow"
        ) from error
    if not path.is_relative_to(home) or not path.is_file():
        raise ConfigError(f"{name!r} is not fetched; it is not a file in the folder of the workflow")
    return path


def _document(path: Path, name: str) -> Any:
    import json  # noqa: PLC0415 (few schemas refer to files)

    from redraft.text.yaml import load_yaml  # noqa: PLC0415 (few schemas refer to files)

    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name!r} is larger than {MAX_FILE_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
        document = load_yaml(text, name) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name!r} is not valid JSON: {error}") from error
    if not isinstance(document, dict | bool):
        raise ConfigError(f"{name!r} holds no schema: expected an object")
    check_size(document)
    check_references(document)
    return cast("Any", document)


# The cost of a check.

MAX_CHECKS = 20_000_000
MAX_EXPLAINED = 20_000
MAX_COPIED = 50_000_000
HUGE = 10**12

_WHERE: dict[str, str | None] = {
    "contentSchema": None,
    **dict.fromkeys(("not", "if", "then", "else"), ""),
    **dict.fromkeys(("items", "additionalItems", "unevaluatedItems", "contains"), "[]"),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "propertyNames"), "{}"),
}
_WHERE_LISTS = {"allOf": "", "anyOf": "", "oneOf": "", "items": "[{}]", "prefixItems": "[{}]"}
_WHERE_NAMED = {
    **dict.fromkeys(("dependentSchemas", "dependencies"), ""),
    "properties": ".",
    "patternProperties": "{}",
    **dict.fromkeys(("$defs", "definitions")),
}
"""The place that the schemas under a keyword inspect (see `children`)."""


class Cost:
    """The maximum number of times that a schema inspects one place of a value.

    For a plain verdict, the validator caches results of recursive schemas, so a cycle counts once; to explain
    a verdict, it follows every branch on every level.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self.verdict = self._looks_at(tree.root, ROOT, {}, set())
        self._explained: dict[int, int] = {}

    def explained(self, depth: int) -> int:
        """Number of inspections of a place `depth` levels down to explain a verdict."""
        if depth not in self._explained:
            self._explained[depth] = self._looks_at_depth(self.tree.root, ROOT, depth, {})
        return self._explained[depth]

    def _looks_at(self, schema: Any, base: str, costs: dict[int, int], above: set[int]) -> int:
        if not isinstance(schema, dict) or id(cast("Any", schema)) in above:
            return 1
        node = cast("dict[str, Any]", schema)
        if id(node) not in costs:
            above.add(id(node))
            looks = _own_looks(node)
            for where, _, inner, document in children(self.tree, node, base):
                looks += 0 if where is None else self._looks_at(inner, document, costs, above)
            costs[id(node)] = min(looks, HUGE)
            above.discard(id(node))
        return costs[id(node)]

    def _looks_at_depth(self, schema: Any, base: str, depth: int, costs: dict[tuple[int, int], int]) -> int:
        """Inspections on a path down to `depth`: each place is either a list or an object."""
        if not isinstance(schema, dict):
            return 1
        key = (id(cast("Any", schema)), depth)
        if key in costs:
            return costs[key]
        costs[key] = 1  # a schema that refers to itself at the same place is inspected once
        own = items = values = 0
        named: dict[str, int] = {}
        for where, inner, document in self._closure(schema, base):
            if where == "":
                own = min(own + _own_looks(inner), HUGE)
            elif depth > 0:
                looks = self._looks_at_depth(inner, document, depth - 1, costs)
                if where == "[]":
                    items += looks
                elif where == "{}":
                    values += looks
                else:
                    named[where] = named.get(where, 0) + looks
        costs[key] = min(own + max(items, values + max(named.values(), default=0)), HUGE)
        return costs[key]

    def _closure(self, schema: Any, base: str) -> Iterator[tuple[str, Any, str]]:
        """Yield the schemas that inspect a place, as `""`, and the schemas that inspect one level down."""
        waiting: list[tuple[Any, str, int]] = [(schema, base, 0)]
        seen = 0
        while waiting:
            node, document, level = waiting.pop()
            seen += 1
            if not isinstance(node, dict) or level > MAX_DEPTH or seen > MAX_EXPLAINED:
                continue
            inner = cast("dict[str, Any]", node)
            yield "", inner, document
            for where, _, child, home in children(self.tree, inner, document):
                if where:
                    yield where, child, home
                elif where is not None:
                    waiting.append((child, home, level + 1))


def _own_looks(node: dict[str, Any]) -> int:
    options = node.get("enum")
    return 1 + (len(cast("list[Any]", options)) if isinstance(options, list) else 0)


def children(
    tree: SchemaTree, node: dict[str, Any], base: str
) -> Iterator[tuple[str | None, Place, Any, str]]:
    """Yield the subschemas, each with what it inspects, its place in the node, and its document.

    It inspects the same place of a value (`""`), items (`[]`), other keys (`{}`), `.key`, or nothing (None).
    """
    for key, value in node.items():
        if key in REFERENCES:
            # An unknown target may be anything in the schema, so assume the most expensive: all of it.
            target, document = tree.target(value, base) or (tree.root, ROOT)
            yield "", (key,), target, document
        elif isinstance(value, list):
            for at, inner in enumerate(cast("list[Any]", value)):
                if key in _WHERE_LISTS:
                    yield _WHERE_LISTS[key].format(at), (key, at), inner, base
        elif key in _WHERE:
            yield _WHERE[key], (key,), value, base
        elif key in _WHERE_NAMED and isinstance(value, dict):
            for name, inner in cast("dict[str, Any]", value).items():
                where = f".{name}" if key == "properties" else _WHERE_NAMED[key]
                yield where, (key, name), inner, base


# Keywords without effect.

_KEYWORDS = frozenset(
    """
$id id $schema $ref $anchor $defs definitions $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor
$vocabulary $comment type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength
maxLength pattern format contentEncoding contentMediaType contentSchema items prefixItems additionalItems
unevaluatedItems contains minContains maxContains minItems maxItems uniqueItems properties patternProperties
additionalProperties unevaluatedProperties propertyNames required minProperties maxProperties dependencies
dependentRequired dependentSchemas not allOf anyOf oneOf if then else title description default examples
deprecated readOnly writeOnly
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
)
"""The keywords of all drafts."""
_OTHERS = frozenset(("example", "comment", "note", "notes", "types"))
"""Keys that authors add on purpose, though they resemble keywords."""
_EXPECTED = _KEYWORDS | _OTHERS
_MIN_SIMILARITY = 0.8


def ineffective_keywords(tree: SchemaTree) -> Iterator[tuple[Place, str]]:
    """Yield the places of keywords that have no effect, each with what was probably meant.

    According to the standard, a validator ignores unknown keywords, so the intended check is missing. A
    keyword in a file is at the place of the reference to the file.
    """
    root = tree.root
    draft = str(cast("Any", root).get("$schema")) if isinstance(root, dict) else ""
    has_dependencies = any(name in draft for name in _WITH_DEPENDENCIES)
    for node, base, path, place in tree.parts():
        for key in cast("dict[Any, Any]", node):
            what = ""
            if isinstance(key, str) and key not in _EXPECTED:
                from difflib import get_close_matches  # noqa: PLC0415 (few schemas have such a key)

                for meant in get_close_matches(key, sorted(_KEYWORDS), 1, _MIN_SIMILARITY):
                    what = f"JSON Schema has no keyword {key!r}, so it has no effect; "
                    what += f"did you mean {meant!r}?"
            elif key == "dependencies" and not has_dependencies:
                what = _DEPENDENCIES
            if what and base == ROOT:
                yield (*place, key), what
            elif what:
                yield place, f"in {name_of(base)!r}: {'.'.join(map(str, (*path, key)))}: {what}"


_WITH_DEPENDENCIES = ("draft-07", "draft-06", "draft-04", "2019-09")
_DEPENDENCIES = (
    "'dependencies' belongs to draft 7 and has no effect in draft 2020-12; write 'dependentRequired', or "
    "'$schema: http://json-schema.org/draft-07/schema#'"
)


# The score of a value.

_LEAVES = frozenset(
    """
type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
minItems maxItems uniqueItems minProperties maxProperties contains minContains maxContains not format
contentEncoding contentMediaType if dependentRequired dependentSchemas dependencies
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
)
_MANY = (
    *("items", "additionalItems", "additionalProperties", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_ALL = (*REFERENCES, "allOf", "prefixItems", "properties")
_CONDITIONAL = frozenset(("if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"))


class Score:
    """Score a value by the share of a schema's checks that it passes.

    Each assertion of a schema is one check, and so is each required key; the checks of every described
    property and item are added.

    - A wrong type fails every check beneath it, and so does a missing required key.
    - Checks of an optional part that is absent pass.
    - The checks of items, additional and pattern properties count once for all of them: with a weight w and
      f failures among the items, w * f / (w + f) is lost.
    - Of `anyOf` and `oneOf`, the closest branch counts; `oneOf` is one more check.
    - The consequence of a condition (`then`, `else`, `dependent...`) is one check.

    So the total depends on the schema alone, and fixing an error never lowers the score unless that reveals
    new ones. Only a value without errors scores 1.0.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self._weights: dict[int, int] = {}
        self.total = max(1, self._weight(tree.root, ROOT))

    def of(self, errors: Iterable[Any]) -> float:
        """Score, from 0.0 to 1.0, of a value with these errors of the validator."""
        lost = self._loss_of(errors)
        if not lost:
            return 1.0
        return min(max(0.0, 1.0 - lost / self.total), 1.0 - 1e-9)

    def _loss_of(self, errors: Iterable[Any]) -> float:
        lost = 0.0
        groups: dict[tuple[Any, ...], list[float]] = {}
        for error in errors:
            group, weight, loss = self._locate(error)
            if group is None:
                lost += loss
            else:
                groups.setdefault(group, [weight, 0.0])[1] += loss
        return lost + sum(weight * failed / (weight + failed) for weight, failed in groups.values())

    def _locate(self, error: Any) -> tuple[tuple[Any, ...] | None, float, float]:
        """The group of items that an error belongs to, if any, the group's weight, and the loss."""
        path: Sequence[Any] = error.evaluation_path
        node, base = self.tree.root, ROOT
        holder: Any = node
        group: tuple[Any, ...] | None = None
        weight = 1.0
        above = {id(node)}
        for place, key in enumerate(path):
            holder = node  # after the loop: the schema that holds the keyword that failed
            child = self._step(node, key, base)
            again = child is not None and key in REFERENCES and id(child[0]) in above
            if group is None and (key in _MANY or key in _CONDITIONAL or key == "patternProperties" or again):
                group = tuple(path[: place + 1])
                weight = 1.0 if again or child is None or key in _CONDITIONAL else self._least(*child)
            node, base = child or (None, base)
            above.add(id(node))
        return group, weight, self._loss(error, path[-1] if path else "", holder, base)

    def _step(self, node: Any, key: Any, base: str) -> tuple[Any, str] | None:
        if isinstance(node, dict) and key in node:
            inner = cast("dict[Any, Any]", node)[key]
            return (self.tree.target(inner, base)) if key in REFERENCES else (inner, base)
        if isinstance(node, list) and isinstance(key, int) and key < len(cast("list[Any]", node)):
            return cast("list[Any]", node)[key], base
        return None

    def _loss(self, error: Any, keyword: Any, holder: Any, base: str) -> float:
        schema = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
        kind, value = error.kind.name, error.kind.value
        if kind == "type":
            return self._least(schema, base)
        if kind == "required" and keyword == "required":
            described = schema.get("properties", {})
            return 1 + (self._weight(described[value], base) if value in described else 0)
        if kind in ("anyOf", "oneOf") and isinstance(schema.get(kind), list):
            nearest = min(
                (self._share(schema[kind], place, context, base) for place, context in enumerate(value))
            )
            return (kind == "oneOf") + nearest * self._nearest(schema[kind], base)
        if kind in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems") and value:
            return len(value)
        return 1

    def _share(self, branches: list[Any], place: int, context: list[Any], base: str) -> float:
        """The lost share of a branch."""
        weight = self._least(branches[place], base) if place < len(branches) else 1
        return min(1.0, self._loss_of(context) / weight)

    def _nearest(self, branches: list[Any], base: str) -> int:
        return max((self._least(branch, base) for branch in branches), default=1)

    def _least(self, schema: Any, base: str) -> int:
        return max(1, self._weight(schema, base))

    def _weight(self, schema: Any, base: str) -> int:
        """Number of checks of a schema."""
        if not isinstance(schema, dict):
            return 1 if schema is False else 0
        node = cast("dict[str, Any]", schema)
        if id(node) not in self._weights:
            self._weights[id(node)] = 1  # a schema inside itself counts as one check
            required = node.get("required")
            checks = len(node.keys() & _LEAVES)
            checks += len(cast("list[Any]", required)) if isinstance(required, list) else 0
            nearest: dict[str | int, int] = {}
            for _, (key, *_), inner, document in children(self.tree, node, base):
                weight = self._weight(inner, document)
                if key in ("anyOf", "oneOf"):
                    nearest[key] = max(1, weight, nearest.get(key, 0))
                elif key in _ALL:
                    checks += weight
                elif key == "patternProperties" or (key in _MANY and inner is not True):
                    checks += max(1, weight)
            self._weights[id(node)] = min(checks + sum(nearest.values()) + ("oneOf" in nearest), 10**9)
        return self._weights[id(node)]
