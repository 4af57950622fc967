"""The default loop on a real model, beside a single answer, best of three and a chat that is told what fails.

Every arm answers every task with five seeds, from the same first drafts. The arm `loop:learning` carries from
task to task which revisions were gains. `--tasks small` runs our own small tasks, `--tasks humaneval`
HumanEval's. `--out` gets a row as each run of an arm ends, and the replies go to a file beside it. So a
benchmark of many hours can be stopped at any time; the same command continues it. `--report` makes the tables
of the rows that are there, without a model.

With the model of a provider (`--model openai:NAME`), both sets and the first drafts of `first_drafts.py` run,
unless `--tasks` names one. The price of their tokens is printed first; calls are made only with `--yes`, or
within `--budget-usd`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

from _arms import ARMS, ARMS_VERSION, CALLS, LEARNING, Outcome, Replies, Samples, Try, arm_named, outcome_from
from _measure import PROJECT, options, publish, table
from _rows import append_row, code_version, rows_in
from humaneval import FILE, humaneval_tasks
from small_tasks import TASKS
from tuning_tasks import TUNING_TASKS

from redraft import ConfigError
from redraft.loop.ways import forget
from redraft.models.local import LocalModel
from redraft.models.names import model_named

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from _tasks import BenchTask

    from redraft.protocols import ChatModel

SEEDS = (1, 2, 3, 4, 5)
RESAMPLES = 2_000
ALLOWED = 5
"""Points by which an arm may be behind another and still count as at least as good."""
MODEL = "local:qwen2.5-coder-0.5b"


async def run(
    tasks: Sequence[BenchTask],
    arms: Sequence[str],
    replies: Replies,
    *,
    model: str = "",
    version: str = "",
    seeds: Sequence[int] = SEEDS,
    done: Sequence[Outcome] = (),
    keep: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run the arms on the tasks, each outcome handed to `keep` as it comes; return all outcomes.

    The seed decides the order of the tasks. What is `done` is not handed over again. A first draft is drawn
    once, however many arms and seeds begin with it.
    """
    known = {outcome.key for outcome in done}
    outcomes = list(done)
    for seed, name in product(seeds, arms):
        forget()
        in_order = Random(seed).sample(tasks, len(tasks))
        missing = {task.name for task in tasks if (task.name, name, seed, model, version) not in known}
        for task in in_order if missing else ():
            if name != LEARNING:  # which begins with the first task again, since it learns from task to task
                forget()
                if task.name not in missing:
                    continue
            outcome = await arm_named(name)(task, Samples(replies, seed))
            if task.name in missing:
                tries = [replace(each, solved=await _solves(task, each)) for each in outcome.tries]
                outcomes.append(replace(outcome, tries=tries, seed=seed, model=model, version=version))
                keep(outcomes[-1])
    return outcomes


async def _solves(task: BenchTask, each: Try) -> bool:
    return each.met if task.hidden is None else await task.hidden(each.output)


def keeper(out: Path | None) -> Callable[[Outcome], None]:
    """Return what tells of an outcome on stderr, and appends it to a file."""

    def keep(outcome: Outcome) -> None:
        tries = (f"{each.how}:{'-+'[each.met]}{'-+'[each.solved]}" for each in outcome.tries)
        print(
            f"{outcome.seed} {outcome.task:24} {outcome.arm:18} {' '.join(tries)}",
            file=sys.stderr,
            flush=True,
        )
        if out is not None:
            append_row(out, outcome.to_json())

    return keep


def solved_within(outcome: Outcome, calls: int) -> bool:
    """Say whether what an arm would return after so many calls passes the hidden check."""
    made, last = 0, None
    for each in outcome.tries:
        made += each.requests
        if made > calls:
            break
        last = each
    return last is not None and outcome.tries[last.returned].solved


Runs = dict[tuple[str, int], Outcome]
"""The outcomes of one arm, by task and seed."""


