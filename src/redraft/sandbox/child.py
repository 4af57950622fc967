"""Child: the jailed process. It reads its order, raises the walls, runs the code, and reports."""

# ruff: noqa: PTH103, PTH120, PTH123, PTH208
# Runs inside the jail: only light modules of the standard library. Importing pathlib would cost each run 10
# ms and typing 7 ms, hence the plain paths and the constant below.

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import time
from types import ModuleType

from redraft.sandbox import walls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from redraft.sandbox.jail import Order, Report

    Send = Callable[[Report], None]


def main() -> NoReturn:
    """Carry out the order on stdin; never returns."""
    order: Order = json.loads(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # the order contains the nonce, which the code must not read
    os.close(null)
    report = _reporter(order["channel"], order["nonce"])
    order["nonce"] = ""
    try:
        walls.check()
        walls.die_with_parent(order["parent"])
        if order["argv"]:
            _run_program(order, report)
        _enter_python(order)
    except walls.MissingWallError as error:
        if not order["allow_unsandboxed"]:
            report({"refused": str(error)})
            os._exit(1)
        _write_files(order["files"])
        if order["argv"]:
            _run_program_unjailed(order, report)
        walls.limit(memory=order["memory"], seconds=order["seconds"])
    report({"ready": "python"})
    _run_python(order, report)


def _reporter(channel: int, nonce: str) -> Send:
    """Create the function that sends reports to the host.

    A report is a line that starts with the nonce of this run. Untrusted code may write to every open
    descriptor, but does not know the nonce, so the host drops its lines. The function binds everything that
    it needs now, before the code can replace it.
    """
    os.set_inheritable(channel, False)  # noqa: FBT003 (positional only)
    encode, write, prefix = json.JSONEncoder(allow_nan=False).encode, os.write, f"\n{nonce} "

    def report(message: Report) -> None:
        line = memoryview(f"{prefix}{encode(message)}\n".encode())
        while line:
            line = line[write(channel, line) :]

    return report


def _write_files(files: dict[str, str]) -> None:
    """Write files to the scratch folder, which is the working folder."""
    for name, text in files.items():
        if folder := os.path.dirname(name):
            os.makedirs(folder, exist_ok=True)
        with open(name, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)


# --- Python source, in this interpreter ---


def _enter_python(order: Order) -> None:
    scratch = order["scratch"]
    private = walls.enter_namespaces(scratch, scratch_bytes=order["scratch_bytes"], processes=False)
    walls.die_with_parent(order["parent"])  # again: the kernel may reset it when the user changes
    _write_files(order["files"])
    walls.shut_in(
        readable=[*order["readable"], scratch],
        writable=[scratch, os.devnull] if private else [],
        memory=order["memory"],
        seconds=order["seconds"],
        processes=order["processes"] if private else None,
    )


def _run_python(order: Order, report: Send) -> NoReturn:
    """Execute the source, report its global `result` if it ran to its last line, and exit.

    The code shares the process with this function. By searching through frames, it could send a report of its
    own, but that is harmless: no verdict on the code is made in this process.
    """
    exit_now, print_error, out, err = os._exit, sys.__excepthook__, sys.stdout, sys.stderr
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    for name in ("exit", "quit"):  # normally defined by the site module, which is not loaded
        setattr(builtins, name, sys.exit)
    names["inputs"] = order["inputs"]
    code = 1
    ended: Report = {}
    try:
        exec(compile(order["python"], "<python>", "exec"), names)  # noqa: S102 (the purpose of the jail)
        report({"result": names.get("result")})
        code = 0
    except SystemExit as error:
        code = error.code & 0xFF if isinstance(error.code, int) else 1 if error.code else 0
        ended = {"raised": "SystemExit"}
    except BaseException as error:  # noqa: BLE001 (the host reports any exception)
        if error.__traceback__:
            error = error.with_traceback(error.__traceback__.tb_next)  # without this function's own line
        print_error(type(error), error, error.__traceback__)
        ended = {"raised": type(error).__name__}
    finally:
        for stream in (out, err):
            try:
                stream.flush()
            except (OSError, ValueError):  # closed by the code
                continue
        if ended:
            report(ended)
        exit_now(code)


# --- a program, and the processes that it starts ---

_TICK = 0.02
_REAPED_PER_TICK = 100
_NICENESS_OF_ROOT = 10
_NOT_STARTED = 127
_SOCKET_BYTES = 2 * 212_992
"""Capacity of a socket's buffer by the kernel's default (twice `net.core.wmem_max`)."""


def _run_program(order: Order, report: Send) -> NoReturn:
    """Run the program in a process namespace, report how it ended, and exit.

    This process waits for the first process of the namespace, which starts the program and watches it. When
    the first process exits, the kernel kills all others. Raises `MissingWallError` on a machine without
    namespaces, where processes that the program leaves behind would go on running.
    """
    # The limit on processes does not bind root, so the watching process counts them. It must have priority
    # over the program: otherwise a fork bomb would starve it.
    niceness = 0 if os.getuid() else _NICENESS_OF_ROOT
    if not walls.enter_namespaces(order["scratch"], scratch_bytes=order["scratch_bytes"], processes=True):
        raise walls.MissingWallError("user namespaces, without which what a program starts could outlive it")
    walls.die_with_parent(order["parent"])
    _write_files(order["files"])
    if first := os.fork():
        os.waitpid(first, 0)
        os._exit(0)
    walls.die_with_parent(0)  # inside the namespace, the parent of its first process has the number 0
    counted = walls.mount_own_proc()
    walls.limit_process_numbers()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    program = os.fork()
    if not program:
        os.nice(niceness)
        _become_program(order, report, jailed=True)
    report(_watch(program, order, counted=counted))
    os._exit(0)


def _run_program_unjailed(order: Order, report: Send) -> NoReturn:
    """Run the program with limits only, report how it ended, and exit."""
    program = os.fork()
    if not program:
        _become_program(order, report, jailed=False)
    _, status = os.waitpid(program, 0)
    report({"exit": os.waitstatus_to_exitcode(status)})
    os.killpg(0, signal.SIGKILL)  # everything in our process group, including this process
    os._exit(0)


def _become_program(order: Order, report: Send, *, jailed: bool) -> NoReturn:
    """Raise the walls around this process, then turn into the program."""
    scratch = order["scratch"]
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; programs expect the default
            signal.signal(ignored, signal.SIG_DFL)
        if jailed:
            walls.shut_in(
                readable=order["readable"],
                executable=[*order["executable"], scratch],
                writable=[scratch, os.devnull],
                memory=order["memory"],
                seconds=order["seconds"],
                processes=order["processes"],
                programs=True,
            )
        else:
            walls.limit(memory=order["memory"], seconds=order["seconds"])
        report({"ready": "program"})
        os.execv(order["argv"][0], order["argv"])  # noqa: S606 (deliberately without a shell)
    except walls.MissingWallError as error:
        report({"refused": str(error)})
    except OSError as error:
        sys.stderr.write(f"{order['argv'][0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(_NOT_STARTED)


def _watch(program: int, order: Order, *, counted: bool) -> Report:
    """Wait for the program and reap orphans; stop early if all processes together exceed a limit.

    The kernel's limits are per process, and the limit on their number does not bind root.
    """
    deadline = time.monotonic() + order["seconds"]
    while time.monotonic() < deadline:
        signal.sigtimedwait({signal.SIGCHLD}, _TICK)
        for _ in range(_REAPED_PER_TICK):  # bounded, since a fork bomb leaves orphans continuously
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == program:
                return {"exit": os.waitstatus_to_exitcode(status)}
            if not process:
                break
        if counted and (stopped := _exceeded_limit(order)):
            return {"stopped": stopped}
    return {"stopped": "timeout"}


def _exceeded_limit(order: Order) -> str | None:
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    if len(processes) > order["processes"] + 1:
        return "forbidden"
    used = sum(map(_private_bytes, processes)) + _sockets() * _SOCKET_BYTES
    return "memory" if used > order["memory"] else None


def _private_bytes(process: str) -> int:
    """Bytes of a process's memory, in use or swapped out, that are not mapped from a file.

    The sum over all processes is complete: the filter refuses memory that processes share.
    """
    if (size := _private_bytes_in(f"/proc/{process}/status")) is not None:
        return size
    # The first thread has ended, but others may be running: read the figures of any of them.
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:  # just ended
        return 0
    sizes = (_private_bytes_in(f"/proc/{process}/task/{thread}/status") or 0 for thread in threads)
    return max(sizes, default=0)


def _private_bytes_in(status: str) -> int | None:
    try:
        with open(status, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if line.startswith(("RssAnon:", "VmSwap:"))]
    except OSError:  # just ended
        return None
    return sum(int(line.split()[1]) << 10 for line in lines) if lines else None


def _sockets() -> int:
    """Count the sockets of this network namespace, which contains only the program."""
    with open("/proc/net/sockstat", encoding="ascii") as file:
        return int(file.readline().split()[2])
