"""ProcessJail: code that is not ours, run in a child process that can reach nothing."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from redraft._sync import run_sync
from redraft.errors import ConfigError, SandboxError, SandboxForbiddenError
from redraft.protocols import Command, CommandOutcome, find_program, problem_of_files
from redraft.sandbox.child import Child, ChildEnd

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from redraft.sandbox.jail.order import Order, Report

PROCESSES = 64
SCRATCH_BYTES = 64 << 20
RESULT_BYTES = 4 << 20
LEAST_MEMORY = 64 << 20
TRIAL_SECONDS = 60.0

# The child imports the jail from here and then forgets where it came from.
_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from redraft.sandbox.jail.inside import main; "
    "del sys.path[0], sys.argv[1:]; main()"
)
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
# Not /dev/zero: mapped, it is memory that processes share, and that stands in nobody's account.
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/random", "/etc/localtime")
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")

_STOPPED_BY_SIGNAL = {
    -signal.SIGXCPU: "timeout",
    -signal.SIGXFSZ: "output",
    -signal.SIGSYS: "forbidden",
    -signal.SIGKILL: "memory",  # not by us: then it was the kernel, out of memory
}
# Python source shares the process that reports for it, so what it might say itself must do no harm.
_TOLD_BY_PYTHON = {"ready": str, "refused": str, "raised": str, "result": object}
_TOLD_BY_PROGRAMS = {"ready": str, "refused": str, "exit": int, "stopped": str}
_STOPPED_BY_EXCEPTION = {"MemoryError": "memory", "PermissionError": "forbidden"}

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ProcessJail:
    """Run commands in jailed child processes: a `CommandRunner`.

    The child has no network, no socket but pairs of streams, a clean environment, bounded time, memory,
    output and number of processes; it reads the system's libraries, the interpreter and the command's
    `readable` paths, and writes to nothing but `/dev/null` and a scratch folder in memory that vanishes with
    it. Python source may start no other program. A program (`argv`) may, and whatever it starts ends with
    it; its processes may share no memory but that of files, so that what they take together can be counted.
    The walls are Landlock and seccomp, with namespaces around them; where namespaces are refused (many
    containers), Python source runs without a place to write to, and programs are refused. Names, sizes,
    times and extended attributes of files elsewhere can be seen, what is in them cannot.

    Both forms stand behind the same walls of our own rather than bubblewrap's: it has no filter on system
    calls and no limits, does not run without namespaces, and as root leaves `/proc/sys` writable
    (docs/workflows.md has a table).

    With `allow_unsandboxed` a machine that has no jail (macOS, old kernels) runs the code with limits and a
    clean environment only; without, it raises `SandboxForbiddenError`. Raises `ConfigError` for a command
    that makes no sense, and `SandboxError` when the child could not be started at all.
    """

    allow_unsandboxed: bool = False

    async def __call__(self, command: Command, /) -> CommandOutcome:
        """Run one command and say how it ended; waiting for a free slot does not count as its time."""
        program = _check(command)
        if os.name != "posix":
            raise SandboxForbiddenError(
                f"Code that is not ours runs on POSIX systems only, and this is {os.name!r}: use WSL."
            )
        async with _slot():
            with _scratch_folder() as scratch:
                return await self._run(command, program, scratch)

    async def _run(self, command: Command, program: str | None, scratch: str) -> CommandOutcome:
        nonce = secrets.token_hex(16)
        child = Child(
            argv=(*_interpreter(), "-c", _START, _PACKAGES),
            environment=_environment(scratch, program),
            folder=scratch,
            timeout=command.timeout,
            output_limit=command.output_limit,
            report_limit=RESULT_BYTES,
        )
        order = self._order(command, program, scratch, nonce)
        started = time.perf_counter()
        end = await child.run(lambda channel: json.dumps({**order, "channel": channel}).encode())
        told = _TOLD_BY_PROGRAMS if program else _TOLD_BY_PYTHON
        return _outcome(end, _reports(end.reports, nonce, told), time.perf_counter() - started)

    def _order(self, command: Command, program: str | None, scratch: str, nonce: str) -> Order:
        readable = [*_LIBRARIES, *_DEVICES, *(os.fspath(path) for path in command.readable)]
        executable: list[str] = []
        if program:
            executable = [*_PROGRAMS, sys.prefix, sys.base_prefix, program, os.path.realpath(program)]
        else:
            readable += [f"{prefix}/lib" for prefix in {sys.base_prefix, sys.base_exec_prefix}]
        return {
            "nonce": nonce,
            "channel": -1,
            "parent": os.getpid(),
            "python": command.python,
            "inputs": command.inputs,
            "argv": [program, *command.argv[1:]] if program else [],
            "files": dict(command.files),
            "scratch": scratch,
            "scratch_bytes": SCRATCH_BYTES,
            "readable": readable,
            "executable": executable,
            "memory": command.memory,
            "seconds": command.timeout,
            "processes": PROCESSES,
            "unjailed_if_needed": self.allow_unsandboxed,
        }


_working: set[bool] = set()


def check_jail(*, programs: bool) -> None:
    """Raise `SandboxForbiddenError` where this machine has no jail: for programs, or for Python source.

    Tries it out, once in a process if it works: what a machine refuses shows only when it is asked.
    """
    if programs in _working:
        return
    argv = (sys.executable, "-I", "-S", "-c", "")
    command = (
        Command(argv=argv, timeout=TRIAL_SECONDS)
        if programs
        else Command(python="pass", timeout=TRIAL_SECONDS)
    )
    run_sync(ProcessJail()(command))
    _working.add(programs)


def _check(command: Command) -> str | None:
    """Return the path of the command's program, or None for Python source; raises `ConfigError`."""
    if bool(command.argv) == bool(command.python):
        raise ConfigError("A command needs either `argv` or `python`, and got both or neither.")
    if not isfinite(command.timeout) or command.timeout <= 0:
        raise ConfigError(f"A command's timeout must be seconds > 0, got {command.timeout!r}.")
    if command.memory < LEAST_MEMORY:
        raise ConfigError(
            f"A command's memory must be at least {LEAST_MEMORY} bytes, got {command.memory!r}."
        )
    if problem := problem_of_files(command.files):
        raise ConfigError(problem)
    try:
        json.dumps(command.inputs)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"A command's inputs must be JSON: {error}.") from error
    return _program(command) if command.argv else None


