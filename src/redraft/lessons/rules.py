"""The rules of an agent: tactical ones, which expire after four weeks, and permanent ones."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal

from redraft._validation import nearest
from redraft.errors import ConfigError, LessonFileError
from redraft.lessons.files import locked, read_text, replace_file, reporting
from redraft.lessons.folder import RULES, agent_path
from redraft.lessons.markdown import heading_in, lines_of, one_line
from redraft.lessons.safety import Cleaner, violation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

RuleStatus = Literal["tactical", "proposed", "permanent"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of an agent, the day it was learned, and the id of the lesson (`source`) that taught it.

    A permanent rule may be any sentence and have no day, since a person put it there.
    """

    text: str
    day: date | None = None
    source: str = ""
    status: RuleStatus = "tactical"


MOST_RULES = 10
MOST_PROPOSED = 10
RULE_LIFE = timedelta(weeks=4)


class Rules:
    """The rules of one agent, in the file `<path>/reflections/<agent>/rules.md`, which a person may edit.

    There are at most ten tactical rules, of which the oldest makes room for the newest; each expires after
    four weeks. Permanent rules are those that a person moved under that heading. Writes are atomic, and many
    processes may write at once. `today` returns the day. Raises `StoreError` if the file can't be read or
    written.
    """

    def __init__(self, path: Path, agent: str, *, today: Callable[[], date] = date.today) -> None:
        self.agent = agent
        self._folder = agent_path(path, agent)
        self._path = self._folder / RULES
        self._today = today

    def permanent(self) -> list[Rule]:
        """Return the permanent rules."""
        return self._read().rules("permanent")

    def active(self) -> list[Rule]:
        """Return the rules in force: the permanent ones, then the tactical ones, oldest first."""
        file = self._read()
        unexpired = [rule for rule in file.rules("tactical") if not self._has_expired(rule)]
        return [*file.rules("permanent"), *unexpired]

    def proposed(self) -> list[Rule]:
        """Return the rules proposed as permanent."""
        return self._read().rules("proposed")

    def due(self) -> list[Rule]:
        """Return the expired tactical rules, which `expire` will remove."""
        return [rule for rule in self._read().rules("tactical") if self._has_expired(rule)]

    def broken(self) -> list[LessonFileError]:
        """Return an error for each line that is not a rule."""
        file = f"{self._folder.name}/{RULES}"
        return [LessonFileError(why, file=file, line=line) for line, why in self._read().broken()]

    def add(self, text: str, source: str = "", *, is_needed: Callable[[Rule], bool] | None = None) -> Rule:
        """Add a tactical rule that the lesson `source` taught, with its secrets withheld.

        Returns the known rule instead if there is one, even in other words. Rules that make room for it are
        proposed as permanent if they are needed. Raises `ConfigError` for a text that can't be a rule.
        """
        cleaner = Cleaner()
        clean = cleaner.redact(text)
        if why := refusal(clean) or cleaner.refusal(clean):
            raise ConfigError(f"This can't be a rule: {why}.")
        rule = Rule(rule_text(clean), self._today(), source)
        with self._editing() as file:
            tactical = [one for one in file.rules("tactical") if not self._has_expired(one)]
            for known in (*file.rules("permanent"), *tactical):
                if is_alike(known.text, rule.text):
                    return known
            for oldest in tactical[: max(0, len(tactical) + 1 - MOST_RULES)]:
                _end(file, oldest, is_needed)
            file.add(rule)
        return rule

    def expire(self, is_needed: Callable[[Rule], bool]) -> None:
        """Remove expired rules, and propose those still needed as permanent."""
        with self._editing() as file:
            file.date_all()
            for rule in file.rules("tactical"):
                if self._has_expired(rule):
                    _end(file, rule, is_needed)

    def add_permanent(self, text: str) -> bool:
        """Add a rule that a person vouches for, as it is; return whether it is new."""
        rule = Rule(one_line(text), status="permanent")
        with self._editing() as file:
            is_new = all(known.text != rule.text for known in file.rules("permanent"))
            if is_new:
                file.add(rule)
        return is_new

    def make_permanent(self, text: str) -> Rule:
        """Make a proposed or tactical rule permanent; raises `LessonFileError` if there is no such rule."""
        with self._editing() as file:
            candidates = [*file.rules("proposed"), *file.rules("tactical")]
            wanted = rule_text(text) or text
            for rule in candidates:
                if rule.text == wanted:
                    return file.move(rule, "permanent")
            near = nearest(text, [rule.text for rule in candidates])
            raise LessonFileError(f"There is no rule {text!r}; {near}", file=f"{self._folder.name}/{RULES}")

    def drop(self, source: str) -> list[Rule]:
        """Remove the rules that a lesson taught, except permanent ones, and return them."""
        with self._editing() as file:
            taught = [rule for rule in file.rules() if rule.source == source and rule.status != "permanent"]
            for rule in taught:
                file.remove(rule)
        return taught

    def erase(self, is_wanted: Callable[[str, str], bool], *, check: bool = False) -> int:
        """Remove each rule for which `is_wanted(text, source)`, and other lines with wanted texts.

        Permanent rules are no exception. Returns how many rules and lines there were; with `check`, nothing
        is changed.
        """
        if not os.path.lexists(self._path):
            return 0
        if check:
            return self._read().erase(is_wanted)
        with self._editing() as file:
            return file.erase(is_wanted)

    def _has_expired(self, rule: Rule) -> bool:
        return rule.day is not None and self._today() >= rule.day + RULE_LIFE

    def _read(self) -> RulesFile:
        is_there = os.path.lexists(self._path)
        text = read_text(self._path, f"{self._folder.name}/{RULES}", of="rules") if is_there else ""
        return RulesFile(text, self.agent, self._today())

    @contextmanager
    def _editing(self) -> Generator[RulesFile]:
        """Lock the file, and write it if it is changed."""
        with locked(self._folder):
            file = self._read()
            before = file.text
            yield file
            if file.text != before:
                with reporting(self._path):
                    replace_file(self._path, file.text.encode())


