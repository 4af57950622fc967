"""Limits of the kernel on one process: memory, time, files."""

from __future__ import annotations

import resource
from math import ceil

TYPE_CHECKING = False  # typing itself would cost each run 7 ms
if TYPE_CHECKING:
    from redraft.sandbox.jail.order import Order

FILE_BYTES = 16 << 20
OPEN_FILES = 256
STACK_BYTES = 8 << 20


def limit(order: Order) -> None:
    """Bound this process and what comes of it by the order's `memory`, `seconds` and `processes`.

    A bound that is tighter already stays. One second after SIGXCPU, which can be caught, comes SIGKILL.
    """
    cpu = ceil(order["seconds"]) + 1
    bounds = {
        resource.RLIMIT_AS: (order["memory"], order["memory"]),
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_FSIZE: (FILE_BYTES, FILE_BYTES),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_STACK: (STACK_BYTES, STACK_BYTES),
        resource.RLIMIT_CORE: (0, 0),
    }
    for kind, (soft, hard) in bounds.items():
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)  # noqa: PLW2901 (the same two bounds, capped)
        try:
            resource.setrlimit(kind, (soft, hard))
        except (ValueError, OSError):  # macOS refuses some of them; there the jail is off anyway
            continue


def limit_processes(most: int) -> None:
    """Bound the processes and threads of this user namespace.

    Outside of one it would count all that the user runs.
    """
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
