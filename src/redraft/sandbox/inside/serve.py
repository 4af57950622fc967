"""The worker from its first line on: shut itself in, then answer one order after the other."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import struct
import sys
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from redraft.sandbox.inside.answer import failure
from redraft.sandbox.jail import walls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from redraft.sandbox.jail.order import Order

    Answer = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
    """Yield the answer to an order, and tidy up behind it while the host reads on."""

GRACE = 0.2
"""Seconds beyond a script's limit in which its interpreter may still say itself that time is up."""

_HEAD = struct.Struct(">Q")
_ADDRESS_SPACE = 4 << 30
_UNLIMITED_SECONDS = 10**9


def main() -> NoReturn:
    """Serve the language that `argv` names until the host hangs up; never returns."""
    given = json.loads(sys.argv[1])
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # what an interpreter prints by itself is no answer
    os.close(nothing)
    Thread(target=_end_with_host, args=(orders,), daemon=True).start()
    try:
        interpreter = importlib.import_module(f"redraft.sandbox.inside.{given['language']}")
        answer: Answer = interpreter.start(given["options"], partial(_shut_in, given["parent"]))
    except Exception as error:  # noqa: BLE001 (a worker: whatever fails, the host is told)
        _send(answers, {"refused": f"{type(error).__name__}: {error}"})
        os._exit(1)
    _send(answers, {})
    while (head := _read(orders, _HEAD.size)) is not None:
        order = json.loads(_read(orders, _HEAD.unpack(head)[0]) or b"")
        # When the host is gone or stuck, the kernel ends this process: no hang survives its limit.
        signal.setitimer(signal.ITIMER_REAL, order["limits"]["seconds"] + 2 * GRACE)
        _serve(answer, order, answers)
        signal.setitimer(signal.ITIMER_REAL, 0)
    os._exit(0)


def _end_with_host(orders: int) -> None:
    """Wait until nobody can write orders any more, and end this process and what it started."""
    hung_up = select.poll()
    hung_up.register(orders, 0)
    hung_up.poll()
    with suppress(PermissionError):  # behind the walls, where there are no other processes
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _shut_in(parent: int, *, programs: tuple[str, ...] = (), address_space: int = _ADDRESS_SPACE) -> None:
    """Raise the jail's walls around this process, where the machine has them.

    The interpreter is the sandbox; these stand behind it, in case it has a hole: no files, no network, no
    other programs but `programs`. Without any, the kernel ends this process with its host, too: a script
    may hang where no other thread gets to run.
    """
    order = {
        "scratch": "/nonexistent",
        "readable": ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/urandom"],
        "executable": ["/usr/lib", "/usr/lib64", "/lib", "/lib64", *programs] if programs else [],
        "memory": address_space,
        "seconds": _UNLIMITED_SECONDS,
        "processes": 0,
    }
    try:
        walls.check()
        if not programs:
            walls.die_with_parent(parent)
        walls.raise_walls(cast("Order", order), private=False, programs=bool(programs))
    except walls.RefusedError:
        return


def _serve(answer: Answer, order: dict[str, Any], answers: int) -> None:
    said = False
    try:
        for told in answer(order):
            _send(answers, told)
            said = True
    except Exception as error:  # noqa: BLE001 (a worker: whatever fails, the host is told)
        if said:  # what was left behind cannot be tidied up
            os._exit(1)
        too_much = isinstance(error, MemoryError)
        what = "took more memory than its worker has" if too_much else f"could not be run: {error!r}"
        _send(answers, failure("memory" if too_much else "script", what))


def _send(answers: int, message: dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
    view = memoryview(_HEAD.pack(len(data)) + data)
    while view:
        view = view[os.write(answers, view) :]


def _read(orders: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        if not (more := os.read(orders, size - len(data))):
            return None
        data += more
    return bytes(data)
