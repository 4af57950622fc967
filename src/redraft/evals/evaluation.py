"""Evaluation: run agents on cases, grade their answers, and resume interrupted evaluations."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from redraft._calls import sees_run
from redraft._codec import describe_error, fingerprint, to_record
from redraft._hints import keyword_hints
from redraft._steps import direct, name_of_model
from redraft._sync import run_sync
from redraft._tasks import end_tasks
from redraft._texts import as_text, estimate_tokens, json_data, key_of, short_repr
from redraft._validation import check_count, check_iterable, check_model, nearest
from redraft._verdicts import DEFAULT_THRESHOLD
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ModelError,
    StoreError,
    UnfinishedError,
    over_budget,
)
from redraft.evals.cases import EvalCase, read_cases
from redraft.evals.estimate import (
    Estimate,
    EstimatedCalls,
    RunMeans,
    Work,
    calls_of_judgement,
    estimated,
    other_calls_of,
    prompt_tokens,
)
from redraft.evals.judging import judge_alone
from redraft.evals.report import (
    BEST_OF,
    TRY,
    Evaluated,
    EvaluationReport,
    GradedAnswer,
    Side,
    Try,
    evaluated_in,
    report_of,
    tries_in,
)
from redraft.evaluate.evidence import tool_results
from redraft.loop.agent import Agent
from redraft.loop.budget import EXPECTED_REPLY, Budget, SharedBudget, check_prices
from redraft.loop.journal import RunKey, check_run_id, new_run_id
from redraft.loop.pattern import (
    ReflectionPattern,
    run_functions,
)
from redraft.loop.record import Origin, Process
from redraft.loop.run import Judges
from redraft.loop.select import select
from redraft.loop.verbs import JudgeHint, judge_of, judges_of
from redraft.loop.ways import Revision, revisions_of
from redraft.models.names import model_of
from redraft.notes.learner import NO_NOTE, InjectedNote
from redraft.notes.note import fill, note_block
from redraft.notes.store import project_notes
from redraft.notes.task import Task, TaskIdentity
from redraft.notes.task_run import TaskRun, TaskRunner, runner_of
from redraft.protocols import FRESH_TEMPERATURE, ChatModel, ModelChoice
from redraft.settings import load_settings
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.stores.sqlite import MemoryStore
from redraft.types import (
    NOTHING_USED,
    ConvergenceReason,
    Criterion,
    Draft,
    Output,
    TokenUsage,
    joined,
    render_usd,
)

if TYPE_CHECKING:
    from redraft.protocols import Step
    from redraft.stores.base import Store
    from redraft.types import ReflectionEvaluation, ReflectionResult, ReflectionVersion

Target = Agent[Any] | Task | Callable[..., Any]
LOOP, FIRST, NO_LESSONS, NO_NOTES = "loop", "first", "no-lessons", "no-notes"
PARTS = (LOOP, FIRST, "best-of-N", NO_LESSONS, NO_NOTES)
"""Parts for `compare`: the agent, its first draft, the best of N drafts, and the agent without memory."""
CONCURRENCY = 8
GRADE = "grade"
"""Name of the runs that grade an answer."""


@keyword_hints()
class Evaluation:
    """Run agents on cases, `n` times each, and compare their answers.

    `cases` are `EvalCase`s, or the path of a file that `read_cases` reads. `agents` is an agent, or a mapping
    of names to agents, the first of which is compared with each of the others. An agent is a Redraft `Agent`;
    a `Task` with its current note; or a function, sync or async, that answers a prompt. A single agent is
    compared with its own first draft. `compare` names parts of a single agent to compare instead, the first
    with each of the others: `loop` (the agent as it is), `first` (its first draft), `best-of-N` (the best of
    up to N drafts of an `Agent`, without feedback), `no-lessons` (an `Agent` without its advisors),
    `no-notes` (a `Task` without its note).

    A case's criteria grade each answer independently of the judgements in its run. `model` judges criteria
    that need a model; it defaults to the model of the settings, else of the agent. An agent without criteria
    of its own reflects by the case's criteria. Agents use lessons and notes, but learn nothing.

    At most `concurrency` cases run at the same time. The budgets hold for all runs together, including
    grading. A try that needs more than is left is suspended: it has no result, and continues under the same
    `run_id` with a larger budget. The usage of a function is counted when it returns: it starts only if its
    dearest call so far fits, but several under way may exceed a budget. `budget_usd` needs the price of every
    model. Everything is stored in `store`, by default the project's. With a `run_id`, an interrupted
    evaluation resumes when it is repeated, without paying for anything twice. `on_try` is called with each
    `Try` as it ends.

    Raises `ConfigError` for a case, agent, criterion or model that can't work, before anything is spent.
    """

    def __init__(
        self,
        cases: Sequence[EvalCase] | str | Path,
        agents: Target | Mapping[str, Target],
        *,
        n: int = 1,
        compare: Sequence[str] = (),
        concurrency: int = CONCURRENCY,
        model: ModelChoice | None = None,
        budget_tokens: int | None = None,
        budget_usd: float | None = None,
        budget_seconds: float | None = None,
        run_id: str | None = None,
        store: Store | None = None,
        on_try: Callable[[Try], None] | None = None,
    ) -> None:
        check_count("n", n, 1)
        check_count("concurrency", concurrency, 1)
        check_model("model", model)
        if run_id is not None:
            check_run_id(run_id)
        budget = Budget(budget_tokens, budget_usd, budget_seconds)
        if isinstance(cases, str | Path):
            cases = read_cases(cases)
        check_iterable("cases", cases, "EvalCases, or the path of a file of cases")
        for case in cases:
            if not isinstance(case, EvalCase):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
                raise ConfigError(
                    f"cases must be EvalCases, or the path of a file of cases, got {short_repr(case)}."
                )
        if not cases:
            raise ConfigError("There are no cases to evaluate.")
        counts = Counter(case.id for case in cases)
        if twice := [case_id for case_id, count in counts.items() if count > 1]:
            raise ConfigError(f"Two cases have the id {twice[0]!r}; ids must be unique.")
        self._cases = tuple(cases)
        self._n, self._concurrency, self._on_try = n, concurrency, on_try
        self._budget = budget
        self._resumes = run_id is not None
        self._run_id = run_id or f"eval-{new_run_id()}"
        self._store = store or project_store() or MemoryStore()
        several = cast("Mapping[str, Target]", agents) if isinstance(agents, Mapping) else None
        targets = several or {_name_of(cast("Target", agents)): cast("Target", agents)}
        self._arms, self._sides = _compared(targets, compare) if compare else _arms_of(targets)
        main = self._arms[0]
        named = model or load_settings().reflection_model or (main.pattern and main.pattern.reflection_model)
        judge = named or main.judge
        self._graders = graders_of(self._cases, main.pattern, judge)
        judging = [grader.model for grader in self._graders.values() if grader.is_paid]
        self._graded_by = {name_of_model(judge) for judge in judging if judge is not None}
        self._done: dict[tuple[str, str, int], Try] = {}
        self._grades: dict[tuple[object, ...], asyncio.Future[ReflectionEvaluation]] = {}
        for arm in self._arms:
            for case in self._cases:
                arm.check(case)
        if budget.usd is not None:
            check_prices(*(model for arm in self._arms for model in arm.models()))
            check_prices(*judging)

    async def estimate(self) -> Estimate:
        """Estimate the most that `run` may use, without calling a model. Tries with a result are not counted.

        Tokens are based on the agent's stored runs; without any, on the prompts and an assumed length of
        replies. Raises `ConfigError` and `StoreError` as `run` does.
        """
        await self._check_same(self._evaluated())
        done = await self._load() if self._resumes else {}
        parts: list[EstimatedCalls] = []
        grading = Work()
        for arm in self._arms:
            drafts, judgements = Work(), Work()
            for case in self._cases:
                grader = self._graders[case.id]
                left = sum((case.id, arm.name, number) not in done for number in range(1, self._n + 1))
                answers = arm.add_work(case, drafts, judgements, left)
                if grader.is_paid:
                    prompt = prompt_tokens(case.task, grader.judges.rubric) + EXPECTED_REPLY
                    grading.add(answers, calls_of_judgement(grader.judges), prompt)
            agent, model = arm.stored_as
            means = await RunMeans.stored(self._store, agent=agent, model=model)
            of = f" of {agent!r}"
            judge = arm.own_judge if judgements.units else None
            parts.append(estimated(arm.name, "agent", arm.judge, drafts, means, of))
            parts.append(estimated(arm.name, "judge", judge, judgements, means, of))
        if grading.units:
            judge = next(grader for grader in self._graders.values() if grader.is_paid).model
            means = await RunMeans.stored(self._store, agent=GRADE, judge=repr(judge))
            parts.append(estimated("grading", "judge", judge, grading, means, " that graded answers"))
        tries = len(self._cases) * self._n * len(self._arms)
        return Estimate(tries - len(done), len(done), tuple(parts))

    async def run(self) -> EvaluationReport:
        """Run the missing tries, and report on all.

        A failed run is a `Try` with an `error`; repeating the evaluation under its `run_id` runs it again.
        Raises `ConfigError` if other cases or agents were evaluated under the `run_id`, or the same by other
        criteria, and `StoreError` if the store fails.
        """
        evaluated = self._evaluated()
        before = await self._check_same(evaluated)
        if before is not None:
            evaluated.started_at, evaluated.suspended = before.started_at, before.suspended
        await self._store.put(evaluated.stored())
        done = await self._load()
        budget = SharedBudget(self._budget, [attempt.spent for attempt in done.values()], evaluated.suspended)
        gate = asyncio.Semaphore(self._concurrency)

        async def answer_case(case: EvalCase, number: int) -> None:
            async with gate:
                for arm in self._arms:
                    if (case.id, arm.name, number) in done or budget.is_over:
                        continue
                    attempt = await self._attempt(case, arm, number, budget)
                    if attempt is not None and self._on_try is not None:
                        self._on_try(attempt)

        numbers = range(1, self._n + 1)
        await run_together(answer_case(case, number) for number in numbers for case in self._cases)
        evaluated.suspended = budget.suspended
        total = len(self._cases) * self._n * len(self._arms)
        if len(done) < total:
            evaluated.note = _spent_note(budget, len(done), total)
        evaluated.finished_at = datetime.now(UTC)
        report = report_of(evaluated, done.values())
        evaluated.findings = tuple(difference.sentence() for difference in report.differences)
        await self._store.put(evaluated.stored())
        return report

    def estimate_sync(self) -> Estimate:
        """Like `estimate`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.estimate())

    def run_sync(self) -> EvaluationReport:
        """Like `run`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.run())

    def _evaluated(self) -> Evaluated:
        return Evaluated(
            self._run_id,
            datetime.now(UTC),
            Process.this(),
            tuple(case.id for case in self._cases),
            tuple(case.id for case in self._cases if case.control),
            fingerprint([self._cases, [arm.definition for arm in self._arms], self._graded_by]),
            self._sides,
            self._n,
        )

    async def _check_same(self, evaluated: Evaluated) -> Evaluated | None:
        """The record of the interrupted evaluation; raises `ConfigError` if it was a different evaluation."""
        before = await evaluated_in(self._store, self._run_id) if self._resumes else None
        if before is not None and (
            (before.digest, before.sides) != (evaluated.digest, evaluated.sides) or before.n > evaluated.n
        ):
            raise ConfigError(
                f"The evaluation {self._run_id!r} was of other cases, agents, parts or judges, or of more "
                "tries; repeat its original call, or use a new run_id."
            )
        return before

    async def _load(self) -> dict[tuple[str, str, int], Try]:
        """Load the stored tries, except failed tries, which are made again."""
        stored_tries = await tries_in(self._store, self._run_id)
        self._done.update({attempt.key: attempt for attempt in stored_tries if not attempt.error})
        return self._done

    async def _attempt(self, case: EvalCase, arm: Arm, number: int, budget: SharedBudget) -> Try | None:
        """Let an arm answer a case, grade the answer after each version, and store the try.

        Returns None, and stores no result, if the budget was spent first.
        """
        place = digest(case.id, arm.name)
        try:
            attempt = await budget.part(
                f"{place}-{number}", lambda: self._graded(case, arm, number, budget), attrgetter("spent")
            )
        except UnfinishedError:
            return None
        self._done[attempt.key] = attempt
        await self._store.put(Record(TRY, f"{self._run_id}/{place}-{number}", to_record(attempt)))
        return attempt

    async def _graded(self, case: EvalCase, arm: Arm, number: int, budget: SharedBudget) -> Try:
        run_id, began = self._place(case, arm, number), monotonic()
        shared = None if arm.shares is None else self._key(self._place(case, arm.shares, number))
        attempt = Try(case.id, arm.name, number, (), run_id=run_id)
        made: MadeAnswers | None = None
        answers: list[GradedAnswer] = []
        grading = NOTHING_USED
        try:
            made = await arm.answer(case, self._key(run_id), shared)
            for draft in made.drafts:
                key = case.id, key_of(draft.output), tool_results(draft.conversation)
                if key not in self._grades:
                    self._grades[key] = asyncio.ensure_future(self._grade(case, draft))
                    grading += (await self._grades[key]).usage
                evaluation = await asyncio.shield(self._grades[key])
                answers.append(GradedAnswer.of(draft.output, draft.usage, evaluation))
        except (ConfigError, ChangedRunError, StoreError):
            raise
        except Exception as error:  # (an agent that fails is a result)
            if over_budget(error) and budget.is_over:
                raise
            return replace(
                attempt,
                usage=(getattr(error, "usage", None) or NOTHING_USED) if made is None else made.usage,
                seconds=monotonic() - began,
                grading=grading,
                error=describe_error(error),
                unknown=made is not None or isinstance(error, ModelError),
            )
        return replace(
            attempt,
            answers=tuple(answers),
            usage=made.usage,
            seconds=made.seconds,
            grading=grading,
            revisions=made.revisions,
            unjudged=made.unjudged,
        )

    def _place(self, case: EvalCase, arm: Arm, number: int) -> str:
        return f"{self._run_id}.{digest(case.id, arm.name, str(number))}"

    def _key(self, run_id: str) -> RunKey:
        return RunKey(run_id, self._store, self._resumes, self._run_id)

    async def _grade(self, case: EvalCase, answer: Draft) -> ReflectionEvaluation:
        """Judge an answer by the criteria of its case; a model's judgement is made once and stored."""
        grader, seen = self._graders[case.id], tool_results(answer.conversation)
        parts = [as_text(answer.output), *([repr(seen)] if seen else [])]
        place = f"{self._run_id}.{digest(case.id, *parts)}-grade"
        return await grader(
            case, replace(answer, usage=NOTHING_USED), self._key(place).step() if grader.is_paid else direct
        )


