"""The same task twenty times on a real model, with notes from run to run and without them.

The task says what to extract, but not in which form; six criteria check the form. No run has a second try, so
only the note can carry what was wrong into the next run.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from _measure import options, publish, table
from _model import model_given, model_options
from note_families import ORDERS

from redraft import Ensemble, InMemoryReflectionStore, Task, TaskIdentity

if TYPE_CHECKING:
    from redraft.protocols import ChatModel


async def scores(model: ChatModel, *, reflect: bool) -> tuple[list[float], list[bool], str]:
    """Return what each run scored, whether its form was right, and the last note."""
    task = Task(ORDERS.description, ORDERS.expected_output, criteria=ORDERS.criteria, reflect=reflect)
    store = InMemoryReflectionStore()
    ensemble = Ensemble(model=model, tasks=[task], reflection_store=store, keep=False)
    found: list[float] = []
    right: list[bool] = []
    for inputs in ORDERS.inputs:
        result = await ensemble.run(inputs=inputs)
        run = result.results[0].result
        assert run is not None
        found.append(run.history.versions[0].evaluation.overall_score or 0.0)
        right.append(run.success)
        print(f"{'with' if reflect else 'without'} {found[-1]:.2f} {right[-1]}", file=sys.stderr, flush=True)
    note = await store.retrieve(TaskIdentity.of(task))
    return found, right, "" if note is None else "\n".join([note.refined_description, *note.suggestions])


def report(without: tuple[list[float], list[bool], str], noted: tuple[list[float], list[bool], str]) -> str:
    """Render both curves: the score of each run, and how many were right so far."""
    rows: list[list[object]] = []
    for number in range(len(ORDERS.inputs)):
        cells: list[object] = [number + 1]
        for scored, right, _ in (without, noted):
            cells += [f"{scored[number]:.2f}", sum(right[: number + 1])]
        rows.append(cells)
    rows.append(
        [
            "mean",
            *(cell for scored, right, _ in (without, noted) for cell in (f"{_mean(scored):.2f}", sum(right))),
        ]
    )
    return table(["run", "without: score", "right so far", "with notes: score", "right so far"], rows)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


async def run(model: ChatModel) -> str:
    without, noted = await scores(model, reflect=False), await scores(model, reflect=True)
    print(f"\nThe last note:\n{noted[2]}", file=sys.stderr)
    return report(without, noted)


def main() -> None:
    parser = options(__doc__)
    model_options(parser)
    given = parser.parse_args()
    model = model_given(given)
    publish("note-runs", asyncio.run(run(model)), write=given.write)


if __name__ == "__main__":
    main()
