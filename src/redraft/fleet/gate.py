"""The gate of a fleet's model calls: rates, concurrency and a daily budget for all workers together."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from math import isinf
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast
from zoneinfo import ZoneInfo

from redraft._codec import from_record
from redraft._hints import keyword_hints
from redraft._steps import RATE_LIMIT, BlockedError
from redraft._telemetry import count
from redraft._validation import is_number
from redraft.errors import ConfigError, ModelError, RedraftError, StoreError
from redraft.loop.budget import Budget, Room, StepBudget, Tally, exact_usd
from redraft.loop.journal import claim_under_way
from redraft.redact.log import logger
from redraft.stores.base import Record, restored
from redraft.types import NOTHING_USED, ConvergenceReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft._steps import OutgoingCall
    from redraft.loop.budget import BudgetedCall
    from redraft.stores.base import Store
    from redraft.types import TokenUsage

LIMIT, SPENDING, KEY = "limit", "spending", "usd"
"""The kinds of the records, and the key of the spending; the key of a limit is its pattern of models."""
LONGEST_PATTERN = 200
"""Characters of a limit's pattern."""
AHEAD = 1.0
"""Seconds of calls that a worker reserves at a time."""
SHARE_FOR = 10.0
"""Seconds after which the slots of a dead worker go to others."""
ANY_PROVIDER = "*"
"""The provider of a Retry-After that an earlier version stored."""
MOST_AHEAD = 86_400.0
"""Seconds; a time further ahead was written by a wrong clock, and counts as now."""
EXPECTED_TOKENS = 500
"""Tokens expected of a reply, unless its limit is lower."""
REFUSED_WAIT = 1.0
"""Seconds that a rate limit without a Retry-After holds."""
HELD_FOR = 30.0
"""Seconds after which a silent worker's reservations count as spent: its calls may have been answered."""
FIRST_SHARE = 0.1
"""The share of the budget that the first call of a worker reserves if its model has no known price."""
SHORTEST_RETRY, RETRY = 0.1, 0.5
"""Seconds until waiting calls are tried again."""
SETTLE_AFTER = 0.05
"""Seconds after which an ended call is settled, unless another change settles it sooner."""
ROUNDING = 1e-9
"""Dollars by which floating point sums may be off."""
DAYS = 31
"""Days whose totals are stored."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on the calls that all workers together send to some models.

    Calls of all kinds count: drafts, revisions, judges, reflections, agents of the OpenAI Agents SDK; calls
    that LangGraph or your own functions send don't. Rates are spread evenly: no second has more than twice
    its share.

    A provider's Retry-After, or a status 429 without one, holds for all calls of that provider that match. If
    several limits match a model, all of them hold.
    """

    models: str
    """A pattern of model names: `openai:*` is every model of that provider."""
    requests_per_minute: float | None = None
    """Calls a minute; None is no limit, here and below."""
    tokens_per_minute: float | None = None
    """Input and output tokens a minute."""
    concurrency: int | None = None
    """Calls under way at the same time."""

    def __post_init__(self) -> None:
        if not isinstance(self.models, str) or not self.models.strip() or len(self.models) > LONGEST_PATTERN:  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(f"Limit: models must be a pattern, such as 'openai:*', got {self.models!r}.")
        for name in ("requests_per_minute", "tokens_per_minute"):
            rate: object = getattr(self, name)
            if rate is not None and not (is_number(rate) and rate > 0):
                raise ConfigError(f"Limit {self.models!r}: {name} must be a number > 0, got {rate!r}.")
        if self.concurrency is not None and (type(self.concurrency) is not int or self.concurrency < 1):
            raise ConfigError(
                f"Limit {self.models!r}: concurrency must be a whole number from 1, got {self.concurrency!r}."
            )
        if self.requests_per_minute is None and self.tokens_per_minute is None and self.concurrency is None:
            raise ConfigError(f"Limit {self.models!r} has no bounds; set at least one of them.")