def _spent_note(budget: SharedBudget, done: int, total: int) -> str:
    """Explain with numbers which tries a spent budget prevented."""
    note = f"The budget was spent after {done} of {total} tries. {budget.explain()}"
    if count := len(budget.suspended):
        used = sum(budget.suspended.values(), NOTHING_USED)
        cost = f" and {render_usd(used.cost_usd)}" if used.cost_usd else ""
        note += (
            f" {'One try was' if count == 1 else f'{count} tries were'} suspended after "
            f"{used.total_tokens:,} tokens{cost}: no result yet, to go on with a larger budget."
        )
    return note


def _name_of(target: Target) -> str:
    if isinstance(target, Agent):
        return target.name
    if isinstance(target, Task):
        return target.title
    return getattr(target, "__name__", type(target).__name__)


def digest(*parts: str) -> str:
    """Short hash of texts."""
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]


async def run_together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines in parallel; the first failure cancels the others and is raised unchanged."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end_tasks(tasks)


# --- arms -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MadeAnswers:
    """An arm's answers to a case, with their total usage."""

    drafts: tuple[Draft, ...]
    """The output that the run would return if it ended after each version, with the usage up to it."""
    usage: TokenUsage
    seconds: float
    revisions: tuple[Revision, ...] = ()
    unjudged: str = ""
    """Why the run could not be judged, if it ended for that reason."""


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm of the comparison: an agent, a task, or a function of a prompt."""

    name: str
    agent: Agent[Any] | None = None
    function: Callable[..., Any] | None = None
    runner: TaskRunner | None = None
    is_noted: bool = True
    """Whether a task gets its note."""
    drafts: int = 0
    """Number of drafts of a best-of-N; 0 runs the agent as it is."""
    shares: Arm | None = None
    """The arm whose first draft a best-of-N reuses."""
    revises: bool = True
    """Whether an agent revises: not if only its first draft is compared."""

    @property
    def pattern(self) -> ReflectionPattern | None:
        """The pattern of the agent or the task; None for a function."""
        return self.agent.pattern if self.agent is not None else self.runner and self.runner.pattern

    @property
    def definition(self) -> object:
        """What shapes its answers."""
        if self.agent is not None:
            return self.agent.definition
        if self.runner is not None:
            return [
                self.runner.task,
                self.runner.origin.model,
                self.runner.pattern,
                self.runner.judges.criteria,
            ]
        return self.function

    def pattern_for(self, case: EvalCase) -> ReflectionPattern:
        """The agent's pattern, with the case's criteria and threshold if it has no criteria."""
        pattern = cast("Agent[Any]", self.agent).pattern
        if pattern.quality_criteria is None and case.criteria:
            threshold = pattern.quality_threshold if case.threshold is None else case.threshold
            pattern = replace(pattern, quality_criteria=case.criteria, quality_threshold=threshold)
        return pattern if self.revises else replace(pattern, max_iterations=0)

    @property
    def judge(self) -> ChatModel | None:
        """The model that judges unless the caller or the settings name another."""
        return self.agent.model if self.agent is not None else self.runner and self.runner.model

    @property
    def own_judge(self) -> ChatModel | None:
        """The model that judges in the runs of this arm."""
        return None if (pattern := self.pattern) is None else judge_of(pattern, self.judge)

    @property
    def stored_as(self) -> tuple[str, str]:
        """The names of the agent and the model in its stored runs."""
        if self.agent is not None:
            return self.agent.name, str(self.agent.definition["model"])
        return (self.name, "") if self.runner is None else (self.runner.origin.name, self.runner.origin.model)

    def add_work(self, case: EvalCase, drafts: Work, judgements: Work, tries: int) -> int:
        """Add the most work of some tries; returns the number of answers to grade."""
        pattern = self.pattern
        if pattern is None:
            drafts.add(tries, None, 0)
            return tries
        runs, has_steps = 1, False
        if self.agent is not None:
            pattern = self.pattern_for(case)
            task, system = case.task, self.agent.system_prompt
            judges = judges_of(pattern, self.agent.model, task.task_type)
            has_steps = bool(self.agent.definition["tools"])
        else:
            runner = cast("TaskRunner", self.runner)
            task, system, judges = runner.task.plain(), as_text(dict(case.inputs)), runner.judges
            has_steps = runner.tool_agent is not None
            if runner.task.guardrails or runner.task.review is not None:
                runs += runner.task.retries
        calls_each = None if has_steps or self.judge is None else 1
        prompt = prompt_tokens(task, system, judges.rubric)
        if self.drafts:
            first = self.drafts - (self.shares is not None and pattern.candidates == 1)
            revisions, answers, verdicts, other = 0, first, first, 0
        else:
            first, revisions = runs * pattern.candidates, runs * pattern.max_iterations
            answers = 1 + pattern.max_iterations
            verdicts = runs * (answers + (pattern.candidates if pattern.candidates > 1 else 0))
            other = runs * other_calls_of(pattern)
        drafts.add(tries * first, calls_each, prompt)
        drafts.add(tries * revisions, calls_each, prompt + EXPECTED_REPLY)
        if judges.signals.judged:
            judgements.add(tries * verdicts, calls_of_judgement(judges), prompt + EXPECTED_REPLY)
        judgements.add(tries * other, 1, prompt + EXPECTED_REPLY)
        return tries * answers

    def models(self) -> Iterator[object]:
        """The models that answer and judge in its runs."""
        yield self.judge
        pattern = self.pattern
        if pattern is not None and judges_of(pattern, self.judge).signals.judged:
            yield judge_of(pattern, self.judge)

    def check(self, case: EvalCase) -> None:
        """Raise `ConfigError` if this arm can't answer a case."""
        is_plain = not (case.task.messages or case.task.images)
        if not (is_plain or self.agent is not None or (self.function and sees_run(self.function))):
            raise ConfigError(
                f"The case {case.id!r} has a conversation or images, which {self.name!r} would not see; "
                "evaluate an Agent, or a function with a parameter `run`, whose `run.task` has them."
            )
        if self.runner is not None:
            try:
                fill(self.runner.task.description, case.inputs, self.runner.task.title)
            except ConfigError as error:
                raise ConfigError(f"The case {case.id!r}: {error}") from error
        if self.agent is not None and self.agent.pattern.quality_criteria is None and case.criteria:
            judges_of(self.pattern_for(case), self.agent.model, case.task.task_type)

    async def answer(self, case: EvalCase, key: RunKey, shared: RunKey | None) -> MadeAnswers:
        """Answer a case in the run of `key`, starting with the first draft of the run `shared`, if any."""
        if self.runner is not None:
            run = TaskRun(self.runner, case.inputs, {}, key, note=await self._note(self.runner.task, case))
            done = await run.run()
            made = _made(done.result, self.runner.pattern.best_version_selection)
            if done.attempts == 1:
                return made
            # Only the last attempt has versions to grade, but rejected attempts before it cost tokens, too.
            drafts = (replace(made.drafts[-1], usage=done.usage),)
            return replace(made, drafts=drafts, usage=done.usage)
        if (agent := self.agent) is None:
            pattern, step = ReflectionPattern(0), key.step()
            result = await run_functions(case.task, self.function, _accept, pattern=pattern, step=step)
            return _made(result, "highest_score")

        pattern = self.pattern_for(case)
        if not self.drafts:
            result = await agent.run(case.task, pattern=pattern, step=key.step())
            return _made(result, pattern.best_version_selection)
        versions: list[ReflectionVersion] = []
        seconds = 0.0
        if shared is not None and pattern.candidates == 1:
            # The shared run has ended, so this reads its stored result without a call.
            result = await agent.run(case.task, pattern=pattern, step=shared.step())
            versions.append(result.history.versions[0])
            seconds = result.execution_time / (result.iterations_used + 1)
        single = replace(pattern, max_iterations=0, candidates=1, accept="score")
        while len(versions) < self.drafts and not (versions and versions[-1].evaluation.satisfactory):
            number = len(versions)
            result = await agent.run(
                case.task,
                pattern=single,
                step=key.derived(f"-{number}").step(),
                temperature=FRESH_TEMPERATURE if number else None,
            )
            versions.append(replace(result.history.versions[0], iteration=number + 1))
            seconds += result.execution_time
        drafts = _returned(versions, "highest_score")
        return MadeAnswers(drafts, drafts[-1].usage, seconds)

    async def _note(self, task: Task, case: EvalCase) -> InjectedNote:
        """The current note of a task, unless the arm runs without notes."""
        note = await project_notes().current(TaskIdentity.of(task)) if self.is_noted else None
        if note is None:
            return NO_NOTE
        text = note_block(note.reflection, task.plain(), case.inputs)
        return InjectedNote(
            "note", note.version, note.version, text, estimate_tokens(text), "the note in force"
        )


