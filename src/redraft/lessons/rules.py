"""Tactical rules, which last four weeks, and permanent ones."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from redraft._validation import nearest
from redraft.errors import LessonFileError
from redraft.lessons.files import locked, read_text, replace_file, reporting
from redraft.lessons.folder import RULES, agent_path
from redraft.lessons.markdown import lines_of, one_line
from redraft.lessons.safety import Cleaner, violation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

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
    if why := violation(line):
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


HEADINGS: dict[Standing, str] = {
    "permanent": "Permanent",
    "tactical": "Tactical",
    "proposed": "Proposed as permanent",
}
_STANDINGS: dict[str, Standing] = {heading.casefold(): standing for standing, heading in HEADINGS.items()}
_SAYS = {
    "permanent": "They stay until somebody takes them out.",
    "tactical": "They come and go by themselves: at most ten, four weeks each.",
    "proposed": "Move what should stay under the heading Permanent, and delete the rest.",
}
_HEADING = re.compile(r"##\s+(.*?)\s*#*\s*")
_ITEM = re.compile(r"[-*]\s+(?:\[[ x]\]\s+)?(.*)")
_DATED = re.compile(r"(\d[\d-]{5,}):?\s+(.*)")
_SOURCED = re.compile(r"(.*?)\s*\(from ([^()\s]+)\)\s*\.?")


@dataclass(frozen=True, slots=True)
class _Item:
    """Hold an item of a list under one of the headings: its lines, from and up to, and its rule."""

    start: int
    end: int
    rule: Rule
    problem: str = ""


class RulesFile:
    """Read the rules of a text, and change it where rules come and go; all other lines stay as they are.

    `today` is the day of a rule without one.
    """

    def __init__(self, text: str, agent: str, today: date) -> None:
        self._lines = lines_of(text.rstrip("\n")) if text.strip() else _empty(agent)
        self._today = today

    @property
    def text(self) -> str:
        """The file as it is now."""
        return "\n".join(self._lines) + "\n"

    def rules(self, standing: Standing | None = None) -> list[Rule]:
        """Return the rules in their order, or those of one heading."""
        rules = [item.rule for item in self._items() if not item.problem]
        return [rule for rule in rules if standing in (None, rule.standing)]

    def broken(self) -> list[tuple[int, str]]:
        """Return the number of each line that is no rule, with what is wrong."""
        return [(item.start + 1, item.problem) for item in self._items() if item.problem]

    def add(self, rule: Rule) -> None:
        """Put a rule behind the last one of its heading."""
        line = _line(rule)
        last = [item.end for item in self._items() if item.rule.standing == rule.standing]
        if last:
            self._lines.insert(last[-1], line)
            return
        wanted = HEADINGS[rule.standing]
        at = next((n for n, text in enumerate(self._lines) if _standing(text) == rule.standing), None)
        if at is None:
            self._lines += ["", f"## {wanted}", "", _SAYS[rule.standing], "", line]
            return
        end = next(
            (n for n in range(at + 1, len(self._lines)) if self._lines[n].startswith("#")), len(self._lines)
        )
        while not self._lines[end - 1].strip():
            end -= 1
        self._lines[end:end] = ["", line]

    def remove(self, rule: Rule) -> None:
        """Take out the lines of a rule."""
        item = next(item for item in self._items() if item.rule == rule and not item.problem)
        del self._lines[item.start : item.end]

    def move(self, rule: Rule, standing: Standing) -> Rule:
        """Move a rule under another heading."""
        moved = replace(rule, standing=standing)
        self.remove(rule)
        self.add(moved)
        return moved

    def date_all(self) -> None:
        """Write the day of today into the lines of tactical rules that have none: from now on they age."""
        for item in reversed(list(self._items())):
            said = self._lines[item.start]
            if item.rule.standing == "tactical" and not item.problem and not _has_day(said):
                self._lines[item.start : item.end] = [_line(item.rule)]

    def _items(self) -> Iterator[_Item]:
        standing: Standing | None = None
        at = 0
        while at < len(self._lines):
            line, start = self._lines[at], at
            at += 1
            if line.startswith("#"):
                standing = _standing(line)
            elif standing is not None and (found := _ITEM.fullmatch(line)):
                while at < len(self._lines) and re.match(r"\s+\S", self._lines[at]):
                    at += 1  # a long rule on several lines
                said = one_line(" ".join([found[1], *self._lines[start + 1 : at]]))
                yield _Item(start, at, *self._read(said, standing))

    def _read(self, said: str, standing: Standing) -> tuple[Rule, str]:
        day: date | None = None if standing == "permanent" else self._today
        source = ""
        if sourced := _SOURCED.fullmatch(said):
            said, source = sourced.groups()
        if dated := _DATED.fullmatch(said):
            said = dated[2]
            try:
                day = date.fromisoformat(dated[1])
            except ValueError:
                return Rule(said, None, source, standing), f"{dated[1]!r} is no day (YYYY-MM-DD)."
        # What a person made permanent is that person's sentence.
        text = rule_text(said) or (said if standing == "permanent" else "")
        problem = "" if text else f"{said!r} does not have the form IF ... THEN ..."
        return Rule(text or said, day, source, standing), problem


def _standing(line: str) -> Standing | None:
    found = _HEADING.fullmatch(line)
    return _STANDINGS.get(found[1].casefold()) if found else None


def _has_day(line: str) -> bool:
    found = _ITEM.fullmatch(line)
    return found is not None and _DATED.fullmatch(found[1]) is not None


def _line(rule: Rule) -> str:
    day = f"{rule.day}: " if rule.day else ""
    source = f" (from {rule.source})" if rule.source else ""
    return f"- {day}{one_line(rule.text)}{source}"


def _empty(agent: str) -> list[str]:
    lines = [f"# Rules of {one_line(agent)}"]
    for standing, heading in HEADINGS.items():
        lines += ["", f"## {heading}", "", _SAYS[standing]]
    return lines


def unknown(text: str, rules: list[Rule]) -> str:
    """Say that there is no such rule, and which are near."""
    return f"There is no rule {text!r}; {nearest(text, [rule.text for rule in rules])}"


MOST_RULES = 10
MOST_PROPOSED = 10
RULE_LIFE = timedelta(weeks=4)


@dataclass(frozen=True, slots=True)
class Added:
    """Hold a rule that was added, or the one that was there already; or say why it was refused."""

    rule: Rule | None
    is_new: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """Hold the rules whose time was over: those proposed to a person, and those that went."""

    proposed: tuple[Rule, ...] = ()
    dropped: tuple[Rule, ...] = ()


class Rules:
    """Keep the rules of one agent in `<path>/reflections/<agent>/rules.md`, which a person may edit.

    At most ten tactical ones; the first in goes first, and each goes after four weeks. Permanent ones are
    what a person moved under that heading. Every write is whole or not there; many processes may write at
    once. `now` tells the day. Raises `StoreError` where the file can't be read or written. Reflexion
    Protocol, section 6.
    """

    def __init__(self, path: Path, agent: str, *, now: Callable[[], date] = date.today) -> None:
        self.agent = agent
        self._folder = agent_path(path, agent)
        self._path = self._folder / RULES
        self._now = now

    def permanent(self) -> list[Rule]:
        """Return the rules that a person made permanent."""
        return self._read().rules("permanent")

    def active(self) -> list[Rule]:
        """Return what to put before the agent: the permanent rules, then the tactical ones, oldest first."""
        file = self._read()
        lasting = [rule for rule in file.rules("tactical") if not self._is_over(rule)]
        return [*file.rules("permanent"), *lasting]

    def proposed(self) -> list[Rule]:
        """Return the rules that wait for a person to make them permanent."""
        return self._read().rules("proposed")

    def due(self) -> list[Rule]:
        """Return the tactical rules whose time is over, and on which `expire` will decide."""
        return [rule for rule in self._read().rules("tactical") if self._is_over(rule)]

    def broken(self) -> list[LessonFileError]:
        """Return what is wrong with lines that are no rules, by file and line; they are left alone."""
        file = f"{self._folder.name}/{RULES}"
        return [LessonFileError(why, file=file, line=line) for line, why in self._read().broken()]

    def add(self, text: str, source: str = "", *, is_needed: Callable[[Rule], bool] | None = None) -> Added:
        """Add a tactical rule that the lesson `source` taught; secrets in it are withheld.

        A vague one is refused, and one that is there already (also in other words) counts once. What has to
        make room is proposed as permanent if it `is_needed`.
        """
        cleaner = Cleaner()
        clean = cleaner.redact(text)
        if why := refusal(clean) or cleaner.refusal(clean):
            return Added(None, why=why)
        rule = Rule(rule_text(clean), self._today(), source)
        with self._changing() as file:
            tactical = [one for one in file.rules("tactical") if not self._is_over(one)]
            for known in (*file.rules("permanent"), *tactical):
                if is_alike(known.text, rule.text):
                    return Added(known)
            for oldest in tactical[: max(0, len(tactical) + 1 - MOST_RULES)]:
                _end(file, oldest, is_needed)
            file.add(rule)
        return Added(rule, is_new=True)

    def expire(self, is_needed: Callable[[Rule], bool]) -> Expired:
        """Take out the rules whose time is over; those still needed are proposed to a person as permanent."""
        proposed: list[Rule] = []
        dropped: list[Rule] = []
        with self._changing() as file:
            file.date_all()
            for rule in file.rules("tactical"):
                if self._is_over(rule):
                    (proposed if _end(file, rule, is_needed) else dropped).append(rule)
        return Expired(tuple(proposed), tuple(dropped))

    def make_permanent(self, text: str) -> Rule:
        """Make a proposed or tactical rule permanent; raises `LessonFileError` where there is none such."""
        with self._changing() as file:
            open_ones = [*file.rules("proposed"), *file.rules("tactical")]
            wanted = rule_text(text) or text
            for rule in open_ones:
                if rule.text == wanted:
                    return file.move(rule, "permanent")
            raise LessonFileError(unknown(text, open_ones), file=f"{self._folder.name}/{RULES}")

    def drop(self, source: str) -> list[Rule]:
        """Take out the rules that a lesson taught, but for permanent ones, and return them."""
        with self._changing() as file:
            taught = [rule for rule in file.rules() if rule.source == source and rule.standing != "permanent"]
            for rule in taught:
                file.remove(rule)
        return taught

    def _today(self) -> date:
        now = self._now()
        return now.date() if isinstance(now, datetime) else now

    def _is_over(self, rule: Rule) -> bool:
        return rule.day is not None and self._today() >= rule.day + RULE_LIFE

    def _read(self) -> RulesFile:
        is_there = os.path.lexists(self._path)
        text = read_text(self._path, f"{self._folder.name}/{RULES}", of="rules") if is_there else ""
        return RulesFile(text, self.agent, self._today())

    @contextmanager
    def _changing(self) -> Generator[RulesFile]:
        """Hold the file to change it, and write it if it was changed."""
        with locked(self._folder):
            file = self._read()
            before = file.text
            yield file
            if file.text != before:
                with reporting(self._path):
                    replace_file(self._path, file.text.encode())


def _end(file: RulesFile, rule: Rule, is_needed: Callable[[Rule], bool] | None) -> bool:
    """Take a tactical rule out, and say whether it was proposed as permanent."""
    if is_needed is None or not is_needed(rule):
        file.remove(rule)
        return False
    waiting = file.rules("proposed")
    if any(is_alike(one.text, rule.text) for one in (*waiting, *file.rules("permanent"))):
        file.remove(rule)
        return True
    for oldest in waiting[: max(0, len(waiting) + 1 - MOST_PROPOSED)]:
        file.remove(oldest)
    file.move(rule, "proposed")
    return True
