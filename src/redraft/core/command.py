"""Command and CommandOutcome: one run of code that is not ours, without any jail in it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any


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


def find_program(name: str) -> str | None:
    """Give the absolute path of a program, or None: those beside this interpreter come before PATH."""
    return shutil.which(name, path=f"{sys.prefix}/bin") or shutil.which(name)