def _accept(_output: object) -> bool:
    return True


def _made(result: ReflectionResult, selection: Any) -> MadeAnswers:
    """The answers of a run; the last entry is the returned output with the total usage."""
    drafts = _returned(result.history.versions, selection)
    best = result.history.best_version
    whole = Draft(json_data(result.best_output), result.token_usage, conversation=best.conversation)
    revisions = tuple(
        replace(revision, way=replace(revision.way, reason=""))
        for revision in revisions_of(result.history.versions)
    )
    unjudged = ""
    if result.convergence_reason is ConvergenceReason.UNJUDGED:
        unjudged = joined(best.evaluation.reasons_unjudged) or "no reason was given"
    return MadeAnswers((*drafts[:-1], whole), result.token_usage, result.execution_time, revisions, unjudged)


def _returned(versions: Sequence[ReflectionVersion], selection: Any) -> tuple[Draft, ...]:
    answers: list[Draft] = []
    used = NOTHING_USED
    for end, version in enumerate(versions, 1):
        used += version.token_usage
        if version.choice is not None:  # the candidates that were not chosen cost as much
            used = sum(version.choice.usage.values(), start=used)
        chosen = select(versions[:end], selection)
        answers.append(Draft(json_data(chosen.output), used, conversation=chosen.conversation))
    return tuple(answers)


