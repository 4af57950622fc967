"""Rows of a benchmark in a file of JSON lines that survives being killed, and the version of our code."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from _measure import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def rows_in(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none if there is no file. A row that was never finished is left out."""
    if not file.is_file():
        return []
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def append_row(file: Path, row: dict[str, Any]) -> None:
    """Append a row, on disk when this returns; replaces a row that was never finished."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab+") as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def code_version(explicit: int, sources: Iterable[Path] = (), *, also: Iterable[str] = ()) -> str:
    """Return `explicit` and a hash of the code that a run depends on: the kernel, the loop and the checks.

    `also` names further folders of the package. Comments, docstrings and the layout don't count.
    """
    package = PROJECT / "src" / "redraft"
    found = list(sources) or [
        path
        for pattern in ("*.py", *(f"{folder}/*.py" for folder in ("loop", "evaluate", "text", *also)))
        for path in package.glob(pattern)
        if path.stem not in NO_PART_OF_A_RUN
    ]
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(ast.unparse(_bare(ast.parse(path.read_text(encoding="utf-8")))).encode())
    return f"{explicit}-{digest.hexdigest()[:10]}"


NO_PART_OF_A_RUN = frozenset(
    {"cli", "web", "main", "__main__", "dashboard", "doctor", "runs", "version_diff", "event_log", "journal"}
)
"""Modules, by their names, that change neither a prompt nor a judgement."""


def _bare(tree: ast.Module) -> ast.Module:
    """Return a module without its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return tree
