"""The daily budget of a fleet: what all workers together may spend on models."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from math import isinf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from redraft._validation import is_number
from redraft.errors import ConfigError, ModelError, RedraftError, StoreError
from redraft.loop.budget import Budget, Room, StepBudget, Tally, exact_usd
from redraft.loop.claim import claim_under_way
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.types import NOTHING_USED, ConvergenceReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft._steps import CallGate, OutgoingCall
    from redraft.loop.budget import BudgetedCall
    from redraft.stores.base import Store
    from redraft.types import TokenUsage

R = TypeVar("R")

SPENDING, KEY = "spending", "usd"
"""The kind and the key of the record of a project's spending."""
HELD_FOR = 30.0
"""Seconds after which what a silent worker has reserved counts as spent: its calls may have been answered."""
FIRST_SHARE = 0.1
"""The share of the budget that the first call of a worker reserves if its model has no known price."""
RETRY = 0.5
"""Seconds until a call that did not fit asks again."""
ROUNDING = 1e-9
"""Dollars that sums of floating point numbers may be off."""
DAYS = 31
"""Days whose totals are kept."""


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """What the calls of all workers may cost on one day of a time zone, in US dollars.

    Raises `ConfigError` for an amount or a zone that means nothing.
    """

    usd: float
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not is_number(self.usd) or not self.usd > 0:
            raise ConfigError(f"budget_usd_per_day must be a number > 0, got {self.usd!r}.")
        try:
            ZoneInfo(self.zone)
        except (KeyError, OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"budget_zone must be a time zone, such as 'Europe/Berlin', got {self.zone!r}."
            ) from error

    def day(self, now: float) -> str:
        """Return the day of a time in seconds since 1970, such as `2026-11-23`."""
        return datetime.fromtimestamp(now, ZoneInfo(self.zone)).date().isoformat()

    def next_day(self, now: float) -> datetime:
        """Return when the next day begins."""
        today = datetime.fromtimestamp(now, ZoneInfo(self.zone))
        return today.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SpendingState:
    """What was spent on a day, as the store has it; amounts are US dollars.

    `spent` is the cost of calls that have ended. `reserved` maps workers to what their calls under way
    may cost, and until when that is believed. `refused` is what the cheapest call would have needed that did
    not fit any more, 0 if all did. `unpriced` counts calls whose cost is unknown. `earlier` has the totals of
    earlier days. `budget` and `zone` are those of the worker that wrote last.
    """

    day: str = ""
    spent: float = 0.0
    reserved: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    refused: float = 0.0
    unpriced: int = 0
    earlier: Mapping[str, float] = field(default_factory=dict[str, float])
    budget: float = 0.0
    zone: str = "UTC"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SpendingState:
        """Read a stored state; earlier versions stored more."""
        state = cls(**{one.name: data[one.name] for one in fields(cls) if one.name in data})
        return replace(state, reserved={name: (usd, until) for name, (usd, until) in state.reserved.items()})

    @property
    def under_way(self) -> float:
        """What the calls under way may cost."""
        return sum(usd for usd, _ in self.reserved.values())

    @property
    def left(self) -> float:
        """What new calls may still cost."""
        return max(0.0, self.budget - self.spent - self.under_way)

    @property
    def is_reached(self) -> bool:
        """Whether the budget is too small for the calls that wait."""
        return self.spent >= self.budget or 0 < self.budget - self.spent < self.refused

    def on(self, budget: DailyBudget, now: float) -> SpendingState:
        """Return the state as of now: of today, and without reservations of workers that are gone."""
        day, state = budget.day(now), replace(self, budget=budget.usd, zone=budget.zone)
        if day != self.day:
            earlier = {**self.earlier, self.day: self.spent} if self.day else {}
            # After a clock that was ahead, what it counted belongs to today, whose total was put away.
            spent = sum(usd for of, usd in earlier.items() if of >= day)
            earlier = dict(sorted((of, usd) for of, usd in earlier.items() if of < day)[-DAYS:])
            state = replace(state, day=day, spent=spent, refused=0.0, unpriced=0, earlier=earlier)
        if self.budget != budget.usd:
            state = replace(state, refused=0.0)
        gone = {worker: usd for worker, (usd, until) in state.reserved.items() if until <= now}
        latest = now + 2 * HELD_FOR  # a reservation that is believed longer was made by a wrong clock
        if gone or any(until > latest for _, until in state.reserved.values()):
            kept = {
                worker: (usd, min(until, latest))
                for worker, (usd, until) in state.reserved.items()
                if worker not in gone
            }
            state = replace(state, spent=state.spent + sum(gone.values()), reserved=kept)
        return state


