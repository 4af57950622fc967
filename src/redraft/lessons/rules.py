"""The rules of an agent: tactical rules, which expire after four weeks, and permanent rules."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal

from redraft._validation import nearest
from redraft.errors import ConfigError, LessonFileError
from redraft.lessons.documents import RULES, documents_at, text_of
from redraft.lessons.folder import folder_name
from redraft.lessons.lesson import is_empty
from redraft.lessons.markdown import check_merged, heading_in, lines_of, one_line
from redraft.memory.safety import Cleaner, violation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from redraft.lessons.documents import Documents, Entry

RuleStatus = Literal["tactical", "proposed", "permanent"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of an agent."""

    text: str
    day: date | None = None
    """The day on which it was learned; None for a permanent rule without a day in its line."""
    source: str = ""
    """The id of the lesson that taught it."""
    status: RuleStatus = "tactical"


MOST_RULES = 10
MOST_PROPOSED = 10
RULE_LIFE = timedelta(weeks=4)


class Rules:
    """The rules of one agent, in the document `<agent>/rules.md`, which a person may edit.

    `place` holds the documents of all agents: `Documents`, or the path of a folder such as `memory`.

    There are at most ten tactical rules; a new rule replaces the oldest, and each expires after four weeks.
    Permanent rules are those that a person moved under that heading. Writes are atomic, and many processes
    may write concurrently. `today` returns the day. Raises `StoreError` if the document can't be read or
    written.
    """

    def __init__(
        self, place: Documents | Path | str, agent: str, *, today: Callable[[], date] = date.today
    ) -> None:
        self.agent = agent
        self._documents = documents_at(place)
        self._folder = folder_name(agent)
        self._name = f"{self._folder}/{RULES}"
        self._today = today

    def permanent(self) -> list[Rule]:
        """The permanent rules."""
        return self._read().rules("permanent")

    def active(self) -> list[Rule]:
        """The active rules: the permanent rules, then the tactical rules, newest first."""
        file = self._read()
        unexpired = [rule for rule in reversed(file.rules("tactical")) if not self._has_expired(rule)]
        unexpired.sort(key=lambda rule: rule.day or self._today(), reverse=True)
        return [*file.rules("permanent"), *unexpired]

    def proposed(self) -> list[Rule]:
        """The rules proposed as permanent."""
        return self._read().rules("proposed")

    def due(self) -> list[Rule]:
        """The expired tactical rules, which `expire` will remove."""
        return [rule for rule in self._read().rules("tactical") if self._has_expired(rule)]

    def broken(self) -> list[LessonFileError]:
        """An error for each line that is not a rule."""
        return [LessonFileError(why, file=self._name, line=line) for line, why in self._read().broken()]

    def add(self, text: str, source: str = "", *, is_needed: Callable[[Rule], bool] | None = None) -> Rule:
        """Add a tactical rule that the lesson `source` taught, word for word, with its secrets withheld.

        Returns the existing rule if there is one. Rules that the new rule replaces are proposed as permanent
        if they are needed. Raises `ConfigError` for a text that can't be a rule.
        """
        clean = Cleaner().redact(text)
        if why := refusal(clean):
            raise ConfigError(f"This can't be a rule: {why}.")
        rule = Rule(one_line(clean), self._today(), source)
        with self._editing() as file:
            tactical = [other for other in file.rules("tactical") if not self._has_expired(other)]
            for existing in (*file.rules("permanent"), *tactical):
                if key_of(existing.text) == key_of(rule.text):
                    return existing
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

    def make_permanent(self, text: str) -> Rule:
        """Make a proposed or tactical rule permanent; raises `LessonFileError` if there is no such rule."""
        with self._editing() as file:
            candidates = [*file.rules("proposed"), *file.rules("tactical")]
            for rule in candidates:
                if key_of(rule.text) == key_of(text):
                    return file.move(rule, "permanent")
            near = nearest(text, [rule.text for rule in candidates])
            raise LessonFileError(f"There is no rule {text!r}; {near}", file=self._name)

    def drop(self, source: str) -> list[Rule]:
        """Remove the rules that a lesson taught, except permanent ones, and return them."""
        with self._editing() as file:
            taught = [rule for rule in file.rules() if rule.source == source and rule.status != "permanent"]
            for rule in taught:
                file.remove(rule)
        return taught

    def erase(self, matches: Callable[[str, str], bool], *, check: bool = False) -> int:
        """Remove each rule for which `matches(text, source)`, even permanent ones, and other matching lines.

        Returns the number of these rules and lines; with `check`, nothing is changed.
        """
        if self._documents.entry(self._name) is None:
            return 0
        if check:
            return self._read().erase(matches)
        with self._editing() as file:
            return file.erase(matches)

    def _has_expired(self, rule: Rule) -> bool:
        return rule.day is not None and self._today() - rule.day >= RULE_LIFE

    def _read(self, entry: Entry | None = None) -> RulesFile:
        entry = entry or self._documents.entry(self._name)
        text = "" if entry is None else text_of(self._documents, entry, of="rules")
        check_merged(lines_of(text), self._name)
        return RulesFile(text, self.agent, self._today())

    @contextmanager
    def _editing(self) -> Generator[RulesFile]:
        """Lock the folder, and write the document if it is changed."""
        with self._documents.locked(self._folder):
            entry = self._documents.entry(self._name)
            file = self._read(entry)
            before = file.text
            yield file
            if file.text != before and entry is None:
                self._documents.add(self._name, file.text)
            elif file.text != before and entry is not None:
                self._documents.replace(entry, file.text)


