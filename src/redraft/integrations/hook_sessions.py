"""Sessions of coding agents: what hooks remember between two calls, each in a file of the project."""

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
from redraft.integrations.hook_actions import FOLDER, KnownActions, key_of
from redraft.integrations.hook_settings import Accepted, HookOptions
from redraft.settings import load_settings, project_folder
from redraft.text.search import has_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redraft.integrations.coding_agents import HookEvent
    from redraft.text.search import IsWanted

KEPT_DAYS = 30
DAY = 86_400
"""Seconds."""
ACCEPTED = "accepted"
"""The name of the file with what a person has accepted; those of sessions end in `.json`."""
MOST_TURNS = 5
"""Of a session, the last ones that lessons are made of."""


@dataclass(slots=True)
class CodingTurn:
    """One turn of an agent."""

    prompt: str = ""
    """What the person asked."""
    versions: list[Any] = field(default_factory=list[Any])
    """What was judged, oldest first, as records: only `learn` decodes them, since a check has to be fast."""


@dataclass(slots=True)
class CodingSession:
    """The state of hooks in one session of a coding agent."""

    key: str
    baseline: Baseline | None = None
    knows_criteria: bool = False
    """Whether the agent was sent what the criteria ask for."""
    calls_hook: bool = False
    """Whether the agent's configuration in the repository called the hook when the session began."""
    turn: str = ""
    """The id of the turn under way; empty if the agent gives turns none."""
    blocks: int = 0
    """How often the turn was blocked."""
    is_blocked: bool = False
    """Whether the last check of the turn blocked it."""
    judged: str = ""
    """The digest of what was judged last."""
    critique: str = ""
    """The digest of the last critique in the turn."""
    advice: list[Any] = field(default_factory=list[Any])
    """The lessons that the agent received, as records."""
    turns: list[CodingTurn] = field(default_factory=list[CodingTurn])
    mended: list[Any] = field(default_factory=list[Any])
    """The commands that failed and passed in another form, as JSON data."""
    refuted: list[str] = field(default_factory=list[str])
    """The lessons on commands that passed after all."""
    ended: bool = False

    @classmethod
    def of(cls, stored: dict[str, Any]) -> CodingSession:
        """Return a session from the JSON data of its file; raises `TypeError` for other data."""
        stored.pop("criteria", None)  # of an earlier version
        session = cls(**stored)
        session.baseline = None if session.baseline is None else Baseline(**stored["baseline"])
        session.turns = [CodingTurn(**one) for one in stored["turns"]]
        return session

    @property
    def current(self) -> CodingTurn:
        """The turn under way."""
        if not self.turns:
            self.turns.append(CodingTurn())
        return self.turns[-1]

    def is_under_way(self, event: HookEvent) -> bool:
        """Return whether the end of a turn is that of the current one, which may have been blocked before.

        An agent that goes on after a block does not always say so, and older ones give turns no id. Then a
        turn that was just blocked is under way until the next prompt.
        """
        if event.is_continued:
            return True
        return event.turn == self.turn if event.turn else self.is_blocked

    def begin_turn(self, turn: str, prompt: str = "") -> None:
        """Begin a turn, which may be blocked anew."""
        self.turn, self.blocks, self.is_blocked, self.critique = turn, 0, False, ""
        if self.current.versions or prompt:
            self.turns = [one for one in self.turns if one.versions][1 - MOST_TURNS :]
            self.turns.append(CodingTurn(prompt))


class Sessions:
    """The sessions of a project, each in a file of its own, mode 0600.

    Raises `ConfigError` if the project stores nothing.
    """

    def __init__(self) -> None:
        home = load_settings().home
        if not home:
            raise ConfigError(
                "The setting `home` (REDRAFT_HOME) is empty, so blocked turns can't be counted; set it."
            )
        self._home = project_folder() / home
        self._folder = self._home / FOLDER
        self.actions = KnownActions(self._folder)

    def open(self, agent: str, session: str) -> CodingSession:
        """Return a session, which may be new."""
        key = key_of(agent, session)
        return self.read(key) or CodingSession(key)

    def read(self, key: str) -> CodingSession | None:
        """Return a session by its key; None if there is no such file, or if it can't be read."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            check_regular(self._path(key))
            return CodingSession.of(json.loads(self._path(key).read_text("utf-8")))
        return None

    def save(self, session: CodingSession) -> None:
        """Store a session; raises `OSError` if its file can't be written."""
        self._write(self._path(session.key), asdict(session))

    def write_actions(self, data: Any) -> None:
        """Store what lessons say of actions; raises `OSError` if the file can't be written."""
        self._write(self.actions.path, data)

    def _write(self, path: Path, data: Any) -> None:
        make_folder(self._home)
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
        self, is_wanted: IsWanted, *, on_unreadable: Callable[[Path, OSError], None], check: bool = False
    ) -> list[str]:
        """Delete the sessions that contain a wanted text (with `check`, find them); return their files.

        `on_unreadable` gets each file or folder that is left out, and why. Raises `OSError` where a file
        can't be deleted.
        """
        found: list[str] = []
        try:
            paths = sorted(self._folder.iterdir())
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                on_unreadable(self._folder, error)
            return found
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
                is_found = has_text(json.loads(text), is_wanted)
            except ValueError:  # cut off while it was written
                is_found = is_wanted(text)
            if is_found:
                found.append(path.name)
                if not check:
                    path.unlink(missing_ok=True)
        return found

    def unlearned(self) -> list[str]:
        """Return the keys of sessions that have ended and left no lesson yet; delete old ones."""
        found: list[str] = []
        for path in [*self._folder.glob("*.given"), *self._folder.glob("*.json")]:
            if time.time() - path.stat().st_mtime > KEPT_DAYS * DAY:
                path.unlink(missing_ok=True)
            elif path.suffix == ".json" and (session := self.read(path.stem)) is not None and session.ended:
                found.append(session.key)
        return found

    def accepted(self) -> Accepted | None:
        """Return what a person has accepted to judge by; None if nothing was, or it can't be read."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            check_regular(self._folder / ACCEPTED)
            accepted = Accepted.of(json.loads((self._folder / ACCEPTED).read_text("utf-8")))
            HookOptions(**accepted.options)
            return accepted
        return None

    def accept(self, accepted: Accepted) -> None:
        """Store what a person has accepted; raises `OSError` if the file can't be written."""
        self._write(self._folder / ACCEPTED, asdict(accepted))

    def has_open(self) -> bool:
        """Return whether a session was at work in the last day, and has not ended."""
        since = time.time() - DAY
        recent = [path.stem for path in self._folder.glob("*.json") if path.stat().st_mtime > since]
        return any(session is not None and not session.ended for session in map(self.read, recent))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
