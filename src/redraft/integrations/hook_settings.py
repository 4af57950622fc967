"""Settings of hooks, and the accepted settings and criteria, which an agent's own changes don't affect."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from redraft._locks import check_regular
from redraft._texts import counted, listed
from redraft._validation import (
    check_bound,
    check_choice,
    check_count,
    check_flag,
    check_limit,
    check_list,
    check_name,
    nearest,
)
from redraft.errors import ConfigError
from redraft.settings import SETTINGS_FILE, load_settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from redraft.loop.criteria_file import CriteriaFile

Subject = Literal["diff", "files", "answer"]
MOST_BLOCKS = 7
"""Claude Code ends a turn itself after eight blocks in a row."""
LARGEST = 1_000_000
"""Bytes of a file that are compared as text."""


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The table `[hook]` of `redraft.toml`; raises `ConfigError` for invalid values."""

    criteria: str = "criteria.yaml"
    """The criteria file, relative to `redraft.toml`."""
    subject: Subject = "diff"
    """What is judged: the diff of the session, each file that changed, or the agent's last answer."""
    paths: Sequence[str] = ()
    """git's pathspecs."""
    judge: bool = False
    """Whether a model judges what checks can't, and writes the reasons into lessons."""
    budget_usd: float | None = None
    """US dollars for one check."""
    budget_tokens: int | None = None
    """Tokens for one check."""
    blocks: int = 3
    """The most times that a turn is blocked."""
    timeout: float = 30.0
    """Time limit of a hook in seconds."""
    lessons: str = "coding-agent"
    """Name that lessons are stored under."""
    max_tokens: int = 800
    """The most tokens of lessons in a session."""

    def __post_init__(self) -> None:
        check_name("criteria", self.criteria)
        check_choice("subject", self.subject, ("diff", "files", "answer"))
        check_list("paths", self.paths)
        for path in self.paths:
            check_name("paths: a pathspec", path)
        check_flag("judge", self.judge)
        check_bound("budget_usd", self.budget_usd)
        check_limit("budget_tokens", self.budget_tokens)
        check_count("blocks", self.blocks, 0, MOST_BLOCKS)
        check_bound("timeout", self.timeout)
        check_name("lessons", self.lessons)
        check_count("max_tokens", self.max_tokens, 0)
        if self.judge and self.subject == "files":
            raise ConfigError("judge = true works with subject = 'diff' or 'answer'; files get checks only.")

    @classmethod
    def load(cls) -> HookOptions:
        """Read the options that apply in the working folder."""
        table, known_keys = load_settings().hook, [option.name for option in fields(cls)]
        for key in table:
            if key not in known_keys:
                raise ConfigError(f"{SETTINGS_FILE}, [hook]: unknown key {key!r}; {nearest(key, known_keys)}")
        try:
            return cls(**table)
        except ConfigError as error:
            raise ConfigError(f"{SETTINGS_FILE}, [hook]: {error}") from error