def _program(command: Command) -> str:
    if any("\0" in word for word in command.argv):
        raise ConfigError(f"The command {command.argv!r} holds a NUL character.")
    name = command.argv[0]
    if name in command.files:
        return f"./{name}"
    if (program := find_program(name)) is None:
        raise ConfigError(f"The program {name!r} is not installed: it is neither beside Python nor on PATH.")
    return program


def _interpreter() -> tuple[str, ...]:
    """Give this interpreter without its virtual environment, the user's settings, or site packages."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8")


def _environment(scratch: str, program: str | None) -> dict[str, str]:
    """Make an environment that holds nothing of ours."""
    folders = [f"{sys.prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"]
    if program:
        folders.insert(0, os.path.dirname(program))  # noqa: PTH120 (a plain text stays one)
    return {
        "PATH": os.pathsep.join(folders),
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": "nobody",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


_PREFIX = "redraft-jail-"
_swept: set[str] = set()


@contextmanager
def _scratch_folder() -> Generator[str]:
    """Make a folder that is locked as long as this process needs it, and remove it after that."""
    if (place := tempfile.gettempdir()) not in _swept:
        _swept.add(place)
        _sweep(place)
    folder, lock = _locked_folder(place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(place: str) -> tuple[str, int]:
    from redraft._locks import flock  # noqa: PLC0415 (there is none on Windows, where the jail is refused before)

    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks: then nobody sweeps in it either
            flock(lock)
        if os.path.exists(folder):  # noqa: PTH110 (a plain text stays one)
            return folder, lock
        os.close(lock)  # somebody swept it away before it was locked


def _sweep(place: str) -> None:
    """Remove the folders of this user's whose process was killed: nobody holds their lock any more."""
    from redraft._locks import flock  # noqa: PLC0415 (likewise)

    with os.scandir(place) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for folder in found:
        with suppress(OSError), ExitStack() as stack:  # another user's, no folder, or in use
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            if os.fstat(lock).st_uid == os.geteuid():
                flock(lock, wait=0)
                shutil.rmtree(folder, ignore_errors=True)


def _slot() -> asyncio.Semaphore:
    """Bound the children that run at once: with too many, honest code would run out of time."""
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(max(4, 2 * (os.cpu_count() or 1)))
    return _slots[loop]


def _reports(said: bytes, nonce: str, told: Mapping[str, type]) -> Report:
    """Put together what the child itself reported, of the kinds that it has to tell."""
    prefix = f"{nonce} ".encode()
    reports: dict[str, Any] = {}
    for line in said.split(b"\n"):
        if not line.startswith(prefix):
            continue
        try:
            report = json.loads(line[len(prefix) :])
        except (ValueError, RecursionError):  # cut off, or deeper than can be read
            continue
        if isinstance(report, dict):
            known = cast("dict[str, Any]", report)
            reports |= {key: known[key] for key in told.keys() & known if isinstance(known[key], told[key])}
    return cast("Report", reports)


def _outcome(end: ChildEnd, reports: Report, seconds: float) -> CommandOutcome:
    stdout, stderr = end.stdout.decode(errors="replace"), end.stderr.decode(errors="replace")
    if "ready" not in reports:
        if "refused" in reports:
            raise SandboxForbiddenError(
                f"This machine has no jail for code that is not ours; it lacks {reports['refused']}. "
                "ProcessJail(allow_unsandboxed=True) runs such code without one, with limits only."
            )
        if end.stopped is None:
            raise SandboxError(f"The jailed child did not start (exit code {end.exit_code}): {stderr[-500:]}")
    exit_code = reports.get("exit", end.exit_code)
    stopped = (
        end.stopped
        or reports.get("stopped")
        or _STOPPED_BY_EXCEPTION.get(reports.get("raised", ""))
        or _STOPPED_BY_SIGNAL.get(exit_code)
    )
    return CommandOutcome(
        exit_code=None if end.stopped or "stopped" in reports else exit_code,
        completed=stopped is None and ("result" in reports or "exit" in reports),
        stdout=stdout,
        stderr=stderr,
        result=reports.get("result"),
        stopped=stopped,
        seconds=seconds,
    )
