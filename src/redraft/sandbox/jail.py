"""Jail: run untrusted code in an isolated child process."""

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
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast
from weakref import WeakKeyDictionary

from redraft._sync import run_sync
from redraft._validation import is_number
from redraft.errors import ConfigError, SandboxError, SandboxForbiddenError
from redraft.execution import Command, CommandOutcome, find_program, problem_of_files

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Generator, Mapping, Sequence

_PROCESSES = 64
_SCRATCH_BYTES = 64 << 20
_REPORT_BYTES = 16 << 20
_MIN_MEMORY = 64 << 20
_TRIAL_SECONDS = 60.0

_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
# Not /dev/zero: mapping it creates shared memory, which is not charged to any process.
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/random", "/etc/localtime")
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")

PACKAGES = str(Path(__file__).resolve().parents[2])
"""The folder from which children import this package."""

# The child imports `child` from PACKAGES, then removes this path from `sys.path` and `sys.argv`.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from redraft.sandbox.child import main; "
    "del sys.path[0], sys.argv[1:]; main()"
)


class Order(TypedDict):
    """The instructions for a child: either `python` or `argv` is set."""

    nonce: str
    """The start of each report."""
    channel: int
    """The descriptor to which the child writes its reports."""
    parent: int
    """The process that must be the child's parent."""
    python: str
    """Source to execute, with `inputs` as a global variable."""
    inputs: Any
    argv: list[str]
    """A program and its arguments; the program is an absolute path, or in the scratch folder."""
    files: dict[str, str]
    """Texts to write to the scratch folder, by path."""
    scratch: str
    scratch_bytes: int
    readable: list[str]
    """Paths to read, besides the scratch folder."""
    executable: list[str]
    """Paths to execute, besides the scratch folder."""
    memory: int
    """In bytes."""
    seconds: float
    """Wall time."""
    processes: int
    allow_unsandboxed: bool
    """Run the code even without walls."""


class Report(TypedDict, total=False):
    """The reports of a child."""

    ready: str
    """The walls are up, and the code is about to run."""
    refused: str
    """The part of the jail that this machine lacks; the code does not run."""
    result: Any
    """The variable `result` of Python source that ran to its last line."""
    raised: str
    """The type of the exception that ended Python source."""
    exit: int
    """The exit code of the program."""
    stopped: str
    """The limit that the program exceeded."""


# Python source shares its process with the reporting function and could forge reports. These kinds are safe.
_REPORTS_OF_PYTHON = {"ready": str, "refused": str, "raised": str, "result": object}
_REPORTS_OF_PROGRAMS = {"ready": str, "refused": str, "exit": int, "stopped": str}

_STOPPED_BY_EXCEPTION = {"MemoryError": "memory", "PermissionError": "forbidden"}
_STOPPED_BY_SIGNAL = {
    -signal.SIGXCPU: "timeout",
    -signal.SIGXFSZ: "output",
    -signal.SIGSYS: "forbidden",
    -signal.SIGKILL: "killed",  # not sent by us
}


