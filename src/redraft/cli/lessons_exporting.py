"""Exporting: one file that is to get a block of lessons, before and after."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group
from rich.text import Text

from redraft.cli.changes import changes
from redraft.cli.kept_lessons import active_lessons, helped_of, permanent_rules
from redraft.cli.show import QUIET
from redraft.core.check import check_choice
from redraft.core.errors import ConfigError
from redraft.core.settings import project_folder
from redraft.core.tokens import estimate_tokens
from redraft.lessons.export import FILES, Export, Form, export, front_matter, standing_in
from redraft.lessons.files import write_over
from redraft.lessons.managed_block import ManagedBlock
from redraft.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.cli.console import CalmConsole
    from redraft.cli.lessons_place import LessonsPlace

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Exporting:
    """Hold what is to be written (`export`) and where: `target` is None for stdout, `shown` is its name.

    `text` is what the file says now, None if it is not there; `block` the block in it.
    """

    form: Form
    export: Export
    shown: str
    target: Path | None
    text: str | None
    block: ManagedBlock

    @classmethod
    def of(
        cls, place: LessonsPlace, form: Form, file: str | None, max_tokens: int | None, *, check: bool
    ) -> Exporting:
        """Read the lessons and the file.

        With `check` lessons stand as they do in the block, wherever that is asked. Raises `ConfigError` for a
        file that can't have such a block.
        """
        shown = file or FILES[form]
        target = (
            None if shown == STDOUT else _target(project_folder() / shown if file is None else Path(shown))
        )
        text = None if target is None else _read(target, shown)
        block = ManagedBlock.find(text or "", shown)
        standing = standing_in(block.body or "") if check else helped_of(place)
        made = export(active_lessons(place), form, standing, max_tokens, permanent_rules(place))
        return cls(form, made, shown, target, text, block)

    @property
    def is_current(self) -> bool:
        """Whether the block is there, and says what it should."""
        return self.block.says(self.export.body)

    @property
    def summary(self) -> str:
        """What is in the text, and what was left out of it, with the reasons."""
        made = self.export
        agents = len({one.partition("/")[0] for one in made.ids})
        rules = f"{_count(made.rules, 'permanent rule')}; " if made.rules else ""
        lines = [f"{rules}{_count(len(made.ids), 'lesson')} of {_count(agents, 'agent')}, the best first, "]
        lines[0] += f"{estimate_tokens(made.body):,} tokens"
        lines[0] += f"; {made.omitted} left out, for which there is no room" if made.omitted else ""
        lines[0] += f"; {made.alike} left out as repeating others" if made.alike else ""
        lines[0] += "."
        lines += [f"Left out: {one} holds {why}." for one, why in made.refused.items()]
        return visible("\n".join(lines))

    def changes(self, *, coloured: bool) -> RenderableType:
        """Render what would change."""
        after = self.front + self.export.body
        head = f"{self.shown}: " + ("a new file" if self.text is None else "the rest of it stays as it is")
        before = self.block.body or ""
        return Group(Text(visible(head), QUIET), changes(before, after, coloured=coloured, longest=None))

    def check_unedited(self, *, force: bool) -> None:
        """Raise `ConfigError` for a block that somebody edited by hand, which would be lost."""
        if self.block.is_edited and not force:
            raise ConfigError(
                f"The block in {self.shown!r} was edited by hand, so it stays. Put what it should say into "
                "a lesson (redraft lessons edit, add); --force writes over it."
            )

    def write(self) -> None:
        """Write the file, whole at once; raises `ConfigError` if it was changed meanwhile, or can't be."""
        target = cast("Path", self.target)
        if _read(target, self.shown) != self.text:
            raise ConfigError(f"{self.shown!r} was changed meanwhile; nothing was written.")
        block = ManagedBlock(self.front, None, "") if self.front else self.block
        text = block.with_body(self.export.body)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_over(target, text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise ConfigError(f"{self.shown!r} can't be written: {error.strerror}.") from error

    def ending(self, *, is_written: bool) -> str:
        """Say how it went."""
        if is_written:
            return f"{self.shown} is written."
        if self.is_current:
            return f"{self.shown} is up to date."
        if self.block.is_edited:
            return f"{self.shown}: the block of lessons was edited by hand."
        return (
            f"{self.shown} has no block of lessons."
            if self.block.body is None
            else (f"{self.shown} is out of date.")
        )

    def as_document(self, *, is_written: bool) -> dict[str, Any]:
        """Return it as plain data."""
        made = self.export
        return {
            "file": self.shown,
            "form": self.form,
            "up_to_date": self.is_current or is_written,
            "written": is_written,
            "edited_by_hand": self.block.is_edited and not is_written,
            "tokens": estimate_tokens(made.body),
            "rules": made.rules,
            "lessons": list(made.ids),
            "omitted": made.omitted,
            "alike": made.alike,
            "refused": dict(made.refused),
        }

    @property
    def front(self) -> str:
        """What a new file begins with, and one that says nothing yet."""
        return "" if (self.text or "").strip() else front_matter(self.form, self.shown)


def form_of(given: str) -> Form:
    """Return the form that was asked for; raises `ConfigError` for one that is none."""
    check_choice("--to", given, tuple(FILES))
    return cast("Form", given)


def confirmed(console: CalmConsole, shown: str) -> bool:
    """Ask whether to write; raises `ConfigError` where there is nobody to be asked."""
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was written, as there is no terminal to ask in; --yes writes it.")
    console.out(visible(f"Write {shown}? [y/N] "), end="", highlight=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _target(path: Path) -> Path:
    """Return the file to write; a link is followed within its own folder alone."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; --file takes a file.")
    if not path.is_symlink():
        return path
    target = path.resolve()
    if not target.is_relative_to(path.parent.resolve()):
        raise ConfigError(f"{str(path)!r} is a link to {str(target)!r}; say so with --file if you mean that.")
    return target


def _read(path: Path, shown: str) -> str | None:
    """Return what a file says, character by character, also what is no UTF-8; None if it is not there."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{shown!r} can't be read: {error.strerror}.") from error


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
