"""The dialect of monty: one script, what is said of it, and the answer that comes of what is heard."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING

from redraft.protocols import Limits
from redraft.sandbox.dialect import Answer, Dialect, SpoiledError
from redraft.sandbox.given import as_json, names_of
from redraft.sandbox.inside.answer import MOST_MESSAGE, failure, flooded
from redraft.sandbox.inside.whole_script import returns
from redraft.sandbox.monty import protocol
from redraft.sandbox.monty.protobuf import text_in
from redraft.sandbox.monty.protocol import Kind
from redraft.sandbox.monty.raised import Raised

if TYPE_CHECKING:
    from collections.abc import Generator

    from redraft.protocols import Script
    from redraft.sandbox.dialect import Conversation

_MODULES = ("json", "re")
_LINES_BEFORE = 1
_LONGEST_CHARACTER = 4
_BYTES_PER_CHARACTER, _FEW_BYTES = 8, 1 << 16
"""What a value takes in monty's own form for a character of its JSON, at the very most, and beside that."""
_RESULT = b"\nimport json\njson.dumps(result, ensure_ascii=False, allow_nan=False)"
_RETURNED = b"result = result if returned is None else returned" + _RESULT
_ASSIGNED = re.compile(r"^\s*result\s*=(?!=)", re.MULTILINE)
_UNASSIGNED = "name 'result' is not defined"
_NOT_TAKEN_BACK = ("invalid name lookup result: ", "invalid input type: ")


def _greet() -> Conversation[str | None]:
    message = yield protocol.configure(Limits()) + protocol.RESET
    return None if message.startswith(protocol.OK) else text_in(protocol.event(message)[1], 1)


def _converse(script: Script) -> Conversation[Answer]:
    seen = [name for name in names_of(script) if name not in _MODULES and not iskeyword(name)]
    names = as_json([script.names[name] for name in seen])
    return _guarded(_run(script, seen, names))


def _guarded(conversation: Conversation[Answer]) -> Conversation[Answer]:
    try:
        return (yield from conversation)
    except ValueError as error:  # never from an interpreter that is what it was
        raise SpoiledError(failure("script", f"got an answer that is none: {error}")) from error


def _run(script: Script, seen: list[str], names: bytes) -> Conversation[Answer]:
    """Run a script and return its value: what it returned, `result` if it was assigned, its last expression.

    The value is written as JSON inside, and nothing but text is read out here. Where `result` is assigned
    and nothing returned, that is a part of the script. Otherwise a second request asks for `result`, which
    is the value that came of the first, handed back as it came, unless the script has one of its own.
    """
    code, at_once = _code(script.source, tuple(seen))
    carrier, given = (seen[0].encode(), protocol.text(names)) if seen else (b"", protocol.NO_VALUE)
    printed = _Printed(script.limits)
    opened = protocol.configure(script.limits)
    kind, said = yield from _turn(opened + protocol.feed(code, carrier, given), printed)
    if kind is Kind.ERROR:
        return _failure(script, Raised.of(said), printed)
    if not at_once:
        value = protocol.value_of(said)
        named = b"result"
        if "result" in script.source or "result" in seen:  # which may be another value
            named = b"returned" if _may_return(script.source) else b""
        if named:
            _check_size(value, script.limits)
            asked = protocol.feed(_RETURNED if named == b"returned" else _RESULT, named, value)
        else:
            asked = protocol.feed(_RESULT)
        kind, said = yield from _turn(asked, printed, result=(value, script.limits))
        if kind is Kind.ERROR:
            return _unwritten(script.limits, Raised.of(said))
    written, most = protocol.text_of(said), script.limits.result_chars
    if len(written) > _LONGEST_CHARACTER * most:
        return _too_large(f"{len(written):,} bytes of JSON, and {most:,} characters are allowed")
    text = str(written, "utf-8")
    if len(text) > most:
        return _too_large(f"{len(text):,} characters of JSON, and {most:,} are allowed")
    return {"value": text, "printed": printed.text}


