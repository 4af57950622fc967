"""A judge's reply in prose: how it is asked for, and what its lines say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redraft.core.adapt import leading_share_of
from redraft.text.json_reply import without_thoughts

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADING = re.compile(r"[\s*_#]*(issues|suggestions)\b[\s*_]*(:?)(.*)", re.IGNORECASE)
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+(?:\[([^\]]+)\]\s*)?(\S.*)")
_CONFIDENCE = re.compile(r"[\s*_#]*confidence[\s*_]*[:=](.*)", re.IGNORECASE)
_NONE = re.compile(
    r"(?:(?:none|nothing|n/?a|no (?:issues?|problems?|suggestions?|changes?))"
    r"(?: (?:found|needed|required|identified|to report))?|-+)[.!]?",
    re.IGNORECASE,
)
_AROUND = " \t*_`"


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


def says_none(text: str) -> bool:
    """Say whether an item of a list only says that there are none."""
    return _NONE.fullmatch(text.strip(_AROUND)) is not None


def read(text: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return what the lines say in the shape of a structured reply; two different scores count as none."""
    lines = [line.strip() for line in without_thoughts(text).splitlines()]
    said = {key: _values(lines, _line_of(key)) for key in keys}
    criteria = {key: {"score": score} for key, values in said.items() if (score := _only(values)) is not None}
    sections: dict[str, list[tuple[str, list[str]]]] = {"issues": [], "suggestions": []}
    ending = [_CONFIDENCE, *map(_line_of, keys)]
    current, goes_on = "", False
    for line in lines:
        if heading := _heading(line):
            current, first = heading
            sections[current] += [("", [first])] if first else []
            goes_on = bool(first)
        elif not current or not line:
            goes_on = False
        elif bullet := _BULLET.match(line):
            sections[current].append(((bullet[1] or "").strip(), [bullet[2]]))
            goes_on = True
        elif goes_on and not any(form.match(line) for form in ending):
            sections[current][-1][1].append(line)  # a wrapped one
        else:
            current = ""
    stated = _values(lines, _CONFIDENCE)
    issues, suggestions = (
        [(criterion, text) for criterion, parts in section if not says_none(text := " ".join(parts))]
        for section in sections.values()
    )
    return {
        "criteria": criteria,
        "issues": [{"message": text, "criterion": criterion} for criterion, text in issues],
        "suggestions": [text for _, text in suggestions],
        "confidence": stated[-1] if stated else None,
    }


def _heading(line: str) -> tuple[str, str] | None:
    """Return which section a line opens, and the item that stands on the same line."""
    found = _HEADING.match(line)
    if found is None:
        return None
    rest = found[3].strip(_AROUND)
    return (found[1].lower(), rest) if found[2] or not rest else None


def _line_of(key: str) -> re.Pattern[str]:
    # What stands around the value is stripped off: a pattern for it would try each place in a long line.
    return re.compile(rf"[\s>*_`#-]*{re.escape(key)}[\s*_`]*[:=](.*)", re.IGNORECASE)


def _values(lines: Sequence[str], form: re.Pattern[str]) -> list[float | None]:
    return [leading_share_of(found[1].strip(_AROUND)) for line in lines if (found := form.match(line))]


def _only(values: Sequence[float | None]) -> float | None:
    return values[0] if len(set(values)) == 1 else None
