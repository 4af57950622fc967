"""Evaluation: run agents on cases, grade what they return, and go on where a killed evaluation ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, cast

from redraft._calls import sees_run
from redraft._codec import describe_error, to_record
from redraft._hints import keyword_hints
from redraft._steps import direct
from redraft._sync import run_sync
from redraft._tasks import end_tasks
from redraft._texts import as_text, json_data, key_of, short_repr
from redraft._validation import check_count, check_model, nearest
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
    judgements_of,
    other_calls_of,
    prompt_tokens,
    recorded_work,
    versions_of,
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
from redraft.loop.journal import RunKey, new_run_id
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
from redraft.notes.note import fill, note_block, tokens_of
from redraft.notes.store import project_notes
from redraft.notes.task import Task, TaskIdentity
from redraft.notes.task_run import TaskRun, TaskRunner, runner_of
from redraft.protocols import FRESH_TEMPERATURE, ChatModel, ModelChoice
from redraft.settings import load_settings
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.stores.run_index import RunQuery, run_index
from redraft.stores.sqlite import MemoryStore
from redraft.types import NOTHING_USED, Conversation, Criterion, Draft, Output, TokenUsage, render_usd

if TYPE_CHECKING:
    from redraft.protocols import Step
    from redraft.stores.base import Store
    from redraft.types import ReflectionEvaluation, ReflectionResult, ReflectionVersion

Target = Agent[Any] | Task | Callable[..., Any]
LOOP, FIRST, NO_LESSONS, NO_NOTES = "loop", "first", "no-lessons", "no-notes"
PARTS = (LOOP, FIRST, "best-of-N", NO_LESSONS, NO_NOTES)
"""What `compare` may name: the agent, its first draft, the best of N drafts, and the agent without memory."""
CONCURRENCY = 8
GRADE = "grade"
"""The name of the runs that grade an answer."""


@keyword_hints()
class Evaluation:
    """Run agents on cases, `n` times each, and compare their answers.

    `cases` are `EvalCase`s, or the path of a file that `read_cases` reads. `agents` is one agent, or several
    by name, of which the first is compared with each of the others. An
    agent is a Redraft `Agent`; a `Task`, with the note that is in force on it; or a function, sync or async,
    that answers a prompt. Without others, what an agent returns is compared with its own first draft.
    `compare` names parts of one agent to compare instead, the first with each of the others: `loop` (the
    agent as it is), `first` (its first draft), `best-of-N` (the best of up to N drafts of an `Agent`, without
    feedback), `no-lessons` (an `Agent` without its advisors), `no-notes` (a `Task` without its note).

    A case's criteria grade each answer anew, whatever its own run thought of it; `model` judges where a model
    has to, by default the one of the settings, else that of the agent. An agent without criteria of its own
    reflects by the case's criteria. Agents recall lessons and notes, and learn nothing.

    At most `concurrency` cases run at the same time. The budgets bound all runs together, grading included,
    and what they have under way. A try that needs more than is left is suspended: it is no result, and goes
    on under the same `run_id` with a larger budget. What a function uses is counted when it returns, so the
    functions under way may exceed a budget. `budget_usd` needs the price of every model. Everything is stored
    in `store`, by default the project's. With a `run_id`, repeating an evaluation that was interrupted goes
    on with it, and pays for nothing twice.
    `on_try` is called with each `Try` as it ends.

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
        budget = Budget(budget_tokens, budget_usd, budget_seconds)
        if isinstance(cases, str | Path):
            cases = read_cases(cases)
        for case in cases:
            if not isinstance(case, EvalCase):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
                raise ConfigError(
                    f"cases must be EvalCases, or the path of a file of cases, got {short_repr(case)}."
                )
        if not cases:
            raise ConfigError("There are no cases to evaluate.")
        counts = Counter(case.id for case in cases)
        if twice := [one for one, count in counts.items() if count > 1]:
            raise ConfigError(f"Two cases have the id {twice[0]!r}; ids must be unique.")
        self._cases = tuple(cases)
        self._n, self._concurrency, self._on_try = n, concurrency, on_try
        self._budget = budget
        self._resumes = run_id is not None
        self._run_id = run_id or f"eval-{new_run_id()}"
        self._store = store = store or project_store() or MemoryStore()
        several = cast("Mapping[str, Target]", agents) if isinstance(agents, Mapping) else None
        targets = several or {_name_of(cast("Target", agents)): cast("Target", agents)}
        self._arms, self._sides = _compared(targets, compare) if compare else _arms_of(targets)
        main = self._arms[0]
        named = model or load_settings().reflection_model or (main.pattern and main.pattern.reflection_model)
        judge = named or main.judge
        graders = graders_of(self._cases, main.pattern, judge)
        self._bench = Bench(self._run_id, store, graders, resumes=self._resumes)
        for arm in self._arms:
            for case in self._cases:
                arm.check(case)
        if budget.usd is not None:
            check_prices(*(model for arm in self._arms for model in arm.models()))
            check_prices(*(grader.pattern.reflection_model for grader in graders.values() if grader.is_paid))

    async def estimate(self) -> Estimate:
        """Estimate what `run` may take at most, without asking a model; what is stored is not counted again.

        Tokens are those of the agent's stored runs; without any, those of the prompts and an assumed length
        of replies. Raises `ConfigError` and `StoreError` as `run` does.
        """
        await self._check_same(self._evaluated())
        done = await self._bench.load() if self._resumes else {}
        parts: list[EstimatedCalls] = []
        grading, grades = Work(), await self._bench.unused_grades() if self._resumes else 0
        for arm in self._arms:
            drafts, judgements = Work(), Work()
            for case in self._cases:
                grader = self._bench.grader(case)
                for number in range(1, self._n + 1):
                    if (case.id, arm.name, number) in done:
                        continue
                    stored = await self._bench.recorded(case, arm, number) if self._resumes else (0, 0)
                    answers = arm.add_work(case, drafts, judgements, stored)
                    if grader.is_paid:
                        known = min(grades, answers)
                        grades -= known
                        prompt = prompt_tokens(case.task, grader.judges.rubric) + EXPECTED_REPLY
                        grading.add(answers - known, calls_of_judgement(grader.judges), prompt)
            agent, model = arm.stored_as
            means = await RunMeans.stored(self._store, agent=agent, model=model)
            of = f" of {agent!r}"
            judge = arm.own_judge if judgements.units else None
            parts.append(estimated(arm.name, "agent", arm.judge, drafts, means, of))
            parts.append(estimated(arm.name, "judge", judge, judgements, means, of))
        if grading.units:
            judge = next(one for one in map(self._bench.grader, self._cases) if one.is_paid).model
            means = await RunMeans.stored(self._store, agent=GRADE, judge=repr(judge))
            parts.append(estimated("grading", "judge", judge, grading, means, " that graded answers"))
        tries = len(self._cases) * self._n * len(self._arms)
        return Estimate(tries - len(done), len(done), tuple(parts))

    async def run(self) -> EvaluationReport:
        """Run what has not been run yet, and return the report on everything.

        A run that fails is a `Try` with an `error`; repeating the evaluation under its `run_id` tries it
        again. Raises `ConfigError` for a `run_id` under which other cases or agents were evaluated, and
        `StoreError` if the store fails.
        """
        evaluated = await self._begin()
        done = await self._bench.load()
        budget = SharedBudget(self._budget, [attempt.spent for attempt in done.values()], evaluated.suspended)
        gate = asyncio.Semaphore(self._concurrency)

        async def answer_case(case: EvalCase, number: int) -> None:
            async with gate:
                for arm in self._arms:
                    if (case.id, arm.name, number) in done or budget.is_over:
                        continue
                    attempt = await self._bench.attempt(case, arm, number, budget)
                    if attempt is not None and self._on_try is not None:
                        self._on_try(attempt)

        async with Group() as group:
            for number in range(1, self._n + 1):
                for case in self._cases:
                    group.start(answer_case(case, number))
        evaluated.suspended = budget.suspended
        wanted = len(self._cases) * self._n * len(self._arms)
        if len(done) < wanted:
            evaluated.note = _spent_note(budget, len(done), wanted)
        evaluated.finished_at = datetime.now(UTC)
        report = report_of(evaluated, done.values())
        evaluated.findings = tuple(one.sentence() for one in report.differences)
        await self._store.put(evaluated.stored())
        return report

    def estimate_sync(self) -> Estimate:
        """Like `estimate`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.estimate())

    def run_sync(self) -> EvaluationReport:
        """Like `run`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.run())

    def _evaluated(self) -> Evaluated:
        """Return the record of what is evaluated."""
        return Evaluated(
            self._run_id,
            datetime.now(UTC),
            Process.this(),
            tuple(case.id for case in self._cases),
            tuple(case.id for case in self._cases if case.control),
            digest(*(f"{case.id} {case.asked}" for case in self._cases)),
            self._sides,
            self._n,
        )

    async def _check_same(self, evaluated: Evaluated) -> Evaluated | None:
        """Return the record of an interrupted evaluation; raises `ConfigError` if it was a different one."""
        before = await evaluated_in(self._store, self._run_id) if self._resumes else None
        if before is not None and (before.digest, before.sides) != (evaluated.digest, evaluated.sides):
            raise ConfigError(
                f"The evaluation {self._run_id!r} was of other cases, agents or parts; repeat its "
                "original call, or use a new run_id."
            )
        return before

    async def _begin(self) -> Evaluated:
        """Store what is evaluated."""
        evaluated = self._evaluated()
        before = await self._check_same(evaluated)
        if before is not None:
            evaluated.started_at, evaluated.suspended = before.started_at, before.suspended
        await self._store.put(evaluated.stored())
        return evaluated


