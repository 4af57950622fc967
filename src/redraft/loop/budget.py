"""Budgets: what a run may use, and what it has used."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redraft._steps import allowance
from redraft._validation import check_bound
from redraft.errors import ModelError, OutputError, RedraftError, UnfinishedError
from redraft.types import NOTHING_USED, ConvergenceReason, Stop, TokenUsage, render_usd

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType
    from typing import Self

    from redraft.protocols import ModelRole, Step

P = ParamSpec("P")
R = TypeVar("R")

ROLES: dict[str, ModelRole] = {"generate": "generation", "evaluate": "evaluation", "revise": "revision"}
"""What the model calls inside a step of the loop are for."""
LONGEST_REPLY = 16_384
"""Output tokens reserved for a call without a limit of its own, until a reply of its role is known."""
SHORTEST_RESERVED = 2_048
"""Output tokens reserved at least for such a call afterwards; else twice the longest reply of its role."""
FREE_CHECKS = 1.0
"""Seconds that judging a version may always take: its free checks run when the time is spent, too."""
SETTLING = 1.0
"""Seconds in which a step makes its result of what it has, after a call inside it was cancelled."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bound a run: tokens of all calls, US dollars, seconds, and tokens of revisions; None is no bound.

    Raises `ConfigError` for a bound of 0 or less: nothing could run under it.
    """

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    revision_tokens: int | None = None

    def __post_init__(self) -> None:
        bounds = {
            "budget_tokens": self.tokens,
            "budget_usd": self.usd,
            "budget_seconds": self.seconds,
            "max_revision_tokens": self.revision_tokens,
        }
        for name, bound in bounds.items():
            check_bound(name, bound)


NO_BUDGET = Budget()


@dataclass(slots=True)
class Tally:
    """Add up what one run has used, by role.

    `longest` and `dearest` are the output tokens and the cost of the largest reply of a role. `exhausted`
    names the budget that has kept a call from starting or ending; `refused` and `cancelled` count such calls.
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

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, role: ModelRole, usage: TokenUsage) -> None:
        """Count what a step used."""
        used = self.by_role.get(role)
        if used is None:
            self.by_role[role] = usage
        elif usage is not NOTHING_USED:
            self.by_role[role] = used + usage
        if usage.cost_usd:
            self.known_usd += usage.cost_usd

    def add_failure(self, role: ModelRole | None, error: Exception) -> None:
        """Count a call that failed, and what was paid on the way to the failure."""
        if role is not None and isinstance(error, ModelError | OutputError):
            failed = TokenUsage(failed_requests=1) if isinstance(error, ModelError) else NOTHING_USED
            self.add(role, failed + (error.usage or NOTHING_USED))

    def total(self) -> TokenUsage:
        """Return what all roles used together."""
        total = NOTHING_USED
        for used in self.by_role.values():
            total += used
        return total

    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return self.clock() - self.started

    def spent(self, under_way: TokenUsage = NOTHING_USED) -> ConvergenceReason | None:
        """Name the budget of the run that is spent, if one is; `under_way` is not counted yet."""
        budget = self.budget
        if budget is NO_BUDGET:
            return None
        if self.exhausted is not None:
            return self.exhausted
        used = self.total() + under_way
        if budget.tokens is not None and used.total_tokens >= budget.tokens:
            return ConvergenceReason.TOKEN_BUDGET
        # One cost that is not known must not set the others free.
        if budget.usd is not None and self.known_usd + (under_way.cost_usd or 0.0) >= budget.usd:
            return ConvergenceReason.COST_BUDGET
        if budget.seconds is not None and self.seconds() >= budget.seconds:
            return ConvergenceReason.TIME_BUDGET
        return None

    def allows_waiting(self, seconds: float, under_way: TokenUsage = NOTHING_USED) -> bool:
        """Say whether the run may wait so long and then still start a step."""
        bound = self.budget.seconds
        return self.spent(under_way) is None and (bound is None or self.seconds() + seconds < bound)

    def reply_tokens(self, role: ModelRole) -> int:
        """Return how many output tokens to reserve for a call of a role that has no limit of its own."""
        longest = self.longest.get(role)
        return LONGEST_REPLY if longest is None else max(SHORTEST_RESERVED, 2 * longest)

    def reply_cost(self, role: ModelRole) -> float:
        """Return how many US dollars to reserve for a call of a role: any number, until one is known."""
        dearest = self.dearest.get(role)
        return float("inf") if dearest is None else 2 * dearest

    def observe(self, role: ModelRole, usage: TokenUsage) -> None:
        """Learn from a reply how much the next one of its role may use."""
        if usage.requests:
            self.longest[role] = max(self.longest.get(role, 0), usage.output_tokens)
            # A cost that is not known can't be bounded: it must not hold up the calls of the others.
            self.dearest[role] = max(self.dearest.get(role, 0.0), usage.cost_usd or 0.0)

    def named(self, reason: ConvergenceReason) -> str:
        """Return the option that a reason to stop comes from, with its value."""
        budget = self.budget
        if reason is ConvergenceReason.TIME_BUDGET:
            return f"budget_seconds={budget.seconds:g}"
        return (
            f"budget_usd={budget.usd:g}"
            if reason is ConvergenceReason.COST_BUDGET
            else f"budget_tokens={budget.tokens}"
        )

    def stop(self, reason: ConvergenceReason) -> Stop:
        """Explain a reason to stop that is a budget's: what was used, of how much."""
        budget, used = self.budget, self.total()
        if reason is ConvergenceReason.TIME_BUDGET:
            seconds, bound = self.seconds(), budget.seconds or 0.0
            detail = f"{seconds:.1f} of {bound:.1f} seconds went by (budget_seconds)."
            return Stop(reason, detail, {"used": seconds, "budget_seconds": bound})
        if reason is ConvergenceReason.COST_BUDGET:
            usd = render_usd(budget.usd or 0.0)
            if used.cost_usd is None:
                detail = f"Part of the cost is not known; the rest reached {usd} (budget_usd)."
            else:
                detail = f"{render_usd(used.cost_usd)} of {usd} were spent (budget_usd)."
            return Stop(reason, detail, {"used": used.cost_usd, "budget_usd": budget.usd})
        tokens, bound = used.total_tokens, budget.tokens
        if bound is not None and (tokens >= bound or self.exhausted is ConvergenceReason.TOKEN_BUDGET):
            detail = f"{tokens:,} of {bound:,} tokens were used (budget_tokens)."
            if tokens < bound:
                detail += " What was left was too little for the next call."
            return Stop(reason, detail, {"used": tokens, "budget_tokens": bound})
        bound = budget.revision_tokens or 0
        tokens = self.by_role.get("revision", NOTHING_USED).total_tokens
        detail = f"Revisions used {tokens:,} of {bound:,} tokens (max_revision_tokens)."
        return Stop(reason, detail, {"used": tokens, "max_revision_tokens": bound})

    def account(self) -> str:
        """Say which calls the budget has cost the run, if any."""
        if self.exhausted is None:
            return ""
        counts = ((self.refused, "not started"), (self.cancelled, "cancelled"))
        said = " and ".join(f"{count} {what}" for count, what in counts if count)
        return f"{self.named(self.exhausted)} left no room for all model calls and checks: {said}."

    def revision_tokens_left(self) -> int | None:
        """Return how many tokens revisions may still use; None where that is not bounded."""
        if self.budget.revision_tokens is None:
            return None
        used = self.by_role.get("revision", NOTHING_USED).total_tokens
        return max(0, self.budget.revision_tokens - used)