def _arms_of(targets: Mapping[str, Target]) -> tuple[tuple[Arm, ...], tuple[Side, ...]]:
    """Arms and sides of agents: the answers of each agent, and the first drafts of the first agent."""
    if not targets:
        raise ConfigError("There is no agent to evaluate.")
    arms = tuple(arm_of(name, target) for name, target in targets.items())
    main = arms[0]
    sides = [Side(arm.name, arm.name) for arm in arms]
    if main.pattern is not None:
        sides.insert(1, Side(f"{main.name} (first draft)", main.name, first=True))
    return arms, tuple(sides)


def arm_of(name: str, target: Target) -> Arm:
    """The arm of an agent that learns nothing; raises `ConfigError` for a target that can't be evaluated."""
    if isinstance(target, Agent):
        agent = cast("Agent[Any]", target)
        return Arm(name, agent.for_evaluation())
    if isinstance(target, Task):
        if target.context and not isinstance(target.context, str):
            raise ConfigError(
                f"The task {target.title!r} needs the outputs of other tasks; evaluate a task without "
                "context."
            )
        return Arm(name, runner=runner_of(target, None, None, load_settings()))
    if not callable(target):
        raise ConfigError(
            f"The agent {name!r} must be an Agent, a Task, or a function of a prompt; got {target!r}."
        )
    return Arm(name, function=target)


