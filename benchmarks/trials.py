"""Simulate trials: how often useless notes and lessons are taken out of use, and how soon harmful ones are.

No model is needed. The first table calls the test directly, many times; the second one runs `Ensemble` and
`Lessons` on it, with the same scores, a few times. The third table is about lessons that are not obeyed.
"""

from __future__ import annotations

import asyncio
from random import Random
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from _measure import options, publish, table

from redraft.lessons.obedience import Obedience
from redraft.memory.effects import control_share, payoff_of

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = 300
"""Simulated tasks a row."""

FIRST = 4
"""The first run that may go without the note."""


def gauss(mean, effect, since=0):
    """Scores around a mean, to which the note adds its effect from some run on."""
    return lambda chance, run, noted: min(
        1.0, max(0.0, chance.gauss(mean + effect * (noted and run >= since), 0.1))
    )


def passes(share, effect, since=0):
    """Scores of tasks that pass or fail."""
    return lambda chance, run, noted: float(chance.random() < share + effect * (noted and run >= since))


ROWS = {
    "useless, gauss .7": (gauss(0.7, 0), 200),
    "useless, pass .7": (passes(0.7, 0), 200),
    "useless, pass .8": (passes(0.8, 0), 200),
    "useless, pass .9": (passes(0.9, 0), 200),
    "useless, pass .95": (passes(0.95, 0), 200),
    "helps by .04, pass .9": (passes(0.9, 0.04), 200),
    "harms by .1, gauss .7": (gauss(0.7, -0.1), 200),
    "harms by .3, gauss .7": (gauss(0.7, -0.3), 200),
    "harms by .3, pass .7": (passes(0.7, -0.3), 200),
    "harms by .5, pass .7": (passes(0.7, -0.5), 200),
    "turns harmful at run 60, gauss .8 to .05": (gauss(0.8, -0.75, 60), 260),
    "turns harmful at run 60, pass .9 to .3": (passes(0.9, -0.6, 60), 260),
}


def rolled_back_at(score, runs, seed, share=0.2):
    """Simulate one task; return the run that ends in a rollback, or None, and the control share."""
    chance, history, controls = Random(seed), [], 0
    present = control_share(share, history, payoff_of([history]))
    for run in range(FIRST, runs + 1):
        noted = chance.random() >= present
        history.append((noted, score(chance, run, noted)))
        if not noted:
            controls += 1
            payoff = payoff_of([history])
            if payoff.verdict == "hurts":
                return run, controls / len(history)
            present = control_share(share, history, payoff)
    return None, controls / len(history)


# --- through Ensemble and Lessons ---------------------------------------------------------------------------

THROUGH = 20
"""Tasks a row that are run through `Ensemble` or `Lessons`."""
NOTED = {
    "useless, pass .9": (passes(0.9, 0), 100),
    "harms by .3, gauss .7": (gauss(0.7, -0.3), 100),
    "harms by .5, pass .7": (passes(0.7, -0.5), 100),
}
LEARNED = {
    **NOTED,
    "useless, gauss .7": (gauss(0.7, 0), 100),
    "helps by .3, gauss .6": (gauss(0.6, 0.3), 100),
}
BEFORE = 20
"""Runs of an agent before it has the lesson."""


async def noted_task(score: Callable[[Random, int, bool], float], runs: int, seed: int) -> int | None:
    """Run a task through `Ensemble`; return the run that rolled its notes back.

    Raises `AssertionError` unless the test of the first table says the same at the same run.
    """
    from redraft import Ensemble, InMemoryReflectionStore, QualityCriterion, ReflectionConfig, Task
    from redraft.notes import TaskIdentity, TaskReflection

    chance, store, number = Random(seed), InMemoryReflectionStore(), 0

    def judged(output: str) -> float:
        return score(chance, number, output == "with a note")

    task = Task(
        f"Do task {seed}.",
        handler=lambda asked: "with a note" if "Task Improvement Notes" in asked.prompt else "without",
        criteria=[QualityCriterion("good", evaluator="function", evaluator_config={"function": judged})],
        reflect=ReflectionConfig(
            strategy=lambda subject: TaskReflection(subject.task.description, "", (), ("Be brief.",))
        ),
    )
    ensemble, history = Ensemble(None, [task], store, keep=False), []
    for number in range(1, runs + 1):
        [result] = (await ensemble.run()).results
        if result.arm == "none":  # before any note
            continue
        evaluation = result.result.history.best_version.evaluation
        history.append((result.arm == "note", evaluation.overall_score))
        hurts = result.arm == "control" and payoff_of([history]).verdict == "hurts"
        noted = await store.noted(TaskIdentity.of(task))
        assert noted is not None
        assert noted.off == hurts
        if hurts:
            return number
    return None


