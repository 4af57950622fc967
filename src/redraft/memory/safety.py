"""Keep secrets, orders, commands and addresses out of stored memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from redraft._words import words_of
from redraft.redact.engine import has_any
from redraft.redact.kinds import MARK, SECRET_KINDS, mark
from redraft.text.characters import without_invisible, without_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redraft.redact import Redactor  # noqa: TC004 (for type checkers: it takes long to load)

LONGEST = 2_000
"""Maximum characters of a field; a longer text has room to hide orders."""
WITHHELD = "[withheld]"
"""Replaces a text that can't be stored."""
CUT_NOTICE = 100
"""Maximum characters that `without_middle` adds."""


# Memory is put into later prompts: an attacker's sentence in it could steer the agent for weeks.


def violation(text: str) -> str:
    """The forbidden content of a lesson, rule or memory, such as `"a command"`; empty if there is none.

    Invisible characters are ignored, and a line break counts as a space. A warning ("Never call eval()") is
    not a command, and a page of documentation that a text only refers to is not an address.
    """
    return next(violations_of(text), "")


def violations_of(text: str) -> Iterator[str]:
    """Yield all forbidden content of a text (see `violation`)."""
    if len(text) > LONGEST:
        yield f"{len(text):,} characters, where {LONGEST:,} are enough"
        return
    visible = " ".join(without_invisible(text).split())
    if visible.isascii() and not has_any(_ROUGH, visible.encode()):
        return
    for what, patterns in _PATTERNS.items():
        is_honest = _HONEST.get(what)
        matches = re.finditer("|".join(patterns), visible, re.IGNORECASE)
        if any(is_honest is None or not is_honest(visible, match.start()) for match in matches):
            yield what


def memory_redactor() -> Redactor:
    """Redactor for texts of later prompts: withholds secrets, personal data and internal names."""
    from redraft.redact.redactor import (  # noqa: PLC0415 (slow to load, and reading memory needs none)
        EVERY_CATEGORY,
        redactor_of_environment,
    )

    return redactor_of_environment(also=EVERY_CATEGORY)


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Redacts the texts of a record, and refuses or cuts out forbidden content."""

    redactor: Redactor = field(default_factory=memory_redactor)
    names: set[str] = field(default_factory=set[str])
    """Names of persons in the texts so far, which are withheld in all texts from then on."""

    @classmethod
    def of(cls, *texts: str) -> Cleaner:
        """A cleaner for a record with these texts: a name in one text is withheld in all."""
        cleaner = cls()
        for text in texts:
            cleaner.redact(text)
        return cleaner

    def redact(self, text: str) -> str:
        """A text without its secrets and invisible characters."""
        return self.redactor.redact(without_invisible(text), self.names).text.strip()

    def refusal(self, text: str) -> str:
        """Why a redacted text can't be stored; empty if it can."""
        what = violation(text)
        return f"it {'has' if len(text) > LONGEST else 'holds'} {what}" if what else ""

    def clean(self, text: str) -> str:
        """Redact a text, withhold its forbidden lines, and cut it to size; otherwise `[withheld]`."""
        lines = self.redact(text).split("\n")
        allowed = "\n".join(WITHHELD if violation(line[:LONGEST]) else line for line in lines)
        bounded = without_middle(allowed, LONGEST - CUT_NOTICE)
        return WITHHELD if not bounded or self.refusal(bounded) else bounded


# --- what a run's own prompt says in full -----------------------------------------------------------------

_FEWEST_NEIGHBORS, _MOST_NEIGHBORS, _NEAR = 2, 8, 200
"""Words around a mark: those that a source must share, those that are compared, and their characters."""
_TELLING = 4
"""Letters that at least one of these words needs, unless it is not ASCII: "of the" stands anywhere."""


