"""Limits that all workers share: requests and tokens a minute, and calls at once, per model."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._hints import keyword_hints
from redraft._steps import RATE_LIMIT, BlockedError
from redraft._telemetry import count
from redraft._validation import is_number
from redraft.errors import ConfigError, ModelError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft._steps import CallGate, OutgoingCall
    from redraft.stores.base import Store
    from redraft.types import TokenUsage

R = TypeVar("R")

LIMIT = "limit"
"""The kind of the record of a limit; its key is the pattern of its models."""
AHEAD = 1.0
"""Seconds of calls that a worker reserves at a time."""
SHARE_FOR = 10.0
"""Seconds after which the calls at once of a worker that is gone go to others."""
MOST_AHEAD = 86_400.0
"""Seconds; a time that lies further ahead was written by a wrong clock, and counts as now."""
EXPECTED_TOKENS = 500
"""Tokens expected of a reply, unless its limit is lower."""
FULL_WAIT = 0.1
REFUSED_WAIT = 1.0
"""Seconds that a rate limit without a Retry-After holds."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Limit:
    """What all workers together may ask of the models whose names match `models`.

    `models` is a pattern: `openai:*` is every model of that provider. Calls of all kinds count: drafts,
    revisions, judges, reflections, agents of the OpenAI Agents SDK; calls that LangGraph or your own
    functions send don't. `requests_per_minute` and `tokens_per_minute` are spread evenly: no second
    has more than twice its share. `at_once` bounds the calls under way. What has no bound is None.

    A provider's Retry-After, or a status 429 without one, holds for all calls that match. If several limits
    match a model, each one holds.
    """

    models: str
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    at_once: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.models, str) or not self.models.strip() or len(self.models) > 200:  # noqa: PLR2004 # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"Limit: models must be a pattern, such as 'openai:*', got {self.models!r}.")
        for name in ("requests_per_minute", "tokens_per_minute"):
            rate: object = getattr(self, name)
            if rate is not None and not (is_number(rate) and rate > 0):
                raise ConfigError(f"Limit {self.models!r}: {name} must be a number > 0, got {rate!r}.")
        if self.at_once is not None and (type(self.at_once) is not int or self.at_once < 1):
            raise ConfigError(
                f"Limit {self.models!r}: at_once must be a whole number from 1, got {self.at_once!r}."
            )
        if self.requests_per_minute is None and self.tokens_per_minute is None and self.at_once is None:
            raise ConfigError(f"Limit {self.models!r} has no bounds; set at least one of them.")


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit as the store has it: times are seconds since 1970, by the queue's clock.

    `requests_at` and `tokens_at` say when the next call may begin. `blocked_until` is the end of a
    Retry-After. `shares` maps workers to the calls at once that they hold, those that they want, and until
    when they do.
    """

    requests_at: float = 0.0
    tokens_at: float = 0.0
    blocked_until: float = 0.0
    shares: Mapping[str, tuple[int, int, float]] | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> LimitState:
        """Read a stored state."""
        shares = {name: (one[0], one[1], one[2]) for name, one in data["shares"].items()}
        return cls(data["requests_at"], data["tokens_at"], data["blocked_until"], shares)

    def at(self, now: float) -> LimitState:
        """Return the state without times from a wrong clock, and without workers that are gone."""
        latest = now + MOST_AHEAD
        times = (self.requests_at, self.tokens_at, self.blocked_until)
        return LimitState(
            *(now if time > latest else time for time in times),
            shares={name: share for name, share in (self.shares or {}).items() if now < share[2] <= latest},
        )

    def data(self) -> dict[str, Any]:
        """Return the state as JSON data."""
        return {
            "requests_at": self.requests_at,
            "tokens_at": self.tokens_at,
            "blocked_until": self.blocked_until,
            "shares": {name: list(share) for name, share in (self.shares or {}).items()},
        }


def reserve(
    limit: Limit, state: LimitState, now: float, worker: str, waiting: Sequence[int], running: int
) -> tuple[LimitState, list[float]]:
    """Reserve calls for a worker; return the new state, and when each of the first waiting calls may begin.

    `waiting` has the tokens that each waiting call is expected to use, `running` is how many calls of the
    worker are under way.
    """
    state = state.at(now)
    shares = {name: one for name, one in (state.shares or {}).items() if name != worker}
    room = len(waiting)
    if limit.at_once is not None:
        wanted = running + len(waiting)
        held = sum(one[0] for one in shares.values())
        wanted_by_others = sum(max(one[0], one[1]) for one in shares.values())
        fair = max(limit.at_once // (len(shares) + 1), limit.at_once - wanted_by_others, 1)
        share = max(running, min(wanted, fair, limit.at_once - held))
        room = share - running
        if wanted:
            shares[worker] = (share, wanted, now + SHARE_FOR)
    first = max(now, state.blocked_until)
    requests_at, tokens_at = max(first, state.requests_at), max(first, state.tokens_at)
    times: list[float] = []
    for tokens in waiting[:room]:
        at = max(
            requests_at if limit.requests_per_minute else first,
            tokens_at if limit.tokens_per_minute else first,
        )
        if at > now + AHEAD:
            break
        times.append(at)
        if limit.requests_per_minute:
            requests_at = at + 60 / limit.requests_per_minute
        if limit.tokens_per_minute:
            tokens_at = at + tokens * 60 / limit.tokens_per_minute
    return replace(state, requests_at=requests_at, tokens_at=tokens_at, shares=shares), times


class SharedLimits:
    """The gate of a worker's model calls: each waits until all limits that match its model let it pass.

    `clock` returns the time of the queue. While the store can't be reached, a call waits.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        store: Store,
        worker: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Limits need not survive a crash of the database's machine.
        hasty = getattr(store, "hasty", None)
        store = store if hasty is None else hasty()
        self._limits = [SharedLimit(limit, store, worker, clock) for limit in limits]

    async def __call__(
        self,
        call: OutgoingCall,
        send: Callable[[int | None], Awaitable[R]],
        usage: Callable[[R], TokenUsage],
        /,
    ) -> R:
        """Wait until `call` may be sent, call `send`, and return the reply.

        Unless the call `waits_out` a provider's Retry-After, raises `BlockedError` while one holds.
        """
        matching = [one for one in self._limits if fnmatchcase(call.name, one.limit.models)]
        # A limit is the most that a reply may have, and often far more than it will have.
        tokens = call.input_tokens + min(call.max_tokens or EXPECTED_TOKENS, EXPECTED_TOKENS)
        entered: list[SharedLimit] = []
        used: int | None = 0  # of a call that is not sent
        try:
            for one in matching:
                began = time.monotonic()
                await one.enter(tokens, waits_out=call.waits_out)
                entered.append(one)
                waited = time.monotonic() - began
                count("redraft.limit_wait_seconds", waited, limit=one.limit.models)
            used = None
            reply = await send(call.max_tokens)
            used = usage(reply).total_tokens
        except BlockedError:  # another limit holds the Retry-After already
            raise
        except ModelError as error:
            used = None if error.usage is None else error.usage.total_tokens
            if error.status == RATE_LIMIT or error.retry_after:
                for one in entered:
                    await one.block(error.retry_after or REFUSED_WAIT)
            raise
        else:
            return reply
        finally:
            for one in entered:
                one.leave(tokens, used)

    async def renew(self) -> None:
        """Keep the calls at once that this worker holds; called with each heartbeat."""
        for one in self._limits:
            await one.renew()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call that waits: what it is expected to use, its turn, and whether it waits out a Retry-After."""

    tokens: int
    turn: asyncio.Future[None]
    waits_out: bool


class SharedLimit:
    """One limit, as one worker sees it.

    Calls wait in a line. One task reserves for those at its front, about a second ahead, and lets each go
    when its time has come, so that the store is asked about once a second, however many calls there are.
    """

    def __init__(self, limit: Limit, store: Store, worker: str, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._store = store
        self._worker = worker
        self._clock = clock
        self._line: deque[_Waiting] = deque()
        self._running = 0
        self._correction = 0.0
        self._blocked_until = 0.0
        self._next_at = 0.0
        self._admitting: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()

    async def enter(self, tokens: int, *, waits_out: bool = True) -> None:
        """Wait until a call may begin; unless it `waits_out` a Retry-After, raises `BlockedError` for one."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(_Waiting(tokens, turn, waits_out))
        self._turn_away()
        if self._admitting is None or self._admitting.done():
            self._admitting = asyncio.create_task(self._admit(), name=f"redraft-limit-{self.limit.models}")
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(tokens, 0)
            raise

    def leave(self, expected: int, used: int | None) -> None:
        """End a call; `used` is None if it is not known what it has used."""
        self._running -= 1
        if used is not None:
            self._correction += used - expected
        self._freed.set()
        if self.limit.at_once is not None and not self._running and self._returning is None:
            self._returning = asyncio.create_task(self._return_share(), name="redraft-limit-return")

    async def block(self, seconds: float) -> None:
        """Let no call begin for so many seconds, in any worker."""
        until = self._clock() + seconds
        self._blocked_until = max(self._blocked_until, until)
        self._turn_away()

        def blocked(state: LimitState) -> LimitState:
            return replace(state, blocked_until=max(state.blocked_until, until))

        try:
            await self._change(blocked)
        except StoreError as error:
            logger.warning("A Retry-After of %s could not be shared: %s", self.limit.models, error)

    async def renew(self) -> None:
        """Keep the share of the calls at once while long calls are under way."""
        if self.limit.at_once is not None and self._running and not self._line:
            await self._change(self._with_own_share)

    async def _return_share(self) -> None:
        """Give the calls at once back that nobody here has used for a moment."""
        await asyncio.sleep(FULL_WAIT / 2)
        self._returning = None
        if self._running or self._line:
            return
        try:
            await self._change(self._with_own_share)
        except StoreError as error:  # they go to others after `SHARE_FOR`
            logger.warning("The limit %s can't be written: %s", self.limit.models, error)

    async def _admit(self) -> None:
        """Let the calls in the line go, each when its time has come."""
        while self._drop_cancelled():
            try:
                times = await self._reserve()
            except StoreError as error:
                logger.warning("The limit %s can't be read, so its calls wait: %s", self.limit.models, error)
                await asyncio.sleep(REFUSED_WAIT)
                continue
            for at in times:
                await self._sleep_until(at)
                if not self._drop_cancelled():
                    break
                self._running += 1
                self._line.popleft().turn.set_result(None)
            if not times:
                # Either all calls at once are taken, or the next call is more than a second ahead.
                self._freed.clear()
                waiting = asyncio.ensure_future(self._freed.wait())
                far = self._next_at - AHEAD - self._clock()
                await asyncio.wait([waiting], timeout=min(max(far, FULL_WAIT), REFUSED_WAIT))
                waiting.cancel()

    def _with_own_share(self, state: LimitState) -> LimitState:
        return reserve(self.limit, state, self._clock(), self._worker, (), self._running)[0]

    async def _reserve(self) -> list[float]:
        times: list[float] = []
        correction, self._correction = self._correction, 0.0

        def reserved(state: LimitState) -> LimitState:
            nonlocal times
            state = state.at(self._clock())
            if self.limit.tokens_per_minute:
                # What was used beyond the estimate delays later calls, also after a pause.
                start = max(state.tokens_at, self._clock()) if correction > 0 else state.tokens_at
                state = replace(state, tokens_at=start + correction * 60 / self.limit.tokens_per_minute)
            self._blocked_until = max(self._blocked_until, state.blocked_until)
            self._turn_away()
            waiting = [one.tokens for one in self._line if not one.turn.done()]
            state, times = reserve(self.limit, state, self._clock(), self._worker, waiting, self._running)
            self._next_at = max(state.requests_at, state.tokens_at, state.blocked_until)
            return state

        try:
            await self._change(reserved)
        except BaseException:
            self._correction += correction
            raise
        return times

    async def _sleep_until(self, at: float) -> None:
        while (left := max(at, self._blocked_until) - self._clock()) > 0:  # noqa: ASYNC110 (it waits for a time)
            await asyncio.sleep(left)

    def _turn_away(self) -> None:
        """Refuse the waiting calls that would not wait out a Retry-After, if one holds."""
        left = self._blocked_until - self._clock()
        for one in tuple(self._line) if left > 0 else ():
            if not one.waits_out and not one.turn.done():
                refusal = f"A provider asked to wait {left:.0f} s (Retry-After), which holds for all workers."
                one.turn.set_exception(
                    BlockedError(refusal, status=RATE_LIMIT, retryable=True, retry_after=left)
                )

    def _drop_cancelled(self) -> bool:
        """Remove calls at the front of the line that nobody waits for; return whether others are left."""
        while self._line and self._line[0].turn.done():
            self._line.popleft()
        return bool(self._line)

    async def _change(self, change: Callable[[LimitState], LimitState]) -> None:
        """Change the state of the limit atomically."""
        while True:
            key = self.limit.models
            before = await self._store.get(LIMIT, key)
            if before is None:
                record = Record(LIMIT, key, change(LimitState()).data())
                if (await self._store.put_if_absent(record))[1]:
                    return
            else:
                record = replace(before, data=change(LimitState.of(before.data)).data())
                if await self._store.replace(record) is not None:
                    return


