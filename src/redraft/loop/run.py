"""The loop: generate, evaluate, critique, revise, until a rule says stop."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from os import urandom
from time import perf_counter
from typing import TYPE_CHECKING

from redraft.core.callbacks import ReflectionDecision
from redraft.core.calls import awaited
from redraft.core.context import RunContext
from redraft.core.errors import ChangedRunError, ReflectionFailedError, UnfinishedError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.core.events import RunFinished, RunStarted, VersionEvaluated
from redraft.core.made import maker
from redraft.core.protocols import TimedStep
from redraft.core.result import ConvergenceReason, ReflectionHistory, ReflectionResult
from redraft.core.steps import direct, observed
from redraft.core.task import Advice, prompt_of
from redraft.core.texts import as_text, copy_of
from redraft.core.version import Draft, ReflectionVersion
from redraft.loop.attempts import next_attempt
from redraft.loop.budget import NO_BUDGET, Tally
from redraft.loop.diagnose import diagnose
from redraft.loop.select import first_best_last, is_better, select
from redraft.loop.stop import reason_of
from redraft.loop.tell import emitter
from redraft.loop.trying import trying

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.core.protocols import Advisor, Step
    from redraft.core.task import Task
    from redraft.core.version import Output
    from redraft.loop.parts import Parts
    from redraft.loop.pattern import ReflectionPattern

logger = logging.getLogger("redraft")
_context = maker(RunContext)
AUTO = ReflectionDecision.AUTO  # said often, and a member of an enumeration is five times as far as a name

last_result: ContextVar[ReflectionResult | None] = ContextVar("last_result", default=None)
"""The run that finished last in this context: what `ReflectionPattern.get_history()` answers from."""


async def run_loop(
    task: Task, parts: Parts, pattern: ReflectionPattern, step: Step, draft: Draft | None = None
) -> ReflectionResult:
    """Run the loop to its end and return all that was made.

    Begins with `draft` where one is given. An error or a cancellation after the first output ends the run
    with what there is: an error is in the result (or raised as `ReflectionFailedError`, if the pattern asks
    for it), a cancellation goes on to the caller after the result was handed to the listeners and to
    `get_history()`. An error before the first output is raised as it is, and so is the `ChangedRunError` of
    a journal that another program began.
    """
    run = _Run(task, parts, pattern, step)
    if pattern.on_event is not None:
        run.emit(RunStarted(run.run_id, task))
    error: BaseException | None = None
    try:
        reason = await run.redraft(draft)
    except asyncio.CancelledError as cancelled:
        if run.keep_pending(cancelled):
            run.emit(RunFinished(run.run_id, run.finish(ConvergenceReason.CANCELLED, cancelled)))
        raise
    except ChangedRunError:
        raise
    except Exception as failure:
        if not run.keep_pending(failure):
            raise
        stopped = failure.reason if isinstance(failure, UnfinishedError) else None
        reason, error = stopped or ConvergenceReason.ERROR, failure
    result = run.finish(reason, error)
    await run.tell_advisors(result)
    if pattern.on_event is not None:
        run.emit(RunFinished(run.run_id, result))
    if reason is ConvergenceReason.ERROR and pattern.on_failure == "raise":
        raise ReflectionFailedError(f"The run ended in an error: {error}", result.history) from error
    return result


class _Run:
    """One run under way: the only thing in the house that changes while it lives."""

    # Ten thousand may be alive at once; without a dict each, the collector has less to look through.
    __slots__ = (
        "base",
        "best",
        "best_rank",
        "clock",
        "context",
        "emit",
        "notes",
        "parts",
        "pattern",
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
        self.clock = timed = step if step is not direct and isinstance(step, TimedStep) else None
        self.run_id = timed.run_id if timed else urandom(8).hex()
        self.versions: tuple[ReflectionVersion, ...] = ()
        self.base: ReflectionVersion | None = None
        self.best: ReflectionVersion | None = None
        self.best_rank = -1.0
        self.seen: dict[object, int] = {}
        self.pending: Draft | None = None
        # The dict is given: a default of `dict[K, V]` takes seven times as long.
        self.tally = Tally(pattern.budget, {}, clock=timed.elapsed) if timed else Tally(pattern.budget, {})
        self.notes: dict[str, str] = {}
        self.context = _context(task, self.run_id)
        self.emit = emitter(pattern.on_event)
        # Nothing here refers back to the run: a cycle would keep every run alive until the collector comes.
        self.step = trying(step, pattern.retry, self.run_id, self.tally, self.emit)
        self.step_once = step
        if parts.live is not None:
            parts.live.begin(self.run_id, self.tally, self.emit, self.notes)
        if pattern.on_event is not None:
            clock = timed.elapsed if timed else perf_counter
            self.step = observed(self.step, self.emit, self.run_id, clock)
            self.step_once = observed(step, self.emit, self.run_id, clock)

    async def redraft(self, draft: Draft | None) -> ConvergenceReason:
        """Go round until a rule, a budget or a person says stop; return why.

        What only begins a step is no coroutine itself: each one more would be alive in every run under way.
        """
        for advisor in self.pattern.advisors:
            await self._take_advice(advisor)
        if draft is not None:
            self.pending = draft
            self.tally.add("generation", draft.usage)
        while True:
            if draft is None:
                draft = await self._drafting()
                self._take(draft)
                if self.pattern.callbacks is not None:
                    await self._tell_of(draft)
            same = self._judged_before(draft.output)
            if same is None:
                evaluation = await self._judging(draft.output)
                self.tally.add("evaluation", evaluation.usage)
            else:
                evaluation = same.evaluation
            version = self._keep(draft, evaluation, same)
            decision = AUTO if self.pattern.callbacks is None else await self._decide(version)
            if reason := self._reason_to_stop(decision):
                return reason
            self._go_on()
            draft = None

    def _drafting(self) -> Awaitable[Draft]:
        """Begin the next draft: a fresh one, or a revision of the best so far."""
        parts, context = self.parts, self.context
        attempt = context.attempt
        if attempt.mode != "revise" and parts.generate is not None:
            return self.step("generate", Draft, parts.generate, prompt_of(self.task, context.advice), context)
        if attempt.evaluation is None:
            raise AssertionError("a run without a generator starts from a draft")
        return self.step("revise", Draft, parts.revise, attempt.previous, attempt.evaluation, context)

    def _take(self, draft: Draft) -> None:
        self.pending = draft
        self.tally.add("generation" if self.context.attempt.number == 1 else "revision", draft.usage)
        if draft.conversation is not None and self.parts.live is not None:
            self.parts.live.keep(draft.conversation.reflections)

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
        """Return the earlier version with the very same output, if that could be judged."""
        # A number is not its digits: only a text is its own key.
        key: object = output if isinstance(output, str) else (output.__class__, as_text(output))
        number = self.seen.get(key)
        if number is not None and self.versions[number - 1].evaluation.overall_score is not None:
            return self.versions[number - 1]
        self.seen[key] = len(self.versions) + 1
        return None

    def _judging(self, output: Output) -> Awaitable[ReflectionEvaluation]:
        """Begin to judge."""
        context = replace(self.context, free_only=True) if self.tally.spent() else self.context
        return self.step("evaluate", ReflectionEvaluation, self.parts.evaluate, copy_of(output), context)

    def _keep(
        self, draft: Draft, evaluation: ReflectionEvaluation, same: ReflectionVersion | None = None
    ) -> ReflectionVersion:
        attempt = self.context.attempt
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
            self._gain(evaluation) if same is None else None,
            False,  # noqa: FBT003 (accepted, which is said later)
            draft.conversation,
            draft.memo,
        )
        self.pending = None
        self.versions = (*self.versions, version)
        is_best = self.best is None or is_better(version, self.best)
        if is_best:
            self.best = version
        for note in draft.notes:
            self._note("draft_notes", f"Version {version.iteration}: {note}")
        if self.pattern.on_event is not None:
            self.emit(VersionEvaluated(self.run_id, version, is_best))
        return version

    def _gain(self, evaluation: ReflectionEvaluation) -> float | None:
        if evaluation.overall_score is None:
            return None
        rank = evaluation.overall_score + evaluation.gates_passed  # a passed gate outranks any score
        before = self.best_rank
        if rank > before:
            self.best_rank = rank
        return None if before < 0 else rank - before

    def _reason_to_stop(self, decision: ReflectionDecision) -> ConvergenceReason | None:
        pattern, versions, reason = self.pattern, self.versions, None
        if decision is AUTO:
            reason = reason_of(pattern.stop(versions))
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
        try:
            return AUTO if answer is None else ReflectionDecision(answer)
        except ValueError:
            self._ignored("callback", "on_reflection", f"it returned {answer!r}, not a ReflectionDecision")
            return AUTO

    async def _tell(self, name: str, *args: object) -> object:
        """Call a callback; one that raises is logged, and the run goes on."""
        callback: Callable[..., object] | None = getattr(self.pattern.callbacks, name, None)
        if callback is None:
            return None
        try:
            return await self.step_once(name, object, awaited(callback), *args)
        except Exception as error:  # noqa: BLE001 (a person's code must not cost the run what it has made)
            self._ignored("callback", name, f"{type(error).__name__}: {error}")
            return None

    async def _take_advice(self, advisor: Advisor) -> None:
        try:
            advice = await self.step("recall", list[Advice], advisor.recall, self.task)
            self.context = replace(self.context, advice=(*self.context.advice, *advice))
        except Exception as error:  # noqa: BLE001 (a run without advice is better than none)
            self._ignored("advisor", type(advisor).__name__, f"{type(error).__name__}: {error}")

    async def tell_advisors(self, result: ReflectionResult) -> None:
        """Let those who gave advice learn from how the run went; one that raises is logged."""
        for advisor in self.pattern.advisors:
            try:
                await self.step_once("observe", type(None), advisor.observe, result)
            except Exception:
                logger.exception("The advisor %s failed and was ignored.", type(advisor).__name__)

    def _ignored(self, kind: str, name: str, why: str) -> None:
        logger.warning("The %s %s failed and was ignored: %s", kind, name, why)
        self._note(f"{kind}_failed", f"The {kind} {name} failed and was ignored: {why}.")

    def _note(self, name: str, text: str) -> None:
        self.notes[name] = f"{self.notes[name]} {text}" if name in self.notes else text

    def keep_pending(self, error: BaseException) -> bool:
        """Keep a draft whose judgement was cut short as an unjudged version; say if there is any version."""
        if self.pending is not None:
            issue = Issue(f"Not judged: {type(error).__name__}: {error}")
            self._keep(self.pending, ReflectionEvaluation(None, issues=(issue,), confidence=0.0))
        return bool(self.versions)

    def finish(self, reason: ConvergenceReason, error: BaseException | None = None) -> ReflectionResult:
        """Make the result of what there is."""
        pattern, versions = self.pattern, self.versions
        best, final = self.best, versions[-1]
        # The best by score was kept on the way; a callback's choice and the other selections look back.
        if best is None or final.accepted or pattern.best_version_selection != "highest_score":
            best = select(versions, pattern.best_version_selection)
        diagnostics = diagnose(versions, reason, self.parts.signals) | self.notes
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
        )
        last_result.set(result)
        return result