@dataclass(slots=True)
class Accepted:
    """The settings and criteria of hooks in a project, as a person last accepted them."""

    options: dict[str, Any]
    """The table `[hook]`."""
    files: dict[str, str | None]
    """Texts of the criteria file, the modules and tests that it names, and `redraft.toml`, by their paths
    relative to the project; None for a missing file."""
    programs: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Texts of files that criteria run in place: a change can be reported, but not undone."""
    seen: dict[str, str] = field(default_factory=dict[str, str])
    """Digests of files that changed while an agent was working."""

    @classmethod
    def now(cls, options: Mapping[str, Any], criteria: CriteriaFile, project: Path) -> Accepted:
        """Read the current settings and files."""
        file = project / options["criteria"]
        used = (project / SETTINGS_FILE, file, *_checks(criteria, file.parent))
        names = {_name(path, project) for path in used}
        programs = {_name(path, project) for path in _programs(criteria, project)} - names
        texts = {name: _text(project / name) for name in sorted(names | programs)}
        return cls(
            dict(options),
            {name: texts[name] for name in sorted(names)},
            {name: texts[name] for name in sorted(programs)},
        )

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Accepted:
        """Decode JSON data; raises `TypeError` or `KeyError` for other data."""
        return cls(**{name: dict(stored[name]) for name in ("options", "files", "programs", "seen")})

    @property
    def texts(self) -> dict[str, str | None]:
        """The texts of all files, by name."""
        return {**self.files, **self.programs}

    def changed(self, project: Path) -> dict[str, str | None]:
        """Current texts of the files that differ from the accepted texts, by name."""
        before = self.texts
        now = {name: _text(project / name) for name in before}
        return {name: text for name, text in now.items() if text != before[name]}

    def see(self, changed: Mapping[str, str | None]) -> bool:
        """Record texts that changed while an agent was working; returns whether they are new."""
        seen = {name: _digest(text) for name, text in changed.items()}
        is_new = seen != self.seen
        self.seen = seen
        return is_new

    def has_seen(self, changed: Mapping[str, str | None]) -> bool:
        """Whether any of these texts was recorded while an agent was working."""
        return any(self.seen.get(name) == _digest(text) for name, text in changed.items())

    def remark(self, changed: Mapping[str, str | None]) -> str:
        """Describe which files changed, and which texts the check used."""
        names = list(changed)
        more = [counted(len(names) - 2, "other file")] if len(names) > 2 else []  # noqa: PLR2004 (of many, the first two)
        files = listed([*names[:2], *more])
        has = "has" if len(names) == 1 else "have"
        if changed.keys() <= self.programs.keys():
            return f"{files}, which the criteria run, {has} changed; see `redraft hook accept`"
        return (
            f"{files} {has} changed, and what was accepted before was applied; `redraft hook accept` shows "
            "and applies the change"
        )

    @contextmanager
    def restored(self, project: Path) -> Generator[tuple[Path, Path]]:
        """Write the accepted files to a temporary folder; yield the project and the criteria file there.

        Within the block, modules are imported from this folder first. Packages have their other modules.
        """
        from redraft.loop.criteria_file import modules_in  # noqa: PLC0415 (it imports all evaluators)

        with TemporaryDirectory(prefix="redraft-accepted-") as folder:

            def place(name: str) -> Path:
                # As deep as the original, so that `../tests` leads to the accepted files, too.
                path = Path(os.path.normpath(project / name))
                return Path(folder) / path.relative_to(path.anchor)

            for name, text in self.files.items():
                if text is not None:
                    place(name).parent.mkdir(parents=True, exist_ok=True)
                    place(name).write_text(text, "utf-8", "surrogateescape")
            criteria = place(self.options["criteria"])
            accepted = {place(name).with_suffix("") for name in self.files}
            for name in self.files:
                package = place(name).parent
                if criteria.parent in package.parents and package.is_dir():
                    for other in (project / name).parent.iterdir():
                        link = package / other.name
                        if package / other.name.partition(".")[0] not in accepted and not link.exists():
                            link.symlink_to(other)
            sys.path.insert(0, str(criteria.parent))
            try:
                with modules_in((project / self.options["criteria"]).parent):
                    yield place("."), criteria
            finally:
                sys.path.remove(str(criteria.parent))


def _checks(criteria: CriteriaFile, folder: Path) -> Iterator[Path]:
    """Modules of functions, and test files, that criteria in a folder name."""
    for criterion in criteria.criteria:
        function, tests = (criterion.evaluator_config.get(key) for key in ("function", "tests"))
        if isinstance(function, str):
            module = folder / function.partition(":")[0].replace(".", "/")
            packages = [each for each in module.parents if folder in each.parents]
            yield module.with_suffix(".py")
            # Files that don't exist are watched, too: a package takes the place of a module.
            yield from (each / "__init__.py" for each in (module, *packages))
        each = cast("list[object]", tests) if isinstance(tests, list) else [tests]
        yield from (test for test in each if isinstance(test, Path))


def _programs(criteria: CriteriaFile, project: Path) -> Iterator[Path]:
    """Files in a project that its criteria run or let a program read."""
    for criterion in criteria.criteria:
        for key in ("command", "readable"):
            words = criterion.evaluator_config.get(key)
            for word in cast("list[object]", words) if isinstance(words, list) else ():
                if isinstance(word, str | Path) and (path := project / word).is_file():
                    yield path


def _name(path: Path, project: Path) -> str:
    """Path relative to the project, or absolute if it is outside."""
    whole = Path(os.path.normpath(project / path))
    return str(whole.relative_to(project) if whole.is_relative_to(project) else whole)


def _text(path: Path) -> str | None:
    """Text of a file; None if it doesn't exist, empty if it can't be read."""
    try:
        if not check_regular(path):
            return None
        with path.open("rb") as file:
            return file.read(LARGEST).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _digest(text: str | None) -> str:
    return "" if text is None else sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