def _end(file: RulesFile, rule: Rule, is_needed: Callable[[Rule], bool] | None) -> None:
    """Remove a tactical rule, or propose it as permanent if it is needed."""
    proposed = file.rules("proposed")
    is_known = any(is_alike(one.text, rule.text) for one in (*proposed, *file.rules("permanent")))
    if is_known or is_needed is None or not is_needed(rule):
        file.remove(rule)
        return
    for oldest in proposed[: max(0, len(proposed) + 1 - MOST_PROPOSED)]:
        file.remove(oldest)
    file.move(rule, "proposed")


# --- the file ---------------------------------------------------------------------------------------------

HEADINGS: dict[RuleStatus, str] = {
    "permanent": "Permanent",
    "tactical": "Tactical",
    "proposed": "Proposed as permanent",
}
_STATUSES: dict[str, RuleStatus] = {heading.casefold(): status for status, heading in HEADINGS.items()}
_SAYS = {
    "permanent": "They stay until somebody removes them.",
    "tactical": "They are learned and expire: at most ten, for four weeks each.",
    "proposed": "Move those to keep under Permanent, and delete the rest.",
}
_ITEM = re.compile(r"[-*]\s+(?:\[[ x]\]\s+)?(.*)")
_DATED = re.compile(r"(\d[\d-]{5,}):?\s+(.*)")
_SOURCED = re.compile(r"(.*?)\s*\(from ([^()\s]+)\)\s*\.?")


@dataclass(frozen=True, slots=True)
class _Item:
    """A list item under a heading: its lines (`end` exclusive), its rule, and what is wrong with it."""

    start: int
    end: int
    rule: Rule
    problem: str = ""


