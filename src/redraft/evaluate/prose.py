"""A judge's reply in prose: how it is asked for, and what its lines say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADING = re.compile(r"^[\s*_#]*(issues|suggestions)[\s*_]*:[\s*_]*(?:none\.?)?\s*$", re.IGNORECASE)
_BULLET = re.compile(r"[-*+]\s+(?:\[([^\]]+)\]\s*)?(\S.*)")
_CONFIDENCE = re.compile(r"^[\s*_#]*confidence[\s*_]*:[\s*_]*([\d.]+)[\s*_]*$", re.IGNORECASE)
_AROUND = " \t*_`"
_NUMBER = re.compile(r"\d*\.?\d+")


def instructions(keys: Sequence[str]) -> str:
    """Say in what lines a judge is to put its scores, issues and suggestions."""
    scores = "".join(f"{key}: <0.0 to 1.0>\n" for key in keys)
    example = f"[{keys[0]}] " if keys else ""
    return (
        "First give your reasons in a few sentences. Then finish with exactly these lines:\n\n"
        f"{scores}Confidence: <0.0 to 1.0>\n"
        f"Issues:\n- {example}what is wrong, one problem a line\n"
        "Suggestions:\n- what to change, one a line"
    )


def read(text: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return what the lines say in the shape of a structured reply; two different scores count as none."""
    lines = [line.strip() for line in text.splitlines()]
    criteria = {key: {"score": score} for key in keys if (score := _score(lines, key)) is not None}
    sections: dict[str, list[Any]] = {"issues": [], "suggestions": []}
    current = ""
    for line in lines:
        if heading := _HEADING.match(line):
            current = heading[1].lower()
        elif current and (bullet := _BULLET.match(line)):
            issue = {"message": bullet[2], "criterion": (bullet[1] or "").strip()}
            sections[current].append(issue if current == "issues" else bullet[2])
        elif line:
            current = ""
    stated = [
        float(found[1]) for line in lines if (found := _CONFIDENCE.match(line)) and _is_number(found[1])
    ]
    return {"criteria": criteria, **sections, "confidence": stated[-1] if stated else None}


def _score(lines: Sequence[str], key: str) -> float | None:
    # What stands around the value is stripped off: a pattern for it would try each place in a long line.
    line_of_key = re.compile(rf"[\s>*_`#-]*{re.escape(key)}[\s*_`]*[:=](.*)", re.IGNORECASE)
    values = {found[1].strip(_AROUND) for line in lines if (found := line_of_key.match(line))}
    if len(values) != 1 or not _is_number(value := values.pop()):
        return None
    return float(value)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
