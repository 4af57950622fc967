"""The messages of monty's protocol (monty.proto of monty-proto 1.4.0): requests as bytes, and events."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from redraft.sandbox.inside.frames import framed
from redraft.sandbox.monty.protobuf import Bytes, all_in, data, data_in, fields, number, number_in, text_in

if TYPE_CHECKING:
    from redraft.protocols import Limits

FILE = "<python-input-"
"""What the names of sources begin with in tracebacks, but those of `eval` and `exec`."""

OUT_OF_MEMORY = 65
"""The exit code of an interpreter that found no more memory."""

_VERSION = 5
"""Of the protocol: monty 1.3 and 1.4 speak it, and to give it up is a new major version to its authors."""

_RECURSION = 500
_CONFIGURE, _FEED, _RESUME_CALL, _RESUME_LOOKUP, _RESET = 1, 3, 4, 5, 9
_TEXT = 8
_ONE_VALUE = number(1, 1)
_NO_SLEEP = data(5, data(3))

Value: TypeAlias = tuple[Bytes, int]
"""Values as they travel, each with a place of its own, and the place of the one that is meant."""

NO_VALUE: Value = (b"", 0)

RESET = framed(data(_RESET))
"""Forget the script and all that it left."""

OK = data(10)
"""What the event begins with that says that a request for something else than a run was carried out."""

NO_SUCH_NAME = framed(data(_RESUME_LOOKUP, data(3)))


class Kind(IntEnum):
    """Name the events: by the number of their field."""

    PRINT = 1
    FUNCTION_CALL = 2
    OS_CALL = 3
    NAME_LOOKUP = 4
    COMPLETE = 6
    ERROR = 7
    FATAL = 11


_KINDS = {int(kind): kind for kind in Kind}


@lru_cache(16)
def configure(limits: Limits) -> bytes:
    """Return the request that opens a session, in which sleeping takes no time."""
    memory = number(2, limits.memory_mb << 20)
    depth = number(4, _RECURSION)
    microseconds = number(6, round(limits.seconds * 1e6))
    bounds = data(2, memory, depth, microseconds)
    return framed(data(_CONFIGURE, data(1, b"script.py"), bounds, number(9, _VERSION), data(11, _NO_SLEEP)))


def feed(code: bytes, name: bytes = b"", value: Value = NO_VALUE) -> bytes:
    """Return the request to run code, which sees a value under a name if there is one."""
    given = (data(2, data(1, name), number(2, value[1])), data(3, value[0])) if name else ()
    return framed(data(_FEED, data(1, code), *given))


def this_is(value: Value) -> bytes:
    """Return the answer to an event `NAME_LOOKUP` that there is a value of that name."""
    return framed(data(_RESUME_LOOKUP, data(1, value[0]), number(2, value[1])))


def text(value: bytes) -> Value:
    """Return a text in UTF-8 as a value."""
    return _ONE_VALUE + data(2, data(_TEXT, value)), 0


def value_of(completed: Bytes) -> Value:
    """Return the value of an event `COMPLETE`, unread."""
    return data_in(completed, 2), number_in(completed, 1)


def no_such_function(call: Bytes) -> bytes:
    """Return the answer to an event `FUNCTION_CALL`: there is none of that name."""
    return framed(data(_RESUME_CALL, number(1, number_in(call, 4)), data(2, data(4, data_in(call, 1)))))


def no_such_system(call: Bytes) -> bytes:
    """Return the answer to an event `OS_CALL`: nobody serves it."""
    return framed(data(_RESUME_CALL, number(1, number_in(call, 1)), data(2, data(5))))


def event(message: bytes) -> tuple[Kind, memoryview]:
    """Return the kind of an event and what is in it; raises `ValueError` for what is none that we know."""
    for field, value in fields(message):
        if field in _KINDS and not isinstance(value, int):
            return _KINDS[field], value
    raise ValueError("it is no event of the protocol")


def printed(event: Bytes) -> str:
    """Return the text of an event `PRINT`, whichever stream it went to."""
    return "".join(text_in(segment, 2) for segment in all_in(event, 1))


def text_of(completed: Bytes) -> memoryview:
    """Return the text in UTF-8 that is the value of an event `COMPLETE`; raises `ValueError` for another."""
    arena, place = value_of(completed)
    nodes = all_in(arena, 2)
    texts = all_in(nodes[place], _TEXT) if place < len(nodes) else []
    if not texts:
        raise ValueError("the value is no text")
    return texts[-1]