def _compared(
    targets: Mapping[str, Target], names: Sequence[str]
) -> tuple[tuple[Arm, ...], tuple[Side, ...]]:
    """Arms and sides of the parts of an agent."""
    if len(targets) != 1:
        raise ConfigError("compare compares the parts of one agent; leave the other agents out.")
    ((_, target),) = targets.items()
    loop = replace(arm_of(LOOP, target), revises=LOOP in names)
    if loop.pattern is None:
        raise ConfigError(
            "compare needs an Agent or a Task, whose parts can be left out; "
            f"got {'a function' if callable(target) else repr(target)}."
        )
    if len(set(names)) < max(2, len(names)):
        raise ConfigError("compare needs at least two different names, such as loop,first,best-of-3.")
    arms: dict[str, Arm] = {}
    sides: list[Side] = []
    for name in names:
        if name in (LOOP, FIRST):
            arms.setdefault(LOOP, loop)
            sides.append(Side(name, LOOP, first=name == FIRST))
            continue
        arms[name] = _part(name, loop, target, shares=bool({LOOP, FIRST} & set(names)))
        sides.append(Side(name, name))
    # The loop runs first, because other arms reuse its first draft.
    order = sorted(arms.values(), key=lambda arm: arm.name != LOOP)
    return tuple(order), tuple(sides)