@dataclass(frozen=True, slots=True)
class ProcessJail:
    """Run commands in jailed child processes: a `CommandRunner`.

    The child has no network, no sockets except connected pairs of streams, a clean environment, and limits on
    time, memory, output and processes. It can read the system's libraries, the interpreter and the command's
    `readable` paths, and write only to `/dev/null` and to a scratch folder in memory that is deleted with it.
    Python source can't start programs. A program (`argv`) can start others, which end with it; its processes
    can share only memory mapped from files, so that their memory can be limited as a whole.

    The walls are Landlock and seccomp inside namespaces. Where namespaces are refused (in many containers),
    Python source can't write to any folder, and programs are refused. The child can see the names, sizes,
    times and extended attributes of files outside, but not their contents.

    Bubblewrap would not be enough: it does not filter system calls, sets no limits, needs namespaces, and as
    root leaves `/proc/sys` writable.

    Raises `ConfigError` for an invalid command, `SandboxForbiddenError` on a machine without a jail, and
    `SandboxError` if the child can't be started or the machine is too busy to run it.
    """

    allow_unsandboxed: bool = False
    """On a machine without a jail (macOS, old kernels), run the code with limits and a clean environment."""

    async def __call__(self, command: Command, /) -> CommandOutcome:
        """Run a command; waiting for a free slot does not count as its time."""
        program = _validated(command)
        if os.name != "posix":
            raise SandboxForbiddenError(
                f"Untrusted code runs only on POSIX systems, not on {os.name!r}; use WSL."
            )
        async with _slot():
            with _scratch_folder() as scratch:
                nonce = secrets.token_hex(16)
                order = self._order(command, program, scratch, nonce)
                started = time.perf_counter()
                end = await _run_child(command, order, _environment(scratch, program))
                kinds = _REPORTS_OF_PROGRAMS if program else _REPORTS_OF_PYTHON
                reports = _reports(end.reports, nonce, kinds)
                return _outcome(end, reports, time.perf_counter() - started)

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
            "scratch_bytes": _SCRATCH_BYTES,
            "readable": readable,
            "executable": executable,
            "memory": command.memory,
            "seconds": _lifetime(command),
            "processes": _PROCESSES,
            "allow_unsandboxed": self.allow_unsandboxed,
        }


def _lifetime(command: Command) -> float:
    """Seconds after which a child ends by itself: never before its time limit, even if it had to wait."""
    if not (command.patience or command.begins):
        return command.timeout
    return command.timeout + command.patience + _START_SECONDS


_working_jails: set[bool] = set()


def check_jail(*, programs: bool) -> None:
    """Raise `SandboxForbiddenError` if this machine has no jail for programs, or for Python source.

    Runs a command, since only a run shows which system calls a machine refuses, and remembers its success.
    """
    if programs in _working_jails:
        return
    if programs:
        command = Command(argv=(sys.executable, "-I", "-S", "-c", ""), timeout=_TRIAL_SECONDS)
    else:
        command = Command(python="pass", timeout=_TRIAL_SECONDS)
    run_sync(ProcessJail()(command))
    _working_jails.add(programs)


def bare_interpreter() -> tuple[str, ...]:
    """This interpreter's command, without virtual environment, user settings and site packages."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8")


# --- before the run ---


def _validated(command: Command) -> str | None:
    """Validate a command; returns the path of its program, None for Python source. Raises `ConfigError`."""
    if bool(command.argv) == bool(command.python):
        raise ConfigError("A command needs either `argv` or `python`; got both or neither.")
    if not is_number(command.timeout) or command.timeout <= 0:
        raise ConfigError(
            f"A command's timeout must be a number of seconds above 0, got {command.timeout!r}."
        )
    if command.memory < _MIN_MEMORY:
        raise ConfigError(f"A command's memory must be at least {_MIN_MEMORY} bytes, got {command.memory!r}.")
    if problem := problem_of_files(command.files):
        raise ConfigError(problem)
    try:
        json.dumps(command.inputs)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"A command's inputs must be JSON: {error}.") from error
    return _program(command) if command.argv else None


def _program(command: Command) -> str:
    if any("\0" in word for word in command.argv):
        raise ConfigError(f"The command {command.argv!r} contains a NUL character.")
    name = command.argv[0]
    if name in command.files:
        return f"./{name}"
    if (program := find_program(name)) is None:
        raise ConfigError(f"The program {name!r} is not installed: it is neither next to Python nor on PATH.")
    return program


def _environment(scratch: str, program: str | None) -> dict[str, str]:
    """The child's environment, which contains nothing from this process's environment."""
    folders = [f"{sys.prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"]
    if program:
        folders.insert(0, os.path.dirname(program))  # noqa: PTH120 (pathlib would drop the "./")
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


_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _slot() -> asyncio.Semaphore:
    """Limits the number of parallel children: with too many, harmless code would exceed its time limit."""
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(max(4, 2 * (os.cpu_count() or 1)))
    return _slots[loop]


_SCRATCH_PREFIX = "redraft-jail-"
_swept: set[str] = set()


@contextmanager
def _scratch_folder() -> Generator[str]:
    """Create a folder, lock it while this process uses it, and remove it."""
    if (parent := tempfile.gettempdir()) not in _swept:
        _swept.add(parent)
        _sweep(parent)
    folder, lock = _locked_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(parent: str) -> tuple[str, int]:
    from redraft._locks import flock  # noqa: PLC0415 (not on Windows, where the jail is refused before)

    while True:
        folder = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks, on which no process sweeps
            flock(lock)
        if Path(folder).exists():
            return folder, lock
        os.close(lock)  # swept away before it was locked


def _sweep(parent: str) -> None:
    """Remove this user's unlocked scratch folders, whose processes were killed."""
    from redraft._locks import flock  # noqa: PLC0415 (as above)

    with os.scandir(parent) as entries:
        folders = [entry.path for entry in entries if entry.name.startswith(_SCRATCH_PREFIX)]
    for folder in folders:
        with suppress(OSError), ExitStack() as stack:  # another user's folder, not a folder, or in use
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            if os.fstat(lock).st_uid == os.geteuid():
                flock(lock, wait=0)
                shutil.rmtree(folder, ignore_errors=True)


