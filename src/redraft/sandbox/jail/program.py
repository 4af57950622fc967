"""A program in the jail: started as the child of a first process whose end is the end of them all."""

from __future__ import annotations

import os
import signal
import sys
import time

from redraft.sandbox.jail import limits, namespaces, walls

TYPE_CHECKING = False  # typing itself would cost each run 7 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from redraft.sandbox.jail.order import Order, Report

    Send = Callable[[Report], None]

_TICK = 0.02
_BURIED_PER_TICK = 100
_NICENESS_OF_ROOT = 10
_NOT_STARTED = 127
_SOCKET_BYTES = 2 * 212_992
"""What the buffer of one socket may hold as the kernel is set up (twice `net.core.wmem_max`)."""


def run(order: Order, report: Send) -> NoReturn:
    """Run the order's program and whatever it starts in a process namespace, report how it ended, and leave.

    Raises `RefusedError` where the machine has no namespaces: what a program leaves behind could then not
    be ended.
    """
    # The kernel's limit on processes does not bind root, so the watch must count them; among the thousands
    # of a fork bomb it would come too late, were they not to stand back.
    niceness = 0 if os.getuid() else _NICENESS_OF_ROOT
    if not namespaces.enter(order["scratch"], scratch_bytes=order["scratch_bytes"], processes=True):
        raise walls.RefusedError("user namespaces, without which what a program starts could outlive it")
    walls.die_with_parent(order["parent"])
    walls.write_files(order)
    if first := os.fork():
        os.waitpid(first, 0)
        os._exit(0)
    walls.die_with_parent(0)  # the parent of the first process of a namespace has no number in it
    counted = namespaces.show_own_processes()
    namespaces.bound_process_numbers()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    program = os.fork()
    if not program:
        os.nice(niceness)
        _become(order, report, jailed=True)
    report(_watch(program, order, counted=counted))
    os._exit(0)  # and with the first process the kernel ends all others


def run_unjailed(order: Order, report: Send) -> NoReturn:
    """Run the order's program with limits and nothing else, report how it ended, and leave."""
    program = os.fork()
    if not program:
        _become(order, report, jailed=False)
    _, status = os.waitpid(program, 0)
    report({"exit": os.waitstatus_to_exitcode(status)})
    os.killpg(0, signal.SIGKILL)  # what it left behind in our process group, and this process
    os._exit(0)


def _become(order: Order, report: Send, *, jailed: bool) -> NoReturn:
    """Raise the walls and turn into the program."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a program expects them
            signal.signal(ignored, signal.SIG_DFL)
        if jailed:
            walls.raise_walls(order, private=True, programs=True)
        else:
            limits.limit(order)
        report({"ready": "program"})
        os.execv(order["argv"][0], order["argv"])  # noqa: S606 (a program without a shell is what is wanted)
    except walls.RefusedError as error:
        report({"refused": str(error)})
    except OSError as error:
        sys.stderr.write(f"{order['argv'][0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(_NOT_STARTED)


def _watch(program: int, order: Order, *, counted: bool) -> Report:
    """Wait for the program, burying orphans; stop early when all of it together takes too much.

    The kernel's own limits are for one process each, and the one on their number does not bind root.
    """
    until = time.monotonic() + order["seconds"]
    while time.monotonic() < until:
        signal.sigtimedwait({signal.SIGCHLD}, _TICK)
        for _ in range(_BURIED_PER_TICK):  # bounded: a fork bomb leaves orphans without end
            process, code = _bury()
            if process == program:
                return {"exit": code}
            if not process:
                break
        if counted and (stopped := _excess(order)):
            return {"stopped": stopped}
    return {"stopped": "timeout"}


def _bury() -> tuple[int, int]:
    """Take one process that has ended off the kernel's hands: its number (0 for none) and exit code."""
    process, status = os.waitpid(-1, os.WNOHANG)
    return process, os.waitstatus_to_exitcode(status)


def _excess(order: Order) -> str | None:
    processes = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 (pathlib costs 10 ms)
    if len(processes) > order["processes"] + 1:
        return "forbidden"
    held = sum(map(_own_bytes, processes)) + _sockets() * _SOCKET_BYTES
    return "memory" if held > order["memory"] else None


def _own_bytes(process: str) -> int:
    """Count the memory of one process that is no file's, in use or swapped out.

    Nothing is missing in the sum of them: the filter refuses memory that processes share.
    """
    if (own := _own_bytes_in(f"/proc/{process}/status")) is not None:
        return own
    # Its first thread has ended, and the rest of it may go on: then another thread knows.
    try:
        threads = os.listdir(f"/proc/{process}/task")  # noqa: PTH208 (pathlib costs 10 ms)
    except OSError:  # it has just ended
        return 0
    return max((_own_bytes_in(f"/proc/{process}/task/{thread}/status") or 0 for thread in threads), default=0)


def _own_bytes_in(status: str) -> int | None:
    try:
        with open(status, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (pathlib costs 10 ms)
            lines = [line for line in file if line.startswith(("RssAnon:", "VmSwap:"))]
    except OSError:  # it has just ended
        return None
    return sum(int(line.split()[1]) << 10 for line in lines) if lines else None


def _sockets() -> int:
    """Count the sockets of this network namespace, in which nobody is but the program."""
    with open("/proc/net/sockstat", encoding="ascii") as file:  # noqa: PTH123 (pathlib costs 10 ms)
        return int(file.readline().split()[2])
