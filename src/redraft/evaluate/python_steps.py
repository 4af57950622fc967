"""The steps that run beside a Python draft inside the jail."""

from __future__ import annotations

import json
import math
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

DRAFT = "<draft>"
_SHOWN = 200
_DIGITS = 2000  # bits of a number that is still written in decimal


def run_steps(inputs: dict[str, Any]) -> dict[str, Any]:
    """Execute `draft`, then `setup`, then take the `steps`: (how, source) each, in one namespace.

    Returns `{"outcomes": [...]}`, one for each step: `{"value": ..., "shown": ...}` for an expression
    (`eval`) or a statement that went through (`exec`), else `{"raised": ..., "line": ...}`, where `line` is
    that of the draft. Where the draft or the setup itself raises, returns that alone, with `part`.
    """
    module = ModuleType("draft")
    sys.modules["draft"] = module
    names = vars(module)
    for part in ("draft", "setup"):
        outcome = _take("exec", inputs[part], names, f"<{part}>")
        if "raised" in outcome:
            return {**outcome, "part": part}
    return {"outcomes": [_take(how, source, names, "<check>") for how, source in inputs["steps"]]}


def _take(how: str, source: str, names: dict[str, Any], file: str) -> dict[str, Any]:
    try:
        code = compile(source, file, how)
        value = eval(code, names)  # noqa: S307 (this is what the jail is for; of a module's code it gives None)
        return {"value": plain(value), "shown": _shown(value)}
    except BaseException as error:  # noqa: BLE001 (whatever the draft raises is an outcome)
        return {"raised": type(error).__name__, "message": _message(error), "line": _line(error)}


def _line(error: BaseException) -> int | None:
    """Give the last line of the draft that the error came through."""
    if isinstance(error, SyntaxError) and error.filename == DRAFT:
        return error.lineno
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == DRAFT:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _message(error: BaseException) -> str:
    try:
        return (error.msg if isinstance(error, SyntaxError) else str(error))[:_SHOWN]
    except BaseException:  # noqa: BLE001 (the draft's own __str__)
        return "its message can't be shown"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except BaseException as error:  # noqa: BLE001 (the draft's own __repr__)
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def plain(value: Any) -> Any:
    """Make JSON of a value, so that equal values are equal JSON.

    Tuples become lists. What JSON does not know is an object with one key that says what it was: sets
    (sorted), bytes, complex and very large numbers, floats that are not finite, dicts whose keys are not
    all texts. Anything else is `{"__other__": its repr}`, which equals nothing.
    """
    try:
        return _plain(value)
    except RecursionError:
        return {"__other__": "a value nested too deeply"}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < _DIGITS else {"__int__": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"__float__": repr(float(value))}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] (anything)
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return {"__set__": sorted((_plain(item) for item in value), key=_order)}  # pyright: ignore[reportUnknownVariableType] (anything)
    if isinstance(value, dict):
        pairs = [[_plain(key), _plain(item)] for key, item in value.items()]  # pyright: ignore[reportUnknownVariableType] (anything)
        if all(isinstance(key, str) and not key.startswith("__") for key, _ in pairs):
            return dict(pairs)
        return {"__dict__": sorted(pairs, key=_order)}
    if isinstance(value, bytes | bytearray):
        return {"__bytes__": value.hex()}
    if isinstance(value, complex):
        return {"__complex__": [_plain(value.real), _plain(value.imag)]}
    return {"__other__": _shown(value)}


def _order(item: Any) -> str:
    return json.dumps(item, sort_keys=True)