class _Ended(NamedTuple):
    """A call that has ended: what was reserved, and what it cost."""

    reserved: float
    cost: float | None


class Reservation(NamedTuple):
    """What is reserved for a call, and the limit on its reply."""

    usd: float
    limit: int | None


def reserve(
    state: SpendingState, calls: Sequence[BudgetedCall], *, may_guess: bool = True
) -> tuple[SpendingState, list[Reservation]]:
    """Return the new state, and a reservation for each of the first calls that fit.

    A call whose price is known reserves its input and the highest limit on its reply that fits; it waits if
    its reply would probably be cut off there. Other calls reserve by what earlier ones have cost, and the
    first one, which `may_guess`, a share of the budget; the others wait for it. It is not all that is left,
    since what a worker has reserved when it dies counts as spent.
    """
    reserved, left = list[Reservation](), state.budget - state.spent - state.under_way
    for number, call in enumerate(calls):
        needed = 0.0 if isinf(call.expected_usd) else min(call.expected_usd, state.budget)
        is_guess = isinf(call.expected_usd)
        if left <= 0 or needed > left or (is_guess and not may_guess):
            if state.spent + needed >= state.budget:
                state = replace(state, refused=min(needed, state.refused) if state.refused else needed)
            break
        usd, limit = needed, call.max_tokens
        if is_guess:
            usd, may_guess = min(left, FIRST_SHARE * state.budget), False
        if (price := call.price) is not None:
            waiting = [other.price.input for other in calls[number:] if other.price is not None]
            room = Room(
                ConvergenceReason.COST_BUDGET, left, price.input, price.output, sum(waiting), len(waiting)
            )
            limit = min(call.highest_limit, room.output, max(room.share, call.expected_reply))
            usd = price.usd(limit)
        reserved.append(Reservation(usd, limit))
        left -= usd
    return state, reserved


class _Waiting:
    """A call that waits for its money."""

    def __init__(self, call: BudgetedCall, run_id: str) -> None:
        self.call = call
        self.run_id = run_id
        self.is_guess = False
        self.turn: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()