def _spent_note(budget: SharedBudget, done: int, wanted: int) -> str:
    """Say with numbers what a spent budget prevented."""
    note = f"The budget was spent after {done} of {wanted} tries. {budget.explain()}"
    if count := len(budget.suspended):
        used = sum(budget.suspended.values(), NOTHING_USED)
        cost = f" and {render_usd(used.cost_usd)}" if used.cost_usd else ""
        note += (
            f" {'One try was' if count == 1 else f'{count} tries were'} suspended after "
            f"{used.total_tokens:,} tokens{cost}: no result yet, to go on with a larger budget."
        )
    return note


class Bench:
    """Try arms at cases, and grade their answers; each try is made once, and stored under `run_id`.

    `done` are the tries that have been made. `graders` has the grader of each case by its id.
    With `resumes`, a repeated call reads back what an interrupted try had paid for.
    """

    def __init__(self, run_id: str, store: Store, graders: Mapping[str, Grader], *, resumes: bool) -> None:
        self._run_id, self._store, self._graders, self._resumes = run_id, store, graders, resumes
        self._grades: dict[tuple[object, ...], asyncio.Future[ReflectionEvaluation]] = {}
        self.done: dict[tuple[str, str, int], Try] = {}

    async def load(self) -> dict[tuple[str, str, int], Try]:
        """Return the tries that were made before; those that failed are left out, so they are made again."""
        found = await tries_in(self._store, self._run_id)
        self.done.update({one.key: one for one in found if not one.error})
        return self.done

    def grader(self, case: EvalCase) -> Grader:
        """Return the grader of a case."""
        return self._graders[case.id]

    async def recorded(self, case: EvalCase, arm: Arm, number: int) -> tuple[int, int]:
        """Return how many drafts and judgements an interrupted try has stored."""
        return await recorded_work(self._store, self._place(case, arm, number))

    async def unused_grades(self) -> int:
        """Return how many stored judgements, rather too few, are of answers of interrupted tries."""
        query = RunQuery({"agent": GRADE, "status": "finished"}, prefixes=(f"{self._run_id}.",))
        stored = (await run_index(self._store).sum("agent", query)).get(GRADE)
        if stored is None:
            return 0
        answers = {
            digest(one.case, as_text(answer.output))
            for one in self.done.values()
            if self._graders[one.case].is_paid
            for answer in one.answers
        }
        # Equal answers to different results of tools are graded apart, which their calls show.
        calls = stored.requests - sum(one.grading.requests for one in self.done.values())
        return max(0, min(stored.runs - len(answers), calls))

    async def attempt(self, case: EvalCase, arm: Arm, number: int, budget: SharedBudget) -> Try | None:
        """Let an arm answer a case, grade what it would return after each of its versions, and store that.

        Returns None, and stores no result, if the budget did not last.
        """
        place = digest(case.id, arm.name)
        try:
            attempt = await budget.part(
                f"{place}-{number}", lambda: self._graded(case, arm, number, budget), attrgetter("spent")
            )
        except UnfinishedError:
            return None
        self.done[attempt.key] = attempt
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
        )

    def _place(self, case: EvalCase, arm: Arm, number: int) -> str:
        return f"{self._run_id}.{digest(case.id, arm.name, str(number))}"

    def _key(self, run_id: str) -> RunKey:
        """Return the key of a run on this bench."""
        return RunKey(run_id, self._store, self._resumes, self._run_id)

    async def _grade(self, case: EvalCase, answer: WouldReturn) -> ReflectionEvaluation:
        """Judge an answer by the criteria of its case; a judgement by a model is stored, and made once."""
        grader, seen = self._graders[case.id], tool_results(answer.conversation)
        parts = [as_text(answer.output), *([repr(seen)] if seen else [])]
        place = f"{self._run_id}.{digest(case.id, *parts)}-grade"
        draft = Draft(answer.output, NOTHING_USED, conversation=answer.conversation)
        return await grader(case, draft, self._key(place).step() if grader.is_paid else direct)


