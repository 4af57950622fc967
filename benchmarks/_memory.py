"""Runs with memory and without: their rows, what they cost, and the tables that compare them.

Runs that build on each other are a series: an agent with its lessons, a task with its notes. A series whose
rows are not all there is run again from its beginning, which pays only for replies that are not known yet.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from _arms import TEMPERATURE, Replies, Samples
from _measure import PROJECT, options, publish, table
from _rows import append_row, rows_in
from offline_model import add_model_options, by_arm, interval, model_of

from redraft import ConfigError, ReflectionPattern
from redraft._codec import to_json
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from _tasks import BenchTask

    from redraft import ReflectionEvaluation
    from redraft.protocols import ChatReply, ChatRequest

SEEDS = (1, 2, 3)
"""Of the order in which a series meets its tasks, and of answers at a temperature."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MemoryRun:
    """One run of a task in one arm.

    `place` is its number in its series, from 1; `score` what the visible checks give the first answer, and
    `solved` whether what was returned is right. `calls` and tokens are of all calls, of which `reflections`
    wrote down what was learned. `given` counts the tokens of notes or lessons in the prompt, and `own`
    those of a note without its frame; `memory` is their text, and `note` says why a note was given or not.
    `met` says whether the answer meets all visible checks, None where that is not recorded.
    """

    task: str
    arm: str
    seed: int
    family: str
    place: int
    score: float | None
    solved: bool
    calls: int
    reflections: int
    input_tokens: int
    output_tokens: int
    given: int = 0
    own: int = 0
    memory: str = ""
    note: str = ""
    met: bool | None = None
    model: str = ""
    version: str = ""

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        """What makes a run the same: it is not run again."""
        return self.task, self.arm, self.seed, self.model, self.version


@dataclass(slots=True, eq=False)
class Metered:
    """A model whose calls and tokens are counted; `error` is what a call raised last."""

    samples: Samples
    calls: int = 0
    reflections: int = 0
    usage: TokenUsage = NOTHING_USED
    error: Exception | None = None

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Give the next sample for a request."""
        try:
            reply = await self.samples(request)
        except Exception as error:
            self.error = error  # a run may go on without its reflection, but a measurement may not
            raise
        self.calls += 1
        self.reflections += request.role == "reflection"
        self.usage += reply.usage
        return reply

    def run(self, task: str, arm: str, family: str, place: int, **found: Any) -> MemoryRun:
        """Return the row of a run that made all these calls; raises the error of a call that failed."""
        if self.error is not None:
            raise self.error
        return MemoryRun(
            task,
            arm,
            self.samples.seed,
            family,
            place,
            calls=self.calls,
            reflections=self.reflections,
            input_tokens=self.usage.input_tokens,
            output_tokens=self.usage.output_tokens,
            **found,
        )


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of an arm with one seed that build on each other; `start` makes them in the order of `tasks`."""

    tasks: tuple[str, ...]
    arm: str
    seed: int
    start: Callable[[Replies], AsyncIterator[MemoryRun]]


def in_order_of(seed: int, items: Sequence[T]) -> list[T]:
    """Return the items in the order of a seed."""
    return Random(seed).sample(items, len(items))


async def run_all(
    series: Iterable[Series],
    replies: Replies,
    *,
    model: str = "",
    version: str = "",
    done: Iterable[MemoryRun] = (),
    keep: Callable[[MemoryRun], None] = lambda _: None,
) -> list[MemoryRun]:
    """Return the runs of all series; those that are not `done` are made, and handed to `keep`."""
    known = {run.key: run for run in done}
    found: list[MemoryRun] = []
    for each in series:
        keys = [(task, each.arm, each.seed, model, version) for task in each.tasks]
        if not all(key in known for key in keys):
            async for made in each.start(replies):
                run = replace(made, model=model, version=version)
                if run.key not in known:
                    keep(run)
                known[run.key] = run
        found += [known[key] for key in keys]
    return found


# --- without memory -----------------------------------------------------------------------------------------