async def learned_lesson(
    score: Callable[[Random, int, bool], float], runs: int, seed: int, doubt: str
) -> tuple[str, int]:
    """Run an agent with a lesson, quarantined if there is a `doubt`; return its last status, and when."""
    from redraft import Lessons, MemoryStore, ReflectionPattern, Task, reflect
    from redraft.lessons import Partial

    chance = Random(seed)
    with TemporaryDirectory() as folder:
        lessons = Lessons(folder, store=MemoryStore(), embedder="none", auto=False)
        # A run that failed would owe a lesson of its own.
        pattern = ReflectionPattern(0, advisors=[lessons], quality_threshold=0)
        lesson, status = None, ""
        for number in range(1 - BEFORE, runs + 1):
            if number == 1:
                task = Task("Fetch the prices.", task_type="fetching")
                lesson = await lessons.record(Partial("So.", "That.", "Be brief."), task, doubt=doubt)
                status = lesson.status
            result = await reflect(
                Task(f"Fetch stock {number}.", task_type="fetching"),
                generate=lambda prompt: "with it" if "Be brief." in prompt else "without",
                evaluate=lambda output, number=number: score(chance, number, output == "with it"),
                pattern=pattern,
            )
            assert result.success is not None
            if lesson is not None and (now := (await lessons.get(lesson.id)).status) != status:
                return now, number
        await lessons.aclose()
    return status, runs


async def through() -> list[tuple[object, ...]]:
    """Run all rows of the second table."""
    rows: list[tuple[object, ...]] = []
    for name, (score, runs) in NOTED.items():
        ends = [await noted_task(score, runs, seed) for seed in range(THROUGH)]
        rows.append(_row(f"`Ensemble`: {name}", "rolled back", [one for one in ends if one is not None]))
    for kind, doubt in (("active", ""), ("quarantined", "a page said it")):
        for name, (score, runs) in LEARNED.items():
            ends = [await learned_lesson(score, runs, seed, doubt) for seed in range(THROUGH)]
            for end in ("retired", "active") if doubt else ("retired",):
                found = [number for status, number in ends if status == end]
                rows.append(_row(f"`Lessons`, {kind}: {name}", end, found))
    return rows


def _row(name: str, end: str, found: list[int]) -> tuple[object, ...]:
    return name, end, f"{len(found)} of {THROUGH}", f"{median(found):g}" if found else "-"


# --- lessons that are not obeyed ----------------------------------------------------------------------------

LESSONS = 1000
"""Simulated lessons a row."""
OBEYED = {
    "none": (0, 0),
    "5 %": (0.05, 0.05),
    "10 %": (0.1, 0.1),
    "20 %": (0.2, 0.2),
    "30 %": (0.3, 0.3),
    "50 %": (0.5, 0.5),
    "80 %": (0.8, 0.8),
    "90 %, from run 60 on none": (0.9, 0),
}
"""The share of runs that obey a lesson which they are given: of the first 59, and of all later ones."""


def stressed_and_retired_at(obeyed, seed, runs=200):
    """Simulate runs with one lesson; return the runs at which it is stressed and retired, None if never."""
    chance, history, stressed = Random(seed), [], None
    for run in range(1, runs + 1):
        history.append(chance.random() < obeyed[run >= 60])
        now = Obedience.of(history)
        if now.is_disobeyed and stressed is None:
            stressed = run
        if now.is_in_vain:
            return stressed, run
    return stressed, None


def obedience():
    """Run all rows of the third table."""
    rows = []
    for name, obeyed in OBEYED.items():
        row = [name]
        for ends in zip(*(stressed_and_retired_at(obeyed, seed) for seed in range(LESSONS)), strict=True):
            found = [run for run in ends if run is not None]
            row += [f"{100 * len(found) / LESSONS:.1f} %", f"{median(found):g}" if found else "-"]
        rows.append(row)
    return table(["runs that obey", "stressed", "median run", "retired", "median run"], rows)


def main():
    given = options(__doc__).parse_args()
    rows = []
    for name, (score, runs) in ROWS.items():
        ends = [rolled_back_at(score, runs, seed) for seed in range(TASKS)]
        found = [run for run, _ in ends if run is not None]
        soon = f"{median(found):g}" if found else "-"
        rows.append(
            (name, f"{100 * len(found) / TASKS:.1f} %", soon, f"{fmean(share for _, share in ends):.2f}")
        )
    head = ["note, scores", "rolled back", "median run", "share without it"]
    second = table(["run through, scores", "ended as", "tasks", "median run"], asyncio.run(through()))
    publish("trials", f"{table(head, rows)}\n\n{second}", write=given.write)
    publish("obedience", obedience(), write=given.write)


if __name__ == "__main__":
    main()
