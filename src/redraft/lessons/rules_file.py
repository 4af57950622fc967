"""RulesFile: the rules of an agent as a text that a person may have written, changed line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from redraft.core.nearest import nearest
from redraft.lessons.document import lines_of, one_line
from redraft.lessons.rule import Rule, Standing, rule_text

if TYPE_CHECKING:
    from collections.abc import Iterator

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
