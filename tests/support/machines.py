"""Machines that share lessons: each has a folder of its own, and its workers are real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from redraft.lessons.folder import LessonFolder
from support.lessons import FAILURE, lesson

TESTS = Path(__file__).parent.parent
PROJECT = "shop"


class Machine:
    """A machine with its own project folder, whose workers are real processes."""

    def __init__(self, name: str, root: Path, url: str, **environment: object) -> None:
        self.name = name
        self.home = root / name
        self.home.mkdir()
        (self.home / "redraft.toml").touch()
        self.log = root / "calls.log"
        self.lessons = LessonFolder(self.home / "memory", "clerk")
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "REDRAFT_DATABASE_URL": url,
            "REDRAFT_PROJECT": PROJECT,
            "REDRAFT_HOME": ".redraft",
            "FLEET_LOG": str(self.log),
            "FLEET_MACHINE": name,
            **{key: str(value) for key, value in environment.items()},
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def share(self) -> subprocess.Popen[bytes]:
        """Share its lessons by the command, without a worker."""
        return self._run("lessons", "sync", "--watch")

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more worker on it."""
        return self._run("worker", "support.sharing_app:fleet")

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / "worker.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "redraft", *words],
                env=self.environment,
                cwd=self.home,
                stdout=output,
                stderr=output,
            )
        self.workers.append(process)
        return process

    def learn(self, content: Any = FAILURE, **changed: Any) -> str:
        """Write the file of a lesson, and return its id."""
        return self.lessons.add(lesson(content, **({"agent": "clerk"} | changed))).id

    def texts(self) -> dict[str, str]:
        """Return the texts of the agent's files, by their paths."""
        root = self.home / "memory" / "reflections" / "clerk"
        return {str(one.relative_to(root)): one.read_text() for one in root.rglob("*.md")}

    def said(self) -> str:
        """Return what its processes printed."""
        return (self.home / "worker.log").read_text()

    def calls(self, program: str) -> list[dict[str, Any]]:
        """Return the calls of a model that a program made here."""
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else ()
        return [one for one in lines if (one["machine"], one["program"]) == (self.name, program)]

    def stop(self) -> None:
        """Stop its processes, gracefully where they can."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.workers.clear()

    def kill(self) -> None:
        """Kill its processes."""
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.workers.clear()
