"""SchemaTree: a schema with the files it refers to, which reads no other ones."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    Schema = dict[str, Any] | bool

MAX_FILES = 20
MAX_FILE_BYTES = 1_000_000
MAX_NODES = 50_000
MAX_DEPTH = 100

ROOT = "workflow:///schema"
_OF_TEXTS = frozenset(
    ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")
)
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaTree:
    """Hold a schema, and the files beneath one folder that its `$ref`s name, each read once.

    Without a folder there are no files. Nothing else is ever read: no address, no absolute path, no `..`, no
    link that leads out. Raises `ConfigError` for those, and for what is too large: 50,000 nodes, 100 levels,
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
        """Return the file at an address, as the validator asks for it; a refusal is kept, and raised."""
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
        return _document(_inside(self.folder, name), name)

    def target(self, reference: Any, base: str) -> tuple[Any, str] | None:
        """Return the schema that a reference names and the document it stands in; None where unknown."""
        if not isinstance(reference, str):
            return None
        address, _, fragment = _joined(base, reference).partition("#")
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

    def speaks_of_text(self) -> bool:
        """Say whether the schema, or an alternative of it, names texts as what it wants, or allows all."""
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
            if _names_text(inner):
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


def _names_text(schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    if types is not None:
        return "string" in types
    options = [schema.get("const"), *schema.get("enum", ())]
    return any(isinstance(option, str) for option in options) or not _OF_TEXTS.isdisjoint(schema)


def _joined(base: str, reference: str) -> str:
    """Resolve a reference as the validator does; the standard library knows only the schemes of the web."""
    if reference.startswith("#") or not reference:
        return base + reference
    if urlsplit(reference).scheme:
        return reference
    path, mark, fragment = reference.partition("#")
    return "workflow://" + normpath(join(dirname(urlsplit(base).path), path)) + mark + fragment


def check_size(schema: Any) -> None:
    """Refuse a schema that is too large, or that refers to what can't be beside the workflow."""
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


def _inside(folder: Path, name: str) -> Path:
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