@dataclass(frozen=True, slots=True)
class DailyBudget:
    """A bound on the cost of all workers' calls on one day.

    Raises `ConfigError` for an invalid amount or time zone.
    """

    usd: float
    """US dollars."""
    zone: str = "UTC"
    """The time zone of the day."""

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
        """The day of a time in seconds since 1970, such as `2026-11-23`."""
        return datetime.fromtimestamp(now, ZoneInfo(self.zone)).date().isoformat()

    def next_day(self, now: float) -> datetime:
        """The start of the next day."""
        today = datetime.fromtimestamp(now, ZoneInfo(self.zone))
        return today.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit as the store has it; times are seconds since 1970, by the queue's clock."""

    requests_at: float = 0.0
    """When the next call may begin by the requests a minute."""
    tokens_at: float = 0.0
    """When the next call may begin by the tokens a minute."""
    blocked_until: float = 0.0
    """The end of a Retry-After of any provider, as stored by earlier versions."""
    shares: Mapping[str, tuple[int, int, float]] = field(default_factory=dict[str, tuple[int, int, float]])
    """By worker: the slots that it holds, the slots that it wants, and when both expire."""
    blocked: Mapping[str, float] = field(default_factory=dict[str, float])
    """By provider: the end of its Retry-After."""
    written_at: float = field(default=0.0, compare=False)
    """When the state was written."""

    def at(self, now: float) -> LimitState:
        """The state without times from a wrong clock, and without dead workers.

        After the clock was set back, all times move with it: nothing has to wait longer than before.
        """
        latest, back = now + MOST_AHEAD, self.written_at - now
        if back < AHEAD:  # clocks differ this much
            back = 0.0
        requests_at, tokens_at = self.requests_at - back, self.tokens_at - back
        shares = {name: (*share[:2], share[2] - back) for name, share in self.shares.items()}
        blocked = {ANY_PROVIDER: self.blocked_until, **self.blocked}
        blocked = {name: until - back for name, until in blocked.items()}
        return LimitState(
            *(now if time > latest else time for time in (requests_at, tokens_at)),
            shares={name: share for name, share in shares.items() if now < share[2] <= latest},
            blocked={name: until for name, until in blocked.items() if now < until <= latest},
            written_at=now,
        )

    def reserve(
        self, limit: Limit, now: float, worker: str, waiting: Sequence[int], running: int
    ) -> tuple[LimitState, list[float]]:
        """Reserve calls for a worker: the new state, and a start time for each call that fits, in order.

        `waiting` has the expected tokens of each waiting call; `running` counts the worker's calls under way.
        """
        state = self.at(now)
        shares = {name: share for name, share in state.shares.items() if name != worker}
        room = len(waiting)
        if limit.concurrency is not None:
            slots = running + len(waiting)
            held = sum(share[0] for share in shares.values())
            wanted_by_others = sum(max(share[0], share[1]) for share in shares.values())
            fair = max(limit.concurrency // (len(shares) + 1), limit.concurrency - wanted_by_others, 1)
            own = max(running, min(slots, fair, limit.concurrency - held))
            room = own - running
            if slots:
                shares[worker] = (own, slots, now + SHARE_FOR)
        requests_at, tokens_at, times = state.requests_at, state.tokens_at, list[float]()
        for tokens in waiting[:room]:
            at = max(now, requests_at) if limit.requests_per_minute else now
            at = max(at, tokens_at) if limit.tokens_per_minute else at
            if at > now + AHEAD:
                break
            times.append(at)
            if limit.requests_per_minute:
                requests_at = at + 60 / limit.requests_per_minute
            if limit.tokens_per_minute:
                tokens_at = at + tokens * 60 / limit.tokens_per_minute
        return replace(state, requests_at=requests_at, tokens_at=tokens_at, shares=shares), times


class Reservation(NamedTuple):
    """The money reserved for a call, and the limit on its reply."""

    usd: float
    limit: int | None
    """Tokens."""


@dataclass(frozen=True, slots=True)
class SpendingState:
    """The spending of a day, as the store has it; amounts are US dollars."""

    day: str = ""
    spent: float = 0.0
    """The cost of calls that have ended."""
    reserved: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """By worker: the most that its calls under way may cost, and when this expires and counts as spent."""
    refused: float = 0.0
    """The price of the cheapest call that did not fit; 0 if all fitted."""
    unpriced: int = 0
    """Calls whose cost is unknown."""
    earlier: Mapping[str, float] = field(default_factory=dict[str, float])
    """The totals of earlier days."""
    budget: float = 0.0
    """The budget of the worker that wrote last."""
    zone: str = "UTC"
    """The time zone of the worker that wrote last."""

    @property
    def under_way(self) -> float:
        """The most that the calls under way may cost."""
        return sum(usd for usd, _ in self.reserved.values())

    @property
    def left(self) -> float:
        """The budget for new calls."""
        return max(0.0, self.budget - self.spent - self.under_way)

    @property
    def is_reached(self) -> bool:
        """Whether the budget is too small for the waiting calls."""
        return self.spent >= self.budget or 0 < self.budget - self.spent < self.refused

    def on(self, budget: DailyBudget, now: float) -> SpendingState:
        """The state at `now`: a new day starts afresh, and expired reservations count as spent."""
        day, state = budget.day(now), replace(self, budget=budget.usd, zone=budget.zone)
        if day != self.day:
            earlier = {**self.earlier, self.day: self.spent} if self.day else {}
            # The total of a later day was counted by a clock that was ahead: it belongs to today.
            spent = sum(usd for date, usd in earlier.items() if date >= day)
            earlier = dict(sorted((date, usd) for date, usd in earlier.items() if date < day)[-DAYS:])
            state = replace(state, day=day, spent=spent, refused=0.0, unpriced=0, earlier=earlier)
        if self.budget != budget.usd:
            state = replace(state, refused=0.0)
        gone = {worker: usd for worker, (usd, until) in state.reserved.items() if until <= now}
        latest = now + 2 * HELD_FOR  # a reservation with a later expiry was made by a wrong clock
        if gone or any(until > latest for _, until in state.reserved.values()):
            others = {
                worker: (usd, min(until, latest))
                for worker, (usd, until) in state.reserved.items()
                if worker not in gone
            }
            state = replace(state, spent=state.spent + sum(gone.values()), reserved=others)
        return state

    def reserve(
        self, calls: Sequence[BudgetedCall], *, may_guess: bool = True
    ) -> tuple[SpendingState, list[Reservation]]:
        """Reserve money for calls: the new state, and a reservation for each call that fits, in order.

        With a known price, a call reserves its input and the highest limit on its reply that fits; it waits
        if its reply would probably be cut off there. Without a price, it reserves the cost of earlier calls.
        The first such call, if it `may_guess`, reserves a share of the budget, and the others wait for it.
        The share is never all that is left, since the reservations of a dead worker count as spent.
        """
        state, reserved, left = self, list[Reservation](), self.budget - self.spent - self.under_way
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


S = TypeVar("S", LimitState, SpendingState)
R = TypeVar("R")


class _Call:
    """A call on its way through the gate."""

    def __init__(self, call: OutgoingCall, budgeted: BudgetedCall | None) -> None:
        claim = claim_under_way.get()
        self.run_id = "" if claim is None else claim.run_id
        # A reply is usually far shorter than its limit.
        self.tokens = call.input_tokens + min(call.max_tokens or EXPECTED_TOKENS, EXPECTED_TOKENS)
        self.provider = call.name.partition(":")[0]
        self.waits_out = call.waits_out
        self.budgeted = cast("BudgetedCall", budgeted)  # not read without a budget
        self.begins_at = 0.0
        """The start time that the limit ahead has set."""
        self.reserved = Reservation(0.0, None)
        self.is_guess = False
        """Whether the reservation is a guess, since no call of this kind has ended yet."""
        self.is_sent = self.has_failed = False
        self.used: TokenUsage | None = None
        """The usage of the call; None if unknown, as after a cancellation."""


class _Waiting(NamedTuple):
    call: _Call
    turn: asyncio.Future[None]


class _Ended(NamedTuple):
    """The end of a call; amounts are tokens or US dollars."""

    reserved: float
    used: float | None
    """None if unknown."""


class SharedBound(ABC, Generic[S]):
    """One worker's view of a bound that all workers share: a record, and the line of waiting calls.

    A single task reserves for the calls at the front of the line and lets them go, so the store is asked a
    few times a second, however many calls there are. While the store can't be reached, calls wait.
    """

    def __init__(
        self, state: S, record: tuple[str, str], store: Store, worker: str, clock: Callable[[], float]
    ) -> None:
        self.state = state
        """The state as last read or written."""
        self._kind, self._key = record
        self._store = store
        self._worker = worker
        self._clock = clock
        self._line: list[_Waiting] = []
        self._under_way: set[_Call] = set()
        self._ended: list[_Ended] = []
        self._changing = asyncio.Lock()
        self._freed = asyncio.Event()
        self._admitting: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None

    @abstractmethod
    def _next(
        self, state: S, ended: Sequence[_Ended], line: Sequence[_Waiting], *, admits: bool
    ) -> tuple[S, Sequence[_Waiting]]:
        """Settle ended calls and admit calls: the new state, and the admitted calls at the front of the line.

        An admitted call gets its reservation or its start time.
        """

    @abstractmethod
    def _end(self, call: _Call) -> _Ended:
        """The end of a call."""

    @property
    @abstractmethod
    def _owes(self) -> bool:
        """Whether the record has to change although no call waits."""

    async def _begin(self, call: _Call) -> bool:  # noqa: ARG002 (a limit reads it)
        """Wait until an admitted call may begin; False if it has to be admitted again."""
        return True

    @property
    def _pause(self) -> float:
        """Seconds until waiting calls are tried again."""
        return RETRY

    async def enter(self, call: _Call) -> None:
        """Wait until a call may begin."""
        waiting = _Waiting(call, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        if self._admitting is None or self._admitting.done():
            self._admitting = asyncio.create_task(self._admit(), name=f"redraft-gate-{self._key}")
        try:
            await waiting.turn
        except asyncio.CancelledError:
            turn = waiting.turn
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(call)
            raise

    def leave(self, call: _Call) -> None:
        """End a call; its usage is counted soon."""
        self._under_way.remove(call)
        self._ended.append(self._end(call))
        self._freed.set()
        if self._owes and (self._settling is None or self._settling.done()):
            self._settling = asyncio.create_task(self._settle_soon(), name=f"redraft-settle-{self._key}")

    async def settle(self) -> None:
        """Count the calls that have ended, and extend the reservations of those under way."""
        await self._change(admits=False)

    async def settle_owed(self) -> None:
        """Settle until nothing is owed, or until the store can't be reached."""
        while self._owes:
            try:
                await self.settle()
            except StoreError as error:
                logger.warning("The %s of %s can't be written: %s", self._kind, self._key, error)
                return

    async def renew(self) -> None:
        """Extend the reservations of this worker, and read the state; called with each heartbeat."""
        try:
            await self.settle()
        except StoreError as error:
            logger.warning("The %s of %s can't be renewed: %s", self._kind, self._key, error)

    async def _settle_soon(self) -> None:
        await asyncio.sleep(SETTLE_AFTER)
        await self.settle_owed()

    async def _admit(self) -> None:
        """Let the calls in the line go, in order, as soon as the bound admits them."""
        while self._drop_done():
            self._freed.clear()
            admitted, pause = (), RETRY
            try:
                admitted = await self._change(admits=True)
                pause = self._pause
            except StoreError as error:
                logger.warning("The %s of %s can't be read, so calls wait: %s", self._kind, self._key, error)
            for call, turn in admitted:
                if not await self._begin(call):
                    continue
                self._under_way.add(call)
                if turn.done():  # cancelled or refused meanwhile
                    self.leave(call)
                else:
                    turn.set_result(None)
            if not admitted and self._drop_done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._freed.wait()

    def _drop_done(self) -> bool:
        """Drop admitted and cancelled calls; return whether any remain."""
        self._line = [waiting for waiting in self._line if not waiting.turn.done()]
        return bool(self._line)

    async def _change(self, *, admits: bool) -> Sequence[_Waiting]:
        """Settle ended calls and reserve for calls in the line, in one atomic change of the record.

        Changes go one at a time: `state` must agree with the record on this worker's share, even after a
        write whose answer was lost.
        """
        async with self._changing:
            ended, self._ended = self._ended, []
            try:
                while True:
                    before = await self._store.get(self._kind, self._key)
                    stored_state = (
                        type(self.state)() if before is None else from_record(type(self.state), before.data)
                    )
                    line = [waiting for waiting in self._line if not waiting.turn.done()]
                    state, admitted = self._next(stored_state, ended, line, admits=admits)
                    if state != stored_state:
                        record = Record(self._kind, self._key, asdict(state))
                        if before is None:
                            is_written = (await self._store.put_if_absent(record))[1]
                        else:
                            written = await self._store.replace(replace(before, data=record.data))
                            is_written = written is not None
                        if not is_written:  # another worker was faster
                            continue
                    self.state = state
                    return admitted
            except BaseException:
                self._ended = [*ended, *self._ended]
                raise


class SharedLimit(SharedBound[LimitState]):
    """One worker's view of a limit. It admits calls up to a second before they may begin."""

    def __init__(self, limit: Limit, store: Store, worker: str, clock: Callable[[], float]) -> None:
        super().__init__(LimitState(), (LIMIT, limit.models), store, worker, clock)
        self.limit = limit
        self._blocked: dict[str, float] = {}
        """The end of each provider's Retry-After, stored or not."""
        self._latest = 0.0
        """The time at the last look at the clock."""

    async def enter(self, call: _Call) -> None:
        """Wait until a call may begin.

        Raises `BlockedError` while a Retry-After is in force, unless the call waits it out.
        """
        if not call.waits_out and (refusal := self._refusal(call)) is not None:
            raise refusal
        began = time.monotonic()
        await super().enter(call)
        count("redraft.limit_wait_seconds", time.monotonic() - began, limit=self.limit.models)

    async def block(self, provider: str, seconds: float) -> None:
        """Block the calls of a provider in all workers for `seconds`."""
        until = self._now() + seconds
        self._blocked[provider] = max(self._blocked.get(provider, 0.0), until)
        self._refuse_line()
        try:
            await self.settle()
        except StoreError as error:
            logger.warning("A Retry-After of %s could not be shared: %s", self.limit.models, error)

    async def renew(self) -> None:
        """Keep the worker's slots while long calls are under way."""
        if self._under_way:
            await super().renew()

    def _end(self, call: _Call) -> _Ended:
        if not call.is_sent:
            return _Ended(call.tokens, 0)
        return _Ended(call.tokens, None if call.used is None else call.used.total_tokens)

    @property
    def _owes(self) -> bool:
        return not self._under_way and not self._line and self._worker in self.state.shares

    async def _begin(self, call: _Call) -> bool:
        # A longer wait means that the clock was set back.
        while 0 < (seconds := call.begins_at - self._now()) <= AHEAD:  # noqa: ASYNC110 (it waits for a time)
            await asyncio.sleep(seconds)
        is_blocked = self._blocked_seconds(call) > 0
        if is_blocked:
            self._ended.append(_Ended(call.tokens, 0))
        return not is_blocked

    @property
    def _pause(self) -> float:
        # All slots are taken, or the next call is more than a second ahead, or all calls are blocked.
        rates = max(self.state.requests_at, self.state.tokens_at) - AHEAD - self._now()
        blocked = [self._blocked_seconds(call) for call, turn in self._line if not turn.done()]
        return min(max(rates, min(blocked, default=0.0), SHORTEST_RETRY), REFUSED_WAIT)

    def _next(
        self, state: LimitState, ended: Sequence[_Ended], line: Sequence[_Waiting], *, admits: bool
    ) -> tuple[LimitState, Sequence[_Waiting]]:
        now = self._now()
        state = state.at(now)
        if self.limit.tokens_per_minute:
            # Usage beyond the estimate delays later calls, also after a pause.
            excess = sum(call.used - call.reserved for call in ended if call.used is not None)
            start = max(state.tokens_at, now) if excess > 0 else state.tokens_at
            state = replace(state, tokens_at=start + excess * 60 / self.limit.tokens_per_minute)
        for provider, until in state.blocked.items():
            self._blocked[provider] = max(self._blocked.get(provider, 0.0), until)
        self._blocked = {provider: until for provider, until in self._blocked.items() if until > now}
        state = replace(state, blocked={**self._blocked})
        self._refuse_line()
        if not admits and line:
            return state, ()  # calls of the line may be admitted and not begun: they keep their slots
        line = [
            waiting for waiting in line if not waiting.turn.done() and not self._blocked_seconds(waiting.call)
        ]
        tokens = [waiting.call.tokens for waiting in line]
        after, times = state.reserve(self.limit, now, self._worker, tokens, len(self._under_way))
        for waiting, at in zip(line, times, strict=False):
            waiting.call.begins_at = at
        return after, line[: len(times)]

    def _now(self) -> float:
        """The time. After the clock was set back, each Retry-After ends as many seconds earlier."""
        now = self._clock()
        if (back := self._latest - now) > 0:
            self._blocked = {provider: until - back for provider, until in self._blocked.items()}
        self._latest = now
        return now

    def _blocked_seconds(self, call: _Call) -> float:
        """Seconds until the Retry-After of a call's provider ends; 0 without one."""
        now = self._now()
        until = max(self._blocked.get(provider, 0.0) for provider in (ANY_PROVIDER, call.provider))
        return max(0.0, until - now)

    def _refusal(self, call: _Call) -> BlockedError | None:
        """The error for a call that a Retry-After blocks; None if none is in force."""
        if not (seconds := self._blocked_seconds(call)):
            return None
        refusal = f"A provider asked to wait {seconds:.0f} s (Retry-After), which holds for all workers."
        return BlockedError(refusal, status=RATE_LIMIT, retryable=True, retry_after=seconds)

    def _refuse_line(self) -> None:
        """Refuse the blocked calls in the line that don't wait out a Retry-After."""
        for call, turn in self._line:
            if not call.waits_out and not turn.done() and (refusal := self._refusal(call)):
                turn.set_exception(refusal)


class SharedSpending(SharedBound[SpendingState]):
    """One worker's view of the daily budget.

    A call reserves its input and its longest possible reply before it is sent, with a limit on its reply, and
    is settled on the day on which it ends. So a day's spending exceeds the budget at most by the error of the
    input estimates. Models without a known price, which only report their costs, may exceed it by the replies
    under way. A call that does not fit waits, and so does its run.
    """

    def __init__(self, budget: DailyBudget, store: Store, worker: str, clock: Callable[[], float]) -> None:
        super().__init__(SpendingState(budget=budget.usd), (SPENDING, KEY), store, worker, clock)
        self.budget = budget
        self._models: dict[str, StepBudget] = {}

    def budgeted(self, call: OutgoingCall) -> BudgetedCall:
        """A call with its price.

        Raises `ConfigError` for a provider's model without a known price, and `ModelError` if the budget of a
        whole day is too small.
        """
        step = self._models.get(call.name)
        if step is None:
            step = self._models[call.name] = StepBudget(Tally(Budget(usd=self.budget.usd)), "day")
        budgeted = step.call(
            call.role, call.input_tokens, call.max_tokens, call.model, is_limit_fixed=call.is_limit_fixed
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

    def stuck(self) -> frozenset[str]:
        """The runs whose calls wait for money while none of their calls is under way."""
        if not self.state.is_reached:
            return frozenset()
        waiting = {call.run_id for call, turn in self._line if not turn.done()}
        return frozenset(waiting - {call.run_id for call in self._under_way})

    def _end(self, call: _Call) -> _Ended:
        if not call.is_sent:
            return _Ended(call.reserved.usd, 0.0)
        used = NOTHING_USED if call.has_failed and call.used is None else call.used
        if used is None or not (used.total_tokens or call.has_failed or call.budgeted.price is None):
            return _Ended(call.reserved.usd, call.reserved.usd)  # the provider may have answered
        used = call.budgeted.counted(used, "") if used.total_tokens else used
        self._models[call.budgeted.model].tally.observe(call.budgeted.role, used)
        return _Ended(call.reserved.usd, used.cost_usd)

    @property
    def _owes(self) -> bool:
        return bool(self._ended)

    def _next(
        self, state: SpendingState, ended: Sequence[_Ended], line: Sequence[_Waiting], *, admits: bool
    ) -> tuple[SpendingState, Sequence[_Waiting]]:
        now, reservations = self._clock(), list[Reservation]()
        state = state.on(self.budget, now)
        before = self.state.reserved.get(self._worker, (0.0, 0.0))[0]
        until = state.reserved.get(self._worker, (0.0, 0.0))[1]
        held = max(0.0, before - sum(call.reserved for call in ended))
        state = replace(
            state,
            spent=state.spent + sum(call.used or 0.0 for call in ended),
            unpriced=state.unpriced + sum(call.used is None for call in ended),
            reserved={**state.reserved, self._worker: (held, until)},
        )
        if admits:
            calls = [waiting.call.budgeted for waiting in line]
            may_guess = not any(call.is_guess for call in self._under_way)
            is_guess = [isinf(call.expected_usd) for call in calls]
            state, reservations = state.reserve(calls, may_guess=may_guess)
            for (call, _), reservation, guess in zip(line, reservations, is_guess, strict=False):
                call.reserved, call.is_guess = reservation, guess
                call.budgeted.limit = reservation.limit
        held += sum(reservation.usd for reservation in reservations)
        if held != before or until <= now + HELD_FOR / 2:
            until = now + HELD_FOR
        others = {name: reserved for name, reserved in state.reserved.items() if name != self._worker}
        own = {self._worker: (held, until)} if held > ROUNDING else {}
        return replace(state, reserved={**others, **own}), line[: len(reservations)]


class FleetGate:
    """The gate of a worker's model calls. A call waits for the limits that match its model, then for money.

    `clock` returns the time of the queue.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        budget: DailyBudget | None,
        store: Store,
        worker: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Limits need not survive a crash of the database's machine; the spending must.
        hasty = getattr(store, "hasty", None)
        rates = store if hasty is None else hasty()
        self.limits = [SharedLimit(limit, rates, worker, clock) for limit in limits]
        self.spending = None if budget is None else SharedSpending(budget, store, worker, clock)

    @property
    def _bounds(self) -> list[SharedBound[Any]]:
        return [*self.limits] if self.spending is None else [*self.limits, self.spending]

    async def renew(self) -> None:
        """Extend the reservations of this worker, and read the others' spending."""
        await asyncio.gather(*(bound.renew() for bound in self._bounds))

    async def close(self) -> None:
        """Settle the ended calls, so that nothing stays reserved for them."""
        await asyncio.gather(*(bound.settle_owed() for bound in self._bounds))

    async def __call__(
        self,
        call: OutgoingCall,
        send: Callable[[int | None], Awaitable[R]],
        usage: Callable[[R], TokenUsage],
        /,
    ) -> R:
        """Wait until `call` may be sent and is paid for, then return the reply of `send`.

        Raises `BlockedError` while a provider's Retry-After is in force, unless the call `waits_out` it. With
        a budget, raises `ConfigError` for a provider's model without a known price, and `ModelError` if the
        budget of a whole day is too small for the call.
        """
        passing = _Call(call, None if self.spending is None else self.spending.budgeted(call))
        limits = [shared for shared in self.limits if fnmatchcase(call.name, shared.limit.models)]
        entered: list[SharedBound[Any]] = []
        try:
            for bound in limits if self.spending is None else (*limits, self.spending):
                await bound.enter(passing)
                entered.append(bound)
            passing.is_sent = True
            reply = await (send(call.max_tokens) if self.spending is None else passing.budgeted.limited(send))
            passing.used = usage(reply)
        except BlockedError:  # a limit with a Retry-After in force
            passing.is_sent = False
            raise
        except RedraftError as error:
            passing.has_failed, passing.used = True, error.usage
            if isinstance(error, ModelError):
                is_limited = error.status == RATE_LIMIT
                outcome = "rate_limited" if is_limited else "failed"
                count("redraft.model_calls", model=call.name, outcome=outcome)
                if is_limited or error.retry_after:
                    for limit in limits:
                        await limit.block(passing.provider, error.retry_after or REFUSED_WAIT)
            raise
        finally:
            for bound in entered:
                bound.leave(passing)
        _count_answer(call.name, passing.used)
        return reply


def _count_answer(model: str, used: TokenUsage) -> None:
    """Count an answered call in the metrics."""
    count("redraft.model_calls", model=model, outcome="answered")
    count("redraft.tokens", used.input_tokens, model=model, kind="input")
    count("redraft.tokens", used.output_tokens, model=model, kind="output")
    if used.cost_usd is None:
        count("redraft.unpriced_calls", model=model)
    else:
        count("redraft.cost_usd", used.cost_usd, model=model)


async def limit_states(store: Store) -> dict[str, LimitState]:
    """The state of each limit that a worker has used, by its pattern of models."""
    return restored(await store.find(LIMIT), lambda record: from_record(LimitState, record.data))


async def spending_state(store: Store, now: float | None = None) -> SpendingState | None:
    """The spending of today; None if the fleet has no daily budget."""
    record = await store.get(SPENDING, KEY)
    if record is None:
        return None
    state = from_record(SpendingState, record.data)
    return state.on(DailyBudget(state.budget, state.zone), time.time() if now is None else now)