def _name_of(target: Target) -> str:
    if isinstance(target, Agent):
        return target.name
    if isinstance(target, Task):
        return target.title
    return getattr(target, "__name__", type(target).__name__)


def digest(*parts: str) -> str:
    """Return a short text that stands for some texts."""
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]


class Group:
    """Tasks of which the first to fail cancels the others; its error is raised as it is."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Any) -> None:
        """Start a task."""
        self._tasks.append(asyncio.ensure_future(work))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await end_tasks(self._tasks)


# --- arms -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WouldReturn:
    """An output that would be returned if the run ended there, and what it cost up to there."""

    output: Output
    usage: TokenUsage
    conversation: Conversation | None = None
    """The conversation that led to it, for a judge to see what tools returned."""


@dataclass(frozen=True, slots=True)
class MadeAnswers:
    """What an arm made of a case: what it would return after each version, and what all of it cost."""

    drafts: tuple[WouldReturn, ...]
    usage: TokenUsage
    seconds: float
    revisions: tuple[Revision, ...] = ()


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the ways to answer that are compared: an agent, a task, or a function of a prompt.

    A task gets its note if it `is_noted`. `drafts` is the number of drafts of a best-of-N, 0 for a run of the
    agent as it is; its first draft is that of the arm that it `shares` with, if there is one.
    """

    name: str
    agent: Agent[Any] | None = None
    function: Callable[..., Any] | None = None
    runner: TaskRunner | None = None
    is_noted: bool = True
    drafts: int = 0
    shares: Arm | None = None

    @property
    def pattern(self) -> ReflectionPattern | None:
        """The pattern of the agent or the task, if there is one."""
        return self.agent.pattern if self.agent is not None else self.runner and self.runner.pattern

    @property
    def judge(self) -> ChatModel | None:
        """The model that judges where neither the caller nor the settings name one."""
        return self.agent.model if self.agent is not None else self.runner and self.runner.model

    @property
    def own_judge(self) -> ChatModel | None:
        """The model that judges in its runs where a criterion needs one."""
        return None if (pattern := self.pattern) is None else judge_of(pattern, self.judge)

    @property
    def stored_as(self) -> tuple[str, str]:
        """The agent and the model under which its runs are stored."""
        if self.agent is not None:
            return self.agent.name, str(self.agent.definition["model"])
        return (self.name, "") if self.runner is None else (self.runner.origin.name, self.runner.origin.model)

    def add_work(self, case: EvalCase, drafts: Work, judgements: Work, stored: tuple[int, int]) -> int:
        """Add what a try takes at most, less what is stored of it; returns how many answers are graded."""
        pattern = self.pattern
        if pattern is None:
            drafts.add(1, None, 0)
            return 1
        runs, has_steps = 1, False
        if self.agent is not None:
            pattern = _pattern_for(case, self.agent)
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
        made, judged = stored
        if self.drafts:
            first = self.drafts - (self.shares is not None and pattern.candidates == 1)
            revisions, answers, verdicts, other = 0, first, first, 0
        else:
            first, revisions = runs * pattern.candidates, runs * pattern.max_iterations
            answers, verdicts = versions_of(pattern), runs * judgements_of(pattern)
            other = runs * other_calls_of(pattern)
        drafts.add(first - made, calls_each, prompt)
        drafts.add(revisions - max(0, made - first), calls_each, prompt + EXPECTED_REPLY)
        if judges.signals.judged:
            judgements.add(verdicts - judged, calls_of_judgement(judges), prompt + EXPECTED_REPLY)
        judgements.add(other, 1, prompt + EXPECTED_REPLY)
        return answers

    def models(self) -> Iterator[object]:
        """Yield the models that answer and judge in its runs."""
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
            judges_of(_pattern_for(case, self.agent), self.agent.model, case.task.task_type)

    async def answer(self, case: EvalCase, key: RunKey, shared: RunKey | None) -> MadeAnswers:
        """Answer a case in the run of `key`; `shared` is the run whose first draft this arm begins with."""
        if self.runner is not None:
            run = TaskRun(self.runner, case.inputs, {}, key, note=await self._note(self.runner.task, case))
            done = await run.run()
            made = _made(done.result, self.runner.pattern.best_version_selection)
            if done.attempts == 1:
                return made
            # Only the last attempt is a run of its own versions; what was refused before it is paid for, too.
            drafts = (replace(made.drafts[-1], usage=done.usage),)
            return replace(made, drafts=drafts, usage=done.usage)
        if (agent := self.agent) is None:
            pattern, step = ReflectionPattern(0), key.step()
            result = await run_functions(case.task, self.function, _accept, pattern=pattern, step=step)
            return _made(result, "highest_score")

        pattern = _pattern_for(case, agent)
        if not self.drafts:
            result = await agent.run(case.task, pattern=pattern, step=key.step())
            return _made(result, pattern.best_version_selection)
        versions: list[ReflectionVersion] = []
        seconds = 0.0
        if shared is not None and pattern.candidates == 1:
            # That run has ended, so this is its result again, and no call.
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
        """Return the note in force on a task, unless the arm goes without."""
        note = await project_notes().current(TaskIdentity.of(task)) if self.is_noted else None
        if note is None:
            return NO_NOTE
        text = note_block(note.reflection, task.plain(), case.inputs)
        return InjectedNote("note", note.version, note.version, text, tokens_of(text), "the note in force")


