"""Rule: one sentence that says when to do what, and what makes it too vague to be one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Literal

from redraft.lessons.document import one_line
from redraft.lessons.trust import refused

Standing = Literal["tactical", "proposed", "permanent"]

LONGEST_RULE = 300
"""Characters of a rule: it is one sentence."""
_LONGEST_READ = 2_000
ALIKE = 0.75
"""The share of words that two rules have in common when they are one."""

_RULE = re.compile(r"if\s+(?P<when>.+?)[,;:]?\s+then\b[,:]?\s+(?P<what>.+?)[.!\s]*", re.IGNORECASE)
_TWO_SENTENCES = re.compile(r"[.!?]\s+[A-Z]")
# What names one thing: `quoted`, with a digit, with_underscore, camelCase, ALLCAPS, a.path/or.name.
_NAMED = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<!\w)'[^']{3,}'(?!\w)|\b\w*\d\w*\b|\b\w+(?:_\w+)+\b|\b[a-z]+[A-Z]\w*|\b[A-Z]{2,}\w*\b"
    r"|\b\w+(?:[./]\w+)+\b"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_NOT = re.compile(
    r"\b(?:not|never|no|without|cannot|avoid|don't|doesn't|isn't|can't|unless)\b", re.IGNORECASE
)


def _each(words: str) -> frozenset[str]:
    return frozenset(words.split())


_EMPTY = _each(
    """
    about after again all and any are been before but can could does each else ensure even every for from get
    goes going had has have how into involves its just like make makes may might more most much must occur
    occurs once only other our out over should some such sure than that the their them then there these they
    this those through too under until use used using very was way well were what when where which while who
    why will with would you your
    """
)
# Words that fit every task, and so say nothing of one.
_VAGUE = _each(
    """
    accurate accurately action adequate agent always answer anything approach appropriate appropriately
    approaches asks attention aware bad best better careful carefully case cautious challenging check clear
    clearly complete completely complex complicated consider consideration correct correctly difficult
    diligent double effort encounter encountered encounters error errors everything extra fail failed fails
    failure failures focus good great handle handled happen happens hard help helpful high important improve
    incorrect information input issue issues job keep kind lesson look mindful mistake mistakes necessary
    need needed needs output outputs patient pay plan possible possibly problem problems problematic proper
    properly quality question reflect remember response result results review right situation situations
    slow slowly solve something step steps strategy stuck succeed success task tasks tested thing things
    think thorough thoroughly time tool tools tried try trying unclear understand unexpected unsure verify
    work working works wrong
    """
)
_FEWEST = 2
"""How many words that say something each half needs, where nothing in it has a name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Hold one rule of an agent: its text, the day from which it counts, and the lesson that it is from.

    A permanent one may have no day, and be any sentence: a person wrote it, or moved it there.
    """

    text: str
    day: date | None = None
    source: str = ""
    standing: Standing = "tactical"


def rule_text(text: str) -> str:
    """Return a rule in the form `IF ... THEN ...`, on one line; empty for what has no such form."""
    found = _matched(one_line(text))
    return "" if found is None else f"IF {found['when']} THEN {found['what']}."


def refusal(text: str) -> str:
    """Say why a text can't be a rule; empty where it can.

    It has to be one sentence of the form `IF ... THEN ...`, and each half has to say something that does not
    fit every task: a name (`next_cursor`, E4031, JSON) or two words of its own.
    """
    line = one_line(text)
    found = _matched(line)
    if found is None:
        return "it does not have the form IF ... THEN ..."
    if why := refused(line):
        return f"it holds {why}"
    if len(line) > LONGEST_RULE or _TWO_SENTENCES.search(line):
        return f"it is more than one sentence of at most {LONGEST_RULE} characters"
    return _vagueness(found)


def _matched(line: str) -> re.Match[str] | None:
    # The pattern takes time in the square of the length.
    return _RULE.fullmatch(line) if len(line) <= _LONGEST_READ else None


def _vagueness(found: re.Match[str]) -> str:
    if not _says_something(found["when"]):
        return "it is vague: its condition names nothing, and fits any task"
    if not _says_something(found["what"]):
        return "it is vague: it does not say what to do with what"
    return ""


def is_alike(one: str, other: str) -> bool:
    """Say whether two rules ask for the same: of the same names, as a do or a don't, in like words."""
    if _names(one) != _names(other) or bool(_NOT.search(one)) != bool(_NOT.search(other)):
        return False
    words, others = _words(one), _words(other)
    if not words or not others:
        return one.casefold() == other.casefold()
    return len(words & others) / len(words | others) >= ALIKE


def _says_something(half: str) -> bool:
    return bool(_NAMED.search(half)) or len(_own_words(half)) >= _FEWEST


def _own_words(text: str) -> set[str]:
    return {word for word in map(str.casefold, _WORD.findall(text)) if word not in _EMPTY | _VAGUE}


def _names(text: str) -> set[str]:
    return {name.strip("`\"'").casefold() for name in _NAMED.findall(_halves(text))}


def _words(text: str) -> set[str]:
    words = (word.casefold() for word in _WORD.findall(_halves(text)))
    return {word.removesuffix("s") for word in words if word not in _EMPTY}


def _halves(text: str) -> str:
    found = _matched(one_line(text))
    return text if found is None else f"{found['when']} {found['what']}"
