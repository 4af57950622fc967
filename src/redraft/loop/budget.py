"""Budgets: the limits of a run, what it has used, and which calls still fit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redraft._steps import allowance
from redraft._validation import check_bound
from redraft.errors import ModelError, OutputError, RedraftError, UnfinishedError
from redraft.loop.journal import journal_in
from redraft.types import NOTHING_USED, ConvergenceReason, Stop, TokenUsage, render_usd

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType
    from typing import Self

    from redraft.protocols import ModelRole, Step

P = ParamSpec("P")
R = TypeVar("R")

ROLES: dict[str, ModelRole] = {"generate": "generation", "evaluate": "evaluation", "revise": "revision"}
"""The role of the model calls inside each step of the loop."""
LONGEST_REPLY = 16_384
"""Output tokens to reserve for a call without a limit of its own, until a reply of its role is known."""
SHORTEST_RESERVED = 2_048
"""The fewest output tokens to reserve for such a call afterwards; usually twice the longest reply so far."""
FREE_CHECKS = 1.0
"""Seconds that judging may always take, so that free checks run even after the time is spent."""
GRACE = 1.0
"""Seconds for a step to return what it has, after a call inside it was cancelled."""
SHORT = 0.1
"""Seconds below which a budget is rendered with more digits."""
OPTIONS: Mapping[str, str] = {
    "tokens": "budget_tokens",
    "usd": "budget_usd",
    "seconds": "budget_seconds",
    "revision_tokens": "max_revision_tokens",
}
"""The options of a run that set its limits, by the fields of `Budget`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run: tokens of all calls, US dollars, seconds, and tokens of revisions; None: no limit.

    Raises `ConfigError` for a limit of 0 or less.
    """

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    revision_tokens: int | None = None

    def __post_init__(self) -> None:
        for field_name, option in OPTIONS.items():
            check_bound(option, getattr(self, field_name))


NO_BUDGET = Budget()
calls_of_part: ContextVar[list[TokenUsage] | None] = ContextVar("calls_of_part", default=None)
"""What the calls of one of several parts of a step have used: such a part may end before the step does."""


@dataclass(slots=True)
class Tally:
    """What a run has used so far, by role.

    `longest` and `dearest` are the output tokens and the cost of the largest reply of each role. `exhausted`
    is the budget that kept a call from starting or from ending; `refused` and `cancelled` count these calls.
    `estimated_tokens` are those of streams that broke off before the provider said what they used.

    `outer` is the budget of a workflow inside which the run is a step: it bounds the run's calls as well.
    `options` are the names under which the limits were set, for messages.
    """

    budget: Budget
    by_role: dict[str, TokenUsage] = field(default_factory=dict[str, TokenUsage])
    known_usd: float = 0.0
    clock: Callable[[], float] = monotonic
    started: float = field(init=False)
    longest: dict[str, int] = field(default_factory=dict[str, int])
    dearest: dict[str, float] = field(default_factory=dict[str, float])
    exhausted: ConvergenceReason | None = None
    refused: int = 0
    cancelled: int = 0
    estimated_tokens: int = 0
    outer: StepBudget | None = None
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, role: str, usage: TokenUsage) -> None:
        """Add the usage of a step."""
        used = self.by_role.get(role)
        if used is None:
            self.by_role[role] = usage
        elif usage is not NOTHING_USED:
            self.by_role[role] = used + usage
        if usage.cost_usd:
            self.known_usd += usage.cost_usd

    def add_failure(self, role: ModelRole | None, error: Exception) -> None:
        """Add the usage of a step that failed, and the failed request itself."""
        if role is not None and isinstance(error, ModelError | OutputError):
            failed = TokenUsage(failed_requests=1) if isinstance(error, ModelError) else NOTHING_USED
            self.add(role, failed + (error.usage or NOTHING_USED))

    def total(self) -> TokenUsage:
        """Return the usage of all roles."""
        total = NOTHING_USED
        for used in self.by_role.values():
            total += used
        return total

    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return self.clock() - self.started

    def spent(self, under_way: TokenUsage = NOTHING_USED) -> ConvergenceReason | None:
        """Return the budget that is spent, or None; `under_way` is usage that is not counted yet."""
        if self.exhausted is not None:
            return self.exhausted
        if self.outer is not None and (reason := self.outer.tally.spent(self.outer.used)) is not None:
            return reason
        budget = self.budget
        if budget is NO_BUDGET:
            return None
        used = self.total() + under_way
        if budget.tokens is not None and used.total_tokens >= budget.tokens:
            return ConvergenceReason.TOKEN_BUDGET
        # An unknown cost must not lift the limit on the known ones.
        if budget.usd is not None and self.known_usd + (under_way.cost_usd or 0.0) >= budget.usd:
            return ConvergenceReason.COST_BUDGET
        if budget.seconds is not None and self.seconds() >= budget.seconds:
            return ConvergenceReason.TIME_BUDGET
        return None

    def allows_waiting(self, seconds: float, under_way: TokenUsage = NOTHING_USED) -> bool:
        """Return whether the run may wait this long and still start a step afterwards."""
        bound, outer = self.budget.seconds, self.outer
        if outer is not None and not outer.tally.allows_waiting(seconds, outer.used):
            return False
        return self.spent(under_way) is None and (bound is None or self.seconds() + seconds < bound)

    def reply_tokens(self, role: ModelRole) -> int:
        """Return the output tokens to reserve for a call without a limit of its own."""
        longest = self.longest.get(role)
        return LONGEST_REPLY if longest is None else max(SHORTEST_RESERVED, 2 * longest)

    def reply_cost(self, role: ModelRole) -> float:
        """Return the US dollars to reserve for a call: infinity until a reply of its role is known."""
        dearest = self.dearest.get(role)
        return float("inf") if dearest is None else 2 * dearest

    def observe(self, role: ModelRole, usage: TokenUsage) -> None:
        """Learn from a reply how much to reserve for the next one of its role."""
        if usage.requests:
            self.longest[role] = max(self.longest.get(role, 0), usage.output_tokens)
            # An unknown cost can't be bounded, so it must not hold up other calls.
            self.dearest[role] = max(self.dearest.get(role, 0.0), usage.cost_usd or 0.0)

    def state(self) -> dict[str, Any]:
        """Return, as JSON, what decides on the next call beside the usage: a journal records it."""
        return {
            "budget": asdict(self.budget),
            "longest": dict(self.longest),
            "dearest": dict(self.dearest),
            "estimated_tokens": self.estimated_tokens,
            "exhausted": self.exhausted,
            "refused": self.refused,
            "cancelled": self.cancelled,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of the run's earlier process, which may have had another budget."""
        self.longest, self.dearest = dict(state["longest"]), dict(state["dearest"])
        self.estimated_tokens = state["estimated_tokens"]
        if state["exhausted"] is not None and state["budget"] == asdict(self.budget):
            self.exhausted = ConvergenceReason(state["exhausted"])
            self.refused, self.cancelled = state["refused"], state["cancelled"]

    def option(self, reason: ConvergenceReason) -> str:
        """Return the option behind a budget's reason to stop, with its value."""
        if (outer := self._spent_outer(reason)) is not None:
            return outer.tally.option(reason)
        budget, options = self.budget, self.options
        if reason is ConvergenceReason.TIME_BUDGET:
            return f"{options['seconds']}={budget.seconds:g}"
        if reason is ConvergenceReason.COST_BUDGET:
            return f"{options['usd']}={budget.usd:g}"
        return f"{options['tokens']}={budget.tokens}"

    def time_passed(self) -> str:
        """Say that the time of the run has passed."""
        if (outer := self._spent_outer(ConvergenceReason.TIME_BUDGET)) is not None:
            return outer.tally.time_passed()
        return f"{self.budget.seconds:g} seconds passed ({self.options['seconds']})"

    def _spent_outer(self, reason: ConvergenceReason) -> StepBudget | None:
        """Return the budget of the workflow around the run, if that is the one which is spent."""
        outer = self.outer
        return outer if outer is not None and outer.tally.spent(outer.used) is reason else None

    def stop(self, reason: ConvergenceReason, under_way: TokenUsage = NOTHING_USED) -> Stop:
        """Return the stop for a budget's reason, with what was used of it; `under_way` as in `spent`."""
        if (outer := self._spent_outer(reason)) is not None:
            outer.tally.exhausted = reason  # it keeps this run from going on
            return outer.tally.stop(reason, outer.used)
        budget, used, options = self.budget, self.total() + under_way, self.options
        if reason is ConvergenceReason.TIME_BUDGET:
            option, seconds, bound = options["seconds"], self.seconds(), budget.seconds or 0.0
            digits = 1 if bound >= SHORT else 4
            detail = f"{seconds:.{digits}f} of {bound:.{digits}f} seconds passed ({option})."
            return Stop(reason, detail, {"used": seconds, option: bound})
        if reason is ConvergenceReason.COST_BUDGET:
            option, usd = options["usd"], render_usd(budget.usd or 0.0)
            if used.cost_usd is None:
                detail = f"Part of the cost is not known; the rest reached {usd} ({option})."
            else:
                detail = f"{render_usd(used.cost_usd)} of {usd} were spent ({option})."
            return Stop(reason, detail, {"used": used.cost_usd, option: budget.usd})
        option, tokens, bound = options["tokens"], used.total_tokens, budget.tokens
        if bound is not None and (tokens >= bound or self.exhausted is ConvergenceReason.TOKEN_BUDGET):
            detail = f"{tokens:,} of {bound:,} tokens were used ({option})."
            if tokens < bound:
                detail += " What was left was too little for the next call."
            return Stop(reason, detail, {"used": tokens, option: bound})
        option, bound = options["revision_tokens"], budget.revision_tokens or 0
        tokens = self.by_role.get("revision", NOTHING_USED).total_tokens
        detail = f"Revisions used {tokens:,} of {bound:,} tokens ({option})."
        return Stop(reason, detail, {"used": tokens, option: bound})

    def diagnostics(self) -> dict[str, str]:
        """Return what a reader should know: calls that the budget prevented or cancelled, an unknown cost."""
        found: dict[str, str] = {}
        if self.exhausted is not None:
            counts = ((self.refused, "not started"), (self.cancelled, "cancelled"))
            calls = " and ".join(f"{count} {what}" for count, what in counts if count)
            option = self.option(self.exhausted)
            found["budget"] = f"{option} left no room for all model calls and checks: {calls}."
        if self.estimated_tokens:
            found["usage_estimated"] = (
                f"About {self.estimated_tokens:,} of the tokens are an estimate: a stream broke off before "
                "the provider said what it used."
            )
        if self.budget.usd is not None and self.total().cost_usd is None:
            option = self.options["usd"]
            found["cost_unknown"] = f"Some cost is not known; {option} could bound only the rest."
        return found

    def revision_tokens_left(self) -> int | None:
        """Return the tokens left for revisions; None if there is no limit."""
        if self.budget.revision_tokens is None:
            return None
        used = self.by_role.get("revision", NOTHING_USED).total_tokens
        return max(0, self.budget.revision_tokens - used)