# --- the run ---

_START_SECONDS = 60.0
"""Seconds for a child to raise its walls, and for a tool to begin its actual work."""

_DRAIN_SECONDS = 0.2
"""Seconds in which the pipes of a child that has ended may still deliver its output."""


@dataclass(frozen=True, slots=True)
class _ChildEnd:
    """How a child ended, and the contents of its pipes."""

    exit_code: int
    """Negative for a signal."""
    stdout: bytes
    stderr: bytes
    reports: bytes
    stopped: str | None
    """`timeout` or `output` if the host stopped it for that."""


async def _run_child(command: Command, order: Order, environment: Mapping[str, str]) -> _ChildEnd:
    """Start a child with an order on stdin, and wait until it ends; cancelling kills it."""
    with ExitStack() as stack:
        pipes = [os.pipe() for _ in range(3)]
        readers = [stack.enter_context(FileIO(read)) for read, _ in pipes]
        writers = [write for _, write in pipes]
        with ExitStack() as until_started:
            for write in writers:
                until_started.callback(os.close, write)
            stdin = until_started.enter_context(tempfile.TemporaryFile())
            stdin.write(json.dumps({**order, "channel": writers[2]}).encode())
            stdin.seek(0)
            process = await asyncio.create_subprocess_exec(
                *(*bare_interpreter(), "-c", _START, PACKAGES),
                stdin=stdin,
                stdout=writers[0],
                stderr=writers[1],
                pass_fds=(writers[2],),
                cwd=order["scratch"],
                env=dict(environment),
                start_new_session=True,
            )
        return await _listen(process, readers, command, order["nonce"])