def restorer(*sources: str) -> Callable[[str], str]:
    """A function that replaces the marks in remembered text by what `sources` say between the same words.

    The sources are texts of the prompt of this run, such as its criteria: a lesson that ends a mail with
    "Team [withheld: name]" would teach the wrong text. Secrets stay withheld, and so does whatever the words
    around it do not identify.
    """

    @cache
    def originals() -> list[_Original]:
        text = without_invisible("\n\n".join(sources))
        return [
            _Original(mark(kind), text[start:end], *_neighbors(text, start, end))
            for start, end, kind in memory_redactor().findings(text)
            if kind not in SECRET_KINDS
        ]

    def restore(text: str) -> str:
        done, last = "", 0
        for match in MARK.finditer(text):
            done += text[last : match.start()]
            before, after = _neighbors(f"{done}{text[match.start() :]}", len(done), len(done) + len(match[0]))
            shared = [
                (original.shared_words(before, after), original.text)
                for original in originals()
                if original.mark == match[0]
            ]
            most = max((count for count, _ in shared), default=0)
            best = {said for count, said in shared if count == most > 0}
            done += best.pop() if len(best) == 1 else match[0]
            last = match.end()
        return done + text[last:]

    return restore


class _Original(NamedTuple):
    """A text that memory withholds, with the words around it."""

    mark: str
    text: str
    before: list[str]
    """From the nearest to the furthest, like `after`."""
    after: list[str]

    def shared_words(self, before: list[str], after: list[str]) -> int:
        """How many adjacent words are the same as here; 0 if they are too few, or say too little."""
        shared = [*_shared(self.before, before), *_shared(self.after, after)]
        is_telling = any(len(word) >= _TELLING or not word.isascii() for word in shared)
        return len(shared) if is_telling and len(shared) >= _FEWEST_NEIGHBORS else 0


def _neighbors(text: str, start: int, end: int) -> tuple[list[str], list[str]]:
    """The words of the same paragraph before and after a span, each from the nearest on."""
    before = words_of(text[max(0, start - _NEAR) : start].rpartition("\n\n")[2])
    after = words_of(text[end : end + _NEAR].partition("\n\n")[0])
    return before[: -_MOST_NEIGHBORS - 1 : -1], after[:_MOST_NEIGHBORS]


def _shared(words: Sequence[str], others: Sequence[str]) -> list[str]:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False))
    return [word for word, _ in pairs]


# The patterns of published attacks on agents' memories, and content that a person has to vouch for.

_FEW_WORDS = r"(?:\s+\S+){0,4}?\s+"
_RULES = r"(?:instructions?|rules?|guidelines?|polic(?:y|ies)|guardrails?|restrictions?|safeguards?)\b"
_CHECKS = (
    r"(?:tests?|checks?|checking|validations?|verifications?|linters?|linting|assertions?|reviews?|approvals?"
    r"|confirmations?|authentication|authorization|permissions?|safety|security|ci|hooks?)\b"
)
_NOT_OF = r"(?!of\b)"
_AFFIRMED = r"(?<!never )(?<!not )(?<!n't )(?<!n\u2019t )"
_ORDERED = r"(?<!never )(?<!do not )(?<!don't )(?<!don\u2019t )"