def by_arm(outcomes: Iterable[Outcome]) -> dict[str, Runs]:
    """Sort outcomes by arm; keep the runs that all arms have, so that they can be compared."""
    arms: dict[str, Runs] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.arm, {})[outcome.task, outcome.seed] = outcome
    common = set[tuple[str, int]].intersection(*(set(runs) for runs in arms.values())) if arms else set()
    return {name: {run: runs[run] for run in runs if run in common} for name, runs in arms.items()}


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over tasks, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def render(self, scale: float = 1, sign: str = "") -> str:
        """Return the mean with its interval in brackets, each times `scale`."""
        mean, low, high = (f"{each * scale:{sign}.1f}" for each in (self.mean, self.low, self.high))
        return f"{mean} ({low} to {high})"


def interval(values: Mapping[tuple[str, int], float]) -> Interval:
    """Return the mean of values by task and seed, and its bootstrap interval.

    A resample draws tasks, and for each draw of a task as many of its seeds as it has: the seeds of one task
    are not independent of each other. The same values always give the same interval.
    """
    tasks: dict[str, list[float]] = {}
    for (task, _), value in values.items():
        tasks.setdefault(task, []).append(value)
    of_tasks, chance = list(tasks.values()), Random(0)
    means = sorted(
        fmean(
            fmean(chance.choices(seeds, k=len(seeds))) for seeds in chance.choices(of_tasks, k=len(of_tasks))
        )
        for _ in range(RESAMPLES)
    )
    outside = round(RESAMPLES * 0.025)
    return Interval(fmean(map(fmean, of_tasks)), means[outside], means[-outside - 1])


def arms_table(outcomes: Sequence[Outcome]) -> str:
    """Show for each arm how many tasks it solved after 1, 2, 3 calls, mean of the seeds, and at what cost."""
    rows: list[tuple[object, ...]] = []
    for name, runs in by_arm(outcomes).items():
        if not runs:
            continue
        seeds = len({seed for _, seed in runs})
        tasks = len({task for task, _ in runs})
        tries = [each for run in runs.values() for each in run.tries]
        solved = [sum(solved_within(run, calls) for run in runs.values()) for calls in range(1, CALLS + 1)]
        spread = interval({key: solved_within(run, CALLS) for key, run in runs.items()})
        met = sum(run.tries[-1].met for run in runs.values())
        tokens = sum(each.input_tokens + each.output_tokens for each in tries)
        per_solved = f"{tokens / solved[-1]:,.0f}" if solved[-1] else "none solved"
        rows.append(
            (
                name,
                f"{tasks} x {seeds}",
                *(f"{count / seeds:.1f}" for count in solved[:-1]),
                spread.render(tasks),
                f"{met / seeds:.1f}",
                f"{sum(each.requests for each in tries) / seeds:.1f}",
                per_solved,
            )
        )
    after = [f"after {calls} call{'s' * (calls > 1)}" for calls in range(1, CALLS + 1)]
    head = ("arm", "tasks x seeds", *(f"solved {text}" for text in after), "visible met", "calls",
            "tokens per solved")  # fmt: skip
    return table(head, rows)


def pairs_table(outcomes: Sequence[Outcome]) -> str:
    """Compare the loop with the other arms, run by run."""
    arms = by_arm(outcomes)
    ours = arms.pop("loop", {})
    rows: list[tuple[object, ...]] = []
    for name, theirs in arms.items():
        if not ours or not theirs:
            continue
        gain = {key: solved_within(ours[key], CALLS) - solved_within(theirs[key], CALLS) for key in ours}
        spread = interval(gain)
        at_least = "yes" if spread.low * 100 > -ALLOWED else "not shown"
        better, worse = (list(gain.values()).count(sign) for sign in (1, -1))
        rows.append((f"loop - {name}", len(gain), better, worse, spread.render(100, "+"), at_least))
    head = (
        "pair",
        "runs",
        "only the loop solved",
        "only the other",
        "difference in points (95 %)",
        "at least",
    )
    return table(head, rows)


STOPPED_WELL = frozenset(
    {"quality_met", "plateau", "oscillation", "diminishing", "semantic_stability", "repeated_issues"}
)


