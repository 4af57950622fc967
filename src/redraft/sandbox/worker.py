"""Worker: a warm interpreter process, which shuts itself in and then answers orders, one after the other."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._validation import named_error
from redraft.sandbox import walls
from redraft.sandbox.answers import HEAD, failure

if TYPE_CHECKING:
    from typing import NoReturn

    from redraft.sandbox.answers import Answer

GRACE = 0.2
"""Seconds after a script's limit in which its interpreter can still report the timeout."""

ShutIn: TypeAlias = Callable[..., None]
"""The function that a language's `start` calls once it has read its files; see `shut_in`."""

_ADDRESS_SPACE = 4 << 30
_UNLIMITED_SECONDS = 10**9


def main() -> NoReturn:
    """Start the language that the first order names, then answer orders until the host hangs up."""
    orders, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # output of an interpreter must not mix with the answers
    os.close(null)
    start = _receive(orders)
    if start is None:
        os._exit(0)
    Thread(target=_exit_with_host, args=(orders,), daemon=True).start()
    try:
        language = importlib.import_module(f"redraft.sandbox.{start['language']}")
        answer = language.start(start["options"], partial(shut_in, start["parent"]))
    except Exception as error:  # noqa: BLE001 (the host reports any failure)
        _send(answers, {"refused": named_error(error)})
        os._exit(1)
    _send(answers, {})
    while (order := _receive(orders)) is not None:
        # If the host is gone or stuck, the kernel ends this process.
        signal.setitimer(signal.ITIMER_REAL, order["limits"]["seconds"] + 2 * GRACE)
        _send(answers, _answer(answer, order))
        signal.setitimer(signal.ITIMER_REAL, 0)
    os._exit(0)


def shut_in(
    parent: int,
    *,
    becomes: str | None = None,
    address_space: int = _ADDRESS_SPACE,
    jailed_child: bool = False,
) -> None:
    """Raise the jail's walls around this process, if the machine has a jail; the process dies with `parent`.

    The interpreter is the sandbox; the walls are a second line of defence in case it has a hole. They allow
    the system's libraries and connected pairs of streams, but no other files, network, sockets or processes.
    With `becomes`, the process can turn into that program. With `jailed_child`, a child behind walls of its
    own dies with it.
    """
    libraries = ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache"]
    try:
        walls.check()
        walls.die_with_parent(parent)
        walls.shut_in(
            readable=[*libraries, "/dev/urandom"],
            executable=[*libraries, becomes] if becomes else [],
            memory=address_space,
            seconds=_UNLIMITED_SECONDS,
            becomes=becomes is not None,
            jailed_child=jailed_child,
        )
    except walls.MissingWallError:
        return


def _exit_with_host(orders: int) -> None:
    """Exit when the host has closed its end of the pipe."""
    hung_up = select.poll()
    hung_up.register(orders, 0)
    hung_up.poll()
    os._exit(1)


def _answer(answer: Callable[[dict[str, Any]], Answer], order: dict[str, Any]) -> Answer:
    try:
        return answer(order)
    except Exception as error:  # noqa: BLE001 (the host reports any failure)
        if isinstance(error, MemoryError):
            return failure("memory", "used more memory than its worker has")
        return failure("script", f"could not be run: {named_error(error)}")


def _send(answers: int, message: dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
    view = memoryview(HEAD.pack(len(data)) + data)
    while view:
        view = view[os.write(answers, view) :]


def _receive(orders: int) -> dict[str, Any] | None:
    """Read the next order; None if the host has hung up."""
    if (head := _read(orders, HEAD.size)) is None:
        return None
    return json.loads(_read(orders, HEAD.unpack(head)[0]) or b"{}")


def _read(orders: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        if not (more := os.read(orders, size - len(data))):
            return None
        data += more
    return bytes(data)
