"""Optimization: tune the texts that steer an agent on cases, and prove the gain on held-out cases."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from redraft._codec import from_record, to_json, to_record
from redraft._hints import keyword_hints
from redraft._steps import Retry, answer, direct, retried
from redraft._sync import run_sync
from redraft._texts import as_text, counted
from redraft._validation import check_bound, check_count, check_list, check_model, nearest, only
from redraft.errors import ConfigError, MissingExtraError, ModelError, RedraftError
from redraft.evals.cases import EvalCase
from redraft.evals.evaluation import AT_ONCE, Arm, Bench, Group, Spending, arm_of, digest, graders_of
from redraft.evals.report import LAST, Evaluated, EvaluationReport, Side, Try, report_of
from redraft.evaluate.criteria import criteria_of
from redraft.loop.agent import AdaptedAgent, Agent
from redraft.loop.keeper import new_run_id
from redraft.loop.record import Process
from redraft.models.names import model_of
from redraft.notes.note import TaskReflection
from redraft.notes.store import project_notes
from redraft.notes.task import Task, TaskIdentity
from redraft.protocols import ChatModel, ChatReply, ChatRequest, Message
from redraft.settings import load_settings
from redraft.stats import FEWEST_CASES
from redraft.stores.base import Record, Store
from redraft.stores.location import project_store
from redraft.stores.memory import MemoryStore
from redraft.text.replies import fenced
from redraft.types import QualityCriterion, TokenUsage, prompt_of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

T = TypeVar("T")

OPTIMIZATION, PROPOSAL = "optimization", "proposal"
"""The kinds of the records of an optimization and of the texts that were proposed in it."""
SYSTEM_PROMPT, CRITERIA, NOTE = PARTS = ("system_prompt", "criteria", "note")
"""What may be tuned: an agent's system prompt and the descriptions of its criteria, or the note on a task."""
INSTRUCTIONS, GUIDANCE = "note: instructions", "note: output guidance"
PRESENT, TUNED = "present", "tuned"
TRIES = 200
LEAST_TASKS = 12
"""Fewer tasks can't be split so that the test part says anything."""
TRAIN, TEST = 0.3, 0.4
"""The shares of the tasks that texts are proposed from and tested on; the rest validates."""
SHOWN_TASKS = 3
"""How many tasks of the training part each proposal is made from."""


@dataclass(frozen=True, slots=True)
class Split:
    """Cases in three parts, so that no task is in two: to learn from, to choose by, and to prove it on."""

    train: tuple[EvalCase, ...]
    validation: tuple[EvalCase, ...]
    test: tuple[EvalCase, ...]


def split_by_task(cases: Sequence[EvalCase], seed: int = 0) -> Split:
    """Split cases by task: 30 % to train, 30 % to validate, 40 % to test.

    Cases of one task stay together. The order of the cases does not matter, and the same `seed` gives the
    same parts. Raises `ConfigError` for fewer than `LEAST_TASKS` tasks.
    """
    tasks: dict[str, list[EvalCase]] = {}
    for case in cases:
        inputs = json.dumps(to_json(dict(case.inputs)), sort_keys=True)
        tasks.setdefault(f"{case.asked}\0{inputs}", []).append(case)
    if len(tasks) < LEAST_TASKS:
        raise ConfigError(
            f"The cases have only {counted(len(tasks), 'task')}; training, validation and test need at least "
            f"{LEAST_TASKS}. Add some with redraft eval add."
        )
    order = sorted(tasks, key=lambda task: digest(str(seed), task))
    test = max(FEWEST_CASES, round(TEST * len(order)))
    train = test + max(2, round(TRAIN * len(order)))
    parts = order[test:train], order[train:], order[:test]
    return Split(*(tuple(case for task in part for case in tasks[task]) for part in parts))


# --- what is tuned -----------------------------------------------------------------------------------------


