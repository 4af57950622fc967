"""Steps: the one way to an effect of a run."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from time import perf_counter
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from redraft import _telemetry
from redraft._steps import Retry, direct, step_context, step_scope, uncancelled, unexited
from redraft._tokens import ROLES as WRITES
from redraft._tokens import VersionText
from redraft.errors import RedraftError
from redraft.events import StepFailed, StepFinished, StepStarted
from redraft.loop.budget import NO_BUDGET, ROLES, StepBudget
from redraft.loop.event_log import ignore
from redraft.redact.log import logger
from redraft.types import NOTHING_USED, Choice, Draft, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from redraft.events import Event, TokenEvent
    from redraft.loop.budget import Tally
    from redraft.loop.journal import Journalled
    from redraft.loop.output_type import OutputType
    from redraft.protocols import RunContext, Step

R = TypeVar("R")


NamedFailure: TypeAlias = "Callable[[str, Exception, float | None], float | None]"
"""An `OnFailure` that also takes the name of the step."""


class Steps:
    """Carries out the effects of a run, such as a draft, a judgement, or a call of a tool.

    `do` sends each effect through six concerns, in the order of the code: listeners get its events, its text
    is passed on while a model writes it, temporary failures are retried, the budget bounds it, telemetry
    reports it, and the journal records it or replays its record. The innermost call is `step`: a `journal`, a
    step of the user's that wraps a journal, or `direct`.

    `emit` takes the events of steps, and `emit_text` the pieces of drafts and revisions. The journal stores
    outputs of an `output_type` as the data from which they were read.
    """

    def __init__(
        self,
        step: Step,
        tally: Tally,
        retry: Retry | None = None,
        run_id: str = "",
        *,
        journal: Journalled | None = None,
        emit: Callable[[Event], None] = ignore,
        emit_text: Callable[[TokenEvent], None] | None = None,
        output_type: OutputType[Any] | None = None,
    ) -> None:
        self.step = step
        self.journal = journal
        self.tally = tally
        self.retry = retry or Retry(attempts=1)
        self.run_id = run_id
        self.emit = emit
        self._emit_text = emit_text
        self._output_type = output_type
        self._telemetry = _telemetry.current
        self._recorded = self._recording(step)
        self._seconds = perf_counter if self.journal is None else self.journal.elapsed
        self._texts: dict[int, Iterator[int]] = {}

    def do(self, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any) -> Awaitable[R]:
        """Carry out an effect, or replay its recorded result; raises its last error."""
        on_failure = partial(self.count_failure, name)
        # Waiting is a step, so that a resumed run does not wait again.
        sleep = partial(self.attempt, "wait", NoneType, asyncio.sleep)
        work = self.retry.run(self.attempt, name, returns, fn, *args, on_failure=on_failure, sleep=sleep)
        if self._emit_text is not None and name in WRITES:
            work = self._pass_on(self._emit_text, name, args[-1], work)
        return work if self.emit is ignore else self._emit_events(name, work)

    def attempt(
        self, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> Awaitable[R]:
        """Carry out an effect within the budget, or replay it, without retries and events."""
        journal, tally = self.journal, self.tally
        if journal is not None and journal.void_usage and (role := ROLES.get(name)) is not None:
            # In earlier processes, the step has failed, but not for free.
            tally.add(role, journal.void_usage.pop(journal.next_place, NOTHING_USED))
        if tally.budget is NO_BUDGET and tally.outer is None:
            return self._recorded(name, returns, fn, *args)
        return self._within_budget(name, returns, fn, *args)

    async def _within_budget(
        self, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> R:
        """Carry out an effect within the budget, whose state the journal records with it."""
        journal, tally = self.journal, self.tally
        budget = StepBudget(tally, name)

        async def effect(*args: Any) -> R:
            try:
                return await budget.timed(fn, *args)
            finally:
                if journal is not None:
                    journal.budget_state = tally.state()

        try:
            work = partial(self._recorded, name, returns)
            return await budget.bounding(counting_replay(budget.outer, work, effect, *args))
        finally:
            if journal is not None and journal.budget_state:
                tally.restore(journal.budget_state)

    def once(
        self, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> Awaitable[R]:
        """Like `do`, without retries or a budget: for functions of the user that only watch."""

        async def watch(*args: Any) -> R:
            return await uncancelled(fn(*args), name, "the run")

        work = self._recorded(name, returns, watch, *args)
        return work if self.emit is ignore else self._emit_events(name, work)

    def inside(
        self,
        name: str,
        returns: type[R],
        fn: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        on_failure: NamedFailure | None = None,
    ) -> Awaitable[R]:
        """Carry out an effect inside the current step, within its budget; `on_failure` allows retries."""
        attempt = self._recording(step_context.get().step)
        if on_failure is None:
            work = attempt(name, returns, fn, *args)
        else:
            again, sleep = partial(on_failure, name), partial(attempt, "wait", NoneType, asyncio.sleep)
            work = self.retry.run(attempt, name, returns, fn, *args, on_failure=again, sleep=sleep)
        return work if self.emit is ignore else self._emit_events(name, work)

    async def _emit_events(self, name: str, work: Awaitable[R]) -> R:
        """Emit an event when an effect starts, finishes or fails."""
        self.emit(StepStarted(self.run_id, name))
        began = self._seconds()
        try:
            result = await work
        except BaseException as error:
            self.emit(StepFailed(self.run_id, name, error))
            raise
        self.emit(StepFinished(self.run_id, name, result, self._seconds() - began))
        return result

    async def _pass_on(
        self, emit: Callable[[TokenEvent], None], name: str, run: RunContext, work: Awaitable[R]
    ) -> R:
        """Pass on the text of a draft: in pieces from a model, whole from a record or a function."""
        version = run.attempt.number
        texts = self._texts.setdefault(version, count(1))
        text = VersionText(emit, self.run_id, version, WRITES[name], texts, self.tally)
        with step_scope(text=text):
            result = await work
        text.tell(cast("Draft[Any]", result))  # the only steps that write return drafts
        return result

    def _recording(self, step: Step) -> Callable[..., Awaitable[Any]]:
        """Wrap a step to report to telemetry, and to store outputs as data."""
        if step is not direct and step is not self.journal:
            step = _contained(step)
        if self._output_type is not None and step is not direct:
            step = partial(self._output_type.recorded, step)
        if self._telemetry is not None:
            return partial(self._telemetry.step, step)
        return _unrecorded if step is direct else step

    def count_failure(self, name: str, error: Exception, wait: float | None) -> float | None:
        """Count the usage of a failed step; returns what `wait_before` does."""
        self.tally.add_failure(ROLES.get(name), error)
        return self.wait_before(name, error, wait)

    def wait_before(
        self, name: str, error: Exception, wait: float | None, used: TokenUsage = NOTHING_USED
    ) -> float | None:
        """Seconds to wait before a retry; None if the budget does not allow it.

        `used` is the usage of the current step, which the tally does not count yet.
        """
        if wait is None or not self.tally.allows_waiting(wait, used):
            return None
        logger.info("%s failed and is tried again in %.1f s: %s", name, wait, error)
        self.emit(StepFailed(self.run_id, name, error, wait))
        return wait


def _contained(step: Step) -> Step:
    """A caller's step, whose `SystemExit` is an error of the run."""
    carry_out = cast("Callable[..., Awaitable[Any]]", step)

    async def contained(*args: Any, **kwargs: Any) -> Any:
        return await unexited(carry_out(*args, **kwargs), "step")

    return contained


def _unrecorded(
    _name: str, _returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
) -> Awaitable[R]:
    """Carry out an effect that nothing records, as `direct` does, without a coroutine of its own."""
    return fn(*args)


async def counting_replay(
    budget: StepBudget | None,
    work: Callable[..., Awaitable[R]],
    fn: Callable[..., Awaitable[R]],
    /,
    *args: Any,
) -> R:
    """Carry out a step by `work(fn, *args)`; if it is replayed, its usage counts in the budget around it.

    The calls of a step that is carried out count by themselves.
    """
    if budget is None:
        return await work(fn, *args)
    is_replayed, used = True, None

    async def effect(*args: Any) -> R:
        nonlocal is_replayed
        is_replayed = False
        return await fn(*args)

    try:
        result = await work(effect, *args)
        used = getattr(result, "usage", None)
        choice: Choice | None = getattr(result, "choice", None)
        if choice is not None and isinstance(used, TokenUsage):  # the draft's candidates were paid for, too
            used = sum(choice.usage.values(), used)
    except RedraftError as error:
        used = error.usage
        raise
    else:
        return result
    finally:
        if is_replayed and isinstance(used, TokenUsage):
            budget.count_replayed(used)