def _part(name: str, loop: Arm, target: Target, *, shares: bool) -> Arm:
    """The arm of a part of an agent; raises `ConfigError` for a part that the agent does not have."""
    best_of = BEST_OF.fullmatch(name)
    if not (best_of and int(best_of[1]) > 1) and name not in (NO_LESSONS, NO_NOTES):
        raise ConfigError(f"Unknown part {name!r} to compare; {nearest(name, PARTS)}")
    if name == NO_NOTES:
        if loop.runner is None:
            raise ConfigError("Only a Task has notes: give one to compare with no-notes.")
        return replace(loop, name=name, is_noted=False)
    if not isinstance(target, Agent):
        raise ConfigError(f"{name} needs an Agent; a Task can be compared with first and no-notes.")
    agent = cast("Agent[Any]", target)
    if best_of:
        return replace(loop, name=name, drafts=int(best_of[1]), shares=loop if shares else None)
    if not agent.advisors:
        raise ConfigError("The agent has no lessons, so no-lessons would be the same as loop.")
    return replace(loop, name=name, agent=agent.for_evaluation(advised=False), revises=True)


# --- grading --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grader:
    """Judge outputs by the criteria of a case, outside any run."""

    pattern: ReflectionPattern
    judges: Judges
    is_paid: bool
    """Whether a model judges."""

    @property
    def model(self) -> ChatModel | None:
        """The model that judges criteria that need a model."""
        return cast("ChatModel | None", self.pattern.reflection_model)

    async def __call__(
        self, case: EvalCase, output: Output | Draft, step: Step = direct
    ) -> ReflectionEvaluation:
        """Judge an output, or a draft with the conversation that led to it."""
        origin = Origin("function", GRADE)
        return (
            await judge_alone(case.task, output, self.pattern, self.judges, step, origin)
        ).final_evaluation


