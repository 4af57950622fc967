"""Recorded loops of others, replayed through `reflect`: the same versions and end, and a better choice.

Three recordings with GPT-3.5 answer instead of a model. The loop sees what the authors' loop saw of each
attempt (whether a visible test failed) and `v_visible`, the share of visible tests that it passes; the hidden
tests score at the end.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _measure import PROJECT, options, publish, table

from redraft import ReflectionPattern, reflect
from redraft.loop.stop import quality_met

if TYPE_CHECKING:
    from redraft.protocols import RunContext

FILE = "code_trajectories.jsonl.gz"


Attempt = dict[str, Any]
Judge = Callable[[Attempt], dict[str, Any]]


@dataclass(frozen=True)
class Recording:
    """One recorded run: the most revisions its authors allowed, and the figures that a replay must give.

    `latest` and `selected` are shares of tasks solved: by the last attempts, exactly, and by what the default
    selection picks, at least.
    """

    revisions: int
    latest: float
    selected: float


RECORDINGS = {
    "reflexion-gpt35-humaneval": Recording(9, 0.677, 0.689),
    "reflexion-gpt35-mbpp": Recording(9, 0.761, 0.758),
    "ldb-gpt35-humaneval": Recording(10, 0.829, 0.835),
}


def as_recorded(attempt: Attempt) -> dict[str, Any]:
    """Judge as the authors' loop did: it was content where its feedback named no failing test."""
    feedback: str = attempt["feedback"] or ""
    failed = feedback.partition("Tests failed:")[2] if "Tests failed:" in feedback else feedback
    return {"valid": not failed.strip(), "score": attempt["v_visible"] or 0.0, "errors": failed.strip()}


def by_visible(attempt: Attempt) -> dict[str, Any]:
    """Judge by a rerun of the visible tests alone; a task without any has nothing to fail."""
    share = 1.0 if attempt["v_visible"] is None else attempt["v_visible"]
    return {"valid": share == 1.0, "score": share}


async def replay(task: str, attempts: list[Attempt], judge: Judge, revisions: int) -> Counter[str]:
    """Drive one recorded loop; count its versions, and whether the latest and the selected one are right."""

    async def generate(_prompt: str) -> str:
        return attempts[0]["code"]

    async def revise(_output: str, _evaluation: object, run: RunContext) -> str:
        return attempts[run.attempt.number - 1]["code"]

    async def evaluate(_output: str, run: RunContext) -> dict[str, Any]:
        return judge(attempts[run.attempt.number - 1])

    pattern = ReflectionPattern(
        max_iterations=revisions, until=quality_met, diversify=False, on_failure="raise"
    )
    result = await reflect(task, generate=generate, evaluate=evaluate, revise=revise, pattern=pattern)
    history = result.history
    return Counter(
        versions=len(history.versions),
        latest=attempts[history.final_version.iteration - 1]["v_hidden_pass"],
        selected=attempts[history.best_version.iteration - 1]["v_hidden_pass"],
    )


async def replay_all(rows: list[dict[str, Any]], judge: Judge, revisions: int | None) -> Counter[str]:
    """Drive all loops of a run; without `revisions` none goes on for longer than it was recorded."""
    found: Counter[str] = Counter()
    for row in rows:
        most = len(row["attempts"]) - 1 if revisions is None else revisions
        found += await replay(row["task_id"], row["attempts"], judge, most)
    return found


def failures(
    name: str, tasks: int, found: Counter[str], recording: Recording, recorded: Counter[str]
) -> list[str]:
    """Say in what a replay differs from its recording."""
    latest, selected = found["latest"] / tasks, found["selected"] / tasks
    wrong: list[str] = []
    if (found["latest"], found["versions"]) != (recorded["latest"], recorded["versions"]):
        wrong.append(
            f"{name}: {found['latest']} solved in {found['versions']} versions, "
            f"recorded were {recorded['latest']} in {recorded['versions']}."
        )
    if round(latest, 3) != recording.latest:
        wrong.append(f"{name}: the latest version solves {latest:.3f}, expected {recording.latest:.3f}.")
    if round(selected, 3) < recording.selected:
        wrong.append(f"{name}: the selection solves {selected:.3f}, expected {recording.selected:.3f}.")
    return wrong


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--data", type=Path, default=PROJECT.parent / "shared" / "data", help="the recordings"
    )
    given = parser.parse_args()
    file: Path = given.data / FILE
    if not file.is_file():
        print(f"SKIPPED replay: there is no {file}; name its folder with --data.")
        return
    with gzip.open(file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    wrong: list[str] = []
    cells: list[tuple[object, ...]] = []
    for name, recording in RECORDINGS.items():
        runs = [row for row in rows if row["run"] == name]
        tasks = len(runs)
        recorded = Counter(
            versions=sum(len(row["attempts"]) for row in runs),
            latest=sum(row["attempts"][-1]["v_hidden_pass"] for row in runs),
        )
        same = asyncio.run(replay_all(runs, as_recorded, recording.revisions))
        visible = asyncio.run(replay_all(runs, by_visible, None))
        wrong += failures(name, tasks, same, recording, recorded)
        cells += [_row(name, tasks, "the recorded verdict", same), _row("", tasks, "`v_visible`", visible)]
    head = ("recording", "tasks", "the loop sees", "versions", "a task", "latest solves", "selection solves")
    publish("replay", table(head, cells), write=given.write)
    if wrong:
        sys.exit("\n".join(wrong))


def _row(name: str, tasks: int, sees: str, found: Counter[str]) -> tuple[object, ...]:
    shares = (f"{found[key] / tasks:.3f}" for key in ("latest", "selected"))
    return (name, tasks, sees, found["versions"], f"{found['versions'] / tasks:.2f}", *shares)


if __name__ == "__main__":
    main()
