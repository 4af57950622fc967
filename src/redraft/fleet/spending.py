"""The daily budget of a fleet: what all workers together may spend on models."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from redraft._validation import is_number
from redraft.errors import ConfigError, ModelError, StoreError
from redraft.loop.claim import claim_under_way
from redraft.redact.log import logger
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft._steps import CallGate
    from redraft.stores.base import Store
    from redraft.types import TokenUsage

R = TypeVar("R")

SPENDING, KEY = "spending", "usd"
"""The kind and the key of the record of a project's spending."""
HELD_FOR = 30.0
"""Seconds after which what a silent worker has reserved counts as spent: its calls may have been answered."""
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

    `spent` is the cost of calls that have ended. `reserved` maps workers to what their calls under way are
    expected to cost, and until when that is believed. `refused` is what the cheapest call would have cost
    that did not fit any more, 0 if all did. `unpriced` counts calls whose cost nobody knows. `rates` are the
    most dollars that a call of each model cost today, per token that it was expected to use. `earlier` has
    the totals of earlier days. `budget` and `zone` are those of the worker that wrote last.
    """

    day: str = ""
    spent: float = 0.0
    reserved: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    refused: float = 0.0
    unpriced: int = 0
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    earlier: Mapping[str, float] = field(default_factory=dict[str, float])
    budget: float = 0.0
    zone: str = "UTC"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SpendingState:
        """Read a stored state."""
        found = cls(**data)
        return replace(found, reserved={name: (usd, until) for name, (usd, until) in found.reserved.items()})

    @property
    def under_way(self) -> float:
        """What the calls under way are expected to cost."""
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
            state = replace(state, day=day, spent=spent, refused=0.0, unpriced=0, rates={}, earlier=earlier)
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


@dataclass(frozen=True, slots=True)
class _Ended:
    """A call that has ended: what was reserved, and what it cost.

    `expected` are the tokens that it was expected to use; 0 if its cost says nothing about others.
    """

    model: str
    reserved: float
    cost: float | None
    expected: int = 0


def reserve(state: SpendingState, calls: Sequence[tuple[str, int]]) -> tuple[SpendingState, list[float]]:
    """Return the new state, and what is reserved for each of the first calls that fit.

    `calls` are models and the tokens that are expected. Of a model that has not answered yet today, one call
    runs at a time, and reserves all that is left. No call reserves more than the whole budget.
    """
    reserved, left = list[float](), state.budget - state.spent - state.under_way
    for model, tokens in calls:
        rate = state.rates.get(model)
        usd = max(left, 0.0) if rate is None else min(rate * tokens, state.budget)
        if left <= 0 or usd > left:
            needed = 0.0 if rate is None else usd
            if state.spent + needed >= state.budget:
                least = min(needed, state.refused) if state.refused else needed
                state = replace(state, refused=least)
            return state, reserved
        reserved.append(usd)
        left -= usd
    return state, reserved


class _Call:
    """A call that waits for its money."""

    def __init__(self, model: str, tokens: int, run_id: str) -> None:
        self.model = model
        self.tokens = tokens
        self.run_id = run_id
        self.turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()


class SharedSpending:
    """The gate that keeps the calls of all workers within a daily budget.

    A call reserves what it is expected to cost, in the store, before it is sent, and is settled when it has
    ended, on the day on which it ends. Expected is the most that a call of its model has cost today, in
    proportion to the tokens expected. So what is spent on a day exceeds the budget by at most what the calls
    that were under way at its end cost beyond what they had reserved. A call that does not fit waits, and so
    does its run; `stuck` names the runs in which nothing else is under way. While the store can't be reached,
    calls wait.
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
        self._line: deque[_Call] = deque()
        self._ended: list[_Ended] = []
        self._under_way: Counter[str] = Counter()
        self._held = 0.0
        self._admitting: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()

    async def __call__(
        self,
        model: str,
        tokens: int,
        send: Callable[[], Awaitable[R]],
        usage: Callable[[R], TokenUsage],
        /,
        *,
        waits_out: bool = True,
    ) -> R:
        """Wait until `model` may be called and there is money for it, call `send`, and return its reply."""

        async def paid() -> R:
            return await self._paid(model, tokens, send, usage)

        if self._inner is None:
            return await paid()
        return await self._inner(model, tokens, paid, usage, waits_out=waits_out)

    async def _paid(
        self, model: str, tokens: int, send: Callable[[], Awaitable[R]], usage: Callable[[R], TokenUsage]
    ) -> R:
        claim = claim_under_way.get()
        run_id = "" if claim is None else claim.run_id
        reserved = await self._enter(_Call(model, tokens, run_id))
        self._under_way[run_id] += 1
        ended = _Ended(model, reserved, reserved)  # of a call that is cancelled, nobody knows the cost
        try:
            reply = await send()
            ended = _Ended(model, reserved, usage(reply).cost_usd, tokens)
        except ModelError as error:
            ended = _Ended(model, reserved, (error.usage.cost_usd or 0.0) if error.usage else 0.0)
            raise
        else:
            return reply
        finally:
            self._under_way[run_id] -= 1
            self._end(ended)

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

    async def _enter(self, call: _Call) -> float:
        self._line.append(call)
        if self._admitting is None or self._admitting.done():
            self._admitting = asyncio.create_task(self._admit(), name="redraft-spending")
        try:
            return await call.turn
        except asyncio.CancelledError:
            if call.turn.done() and not call.turn.cancelled() and call.turn.exception() is None:
                self._end(_Ended(call.model, call.turn.result(), 0.0))  # it was not sent
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
        calls = [one for one in self._line if not one.turn.done()]
        granted = list[float]()

        def reserved(state: SpendingState) -> SpendingState:
            nonlocal granted
            state, granted = reserve(state, [(one.model, one.tokens) for one in calls])
            return state

        await self._change(reserved, lambda: sum(granted))
        for call, usd in zip(calls, granted, strict=False):
            if call.turn.done():  # it was cancelled meanwhile, and not sent
                self._ended.append(_Ended(call.model, usd, 0.0))
            else:
                call.turn.set_result(usd)

    def _drop_done(self) -> bool:
        """Remove calls at the front that wait no more; return whether others are left."""
        while self._line and self._line[0].turn.done():
            self._line.popleft()
        return bool(self._line)

    async def _change(
        self, change: Callable[[SpendingState], SpendingState], added: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Change the state atomically, with the calls that have ended; `added` is what was reserved."""
        ended, self._ended = self._ended, []
        try:
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
                    break
                record = Record(SPENDING, KEY, asdict(state))
                if before is None:
                    if (await self._store.put_if_absent(record))[1]:
                        break
                elif await self._store.replace(replace(before, data=record.data)) is not None:
                    break
        except BaseException:
            self._ended = [*ended, *self._ended]
            raise
        self._held, self.state = held, state


def _without(state: SpendingState, ended: Sequence[_Ended], worker: str) -> SpendingState:
    """Return a state in which calls of a worker have ended."""
    spent, unpriced, rates = state.spent, state.unpriced, dict(state.rates)
    for one in ended:
        if one.cost is None:
            unpriced += 1
        else:
            spent += one.cost
        if one.expected:
            rates[one.model] = max(rates.get(one.model, 0.0), (one.cost or 0.0) / one.expected)
    usd, until = state.reserved.get(worker, (0.0, 0.0))
    left = max(0.0, usd - sum(one.reserved for one in ended))
    reserved = {**state.reserved, worker: (left, until)} if worker in state.reserved else state.reserved
    return replace(state, spent=spent, unpriced=unpriced, rates=rates, reserved=reserved)


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
