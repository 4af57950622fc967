"""Measure alternatives in turns, take medians, print tables and write them into the README."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from timeit import timeit
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence


PROJECT = Path(__file__).resolve().parents[1]
README = PROJECT / "benchmarks" / "README.md"


def paired(subjects: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time each subject `repeats` times in CPU seconds of this process, in turns, after one untimed round.

    The order alternates, so that a machine that gets slower or faster favours neither.
    """
    for run in subjects.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for repeat in range(repeats):
        names = list(subjects)
        for name in names if repeat % 2 else reversed(names):
            started = process_time()
            subjects[name]()
            times[name].append(process_time() - started)
    return times


def median_gap(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the differences between two subjects that were measured by turns."""
    return median(one - other for one, other in zip(times, base, strict=True))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Render a markdown table; the first column is text, the others are aligned to the right."""
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    return "\n".join([*lines, *(_line(row) for row in rows)])


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def verdict(value: float, target: float) -> str:
    """Say whether a figure stays within its target."""
    return "met" if value <= target else "**missed**"


def options(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the one option that every benchmark has."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true", help="put the result into benchmarks/README.md")
    return parser


def publish(section: str, text: str, *, write: bool, stem: str = "") -> None:
    """Print a result; with `write`, put it into its section of the README, with command, date and machine.

    A section that is missing is added after the last of those whose names begin with `stem`.
    """
    print(text, flush=True)
    if write:
        command = " ".join(arg for arg in sys.argv[1:] if arg != "--write")
        script = Path(sys.argv[0]).name
        stamp = (
            f"`{f'python benchmarks/{script} {command}'.strip()}`, {datetime.now(UTC):%Y-%m-%d}, {_machine()}"
        )
        README.write_text(_with_section(README.read_text(), section, f"{stamp}\n\n{text}", stem))


def _with_section(readme: str, section: str, body: str, stem: str = "") -> str:
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    others = [*re.finditer(f"<!-- {re.escape(stem)}.*: end -->\n", readme)] if stem else []
    if not pattern.search(readme) and others:
        place = others[-1].end()
        return f"{readme[:place]}\n{begin}\n{body}\n{end}\n{readme[place:]}"
    if not pattern.search(readme):
        raise SystemExit(f"{README.name} has no section {section!r}: it needs the lines {begin} and {end}.")
    return pattern.sub(lambda _: f"{begin}\n{body}\n{end}", readme)


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {_speed():.0f} ms"
    )


def _speed() -> float:
    """Time a million additions, in milliseconds: interpreters of one version differ by half and more."""
    return min(timeit("x += 1", "x = 0", number=1_000_000) for _ in range(5)) * 1e3


@contextmanager
def server(*, durable: bool = False) -> Generator[str | None]:
    """Give the URL of REDRAFT_TEST_POSTGRES, or of a server that the tests' package starts; None without.

    A `durable` one waits for its disk.
    """
    if given := os.environ.get("REDRAFT_TEST_POSTGRES"):
        yield given
        return
    sys.path.insert(0, str(PROJECT / "tests"))
    from support.postgres_server import CannotRunError, Server

    try:
        started = Server(durable=durable)
        started.start()
    except CannotRunError as error:
        print(f"No PostgreSQL server can run here: {error}.", file=sys.stderr)
        yield None
        return
    try:
        yield started.url()
    finally:
        started.remove()
