"""The loop, its first draft and best of three by `Evaluation`: tasks and replies of `offline_model.py`.

Arms, grading and intervals are those that users have; the counts must be those of `offline_model.py`. The
tables are only printed. `--replay` takes all replies from the recordings, so no model is needed.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from _arms import CALLS, SYSTEM, Replies, Samples
from _measure import table
from offline_model import model_of, parsed_options, recording_of, tasks_of

from redraft import (
    Agent,
    ConfigError,
    EvalCase,
    Evaluation,
    MemoryStore,
    QualityCriterion,
    ReflectionPattern,
)
from redraft.evals.report import report_of
from redraft.loop.journal import enclosing_step
from redraft.types import PlainTask

if TYPE_CHECKING:
    from _tasks import BenchTask

    from redraft.evals import EvaluationReport
    from redraft.protocols import ChatReply, ChatRequest

COMPARE = ("loop", "first", f"best-of-{CALLS}")


@dataclass(slots=True)
class OfEachArm:
    """A model that draws samples for each arm and case apart, told by the run that calls it."""

    replies: Replies
    seed: int
    samples: dict[str, Samples] = field(default_factory=dict[str, Samples])

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Give the next sample for a request."""
        inside = enclosing_step()
        # The drafts of a best-of-N are runs of their own, whose ids end with their number.
        run_id = "" if inside is None else inside.outer.run_id
        arm = run_id.rpartition(".")[2].partition("-")[0]
        return await self.samples.setdefault(arm, Samples(self.replies, self.seed))(request)


def case_of(task: BenchTask) -> EvalCase:
    """Return a task as a case, graded by its hidden check where it has one."""
    hidden: tuple[QualityCriterion, ...] = ()
    if task.hidden is not None:
        config: dict[str, Any] = {"function": task.hidden, "raw": True}
        hidden = (QualityCriterion("hidden", threshold=1.0, evaluator="function", evaluator_config=config),)
    return EvalCase(task.name, PlainTask(task.prompt), task.criteria, hidden)


async def run(tasks: list[BenchTask], replies: Replies, seeds: list[int]) -> EvaluationReport:
    """Evaluate all tasks with each seed, and return the report on all seeds together."""
    cases, tries, report = [case_of(task) for task in tasks], [], None
    for seed in seeds:
        pattern = ReflectionPattern(CALLS - 1)
        agent = Agent(OfEachArm(replies, seed), pattern=pattern, system_prompt=SYSTEM, keep=False)
        evaluation = Evaluation(cases, agent, compare=COMPARE, concurrency=1, store=MemoryStore())
        report = await evaluation.run()
        if failed := [one for one in report.tries if one.error]:
            raise ConfigError(failed[0].error)
        tries += [replace(one, number=seed) for one in report.tries]
    if report is None:
        raise ConfigError("Give at least one seed.")
    return report_of(replace(report.evaluated, n=len(seeds)), tries)


def tables(report: EvaluationReport) -> str:
    """Render how many tasks are solved after each call, and the differences."""
    tasks, rows = len(report.evaluated.cases), list[tuple[object, ...]]()
    for side, figures in zip(report.sides, report.figures, strict=True):
        within = report.solved_within(side)
        most = max(within)
        effect = figures.passed
        spread = "" if effect is None else f" ({tasks * effect.low:.1f} to {tasks * effect.high:.1f})"
        solved = [f"{tasks * within[min(calls, most)]:.1f}" for calls in range(1, CALLS + 1)]
        per_solved = (
            "none solved" if figures.tokens_per_passed is None else f"{figures.tokens_per_passed:,.0f}"
        )
        rows.append(
            (
                side.name,
                f"{tasks} x {report.evaluated.n}",
                *solved[:-1],
                f"{solved[-1]}{spread}",
                f"{tasks * (figures.calls or 0):.1f}",
                per_solved,
            )
        )
    after = [f"solved after {calls} call{'s' * (calls > 1)}" for calls in range(1, CALLS + 1)]
    head = ("arm", "tasks x seeds", *after, "calls", "tokens per solved")
    return "\n\n".join([table(head, rows), "\n".join(f"- {one.sentence()}" for one in report.differences)])


def main() -> None:
    given = parsed_options(__doc__)
    file = given.replies or (recording_of(given) if given.replay else None)
    if given.replay and not (file and file.is_file()):
        print(f"SKIPPED: there is no recording {file}.")
        return
    try:
        replies = Replies(given.model, None if given.replay else model_of(given.model, given.threads), file)
        seeds = [int(seed) for seed in given.seeds.split(",")]
        report = asyncio.run(run(tasks_of(given)[: given.limit], replies, seeds))
    except ConfigError as error:
        sys.exit(str(error))
    print(tables(report))


if __name__ == "__main__":
    main()