BY_CASES = JudgeHint(*["model=..., on the command line --judge NAME"] * 2)


def graders_of(
    cases: Iterable[EvalCase], pattern: ReflectionPattern | None = None, model: ModelChoice | None = None
) -> dict[str, Grader]:
    """Graders by case id. A case's own criteria grade it, else the criteria of `pattern`.

    `model` judges criteria that need a model; it defaults to the model of the settings. Raises `ConfigError`
    for a case that can't be graded.
    """
    settings = load_settings()
    named = model or settings.reflection_model or settings.model
    judge = None if named is None else model_of(named, settings)
    return {case.id: _grader(case, pattern, judge) for case in cases}


def _grader(case: EvalCase, pattern: ReflectionPattern | None, judge: ChatModel | None) -> Grader:
    own = None if case.grading or pattern is None else pattern
    criteria: Sequence[Criterion] | None = case.grading or (own and own.quality_criteria)
    if not criteria:
        what = "give it criteria, or a reference and a match"
        raise ConfigError(f"Nothing grades the case {case.id!r}: {what}.")
    threshold = case.threshold
    if threshold is None:
        threshold = DEFAULT_THRESHOLD if own is None else own.quality_threshold
    task_type = case.task.task_type
    try:
        graded_by = ReflectionPattern(
            0, criteria, threshold, reflection_model=judge, task_type=task_type, on_failure="raise"
        )
        judges = judges_of(graded_by, judge, task_type, BY_CASES)
    except ConfigError as error:
        raise ConfigError(f"The case {case.id!r}: {error}") from error
    return Grader(graded_by, judges, bool(judges.signals.judged))
