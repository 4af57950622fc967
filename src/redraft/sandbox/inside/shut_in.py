"""The jail's walls around a worker, where the machine has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from redraft.sandbox.jail import walls

if TYPE_CHECKING:
    from redraft.sandbox.jail.order import Order

_ADDRESS_SPACE = 4 << 30
_UNLIMITED_SECONDS = 10**9


def shut_in(parent: int, *, becomes: str | None = None, address_space: int = _ADDRESS_SPACE) -> None:
    """Raise the jail's walls around this process, and have the kernel end it with its host.

    The interpreter is the sandbox; these stand behind it, in case it has a hole: no files but the system's
    libraries, no network, no socket but pairs of streams, no other processes. With `becomes` it may turn
    into that program.
    """
    order = {
        "scratch": "/nonexistent",
        "readable": ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/urandom"],
        "executable": ["/usr/lib", "/usr/lib64", "/lib", "/lib64", becomes] if becomes else [],
        "memory": address_space,
        "seconds": _UNLIMITED_SECONDS,
        "processes": 0,
    }
    try:
        walls.check()
        walls.die_with_parent(parent)
        walls.raise_walls(cast("Order", order), private=False, programs=False, becomes=becomes is not None)
    except walls.RefusedError:
        return