async def sampled(
    task: BenchTask, opening: ChatRequest, model: Metered, calls: int
) -> tuple[str, list[ReflectionEvaluation]]:
    """Ask the same until an answer passes the visible checks, first without a temperature.

    Returns the last answer, and the verdicts on all of them.
    """
    pattern = ReflectionPattern(quality_criteria=task.criteria)
    verdicts: list[ReflectionEvaluation] = []
    text = ""
    for number in range(calls):
        text = (await model(replace(opening, temperature=TEMPERATURE if number else None))).text
        verdicts.append(await pattern.reflect(text))
        if verdicts[-1].satisfactory:
            break
    return text, verdicts


async def solves(task: BenchTask, output: str, *, met: bool) -> bool:
    """Say whether an output that meets the visible checks, or not, is right."""
    return met and (task.hidden is None or await task.hidden(output))


# --- tables -------------------------------------------------------------------------------------------------


def arms_table(runs: Sequence[MemoryRun]) -> str:
    """Show for each family and arm how many tasks were solved, and at what cost."""
    rows: list[tuple[object, ...]] = []
    for family, of_family in families_of(runs).items():
        for arm, found in by_arm(of_family).items():
            if not found:
                continue
            spread = interval({key: run.solved for key, run in found.items()})
            tasks, seeds = len({task for task, _ in found}), len({seed for _, seed in found})
            several = list(found.values())
            solved = sum(run.solved for run in several)
            tokens = sum(run.input_tokens + run.output_tokens for run in several)
            rows.append(
                (
                    family,
                    arm,
                    f"{tasks} x {seeds}",
                    spread.render(tasks),
                    f"{fmean(run.calls for run in several):.1f}",
                    f"{fmean(run.given for run in several):.0f}",
                    f"{tokens / solved:,.0f}" if solved else "none solved",
                )
            )
    head = ("family", "arm", "tasks x seeds", "solved (95 %)", "calls a run", "lessons' tokens a run",
            "tokens per solved")  # fmt: skip
    return table(head, rows)


def pairs_table(runs: Sequence[MemoryRun], ours: str) -> str:
    """Compare an arm with all others, run by run."""
    rows: list[tuple[object, ...]] = []
    for family, of_family in families_of(runs).items():
        arms = by_arm(of_family)
        mine = arms.pop(ours, {})
        for name, theirs in arms.items():
            if not mine:
                continue
            gain = {key: mine[key].solved - theirs[key].solved for key in mine}
            better, worse = (list(gain.values()).count(sign) for sign in (1, -1))
            tasks = len({task for task, _ in gain})
            more = interval(gain).render(tasks, "+")
            rows.append((family, f"{ours} - {name}", len(gain), better, worse, tasks, more))
    head = ("family", "pair", "runs", f"only {ours}", "only the other", "tasks", "more solved (95 %)")
    return table(head, rows)


def families_of(runs: Sequence[MemoryRun]) -> dict[str, list[MemoryRun]]:
    """Sort runs by family; several have a last group of them all."""
    found: dict[str, list[MemoryRun]] = {}
    for run in runs:
        found.setdefault(run.family, []).append(run)
    return {**found, "all": list(runs)} if len(found) > 1 else found


