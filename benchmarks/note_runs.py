"""The same task twenty times on a real model, with notes from run to run and without them.

The task says what to do, but not in which form; its criteria check the form. No run has a second try, so only
the note can carry what was wrong into the next run. Seeds decide the order of the inputs, and which runs a
trial leaves without the note.
"""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from _arms import Replies, Samples
from _measure import table
from _memory import Benchmark, MemoryRun, Metered, Series, in_order_of, mean_of
from _rows import code_version
from note_families import NOTE_FAMILIES

from redraft import Ensemble, MemoryStore, Task
from redraft._texts import as_text
from redraft.notes import InMemoryReflectionStore, TaskIdentity
from redraft.notes.strategy import size_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from _tasks import TaskFamily

VERSION = 1
"""To be raised when an arm, a task or a check changes what it does."""


async def runs_of(
    family: TaskFamily, arm: str, seed: int, inputs: Mapping[str, Mapping[str, str]], replies: Replies
) -> AsyncIterator[MemoryRun]:
    """Do the task with one input after the other, each by the name of its run."""
    task = Task(
        family.description, family.expected_output, criteria=family.criteria, reflect=arm == "with notes"
    )
    store, journal, identity = InMemoryReflectionStore(), MemoryStore(), TaskIdentity.of(task)
    for place, (name, values) in enumerate(inputs.items(), 1):
        model = Metered(Samples(replies, seed))
        ensemble = Ensemble(model, [task], store, keep=journal)
        # The id decides whether a trial leaves the run without its note.
        [done] = (await ensemble.run(values, run_id=f"{family.name}-{seed}-{place}")).results
        run = done.result
        note = None if done.note is None else await store.revision(identity, done.note)
        yield model.run(
            name,
            arm,
            family.name,
            place,
            score=run.history.versions[0].evaluation.overall_score,
            solved=await family.solves(values, as_text(done.output), met=run.success),
            given=sum(advice.tokens for advice in run.advice),
            own=0 if note is None else size_of(note.reflection, task.plain()),
            memory="\n\n".join(advice.text for advice in run.advice),
            note=done.arm,
        )


def series(family: str, arm: str, seed: int) -> list[Series]:
    """Return the runs of a task, with its inputs in the order of a seed, as one series."""
    chosen = NOTE_FAMILIES[family]
    named = {f"{family}-{number}": values for number, values in enumerate(chosen.inputs, 1)}
    inputs = dict(in_order_of(seed, list(named.items())))
    return [Series(tuple(inputs), arm, seed, partial(runs_of, chosen, arm, seed, inputs))]


def report(runs: Sequence[MemoryRun]) -> str:
    """Compare the runs without notes, those with a note, and pairs of both on the same input."""
    rows: list[tuple[object, ...]] = []
    for family in dict.fromkeys(run.family for run in runs):
        groups = groups_of([run for run in runs if run.family == family])
        without, noted = groups["without notes"], groups["with a note"]
        before = {(run.task, run.seed): run for run in without}
        pairs = [(run, before[key]) for run in noted if (key := (run.task, run.seed)) in before]
        if not pairs:
            continue
        scores = {(one.task, one.seed): (one.score or 0.0) - (other.score or 0.0) for one, other in pairs}
        right = {(one.task, one.seed): one.solved - other.solved for one, other in pairs}
        rows.append(
            (
                family,
                *(f"{sum(run.solved for run in group)} of {len(group)}" for group in (without, noted)),
                mean_of(right, sign="+"),
                mean_of(scores, sign="+"),
                max(run.given for run in noted),
                *(
                    f"{fmean(run.input_tokens + run.output_tokens for run in group):.0f}"
                    for group in (without, noted)
                ),
            )
        )
    head = (
        "task",
        "right without notes",
        "right with a note",
        "share right, difference (95 %)",
        "score, difference (95 %)",
        "note's tokens, at most",
        "tokens a run without",
        "tokens a run with",
    )
    return table(head, rows) if rows else "No run was given a note."


def groups_of(runs: Sequence[MemoryRun]) -> dict[str, list[MemoryRun]]:
    """Sort the runs of a task by whether they had notes, and got one."""
    noted = [run for run in runs if run.arm == "with notes"]
    return {
        "without notes": [run for run in runs if run.arm == "without"],
        "with a note": [run for run in noted if run.given],
        "first and control runs": [run for run in noted if not run.given],
    }


BENCHMARK = Benchmark(
    __doc__,
    "note-runs",
    tuple(NOTE_FAMILIES),
    ("without", "with notes"),
    lambda: code_version(VERSION, also=["notes"]),
    series,
    report,
)

if __name__ == "__main__":
    BENCHMARK.main()
