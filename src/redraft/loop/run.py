"""The loop: generate, evaluate, revise, until a rule says stop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath
from threading import get_ident
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import ref

from redraft._calls import awaited
from redraft._codec import MISTAKES
from redraft._steps import allowance, direct, observed, offered, retried
from redraft._texts import as_text, copy_of, passing_id
from redraft._validation import check_list
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ReflectionDueError,
    ReflectionFailedError,
    UnfinishedError,
)
from redraft.events import RunFinished, RunStarted, VersionEvaluated
from redraft.loop.budget import NO_BUDGET, Tally, bounded
from redraft.loop.diagnose import NO_JUDGE, Signals, diagnose
from redraft.loop.events import emitter, failure_handler
from redraft.loop.live import LiveRun
from redraft.loop.revise import AFTER_FAILURE, FRESH_TEMPERATURE
from redraft.loop.select import first_best_last, gain_over, is_better, is_known_drop, select
from redraft.loop.stop import reason_of
from redraft.protocols import (
    Attempt,
    Evaluator,
    FailureObserver,
    Generator,
    ReflectionDecision,
    Reviser,
    RunContext,
    TimedStep,
)
from redraft.redact.log import logger
from redraft.types import (
    Advice,
    ConvergenceReason,
    Draft,
    Issue,
    ReflectionEvaluation,
    ReflectionHistory,
    ReflectionResult,
    ReflectionVersion,
    maker,
    prompt_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft._steps import Retry
    from redraft.events import Listener
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.select import Peaks
    from redraft.protocols import Advisor, ReflectionCallbacks, Step
    from redraft.types import Output, Task

_attempt = maker(Attempt)


def next_attempt(
    versions: Sequence[ReflectionVersion],
    best: ReflectionVersion | None,
    before: Attempt,
    pattern: ReflectionPattern,
    tokens_left: int | None,
) -> tuple[Attempt, ReflectionVersion]:
    """Return the attempt after `before`, and the version that it starts from: the best one, or the last.

    A version that was not fully judged is put aside like one that made things worse, but nobody is told so.
    """
    last = versions[-1]
    best = best or last
    base = best if is_better(best, last) else last
    worse = base is not last and is_known_drop(best, last)
    stuck = last.repeats is not None or (last.strategy == "fresh" and worse)
    fresh = stuck and pattern.diversify
    strategy: str = pattern.revision_strategy
    if worse and not fresh:
        tried = last.strategy if last.strategy in AFTER_FAILURE else before.strategy
        strategy = AFTER_FAILURE.get(tried, "full_rewrite")
    tried_fresh = sum(version.strategy == "fresh" for version in versions) if fresh else 0
    attempt = _attempt(
        len(versions) + 1,
        "fresh" if fresh else "revise",
        copy_of(base.output),
        base.evaluation,
        strategy,
        min(1.0, FRESH_TEMPERATURE + 0.3 * tried_fresh) if fresh else None,
        last if worse and last.repeats is None else None,
        tokens_left,
        None if fresh else base.iteration,
    )
    return attempt, base


P = ParamSpec("P")
R = TypeVar("R")


def trying(step: Step, retry: Retry, run_id: str, tally: Tally, emit: Listener) -> Step:
    """Try a step again when its failure is a passing one and the budget allows; every failure is counted."""
    return retried(step, retry, failure_handler(run_id, tally, emit))


def failed_once(error: Exception) -> Step:
    """Return `direct` as it is after a first try that failed with `error`."""
    failures = [error]

    async def next_try(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if failures:
            raise failures.pop()
        return await direct(name, returns, fn, *args, **kwargs)

    return next_try


@dataclass(frozen=True, slots=True)
class Judges:
    """Hold what judges, and where its scores come from."""

    evaluate: Evaluator
    signals: Signals = NO_JUDGE


@dataclass(slots=True)
class Parts:
    """Hold the verbs of a run. Without `generate` a fresh start is the reviser's business, too.

    `live` is for verbs that must know how the run stands while they are at work. `output_alone` says that
    judging looks at nothing but the output: then the same output is not judged again. `advice` is what the
    run is told from its beginning, before any advisor is asked.
    """

    generate: Generator | None
    evaluate: Evaluator
    revise: Reviser
    signals: Signals = NO_JUDGE
    live: LiveRun | None = None
    output_alone: bool = True
    advice: tuple[Advice, ...] = ()

    def through(self, step: Step) -> Parts:
        """Return the same verbs, each of which is a step now."""
        return Parts(
            None if self.generate is None else partial(step, "generate", Draft, self.generate),
            partial(step, "evaluate", ReflectionEvaluation, self.evaluate),
            partial(step, "revise", Draft, self.revise),
            self.signals,
            self.live,
            self.output_alone,
            self.advice,
        )


CALLBACKS = ("on_generation", "on_reflection", "on_revision")


def check_guests(callbacks: Any, advisors: Any) -> None:
    """Refuse callbacks that would never be called, and advisors that can't advise; raises `ConfigError`.

    Callbacks may be few, and need not be a `ReflectionCallbacks`.
    """
    if callbacks is not None and (
        isinstance(callbacks, type) or not any(hasattr(callbacks, name) for name in CALLBACKS)
    ):
        raise ConfigError(f"callbacks must be an object with {' or '.join(CALLBACKS)}, got {callbacks!r}.")
    check_list("advisors", advisors)
    for advisor in advisors:
        check_advisor("advisors", advisor)


def check_advisor(name: str, value: Any) -> None:
    """Require an object with `recall` and `observe`; raises `ConfigError`."""
    if not isinstance(value, type) and hasattr(value, "recall") and hasattr(value, "observe"):
        return
    meant = f" Did you mean Lessons({value!r})?" if isinstance(value, str | PurePath) else ""
    raise ConfigError(f"{name}: an advisor has recall(task) and observe(result), got {value!r}.{meant}")


async def call_back(
    callbacks: ReflectionCallbacks | None, name: str, step: Step, notes: dict[str, str], *args: object
) -> object:
    """Call a callback, if there is one of that name, and return its answer; None where it raised."""
    callback: Callable[..., object] | None = getattr(callbacks, name, None)
    if callback is None:
        return None
    try:
        return await step(name, object, awaited(callback), *args)
    except Exception as error:  # noqa: BLE001 (a person's code must not cost the run what it has made)
        _ignored(notes, "callback", name, f"{type(error).__name__}: {error}")
        return None


def decision_of(answer: object, notes: dict[str, str]) -> ReflectionDecision:
    """Read what `on_reflection` answered; None, and what is no decision, leaves it to the rules."""
    if answer is None:
        return ReflectionDecision.AUTO
    try:
        return ReflectionDecision(answer)
    except ValueError:
        _ignored(notes, "callback", "on_reflection", f"it returned {answer!r}, not a ReflectionDecision")
        return ReflectionDecision.AUTO


async def recalled(
    advisors: Sequence[Advisor], task: Task, step: Step, notes: dict[str, str]
) -> tuple[Advice, ...]:
    """Return what all advisors have to say about a task.

    Raises the one error that is meant for the run: the `ReflectionDueError` of an earlier one.
    """
    advice: list[Advice] = []
    for advisor in advisors:
        try:
            advice += await step("recall", list[Advice], advisor.recall, task)
        except ReflectionDueError:
            raise
        except Exception as error:  # noqa: BLE001 (a run without advice is better than none)
            _ignored(notes, "advisor", type(advisor).__name__, f"{type(error).__name__}: {error}")
    return tuple(advice)


async def observe(advisors: Sequence[Advisor], result: ReflectionResult, step: Step) -> None:
    """Let those who gave advice learn from how the run went."""
    for advisor in advisors:
        try:
            await step("observe", type(None), advisor.observe, result)
        except Exception:
            logger.exception("The advisor %s failed and was ignored.", type(advisor).__name__)


async def observe_failure(advisors: Sequence[Advisor], task: Task, run_id: str, error: BaseException) -> None:
    """Let those who gave advice learn from a run that made nothing; one that was cancelled did not fail.

    That is no step: a kept run which goes on has to find its steps as they were before it failed.
    """
    if not isinstance(error, Exception) or isinstance(error, ChangedRunError):
        return
    for advisor in advisors:
        if isinstance(advisor, FailureObserver):
            try:
                await advisor.observe_failure(task, run_id, error)
            except Exception:
                logger.exception("The advisor %s failed and was ignored.", type(advisor).__name__)


def note(notes: dict[str, str], name: str, text: str) -> None:
    """Add a sentence to what a person should know about the run."""
    notes[name] = f"{notes[name]} {text}" if name in notes else text


def _ignored(notes: dict[str, str], kind: str, name: str, why: str) -> None:
    logger.warning("The %s %s failed and was ignored: %s", kind, name, why)
    note(notes, f"{kind}_failed", f"The {kind} {name} failed and was ignored: {why}.")


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