async def _listen(process: Process, files: Sequence[FileIO], command: Command, nonce: str) -> _ChildEnd:
    def kill() -> None:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    stdout = _Pipe(command.output_limit, command.output_kept, kill, command.begins.encode())
    stderr = _Pipe(command.output_limit, command.output_kept, kill)
    reports = _Pipe(_REPORT_BYTES, _REPORT_BYTES, kill, f'{nonce} {{"ready"'.encode())
    pipes, loop = (stdout, stderr, reports), asyncio.get_running_loop()
    transports: list[asyncio.ReadTransport] = []
    ended = asyncio.ensure_future(process.wait())
    try:
        for pipe, file in zip(pipes, files, strict=True):
            transports.append((await loop.connect_read_pipe(lambda pipe=pipe: pipe, file))[0])
        for begun in (reports.marker_seen, stdout.marker_seen):
            await asyncio.wait((ended, begun), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not (ended.done() or begun.done()):
                raise SandboxError(f"The jailed child did not begin its work within {_START_SECONDS:g} s.")
        timed_out = not await _ends_in_time(ended, process.pid, command)
    finally:
        kill()
        exit_code = await ended
        await asyncio.wait([pipe.closed for pipe in pipes], timeout=_DRAIN_SECONDS)
        for transport in transports:
            transport.close()
    stopped = "timeout" if timed_out else "output" if any(pipe.overflowed for pipe in pipes) else None
    return _ChildEnd(exit_code, stdout.data(), stderr.data(), reports.data(), stopped)


async def _ends_in_time(ended: asyncio.Future[int], pid: int, command: Command) -> bool:
    """Whether a child ends within its time limit, not counting the time it waited for a processor.

    Raises `SandboxError` if it waited longer than the command's patience.
    """
    started, waited_before, waited = time.perf_counter(), _waited(pid), 0.0
    while True:
        left = command.timeout + waited - (time.perf_counter() - started)
        if left <= 0:
            break
        if (await asyncio.wait((ended,), timeout=left))[0]:
            return True
        if command.patience:
            waited = min(_waited(pid) - waited_before, command.patience)
    if command.patience and waited >= command.patience:
        raise SandboxError(
            f"The machine is busy: the jailed child waited {waited:.0f} s for a processor, so it has not had "
            f"the {command.timeout:g} s of its time limit."
        )
    return False


def _waited(pid: int) -> float:
    """The longest time, in seconds, that a child or a descendant waited for a processor; 0 if unknown."""
    longest, processes = 0, [str(pid)]
    while processes:
        process = Path("/proc", processes.pop())
        with suppress(OSError, ValueError, IndexError):  # it has ended, or the kernel lacks these figures
            for thread in (process / "task").iterdir():
                longest = max(longest, int((thread / "schedstat").read_text().split()[1]))
                processes += (thread / "children").read_text().split()
    return longest / 1e9


class _Pipe(asyncio.Protocol):
    """Collects the beginning and the end of a pipe's output, and calls `stop` beyond `limit` bytes."""

    def __init__(self, limit: int, capacity: int, stop: Callable[[], None], marker: bytes = b"") -> None:
        loop = asyncio.get_running_loop()
        self.overflowed = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self.marker_seen: asyncio.Future[None] = loop.create_future()
        """Done once the output contains `marker`; immediately if it is empty."""
        self._limit, self._count = limit, 0
        self._head, self._tail = bytearray(), bytearray()
        self._max_head = capacity // 4
        self._max_tail = capacity - self._max_head
        self._stop = stop
        self._marker, self._last = marker, b""
        self._look_for_marker(b"")

    def data_received(self, data: bytes) -> None:
        self._look_for_marker(data)
        self._count += len(data)
        room = self._max_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._max_tail:
            del self._tail[: -self._max_tail]
        if self._count > self._limit:
            self.overflowed = True
            self._stop()

    def _look_for_marker(self, data: bytes) -> None:
        if not self.marker_seen.done():
            recent = self._last + data
            if self._marker in recent:
                self.marker_seen.set_result(None)
            self._last = recent[-len(self._marker) :]

    def data(self) -> bytes:
        """The output, with a note in place of the missing middle."""
        tail = self._tail[-self._max_tail :]
        missing = self._count - len(self._head) - len(tail)
        gap = f"\n[... {missing:,} bytes are left out here ...]\n" if missing else ""
        return bytes(self._head + gap.encode() + tail)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        if not self.closed.done():
            self.closed.set_result(None)


# --- after the run ---


def _reports(sent: bytes, nonce: str, kinds: Mapping[str, type]) -> Report:
    """Parse the reports that have the nonce; only reports of the expected kinds and types count."""
    prefix = f"{nonce} ".encode()
    reports: dict[str, Any] = {}
    for line in sent.split(b"\n"):
        if not line.startswith(prefix):
            continue
        try:
            report = json.loads(line[len(prefix) :])
        except (ValueError, RecursionError):  # cut off, or nested too deeply
            continue
        if isinstance(report, dict):
            items = cast("dict[str, Any]", report).items()
            reports |= {kind: value for kind, value in items if isinstance(value, kinds.get(kind, ()))}
    return cast("Report", reports)


def _outcome(end: _ChildEnd, reports: Report, seconds: float) -> CommandOutcome:
    stdout, stderr = end.stdout.decode(errors="replace"), end.stderr.decode(errors="replace")
    if "ready" not in reports:
        if "refused" in reports:
            raise SandboxForbiddenError(
                f"This machine has no jail for untrusted code; it lacks {reports['refused']}. "
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
