"""Tests that a model wrote for itself: what the default makes of recorded loops that revised by such tests.

A recording holds, for each task, the tests that the authors' loop could see and all its attempts. Here the
tests are what a model replies to `generated_tests`, and the attempts are the drafts: the evaluator runs the
tests in the jail, and the loop chooses. Hidden tests score at the end.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _measure import PROJECT, options, publish, table

from redraft import QualityCriterion, ReflectionEvaluation, ReflectionPattern, ScriptedModel, Task, reflect
from redraft.evaluate.panel import panel
from redraft.loop.stop import quality_met
from redraft.sandbox.jail import ProcessJail

if TYPE_CHECKING:
    from redraft.protocols import RunContext

TRAJECTORIES, TASKS = "code_trajectories.jsonl.gz", "code_tasks.jsonl.gz"
MOST_TESTS = 20
SECONDS = 4
AT_ONCE = 4

Row = dict[str, Any]


@dataclass(frozen=True)
class Replay:
    """One recorded loop as a run of Redraft; each attempt is judged once, however often the loop is run."""

    prompt: str
    tests: list[str]
    attempts: list[Row]
    preamble: str = ""
    judged: dict[str, ReflectionEvaluation] = field(default_factory=dict)

    async def chosen(self, pattern: ReflectionPattern) -> tuple[Row, int]:
        """Return the attempt that the loop chooses, and how many it looked at."""
        criterion = QualityCriterion(
            "tests",
            evaluator="generated_tests",
            evaluator_config={"count": MOST_TESTS, "timeout": SECONDS},
        )
        writer = ScriptedModel(lambda _: "\n".join(self.tests))
        judge = panel([criterion], model=writer, run_command=ProcessJail())

        async def generate(_prompt: str) -> str:
            return self._code(1)

        async def revise(_output: str, _evaluation: object, run: RunContext) -> str:
            return self._code(run.attempt.number)

        async def evaluate(output: str, run: RunContext) -> ReflectionEvaluation:
            if output not in self.judged:
                self.judged[output] = await judge(output, run)
            return self.judged[output]

        result = await reflect(
            Task(self.prompt), generate=generate, evaluate=evaluate, revise=revise, pattern=pattern
        )
        history = result.history
        return self.attempts[history.best_version.iteration - 1], len(history.versions)

    def _code(self, number: int) -> str:
        return self.preamble + self.attempts[number - 1]["code"]


def replay_of(row: Row, prompts: dict[str, str]) -> Replay:
    """Return a recorded loop; without the text of its task, that is the names which its tests use."""
    tests: list[str] = row["visible_tests"]
    prompt = prompts.get(row["task_id"]) or " ".join(re.findall(r"\w+", "\n".join(tests))) or row["task_id"]
    return Replay(prompt, tests, row["attempts"], row.get("preamble", ""))


def best_by_visible(attempts: list[Row]) -> Row:
    """Return the attempt that passes the largest share of the visible tests; the earliest of equals."""
    return max(attempts, key=lambda attempt: -1.0 if attempt["v_visible"] is None else attempt["v_visible"])


async def choices(row: Row, prompts: dict[str, str], turn: asyncio.Semaphore) -> Counter[str]:
    """Count whether each way to choose picks an attempt that is right, and the versions that were made."""
    attempts: list[Row] = row["attempts"]
    replay, revisions = replay_of(row, prompts), len(attempts) - 1
    every = ReflectionPattern(max_iterations=revisions, until=quality_met, diversify=False)
    default = ReflectionPattern(max_iterations=min(3, revisions), diversify=False)
    async with turn:
        chosen, versions = (attempts[0], 1) if not revisions else await replay.chosen(every)
        quick, fewer = (attempts[0], 1) if not revisions else await replay.chosen(default)
    picked = {
        "first": attempts[0],
        "last": attempts[-1],
        "best": best_by_visible(attempts),
        "chosen": chosen,
        "default": quick,
    }
    right = Counter({way: int(attempt["v_hidden_pass"]) for way, attempt in picked.items()})
    return right + Counter(tasks=1, attempts=len(attempts), versions=versions, fewer=fewer)


async def replay_all(rows: list[Row], prompts: dict[str, str]) -> dict[str, Counter[str]]:
    """Replay all recorded loops; return what each recording adds up to."""
    turn = asyncio.Semaphore(AT_ONCE)
    counted = await asyncio.gather(*(choices(row, prompts, turn) for row in rows))
    found: dict[str, Counter[str]] = {}
    for row, count in zip(rows, counted, strict=True):
        found.setdefault(row["run"], Counter()).update(count)
    return found


WAYS = ("first", "last", "best", "chosen", "default")
HEAD = ("recording", "tasks", "first attempt", "last", "best by visible", "Redraft's choice", "default loop")


def rendered(found: dict[str, Counter[str]]) -> str:
    """Render the shares of tasks solved, and how many attempts that took."""
    shares = [
        (name, count["tasks"], *(f"{count[way] / count['tasks']:.3f}" for way in WAYS))
        for name, count in found.items()
    ]
    looked_at = [
        (name, *(f"{count[key] / count['tasks']:.2f}" for key in ("attempts", "versions", "fewer")))
        for name, count in found.items()
    ]
    head = ("attempts a task", "recorded", "looked at for the choice", "by the default loop")
    return f"{table(HEAD, shares)}\n\n{table(head, looked_at)}"


def failures(found: dict[str, Counter[str]]) -> list[str]:
    """Say where the choice is worse than the first attempt or the best by the visible tests."""
    return [
        f"{name}: the choice solves {count['chosen']} tasks, {other} solves {count[key]}."
        for name, count in found.items()
        for key, other in (("first", "the first attempt"), ("best", "the best by visible tests"))
        if count["chosen"] < count[key]
    ]


def read(file: Path) -> list[Row]:
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--data", type=Path, default=PROJECT.parent / "shared" / "data", help="the recordings"
    )
    given = parser.parse_args()
    missing = [name for name in (TRAJECTORIES, TASKS) if not (given.data / name).is_file()]
    if missing:
        print(f"SKIPPED generated_tests: no {missing[0]} in {given.data}; name the folder with --data.")
        return
    prompts = {row["task_id"]: row["prompt"] for row in read(given.data / TASKS)}
    found = asyncio.run(replay_all(read(given.data / TRAJECTORIES), prompts))
    publish("generated_tests", rendered(found), write=given.write)
    if wrong := failures(found):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
