"""The walls around this process, in the order in which they can be raised."""

from __future__ import annotations

import os
import signal
import sys

from redraft.sandbox.jail import kernel, landlock, limits, namespaces, seccomp

TYPE_CHECKING = False  # typing itself would cost each run 7 ms
if TYPE_CHECKING:
    from redraft.sandbox.jail.order import Order

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38


class RefusedError(Exception):
    """Say what this machine lacks for a jail."""


def check() -> None:
    """Raise `RefusedError` where this machine cannot hold code that is not ours."""
    if sys.platform != "linux":
        raise RefusedError(f"a Linux kernel (this is {sys.platform})")
    if kernel.machine() not in kernel.MACHINES:
        raise RefusedError(f"a table of system calls for the machine {kernel.machine()!r}")
    if not landlock.version():
        raise RefusedError("Landlock (Linux 5.13 or younger, and 'landlock' among the kernel's `lsm=`)")


def die_with_parent(parent: int) -> None:
    """Make the kernel end this process when its parent ends, which must still be `parent`."""
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def raise_walls(order: Order, *, private: bool, programs: bool, becomes: bool = False) -> None:
    """Shut this process in, for good; raises `RefusedError` when a wall does not stand.

    With `programs` it may start those that are executable, with `becomes` turn into one and start none.
    `private` says that the namespaces are there: only then is there a place to write to. Otherwise the
    folder could be filled without bound, and what Landlock does not watch stays forbidden by the filter.
    """
    scratch = order["scratch"]
    limits.limit(order)
    try:
        if private:
            limits.limit_processes(order["processes"])
        kernel.prctl(_PR_SET_DUMPABLE, 0)
        kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
        namespaces.drop_capabilities()
        landlock.restrict(
            readable=[*order["readable"], scratch],
            executable=[*order["executable"], scratch] if programs or becomes else [],
            writable=[scratch, os.devnull] if private else [],
        )
        seccomp.install(programs=programs, becomes=becomes, metadata=private)
    except OSError as error:
        raise RefusedError(f"a kernel that lets a process shut itself in ({error})") from error


def write_files(order: Order) -> None:
    """Put the order's files into the scratch folder, which must be the working folder."""
    for name, text in order["files"].items():
        if folder := os.path.dirname(name):  # noqa: PTH120 (pathlib would cost each run 10 ms)
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 (likewise)
        with open(name, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:  # noqa: PTH123 (likewise)
            file.write(text)