def criteria_table(outcomes: Sequence[Outcome]) -> str:
    """Show the five success criteria of a loop, taken on the loop's arm; none of them is a gate."""
    runs = list(by_arm(outcomes).get("loop", {}).values())
    revised = [run for run in runs if not run.tries[0].met]
    better = [run for run in revised if _score(_returned(run)) > _score(run.tries[0])]
    met = [run for run in runs if _returned(run).met]
    changes = [each for run in runs for each in run.tries[1:]]
    asked, mended = sum(each.asked for each in changes), sum(each.mended for each in changes)
    tries = [each for run in runs for each in run.tries]
    twice = [each for each in tries if each.how != "repeat"]
    alike = [each for each in twice if abs(_score(each) - (each.judged_again or 0.0)) <= 0.1]
    late = [run for run in runs if any(each.met for each in run.tries[:-1])]
    well = [run for run in runs if run.reason in STOPPED_WELL]
    ended = sorted(Counter(run.reason for run in runs).items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{reason} {count}" for reason, count in ended)
    rows = (
        (
            "Quality improvement: the returned version scores above the first",
            "80 %",
            _share(len(better), len(runs)),
        ),
        ("... of the runs whose first draft was not satisfactory", "", _share(len(better), len(revised))),
        ("Convergence: satisfactory within 3 versions", "70 %", _share(len(met), len(runs))),
        (
            "... of the runs whose first draft was not satisfactory",
            "",
            _share(len(met) - (len(runs) - len(revised)), len(revised)),
        ),
        ("Issue resolution: issues that the next version no longer has", "85 %", _share(mended, asked)),
        ("Evaluation consistency: a second judgement is within 0.1", "", _share(len(alike), len(twice))),
        ("Efficient termination: ended by quality or a plateau", "90 %", _share(len(well), len(runs))),
        ("... no version was made after a satisfactory one", "", _share(len(runs) - len(late), len(runs))),
    )
    return f"{table(('success criterion', 'target', 'loop'), rows)}\n\nThe loop ended by: {reasons}."


def _returned(run: Outcome) -> Try:
    return run.tries[run.tries[-1].returned]


def _score(each: Try) -> float:
    return each.score or 0.0


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "none"


def parsed_options(about: str | None = __doc__) -> argparse.Namespace:
    """Return what the command line of a benchmark on these tasks says."""
    parser = options(about)
    parser.add_argument("--tasks", choices=("humaneval", "small", "first-drafts"))
    parser.add_argument(
        "--tuning", action="store_true", help="the tasks to tune on, none of which is reported"
    )
    parser.add_argument(
        "--shown",
        choices=("examples", "scoring"),
        help="what HumanEval's arms see: the docstring's examples, or the check that scores (of a provider)",
    )
    parser.add_argument(
        "--arms", default=",".join(ARMS), help="comma-separated; also loop:STRATEGY and loop:candidates=N"
    )
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="comma-separated")
    add_model_options(parser)
    parser.add_argument("--limit", type=int, help="how many tasks")
    parser.add_argument(
        "--data", type=Path, default=PROJECT.parent / "shared" / "data", help="HumanEval's folder"
    )
    parser.add_argument(
        "--report", action="store_true", help="only the tables of the rows of the latest version"
    )
    parser.add_argument("--yes", action="store_true", help="spend what a provider's model costs")
    parser.add_argument("--budget-usd", type=float, help="spend at most so much on a provider's model")
    given = parser.parse_args()
    given.is_paid = not given.model.startswith("local:") and not (given.replay or given.report)
    if not given.is_paid:
        given.tasks = given.tasks or "small"
        if given.tasks == "first-drafts":
            parser.error("The first drafts of a local model have a script of their own: first_drafts.py.")
    if given.is_paid and given.tuning:
        parser.error("--tuning is for local models.")
    if given.budget_usd is not None and given.budget_usd <= 0:
        parser.error("--budget-usd must be more than 0.")
    given.shown = given.shown or ("scoring" if given.is_paid else "examples")
    return given


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a benchmark that calls a model: which one, and where rows and replies are kept."""
    parser.add_argument("--model", default=MODEL, help="such as local:qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int, default=1, help="of a local model")
    parser.add_argument("--out", type=Path, help="append rows to this file, and skip what it has")
    parser.add_argument("--replies", type=Path, help="the file of replies, by default beside --out")
    parser.add_argument(
        "--replay",
        action="store_true",
        help="take all replies from --replies, or from a recording of the project",
    )


def main() -> None:
    given = parsed_options()
    if given.is_paid:
        from _provider import measure

        try:
            measure(given)
        except ConfigError as error:
            sys.exit(str(error))
        return
    if given.tasks == "humaneval" and not (given.data / FILE).is_file():
        print(f"SKIPPED HumanEval: there is no {given.data / FILE}; name its folder with --data.")
        return
    if given.replay and not (given.replies or given.out or recording_of(given).is_file()):
        print(f"SKIPPED: there is no recording {recording_of(given).relative_to(PROJECT)}.")
        return
    try:
        outcomes = _outcomes(given, tasks_of(given)[: given.limit])
    except ConfigError as error:
        sys.exit(str(error))
    text = tables(outcomes)
    if given.tuning:
        print(text)  # never published: these tasks are no proof
    else:
        shown = f"-{given.shown}" if given.tasks == "humaneval" else ""
        publish(f"offline-{given.tasks}{shown}-{_place(given.model)}", text, write=given.write)
    print(f"\n{criteria_table(outcomes)}")


def tables(outcomes: Sequence[Outcome]) -> str:
    """Return the tables to publish."""
    return "\n\n".join([arms_table(outcomes), pairs_table(outcomes)])


def recording_of(given: argparse.Namespace) -> Path:
    """Return the file of the replies from which a published table was made."""
    return PROJECT / "benchmarks" / "cassettes" / f"offline-{given.tasks}-{_place(given.model)}.jsonl.gz"


def _place(model: str) -> str:
    return model.rpartition(":")[2]


def tasks_of(given: argparse.Namespace) -> list[BenchTask]:
    """Return the tasks that the command line names."""
    if given.tasks != "humaneval":
        return list(TUNING_TASKS if given.tuning else TASKS)
    return humaneval_tasks(given.data, shown=given.shown, tuning=given.tuning)


def _outcomes(given: argparse.Namespace, tasks: Sequence[BenchTask]) -> list[Outcome]:
    """Return the outcomes in the file, and those of the runs that it lacks unless only a report is wanted."""
    file = given.replies or (given.out and given.out.with_suffix(".replies.jsonl"))
    file = file or (recording_of(given) if given.replay else None)
    model = None if given.replay or given.report else model_of(given.model, given.threads)
    return measured(given, tasks, Replies(given.model, model, file), keeper(given.out), given.out)


def measured(
    given: argparse.Namespace,
    tasks: Sequence[BenchTask],
    replies: Replies,
    keep: Callable[[Outcome], None],
    out: Path | None,
) -> list[Outcome]:
    """Return the outcomes in a file, and those of the runs that it lacks unless only a report is wanted."""
    arms, names = given.arms.split(","), {task.name for task in tasks}
    seeds = [int(seed) for seed in given.seeds.split(",")]
    rows = [outcome_from(row) for row in (rows_in(out) if out else [])]
    done = [
        row for row in rows
        if row.task in names and row.arm in arms and row.seed in seeds and row.model == given.model
    ]  # fmt: skip
    version = code_version(ARMS_VERSION)
    if given.report and done:
        version = done[-1].version
    done = [row for row in done if row.version == version]
    if given.report:
        return done
    return asyncio.run(
        run(
            tasks,
            arms,
            replies,
            model=given.model,
            version=version,
            seeds=seeds,
            done=done,
            keep=keep,
        )
    )


def model_of(name: str, threads: int) -> Callable[[int], ChatModel]:
    """Return what gives the model with a seed; a provider's model has none."""
    kind, _, place = name.partition(":")
    if kind != "local":
        model = model_named(name)
        return lambda _: model
    LocalModel(place, threads=threads)  # raises what is wrong with it before the first task
    return lambda seed: LocalModel(place, threads=threads, seed=seed)


if __name__ == "__main__":
    main()
