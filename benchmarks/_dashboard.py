"""A dashboard that serves, what it takes, and what a browser does with the page of a run at work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

TOKEN = "of-the-benchmark"  # noqa: S105 (of a server that lives for minutes)


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Run the dashboard of a folder."""
    command = [sys.executable, "-m", "redraft", "ui", "--no-open", "--port", "0", "--token", TOKEN]
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = next(found[0] for line in process.stderr if (found := re.search(r"http://[0-9.:]+", line)))
        yield Server(address, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


class Server(NamedTuple):
    """Ask a dashboard, and say what it takes."""

    address: str
    pid: int

    def open(self, path: str) -> Any:
        """Return the answer to a request, to be read."""
        request = Request(self.address + path, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 (always http)
        return urlopen(request, timeout=60)  # noqa: S310 (always http)

    def text(self, path: str) -> str:
        """Return a page."""
        with self.open(path) as answer:
            return answer.read().decode()

    def milliseconds(self, path: str) -> float:
        """Return how long it takes until a page is here."""
        started = perf_counter()
        self.text(path)
        return (perf_counter() - started) * 1e3

    def read_ahead(self) -> float:
        """Wait until all runs were looked through; return the seconds."""
        started = perf_counter()
        while json.loads(self.text("/spend.json"))["read"] is not None:
            sleep(0.5)
        seconds = perf_counter() - started
        while self._cpu_within(1.0) > 0.05:  # what else it reads ahead
            pass
        return seconds

    def _cpu_within(self, seconds: float) -> float:
        before = self.cpu()
        sleep(seconds)
        return self.cpu() - before

    def cpu(self) -> float:
        """Return the seconds of CPU that it took until now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mebibytes(self) -> float:
        """Return how much memory it has."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def watch(self, run_id: str, ends: Event, times: list[float]) -> None:
        """Do what a browser does with the page of a run until that is over: listen, and read it again.

        Adds to `times` the seconds of each reading.
        """
        while not ends.is_set():  # until the run is kept
            try:
                page = self._read(run_id, times)
                break
            except HTTPError:
                sleep(0.01)
        else:
            return
        found = re.search(r'data-events="([^"]+)" data-mark="([^"]*)"', page)
        if found is None:
            return
        events, mark = map(unescape, found.groups())
        with self.open(f"{events}?since={quote(mark)}") as stream:
            for line in stream:
                if line.startswith(b"event: change") and "data-events" not in self._read(run_id, times):
                    return

    def _read(self, run_id: str, times: list[float]) -> str:
        started = perf_counter()
        page = self.text(f"/runs/{run_id}")
        times.append(perf_counter() - started)
        return page