class SharedSpending:
    """The gate that keeps the calls of all workers within a daily budget.

    A call reserves its input and the longest reply that it may have, in the store, before it is sent with a
    limit on its reply, and is settled when it has ended, on the day on which it ends. So what is spent on a
    day exceeds the budget by the error of the estimates of inputs at most; models that only report their
    costs, without a known price, may exceed it by the replies under way. A call that does not fit waits, and
    so does its run; `stuck` names the runs in which nothing else is under way. While the store can't be
    reached, calls wait. Raises `ConfigError` for a provider's model without a known price.
    """

    def __init__(
        self,
        budget: DailyBudget,
        store: Store,
        worker: str,
        clock: Callable[[], float] = time.time,
        inner: CallGate | None = None,
    ) -> None:
        self.budget = budget
        self.state = SpendingState(budget=budget.usd)
        """The state when it was last read or written."""
        self._store = store
        self._worker = worker
        self._clock = clock
        self._inner = inner
        self._models: dict[str, StepBudget] = {}
        self._line: deque[_Waiting] = deque()
        self._ended: list[_Ended] = []
        self._under_way: Counter[str] = Counter()
        self._held = 0.0
        self._changing = asyncio.Lock()
        self._guesses = 0
        self._admitting: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()

    async def __call__(
        self,
        call: OutgoingCall,
        send: Callable[[int | None], Awaitable[R]],
        usage: Callable[[R], TokenUsage],
        /,
    ) -> R:
        """Wait until `call` may be sent and there is money for it, call `send`, and return the reply."""
        budgeted, claim = self._budgeted(call), claim_under_way.get()
        run_id = "" if claim is None else claim.run_id

        async def paid(_limit: int | None) -> R:
            waiting = _Waiting(budgeted, run_id)
            reserved, budgeted.limit = await self._enter(waiting)
            self._under_way[run_id] += 1
            cost: float | None = reserved  # of a call that is cancelled, or whose usage is unknown
            try:
                reply = await budgeted.limited(send)
                used = usage(reply)
                if used.total_tokens or budgeted.price is None:
                    cost = self._cost(budgeted, used)
            except RedraftError as error:
                cost = self._cost(budgeted, error.usage or NOTHING_USED)
                raise
            else:
                return reply
            finally:
                self._under_way[run_id] -= 1
                self._guesses -= waiting.is_guess
                self._end(_Ended(reserved, cost))

        return await (paid(None) if self._inner is None else self._inner(call, paid, usage))

    def _budgeted(self, call: OutgoingCall) -> BudgetedCall:
        """Return a call with its price; raises `ModelError` if the budget of a whole day is too small."""
        step = self._models.get(call.name)
        if step is None:
            step = self._models[call.name] = StepBudget(Tally(Budget(usd=self.budget.usd)), "day")
        budgeted = step.call(
            call.role, call.input_tokens, call.max_tokens, call.model, is_sent=call.is_limit_fixed
        )
        if budgeted.price is not None:
            least = budgeted.price.usd(budgeted.least_reply)
            if least > self.budget.usd:
                raise ModelError(
                    f"A call of {call.name!r} takes at least {exact_usd(least)}, "
                    f"{exact_usd(budgeted.price.input)} of it for its input; budget_usd_per_day="
                    f"{self.budget.usd:g} is too small for it on any day. Raise it, or shorten the prompt."
                )
        return budgeted

    def _cost(self, call: BudgetedCall, used: TokenUsage) -> float | None:
        """Return what a call cost, and learn from it what to expect of the next one."""
        used = call.counted(used, "") if used.total_tokens else used
        self._models[call.model].tally.observe(call.role, used)
        return used.cost_usd

    def stuck(self) -> frozenset[str]:
        """Return the runs whose calls wait for money while none of their calls is under way."""
        if not self.state.is_reached:
            return frozenset()
        waiting = {one.run_id for one in self._line if not one.turn.done()}
        return frozenset(run_id for run_id in waiting if not self._under_way[run_id])

    async def refresh(self) -> None:
        """Read the state, and keep what this worker has reserved; called with each heartbeat."""
        until = self.state.reserved.get(self._worker, (0.0, 0.0))[1]
        if self._ended or (self._held and until < self._clock() + HELD_FOR / 2):
            await self.settle()
            return
        record = await self._store.get(SPENDING, KEY)
        if record is not None:
            self.state = SpendingState.of(record.data).on(self.budget, self._clock())

    async def settle(self) -> None:
        """Count the calls that have ended."""
        await self._change(lambda state: state)

    async def _enter(self, waiting: _Waiting) -> Reservation:
        self._line.append(waiting)
        if self._admitting is None or self._admitting.done():
            self._admitting = asyncio.create_task(self._admit(), name="redraft-spending")
        try:
            return await waiting.turn
        except asyncio.CancelledError:
            turn = waiting.turn
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._guesses -= waiting.is_guess
                self._end(_Ended(turn.result().usd, 0.0))  # it was not sent
            raise

    def _end(self, ended: _Ended) -> None:
        self._ended.append(ended)
        self._freed.set()
        if self._admitting is not None and not self._admitting.done():
            return  # it settles, too
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle_soon(), name="redraft-spending-settle")

    async def _settle_soon(self) -> None:
        while self._ended:
            try:
                await self.settle()
            except StoreError as error:  # the next heartbeat tries again
                logger.warning("The cost of calls can't be written: %s", error)
                return

    async def _admit(self) -> None:
        """Let the calls in the line go in their order, as soon as there is money for them."""
        while self._drop_done():
            self._freed.clear()
            try:
                await self._reserve()
            except StoreError as error:
                logger.warning("The daily budget can't be read, so calls wait: %s", error)
            if not self._drop_done():
                break
            waiting = asyncio.ensure_future(self._freed.wait())
            await asyncio.wait([waiting], timeout=RETRY)
            waiting.cancel()
        if self._ended:
            await self._settle_soon()

    async def _reserve(self) -> None:
        line = [one for one in self._line if not one.turn.done()]
        granted = list[Reservation]()

        def reserved(state: SpendingState) -> SpendingState:
            nonlocal granted
            state, granted = reserve(state, [one.call for one in line], may_guess=not self._guesses)
            return state

        await self._change(reserved, lambda: sum(one.usd for one in granted))
        for waiting, reservation in zip(line, granted, strict=False):
            if waiting.turn.done():  # it was cancelled meanwhile, and not sent
                self._ended.append(_Ended(reservation.usd, 0.0))
            else:
                waiting.is_guess = isinf(waiting.call.expected_usd)
                self._guesses += waiting.is_guess
                waiting.turn.set_result(reservation)

    def _drop_done(self) -> bool:
        """Remove calls at the front that wait no more; return whether others are left."""
        while self._line and self._line[0].turn.done():
            self._line.popleft()
        return bool(self._line)

    async def _change(
        self, change: Callable[[SpendingState], SpendingState], added: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Change the state atomically, with the calls that have ended; `added` is what was reserved.

        One change at a time: `_held` must be what the state has for this worker, also when the store has
        written a change and has not said so yet.
        """
        async with self._changing:
            ended, self._ended = self._ended, []
            try:
                self._held, self.state = await self._changed(change, added, ended)
            except BaseException:
                self._ended = [*ended, *self._ended]
                raise

    async def _changed(
        self,
        change: Callable[[SpendingState], SpendingState],
        added: Callable[[], float],
        ended: Sequence[_Ended],
    ) -> tuple[float, SpendingState]:
        """Write the changed state; return what it holds for this worker, and the state."""
        while True:
            before = await self._store.get(SPENDING, KEY)
            now = self._clock()
            there = SpendingState() if before is None else SpendingState.of(before.data)
            state = change(_without(there.on(self.budget, now), ended, self._worker))
            held = max(0.0, self._held - sum(one.reserved for one in ended)) + added()
            held = held if held > ROUNDING else 0.0
            reserved = {name: one for name, one in state.reserved.items() if name != self._worker}
            if held:
                until = there.reserved.get(self._worker, (0.0, 0.0))[1]
                is_fresh = held == self._held and until > now + HELD_FOR / 2
                reserved[self._worker] = (held, until if is_fresh else now + HELD_FOR)
            state = replace(state, reserved=reserved)
            if before is not None and state == there:
                return held, state
            record = Record(SPENDING, KEY, asdict(state))
            if before is None:
                if (await self._store.put_if_absent(record))[1]:
                    return held, state
            elif await self._store.replace(replace(before, data=record.data)) is not None:
                return held, state


def _without(state: SpendingState, ended: Sequence[_Ended], worker: str) -> SpendingState:
    """Return a state in which calls of a worker have ended."""
    spent = state.spent + sum(one.cost or 0.0 for one in ended)
    unpriced = state.unpriced + sum(one.cost is None for one in ended)
    usd, until = state.reserved.get(worker, (0.0, 0.0))
    left = max(0.0, usd - sum(one.reserved for one in ended))
    reserved = {**state.reserved, worker: (left, until)} if worker in state.reserved else state.reserved
    return replace(state, spent=spent, unpriced=unpriced, reserved=reserved)


async def spending_state(store: Store, now: float | None = None) -> SpendingState | None:
    """Return what was spent today; None if the fleet has no daily budget."""
    record = await store.get(SPENDING, KEY)
    if record is None:
        return None
    state = SpendingState.of(record.data)
    return state.on(DailyBudget(state.budget, state.zone), time.time() if now is None else now)


def spending_document(state: SpendingState) -> dict[str, Any]:
    """Return the spending of today as JSON data."""
    next_day = DailyBudget(state.budget, state.zone).next_day(time.time())
    return {
        "day": state.day,
        "zone": state.zone,
        "budget_usd": state.budget,
        "spent_usd": state.spent,
        "under_way_usd": state.under_way,
        "left_usd": state.left,
        "is_reached": state.is_reached,
        "unpriced_calls": state.unpriced,
        "next_day": next_day.isoformat(),
        "earlier": dict(state.earlier),
    }
