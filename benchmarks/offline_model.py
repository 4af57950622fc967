"""The default loop on a real model, beside greedy revision and best of N at the same number of calls.

`--tasks small` runs our own small tasks, `--tasks humaneval` every fourth task of HumanEval. Results go to
`--out` as they come, one line for a task and an arm, and what is there already is not run again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from _arms import ARMS, Outcome, outcome_from, outcomes_of
from _figures import arms_table, criteria_table, pairs_table
from _measure import PROJECT, options, publish
from _model import model_given, model_options
from humaneval import FILE, humaneval_tasks
from small_tasks import TASKS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from _task import BenchTask

    from redraft.protocols import ChatModel


AT_ONCE = 4
"""How many tasks run at once where a cassette answers."""


async def run(
    tasks: Iterable[BenchTask],
    arms: Sequence[str],
    model: ChatModel,
    *,
    done: Sequence[Outcome] = (),
    keep: Callable[[Outcome], None] = lambda _: None,
    at_once: int = 1,
) -> list[Outcome]:
    """Run the arms on the tasks that are not done, each outcome handed to `keep` as it comes; return all.

    `at_once` tasks run at the same time, which pays where no model but only the jail is waited for.
    """
    known = {(outcome.task, outcome.arm) for outcome in done}
    slots = asyncio.Semaphore(at_once)

    async def run_task(task: BenchTask) -> list[Outcome]:
        left = [arm for arm in arms if (task.name, arm) not in known]
        found: list[Outcome] = []
        async with slots:
            async for outcome in outcomes_of(task, left, model):
                keep(outcome)
                found.append(outcome)
        return found

    return [*done, *chain.from_iterable(await asyncio.gather(*map(run_task, tasks)))]


def keeper(out: Path | None) -> Callable[[Outcome], None]:
    """Return what tells of an outcome on stderr, and appends it to a file."""

    def keep(outcome: Outcome) -> None:
        tries = (f"{each.how}:{'-+'[each.met]}{'-+'[each.solved]}" for each in outcome.tries)
        print(f"{outcome.task:24} {outcome.arm:9} {' '.join(tries)}", file=sys.stderr, flush=True)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(outcome.to_json()) + "\n")

    return keep


def outcomes_in(file: Path) -> list[Outcome]:
    """Read the outcomes that a file holds."""
    return (
        [outcome_from(json.loads(line)) for line in file.read_text().splitlines()] if file.is_file() else []
    )


def report(outcomes: list[Outcome]) -> str:
    """Render all figures."""
    return "\n\n".join([arms_table(outcomes), pairs_table(outcomes), criteria_table(outcomes)])


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--tasks", choices=("humaneval", "small"), default="small")
    parser.add_argument("--arms", default=",".join(ARMS), help="which arms, with commas between them")
    parser.add_argument("--limit", type=int, help="only so many tasks")
    parser.add_argument(
        "--data", type=Path, default=PROJECT.parent / "shared" / "data", help="HumanEval's folder"
    )
    model_options(parser)
    parser.add_argument("--out", type=Path, help="write outcomes to this file, and go on from what is there")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    arms = given.arms.split(",")
    if unknown := [arm for arm in arms if arm not in ARMS]:
        sys.exit(f"Unknown arms {unknown}; choose out of {list(ARMS)}.")
    if given.tasks == "humaneval" and not (given.data / FILE).is_file():
        print(f"SKIPPED HumanEval: there is no {given.data / FILE}; name its folder with --data.")
        return
    tasks = list(TASKS) if given.tasks == "small" else humaneval_tasks(given.data)
    tasks = tasks[: given.limit]
    done = outcomes_in(given.out) if given.out else []
    names = {task.name for task in tasks}
    done = [outcome for outcome in done if outcome.task in names and outcome.arm in arms]
    complete = len(done) == len(tasks) * len(arms)
    model = None if complete else model_given(given)
    if model is None:
        outcomes = done
    else:
        at_once = AT_ONCE if given.cassette else 1
        outcomes = asyncio.run(run(tasks, arms, model, done=done, keep=keeper(given.out), at_once=at_once))
    publish(f"offline-{given.tasks}", report(outcomes), write=given.write)


if __name__ == "__main__":
    main()