class RulesFile:
    """The rules in a text, which is changed without touching other lines.

    A tactical or proposed rule without a day gets the day `today`.
    """

    def __init__(self, text: str, agent: str, today: date) -> None:
        self._lines = lines_of(text.rstrip("\n")) if text.strip() else _empty(agent)
        self._today = today

    @property
    def text(self) -> str:
        """The text, with all changes."""
        return "\n".join(self._lines) + "\n"

    def rules(self, status: RuleStatus | None = None) -> list[Rule]:
        """Return the rules in order, or those under one heading."""
        rules = [item.rule for item in self._items() if not item.problem]
        return [rule for rule in rules if status in (None, rule.status)]

    def broken(self) -> list[tuple[int, str]]:
        """Return the number of each line that is not a rule, and what is wrong with it."""
        return [(item.start + 1, item.problem) for item in self._items() if item.problem]

    def add(self, rule: Rule) -> None:
        """Add a rule after the last one under its heading."""
        line = _line(rule)
        last = [item.end for item in self._items() if item.rule.status == rule.status]
        if last:
            self._lines.insert(last[-1], line)
            return
        wanted = HEADINGS[rule.status]
        at = next((n for n, text in enumerate(self._lines) if _status(text) == rule.status), None)
        if at is None:
            self._lines += ["", f"## {wanted}", "", _SAYS[rule.status], "", line]
            return
        below = next(
            (n for n in range(at + 1, len(self._lines)) if self._lines[n].startswith("#")), len(self._lines)
        )
        end = below
        while not self._lines[end - 1].strip():
            end -= 1
        # Empty lines that removed rules left are used again; one stays before the next heading.
        self._lines[end : max(end, below - 1)] = ["", line]

    def remove(self, rule: Rule) -> None:
        """Remove a rule."""
        item = next(item for item in self._items() if item.rule == rule and not item.problem)
        del self._lines[item.start : item.end]

    def erase(self, is_wanted: Callable[[str, str], bool]) -> int:
        """Remove each rule for which `is_wanted(text, source)`, and other lines with wanted texts."""
        wanted = [item for item in self._items() if is_wanted(item.rule.text, item.rule.source)]
        for item in reversed(wanted):
            del self._lines[item.start : item.end]
        others = [line for line in self._lines if not is_wanted(line, "")]
        count = len(wanted) + len(self._lines) - len(others)
        self._lines = others
        return count

    def move(self, rule: Rule, status: RuleStatus) -> Rule:
        """Move a rule under another heading."""
        moved = replace(rule, status=status)
        self.remove(rule)
        self.add(moved)
        return moved

    def date_all(self) -> None:
        """Date tactical rules without a day, so that they expire."""
        for item in reversed(list(self._items())):
            first = self._lines[item.start]
            if item.rule.status == "tactical" and not item.problem and not _has_day(first):
                self._lines[item.start : item.end] = [_line(item.rule)]

    def _items(self) -> Iterator[_Item]:
        status: RuleStatus | None = None
        at = 0
        while at < len(self._lines):
            line, start = self._lines[at], at
            at += 1
            if line.startswith("#"):
                status = _status(line)
            elif status is not None and (found := _ITEM.fullmatch(line)):
                while at < len(self._lines) and re.match(r"\s+\S", self._lines[at]):
                    at += 1  # continuation lines
                text = one_line(" ".join([found[1], *self._lines[start + 1 : at]]))
                yield _Item(start, at, *self._read(text, status))

    def _read(self, text: str, status: RuleStatus) -> tuple[Rule, str]:
        day: date | None = None if status == "permanent" else self._today
        source = ""
        if sourced := _SOURCED.fullmatch(text):
            text, source = sourced.groups()
        if dated := _DATED.fullmatch(text):
            text = dated[2]
            try:
                day = date.fromisoformat(dated[1])
            except ValueError:
                return Rule(text, None, source, status), f"{dated[1]!r} is not a day (YYYY-MM-DD)."
        # A permanent rule may be any sentence, since a person put it there.
        rule = rule_text(text) or (text if status == "permanent" else "")
        problem = "" if rule else f"{text!r} is not a rule: {_FORMLESS}."
        return Rule(rule or text, day, source, status), problem


def _status(line: str) -> RuleStatus | None:
    return _STATUSES.get(heading_in(line))


def _has_day(line: str) -> bool:
    found = _ITEM.fullmatch(line)
    return found is not None and _DATED.fullmatch(found[1]) is not None


def _line(rule: Rule) -> str:
    day = f"{rule.day}: " if rule.day else ""
    source = f" (from {rule.source})" if rule.source else ""
    return f"- {day}{one_line(rule.text)}{source}"


def _empty(agent: str) -> list[str]:
    lines = [f"# Rules of {one_line(agent)}"]
    for status, heading in HEADINGS.items():
        lines += ["", f"## {heading}", "", _SAYS[status]]
    return lines


# --- what a rule says -------------------------------------------------------------------------------------

LONGEST_RULE = 300
"""Characters of a rule, which is one sentence."""
_LONGEST_READ = 2_000
ALIKE = 0.75
"""The share of words in common from which two rules count as one."""