def counted(inner: CallGate | None) -> CallGate:
    """Return a gate that counts the calls that pass another one, or pass freely, for the metrics."""

    async def gate(
        call: OutgoingCall,
        send: Callable[[int | None], Awaitable[R]],
        usage: Callable[[R], TokenUsage],
        /,
    ) -> R:
        model = call.name
        try:
            reply = await (send(call.max_tokens) if inner is None else inner(call, send, usage))
        except BlockedError:  # it was not sent
            raise
        except ModelError as error:
            outcome = "rate_limited" if error.status == RATE_LIMIT else "failed"
            count("redraft.model_calls", model=model, outcome=outcome)
            raise
        used = usage(reply)
        count("redraft.model_calls", model=model, outcome="answered")
        count("redraft.tokens", used.input_tokens, model=model, kind="input")
        count("redraft.tokens", used.output_tokens, model=model, kind="output")
        if used.cost_usd is None:
            count("redraft.unpriced_calls", model=model)
        else:
            count("redraft.cost_usd", used.cost_usd, model=model)
        return reply

    return gate


async def limit_states(store: Store) -> dict[str, LimitState]:
    """Return the state of each limit that a worker has used, by the pattern of its models."""
    return {one.key: LimitState.of(one.data) for one in intact(await store.find(LIMIT))}
