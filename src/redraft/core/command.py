"""Command and CommandOutcome: one run of code that is not ours, without any jail in it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

MOST_FILES = 1000
MOST_FILE_BYTES, MOST_FILES_BYTES = 16 << 20, 32 << 20
"""Bytes that one file of a command may have, and all of them: half of the scratch folder stays free."""

_MOST_NAME, _MOST_PATH = 255, 1000  # bytes, as file systems have it


@dataclass(frozen=True, slots=True)
class Command:
    """Ask for one run in the jail: either `argv`, a program beside `files`, or `python`, source text.

    `files` maps relative names to texts that lie in the working folder. `python` is run by this interpreter
    with `inputs` (JSON) as the global `inputs`; what it assigns to the global `result` comes back as JSON.
    `timeout` is wall time in seconds, `memory` bytes of address space of each process, and of what all of
    them hold together beside the scratch folder, `output_limit` bytes kept of each of stdout and stderr.
    """

    argv: tuple[str, ...] = ()
    python: str = ""
    inputs: Any = None
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 10.0
    memory: int = 1 << 30
    output_limit: int = 64 * 1024
    readable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """Say how a run in the jail ended.

    `completed` is False unless the program came to its own end: an exit code of 0 alone does not prove that
    (a draft may call `exit(0)`). `result` is the JSON that `python` code left. `stopped` names the limit
    that ended it: `timeout`, `memory`, `output`, `forbidden`.
    """

    exit_code: int | None
    completed: bool
    stdout: str = ""
    stderr: str = ""
    result: Any = None
    stopped: str | None = None
    seconds: float = 0.0


def stays_inside(name: str) -> bool:
    """Say whether a file name is relative and leads nowhere but into the folder that it is put in."""
    path = PurePosixPath(name)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def problem_of_files(files: Mapping[str, str]) -> str | None:
    """Say why files cannot be laid into the scratch folder under their names, or None when they can."""
    if len(files) > MOST_FILES:
        return f"A command may have {MOST_FILES:,} files, got {len(files):,}."
    paths: dict[PurePosixPath, str] = {}
    total = 0
    for name, text in files.items():
        if problem := _problem_of_name(name):
            return problem
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (it may come from a file)
            return f"The file {name!r} must be a text, got {text!r}."
        size = len(text.encode(errors="surrogatepass"))
        total += size
        if size > MOST_FILE_BYTES:
            return f"The file {name!r} may have {MOST_FILE_BYTES:,} bytes, and has {size:,}."
        other = paths.setdefault(PurePosixPath(name), name)
        if other != name:
            return f"The files {other!r} and {name!r} are one and the same: give one of them another name."
    if total > MOST_FILES_BYTES:
        return f"The files of a command may have {MOST_FILES_BYTES:,} bytes together, and have {total:,}."
    for path, name in paths.items():
        for folder in path.parents:
            if folder in paths:
                return f"{paths[folder]!r} cannot be both a file and the folder of {name!r}."
    return None


def _problem_of_name(name: object) -> str | None:
    if not isinstance(name, str) or not stays_inside(name):
        return f"The file name {name!r} must be relative and stay inside the scratch folder."
    *_, last = parts = name.split("/")
    if last in {"", "."}:
        return f"The file name {name!r} is that of a folder: give the names of the files in it."
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return f"The file name {name!r} cannot be written in UTF-8."
    if max(sizes) > _MOST_NAME or sum(sizes) + len(sizes) > _MOST_PATH:
        return (
            f"The file name {name[:40]!r}... is too long: {_MOST_NAME} bytes are allowed between two "
            f"slashes, and {_MOST_PATH} in all."
        )
    return None


def find_program(name: str) -> str | None:
    """Give the absolute path of a program, or None: those beside this interpreter come before PATH."""
    return shutil.which(name, path=f"{sys.prefix}/bin") or shutil.which(name)