_FORMLESS = "it is neither IF ... THEN ... nor an instruction"
_RULE = re.compile(
    r"(?:if|when(?:ever)?)\s+(?P<when>.+?)[,;:]?\s+then\b[,:]?\s+(?P<what>.+?)[.!\s]*", re.IGNORECASE
)
# What stands before an instruction: "I should follow this rule: ...", "The agent must always ...".
_PREAMBLE = re.compile(
    r"(?:i should follow this rule|rule|principle|lesson)\s*:\s*"
    r"|(?:i|we|you|one|the (?:agent|assistant|model))\s+(?:should|must|need(?:s)? to|ha(?:ve|s) to)\s+",
    re.IGNORECASE,
)
_VERBS = "|".join(
    re.findall(
        r"\w+",
        """
    abort accept add allow apply ask assert assign assume avoid await begin book bound break build cache
    call cancel cast check choose close collect combine commit compare compute confirm consider convert
    copy count create declare decode define delete deploy describe download drop emit encode end ensure
    escape exclude expect explain export extract fetch fill filter find finish fix flush follow format
    generate give group guard handle hold ignore import include increase index initialize insert inspect
    join keep leave limit list load lock log look lower make map mark match measure merge mock move name
    normalize note open order parse pass pin prefer print process produce provide put query quote raise
    read record refuse reject release reload remove rename repeat replace reply report request require
    reset resolve restore retry return reuse round run save search select send separate serialize set show
    skip sort specify split start state stop store strip summarize switch take test think treat trim
    truncate try turn type unescape update use validate verify wait wrap write
    """,
    )
)
"""Verbs with which an instruction may begin: the first word alone tells it from a fact."""
_TOLD = (
    r"(?:(?:please\s+)?(?:always|never|do not|don['\u2019]t)\s+"
    rf"|(?:please\s+)?(?:{_VERBS})\s+(?!(?:of|errors?|is|are|has|does|lacks?|found|timed)\b))\S.*?"
)
_INSTRUCTION = re.compile(rf"(?P<rule>{_TOLD})[.!\s]*", re.IGNORECASE)
_WITHOUT_THEN = re.compile(
    rf"(?:if|when(?:ever)?)\s+(?P<when>.+?),\s+(?P<what>{_TOLD})[.!\s]*", re.IGNORECASE
)
# "Order 4711 was refused": what happened once, although its first word may be a verb.
_HAPPENED = re.compile(
    r"(?<!that )(?<!which )(?<!what )(?<!who )\b(?:was|were|had|did|failed)\b", re.IGNORECASE
)
_TWO_SENTENCES = re.compile(r"[.!?]\s+[A-Z]")
# What names one thing: `quoted`, with a digit, with_underscore, camelCase, ALLCAPS, a.path/or.name.
_NAMED = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<!\w)'[^']{3,}'(?!\w)|\b\w*\d\w*\b|\b\w+(?:_\w+)+\b|\b[a-z]+[A-Z]\w*|\b[A-Z]{2,}\w*\b"
    r"|\b\w+(?:[./]\w+)+\b|\b\w+\(\)"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_NOT = re.compile(
    r"\b(?:not|never|no|without|cannot|avoid|don't|doesn't|isn't|can't|unless)\b", re.IGNORECASE
)


