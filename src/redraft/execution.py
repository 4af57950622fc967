"""Commands and scripts for the sandbox, their limits and their outcomes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol

from redraft._validation import is_number
from redraft.errors import ConfigError

OUTPUT_LIMIT = 64 << 20
"""Bytes that a command may write to stdout, and to stderr."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run in the jail: either `argv` or `python`."""

    argv: tuple[str, ...] = ()
    """A program with its arguments."""
    python: str = ""
    """Source text, run by this interpreter. The value of its global `result` is returned as JSON."""
    inputs: Any = None
    """JSON data, the global `inputs` of the `python` source."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """The texts of files in the working folder, by relative names."""
    timeout: float = 10.0
    """Wall time in seconds, from the moment that the jail is ready, or that stdout has the text `begins`."""
    memory: int = 1 << 30
    """Bytes: limits the address space of each process, and the memory of all, without the scratch folder."""
    patience: float = 0.0
    """The most seconds added to `timeout` for time in which the program only waited for a processor."""
    begins: str = ""
    output_limit: int = OUTPUT_LIMIT
    """The most bytes that it may write to stdout, and to stderr."""
    output_kept: int = 256 * 1024
    """The most bytes of each in the outcome: their beginning and their end."""
    readable: Sequence[str] = ()
    """More paths that it can read."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command in the jail ended."""

    exit_code: int | None
    completed: bool
    """Whether the program ran to its end. An exit code of 0 is no proof: a draft may call `exit(0)`."""
    stdout: str = ""
    stderr: str = ""
    result: Any = None
    """The JSON value that the `python` source assigned to `result`."""
    stopped: str | None = None
    """The limit that ended it: `timeout`, `memory`, `output` or `forbidden`.

    `killed` means that another process, or the kernel of a machine without memory, sent it SIGKILL.
    """
    seconds: float = 0.0


class CommandRunner(Protocol):
    """Run a command in a jail; the `command` evaluator calls it."""

    async def __call__(self, command: Command, /) -> CommandOutcome: ...


LEAST_MEMORY_MB, MOST_MEMORY_MB = 32, 1024


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """The limits of one run of a script; raises `ConfigError` for values out of range."""

    seconds: float = 2.0
    """Wall time, from the first line of the script on."""
    memory_mb: int = 64
    """The memory (32 to 1024) of the script, without its interpreter."""
    output_chars: int = 64 * 1024
    """The maximum length of the text that it prints."""
    result_chars: int = 1 << 20
    """The maximum length of its result as JSON."""

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            kind = int | float if name == "seconds" else int
            if not isinstance(value, kind) or not is_number(value) or value <= 0:
                raise ConfigError(f"A script's limit {name!r} must be a number > 0, got {value!r}.")
        if not LEAST_MEMORY_MB <= self.memory_mb <= MOST_MEMORY_MB:
            raise ConfigError(
                f"A script's limit 'memory_mb' must be {LEAST_MEMORY_MB} to {MOST_MEMORY_MB}, "
                f"got {self.memory_mb!r}."
            )

    def to_json(self) -> dict[str, Any]:
        """Convert the limits to JSON data for the process that runs the script."""
        return asdict(self)


MOST_SOURCE = 256 * 1024
"""The maximum length of a script, in characters."""


@dataclass(frozen=True, slots=True)
class Script:
    """Untrusted code to run; raises `ConfigError` for source longer than `MOST_SOURCE`."""

    language: str
    """`python`, `lua` or `prolog`."""
    source: str
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON data by name; the code sees them as variables (in Prolog as facts)."""
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    sandbox: Literal["inline", "process"] = "inline"
    """For Python only: `inline` runs a subset of the language in a warm interpreter.

    `process` runs the whole language in a jailed child process.
    """

    def __post_init__(self) -> None:
        if len(self.source) > MOST_SOURCE:
            raise ConfigError(
                f"A script may have at most {MOST_SOURCE:,} characters; this one has {len(self.source):,}."
            )


class ScriptRunner(Protocol):
    """Run a script in a sandbox; its result is JSON data. Raises `SandboxError`."""

    async def __call__(self, script: Script, /) -> Any: ...


MOST_FILES = 1000
MOST_FILE_BYTES, MOST_FILES_BYTES = 16 << 20, 32 << 20
"""Bytes of one file of a command, and of all its files; half of the scratch folder remains free."""

_MOST_NAME, _MOST_PATH = 255, 1000  # bytes, the limits of common file systems


def stays_inside(name: str) -> bool:
    """Whether a file name is relative and cannot lead out of its folder."""
    path = PurePosixPath(name)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def problem_of_files(files: Mapping[str, str]) -> str | None:
    """Explain why these files cannot be put into the scratch folder; None if they can."""
    if len(files) > MOST_FILES:
        return f"A command may have at most {MOST_FILES:,} files, got {len(files):,}."
    paths: dict[PurePosixPath, str] = {}
    total = 0
    for name, text in files.items():
        if problem := _problem_of_name(name):
            return problem
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            return f"The file {name!r} must be text, got {text!r}."
        size = len(text.encode(errors="surrogatepass"))
        total += size
        if size > MOST_FILE_BYTES:
            return f"The file {name!r} may have at most {MOST_FILE_BYTES:,} bytes, but it has {size:,}."
        other = paths.setdefault(PurePosixPath(name), name)
        if other != name:
            return f"The files {other!r} and {name!r} have the same path: rename one of them."
    if total > MOST_FILES_BYTES:
        return f"The files of a command may have {MOST_FILES_BYTES:,} bytes in all, but they have {total:,}."
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
        return f"The file name {name!r} names a folder; name the files in it instead."
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return f"The file name {name!r} cannot be encoded as UTF-8."
    if max(sizes) > _MOST_NAME or sum(sizes) + len(sizes) > _MOST_PATH:
        return (
            f"The file name {name[:40]!r}... is too long: {_MOST_NAME} bytes are allowed between two "
            f"slashes, and {_MOST_PATH} in all."
        )
    return None


def find_program(name: str) -> str | None:
    """Path of a program, or None; programs next to this interpreter come before PATH."""
    return shutil.which(name, path=f"{sys.prefix}/bin") or shutil.which(name)