def _pattern_for(case: EvalCase, agent: Agent[Any]) -> ReflectionPattern:
    """Return the agent's pattern, with the case's criteria and threshold if it has no criteria."""
    pattern = agent.pattern
    if pattern.quality_criteria is not None or not case.criteria:
        return pattern
    threshold = pattern.quality_threshold if case.threshold is None else case.threshold
    return replace(pattern, quality_criteria=case.criteria, quality_threshold=threshold)


def _accept(_output: object) -> bool:
    return True


def _made(result: ReflectionResult, selection: Any) -> MadeAnswers:
    """Return what a run made; its last entry is what it returned, at what it cost in all."""
    drafts = _returned(result.history.versions, selection)
    best = result.history.best_version
    whole = WouldReturn(json_data(result.best_output), result.token_usage, best.conversation)
    revisions = tuple(
        replace(one, way=replace(one.way, reason="")) for one in revisions_of(result.history.versions)
    )
    return MadeAnswers((*drafts[:-1], whole), result.token_usage, result.execution_time, revisions)


def _returned(versions: Sequence[ReflectionVersion], selection: Any) -> tuple[WouldReturn, ...]:
    found: list[WouldReturn] = []
    used = NOTHING_USED
    for end, version in enumerate(versions, 1):
        used += version.token_usage
        if version.choice is not None:  # the candidates that were not chosen cost as much
            used = sum(version.choice.usage.values(), start=used)
        chosen = select(versions[:end], selection)
        found.append(WouldReturn(json_data(chosen.output), used, chosen.conversation))
    return tuple(found)


