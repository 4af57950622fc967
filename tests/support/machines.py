"""Machines that share lessons: each has a folder of its own, and its workers are real processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redraft.lessons.folder import LessonFolder
from support.lessons import FAILURE, lesson
from support.processes import Processes

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

PROJECT = "shop"


class Machine(Processes):
    """A machine with its own project folder, whose workers are real processes."""

    def __init__(self, name: str, root: Path, url: str, **environment: object) -> None:
        self.name = name
        self.home = root / name
        self.home.mkdir()
        (self.home / "redraft.toml").touch()
        self.log = root / "calls.log"
        self.lessons = LessonFolder(self.home / "memory", "clerk")
        super().__init__(
            self.home,
            REDRAFT_DATABASE_URL=url,
            REDRAFT_PROJECT=PROJECT,
            REDRAFT_HOME=".redraft",
            FLEET_LOG=self.log,
            FLEET_MACHINE=name,
        )
        self.set(**environment)

    def share(self) -> subprocess.Popen[bytes]:
        """Share its lessons by the command, without a worker."""
        return self.run("lessons", "sync", "--watch")

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more worker on it."""
        return self.run("worker", "support.sharing_app:fleet")

    def learn(self, content: Any = FAILURE, **changed: Any) -> str:
        """Write the file of a lesson, and return its id."""
        return self.lessons.add(lesson(content, **({"agent": "clerk"} | changed))).id

    def texts(self) -> dict[str, str]:
        """Return the texts of the agent's files, by their paths."""
        root = self.home / "memory" / "reflections" / "clerk"
        return {str(one.relative_to(root)): one.read_text() for one in root.rglob("*.md")}

    def calls(self, program: str) -> list[dict[str, Any]]:
        """Return the calls of a model that a program made here."""
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else ()
        return [one for one in lines if (one["machine"], one["program"]) == (self.name, program)]

    def die(self) -> None:
        """Kill all of its processes."""
        for process in [*self.running]:
            self.kill(process)
