"""Commands and scripts for the sandbox: what to run, within which limits, and how it ended."""

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
    """A command to run in the jail: either `argv`, a program with its arguments, or `python` source text.

    `files` maps relative names to the texts that are put into the working folder. `python` is run by this
    interpreter with `inputs` (JSON) as the global `inputs`; what it assigns to the global `result` comes back
    as JSON. `memory` limits, in bytes, the address space of each process, and what all of them hold together
    besides the scratch folder.

    `timeout` is wall time in seconds from the moment that the jail is ready; with `begins`, from the moment
    that stdout has that text. Seconds in which the program only waited for a processor are added to it, up to
    `patience`.

    `output_limit` is how many bytes it may write to stdout, and to stderr. The beginning and the end are
    kept, up to `output_kept` bytes.
    """

    argv: tuple[str, ...] = ()
    python: str = ""
    inputs: Any = None
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 10.0
    memory: int = 1 << 30
    patience: float = 0.0
    begins: str = ""
    output_limit: int = OUTPUT_LIMIT
    output_kept: int = 256 * 1024
    readable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command in the jail ended.

    `completed` says whether the program ran to its end; an exit code of 0 alone does not prove that, since
    a draft may call `exit(0)`. `result` is the JSON value that `python` source assigned. `stopped` names the
    limit that ended it (`timeout`, `memory`, `output`, `forbidden`), or is `killed` if something else sent it
    SIGKILL, as the kernel does when the machine runs out of memory.
    """

    exit_code: int | None
    completed: bool
    stdout: str = ""
    stderr: str = ""
    result: Any = None
    stopped: str | None = None
    seconds: float = 0.0


class CommandRunner(Protocol):
    """Run a command in a jail; the `command` evaluator calls it."""

    async def __call__(self, command: Command, /) -> CommandOutcome: ...


LEAST_MEMORY_MB, MOST_MEMORY_MB = 32, 1024


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """The limits of one run of a script; raises `ConfigError` for values out of range.

    `seconds` is wall time from the script's first line on. `memory_mb` (32 to 1024) is the memory of the
    script itself, without its interpreter. `output_chars` is how much it may print, `result_chars` how long
    its result may be as JSON.
    """

    seconds: float = 2.0
    memory_mb: int = 64
    output_chars: int = 64 * 1024
    result_chars: int = 1 << 20

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
        """Return the limits as JSON data for the process that runs the script."""
        return asdict(self)


MOST_SOURCE = 256 * 1024
"""The most characters of source in a script."""


@dataclass(frozen=True, slots=True)
class Script:
    """Untrusted code to run: `source` in `language` (`python`, `lua`, `prolog`).

    `names` maps names to JSON data; the code sees them as variables (in Prolog as facts). `sandbox` matters
    to Python only: `inline` runs a subset of the language in a warm interpreter, `process` the whole language
    in a jailed child process. Raises `ConfigError` for source longer than `MOST_SOURCE`.
    """

    language: str
    source: str
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    sandbox: Literal["inline", "process"] = "inline"

    def __post_init__(self) -> None:
        if len(self.source) > MOST_SOURCE:
            raise ConfigError(
                f"A script may have at most {MOST_SOURCE:,} characters; this one has {len(self.source):,}."
            )


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """What a script returned, as JSON data, and what it printed."""

    value: Any
    printed: str = ""


class ScriptRunner(Protocol):
    """Run a script in a sandbox; workflows call it. Raises `SandboxError`."""

    async def __call__(self, script: Script, /) -> ScriptOutcome: ...


MOST_FILES = 1000
MOST_FILE_BYTES, MOST_FILES_BYTES = 16 << 20, 32 << 20
"""Bytes of one file of a command, and of all together; half of the scratch folder stays free."""

_MOST_NAME, _MOST_PATH = 255, 1000  # bytes, the limits of common file systems


def stays_inside(name: str) -> bool:
    """Return whether a file name is relative and cannot lead out of its folder."""
    path = PurePosixPath(name)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def problem_of_files(files: Mapping[str, str]) -> str | None:
    """Return why these files cannot be put into the scratch folder, or None if they can."""
    if len(files) > MOST_FILES:
        return f"A command may have at most {MOST_FILES:,} files, got {len(files):,}."
    paths: dict[PurePosixPath, str] = {}
    total = 0
    for name, text in files.items():
        if problem := _problem_of_name(name):
            return problem
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (it may come from a file)
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
    """Return the path of a program, or None; programs next to this interpreter come before PATH."""
    return shutil.which(name, path=f"{sys.prefix}/bin") or shutil.which(name)