def bounded(step: Step, tally: Tally) -> Step:
    """Return a step in which model calls start only within the budget, and which ends when its time is spent.

    An effect that is still under way then is cancelled, as a step of a journal before it is recorded: it is
    carried out again when the run is resumed. Raises `UnfinishedError` with the reason.
    """

    @wraps(step, (), ())
    async def bound(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        own = StepBudget(tally, name)

        async def in_budget(*args: P.args, **kwargs: P.kwargs) -> R:
            # The clock runs only while something is carried out: neither replaying nor recording is cut off.
            own.begin()
            try:
                return await fn(*args, **kwargs)
            finally:
                own.end()

        outside = allowance.set(own)
        try:
            async with own.bound:
                return await step(name, returns, in_budget, *args, **kwargs)
        except TimeoutError as error:
            if not own.bound.expired():  # a timeout of the effect itself
                raise
            late = own.out_of_time(f"the step {name!r} was under way")
            late.usage = own.used
            raise late from error
        except asyncio.CancelledError:  # from outside: nobody else knows what the calls inside have used
            if (role := ROLES.get(name)) is not None:
                tally.add(role, own.used)
            raise
        finally:
            allowance.reset(outside)

    return bound


class StepBudget:
    """What one step of a run may use; an `Allowance`.

    Each model call reserves what it may use before it starts: its input and its output limit, or what replies
    of its role may take. It starts if that fits into what is left beside the calls under way; otherwise it
    waits for them. A call that has the run to itself starts as long as its input fits, so that a run
    overshoots its budget by at most one reply.

    `used` is what the calls of the step have used that have ended, and are not in the tally yet.
    """

    def __init__(self, tally: Tally, name: str) -> None:
        self.tally = tally
        self.used = NOTHING_USED
        self.known_usd = 0.0
        self.under_way: set[BudgetedCall] = set()
        self.bound = asyncio.timeout(None)
        self.deadline: float | None = None
        self._name = name
        self._checks_until: float | None = None
        self._waiting: deque[tuple[BudgetedCall, asyncio.Future[None]]] = deque()

    @property
    def bounds_time(self) -> bool:
        """Whether the step will be cancelled when its time is spent."""
        return self.deadline is not None

    def begin(self) -> None:
        """Start the clock of the step, where the budget has one."""
        seconds = self.tally.budget.seconds
        if seconds is None:
            return
        now = asyncio.get_running_loop().time()
        self.deadline = now + seconds - self.tally.seconds()
        free = self._name == "evaluate"
        self._checks_until = max(self.deadline, now + FREE_CHECKS) if free else self.deadline
        self.bound.reschedule(self._checks_until)

    def end(self) -> None:
        """Stop the clock: what comes after the effect is not cancelled."""
        if self.deadline is not None and not self.bound.expired():
            self.bound.reschedule(None)

    def call(self, role: ModelRole, input_tokens: int, max_tokens: int | None = None, /) -> BudgetedCall:
        """Return what a model call is carried out by."""
        return BudgetedCall(self, role, input_tokens, max_tokens)

    async def in_time(self, check: Awaitable[R], /) -> R:
        """Wait for a check that is free, as long as those may take; raises `UnfinishedError` then."""
        if (until := self._checks_until) is None:
            return await check
        self.leave_time_after(until)
        bound = asyncio.timeout_at(until)
        try:
            async with bound:
                return await check
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise self.out_of_time("a check was under way") from error

    def leave_time_after(self, moment: float) -> None:
        """Let the step itself go on for a little when something inside it was cancelled."""
        if not self.bound.expired() and (self.bound.when() or moment) < moment + SETTLING:
            self.bound.reschedule(moment + SETTLING)

    def out_of_time(self, what: str) -> UnfinishedError:
        """Return the error that ends what is cancelled; it carries what was used and is not counted yet."""
        self.tally.cancelled += 1
        return self.over(ConvergenceReason.TIME_BUDGET, f"was spent while {what}; it was cancelled.")

    def over(self, reason: ConvergenceReason, what: str) -> UnfinishedError:
        """Return the error of what a budget does not allow; the run ends with this reason."""
        self.tally.exhausted = self.tally.exhausted or reason
        return UnfinishedError(f"{self.tally.named(reason)} {what}", reason=reason)

    async def admit(self, call: BudgetedCall) -> None:
        """Reserve what a call may use, as soon as that fits; raises `UnfinishedError` where it can't."""
        if not self._waiting and self._decide(call):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, turn))
        try:
            await turn
        finally:
            if not turn.done() or turn.cancelled():
                self._waiting = deque(pair for pair in self._waiting if pair[1] is not turn)

    def release(self, call: BudgetedCall, usage: TokenUsage) -> None:
        """Count what a call has used instead of what it reserved, and let those start that wait for it."""
        self.under_way.discard(call)
        self.used += usage
        self.known_usd += usage.cost_usd or 0.0
        self.tally.observe(call.role, usage)
        while self._waiting:
            waiting, turn = self._waiting[0]
            try:
                if not turn.done() and not self._decide(waiting):
                    return
            except UnfinishedError as error:
                turn.set_exception(error)
            else:
                if not turn.done():
                    turn.set_result(None)
            self._waiting.popleft()

    def _decide(self, call: BudgetedCall) -> bool:
        """Reserve what a call may use, or return False to let it wait; raises `UnfinishedError` to refuse."""
        budget, tally = self.tally.budget, self.tally
        if self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline:
            tally.refused += 1
            raise self.over(ConvergenceReason.TIME_BUDGET, "is spent: no more calls are started.")
        call.tokens = call.input_tokens + (call.max_tokens or tally.reply_tokens(call.role))
        call.usd = tally.reply_cost(call.role)
        fits, refusal = True, None
        if budget.tokens is not None:
            left = budget.tokens - (tally.total() + self.used).total_tokens
            fits = sum(other.tokens for other in self.under_way) + call.tokens <= left
            if call.input_tokens >= left:
                told = f"leaves {max(0, left):,} tokens; the next call takes about {call.input_tokens:,} "
                told += "for its input alone."
                refusal = ConvergenceReason.TOKEN_BUDGET, told
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
    """One model call of a step: what it may use is reserved before it starts, and counted when it ends."""

    def __init__(self, step: StepBudget, role: ModelRole, input_tokens: int, max_tokens: int | None) -> None:
        self.role: ModelRole = role
        self.input_tokens = input_tokens
        self.max_tokens = max_tokens
        self.tokens = 0
        self.usd = 0.0
        self._step = step
        self._used = NOTHING_USED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RedraftError) and error.usage is not None:
            self._used = error.usage
        self._step.release(self, self._used)

    def used(self, usage: TokenUsage, /) -> None:
        """Say what the call has used, also where its reply was recorded before and it did not start."""
        self._used = usage

    async def carry_out(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call when it fits, and cancel it when the time is spent; `UnfinishedError` says so."""
        step = self._step
        if step.deadline is None:
            await step.admit(self)
            return await fn(*args, **kwargs)
        step.leave_time_after(step.deadline)
        bound = asyncio.timeout_at(step.deadline)
        try:
            async with bound:
                await step.admit(self)
                return await fn(*args, **kwargs)
        except TimeoutError as error:
            if not bound.expired():  # a timeout of the model itself
                raise
            if self not in step.under_way:
                step.tally.refused += 1
                raise step.over(
                    ConvergenceReason.TIME_BUDGET, "was spent before the call started."
                ) from error
            cancelled = step.out_of_time("a model was answering")
            cancelled.usage = TokenUsage(failed_requests=1)
            raise cancelled from error
