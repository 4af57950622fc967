"""Sessions of coding agents: the state of hooks between two calls, one file per session."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from redraft._locks import check_regular, make_folder
from redraft.errors import ConfigError
from redraft.integrations.git import Baseline
from redraft.integrations.hook_actions import ActionLessons, key_of
from redraft.integrations.hook_settings import Accepted, HookOptions
from redraft.settings import hooks_folder, project_folder
from redraft.text.search import has_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redraft.integrations.coding_agents import HookEvent
    from redraft.text.search import TextPredicate

KEPT_DAYS = 30
DAY = 86_400
"""Seconds."""
ACCEPTED = "accepted"
"""Name of the file with the accepted settings and criteria; the files of sessions end in `.json`."""
MOST_TURNS = 5
"""The most recent turns of a session that lessons are made from."""


@dataclass(slots=True)
class CodingTurn:
    """One turn of an agent."""

    prompt: str = ""
    """The person's prompt."""
    versions: list[Any] = field(default_factory=list[Any])
    """Judged versions as records, oldest first. Only `learn` decodes them, because a check must be fast."""


@dataclass(slots=True)
class CodingSession:
    """The state of hooks in one session of a coding agent."""

    key: str
    baseline: Baseline | None = None
    knows_criteria: bool = False
    """Whether the agent was sent the criteria."""
    calls_hook: bool = False
    """Whether the agent's configuration in the repository called the hook when the session began."""
    turn: str = ""
    """Id of the current turn; empty if the agent sends no turn ids."""
    blocks: int = 0
    """How often the turn was blocked."""
    is_blocked: bool = False
    """Whether the last check of the turn blocked it."""
    judged: str = ""
    """Digest of the last judged change."""
    critique: str = ""
    """Digest of the last critique in the turn."""
    advice: list[Any] = field(default_factory=list[Any])
    """The lessons that the agent received, as records."""
    turns: list[CodingTurn] = field(default_factory=list[CodingTurn])
    mended: list[Any] = field(default_factory=list[Any])
    """Commands that failed and then passed in another form, as JSON data."""
    refuted: list[str] = field(default_factory=list[str])
    """Lessons on commands that passed despite the lesson."""
    ended: bool = False

    @classmethod
    def of(cls, stored: dict[str, Any]) -> CodingSession:
        """Decode a session from the JSON data of its file; raises `TypeError` for other data."""
        session = cls(**stored)
        session.baseline = None if session.baseline is None else Baseline(**stored["baseline"])
        session.turns = [CodingTurn(**turn) for turn in stored["turns"]]
        return session

    @property
    def current(self) -> CodingTurn:
        """The current turn."""
        if not self.turns:
            self.turns.append(CodingTurn())
        return self.turns[-1]

    def is_under_way(self, event: HookEvent) -> bool:
        """Whether an event ends the current turn, which may have been blocked before, rather than a new turn.

        Agents don't always report that they continue after a block, and older agents send no turn ids. A
        turn that was just blocked then lasts until the next prompt.
        """
        if event.is_continued:
            return True
        return event.turn == self.turn if event.turn else self.is_blocked

    def begin_turn(self, turn: str, prompt: str = "") -> None:
        """Begin a turn, and reset its count of blocks."""
        self.turn, self.blocks, self.is_blocked, self.critique = turn, 0, False, ""
        if self.current.versions or prompt:
            self.turns = [judged for judged in self.turns if judged.versions][1 - MOST_TURNS :]
            self.turns.append(CodingTurn(prompt))


class Sessions:
    """The sessions of a project, one file of mode 0600 per session.

    Raises `ConfigError` if the project stores nothing.
    """

    def __init__(self) -> None:
        folder = hooks_folder(project_folder())
        if folder is None:
            raise ConfigError("REDRAFT_HOME is empty, so blocked turns can't be counted; set it.")
        self._folder = folder
        self.actions = ActionLessons(self._folder)

    def open(self, agent: str, session: str) -> CodingSession:
        """Read a session, or start a new session."""
        key = key_of(agent, session)
        return self.read(key) or CodingSession(key)

    def read(self, key: str) -> CodingSession | None:
        """Read a session by its key; None if its file doesn't exist, or can't be read."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            check_regular(self._path(key))
            return CodingSession.of(json.loads(self._path(key).read_text("utf-8")))
        return None

    def save(self, session: CodingSession) -> None:
        """Store a session; raises `OSError` if its file can't be written."""
        self._write(self._path(session.key), asdict(session))

    def write_actions(self, data: Any) -> None:
        """Store the lessons on actions; raises `OSError` if the file can't be written."""
        self._write(self.actions.path, data)

    def _write(self, path: Path, data: Any) -> None:
        make_folder(self._folder.parent)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        check_regular(path)
        new = path.with_suffix(f".{os.getpid()}")
        check_regular(new)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(data, file)
        new.replace(path)

    def delete(self, session: CodingSession) -> None:
        """Delete a session."""
        self._path(session.key).unlink(missing_ok=True)
        self.actions.forget(session.key)

    def erase(
        self, is_match: TextPredicate, *, on_unreadable: Callable[[Path, OSError], None], check: bool = False
    ) -> list[str]:
        """Delete the sessions with a matching text, or only find them with `check`; returns file names.

        Also in the folder that projects with the same home once shared, which nothing reads any more.
        `on_unreadable` is called with each unreadable file or folder and its error. Raises `OSError` if
        a file can't be deleted.
        """
        erased: list[str] = []
        paths: list[Path] = []
        for folder in {self._folder, self._folder.with_name("hooks")}:
            try:
                paths += sorted(folder.iterdir())
            except FileNotFoundError:
                continue
            except OSError as error:
                on_unreadable(folder, error)
        for path in paths:
            try:
                check_regular(path)
                text = path.read_text("utf-8", "surrogateescape")
            except FileNotFoundError:  # a hook has just replaced or deleted it
                continue
            except OSError as error:
                on_unreadable(path, error)
                continue
            try:
                is_found = has_text(json.loads(text), is_match)
            except (ValueError, RecursionError):  # cut off while it was written, or foreign
                is_found = is_match(text)
            if is_found:
                erased.append(path.name)
                if not check:
                    path.unlink(missing_ok=True)
        return erased

    def unlearned(self) -> list[str]:
        """Keys of ended sessions without lessons so far; also deletes old sessions."""
        keys: list[str] = []
        for path in [*self._folder.glob("*.given"), *self._folder.glob("*.json")]:
            if time.time() - _modified(path) > KEPT_DAYS * DAY:
                path.unlink(missing_ok=True)
            elif path.suffix == ".json" and (session := self.read(path.stem)) is not None and session.ended:
                keys.append(session.key)
        return keys

    def accepted(self) -> Accepted | None:
        """The settings and criteria that a person accepted; None if missing or unreadable."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            check_regular(self._folder / ACCEPTED)
            accepted = Accepted.of(json.loads((self._folder / ACCEPTED).read_text("utf-8")))
            HookOptions(**accepted.options)
            return accepted
        return None

    def accept(self, accepted: Accepted) -> None:
        """Store the settings and criteria that a person accepted; raises `OSError` if writing fails."""
        self._write(self._folder / ACCEPTED, asdict(accepted))

    def has_open(self) -> bool:
        """Whether a session was active in the last day and has not ended."""
        since = time.time() - DAY
        recent = [path.stem for path in self._folder.glob("*.json") if _modified(path) > since]
        return any(session is not None and not session.ended for session in map(self.read, recent))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _modified(path: Path) -> float:
    """When a file was last written; 0 if another hook has just deleted it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0
