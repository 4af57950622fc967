"""The loop: generate, evaluate, critique, revise, until a rule says stop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import get_ident
from time import monotonic, perf_counter
from typing import TYPE_CHECKING
from weakref import ref

from redraft.core.callbacks import ReflectionDecision
from redraft.core.context import RunContext
from redraft.core.errors import ChangedRunError, ReflectionFailedError, UnfinishedError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.core.events import RunFinished, RunStarted, VersionEvaluated
from redraft.core.failures import MISTAKES
from redraft.core.ids import passing_id
from redraft.core.made import maker
from redraft.core.protocols import TimedStep
from redraft.core.result import ConvergenceReason, ReflectionHistory, ReflectionResult
from redraft.core.steps import allowance, direct, observed, offered
from redraft.core.task import prompt_of
from redraft.core.texts import as_text, copy_of
from redraft.core.version import Draft, ReflectionVersion
from redraft.loop.attempts import next_attempt
from redraft.loop.budget import NO_BUDGET, Tally, bounded
from redraft.loop.diagnose import diagnose
from redraft.loop.guests import call_back, decision_of, note, observe, observe_failure, recalled
from redraft.loop.select import first_best_last, gain_over, is_better, select
from redraft.loop.stop import reason_of
from redraft.loop.tell import emitter
from redraft.loop.trying import failed_once, trying
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redraft.core.protocols import Step
    from redraft.core.task import Task
    from redraft.core.version import Output
    from redraft.loop.parts import Parts
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.select import Peaks

_context = maker(RunContext)
AUTO = ReflectionDecision.AUTO  # said often, and a member of an enumeration is five times as far as a name

last_result: ContextVar[ReflectionResult | None] = ContextVar("last_result", default=None)
"""The run that finished last in this context, whatever its pattern."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """Hold how a run ended: with a result, or with an error and without one. Times are monotonic."""

    result: ReflectionResult | None
    error: str
    began: float
    ended: float


class PatternRuns:
    """Know the run of one pattern that ended last: in this context, or for whoever made the pattern.

    A run in a task of its own has a context of its own, too (`asyncio.create_task`, `wait_for`). The task, or
    the thread outside of any, that made the pattern sees such runs all the same. Anybody else sees none but
    those of the own context: what one user's request made is not for another's.
    """

    __slots__ = ("__weakref__", "_last", "_maker")

    def __init__(self) -> None:
        self._maker: object = _here()
        self._last: EndedRun | None = None

    def belong_to_nobody(self) -> None:
        """Let each see no runs but those of the own context."""
        self._maker = None

    def end(self, began: float, result: ReflectionResult | None, error: str = "") -> None:
        """Take note of a run that ended."""
        run = EndedRun(result, error, began, monotonic())
        if self._maker is not None:
            self._last = run
        others = [(of, one) for of, one in _ended_here.get() if of() is not None and of() is not self]
        _ended_here.set((*others[1 - MOST_PATTERNS :], (ref(self), run)))
        if result is not None:
            last_result.set(result)

    def last(self) -> EndedRun | None:
        """Return the run that ended last; None where none has."""
        here = next((run for of, run in _ended_here.get() if of() is self), None)
        anywhere = self._last
        if anywhere is None or self._maker != _here():
            return here
        return here if here is not None and anywhere.began < here.ended else anywhere


MOST_PATTERNS = 64
"""Of so many patterns a context remembers the last run."""
_ended_here: ContextVar[tuple[tuple[ref[PatternRuns], EndedRun], ...]] = ContextVar("ended_here", default=())


def _here() -> object:
    """Return what stands for this thread and the task in it, if there is one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs
        task = None
    return get_ident(), None if task is None else ref(task)


def run_loop(
    task: Task, parts: Parts, pattern: ReflectionPattern, step: Step, draft: Draft | None = None
) -> Awaitable[ReflectionResult]:
    """Run the loop to its end and return all that was made.

    Begins with `draft` where one is given. An error or a cancellation after the first output ends the run
    with what there is: an error is in the result (or raised as `ReflectionFailedError`, if the pattern asks
    for it), a cancellation goes on to the caller after the result was handed to the listeners and to
    `get_history()`. An error before the first output is raised as it is, and so are a mistake in what judges
    the first one and the `ChangedRunError` of a journal that another program began.
    """
    run = _Run(task, parts, pattern, step).run(draft)
    return run if allowance.get() is None else _apart(run)