class Tunable(Protocol):
    """Something with texts that steer it, by name."""

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts as they are."""
        ...

    def arm(self, name: str, texts: Mapping[str, str]) -> Arm:
        """Return what answers cases with other texts."""
        ...

    def case(self, case: EvalCase, texts: Mapping[str, str]) -> EvalCase:
        """Return a case as it is answered with other texts; it is graded as before."""
        ...


class TunableAgent:
    """An agent's system prompt, and the descriptions of the criteria that it reflects by.

    Criteria are the agent's own, or else those that all cases have in common.
    """

    def __init__(self, agent: Agent[Any], cases: Sequence[EvalCase], parts: Sequence[str]) -> None:
        self._agent = agent.for_evaluation()
        pattern = agent.pattern
        own = pattern.quality_criteria
        self._own = () if own is None else criteria_of(own, pattern.task_type)
        criteria = self._own or _criteria_of_all(cases)
        self.texts: Mapping[str, str] = {
            **({SYSTEM_PROMPT: agent.system_prompt} if SYSTEM_PROMPT in parts else {}),
            **({f"criterion: {one.name}": one.description for one in criteria} if CRITERIA in parts else {}),
        }

    def arm(self, name: str, texts: Mapping[str, str]) -> Arm:
        """Return the agent with other texts."""
        agent = self._agent
        if texts.get(SYSTEM_PROMPT, agent.system_prompt) != agent.system_prompt:
            agent = agent.variant(system_prompt=texts[SYSTEM_PROMPT])
        if self._own:
            agent = agent.variant(criteria=_described(self._own, texts))
        return Arm(name, agent)

    def case(self, case: EvalCase, texts: Mapping[str, str]) -> EvalCase:
        """Return a case whose criteria have other descriptions, unless the agent has its own."""
        return case if self._own else replace(case, criteria=_described(case.criteria, texts))


def _criteria_of_all(cases: Sequence[EvalCase]) -> tuple[QualityCriterion, ...]:
    """Return the criteria that all cases have, with the same description."""
    first, *others = (case.criteria for case in cases)
    known = [{(one.name, one.description) for one in criteria} for criteria in others]
    return tuple(one for one in first if all((one.name, one.description) in those for those in known))


def _described(
    criteria: Sequence[QualityCriterion], texts: Mapping[str, str]
) -> tuple[QualityCriterion, ...]:
    return tuple(
        replace(one, description=texts.get(f"criterion: {one.name}", one.description)) for one in criteria
    )


class TunableTask:
    """The note on a task: its instructions, and its guidance on the output.

    Where there is no note yet, it begins as the task's own words.
    """

    def __init__(self, task: Task, note: TaskReflection | None) -> None:
        self._runner = arm_of(task.title, task).runner
        self._note = note
        self._first = note or TaskReflection(task.description, task.expected_output)
        self.texts: Mapping[str, str] = self._texts_of(self._first)

    @staticmethod
    def _texts_of(note: TaskReflection) -> dict[str, str]:
        return {INSTRUCTIONS: note.refined_description, GUIDANCE: note.refined_expected_output}

    def arm(self, name: str, texts: Mapping[str, str]) -> Arm:
        """Return the task with a note of other texts."""
        if dict(texts) == self.texts:
            return Arm(name, runner=self._runner, is_noted=self._note is not None, note=self._note)
        note = replace(
            self._first, refined_description=texts[INSTRUCTIONS], refined_expected_output=texts[GUIDANCE]
        )
        return Arm(name, runner=self._runner, note=note)

    def case(self, case: EvalCase, texts: Mapping[str, str]) -> EvalCase:  # noqa: ARG002 (a note changes no case)
        """Return the case."""
        return case


async def _tunable(target: Agent[Any] | Task, cases: Sequence[EvalCase], parts: Sequence[str]) -> Tunable:
    if isinstance(target, Task):
        note = await project_notes().current(TaskIdentity.of(target))
        return TunableTask(target, note and note.reflection)
    return TunableAgent(target, cases, parts)


# --- the report --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OptimizationRecord:
    """What is stored of an optimization: what it is of, the texts before and after, and what was found."""

    run_id: str
    started_at: datetime
    process: Process
    digest: str
    before: Mapping[str, str] = field(default_factory=dict[str, str])
    after: Mapping[str, str] = field(default_factory=dict[str, str])
    accepted: bool = False
    finding: str = ""
    finished_at: datetime | None = None

    def stored(self) -> Record:
        """Return the record for a store."""
        return Record(OPTIMIZATION, self.run_id, to_record(self))


@dataclass(frozen=True, slots=True)
class OptimizationReport:
    """What an optimization found.

    `before` are the texts as they are, by name, and `after` the best ones on the validation part, the same if
    nothing better was found. `test` compares them on the test part; it is None if there was nothing to test.
    They are `accepted` only if the interval of what passes lies above zero there. `stopped` says why the
    search ended, after so many `tries` and `proposals`; `is_out_of_budget` says that a budget did not suffice
    to search or to test. `usage` covers everything, also what an interrupted
    part of it had used.
    """

    run_id: str
    split: Split
    before: Mapping[str, str]
    after: Mapping[str, str]
    test: EvaluationReport | None
    accepted: bool
    stopped: str
    tries: int
    proposals: int
    usage: TokenUsage
    is_out_of_budget: bool = False

    def sentence(self) -> str:
        """Return what was found."""
        if self.test is None:
            return f"Nothing better than the current texts was found. {self.stopped}"
        verdict = "Accepted" if self.accepted else "Not accepted"
        return f"{verdict}: {self.test.differences[0].sentence()}"

    def diff(self) -> str:
        """Return how the texts differ, as a unified diff with a file for each; empty if they don't."""
        parts: list[str] = []
        for name, before in self.before.items():
            lines = difflib.unified_diff(
                before.splitlines(), self.after[name].splitlines(), f"a/{name}", f"b/{name}", lineterm=""
            )
            parts += [f"{line}\n" for line in lines]
        return "".join(parts)

    def document(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return to_json(
            {
                "run_id": self.run_id,
                "accepted": self.accepted,
                "sentence": self.sentence(),
                "stopped": self.stopped,
                "cases": {
                    part: [case.id for case in getattr(self.split, part)]
                    for part in ("train", "validation", "test")
                },
                "before": self.before,
                "after": self.after,
                "tries": self.tries,
                "proposals": self.proposals,
                "usage": self.usage,
                "test": self.test and self.test.document(),
            }
        )


# --- the search --------------------------------------------------------------------------------------------


@keyword_hints()
class Optimization:
    """Tune the texts that steer an agent on cases: GEPA proposes them, held-out cases decide.

    The `agent` is an `Agent`, of which `parts` may name `system_prompt` and `criteria` (the descriptions that
    it reflects by; default: both), or a `Task`, of which the note is tuned. Cases are split by task into
    train, validation and test (see `split_by_task`). A text is proposed from what went wrong on training
    cases, and the best one on the validation part is compared with the present one on the test part, `n`
    times each case, which the search never sees. Answers are graded by the criteria as they are now, whatever
    is tuned. Nothing is changed: the report has the texts, and a diff of them.

    `writer` proposes texts, and `model` judges where a case needs one; both are by default the model of the
    settings that reflects, else that of the agent. The search ends when all validation cases pass, after
    `budget_tries` tries, or when what is left of a budget is what the test is likely to take. With a
    `run_id`, repeating a call that was interrupted goes on with it, and pays for nothing twice. `on_try` is
    called with each `Try` as it ends.

    Needs the extra `optimize`. Raises `MissingExtraError` without it, and `ConfigError` for cases, an agent
    or a model that can't work, before anything is spent.
    """

    def __init__(
        self,
        cases: Sequence[EvalCase],
        agent: Agent[Any] | Task,
        *,
        parts: Sequence[str] = (),
        n: int = 1,
        at_once: int = AT_ONCE,
        writer: str | ChatModel | None = None,
        model: str | ChatModel | None = None,
        budget_tries: int = TRIES,
        budget_tokens: int | None = None,
        budget_usd: float | None = None,
        budget_seconds: float | None = None,
        seed: int = 0,
        run_id: str | None = None,
        store: Store | None = None,
        on_try: Callable[[Try], None] | None = None,
    ) -> None:
        for name, count in {"n": n, "at_once": at_once, "budget_tries": budget_tries}.items():
            check_count(name, count, 1)
        budgets = {"tokens": budget_tokens, "usd": budget_usd, "seconds": budget_seconds}
        for name, bound in budgets.items():
            check_bound(f"budget_{name}", bound)
        check_model("model", model)
        check_model("writer", writer)
        if not isinstance(agent, Agent | Task):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"Only an Agent or a Task has texts that can be tuned; got {agent!r}.")
        self._parts = _checked_parts(parts, agent)
        self._split = split_by_task(cases, seed)
        self._cases, self._agent, self._n, self._seed = tuple(cases), agent, n, seed
        self._tries, self._on_try = budget_tries, on_try
        self._resumes, self._run_id = run_id is not None, run_id or f"optimize-{new_run_id()}"
        self._store = store or project_store() or MemoryStore()
        arm, settings = arm_of("agent", agent), load_settings()
        reflecting = settings.reflection_model or (arm.pattern and arm.pattern.reflection_model)
        self._graders = graders_of(cases, arm.pattern, model or reflecting or arm.judge)
        if len(self._graders) < len(cases):
            raise ConfigError("Two cases have the same id; ids must be unique.")
        for case in cases:
            arm.check(case)
        self._writer = model_of(writer or reflecting or arm.judge, settings)
        self._gate = asyncio.Semaphore(at_once)
        self._spending = Spending(budgets)
        gepa_library()

    async def run(self) -> OptimizationReport:
        """Search for better texts, and test the best ones.

        Raises `ModelError` if a provider fails for every case of a step, or for a proposal; repeating the
        call with the `run_id` goes on there. Raises `ConfigError` for a `run_id` under which something else
        was optimized, and `StoreError` if the store fails.
        """
        tunable = await _tunable(self._agent, self._cases, self._parts)
        if not tunable.texts:
            raise ConfigError("There is nothing to tune: no criterion is shared by all cases.")
        record = await self._begin(tunable)
        search_tries, test_tries = await self._tried(tunable), await self._tried(tunable, "-test")
        search = GepaSearch(
            search_tries,
            self._split,
            Proposals(self._writer, self._store, self._run_id, self._spending),
            self._tries,
            2 * self._n * len(self._split.test),
            self._seed,
        )
        after = await search.run()
        test = None if after == tunable.texts else await self._test(test_tries, after)
        report = OptimizationReport(
            self._run_id,
            self._split,
            tunable.texts,
            after,
            test,
            test is not None and not test.evaluated.note and test.differences[0].passed.verdict == "better",
            search.stopped,
            len(search_tries.bench.done),
            search.proposals.made,
            self._spending.usage,
            search.is_out_of_budget or (test is not None and bool(test.evaluated.note)),
        )
        record.after, record.accepted, record.finding = after, report.accepted, report.sentence()
        record.finished_at = datetime.now(UTC)
        await self._store.put(record.stored())
        return report

    def run_sync(self) -> OptimizationReport:
        """Like `run`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.run())

    async def _begin(self, tunable: Tunable) -> OptimizationRecord:
        """Store what is optimized, or check that it is the same as before."""
        options = f"{self._seed} {self._n} {self._tries}"
        cases = (f"{case.id} {case.asked}" for case in self._cases)
        record = OptimizationRecord(
            self._run_id,
            datetime.now(UTC),
            Process.this(),
            digest(options, json.dumps(dict(tunable.texts)), *cases),
            tunable.texts,
        )
        before = await self._store.get(OPTIMIZATION, self._run_id) if self._resumes else None
        if before is not None:
            if before.data["digest"] != record.digest:
                raise ConfigError(
                    f"The optimization {self._run_id!r} was of other cases, texts or options; repeat its "
                    "original call, or use a new run_id."
                )
            record.started_at = from_record(OptimizationRecord, before.data).started_at
        await self._store.put(record.stored())
        return record

    async def _tried(self, tunable: Tunable, suffix: str = "") -> Tries:
        bench = Bench(f"{self._run_id}{suffix}", self._store, self._graders, resumes=self._resumes)
        for attempt in (await bench.load()).values():
            self._spending.add(attempt.spent)
        return Tries(tunable, bench, self._spending, self._gate, self._on_try)

    async def _test(self, tries: Tries, texts: Mapping[str, str]) -> EvaluationReport:
        """Compare texts with the present ones on the test part; the comparison is stored as an evaluation."""
        cases = self._split.test
        evaluated = Evaluated(
            f"{self._run_id}-test",
            datetime.now(UTC),
            Process.this(),
            tuple(case.id for case in cases),
            tuple(case.id for case in cases if case.control),
            digest(*(f"{case.id} {case.asked}" for case in cases)),
            (Side(TUNED, tries.arm_name(texts)), Side(PRESENT, PRESENT)),
            self._n,
        )
        await self._store.put(evaluated.stored())
        try:
            for number in range(1, self._n + 1):
                for one in (texts, tries.tunable.texts):
                    await tries.of(cases, one, number)
        except BudgetSpentError as error:
            evaluated.note = str(error)
        evaluated.finished_at = datetime.now(UTC)
        report = report_of(evaluated, tries.bench.done.values())
        evaluated.findings = tuple(one.sentence() for one in report.differences)
        await self._store.put(evaluated.stored())
        return report


def _checked_parts(parts: Sequence[str], agent: Agent[Any] | Task) -> tuple[str, ...]:
    """Return the parts to tune, by default all that there are; raises `ConfigError` for others."""
    check_list("parts", parts)
    wrapped = isinstance(agent, AdaptedAgent)
    own = (NOTE,) if isinstance(agent, Task) else (CRITERIA,) if wrapped else (SYSTEM_PROMPT, CRITERIA)
    for part in parts:
        if part not in PARTS:
            raise ConfigError(f"Unknown part {part!r} to tune; {nearest(part, PARTS)}")
        if part not in own:
            raise ConfigError(f"{agent!r} has no {part} that can be tuned, only {' and '.join(own)}.")
    return tuple(parts) or own


def gepa_library() -> Any:
    """Import GEPA; raises `MissingExtraError` if it is not installed."""
    try:
        return import_module("gepa")
    except ImportError as error:
        raise MissingExtraError("Tuning texts", "optimize") from error


class BudgetSpentError(RedraftError):
    """A budget is spent, so no further try is made."""


@dataclass(slots=True)
class Tries:
    """Try texts at cases, some at once, and each try once."""

    tunable: Tunable
    bench: Bench
    spending: Spending
    gate: asyncio.Semaphore
    on_try: Callable[[Try], None] | None = None

    def arm_name(self, texts: Mapping[str, str]) -> str:
        """Return the name of the arm of some texts."""
        return PRESENT if texts == self.tunable.texts else digest(json.dumps(dict(texts), sort_keys=True))

    async def of(self, cases: Sequence[EvalCase], texts: Mapping[str, str], number: int = 1) -> list[Try]:
        """Return a try at each case, in order, made now if it was not before.

        Raises `BudgetSpentError` once a budget is spent, and `ModelError` if a provider failed for all cases.
        """
        name = self.arm_name(texts)
        arm = self.tunable.arm(name, texts)

        async def attempt(case: EvalCase) -> None:
            async with self.gate:
                if self.spending.is_over:
                    raise BudgetSpentError("A budget was spent.")
                made = await self.bench.attempt(self.tunable.case(case, texts), arm, number)
                self.spending.add(made.spent)
                if self.on_try is not None:
                    self.on_try(made)

        async with Group() as group:
            for case in {case.id: case for case in cases}.values():
                if (case.id, name, number) not in self.bench.done:
                    group.start(attempt(case))
        found = [self.bench.done[case.id, name, number] for case in cases]
        if all(one.error and one.unknown for one in found):
            raise ModelError(f"No case could be answered: {found[0].error}")
        return found


@dataclass(slots=True)
class Proposals:
    """Ask a model for better texts; each is stored, and found again in a repeated run."""

    writer: ChatModel
    store: Store
    run_id: str
    spending: Spending
    made: int = 0

    async def text(self, name: str, text: str, examples: Sequence[str]) -> str:
        """Return a better text, given examples of what came of the present one."""
        what = next(what for beginning, what in KINDS.items() if name.startswith(beginning))
        shown = "\n\n".join(f"# Task {number}\n{one}" for number, one in enumerate(examples, 1))
        prompt = PROMPT.format(what=what, text=fenced(text, "present text"), examples=fenced(shown, "record"))
        self.made += 1
        key = f"{self.run_id}/{self.made:04d}-{digest(prompt)}"
        stored = await self.store.get(PROPOSAL, key)
        if stored is None:
            request = ChatRequest((Message("user", prompt),), role="reflection")
            patient = retried(direct, Retry(), lambda _name, _error, wait: wait)
            reply = await patient("propose", ChatReply, answer, self.writer, request)
            stored = Record(PROPOSAL, key, {"text": reply.text, "usage": to_record(reply.usage)})
            await self.store.put(stored)
        self.spending.add(from_record(TokenUsage, stored.data["usage"]))
        block = _BLOCK.search(stored.data["text"])
        return (stored.data["text"] if block is None else block[1]).strip()


class GepaSearch:
    """A search of GEPA, which runs in a thread of its own, for texts with which more cases pass.

    Methods without an underscore but `run` are what GEPA calls, in its thread. `reserve` is the number of
    tries that the test will take. GEPA does the same each time that it is given the same, so a repeated
    search asks for what has been made already, up to where it was interrupted.
    """

    def __init__(
        self, tries: Tries, split: Split, proposals: Proposals, most: int, reserve: int, seed: int
    ) -> None:
        self._tries, self._split, self.proposals = tries, split, proposals
        self._most, self._reserve, self._seed = most, reserve, seed
        self._loop = asyncio.get_running_loop()
        self._pending: Future[Any] | None = None
        self._error: BaseException | None = None
        self.is_out_of_budget = False
        self.stopped = f"The search ended after {counted(most, 'evaluation')}."

    async def run(self) -> Mapping[str, str]:
        """Return the best texts on the validation part."""
        thread = asyncio.ensure_future(asyncio.to_thread(self._search))
        try:
            found = await asyncio.shield(thread)
        except asyncio.CancelledError as error:
            self._error = error
            if self._pending is not None:
                self._pending.cancel()
            await asyncio.wait([thread])
            raise
        except BudgetSpentError:
            self.is_out_of_budget, self.stopped = True, "A budget was spent before the search ended."
            return self._tries.tunable.texts
        if self._error is not None:  # GEPA goes on after some errors
            raise self._error
        return found

    def _search(self) -> dict[str, str]:
        texts, split = self._tries.tunable.texts, self._split
        result = gepa_library().optimize(
            dict(texts),
            list(split.train),
            list(split.validation),
            adapter=self,
            reflection_minibatch_size=SHOWN_TASKS,
            max_metric_calls=self._most,
            stop_callbacks=[self._is_over],
            logger=self,
            seed=self._seed,
        )
        return cast("dict[str, str]", result.best_candidate)

    def _is_over(self, state: Any) -> bool:
        if self._error is not None:
            return True
        if max(state.program_full_scores_val_set) >= PERFECT:
            self.stopped = "All validation cases pass."
            return True
        made = len(self._tries.bench.done)
        if self._tries.spending.is_over_with(1 + self._reserve / max(1, made)):
            self.is_out_of_budget = not self.proposals.made
            self.stopped = (
                "The rest of a budget is reserved for the test."
                if self.proposals.made
                else "A budget is too small for a search and a test."
            )
            return True
        return False

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out work in the event loop of the caller, and wait for it in this thread."""
        if self._error is not None:
            work.close()
            raise self._error
        pending = self._pending = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return pending.result()
        except Exception as error:
            self._error = error
            raise

    def evaluate(self, batch: list[EvalCase], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Return the scores of texts on cases."""
        tries = self._wait_for(self._tries.of(batch, candidate))
        traces = [_example(case, one) for case, one in zip(batch, tries, strict=True)]
        return import_module("gepa.core.adapter").EvaluationBatch(
            outputs=[None] * len(batch),
            scores=[_score(one) for one in tries],
            trajectories=traces if capture_traces else None,
        )

    def make_reflective_dataset(
        self, _candidate: dict[str, str], batch: Any, components: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        """Return the examples that each text is improved by."""
        return {name: [{"example": one} for one in batch.trajectories] for name in components}

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        dataset: Mapping[str, Sequence[Mapping[str, str]]],
        components: list[str],
    ) -> dict[str, str]:
        """Return better texts."""
        return {
            name: self._wait_for(
                self.proposals.text(name, candidate[name], [one["example"] for one in dataset[name]])
            )
            for name in components
        }

    def log(self, message: str) -> None:
        """Ignore what GEPA has to say."""


def _score(attempt: Try) -> float:
    """Return what counts in the search: 1 for an answer that passes, less than half for any other."""
    if not attempt.answers:
        return 0.0
    last = attempt.answers[-1]
    return PERFECT if last.passed else (last.score or 0.0) * 0.49


def _example(case: EvalCase, attempt: Try) -> str:
    """Render a try for the model that proposes texts."""
    parts = [prompt_of(case.task)]
    if case.reference not in (None, ""):
        parts.append(f"## A right answer\n{as_text(case.reference)}")
    if not attempt.answers:
        return "\n\n".join([*parts, f"## No answer\n{attempt.error}"])
    heads = {len(attempt.answers) - 1: "The answer", 0: "The first draft"}
    if len(attempt.answers) == 1:
        heads = {0: "The answer"}
    for at, head in sorted(heads.items()):
        one = attempt.answers[at]
        issues = "\n".join(f"- {issue}" for issue in one.issues)
        verdict = "It passed." if one.passed else f"It did not pass.\n{issues}".strip()
        parts.append(f"## {head}\n{as_text(one.output)}\n\n## Verdict\n{verdict}")
    return "\n\n".join(parts)


async def optimization(store: Store, run_id: str = LAST) -> OptimizationRecord:
    """Read the record of an optimization by its id or a prefix of it, or of the `last` one.

    Raises `ConfigError` if there is none, or if the prefix is ambiguous.
    """
    if run_id == LAST:
        found = await store.find(OPTIMIZATION, newest_first=True, limit=1)
    else:
        found = await store.find(OPTIMIZATION, prefix=run_id, limit=3) if run_id else []
        found = [one for one in found if one.key == run_id] or found
    record = only(found, run_id, "optimizations", lambda one: one.key)
    if record is None:
        raise ConfigError(f"There is no optimization {run_id!r} here.")
    return from_record(OptimizationRecord, record.data)


PERFECT = 1.0
_BLOCK = re.compile(r"```[^\n]*\n(.*)```", re.DOTALL)

KINDS = {
    SYSTEM_PROMPT: "the system prompt of an assistant",
    "criterion": "the description of a criterion, by which an assistant checks and revises its answers",
    INSTRUCTIONS: "the instructions of a note that an assistant reads before a task",
    GUIDANCE: "what a note that an assistant reads before a task says about the output",
}

PROMPT = """\
Improve {what}.

{text}

What the assistant did with it:

{examples}

Find out what the verdicts have in common, and write a new text with which the assistant would have passed,
on these tasks and on others of their kind. State rules and facts that hold for all such tasks; don't copy
answers. Keep what works.

Reply with the whole new text between two lines of ```, and nothing else.
"""
