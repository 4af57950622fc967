"""What no lesson may say, and texts cleaned of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from redraft.redact.engine import has_any
from redraft.redact.environment import EVERY_CATEGORY, redactor_of_environment
from redraft.redact.redactor import Redactor
from redraft.text.characters import without_invisible, without_middle

if TYPE_CHECKING:
    from redraft.lessons.lesson import Content, Lesson

LONGEST = 2_000
"""Characters of a field. What needs more is no lesson but a text of its own, with room to hide things in."""

_FEW = r"(?:\s+\S+){0,4}?\s+"
_RULES = r"(?:instructions?|rules?|guidelines?|polic(?:y|ies)|guardrails?|restrictions?|safeguards?)\b"
_CHECKS = (
    r"(?:tests?|checks?|checking|validations?|verifications?|linters?|linting|assertions?|reviews?|approvals?"
    r"|confirmations?|authentication|authorization|permissions?|safety|security|ci|hooks?)\b"
)
_NOT_OF = r"(?!of\b)"
_NOT_SAID = r"(?<!never )(?<!not )(?<!n't )(?<!n\u2019t )"

_DROPS_RULES = (
    rf"\b(?:ignore|disregard|forget|override|overrule|bypass|circumvent)\b{_FEW}{_RULES}",
    r"\b(?:forget|ignore|new|real|hidden)(?:\s+\w+)?\s+system prompt\b",
    r"\b(?:you are now|from now on,? you|developer mode|jailbreak\w*)\b",
    r"\bact as (?:root|admin|an? unrestricted)\b",
    r"\bdo not (?:tell|inform|mention (?:this|it) to) the (?:user|operator)\b",
)
_DROPS_CHECKS = (
    rf"{_NOT_SAID}\b(?:skip|disable|bypass|suppress|deactivate)\b{_FEW}{_CHECKS}",
    rf"{_NOT_SAID}\b(?:turn(?:ing)? off|switch(?:ing)? off|comment(?:ing)? out)\b{_FEW}{_CHECKS}",
    rf"\bwithout\s+(?:running|asking for|waiting for)\s+(?:\S+\s+)?{_CHECKS}",
)
_ADDRESSES = (
    r"\b[a-z][a-z0-9+.-]{1,20}://\S",
    r"\bwww\.\S",
    r"\b(?:mailto|javascript|data):\S",
)
_COMMANDS = (
    r"\brm\s+-[a-z]*[rf]",
    r"\bsudo\s+\S",
    r"\b(?:curl|wget)\s+(?:-|\S+\s*\|)",
    r"\|\s*(?:ba|z)?sh\b",
    r"\bchmod\s+[0-7+]",
    r"\b(?:pip|npm|apt|brew)\s+install\s",
    r"\bgit\s+(?:push|reset|clean)\b",
    r"--no-verify\b",
    r"\bpowershell\b",
    r"\bos\.system\b",
    r"\bsubprocess\.",
    r"\b(?:eval|exec)\s*\(",
    r"\$\([^)]",
    r"\bbase64\s+-d",
    r"\bnc\s+-",
    rf"\bdrop\s+table\s+{_NOT_OF}",
    r"\bdelete\s+from\s+\w+\s*;",
    r">\s*/(?:dev|etc|bin|usr)/",
)

# Each is what a published attack on the memory of agents does, or what a person would have to vouch for.
_REFUSED = {
    what: re.compile("|".join(patterns), re.IGNORECASE)
    for what, patterns in {
        "an instruction to drop the rules": _DROPS_RULES,
        "an instruction to leave out a check": _DROPS_CHECKS,
        "an address": _ADDRESSES,
        "a command": _COMMANDS,
    }.items()
}
# What the linear engine can look for in a hundredth of the time: no text that is refused is without it.
_ROUGHLY = tuple(
    f"(?i:{pattern.replace(_NOT_SAID, '').replace(_NOT_OF, '')})"
    for pattern in (*_DROPS_RULES, *_DROPS_CHECKS, *_ADDRESSES, *_COMMANDS)
)


def refused(text: str) -> str:
    """Say what in a text no lesson may hold; empty where there is nothing.

    Characters that can't be seen don't hide it, and a line break is a space.
    """
    if len(text) > LONGEST:
        return f"{len(text):,} characters, where {LONGEST:,} are enough"
    seen = " ".join(without_invisible(text).split())
    if seen.isascii() and not has_any(_ROUGHLY, seen.encode()):
        return ""
    return next((what for what, pattern in _REFUSED.items() if pattern.search(seen)), "")


def refusal_of(lesson: Lesson) -> str:
    """Say what a lesson holds that none may, although a person wrote it into its file; empty if nothing."""
    about = (lesson.summary, lesson.task_type, " ".join(lesson.tools))
    found = [*refused_fields(lesson.content).values(), *map(refused, about)]
    return next(filter(None, found), "")


def refused_fields(content: Content) -> dict[str, str]:
    """Say of each field of a reflection that can't be kept why."""
    found: dict[str, str] = {}
    for one in fields(content):
        value: Any = getattr(content, one.name)
        if why := refused(value):
            found[one.name] = why
    return found


WITHHELD = "[withheld]"
"""What stands where nothing of a text may be kept. Reflexion Protocol, section 8."""
_GAP = 100  # what the notice of a cut takes


def lesson_redactor() -> Redactor:
    """Return the redactor of lessons: it withholds secrets, personal data and what is internal."""
    return redactor_of_environment(also=EVERY_CATEGORY)


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Make texts fit to be kept in a lesson: `redactor` is that of `lesson_redactor` unless one is given."""

    redactor: Redactor = field(default_factory=lesson_redactor)

    def redacted(self, text: str) -> str:
        """Return a text with secrets withheld, and characters that can't be seen left out."""
        return self.redactor.redact(without_invisible(text)).text.strip()

    def refusal(self, text: str) -> str:
        """Say why a redacted text can't be kept; empty where it can."""
        if why := refused(text):
            return f"it holds {why}" if len(text) <= LONGEST else f"it has {why}"
        return "" if self.redactor.is_clean(text) else "it holds a secret"

    def kept(self, text: str) -> str:
        """Return what may be kept of a text: without the lines that may not, bounded, or `[withheld]`."""
        lines = self.redacted(text).split("\n")
        said = "\n".join(WITHHELD if refused(line[:LONGEST]) else line for line in lines)
        short = without_middle(said, LONGEST - _GAP)
        return WITHHELD if not short or self.refusal(short) else short