def _arms_of(targets: Mapping[str, Target]) -> tuple[tuple[Arm, ...], tuple[Side, ...]]:
    """Return the arms and sides of agents: what each returns, and what the first one drafts first."""
    if not targets:
        raise ConfigError("There is no agent to evaluate.")
    arms = tuple(arm_of(name, target) for name, target in targets.items())
    main = arms[0]
    sides = [Side(arm.name, arm.name) for arm in arms]
    if main.pattern is not None:
        sides.insert(1, Side(f"{main.name} (first draft)", main.name, first=True))
    return arms, tuple(sides)


def arm_of(name: str, target: Target) -> Arm:
    """Return the arm of an agent, which learns nothing; raises `ConfigError` for what can't be evaluated."""
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
    """Return the arms and sides of the parts of one agent."""
    if len(targets) != 1:
        raise ConfigError("compare compares the parts of one agent; leave the other agents out.")
    ((_, target),) = targets.items()
    loop = arm_of(LOOP, target)
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
    # The loop comes first: others begin with its first draft.
    order = sorted(arms.values(), key=lambda arm: arm.name != LOOP)
    return tuple(order), tuple(sides)


def _part(name: str, loop: Arm, target: Target, *, shares: bool) -> Arm:
    """Return the arm of a part of an agent; raises `ConfigError` for one that it does not have."""
    found = BEST_OF.fullmatch(name)
    if not (found and int(found[1]) > 1) and name not in (NO_LESSONS, NO_NOTES):
        raise ConfigError(f"Unknown part {name!r} to compare; {nearest(name, PARTS)}")
    if name == NO_NOTES:
        if loop.runner is None:
            raise ConfigError("Only a Task has notes: give one to compare with no-notes.")
        return replace(loop, name=name, is_noted=False)
    if not isinstance(target, Agent):
        raise ConfigError(f"{name} needs an Agent; a Task can be compared with first and no-notes.")
    agent = cast("Agent[Any]", target)
    if found:
        return replace(loop, name=name, drafts=int(found[1]), shares=loop if shares else None)
    if not agent.advisors:
        raise ConfigError("The agent has no lessons, so no-lessons would be the same as loop.")
    return replace(loop, name=name, agent=agent.for_evaluation(advised=False))


# --- grading --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grader:
    """Judge outputs by the criteria of a case, apart from any run; `is_paid` says that a model is asked."""

    pattern: ReflectionPattern
    judges: Judges
    is_paid: bool

    @property
    def model(self) -> ChatModel | None:
        """The model that judges where one is needed."""
        return cast("ChatModel | None", self.pattern.reflection_model)

    async def __call__(
        self, case: EvalCase, output: Output | Draft, step: Step = direct
    ) -> ReflectionEvaluation:
        """Return the judgement of an output, or of a draft with the conversation that led to it."""
        origin = Origin("function", GRADE)
        return (
            await judge_alone(case.task, output, self.pattern, self.judges, step, origin)
        ).final_evaluation


BY_CASES = JudgeHint(*["model=..., on the command line --judge NAME"] * 2)


def graders_of(
    cases: Iterable[EvalCase], pattern: ReflectionPattern | None = None, model: ModelChoice | None = None
) -> dict[str, Grader]:
    """Return the graders of cases, by their ids: by a case's own criteria, else by those of a `pattern`.

    `model` judges where one is needed, by default the one of the settings. Raises `ConfigError` for a case
    that nothing can grade.
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
