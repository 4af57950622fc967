"""What is known of a failure without asking anyone: the reflection of last resort."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft.core.texts import as_text
from redraft.text.middle import without_middle

if TYPE_CHECKING:
    from redraft.lessons.outcome import Outcome

KNOWN_CONFIDENCE = 0.2
"""How much a reflection is worth that nobody thought about."""
NOT_KNOWN = "Not known."
NO_RULE = "None: what is known does not tell what would have prevented it."
_SHOWN = 600
_LINES = (600, 300, 150)
"""How much of a line is shown, until a transcript fits."""
_NUMBERED = re.compile(r"(?:step\s*)?#?\d+[.:)]\s", re.IGNORECASE)
_A_FAILED_CALL = re.compile(
    r"\D*\d+[.:)]\s+\S+ (?:(?:failed|denied|was refused)\b|answered: (?:\w*Error|error|Traceback)\b)"
)
_AN_ERROR = re.compile(
    r"\b(?:\w*Error|\w*Exception|errors?|failed|failure|Traceback|denied|refused|timed out)\b"
)


def numbered(transcript: str) -> str:
    """Return a transcript with a number before each entry, unless it has them.

    An indented line belongs to the one before it.
    """
    lines = transcript.split("\n")
    if any(_NUMBERED.match(line) for line in lines[:1]):
        return transcript
    shown: list[str] = []
    number = 0
    for line in lines:
        if not line.strip() or line[0].isspace():
            shown.append(line)
            continue
        number += 1
        shown.append(f"{number}. {line}")
    return "\n".join(shown)


def first_error(transcript: str) -> str:
    """Return the first entry of a numbered transcript that tells of an error; empty where none does.

    A call that failed comes before an entry that only speaks of errors.
    """
    entries = [line.strip() for line in transcript.split("\n") if _NUMBERED.match(line)]
    failed = (line for line in entries if _A_FAILED_CALL.match(line))
    telling = (line for line in entries if _AN_ERROR.search(line))
    return next(failed, "") or next(telling, "")


def shortened(transcript: str, most: int) -> str:
    """Return a numbered transcript in about `most` characters.

    Its long lines are cut first, so that no step is lost; only if that is not enough, its middle is left out.
    """
    for longest in _LINES:
        if len(transcript) <= most:
            return transcript
        transcript = "\n".join(_cut(line, longest) for line in transcript.split("\n"))
    return without_middle(transcript, most)


def _cut(line: str, longest: int) -> str:
    return line if len(line) <= longest else f"{line[:longest]} ..."


def known_of(outcome: Outcome, why: str) -> dict[str, str]:
    """Return the fields of a reflection made of what is known; `why` says why nothing better could be had.

    A kind of reflection takes those that it has.
    """
    how = "failed" if outcome.status == "failed" else "was done in part"
    step = first_error(numbered(outcome.transcript))
    error = _short(outcome.error) or _short(step) or _short(as_text(outcome.output))
    wrong = [
        f"The error was: {_short(outcome.error)}" if outcome.error.strip() else "",
        f"The first step with an error was {_short(step)}" if step else "",
    ]
    return {
        "what_happened": f"The task {how}: {_short(outcome.task.description)}\n"
        f"This was written without a model, from what is known: {why}",
        "what_went_wrong": "\n".join(filter(None, wrong)) or "Nothing on record says at which step.",
        "why": NOT_KNOWN,
        "do_differently": f"Find out the cause before trying again: {error}"
        if error
        else "Find out the cause before trying again, and record what each step answers.",
        "rule": NO_RULE,
    }


def _short(text: str) -> str:
    return without_middle(" ".join(text.split()), _SHOWN)
