"""Verdicts in prose, for models that are poor at JSON: how to ask for them, and how to read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redraft._thoughts import without_thoughts
from redraft._verdicts import leading_share_of
from redraft.text.replies import quotation_test, unfenced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def prose_instructions(keys: Sequence[str], numbers: Sequence[str]) -> str:
    """The instructions for a reply in lines: a score for each key, a status for each earlier issue."""
    earlier = "".join(f"Earlier issue {number}: <fixed or open>\n" for number in numbers)
    scores = "".join(f"{key}: <0.0 to 1.0>\n" for key in keys)
    example = f"[{keys[0]}] " if keys else ""
    return (
        "First give your reasons in a few sentences. Then finish with exactly these lines:\n\n"
        f"{earlier}{scores}Confidence: <0.0 to 1.0>\n"
        f"Issues:\n- {example}what is wrong, one problem a line\n"
        "Suggestions:\n- what to change, one a line"
    )


def read_prose(
    text: str, keys: Sequence[str], numbers: Sequence[str] = (), judged: Sequence[str] = ()
) -> dict[str, Any]:
    """Parse a reply in lines into the shape of a structured reply; contradictory scores are left out.

    Score lines in a quotation, or that are also in a judged text, are not the judge's own. In contrast to
    JSON, a fence is a quotation, too: the instructions ask for no lines in a fence.
    """
    lines = [line.strip() for line in unfenced(without_thoughts(text).strip())[0].splitlines()]
    own, is_quoted = _outside_quotations(lines), quotation_test(judged)
    scores = {key: _values(own, _score_line(key), is_quoted) for key in keys}
    statuses = [match for line in lines if (match := _STATUS.match(line)) and match[1] in numbers]
    confidence = _values(own, _CONFIDENCE)
    issues, suggestions = _sections(lines, [_CONFIDENCE, *map(_score_line, keys)])
    return {
        "earlier": {match[1]: match[2].lower() for match in statuses},
        "criteria": {
            key: {"score": values[0]}
            for key, values in scores.items()
            if len(set(values)) == 1 and values[0] is not None
        },
        "issues": [{"message": text, "criterion": criterion} for criterion, text in issues],
        "suggestions": [text for _, text in suggestions],
        "confidence": confidence[-1] if confidence else None,
    }


# Lines with a value.

_EMPHASIS = " \t*_`"
_CONFIDENCE = re.compile(r"[\s*_#]*confidence[\s*_]*[:=](.*)", re.IGNORECASE)
_STATUS = re.compile(r"[\s*_#-]*earlier issue (\d{1,4})[\s*_]*:[\s*_]*(fixed|open)\b", re.IGNORECASE)
_INLINE_CODE = re.compile(r"[-*+\s]*`[^`]*`[.,;]?")


def _score_line(key: str) -> re.Pattern[str]:
    # Emphasis around the value is stripped afterwards: a pattern for it would be quadratic on a long line.
    return re.compile(rf"[\s>*_`#-]*{re.escape(key)}[\s*_`]*[:=](.*)", re.IGNORECASE)


def _values(
    lines: Sequence[str], pattern: re.Pattern[str], is_quoted: Callable[[str], bool] = lambda _: False
) -> list[float | None]:
    return [
        leading_share_of(match[1].strip(_EMPHASIS))
        for line in lines
        if (match := pattern.match(line)) and not is_quoted(line.strip(_EMPHASIS + "-"))
    ]


def _outside_quotations(lines: Sequence[str]) -> list[str]:
    """The lines that are in no fence and no block quote, and not wholly in inline code."""
    own: list[str] = []
    fence = ""
    for line in lines:
        marks = next((marks for marks in ("```", "~~~") if line.startswith(marks)), "")
        if marks and fence in ("", marks):
            fence = "" if fence else marks
        elif not fence and not line.startswith(">") and not _INLINE_CODE.fullmatch(line):
            own.append(line)
    return own


# Lists of issues and suggestions.

_HEADING = re.compile(r"[\s*_#]*(issues|suggestions)\b[\s*_]*(:?)(.*)", re.IGNORECASE)
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+(?:\[([^\]]+)\]\s*)?(\S.*)")
_NONE = re.compile(
    r"(?:(?:none|nothing|n/?a|no (?:issues?|problems?|suggestions?|changes?))"
    r"(?: (?:found|needed|required|identified|to report))?|-+)[.!]?",
    re.IGNORECASE,
)


def _sections(lines: Sequence[str], others: Sequence[re.Pattern[str]]) -> list[list[tuple[str, str]]]:
    """The items under "Issues" and under "Suggestions", each with the criterion it names.

    An item may go on over several lines; one of `others` ends it.
    """
    sections: dict[str, list[tuple[str, list[str]]]] = {"issues": [], "suggestions": []}
    section, in_item = "", False
    for line in lines:
        if heading := _heading(line):
            section, first = heading
            sections[section] += [("", [first])] if first else []
            in_item = bool(first)
        elif not section or not line:
            in_item = False
        elif bullet := _BULLET.match(line):
            sections[section].append(((bullet[1] or "").strip(), [bullet[2]]))
            in_item = True
        elif in_item and not any(other.match(line) for other in others):
            sections[section][-1][1].append(line)
        else:
            section = ""
    return [
        [(criterion, text) for criterion, parts in items if not says_none(text := " ".join(parts))]
        for items in sections.values()
    ]


def _heading(line: str) -> tuple[str, str] | None:
    """The section that a line opens and the item on the same line; None for any other line."""
    match = _HEADING.match(line)
    if match is None:
        return None
    rest = match[3].strip(_EMPHASIS)
    return (match[1].lower(), rest) if match[2] or not rest else None


def says_none(text: str) -> bool:
    """Whether an item of a list says only that there are none."""
    return _NONE.fullmatch(text.strip(_EMPHASIS)) is not None