_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    about after again all and any are been before but can could does each else ensure even every for from get
    goes going had has have how into involves its just like make makes may might more most much must occur
    occurs once only other our out over should some such sure than that the their them then there these they
    this those through too under until use used using very was way well were what when where which while who
    why will with would you your
    """,
    )
)
# Words that fit any task.
_VAGUE = frozenset(
    re.findall(
        r"\w+",
        """
    accurate accurately action adequate agent always answer anything approach approaches appropriate
    appropriately asks attention aware bad best better careful carefully case cases cautious challenging
    check clear clearly complete completely complex complicated consider consideration correct correctly
    detail details difficult diligent double effort encounter encountered encounters error errors
    everything extra fail failed fails failure failures focus good great handle handled happen happens
    hard help helpful high important improve incorrect information input instruction instructions issue
    issues job keep kind lesson look mindful mistake mistakes necessary need needed needs output outputs
    patient pay plan possible possibly problem problematic problems proper properly quality question
    reflect remember requirement requirements response result results review right situation situations
    slow slowly solve something step steps strategy stuck succeed success task tasks tested thing things
    think thorough thoroughly time tool tools tried try trying unclear understand unexpected unsure verify
    work working works wrong
    """,
    )
)
_FEWEST = 2
"""Specific words that each half of a rule needs if it has no name."""
_FEWEST_IN_INSTRUCTION = 3


def rule_text(text: str) -> str:
    """Return a rule on one line, as `IF ... THEN ...` or as the instruction that it is.

    "If a page is empty, stop." becomes `IF a page is empty THEN stop.`, and "I should always validate the
    status." becomes "Always validate the status." Returns an empty string for any other sentence.
    """
    line = one_line(text)
    line = line[found.end() :] if (found := _PREAMBLE.match(line)) else line
    if (found := _match(line)) is not None:
        return f"IF {found['when']} THEN {found['what']}."
    found = _INSTRUCTION.fullmatch(line) if len(line) <= _LONGEST_READ else None
    if found is None or _HAPPENED.search(line):
        return ""
    return f"{found['rule'][0].upper()}{found['rule'][1:]}."


def refusal(text: str) -> str:
    """Return why a text can't be a rule, or an empty string if it can.

    A rule is one sentence, `IF ... THEN ...` or a plain instruction. Each half of the one, and the whole of
    the other, must be specific: it has a name (`next_cursor`, E4031, JSON), or words that don't fit every
    task, two in a half and three in an instruction.
    """
    line = one_line(text)
    rule = rule_text(line)
    if not rule:
        return _FORMLESS
    if why := violation(line):
        return f"it holds {why}"
    if len(line) > LONGEST_RULE or _TWO_SENTENCES.search(line):
        return f"it is more than one sentence of at most {LONGEST_RULE} characters"
    found = _match(rule)
    if found is not None:
        return prediction(rule) or _vague_half(found)
    is_vague = not _NAMED.search(rule) and len(_specific_words(rule)) < _FEWEST_IN_INSTRUCTION
    return "it is vague: it does not say what to do with what" if is_vague else ""


_VALUE = re.compile(r"`[^`]+`|\"[^\"]+\"|(?<!\w)'[^']{3,}'(?!\w)|(?<!\w)\d[\d.,:/-]*\d(?!\w)")
_OF_THE_TASK = re.compile(r"(?:the|this|a) task (?:is|was|asks|requires|says|wants)\b", re.IGNORECASE)


def one_off(rule: str, task: str) -> str:
    """Return why a rule is about one task alone, by its description; an empty string if it is not.

    It then names a value of the task (a number, a quotation), or restates the task as its condition.
    """
    value = next((one for one in _VALUE.findall(rule) if one.strip("`\"'") in task), "")
    if value:
        return f"it is about one task: {value.strip('`')!r} is a value of it"
    found = _match(one_line(rule))
    if found is None or not _OF_THE_TASK.match(found["when"]):
        return ""
    restates = _specific_words(found["when"]) <= _specific_words(task)
    return "it is about one task: its condition restates that" if restates else ""


def _match(line: str) -> re.Match[str] | None:
    if len(line) > _LONGEST_READ:  # the patterns take quadratic time
        return None
    return _RULE.fullmatch(line) or _WITHOUT_THEN.fullmatch(line)


# "THEN the task will fail", but not "THEN the request must have a cursor".
_PREDICTION = re.compile(
    r"(?!.*\b(?:must|should|has to|have to|needs? to)\b)"
    r"(?:the|this|that|it|its|they|there|an?|you|your)\b.*\b(?:will|would|won't|may|might|cannot|can't|fails?)\b",
    re.IGNORECASE,
)


# These go back to the model, and into recorded prompts: changing them takes new recordings.
def prediction(rule: str) -> str:
    """Return why a rule that says what will happen is none; an empty string if it says what to do."""
    found = _match(one_line(rule))
    predicts = found is not None and _PREDICTION.match(found["what"])
    return "it says what happens, not what to do" if predicts else ""


def _vague_half(found: re.Match[str]) -> str:
    if not _is_specific(found["when"]):
        return "it is vague: its condition names nothing, and fits any task"
    if not _is_specific(found["what"]):
        return "it is vague: it does not say what to do with what"
    return ""


def is_alike(one: str, other: str) -> bool:
    """Return whether two rules say the same: the same names, both a do or a don't, similar words."""
    if _names(one) != _names(other) or bool(_NOT.search(one)) != bool(_NOT.search(other)):
        return False
    words, others = _words(one), _words(other)
    if not words or not others:
        return one.casefold() == other.casefold()
    return len(words & others) / len(words | others) >= ALIKE


def _is_specific(half: str) -> bool:
    return bool(_NAMED.search(half)) or len(_specific_words(half)) >= _FEWEST


def _specific_words(text: str) -> set[str]:
    return {word for word in map(str.casefold, _WORD.findall(text)) if word not in _STOP_WORDS | _VAGUE}


def _names(text: str) -> set[str]:
    return {name.strip("`\"'").casefold() for name in _NAMED.findall(_halves(text))}


def _words(text: str) -> set[str]:
    words = (word.casefold() for word in _WORD.findall(_halves(text)))
    return {word.removesuffix("s") for word in words if word not in _STOP_WORDS}


def _halves(text: str) -> str:
    found = _match(one_line(text))
    return text if found is None else f"{found['when']} {found['what']}"
