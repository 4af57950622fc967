"""Rules: the tactical rules of an agent, which last four weeks, and the permanent ones of a person."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.core.errors import LessonFileError
from redraft.lessons.clean import Cleaner
from redraft.lessons.files import locked, naming, write_over
from redraft.lessons.folder import MOST_BYTES, REFLECTIONS, RULES
from redraft.lessons.names import folder_name
from redraft.lessons.rule import Rule, is_alike, refusal, rule_text
from redraft.lessons.rules_file import RulesFile, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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
        self._folder = Path(path) / REFLECTIONS / folder_name(agent)
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
        clean = cleaner.redacted(text)
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
        file = f"{self._folder.name}/{RULES}"
        if self._path.is_symlink():  # it may lead anywhere
            raise LessonFileError("It is a link, which is not followed.", file=file)
        if self._path.exists() and not self._path.is_file():  # a pipe would be read for ever
            raise LessonFileError("It is no file.", file=file)
        try:
            with naming(self._path):
                data = self._path.read_bytes() if self._path.exists() else b""
            if len(data) > MOST_BYTES:
                raise LessonFileError(f"{len(data):,} bytes are no rules.", file=file)
            text = data.decode()
        except UnicodeDecodeError as error:
            raise LessonFileError(f"It is not UTF-8: {error.reason}.", file=file) from error
        return RulesFile(text, self.agent, self._today())

    @contextmanager
    def _changing(self) -> Generator[RulesFile]:
        """Hold the file to change it, and write it if it was changed."""
        with locked(self._folder):
            file = self._read()
            before = file.text
            yield file
            if file.text != before:
                with naming(self._path):
                    write_over(self._path, file.text.encode())


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