def bounded(step: Step, tally: Tally) -> Step:
    """Wrap a step to start model calls only within the budget, and to end when the time is spent.

    An effect that is still under way then is cancelled. A journal does not record it, so it is carried out
    again when the run is resumed. Raises `UnfinishedError` with the reason.
    """
    step = _remembered(step, tally)

    @wraps(step, (), ())
    async def bound(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        budget = StepBudget(tally, name)

        async def in_budget(*args: P.args, **kwargs: P.kwargs) -> R:
            # The clock runs only while the effect does: neither replaying nor recording is cut short.
            budget.begin()
            try:
                return await fn(*args, **kwargs)
            finally:
                budget.end()

        outer = allowance.set(budget)
        try:
            async with budget.bound:
                return await step(name, returns, in_budget, *args, **kwargs)
        except TimeoutError as error:
            if not budget.bound.expired():  # a timeout of the effect itself
                raise
            late = budget.out_of_time(f"the step {name!r} was under way")
            late.usage = budget.used
            raise late from error
        except asyncio.CancelledError:  # from outside; only this step knows what its calls have used
            if (role := ROLES.get(name)) is not None:
                tally.add(role, budget.used)
            raise
        finally:
            allowance.reset(outer)

    return bound


def _remembered(step: Step, tally: Tally) -> Step:
    """Wrap a step with a journal to record the tally's state with each step, and to restore it on replay."""
    if (journal := journal_in(step)) is None:
        return step

    @wraps(step, (), ())
    async def remember(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        async def effect(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return await fn(*args, **kwargs)
            finally:
                journal.budget_state = tally.state()

        try:
            return await step(name, returns, effect, *args, **kwargs)
        finally:
            if journal.budget_state:
                tally.restore(journal.budget_state)

    return remember


class StepBudget:
    """The `Allowance` of one step: what it may still use of the run's budget.

    Before it starts, a model call reserves its input and its output limit, or else what replies of its role
    usually take. It starts if that fits into what is left beside the calls under way; otherwise it waits for
    them to end. A call that runs alone starts as long as its input fits, so a run exceeds its budget by at
    most one reply.

    `used` is the usage of the step's finished calls, which are not in the tally yet. A call has to fit into
    the budget of the workflow around the run as well, and ends when the earlier of both deadlines is reached.
    """

    def __init__(self, tally: Tally, name: str) -> None:
        self.tally = tally
        self.outer = tally.outer
        self.used = NOTHING_USED
        self.known_usd = 0.0
        self.under_way: set[BudgetedCall] = set()
        self.bound = asyncio.timeout(None)
        self.deadline: float | None = None
        self._ends_with_outer = False
        self._name = name
        self._checks_until: float | None = None
        self._waiting: deque[tuple[BudgetedCall, asyncio.Future[None]]] = deque()

    @property
    def bounds_time(self) -> bool:
        """Whether the step is cancelled when its time is spent."""
        return self.deadline is not None

    def begin(self) -> None:
        """Start the clock of the step, if the budget limits time."""
        seconds, outer = self.tally.budget.seconds, self.outer
        now = asyncio.get_running_loop().time()
        own = None if seconds is None else now + seconds - self.tally.seconds()
        if outer is not None and outer.deadline is not None and (own is None or outer.deadline <= own):
            own, self._ends_with_outer = outer.deadline, True
        if own is None:
            return
        self.deadline = own
        free = self._name == "evaluate"
        self._checks_until = max(own, now + FREE_CHECKS) if free else own
        self.bound.reschedule(self._checks_until)
        self._leave_time_outside()

    def end(self) -> None:
        """Stop the clock, so that what follows the effect is not cancelled."""
        if self.deadline is not None and not self.bound.expired():
            self.bound.reschedule(None)

    def call(self, role: ModelRole, input_tokens: int, max_tokens: int | None = None, /) -> BudgetedCall:
        """Return a context in which to make a model call."""
        return BudgetedCall(self, role, input_tokens, max_tokens)

    async def in_time(self, effect: Awaitable[R], what: str = "a check", /) -> R:
        """Await a part of the step, such as a free check; raises `UnfinishedError` when its time is spent."""
        if (until := self._checks_until) is None:
            return await effect
        self.leave_time_after(until)
        bound = asyncio.timeout_at(until)
        try:
            async with bound:
                return await effect
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise self.out_of_time(f"{what} was under way") from error

    def leave_time_after(self, moment: float) -> None:
        """Give the step time to return after something inside it is cancelled at `moment`."""
        if not self.bound.expired() and (self.bound.when() or moment) < moment + GRACE:
            self.bound.reschedule(moment + GRACE)
            self._leave_time_outside()

    def _leave_time_outside(self) -> None:
        if self.outer is not None and self.outer.deadline is not None and self.bound.when() is not None:
            self.outer.leave_time_after(self.bound.when() or 0.0)

    def out_of_time(self, what: str) -> UnfinishedError:
        """Return the error for something that was cancelled, and count it."""
        self.tally.cancelled += 1
        return self.over(ConvergenceReason.TIME_BUDGET, f"while {what}; it was cancelled.")

    def over(self, reason: ConvergenceReason, what: str) -> UnfinishedError:
        """Return the error for something that the budget does not allow; the run ends for this reason."""
        self.tally.exhausted = self.tally.exhausted or reason
        if self.outer is not None and reason is ConvergenceReason.TIME_BUDGET and self._ends_with_outer:
            return self.outer.over(reason, what)
        is_time = reason is ConvergenceReason.TIME_BUDGET
        spent = self.tally.time_passed() if is_time else self.tally.option(reason)
        return UnfinishedError(f"{spent} {what}", reason=reason)

    async def admit(self, call: BudgetedCall) -> None:
        """Wait until a call fits, and reserve what it may use; raises `UnfinishedError` if it can't fit."""
        if not self._waiting and self._reserve(call):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, turn))
        try:
            await turn
        finally:
            if not turn.done() or turn.cancelled():
                self._waiting = deque(pair for pair in self._waiting if pair[1] is not turn)

    def release(self, call: BudgetedCall, usage: TokenUsage) -> None:
        """Replace a call's reservation by its usage, and start the waiting calls that now fit."""
        self.under_way.discard(call)
        self.used += usage
        self.known_usd += usage.cost_usd or 0.0
        self.tally.observe(call.role, usage)
        while self._waiting:
            waiting, turn = self._waiting[0]
            try:
                if not turn.done() and not self._reserve(waiting):
                    return
            except UnfinishedError as error:
                turn.set_exception(error)
            else:
                if not turn.done():
                    turn.set_result(None)
            self._waiting.popleft()

    def _reserve(self, call: BudgetedCall) -> bool:
        """Reserve what a call may use, or return False if it has to wait; raises `UnfinishedError`."""
        budget, tally = self.tally.budget, self.tally
        if self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline:
            tally.refused += 1
            raise self.over(ConvergenceReason.TIME_BUDGET, "before the call started.")
        call.tokens = call.input_tokens + (call.max_tokens or tally.reply_tokens(call.role))
        call.usd = tally.reply_cost(call.role)
        fits, refusal = True, None
        if budget.tokens is not None:
            left = budget.tokens - (tally.total() + self.used).total_tokens
            fits = sum(other.tokens for other in self.under_way) + call.tokens <= left
            if call.input_tokens >= left:
                why = f"leaves {max(0, left):,} tokens; the next call takes about {call.input_tokens:,} "
                refusal = ConvergenceReason.TOKEN_BUDGET, f"{why}for its input alone."
        if budget.usd is not None:
            left_usd = budget.usd - tally.known_usd - self.known_usd
            fits = fits and sum(other.usd for other in self.under_way) + call.usd <= left_usd
            if refusal is None and left_usd <= 0:
                refusal = ConvergenceReason.COST_BUDGET, "is spent: no more calls are started."
        if not fits and self.under_way:
            return False
        if refusal is not None:
            tally.refused += 1
            raise self.over(*refusal)
        self.under_way.add(call)
        return True


class BudgetedCall:
    """One model call of a step: it reserves what it may use, and is counted when it ends."""

    def __init__(self, step: StepBudget, role: ModelRole, input_tokens: int, max_tokens: int | None) -> None:
        self.role: ModelRole = role
        self.input_tokens = input_tokens
        self.max_tokens = max_tokens
        self.tokens = 0
        self.usd = 0.0
        self._step = step
        self._used = NOTHING_USED
        outer = step.outer
        self._outer = None if outer is None else BudgetedCall(outer, role, input_tokens, max_tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RedraftError) and error.usage is not None:
            self._used = error.usage
        self._release(self._used)
        if (calls := calls_of_part.get()) is not None:
            calls.append(self._used)

    def _release(self, usage: TokenUsage) -> None:
        self._step.release(self, usage)
        if self._outer is not None:
            self._outer._release(usage)  # noqa: SLF001 (the same class)

    def used(self, usage: TokenUsage, /) -> None:
        """Report what the call used, also if its reply comes from a recording."""
        self._used = usage

    async def carry_out(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call once it fits, and cancel it when the time is spent, with an `UnfinishedError`."""
        step = self._step
        if step.deadline is None:
            await step.admit(self)
            return await self._start(fn, *args, **kwargs)
        step.leave_time_after(step.deadline)
        bound = asyncio.timeout_at(step.deadline)
        try:
            async with bound:
                await step.admit(self)
                return await self._start(fn, *args, **kwargs)
        except TimeoutError as error:
            if not bound.expired():  # a timeout of the model itself
                raise
            if self not in step.under_way:
                step.tally.refused += 1
                raise step.over(ConvergenceReason.TIME_BUDGET, "before the call started.") from error
            cancelled = step.out_of_time("a model was answering")
            cancelled.usage = self._used + TokenUsage(failed_requests=1)
            raise cancelled from error

    async def _start(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call, within the budget of the workflow around the run if there is one."""
        if self._outer is None:
            return await fn(*args, **kwargs)
        try:
            return await self._outer.carry_out(fn, *args, **kwargs)
        except UnfinishedError as error:
            if error.reason is not None:
                tally = self._step.tally
                tally.exhausted = tally.exhausted or error.reason
                tally.refused += 1
            raise


def enclosing_budget() -> StepBudget | None:
    """Return the budget of the step under way here, if it has one."""
    within = allowance.get()
    return within if isinstance(within, StepBudget) else None
