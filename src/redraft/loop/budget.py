"""Budgets: the limits of a run, what it has used, and which calls still fit."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from math import isclose
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from redraft._steps import estimated_usage, name_of_model, step_context, step_scope
from redraft._sync import blocked_loops
from redraft._validation import check_bound, check_limit
from redraft.errors import ConfigError, ModelError, OutputError, RedraftError, UnfinishedError
from redraft.types import NOTHING_USED, ConvergenceReason, Stop, TokenUsage, render_usd, usage_before

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator
    from types import TracebackType
    from typing import Self

    from redraft.protocols import ChatModel, ModelRole

P = ParamSpec("P")
R = TypeVar("R")

ROLES: dict[str, ModelRole] = {"generate": "generation", "evaluate": "evaluation", "revise": "revision"}
"""The role of the model calls inside each step of the loop."""
DRAFTING = ("generate", "revise")
"""The steps that do not begin once a shared budget is spent; judging does, because checks are free."""
LONGEST_REPLY = 16_384
"""The highest limit sent for a reply, unless earlier replies came near it; many models refuse higher ones."""
LONGEST_REASONING = 65_536
"""The highest limit for a model that reasons, since its thoughts are output tokens, too."""
EXPECTED_REPLY = 1_024
"""Output tokens expected of a reply while its role has none yet."""
SHORTEST_REPLY = 16
"""Output tokens below which the first reply of a role would be cut off."""
SHORTEST_REASONING = 1_024
"""Output tokens below which the first reply of a model that reasons would be cut off."""
REPLY_MARGIN = 1.5
"""Factor on the longest reply of a role, to allow for a longer next reply."""
FREE_CHECKS = 1.0
"""Seconds that judging may always take, so that free checks run even after the time is spent."""
GRACE = 1.0
"""Seconds for a step to return its partial result after a call inside it was cancelled."""
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
    """The limits of a run; None means no limit. Raises `ConfigError` for a limit of 0 or less."""

    tokens: int | None = None
    """Tokens of all calls, input and output."""
    usd: float | None = None
    seconds: float | None = None
    revision_tokens: int | None = None
    """Tokens of the calls that revise."""

    def __post_init__(self) -> None:
        for field_name, option in OPTIONS.items():
            check = check_limit if field_name.endswith("tokens") else check_bound
            check(option, getattr(self, field_name))


NO_BUDGET = Budget()
REFUSALS = (400, 422)
"""The HTTP statuses with which providers refuse a limit too high for the model or its context."""
ABOUT_LIMITS = re.compile(
    r"max\w*_?tokens|maxOutputTokens|max_model_len|context length|(output|completion) tokens", re.IGNORECASE
)
LEAST_ACCEPTED = 512
"""The lowest limit to retry after a refusal: below it, the refusal has another reason."""


STATE = (
    *("shortest", "longest", "dearest", "reported", "estimated_tokens", "exhausted", "refused", "cancelled"),
    *("needed", "cut_off", "overlong", "is_out_of_revisions"),
)
"""The fields of a tally that decide on the next call besides the usage, or explain it."""


@dataclass(slots=True)
class Tally:
    """What a run has used so far, by role, and which calls its budget did not allow."""

    budget: Budget
    by_role: dict[str, TokenUsage] = field(init=False, default_factory=dict[str, TokenUsage])
    known_usd: float = 0.0
    """The cost of the calls whose cost is known."""
    clock: Callable[[], float] = monotonic
    started: float = field(init=False)
    shortest: dict[str, int] = field(init=False, default_factory=dict[str, int])
    """The output tokens of the shortest reply of each role."""
    longest: dict[str, int] = field(init=False, default_factory=dict[str, int])
    """The output tokens of the longest reply of each role."""
    dearest: dict[str, float] = field(init=False, default_factory=dict[str, float])
    """The highest cost of a reply of each role."""
    reported: dict[str, tuple[int, float]] = field(init=False, default_factory=dict[str, tuple[int, float]])
    """The most tokens and US dollars that a call of each of the user's functions has reported."""
    exhausted: ConvergenceReason | None = None
    """The budget that kept a call from starting, or cancelled it."""
    refused: int = 0
    """Calls that were not started."""
    cancelled: int = 0
    needed: str = ""
    """What the last refused call needed, and what was left."""
    unpriced: set[str] = field(init=False, default_factory=set[str])
    """Models without a price whose replies report no cost, so that no budget in US dollars bounds them."""
    accepted: dict[str, int] = field(init=False, default_factory=dict[str, int])
    """Limits on replies that were lowered after a provider's refusals, by model."""
    cut_off: int = 0
    """Replies that ended at the limit that the budget set."""
    overlong: tuple[int, int] | None = None
    """The output tokens and the limit of the reply that exceeded its limit most."""
    is_out_of_revisions: bool = False
    """Whether the budget of revision tokens was the one that did not suffice."""
    estimated_tokens: int = 0
    """Tokens of replies for which the provider reported no usage."""
    outer: StepBudget | None = None
    """The budget of the workflow in which the run is a step: it bounds the run's calls as well."""
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)
    """The names under which the limits were set, for messages."""
    suspends: bool = False
    """Whether the budget is shared with other runs: it then interrupts a run instead of ending it."""
    suspended: UnfinishedError | None = None
    """The error of a call that a shared budget did not allow."""

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, role: str, usage: TokenUsage) -> None:
        """Add the usage of a step."""
        if role not in self.by_role:
            self.by_role[role] = usage
        elif usage is not NOTHING_USED:
            self.by_role[role] += usage
        if usage.cost_usd:
            self.known_usd += usage.cost_usd

    def add_failure(self, role: ModelRole | None, error: Exception) -> None:
        """Add the usage of a step that failed, and the failed request itself."""
        if role is not None and isinstance(error, ModelError | OutputError):
            self.add(role, usage_of_failure(error))

    def total(self) -> TokenUsage:
        """The usage of all roles."""
        return sum(self.by_role.values(), NOTHING_USED)

    def seconds(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.started

    def spent(self, under_way: TokenUsage = NOTHING_USED) -> ConvergenceReason | None:
        """The spent budget, if any; `under_way` is usage that is not counted yet.

        A shared budget does not count: once spent, it suspends the run at its next call.
        """
        if self.suspends:
            return None
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
        # An unknown cost must not lift the limit on known costs.
        if budget.usd is not None and self.known_usd + (under_way.cost_usd or 0.0) >= budget.usd:
            return ConvergenceReason.COST_BUDGET
        if budget.seconds is not None and self.seconds() >= budget.seconds:
            return ConvergenceReason.TIME_BUDGET
        return None

    def allows_waiting(self, seconds: float, under_way: TokenUsage = NOTHING_USED) -> bool:
        """Whether the run may wait this long and still start a step afterwards."""
        bound, outer = self.budget.seconds, self.outer
        if outer is not None and not outer.tally.allows_waiting(seconds, outer.used):
            return False
        return self.spent(under_way) is None and (bound is None or self.seconds() + seconds < bound)

    def shortest_reply(self, role: ModelRole, *, reasons: bool) -> int:
        """Output tokens below which the next reply of a role is certain to be cut off."""
        shortest = self.shortest.get(role)
        if shortest is None:
            return SHORTEST_REASONING if reasons else SHORTEST_REPLY
        return max(1, shortest)

    def expected_reply(self, role: ModelRole, *, reasons: bool) -> int:
        """Output tokens within which the next reply of a role probably ends by itself."""
        longest = self.longest.get(role)
        if longest is None:
            return SHORTEST_REASONING * 2 if reasons else EXPECTED_REPLY
        return max(SHORTEST_REPLY, round(REPLY_MARGIN * longest))

    def longest_reply(self, role: ModelRole, *, reasons: bool) -> int:
        """The highest limit to send for the next reply of a role."""
        return max(LONGEST_REASONING if reasons else LONGEST_REPLY, 4 * self.longest.get(role, 0))

    def reply_cost(self, role: ModelRole) -> float:
        """US dollars to reserve for a call without a known price: infinity for the first call."""
        dearest = self.dearest.get(role)
        return float("inf") if dearest is None else 2 * dearest

    def observe(self, role: ModelRole, usage: TokenUsage) -> None:
        """Learn from a reply how much to reserve for the next reply of its role."""
        if usage.requests:
            output = usage.output_tokens
            self.shortest[role] = min(self.shortest.get(role, output), output)
            self.longest[role] = max(self.longest.get(role, 0), output)
            # An unknown cost can't be bounded, so it must not hold up other calls.
            self.dearest[role] = max(self.dearest.get(role, 0.0), usage.cost_usd or 0.0)

    def state(self) -> dict[str, Any]:
        """What decides on the next call besides the usage, as JSON for the journal."""
        values = {name: copy(getattr(self, name)) for name in STATE}
        return {"budget": asdict(self.budget), "unpriced": sorted(self.unpriced), **values}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of the run's earlier process, which may have had another budget.

        Raises an error that `reading` names for a damaged state.
        """
        self.longest = _counts(state["longest"])
        self.dearest = {role: float(usd) for role, usd in state["dearest"].items()}
        self.shortest = _counts(state.get("shortest", {}))  # version 1.x recorded none
        reported = state.get("reported", {}).items()
        self.reported = {kind: (int(tokens), float(usd)) for kind, (tokens, usd) in reported}
        self.unpriced = set(map(str, state.get("unpriced", ())))
        self.estimated_tokens, self.cut_off = int(state["estimated_tokens"]), int(state.get("cut_off", 0))
        overlong = state.get("overlong")
        self.overlong = None if overlong is None else (int(overlong[0]), int(overlong[1]))
        if state["exhausted"] is None:
            return
        reason = ConvergenceReason(state["exhausted"])
        refused, cancelled = int(state["refused"]), int(state["cancelled"])
        # Without limits of its own, the run was ended by the budget around it, which decides again.
        if self.budget is not NO_BUDGET and state["budget"] == asdict(self.budget):
            self.exhausted, self.refused, self.cancelled = reason, refused, cancelled
            self.needed = str(state.get("needed", ""))
            self.is_out_of_revisions = bool(state.get("is_out_of_revisions", False))

    def end_by(self, outer: Tally, error: UnfinishedError) -> None:
        """End or suspend the run, because the budget around this one did not allow a call."""
        if outer.suspends or outer.suspended is not None:
            self.suspended = self.suspended or error
        else:
            self.exhausted = self.exhausted or error.reason

    def option(self, reason: ConvergenceReason) -> str:
        """The option behind a budget's reason to stop, with its value."""
        if (outer := self._spent_outer(reason)) is not None:
            return outer.tally.option(reason)
        budget, options = self.budget, self.options
        if reason is ConvergenceReason.TIME_BUDGET:
            return f"{options['seconds']}={budget.seconds:g}"
        if reason is ConvergenceReason.COST_BUDGET:
            return f"{options['usd']}={budget.usd:g}"
        if self.is_out_of_revisions:
            return f"{options['revision_tokens']}={budget.revision_tokens}"
        return f"{options['tokens']}={budget.tokens}"

    def time_passed(self) -> str:
        """Say that the time of the run has passed."""
        if (outer := self._spent_outer(ConvergenceReason.TIME_BUDGET)) is not None:
            return outer.tally.time_passed()
        return f"{self.budget.seconds:g} seconds passed ({self.options['seconds']})"

    def _spent_outer(self, reason: ConvergenceReason) -> StepBudget | None:
        """The budget of the workflow around the run, if it is spent for this reason."""
        outer = self.outer
        return outer if outer is not None and outer.tally.spent(outer.used) is reason else None

    def stop(self, reason: ConvergenceReason, under_way: TokenUsage = NOTHING_USED) -> Stop:
        """The stop for a budget's reason, with its usage; `under_way` as in `spent`."""
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
            if self.unpriced and self.known_usd + (under_way.cost_usd or 0.0) < (budget.usd or 0.0):
                detail = f"{self.option(reason)} {unbounded(self.unpriced)}"
            elif used.cost_usd is None:
                detail = f"Part of the cost is not known; the rest reached {usd} ({option})."
            else:
                detail = f"{render_usd(used.cost_usd)} of {usd} were spent ({option})."
                if used.cost_usd < (budget.usd or 0.0):
                    detail += self._too_little()
            detail += self._exceeded()
            return Stop(reason, detail, {"used": used.cost_usd, option: budget.usd})
        tokens, bound, option = used.total_tokens, budget.tokens, options["tokens"]
        is_refused = self.exhausted is ConvergenceReason.TOKEN_BUDGET and not self.is_out_of_revisions
        if bound is not None and (tokens >= bound or is_refused):
            detail = f"{tokens:,} of {bound:,} tokens were used ({option})."
            too_little = tokens < bound
        else:
            tokens = self.by_role.get("revision", NOTHING_USED).total_tokens
            bound, option = budget.revision_tokens or 0, options["revision_tokens"]
            detail = f"Revisions used {tokens:,} of {bound:,} tokens ({option})."
            too_little = self.is_out_of_revisions
        detail += (self._too_little() if too_little else "") + self._exceeded()
        return Stop(reason, detail, {"used": tokens, option: bound})

    def _too_little(self) -> str:
        return f" What was left was too little for the next call{self.needed and f': {self.needed}'}."

    def _exceeded(self) -> str:
        """A sentence on a reply that was longer than the limit sent with it; empty if there was none."""
        if self.overlong is None:
            return ""
        tokens, limit = self.overlong
        return f" A reply took {tokens:,} output tokens, although it was sent with a limit of {limit:,}."

    def diagnostics(self) -> dict[str, str]:
        """Diagnostics on calls that the budget prevented or cut short, and on an unknown cost."""
        notes: dict[str, str] = {}
        if self.exhausted is not None:
            counts = ((self.refused, "not started"), (self.cancelled, "cancelled"))
            calls = " and ".join(f"{count} {what}" for count, what in counts if count)
            option = self.option(self.exhausted)
            notes["budget"] = f"{option} left no room for all model calls and checks: {calls}."
            if self.needed and self.refused:
                notes["budget"] += f" The last one: {self.needed}."
        if self.cut_off:
            replies = "One reply was" if self.cut_off == 1 else f"{self.cut_off} replies were"
            notes["cut_off"] = f"{replies} cut off at the limit that the budget allowed."
        if self.estimated_tokens:
            notes["usage_estimated"] = (
                f"About {self.estimated_tokens:,} of the tokens are an estimate: the provider did not say "
                "what a reply used, or its stream broke off before."
            )
        if self.budget.usd is not None and self.total().cost_usd is None:
            option = self.options["usd"]
            why = f"{option} {unbounded(self.unpriced)}" if self.unpriced else ""
            notes["cost_unknown"] = why or f"Some cost is not known; {option} could bound only the rest."
        return notes

    def revision_tokens_left(self) -> int | None:
        """Tokens left for revisions; None if there is no limit."""
        if self.budget.revision_tokens is None:
            return None
        used = self.by_role.get("revision", NOTHING_USED).total_tokens
        return max(0, self.budget.revision_tokens - used)


def usage_of_failure(error: Exception) -> TokenUsage:
    """The usage of a failed step, with the failed request itself."""
    failed = TokenUsage(failed_requests=1) if isinstance(error, ModelError) else NOTHING_USED
    return failed + usage_before(error)


def _counts(state: Mapping[str, Any]) -> dict[str, int]:
    return {role: int(count) for role, count in state.items()}


class StepBudget:
    """The `Allowance` of a step: what it may still use of the run's budget.

    A model call is sent with a limit on its reply. Before it starts, it reserves its input and this limit,
    and it starts only if both fit into what the calls under way leave. Calls that begin together share what
    is left; if the shares were too small, some wait for the others to end. A call does not start if its reply
    would certainly be cut off. So a run exceeds its budget by the error of its input estimates at most.
    A model that only reports costs, without a known price, exceeds a budget in US dollars by one reply; a
    model that reports none is not called again.

    A call has to fit into the budget of the workflow around the run as well, and ends at the earlier of both
    deadlines.
    """

    def __init__(self, tally: Tally, name: str) -> None:
        self.tally = tally
        self.outer = tally.outer
        self.used = NOTHING_USED
        """The usage of the step's finished calls, which are not in the tally yet."""
        self.known_usd = 0.0
        self.under_way: set[BoundedCall] = set()
        self.bound = asyncio.timeout(None)
        self.deadline: float | None = None
        self._ends_with_outer = False
        self._name = name
        self._checks_until: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the clock; functions in threads make their calls in loops of their own."""
        self._waiting: deque[tuple[BoundedCall, asyncio.Future[None]]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached, or a call was not allowed, here or in a budget around it."""
        tally, outer = self.tally, self.outer
        if tally.spent(self.used) is not None or tally.suspended is not None:
            return True
        return outer is not None and outer.is_over

    async def bounding(self, step: Awaitable[R]) -> R:
        """Await the step; when the time is spent, an effect that is still under way is cancelled.

        A journal does not record it, so it is carried out again when the run is resumed. Raises
        `UnfinishedError` with the reason, also for a step that a shared budget cut short, so that no decision
        rests on its incomplete result.
        """
        name = self._name
        try:
            with step_scope(budget=self):
                async with self.bound:
                    return await step
        except TimeoutError as error:
            if not self.bound.expired():  # a timeout of the effect itself
                raise
            late = self.out_of_time(f"the step {name!r} was under way")
            late.usage = self.used
            raise late from error
        except asyncio.CancelledError:  # from outside: only this step knows the usage of its calls
            if (role := ROLES.get(name)) is not None:
                self.tally.add(role, self.used)
            raise

    async def timed(self, fn: Callable[..., Awaitable[R]], *args: Any) -> R:
        """Carry out the effect of the step.

        The clock runs only while the effect does: neither replaying nor recording is cut short.
        """
        self._start_clock()
        try:
            if self._name in DRAFTING:
                self.check_shared()
            result = await fn(*args)
        finally:
            # Recording the effect must not be cancelled.
            if self.deadline is not None and not self.bound.expired():
                self.bound.reschedule(None)
        if self.tally.suspended is not None:
            raise self.tally.suspended
        return result

    def _start_clock(self) -> None:
        """Start the clock of the step, if the budget limits time."""
        seconds, outer = self.tally.budget.seconds, self.outer
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        own = None if seconds is None else now + seconds - self.tally.seconds()
        if outer is not None and outer.deadline is not None and (own is None or outer.deadline <= own):
            own, self._ends_with_outer = outer.deadline, True
        if own is None:
            return
        self.deadline = own
        free = self._name == "evaluate"
        self._checks_until = max(own, now + FREE_CHECKS) if free else own
        self.bound.reschedule(self._checks_until)
        self._extend_outer_deadline()

    def call(
        self,
        role: ModelRole,
        input_tokens: int,
        max_tokens: int | None = None,
        model: object = None,
        /,
        *,
        is_limit_fixed: bool = False,
    ) -> BudgetedCall:
        """The context of a model call; with `is_limit_fixed`, `max_tokens` can't be lowered."""
        return BudgetedCall(self, role, input_tokens, max_tokens, model, is_limit_fixed=is_limit_fixed)

    async def reported(self, kind: str, fn: Callable[[], Awaitable[R]], /, *, is_revision: bool = False) -> R:
        """Call a function of the user whose result reports its `usage`.

        A limit can't be sent with it, so it starts only if the dearest call of its kind so far would fit, or
        if all were free; also into the budgets around the run. While it is under way, this counts as spent.
        The first call of a kind may take everything, so other calls wait for it. Raises `UnfinishedError`.
        """
        with FunctionCall(self, kind, "revision" if is_revision else "generation") as call:
            return await call.carry_out(fn)

    def left(self, role: ModelRole) -> Iterator[tuple[ConvergenceReason, float, bool]]:
        """Yield what the ended calls leave of each budget, and whether it is that of revisions alone."""
        tally, budget = self.tally, self.tally.budget
        if budget.tokens is not None:
            left = budget.tokens - (tally.total() + self.used).total_tokens
            yield ConvergenceReason.TOKEN_BUDGET, left, False
        if role == "revision" and (revisions_left := tally.revision_tokens_left()) is not None:
            yield ConvergenceReason.TOKEN_BUDGET, revisions_left - self.used.total_tokens, True
        if budget.usd is not None:
            yield ConvergenceReason.COST_BUDGET, budget.usd - tally.known_usd - self.known_usd, False

    def others_under_way(self, call: BoundedCall) -> list[BoundedCall]:
        """The calls that may end while a call waits."""
        return [other for other in self.under_way if other.loop not in call.blocked]

    def end_by_outer(self, error: UnfinishedError) -> None:
        """End or suspend the run, because the budget around its own did not allow a call."""
        if self.outer is not None and error.reason is not None:
            self.tally.end_by(self.outer.tally, error)
            self.tally.refused += 1
            self.tally.needed = self.outer.tally.needed

    def count_replayed(self, usage: TokenUsage) -> None:
        """Count the calls of a replayed part of the step, here and in the budgets around it.

        A budget that several runs share has counted them already.
        """
        if self.tally.suspends:
            return
        with _lock:
            self.used += usage
            self.known_usd += usage.cost_usd or 0.0
        if self.outer is not None:
            self.outer.count_replayed(usage)

    async def in_time(self, effect: Awaitable[R], what: str = "a check", /) -> R:
        """Await a part of the step, such as a free check; raises `UnfinishedError` when its time is spent."""
        if (until := self._checks_until) is None:
            return await effect
        self.extend_deadline(until)
        bound = asyncio.timeout_at(until)
        try:
            async with bound:
                return await effect
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise self.out_of_time(f"{what} was under way") from error

    def extend_deadline(self, moment: float) -> None:
        """Let the step clean up after a call inside it is cancelled at `moment`."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            self._loop.call_soon_threadsafe(self.extend_deadline, moment)
            return
        if not self.bound.expired() and (self.bound.when() or moment) < moment + GRACE:
            with suppress(RuntimeError):  # the step has ended, and only a thread of it is left
                self.bound.reschedule(moment + GRACE)
            self._extend_outer_deadline()

    def _extend_outer_deadline(self) -> None:
        if self.outer is not None and self.outer.deadline is not None and self.bound.when() is not None:
            self.outer.extend_deadline(self.bound.when() or 0.0)

    def out_of_time(self, what: str) -> UnfinishedError:
        """Count a cancelled call or check, and make its error."""
        self.tally.cancelled += 1
        return self.over(ConvergenceReason.TIME_BUDGET, f"while {what}; it was cancelled.")

    def over(self, reason: ConvergenceReason, what: str) -> UnfinishedError:
        """The error for a call that the budget does not allow; the run ends for this reason."""
        if self.outer is not None and reason is ConvergenceReason.TIME_BUDGET and self._ends_with_outer:
            error = self.outer.over(reason, what)
            self.tally.end_by(self.outer.tally, error)
            return error
        self.tally.exhausted = self.tally.exhausted or reason
        is_time = reason is ConvergenceReason.TIME_BUDGET
        spent = self.tally.time_passed() if is_time else self.tally.option(reason)
        return UnfinishedError(f"{spent} {what}", reason=reason)

    def refuse(self, reason: ConvergenceReason, what: str) -> UnfinishedError:
        """Count a call that is not started, and make its error."""
        self.tally.refused += 1
        return self.over(reason, what)

    def check_shared(self) -> None:
        """Raise `UnfinishedError` if the budget that the run shares with others is spent."""
        part = self.shared
        if part is None or part.outer is None:
            return
        everything = part.outer
        if (reason := everything.tally.spent(everything.used)) is not None:
            error = everything.over(reason, "is spent.")
            self.tally.suspended = self.tally.suspended or error
            raise error

    @property
    def shared(self) -> StepBudget | None:
        """The part of a shared budget to which this step belongs, if any."""
        budget: StepBudget | None = self
        while budget is not None and not budget.tally.suspends:
            budget = budget.outer
        return budget

    async def admit(self, call: BoundedCall) -> None:
        """Wait until a call fits, and reserve what it may use; raises `UnfinishedError` if it can't fit."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        call.loop, call.blocked = loop, blocked_loops.get()
        with _lock:
            self.bound_inside()
            budget = self.tally.budget
            reserves_nothing = budget.tokens is None and budget.usd is None and budget.revision_tokens is None
            if isinstance(call, FunctionCall) and reserves_nothing:
                return
            self._waiting.append((call, turn))
        loop.call_soon(self._admit_waiting)  # after the calls that begin together with this one
        try:
            await turn
        finally:
            if not turn.done() or turn.cancelled():
                with _lock:
                    self._waiting = deque(pair for pair in self._waiting if pair[1] is not turn)

    def bound_inside(self) -> None:
        """Give up the reservations of the functions around a call, since it is bounded itself."""
        for function in _functions.get():
            function.has_calls = True
            if function in self.under_way:
                self.under_way.discard(function)
                self._wake()

    def release(self, call: BoundedCall, usage: TokenUsage) -> None:
        """Replace a call's reservation by its usage, and start the waiting calls that now fit."""
        self.under_way.discard(call)
        self.used += usage
        self.known_usd += usage.cost_usd or 0.0
        self._wake()

    def _wake(self) -> None:
        """Start the waiting calls that now fit, each in its own event loop."""
        for loop in dict.fromkeys(turn.get_loop() for _, turn in self._waiting):
            if loop is _running_loop():
                self._admit_waiting()
            else:
                with suppress(RuntimeError):  # it is closed, so its calls have been cancelled
                    loop.call_soon_threadsafe(self._admit_waiting)

    def _admit_waiting(self) -> None:
        """Start the calls of this event loop that fit, in their order.

        Another loop may be blocked, and could not start a call that has reserved something.
        """
        here = asyncio.get_running_loop()
        with _lock:
            for call, turn in [pair for pair in self._waiting if pair[1].get_loop() is here]:
                if not turn.done():
                    try:
                        if not call.reserve():
                            return
                    except UnfinishedError as error:
                        turn.set_exception(error)
                    else:
                        turn.set_result(None)
                self._waiting.remove((call, turn))

    def rooms(self, call: BudgetedCall) -> list[Room]:
        """What the budgets of tokens and US dollars leave for a call, if they bound it."""
        rooms: list[Room] = []
        waiting = [other for other, turn in self._waiting if not turn.done()]
        calls, others, price = self.calls_expected(len(waiting)), self.others_under_way(call), call.price
        for reason, left, of_revisions in self.left(call.role):
            if reason is ConvergenceReason.TOKEN_BUDGET:
                rest = left - sum(other.tokens for other in others)
                sharing, count = ([call], 1) if of_revisions else (waiting, calls)
                inputs = sum(other.input_tokens for other in sharing)
                rooms.append(Room(reason, rest, call.input_tokens, 1, inputs, count, of_revisions))
            elif price is not None and (price.input or price.output):
                rest = left - sum(other.usd for other in others)
                inputs = sum(other.price.input for other in waiting if other.price is not None)
                rooms.append(Room(reason, rest, price.input, price.output, inputs, calls))
        return rooms

    def least_reply(self, call: BudgetedCall) -> int:
        """Output tokens below which a call does not start."""
        return self.tally.shortest_reply(call.role, reasons=call.reasons)

    def calls_expected(self, waiting: int) -> int:
        """The number of calls that share what is left."""
        return waiting

    def count_cut_off(self, _call: BudgetedCall, _usage: TokenUsage) -> None:
        """Count a reply that ended at the limit that the budget set."""
        self.tally.cut_off += 1

    def refused(self, room: Room, least: int) -> UnfinishedError:
        """The error for a call whose reply would certainly be cut off."""
        tally = self.tally
        needed = room.input + least * room.per_token
        if room.reason is ConvergenceReason.TOKEN_BUDGET:
            left, need = f"{max(0, round(room.left)):,}", f"{round(needed):,}"
            what = (
                f"leaves {left} tokens; the next call takes about {need}: {round(room.input):,} for its input"
            )
            tally.needed = f"it takes about {need} tokens, and {left} are left"
            tally.is_out_of_revisions = room.of_revisions
        else:
            left, need = exact_usd(max(0.0, room.left)), exact_usd(needed)
            what = f"leaves {left}; the next call takes about {need}: {exact_usd(room.input)} for its input"
            tally.needed = f"it takes about {need}, and {left} is left"
        return self.refuse(room.reason, f"{what}, the rest for a reply of {least:,} tokens.")


@dataclass(frozen=True, slots=True)
class Room:
    """What the calls under way leave of a budget, in tokens or US dollars, for the waiting calls."""

    reason: ConvergenceReason
    left: float
    input: float
    """The input of the next call."""
    per_token: float
    """The price of an output token: 1 in tokens."""
    inputs: float
    """The inputs of all waiting calls."""
    calls: int
    """The number of calls that share it."""
    of_revisions: bool = False
    """Whether it is the budget of revisions alone."""

    @property
    def output(self) -> int:
        """The output tokens that fit if the next call gets everything; negative if its input does not fit."""
        return self._tokens(self.left - self.input)

    @property
    def share(self) -> int:
        """The output tokens that fit if all these calls get the same."""
        return self._tokens((self.left - self.inputs) / max(1, self.calls))

    def _tokens(self, amount: float) -> int:
        if amount < 0 or not self.per_token:
            return -1 if amount < 0 else UNLIMITED
        return int(min(UNLIMITED, amount / self.per_token))


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a call in US dollars."""

    input: float
    """The cost of its whole input."""
    output: float
    """The cost of each output token."""

    def usd(self, output_tokens: int) -> float:
        """The cost of a call with this many output tokens."""
        return self.input + output_tokens * self.output


def price_of(model: object, input_tokens: int) -> Price | None:
    """The price of a call of a model; None for a model that only reports what a reply has cost.

    With fallback models, it is the highest price. Raises `ConfigError` for a provider's model without a known
    price, since a budget in US dollars can't bound it.
    """
    if isinstance(models := getattr(model, "models", None), tuple):
        prices = [price_of(candidate, input_tokens) for candidate in cast("tuple[object, ...]", models)]
        known_prices = [price for price in prices if price is not None]
        if len(known_prices) < len(prices):
            return None
        return Price(max(price.input for price in known_prices), max(price.output for price in known_prices))
    if not isinstance(model, PricedModel):
        return None
    input_usd, total_usd = model.cost_of(input_tokens, 0), model.cost_of(input_tokens, MILLION)
    if input_usd is None or total_usd is None:
        given = repr(model.name) if getattr(model, "is_named", True) else "your_model"
        raise ConfigError(
            f"The price of {model.name!r} is not known, so a budget in US dollars can't bound its calls. "
            "Give its price, in US dollars for a million input and output tokens, under [prices] in "
            f'redraft.toml: "{model.name}" = [0.5, 1.5]; or in Python: '
            f"ProviderModel({given}, price=(0.5, 1.5)). Or use a budget of tokens or seconds."
        )
    return Price(input_usd, (total_usd - input_usd) / MILLION)


FREE = 0, 0.0
"""The tokens and US dollars of a function that has reported none."""
MILLION = 1_000_000
UNLIMITED = 10**9


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread; None in a thread of a framework that reports its calls from there."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def unbounded(models: Iterable[str]) -> str:
    """Say that a budget in US dollars can't bound models that report no cost, and what to do."""
    names = " and ".join(map(repr, sorted(models)))
    return (
        f"can't bound {names}: the reply reports no cost. Report it as TokenUsage(cost_usd=...), 0.0 if it "
        "is free, or bound tokens or seconds."
    )


def exact_usd(usd: float) -> str:
    """Render an amount that may be far below a cent."""
    return f"${usd:.6f}"


def check_prices(*models: object) -> None:
    """Raise `ConfigError` for a model without a known price, which a budget in US dollars can't bound."""
    for model in models:
        price_of(model, MILLION)


@runtime_checkable
class PricedModel(Protocol):
    """A model whose price is known before a call; `cost_of` returns None if it is not."""

    name: str

    def cost_of(self, input_tokens: int, output_tokens: int, /) -> float | None:
        """The cost of a call in US dollars."""
        ...


class BoundedCall(ABC):
    """A call within a step's budget and the budgets around it: it reserves in each what it may use."""

    price: Price | None = None

    def __init__(self, step: StepBudget, role: ModelRole, input_tokens: int = 0) -> None:
        self.step = step
        self.role: ModelRole = role
        self.input_tokens = input_tokens
        self.tokens: float = 0
        self.usd = 0.0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.blocked: tuple[asyncio.AbstractEventLoop, ...] = ()
        """The event loops that wait for this call, so that it must not wait for calls in them."""
        self.outer: Self | None = None
        """The same call within the budget around the step's."""

    @property
    def levels(self) -> list[Self]:
        """The call within the step's budget, and within each budget around it."""
        return [self, *(() if self.outer is None else self.outer.levels)]

    async def admit(self) -> None:
        """Wait until the call fits into each budget; raises `UnfinishedError` if it can't."""
        levels = self.levels
        for number, level in enumerate(levels):
            with _ending_runs(levels[:number]):
                await level.step.admit(level)

    @abstractmethod
    def reserve(self) -> bool:
        """Reserve in the step's budget; False if the call has to wait. Raises `UnfinishedError`."""

    def release(self, usage: TokenUsage) -> None:
        """Replace the reservations by the usage."""
        with _lock:
            for level in self.levels:
                level.step.bound_inside()
                level.step.release(level, usage)

    def __enter__(self) -> Self:
        return self


@contextmanager
def _ending_runs(inside: Sequence[BoundedCall]) -> Generator[None]:
    """End or suspend the runs `inside` a budget that does not allow a call."""
    try:
        yield
    except UnfinishedError as error:
        for call in reversed(inside):
            call.step.end_by_outer(error)
        raise


class BudgetedCall(BoundedCall):
    """A model call of a step; it is counted when it ends."""

    def __init__(
        self,
        step: StepBudget,
        role: ModelRole,
        input_tokens: int,
        max_tokens: int | None,
        model: object = None,
        *,
        is_limit_fixed: bool = False,
    ) -> None:
        super().__init__(step, role, input_tokens)
        self.is_limit_fixed = is_limit_fixed
        """Whether the request has its limit already, or has none."""
        own = getattr(model, "max_tokens", None) if max_tokens is None else max_tokens
        self.max_tokens: int | None = own if isinstance(own, int) else None
        self.model = "" if model is None else name_of_model(cast("ChatModel", model))
        self.reasons = bool(getattr(model, "reasons", False))
        self.price = price_of(model, input_tokens) if step.tally.budget.usd is not None else None
        self.limit: int | None = None
        """The limit on the reply that the step's budget allows; None if it bounds only time."""
        self._used = NOTHING_USED
        if step.outer is not None:
            self.outer = type(self)(
                step.outer, role, input_tokens, max_tokens, model, is_limit_fixed=is_limit_fixed
            )

    def reserve(self) -> bool:
        """Reserve the input and the limit on the reply; False if the call has to wait."""
        step = self.step
        if step.deadline is not None and asyncio.get_running_loop().time() >= step.deadline:
            raise step.refuse(ConvergenceReason.TIME_BUDGET, "before the call started.")
        limit, least, enough = self.highest_limit, self.least_reply, self.expected_reply
        rooms, others = step.rooms(self), step.others_under_way(self)
        for room in rooms:
            # While other calls are under way, it pays to wait for what they leave unused.
            if room.output < (enough if others else least):
                if others:
                    return False
                raise step.refused(room, least)
            limit = min(limit, room.output, max(room.share, enough))
        if step.tally.budget.usd is not None and self.price is None and not self._fits_by_cost():
            return False
        self.limit = limit if rooms else self.max_tokens
        self.tokens = self.input_tokens + limit
        if self.price is not None:
            self.usd = self.price.usd(limit)
        step.under_way.add(self)
        return True

    def _fits_by_cost(self) -> bool:
        """Whether the call fits, by the cost of earlier calls; raises `UnfinishedError` if no call does."""
        step, tally = self.step, self.step.tally
        if self.model in tally.unpriced:
            raise step.refuse(ConvergenceReason.COST_BUDGET, unbounded([self.model]))
        left = (tally.budget.usd or 0.0) - tally.known_usd - step.known_usd
        self.usd = self.expected_usd
        if others := step.others_under_way(self):
            return sum(other.usd for other in others) + self.usd <= left
        if left <= 0:
            raise step.refuse(ConvergenceReason.COST_BUDGET, "is spent: no more calls are started.")
        return True

    @property
    def highest_limit(self) -> int:
        """The highest limit on the reply that may be sent."""
        tally, limit = self.step.tally, self.max_tokens
        if limit is None:
            limit = tally.longest_reply(self.role, reasons=self.reasons or self.is_limit_fixed)
        return min(limit, tally.accepted.get(self.model, limit))

    @property
    def least_reply(self) -> int:
        """The limit under which the reply would certainly be cut off."""
        limit = self.highest_limit
        return limit if self.is_limit_fixed else min(limit, self.step.least_reply(self))

    @property
    def expected_reply(self) -> int:
        """The limit under which the reply probably ends by itself."""
        limit = self.highest_limit
        if self.is_limit_fixed:
            return limit
        return min(limit, self.step.tally.expected_reply(self.role, reasons=self.reasons))

    @property
    def expected_usd(self) -> float:
        """The US dollars to expect: infinity for the first call of a role whose price is not known."""
        if self.price is None:
            return self.step.tally.reply_cost(self.role)
        return self.price.usd(self.expected_reply)

    @property
    def reply_limit(self) -> int | None:
        """The limit to send with the call, once it has started."""
        return min((level.limit for level in self.levels if level.limit is not None), default=None)

    async def limited(self, send: Callable[[int | None], Awaitable[R]], /) -> R:
        """Call `send` with the reply limit, and with lower ones while the provider refuses it as too high."""
        while True:
            limit = self.reply_limit
            try:
                return await send(limit)
            except ModelError as error:
                if limit is None or limit == self.max_tokens or limit <= LEAST_ACCEPTED:
                    raise
                if error.status not in REFUSALS or not ABOUT_LIMITS.search(str(error)):
                    raise
                for level in self.levels:
                    level.limit = level.step.tally.accepted[level.model] = limit // 2

    def counted(self, usage: TokenUsage, text: str, *, cut_off: bool = False) -> TokenUsage:
        """The usage of a call, with estimates for what the provider did not report.

        `text` is the reply; `cut_off` says that it ended at a limit.
        """
        tally, limit = self.step.tally, self.reply_limit
        # Some providers accept no lower limit than `SHORTEST_REPLY`.
        if limit is not None and usage.output_tokens > max(limit, SHORTEST_REPLY):
            replies = (tally.overlong or (0, 0), (usage.output_tokens, limit))
            tally.overlong = max(replies, key=lambda reply: reply[0] - reply[1])
        if self.outer is not None:
            usage = self.outer.counted(usage, text, cut_off=cut_off)
        if tally.budget.tokens is None and tally.budget.usd is None:
            return usage
        if not usage.total_tokens:
            cost = usage.cost_usd if self.price is None else None
            usage = replace(estimated_usage(usage, self.input_tokens, text), cost_usd=cost)
            tally.estimated_tokens += usage.total_tokens
        if usage.cost_usd is None and self.price is None and self.model and tally.budget.usd is not None:
            tally.unpriced.add(self.model)
        if usage.cost_usd is None and self.price is not None:
            per_input = self.price.input / self.input_tokens if self.input_tokens else 0.0
            cost = usage.input_tokens * per_input + usage.output_tokens * self.price.output
            usage = replace(usage, cost_usd=cost)
        if cut_off and self.limit is not None and self.limit != self.max_tokens:
            self.step.count_cut_off(self, usage)
        return usage

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RedraftError) and error.usage is not None:
            self._used = error.usage
        with _lock:
            for level in self.levels:
                level.step.tally.observe(self.role, self._used)
            self.release(self._used)
        if (calls := step_context.get().calls) is not None:
            calls.append(self._used)

    def used(self, usage: TokenUsage, /) -> None:
        """Report what the call used, also if its reply comes from a recording."""
        self._used = usage

    async def carry_out(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call once it fits, and cancel it when the time is spent, with an `UnfinishedError`."""
        step, levels = self.step, self.levels
        if step.deadline is not None:  # it is no later than those of the budgets around the step's
            step.extend_deadline(step.deadline)
        bound = asyncio.timeout_at(step.deadline)
        try:
            async with bound:
                await self.admit()
                with _ending_runs(levels[:-1]):
                    return await fn(*args, **kwargs)
        except TimeoutError as error:
            if not bound.expired():  # a timeout of the model itself
                raise
            if not all(level in level.step.under_way for level in levels):
                raise step.refuse(ConvergenceReason.TIME_BUDGET, "before the call started.") from error
            cancelled = step.out_of_time("a model was answering")
            cancelled.usage = self._used + TokenUsage(failed_requests=1)
            raise cancelled from error

    @property
    def room(self) -> int | None:
        """The tokens of a reply that fit now, if nothing else starts; None if only time is bounded."""
        rooms = [
            min(level.step.tally.longest_reply(self.role, reasons=self.reasons), room.output)
            for level in self.levels
            for room in level.step.rooms(level)
        ]
        return min(rooms, default=None)

    def check(self) -> None:
        """Raise `UnfinishedError` if the call does not fit now, where it can't wait for others to end."""
        levels = self.levels
        for number, level in enumerate(levels):
            with _ending_runs(levels[:number]), _lock:
                least = level.step.least_reply(level)
                for room in level.step.rooms(level):
                    if room.output < least:
                        raise level.step.refused(room, least)


class FunctionCall(BoundedCall):
    """A call of a function of the user whose result reports its usage, within a step's budget."""

    def __init__(self, step: StepBudget, kind: str, role: ModelRole) -> None:
        super().__init__(step, role)
        self.kind = kind
        self.has_calls = False
        """Whether calls inside it are bounded and counted one by one, so that it reports nothing more."""
        self._used = NOTHING_USED
        if step.outer is not None:
            # It is no revision of the run around this one.
            self.outer = type(self)(step.outer, kind, "generation")

    def reserve(self) -> bool:
        """Reserve what the dearest call so far has used, or everything; False if it has to wait."""
        step, tally = self.step, self.step.tally
        dearest = tally.reported.get(self.kind)
        if dearest == FREE:
            return True
        others, has_room = step.others_under_way(self), True
        for reason, left, of_revisions in step.left(self.role):
            in_usd = reason is ConvergenceReason.COST_BUDGET
            needed = (dearest or FREE)[in_usd]
            if of_revisions:
                tally.is_out_of_revisions = left < needed
            if left < needed and not isclose(left, needed):  # a sum of costs has rounding errors
                amounts = needed, max(0, left)
                need, rest = (exact_usd(each) if in_usd else f"{each:,} tokens" for each in amounts)
                tally.needed = f"it takes up to {need}, and {rest} {'is' if in_usd else 'are'} left"
                raise step.refuse(reason, f"leaves {rest}; the dearest call so far took {need}.")
            together = needed + sum(other.usd if in_usd else other.tokens for other in others)
            has_room = has_room and (together <= left or isclose(together, left))
        if not has_room or (dearest is None and others):
            return False
        self.tokens, self.usd = (UNLIMITED, UNLIMITED) if dearest is None else dearest
        step.under_way.add(self)
        return True

    async def carry_out(self, fn: Callable[[], Awaitable[R]]) -> R:
        """Call the function once it fits, and count what it reports; raises `UnfinishedError`."""
        await self.admit()
        levels = self.levels
        outside = _functions.set((*_functions.get(), *levels))
        try:
            result = await fn()
        finally:
            _functions.reset(outside)
        if not any(level.has_calls for level in levels):
            self._used = cast("TokenUsage", getattr(result, "usage", NOTHING_USED))
        for level in levels:
            reported = level.step.tally.reported
            tokens, usd = reported.get(self.kind, FREE)
            reported[self.kind] = (
                max(tokens, self._used.total_tokens),
                max(usd, self._used.cost_usd or 0.0),
            )
        return result

    def __exit__(self, *_raised: object) -> None:
        self.release(self._used)


_functions: ContextVar[tuple[FunctionCall, ...]] = ContextVar("functions", default=())
"""The functions of the user under way around the current code."""
_lock = RLock()
"""Guards all budgets: functions of the user run in threads, and their runs in event loops of their own."""


class SharedBudget(StepBudget):
    """A budget that several runs share: it bounds what all of them have under way.

    A `part` that needs more than is left is suspended, not ended: it raises `UnfinishedError`, and its stored
    runs go on after their last step when they are resumed within a larger budget. So a run that lacked money
    is never mistaken for a failed run. `ended` is the usage of the parts that ended in an earlier process;
    `suspended` is the usage of its suspended parts, by name.
    """

    def __init__(
        self,
        budget: Budget,
        ended: Iterable[TokenUsage] = (),
        suspended: Mapping[str, TokenUsage] | None = None,
    ) -> None:
        super().__init__(Tally(budget), "shared")
        self.suspended = dict(suspended or {})
        """The usage of the suspended parts, by name."""
        self._parts: set[StepBudget] = set()
        self._ended_usd = 0.0
        for usage in ended:
            self._end(usage)
        self._count()
        if budget.seconds is not None:
            self.deadline = asyncio.get_running_loop().time() + budget.seconds

    def explain(self) -> str:
        """What was used of the spent budget, and what was too little; empty if no budget is spent."""
        reason = self.tally.spent(self.used)
        return "" if reason is None else self.tally.stop(reason, self.used).detail

    async def part(self, name: str, work: Callable[[], Awaitable[R]], usage: Callable[[R], TokenUsage]) -> R:
        """Do some work within the budget; `usage` takes its total usage from its result.

        `name` is the same in each process that does this work. Raises `UnfinishedError` if it is suspended.
        """
        tally = Tally(NO_BUDGET, outer=self, suspends=True)

        part = StepBudget(tally, "part")

        async def in_part() -> R:
            with _lock:
                self._parts.add(part)
            try:
                result = await work()
                with _lock:
                    # A function may not report what the runs inside it have used.
                    self._end(max(usage(result), part.used, key=lambda used: used.total_tokens))
                    self.suspended.pop(name, None)
            except BaseException:
                if part.used != NOTHING_USED:
                    self.suspended[name] = self.suspended.get(name, NOTHING_USED) + part.used
                raise
            else:
                return result
            finally:
                with _lock:
                    self._parts.remove(part)
                    self._count()

        return await part.bounding(part.timed(in_part))

    def _end(self, usage: TokenUsage) -> None:
        self.tally.add("ended", usage)
        self._ended_usd += usage.cost_usd or 0.0

    def _count(self) -> None:
        """Add up what suspended parts and those under way have used."""
        suspended = self.suspended.values()
        self.tally.by_role["suspended"] = sum(suspended, NOTHING_USED)
        self.tally.known_usd = self._ended_usd + sum(usage.cost_usd or 0.0 for usage in suspended)
        self.used = sum((part.used for part in self._parts), NOTHING_USED)
        self.known_usd = sum(part.known_usd for part in self._parts)

    def extend_deadline(self, moment: float) -> None:
        """Do nothing: each part has a deadline, and what they share has none."""

    def least_reply(self, call: BudgetedCall) -> int:
        """Output tokens below which a call does not start: enough for a whole reply."""
        if call.role in self.tally.longest:
            return self.tally.expected_reply(call.role, reasons=call.reasons)
        return super().least_reply(call)

    def calls_expected(self, waiting: int) -> int:
        """Count the parts that are about to make their next call as well."""
        return max(waiting, len(self._parts) - len(self.under_way))

    def count_cut_off(self, call: BudgetedCall, usage: TokenUsage) -> None:
        """Raise `UnfinishedError` for a reply that would have been longer within a larger budget."""
        super().count_cut_off(call, usage)
        if call.limit is None or call.limit >= self.tally.longest_reply(call.role, reasons=call.reasons):
            return
        budget = self.tally.budget
        reason = ConvergenceReason.COST_BUDGET if budget.tokens is None else ConvergenceReason.TOKEN_BUDGET
        error = self.over(reason, f"left {call.limit:,} tokens for a reply, which was cut off there.")
        error.usage = usage
        raise error


def enclosing_budget() -> StepBudget | None:
    """The budget of the current step, if it has one."""
    within = step_context.get().budget
    return within if isinstance(within, StepBudget) else None
