"""The worker from its first line on: shut itself in, then answer one order after the other."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from redraft.sandbox.inside.answer import failure
from redraft.sandbox.inside.frames import HEAD, framed
from redraft.sandbox.inside.shut_in import shut_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    Answer = Callable[[dict[str, Any]], dict[str, Any]]

GRACE = 0.2
"""Seconds beyond a script's limit in which its interpreter may still say itself that time is up."""


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
        answer: Answer = interpreter.start(given["options"], partial(shut_in, given["parent"]))
    except Exception as error:  # noqa: BLE001 (a worker: whatever fails, the host is told)
        _send(answers, {"refused": f"{type(error).__name__}: {error}"})
        os._exit(1)
    _send(answers, {})
    while (head := _read(orders, HEAD.size)) is not None:
        order = json.loads(_read(orders, HEAD.unpack(head)[0]) or b"")
        # When the host is gone or stuck, the kernel ends this process: no hang survives its limit.
        signal.setitimer(signal.ITIMER_REAL, order["limits"]["seconds"] + 2 * GRACE)
        _send(answers, _answered(answer, order))
        signal.setitimer(signal.ITIMER_REAL, 0)
    os._exit(0)


def _end_with_host(orders: int) -> None:
    """Wait until nobody can write orders any more, and end this process."""
    hung_up = select.poll()
    hung_up.register(orders, 0)
    hung_up.poll()
    os._exit(1)


def _answered(answer: Answer, order: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer(order)
    except Exception as error:  # noqa: BLE001 (a worker: whatever fails, the host is told)
        too_much = isinstance(error, MemoryError)
        what = "took more memory than its worker has" if too_much else f"could not be run: {error!r}"
        return failure("memory" if too_much else "script", what)


def _send(answers: int, message: dict[str, Any]) -> None:
    view = memoryview(framed(json.dumps(message, ensure_ascii=False).encode(errors="replace")))
    while view:
        view = view[os.write(answers, view) :]


def _read(orders: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        if not (more := os.read(orders, size - len(data))):
            return None
        data += more
    return bytes(data)