async def _apart(run: Awaitable[ReflectionResult]) -> ReflectionResult:
    """Carry out a run inside a step of another run: the budget of that one is not its own."""
    outside = allowance.set(None)
    try:
        return await run
    finally:
        allowance.reset(outside)


class _Run:
    """One run under way: the only thing in the house that changes while it lives."""

    # Ten thousand may be alive at once; without a dict each, the collector has less to look through.
    __slots__ = (
        "base",
        "began",
        "best",
        "clock",
        "context",
        "emit",
        "notes",
        "parts",
        "pattern",
        "peaks",
        "pending",
        "run_id",
        "seen",
        "step",
        "step_once",
        "tally",
        "task",
        "versions",
    )

    def __init__(self, task: Task, parts: Parts, pattern: ReflectionPattern, step: Step) -> None:
        self.task = task
        self.parts = parts
        self.pattern = pattern
        self.clock = timed = None if step is direct else offered(step, TimedStep)
        self.run_id = timed.run_id if timed else passing_id()
        self.versions: tuple[ReflectionVersion, ...] = ()
        self.began = monotonic()
        self.base: ReflectionVersion | None = None
        self.best: ReflectionVersion | None = None
        self.peaks: Peaks = {}
        self.seen: dict[object, int] = {}
        self.pending: Draft | None = None
        # The dict is given: a default of `dict[K, V]` takes seven times as long.
        self.tally = Tally(pattern.budget, {}, clock=timed.elapsed) if timed else Tally(pattern.budget, {})
        self.notes: dict[str, str] = {}
        self.context = _context(task, self.run_id, 1, (), parts.advice)
        self.emit = emitter(pattern.on_event)
        self.step: Step | None = None
        self.step_once = step
        if parts.live is not None:
            parts.live.begin(self.run_id, self.tally, self.emit, self.notes)
        # Nearly all runs fail in nothing: of ten thousand alive at once, none should hold a coroutine and ten
        # objects more for a step that does no more than to wait for a failure.
        if (
            step is not direct
            or pattern.on_event is not None
            or pattern.advisors
            or pattern.budget is not NO_BUDGET
        ):
            self._go_through(step)

    def _go_through(self, step: Step) -> None:
        """Let every effect from now on be a step, tried again where that may help, watched by who listens."""
        # Nothing here refers back to the run: a cycle would keep every run alive until the collector comes.
        within = step if self.pattern.budget is NO_BUDGET else bounded(step, self.tally)
        self.step = trying(within, self.pattern.retry, self.run_id, self.tally, self.emit)
        if self.pattern.on_event is not None:
            clock = self.clock.elapsed if self.clock else perf_counter
            self.step = observed(self.step, self.emit, self.run_id, clock)
            self.step_once = observed(step, self.emit, self.run_id, clock)
        self.parts = self.parts.through(self.step)

    async def run(self, draft: Draft | None) -> ReflectionResult:
        """Go round until a rule, a budget or a person says stop; return all that was made.

        What only begins a step is no coroutine itself: each one more would be alive in every run under way.
        """
        callbacks = self.pattern.callbacks
        reason: ConvergenceReason | None = None
        error: BaseException | None = None
        try:
            if draft is not None or self.step is not None:
                await self._begin(draft)
            while reason is None:
                try:
                    if draft is None:
                        draft = self._taken(await self._drafting())
                        if callbacks is not None:
                            await self._tell_of(draft)
                    same = self._judged_before(draft.output)
                    evaluation = await self._judging(draft.output) if same is None else same.evaluation
                except Exception as failure:  # noqa: BLE001 (what may be tried again is for the step to say)
                    self._try_again_after(failure)
                    continue
                version = self._keep(draft, evaluation, same)
                reason = self._reason_to_stop(AUTO if callbacks is None else await self._decide(version))
                draft = None
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 (what was made is not lost)
            reason, error = await self._cut_short(raised), raised
        result = self._finish(reason, error)
        if self.pattern.advisors:
            await observe(self.pattern.advisors, result, self.step_once)
        if self.pattern.on_event is not None:
            self.emit(RunFinished(self.run_id, result))
        if error is not None and reason is ConvergenceReason.ERROR and self.pattern.on_failure == "raise":
            raise ReflectionFailedError(f"The run ended in an error: {error}", result.history) from error
        return result

    async def _begin(self, draft: Draft | None) -> None:
        if self.pattern.on_event is not None:
            self.emit(RunStarted(self.run_id, self.task))
        if self.pattern.advisors:
            step = self.step or self.step_once
            advice = await recalled(self.pattern.advisors, self.task, step, self.notes)
            self.context = replace(self.context, advice=(*self.context.advice, *advice))
        if draft is not None:
            self.pending = draft
            self.tally.add("generation", draft.usage)

    def _try_again_after(self, error: Exception) -> None:
        """Go through steps from here on, the first of which has failed once; what is a step has its end."""
        if self.step is not None:
            raise error
        self._go_through(failed_once(error))

    async def _cut_short(self, error: BaseException) -> ConvergenceReason:
        """Keep what there is and say why the run ends; raises the error again where it is the caller's."""
        judged_before = bool(self.versions)
        if isinstance(error, ChangedRunError) or not self._keep_pending(error):
            self.pattern.runs.end(self.began, None, f"{type(error).__name__}: {error}")
            await observe_failure(self.pattern.advisors, self.task, self.run_id, error)
            raise error
        if isinstance(error, asyncio.CancelledError):
            self.emit(RunFinished(self.run_id, self._finish(ConvergenceReason.CANCELLED, error)))
            raise error
        reason = (error.reason if isinstance(error, UnfinishedError) else None) or ConvergenceReason.ERROR
        if reason is not ConvergenceReason.ERROR or self.pattern.on_failure == "raise":
            return reason
        is_mistake = isinstance(error, MISTAKES)
        if is_mistake and not judged_before:  # what judges has never worked: nobody wants an unjudged draft
            self.emit(RunFinished(self.run_id, self._finish(reason, error)))
            await observe_failure(self.pattern.advisors, self.task, self.run_id, error)
            raise error
        logger.warning(
            "The run %s ended with an error after %d versions, the best of which is returned: %s: %s",
            self.run_id,
            len(self.versions),
            type(error).__name__,
            error,
            exc_info=error if is_mistake else None,
        )
        return reason

    def _drafting(self) -> Awaitable[Draft]:
        """Begin the next draft: a fresh one, or a revision of the best so far."""
        if self.context.attempt.number <= len(self.versions):
            self._go_on()
        parts, context, attempt = self.parts, self.context, self.context.attempt
        if attempt.mode != "revise" and parts.generate is not None:
            return parts.generate(prompt_of(self.task, context.advice), context)
        if attempt.evaluation is None:
            raise AssertionError("a run without a generator starts from a draft")
        return parts.revise(attempt.previous, attempt.evaluation, context)

    def _taken(self, draft: Draft) -> Draft:
        self.pending = draft
        self.tally.add("generation" if self.context.attempt.number == 1 else "revision", draft.usage)
        if draft.conversation is not None and self.parts.live is not None:
            self.parts.live.keep(draft.conversation.reflections)
        return draft

    async def _tell_of(self, draft: Draft) -> None:
        number = self.context.attempt.number
        await self._tell("on_generation", draft.output, number)
        if self.base is not None:
            await self._tell("on_revision", self.base.output, draft.output, number)

    def _go_on(self) -> None:
        """Set out for the next version."""
        left = self.tally.revision_tokens_left()
        attempt, base = next_attempt(self.versions, self.best, self.context.attempt, self.pattern, left)
        generated = attempt.mode == "fresh" and self.parts.generate is not None
        self.base = None if generated else base
        self.context = _context(
            self.task, self.run_id, attempt.number, self.versions, self.context.advice, attempt
        )

    def _judged_before(self, output: Output) -> ReflectionVersion | None:
        """Return the earlier version with the very same output, if its judgement is whole and still holds."""
        # A number is not its digits: only a text is its own key.
        key: object = output if isinstance(output, str) else (output.__class__, as_text(output, indent=None))
        made = len(self.versions)
        number = self.seen.setdefault(key, made + 1)
        if number > made or not self.parts.output_alone:
            return None
        before = self.versions[number - 1]
        if before.evaluation.is_fully_judged or before.evaluation.gates_passed is False:
            return before
        self.seen[key] = made + 1
        return None

    def _judging(self, output: Output) -> Awaitable[ReflectionEvaluation]:
        """Begin to judge."""
        context = self.context
        if self.pattern.budget is not NO_BUDGET and self.tally.spent():
            context = replace(context, free_only=True)
        return self.parts.evaluate(copy_of(output), context)

    def _keep(
        self, draft: Draft, evaluation: ReflectionEvaluation, same: ReflectionVersion | None = None
    ) -> ReflectionVersion:
        attempt = self.context.attempt
        if same is None:
            self.tally.add("evaluation", evaluation.usage)
        version = ReflectionVersion(  # by position: by name, it takes twice as long
            len(self.versions) + 1,
            copy_of(draft.output),
            evaluation,
            draft.improvements,
            datetime.now(UTC) if self.clock is None else self.clock.at(),
            draft.usage + evaluation.usage if same is None else draft.usage,
            attempt.mode if draft.strategy == "draft" else draft.strategy,
            attempt.base,
            None if same is None else same.iteration,
            gain_over(self.peaks, evaluation) if same is None else None,
            False,  # noqa: FBT003 (accepted, which is said later)
            draft.conversation,
            draft.memo,
        )
        self.pending = None
        self.versions = (*self.versions, version)
        is_best = self.best is None or is_better(version, self.best)
        if is_best:
            self.best = version
        for said in draft.notes:
            note(self.notes, "draft_notes", f"Version {version.iteration}: {said}")
        if self.pattern.on_event is not None:
            self.emit(VersionEvaluated(self.run_id, version, is_best))
        return version

    def _reason_to_stop(self, decision: ReflectionDecision) -> ConvergenceReason | None:
        pattern, versions, reason = self.pattern, self.versions, None
        if decision is AUTO:
            if (reason := pattern.stop(versions)) is not None:
                reason = reason_of(reason)
        elif decision is ReflectionDecision.ACCEPT:
            self.versions = (*versions[:-1], replace(versions[-1], accepted=True))
            return ConvergenceReason.USER_ACCEPTED
        elif decision is ReflectionDecision.STOP:
            return ConvergenceReason.USER_STOPPED
        if pattern.budget is NO_BUDGET or reason is ConvergenceReason.QUALITY_MET:
            return reason or pattern.limit(versions)
        # A spent budget goes before what may be its consequence: that nothing could be judged any more.
        if reason := self.tally.spent() or reason or pattern.limit(versions):
            return reason
        return ConvergenceReason.TOKEN_BUDGET if self.tally.revision_tokens_left() == 0 else None

    async def _decide(self, version: ReflectionVersion) -> ReflectionDecision:
        answer = await self._tell("on_reflection", version.evaluation, version.iteration)
        return decision_of(answer, self.notes)

    def _tell(self, name: str, *args: object) -> Awaitable[object]:
        return call_back(self.pattern.callbacks, name, self.step_once, self.notes, *args)

    def _keep_pending(self, error: BaseException) -> bool:
        """Keep a draft whose judgement was cut short as an unjudged version; say if there is any version."""
        if self.pending is not None:
            issue = Issue(f"Not judged: {type(error).__name__}: {error}".removesuffix(": "))
            self._keep(self.pending, ReflectionEvaluation(None, issues=(issue,), confidence=0.0))
        return bool(self.versions)

    def _finish(self, reason: ConvergenceReason, error: BaseException | None = None) -> ReflectionResult:
        """Make the result of what there is."""
        pattern, versions = self.pattern, self.versions
        best, final = self.best, versions[-1]
        # The best by score was kept on the way; a callback's choice and the other selections look back.
        if best is None or final.accepted or pattern.best_version_selection != "highest_score":
            best = select(versions, pattern.best_version_selection)
        diagnostics = diagnose(versions, reason, self.parts.signals)
        diagnostics.update(self.notes)
        if account := self.tally.account():
            diagnostics["budget"] = account
        usage = self.tally.total()
        if pattern.budget_usd is not None and usage.cost_usd is None:
            diagnostics["cost_unknown"] = "Some cost is not known; budget_usd could bound only the rest."
        kept = versions if pattern.preserve_all_versions else first_best_last(versions, best)
        result = ReflectionResult(  # by position: by name, it takes four times as long
            best.evaluation.satisfactory,
            final.output,
            best.output,
            final.evaluation,
            ReflectionHistory(kept, best, final, reason, len(versions) - 1),
            len(versions) - 1,
            reason,
            usage,
            self.tally.seconds(),
            self.run_id,
            self.tally.by_role,
            diagnostics,
            self.context.advice,
            error,
            self.parts.live.reflections if self.parts.live else (),
            self.task,
        )
        self.pattern.runs.end(self.began, result)
        return result
