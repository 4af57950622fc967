"""The default loop on a real model, beside greedy revision and best of N at the same number of calls.

`--tasks small` runs our own small tasks, `--tasks humaneval` every fourth task of HumanEval. Results go to
`--out` as they come, one line for a task and an arm, and what is there already is not run again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from _arms import ARMS, Outcome, outcome_from, scored
from _figures import arms_table, criteria_table, pairs_table
from _measure import PROJECT, options, publish
from _model import benchmark_model
from humaneval import FILE, humaneval_tasks
from small_tasks import TASKS

from redraft import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from _task import BenchTask

    from redraft.core.protocols import ChatModel


async def run(
    tasks: Iterable[BenchTask], arms: Iterable[str], model: ChatModel, out: Path | None, done: list[Outcome]
) -> list[Outcome]:
    """Run the arms on the tasks that are not done; return all outcomes, each written to `out` as it comes."""
    outcomes = list(done)
    known = {(outcome.task, outcome.arm) for outcome in done}
    for task in tasks:
        for arm in arms:
            if (task.name, arm) in known:
                continue
            outcome = await scored(task, await ARMS[arm](task, model))
            outcomes.append(outcome)
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(outcome.to_json()) + "\n")
            tries = " ".join(
                f"{each.how}:{'+' if each.met else '-'}{'+' if each.solved else '-'}"
                for each in outcome.tries
            )
            print(f"{task.name:24} {arm:9} {tries}", file=sys.stderr, flush=True)
    return outcomes


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
    parser.add_argument("--model", help="such as local:qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int, default=2, help="of a local model")
    parser.add_argument("--cassette", help="answer from this recording instead of a model")
    parser.add_argument("--record", help="record the model's calls to this file")
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
    try:
        complete = len(done) == len(tasks) * len(arms)
        model = (
            None if complete else benchmark_model(given.model, given.threads, given.cassette, given.record)
        )
    except ConfigError as error:
        sys.exit(str(error))
    outcomes = done if model is None else asyncio.run(run(tasks, arms, model, given.out, done))
    publish(f"offline-{given.tasks}", report(outcomes), write=given.write)


if __name__ == "__main__":
    main()