_PATTERNS = {
    "an instruction to drop the rules": (
        rf"{_ORDERED}\b(?:ignore|disregard|forget|override|overrule|bypass|circumvent)\b{_FEW_WORDS}{_RULES}",
        r"\b(?:forget|ignore|new|real|hidden)(?:\s+\w+)?\s+system prompt\b",
        r"\b(?:you are now|from now on,? you|developer mode|jailbreak\w*)\b",
        r"\bact as (?:root|admin|an? unrestricted)\b",
        r"\bdo not (?:tell|inform|mention (?:this|it) to) the (?:user|operator)\b",
    ),
    "an instruction to leave out a check": (
        rf"{_AFFIRMED}\b(?:skip|disable|bypass|suppress|deactivate)\b{_FEW_WORDS}{_CHECKS}",
        rf"{_AFFIRMED}\b(?:turn(?:ing)? off|switch(?:ing)? off|comment(?:ing)? out)\b{_FEW_WORDS}{_CHECKS}",
        rf"\bwithout\s+(?:running|asking for|waiting for)\s+(?:\S+\s+)?{_CHECKS}",
    ),
    "an address": (
        r"\b[a-z][a-z0-9+.-]{1,20}://\S",
        r"\bwww\.\S",
        r"\b(?:mailto|javascript|data):\S",
    ),
    "a command": (
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
        r"\bshell\s*=\s*True\b",
        r"\b(?:eval|exec)\s*\(",
        r"\$\([^)]",
        r"\bbase64\s+-d",
        r"\bnc\s+-",
        rf"\bdrop\s+table\s+{_NOT_OF}",
        r"\bdelete\s+from\s+\w+\s*;",
        r">\s*/(?:dev|etc|bin|usr)/",
    ),
}
# The same without look-arounds, for the linear engine, which clears most texts in a hundredth of the time.
_ROUGH = tuple(
    f"(?i:{pattern.replace(_AFFIRMED, '').replace(_ORDERED, '').replace(_NOT_OF, '')})"
    for patterns in _PATTERNS.values()
    for pattern in patterns
)

# --- honest lessons -----------------------------------------------------------------------------------------

_WARNS = re.compile(
    r"\b(?:never|do not|don['\u2019]t|must not|should not|avoid|instead of|rather than)\s+"
    r"(?:(?:us|call|run|execut|invok|pass|sett?)(?:e|ing)?\s+)?[`'\"(]?$",
    re.IGNORECASE,
)
"""The words directly before a command in a warning; any other words may be an order to run it."""
_WARNING_LENGTH = 40
_HOST = r"(?:[a-z0-9-]+\.)+[a-z]{2,}"
_DOCUMENTATION = re.compile(
    rf"https://(?:(?:docs?|developers?|devdocs|manual|reference|wiki)\.{_HOST}|docs\.rs"
    rf"|(?:[a-z0-9-]+\.)*readthedocs\.(?:io|org)"
    rf"|{_HOST}/(?:[\w.-]+/)*(?:docs?|documentation|manual|reference|handbook|wiki|guides?|rfc|specs?))"
    r"(?:[/#][\w./~:#()+-]*)?[)\]>`'\".,;:!]*",
    re.IGNORECASE,
)
"""A page of documentation: over HTTPS, without a user, a port or a query, which could leak data."""
_CONTACT = (
    r"\b(?:fetch|download|install|load|import|open|visit|browse|post|put|send|upload|submit|forward|report"
    r"|request|call|curl|clone|pull|run|execute|obey|follow|apply|copy|paste|log ?in|sign ?in|register)\b"
)
"""Verbs that make an agent act on a page, rather than name the source of a fact."""
_CONTACTS = re.compile(_CONTACT, re.IGNORECASE)
_CONTACTS_IT = re.compile(
    rf"(?:{_CONTACT}|\bdo\b)[^.;]{{0,40}}\b(?:it|its|there|pages?|links?|instructions?|steps|says)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.;!?]\s|[(,]\s*(?=(?:see|cf|as|per|docs?)\b)", re.IGNORECASE)


def _is_warning(text: str, at: int) -> bool:
    """Whether the text warns of the command at a position."""
    return _WARNS.search(text[max(0, at - _WARNING_LENGTH) : at]) is not None


def _is_documentation(text: str, at: int) -> bool:
    """Whether the address at a position is a page of documentation that the text only refers to."""
    page, _, after = text[at:].partition(" ")
    if not _DOCUMENTATION.fullmatch(page):
        return False
    clause = _CLAUSE.split(text[:at])[-1]
    return not _CONTACTS.search(clause) and not _CONTACTS_IT.search(after)


_HONEST = {"a command": _is_warning, "an address": _is_documentation}