# --- the command line ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A comparison of arms: what it is, the series to run, and the tables to make of their runs."""

    about: str | None
    section: str
    families: tuple[str, ...]
    arms: tuple[str, ...]
    version: Callable[[], str]
    series: Callable[[str, str, int], Sequence[Series]]
    report: Callable[[Sequence[MemoryRun]], str]
    seeds: tuple[int, ...] = SEEDS
    tuning: tuple[str, ...] = ()
    """Families to tune on, which are never published."""

    def main(self) -> None:
        """Run what the command line asks for, and print the tables."""
        given = self._parsed()
        if given.replay and not (given.replies or given.out or self._recording.is_file()):
            print(f"SKIPPED: there is no recording {self._recording.relative_to(PROJECT)}.")
            return
        try:
            runs = self._reported(given) if given.report else self._made(given)
        except ConfigError as error:
            sys.exit(str(error))
        if not runs:
            sys.exit("There are no runs of these arms, families and seeds: name their file with --out.")
        for name in dict.fromkeys(run.model for run in runs):
            text = f"{name}\n\n{self.report([run for run in runs if run.model == name])}"
            publish(f"{self.section}-{name.rpartition(':')[2]}", text, write=given.write and not given.tuning)

    def _chosen(self, given: argparse.Namespace) -> list[Series]:
        """Return the series of the families, arms and seeds that the command line names."""
        families = self.tuning if given.tuning else self.families
        if given.families:
            families = _known(given.families, families, "family")
        arms = _known(given.arms, self.arms, "arm")
        seeds = [int(seed) for seed in given.seeds.split(",")]
        return [
            each
            for seed, family, arm in product(seeds, families, arms)
            for each in self.series(family, arm, seed)
        ]

    @property
    def _recording(self) -> Path:
        return PROJECT / "benchmarks" / "cassettes" / f"{self.section}.jsonl.gz"

    def _made(self, given: argparse.Namespace) -> list[MemoryRun]:
        file: Path | None = given.replies or (given.out and given.out.with_suffix(".replies.jsonl"))
        file = file or (self._recording if given.replay else None)
        replies = Replies(given.model, None if given.replay else model_of(given.model, given.threads), file)
        return asyncio.run(
            run_all(
                self._chosen(given),
                replies,
                model=given.model,
                version=self.version(),
                done=runs_in(given.out),
                keep=keeper(given.out),
            )
        )

    def _reported(self, given: argparse.Namespace) -> list[MemoryRun]:
        """Return the runs on file of the latest version of each model."""
        wanted = {(task, each.arm, each.seed) for each in self._chosen(given) for task in each.tasks}
        runs = [run for run in runs_in(given.out) if (run.task, run.arm, run.seed) in wanted]
        latest = {run.model: run.version for run in runs}
        return [run for run in runs if run.version == latest[run.model]]

    def _parsed(self) -> argparse.Namespace:
        parser = options(self.about)
        parser.add_argument("--families", help="comma-separated, by default all")
        parser.add_argument("--arms", default=",".join(self.arms), help="comma-separated")
        parser.add_argument("--seeds", default=",".join(map(str, self.seeds)), help="comma-separated")
        parser.set_defaults(tuning=False)
        if self.tuning:
            parser.add_argument(
                "--tuning", action="store_true", help="the families to tune on, never published"
            )
        add_model_options(parser)
        parser.add_argument(
            "--report", action="store_true", help="only the tables, of all models whose rows are in --out"
        )
        return parser.parse_args()


def _known(names: str, known: Sequence[str], what: str) -> list[str]:
    given = names.split(",")
    if wrong := [name for name in given if name not in known]:
        raise ConfigError(f"Unknown {what} {wrong[0]!r}; choose out of {', '.join(known)}.")
    return given


def runs_in(file: Path | None) -> list[MemoryRun]:
    """Return the runs on file."""
    return [MemoryRun(**row) for row in (rows_in(file) if file else [])]


def keeper(out: Path | None) -> Callable[[MemoryRun], None]:
    """Return what tells of a run on stderr, and appends it to a file."""

    def keep(run: MemoryRun) -> None:
        score = "?" if run.score is None else f"{run.score:.2f}"
        print(
            f"{run.seed} {run.family:10} {run.arm:14} {run.place:2} {run.task:20} {score} {'-+'[run.solved]} "
            f"{run.calls} calls, {run.given} tokens given {run.note}".rstrip(),
            file=sys.stderr,
            flush=True,
        )
        if out is not None:
            append_row(out, to_json(run))

    return keep


def mean_of(values: Mapping[tuple[str, int], float], *, sign: str = "") -> str:
    """Render a mean with its 95 % interval, two decimals."""
    found = interval(values)
    low, high = f"{found.low:{sign}.2f}", f"{found.high:{sign}.2f}"
    return f"{found.mean:{sign}.2f} ({low} to {high})"