def _end(file: RulesFile, rule: Rule, is_needed: Callable[[Rule], bool] | None) -> None:
    """Remove a tactical rule, or propose it as permanent if it is needed."""
    proposed = file.rules("proposed")
    is_duplicate = any(
        key_of(other.text) == key_of(rule.text) for other in (*proposed, *file.rules("permanent"))
    )
    if is_duplicate or is_needed is None or not is_needed(rule):
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
_ITEM = re.compile(r"[-*]\s+(?:\[[ x]\]\s+)?(.*)", re.DOTALL)
_CONTINUED = re.compile(r"\s+\S")
_DATED = re.compile(r"(\d{4}-\d\d?-\d\d?):?\s+(.*)")
_SOURCED = re.compile(r"(.*?)\s*\(from ([^()\s]+)\)\s*\.?")


@dataclass(slots=True)
class _Part:
    """A rule with its lines, or a single other line."""

    text: str
    status: RuleStatus | None
    """The status of the rules under its heading."""
    rule: Rule | None = None
    has_day: bool = False
    problem: str = ""

    @classmethod
    def of(cls, text: str, status: RuleStatus | None, today: date) -> _Part:
        """Read a line, or the lines of a rule; a rule that expires has the day `today` by default."""
        match = _ITEM.fullmatch(text)
        if status is None or match is None:
            return cls(text, status)
        said, source, day = one_line(match[1]), "", None if status == "permanent" else today
        if sourced := _SOURCED.fullmatch(said):
            said, source = sourced.groups()
        if dated := _DATED.fullmatch(said):
            said = dated[2]
            try:
                day = date.fromisoformat(dated[1])
            except ValueError:
                problem = f"{dated[1]!r} is not a day (YYYY-MM-DD)."
                return cls(text, status, Rule(said, None, source, status), problem=problem)
        problem = "" if key_of(said) else "There is no text in this rule."
        return cls(text, status, Rule(said, day, source, status), dated is not None, problem)


