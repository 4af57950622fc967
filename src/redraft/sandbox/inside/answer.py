"""Answers: what a worker tells the host about one script."""

from __future__ import annotations

from redraft.sandbox.inside.plain import NotPlainError, to_text

TYPE_CHECKING = False  # typing itself would cost each run in the jail 7 ms
if TYPE_CHECKING:
    from typing import Any

MOST_MESSAGE = 2000


def success(value: Any, printed: str, limits: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that carries a value as JSON text, or the failure that it is no plain data."""
    if len(printed) > limits["output_chars"]:
        return flooded(limits)
    try:
        return {"value": to_text(value, limits["result_chars"]), "printed": printed}
    except NotPlainError as error:
        return failure("script", f"gave a result that {error}")


def failure(kind: str, message: str, line: int | None = None) -> dict[str, Any]:
    """Return an answer that says why there is no value.

    `kind` is `timeout`, `memory`, `forbidden`, `output` or `script`; the message follows the script's name.
    """
    return {"kind": kind, "message": message[:MOST_MESSAGE], "line": line}


def flooded(limits: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that a script printed too much."""
    return failure("output", f"printed more than its limit of {limits['output_chars']:,} characters")


def late(limits: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that time was up."""
    return failure("timeout", f"ran longer than its limit of {limits['seconds']:g} s")


def too_big(limits: dict[str, Any], line: int | None = None) -> dict[str, Any]:
    """Return the answer that a script took too much memory."""
    return failure("memory", f"took more than its limit of {limits['memory_mb']} MB of memory", line)
