"""Commands of Redraft in real processes: start, kill and stop them, and read what they print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).parent.parent
WITHOUT_PRIVILEGES = ["setpriv", "--bounding-set=-all"] if os.name == "posix" and os.geteuid() == 0 else []
"""The beginning of a command for which permissions count, for root, too."""


class Processes:
    """The processes of a folder, which share an `environment` and a log of what they print."""

    def __init__(self, folder: Path, **environment: object) -> None:
        self.folder = folder
        self.output = folder / "processes.log"
        self.environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.running: list[subprocess.Popen[bytes]] = []
        self.set(**environment)

    def set(self, **environment: object) -> None:
        """Change the environment of processes that are started from now on."""
        self.environment |= {name: str(value) for name, value in environment.items()}

    def run(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command."""
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "redraft", *words],
                env=self.environment,
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        self.running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process as a machine dies."""
        process.kill()
        process.wait()
        self.running.remove(process)

    def stop(self) -> None:
        """Stop all processes, gracefully where they can."""
        for process in self.running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()

    def said(self) -> str:
        """Return what the processes printed."""
        with suppress(FileNotFoundError):
            return self.output.read_text("utf-8", "replace")
        return ""