class RulesFile:
    """The rules in a text; changing a rule leaves other lines unchanged.

    A tactical or proposed rule without a day gets the day `today`.
    """

    def __init__(self, text: str, agent: str, today: date) -> None:
        lines = lines_of(text.rstrip("\n"))
        if not text.strip():
            lines = [f"# Rules of {one_line(agent)}"]
            for status, heading in HEADINGS.items():
                lines += ["", f"## {heading}", "", _SAYS[status]]
        status, is_rule = None, False
        blocks: list[tuple[RuleStatus | None, list[str]]] = []
        for line in lines:
            if is_rule and _CONTINUED.match(line):
                blocks[-1][1].append(line)
                continue
            if line.startswith("#"):
                status = _STATUSES.get(heading_in(line).rstrip(" :"))
            is_rule = status is not None and _ITEM.fullmatch(line) is not None
            blocks.append((status, [line]))
        self._parts = [_Part.of("\n".join(block), status, today) for status, block in blocks]

    @property
    def text(self) -> str:
        """The text, with all changes."""
        return "\n".join(part.text for part in self._parts) + "\n"

    def rules(self, status: RuleStatus | None = None) -> list[Rule]:
        """The rules in order, by default under all headings."""
        rules = [part.rule for part in self._parts if part.rule and not part.problem]
        return [rule for rule in rules if status in (None, rule.status)]

    def broken(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each line that is not a rule, with the problem."""
        number = 1
        for part in self._parts:
            if part.problem:
                yield number, part.problem
            number += part.text.count("\n") + 1

    def add(self, rule: Rule) -> None:
        """Add a rule after the last rule under its heading."""
        new, parts = _Part(_line(rule), rule.status, rule, has_day=True), self._parts
        places = [place for place, part in enumerate(parts) if part.status == rule.status]
        if last := [place for place in places if parts[place].rule]:
            parts.insert(last[-1] + 1, new)
        elif not places:
            lines = (f"## {HEADINGS[rule.status]}", "", _SAYS[rule.status], "")
            parts += [_Part("", None), *(_Part(line, rule.status) for line in lines), new]
        else:
            below = places[0] + 1
            while below < len(parts) and not parts[below].text.startswith("#"):
                below += 1
            end = below
            while not parts[end - 1].text.strip():
                end -= 1
            # Empty lines of removed rules are reused; one stays before the next heading.
            parts[end : max(end, below - 1)] = [_Part("", rule.status), new]

    def remove(self, rule: Rule) -> None:
        """Remove a rule."""
        self._parts.remove(next(part for part in self._parts if part.rule == rule and not part.problem))

    def erase(self, matches: Callable[[str, str], bool]) -> int:
        """Remove each rule for which `matches(text, source)`, and other matching lines: their number."""
        before = len(self._parts)
        self._parts = [
            part
            for part in self._parts
            if not (matches(part.text, "") or (part.rule and matches(part.rule.text, part.rule.source)))
        ]
        return before - len(self._parts)

    def move(self, rule: Rule, status: RuleStatus) -> Rule:
        """Move a rule under another heading."""
        moved = replace(rule, status=status)
        self.remove(rule)
        self.add(moved)
        return moved

    def date_all(self) -> None:
        """Date tactical rules without a day, so that they expire."""
        for part in self._parts:
            if part.rule and part.rule.status == "tactical" and not (part.problem or part.has_day):
                part.text = _line(part.rule)


def _line(rule: Rule) -> str:
    day = f"{rule.day}: " if rule.day else ""
    source = f" (from {rule.source})" if rule.source else ""
    return f"- {day}{one_line(rule.text)}{source}"


# --- the text of a rule -----------------------------------------------------------------------------------

LONGEST_RULE = 300
"""Maximum characters of a rule, which is a single sentence of the prompt."""


def refusal(text: str) -> str:
    """Reason why a text can't be a rule; empty if it can.

    The author chooses the wording. A rule must not be empty, have more than 300 characters, or contain what
    no lesson may contain.
    """
    line = one_line(text)
    if not key_of(line) or is_empty(line):
        return "it says nothing"
    if len(line) > LONGEST_RULE:
        return f"it has {len(line):,} characters, and a rule is one sentence of at most {LONGEST_RULE}"
    why = violation(line)
    return f"it holds {why}" if why else ""


def key_of(text: str) -> str:
    """The key by which two rules are the same: the text without case, spacing and final punctuation."""
    return " ".join(one_line(text).casefold().split()).rstrip(" .!")