def _check_size(value: protocol.Value, limits: Limits) -> None:
    """Raise `SpoiledError` for a value that is too large to be handed back: it can have no short JSON."""
    if len(value[0]) > _BYTES_PER_CHARACTER * limits.result_chars + _FEW_BYTES:
        raise SpoiledError(
            _too_large(f"{len(value[0]):,} bytes, and {limits.result_chars:,} characters of JSON are allowed")
        )


def _too_large(how: str) -> Answer:
    return failure("script", f"gave a result that is too large: {how}")


@lru_cache(16)
def _code(source: str, seen: tuple[str, ...]) -> tuple[bytes, bool]:
    """Return a script as it is run, and whether it gives its result by itself.

    The line before it makes names out of the text which the first of them holds.
    """
    given = f"; [{', '.join(seen)}] = json.loads({seen[0]})" if seen else ""
    at_once = "return" not in source and _ASSIGNED.search(source) is not None
    code = f"import {', '.join(_MODULES)}{given}\n{source}".encode(errors="replace")
    return code + _RESULT if at_once else code, at_once


@lru_cache(16)
def _may_return(source: str) -> bool:
    try:
        return "return" in source and returns(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what runs need not be Python of today
        return False


def _turn(
    said: bytes, printed: _Printed, result: tuple[protocol.Value, Limits] | None = None
) -> Generator[bytes, bytes, tuple[Kind, memoryview]]:
    """Say something and hear all that comes of it; the script finds nothing outside but a `result`.

    That is handed back within the limits which are beside it.
    """
    while True:
        message = yield said
        said = b""
        if message.startswith(protocol.OK):
            continue
        kind, event = protocol.event(message)
        if kind is Kind.PRINT:
            printed.add(protocol.printed(event))
        elif kind is Kind.NAME_LOOKUP:
            said = protocol.NO_SUCH_NAME
            if result is not None:
                _check_size(*result)
                said = protocol.this_is(result[0])
        elif kind is Kind.FUNCTION_CALL:
            said = protocol.no_such_function(event)
        elif kind is Kind.OS_CALL:
            said = protocol.no_such_system(event)
        elif kind is Kind.FATAL:
            raise SpoiledError(failure("script", f"ended its interpreter: {text_in(event, 1, MOST_MESSAGE)}"))
        else:
            return kind, event


class _Printed:
    """Collect what a script prints; too much of it ends the interpreter."""

    def __init__(self, limits: Limits) -> None:
        self.text = ""
        self._limits = limits

    def add(self, text: str) -> None:
        self.text += text
        if len(self.text) > self._limits.output_chars:
            raise SpoiledError(flooded(self._limits.to_json()))


def _failure(script: Script, raised: Raised, printed: _Printed) -> Answer:
    if raised.line is None:
        return raised.answer(script.limits.to_json(), None)
    line = raised.line - _LINES_BEFORE
    if raised.means(NameError):  # which monty places on the line before, where the name is that of `x += 1`
        line = max(line, 1)
    if 0 < line <= script.source.count("\n") + 1:
        return raised.answer(script.limits.to_json(), line)
    if line < 1 and not raised.is_limit():
        return failure("script", f"was given data that it cannot read: {raised.said}")
    if raised.said.startswith(_UNASSIGNED):
        return {"value": "null", "printed": printed.text}
    return _unwritten(script.limits, raised)


def _unwritten(limits: Limits, raised: Raised) -> Answer:
    if raised.is_limit():
        return raised.answer(limits.to_json(), None)
    why = raised.said
    if why.startswith(_NOT_TAKEN_BACK):
        why = "it contains itself" if "'Cycle'" in why else "it holds what JSON has no word for"
    return failure("script", f"gave a result that cannot be written as JSON: {why}")


MONTY = Dialect("monty", _greet, _converse, protocol.RESET, grace=0.1)
