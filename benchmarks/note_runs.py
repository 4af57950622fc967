"""The same task twenty times on a real model, with notes from run to run and without them.

The task says what to do, but not in which form; its criteria check the form. No run has a second try, so only
the note can carry what was wrong into the next run. Seeds decide the order of the inputs, and which runs a
trial leaves without the note.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from _arms import Replies, Samples
from _measure import table
from _memory import Benchmark, MemoryRun, Metered, Series, in_order_of, mean_of
from _rows import code_version
from note_families import NOTE_FAMILIES
from tuning_families import TUNING_NOTES

from redraft import Ensemble, MemoryStore, Task
from redraft._texts import as_text
from redraft.notes import InMemoryReflectionStore, TaskIdentity
from redraft.notes.strategy import size_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from note_families import NoteFamily

VERSION = 1
"""To be raised when an arm, a task or a check changes what it does."""


async def runs_of(
    family: NoteFamily, arm: str, seed: int, inputs: Mapping[str, Mapping[str, str]], replies: Replies
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
    chosen = (NOTE_FAMILIES | TUNING_NOTES)[family]
    named = {f"{family}-{number}": values for number, values in enumerate(chosen.inputs, 1)}
    inputs = dict(in_order_of(seed, list(named.items())))
    return [Series(tuple(inputs), arm, seed, partial(runs_of, chosen, arm, seed, inputs))]


def report(runs: Sequence[MemoryRun]) -> str:
    return f"{means_table(runs)}\n\n{gains_table(runs)}\n\n{last_notes(runs)}"


def means_table(runs: Sequence[MemoryRun]) -> str:
    """Show the scores of runs without notes, of those that were given one, and of the others beside these."""
    rows: list[tuple[object, ...]] = []
    for family in dict.fromkeys(run.family for run in runs):
        for what, group in groups_of([run for run in runs if run.family == family]).items():
            if not group:
                continue
            scores = {(run.task, run.seed): run.score or 0.0 for run in group}
            right = sum(run.solved for run in group)
            calls = sum(run.calls for run in group) / len(group)
            tokens = sum(run.input_tokens + run.output_tokens for run in group) / len(group)
            rows.append(
                (
                    family,
                    what,
                    len(group),
                    mean_of(scores),
                    f"{right} ({right / len(group):.0%})",
                    max(run.given for run in group),
                    max(run.own for run in group),
                    f"{calls:.1f}",
                    f"{tokens:.0f}",
                )
            )
    head = ("task", "arm", "runs", "mean score (95 %)", "right", "tokens given, at most",
            "of these the note's own", "calls a run", "tokens a run")  # fmt: skip
    return table(head, rows)


def groups_of(runs: Sequence[MemoryRun]) -> dict[str, list[MemoryRun]]:
    """Sort the runs of a task by whether they had notes, and were given one."""
    noted = [run for run in runs if run.arm == "with notes"]
    return {
        "without notes": [run for run in runs if run.arm == "without"],
        "with notes: given a note": [run for run in noted if run.given],
        "with notes: first and control runs": [run for run in noted if not run.given],
    }


def gains_table(runs: Sequence[MemoryRun]) -> str:
    """Compare each run that was given a note with the run on the same input without notes."""
    rows: list[tuple[object, ...]] = []
    for family in dict.fromkeys(run.family for run in runs):
        groups = groups_of([run for run in runs if run.family == family])
        without = {(run.task, run.seed): run for run in groups["without notes"]}
        pairs = {
            key: (run, without[key])
            for run in groups["with notes: given a note"]
            if (key := (run.task, run.seed)) in without
        }
        if pairs:
            scores = {key: (one.score or 0.0) - (other.score or 0.0) for key, (one, other) in pairs.items()}
            right = {key: one.solved - other.solved for key, (one, other) in pairs.items()}
            rows.append((family, len(pairs), mean_of(scores, sign="+"), mean_of(right, sign="+")))
    head = ("task", "pairs", "score with the note - without (95 %)", "share right, likewise")
    return table(head, rows)


def last_notes(runs: Sequence[MemoryRun]) -> str:
    """Quote the last note that a run was given, of each task with its first seed."""
    found: dict[str, MemoryRun] = {}
    for run in sorted(runs, key=lambda run: (-run.seed, run.place)):
        if run.memory:
            found[run.family] = run
    quoted = [
        f"The note on {family} in run {run.place}:\n\n```\n{run.memory}\n```"
        for family, run in sorted(found.items())
    ]
    return "\n\n".join(quoted) or "No run was given a note."


BENCHMARK = Benchmark(
    __doc__,
    "note-runs",
    tuple(NOTE_FAMILIES),
    ("without", "with notes"),
    lambda: code_version(VERSION, also=["notes"]),
    series,
    report,
    tuning=tuple(TUNING_NOTES),
)

if __name__ == "__main__":
    BENCHMARK.main()
