"""Pass on drafts and revisions while a model writes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from redraft._texts import as_text, estimate_tokens
from redraft.errors import ModelError
from redraft.events import TokenEvent
from redraft.types import NOTHING_USED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from redraft.protocols import ModelRole, TextListener
    from redraft.types import Draft, TokenUsage

R = TypeVar("R")

ROLES: dict[str, Literal["draft", "revision"]] = {"generate": "draft", "revise": "revision"}
"""What the steps of a run that write a version write."""


class UsageTally(Protocol):
    """Counts the usage of calls that broke off; `estimated_tokens` are those that no provider reported."""

    estimated_tokens: int

    def add(self, role: ModelRole, usage: TokenUsage) -> None: ...


class VersionText:
    """The text of one version, as its model calls write it.

    Each call is an attempt with a number of its own: a retry, or the second call of a revision whose first
    reply could not be used.
    """

    def __init__(
        self,
        emit: Callable[[TokenEvent], None],
        run_id: str,
        version: int,
        role: Literal["draft", "revision"],
        attempts: Iterator[int],
        tally: UsageTally,
    ) -> None:
        self.has_text = False
        self.tally = tally
        self.streams = True
        """Whether models are asked to stream: not after a stream that broke off, since it may do so again."""
        self._emit = emit
        self._run_id = run_id
        self._version = version
        self._role: Literal["draft", "revision"] = role
        self._attempts = attempts

    def candidate(self) -> VersionText:
        """Return the text of one of several drafts for this version, which are written at once."""
        return VersionText(self._emit, self._run_id, self._version, self._role, self._attempts, self.tally)

    def tell(self, draft: Draft[Any]) -> None:
        """Emit a draft in one piece, unless a model call has emitted it."""
        if not self.has_text:
            self.begin().send(as_text(draft.output))

    def begin(self) -> ReplyText:
        """Begin the text of another call."""
        return ReplyText(self, next(self._attempts))

    def of_call(self, role: ModelRole) -> ReplyText | None:
        """Begin the text of a call, if calls of this role write the version."""
        return self.begin() if role in ("generation", "revision") else None

    def send(self, attempt: int, text: str) -> None:
        """Emit the next piece of an attempt."""
        self.has_text = True
        self._emit(TokenEvent(self._run_id, text, self._version, self._role, attempt))


class ReplyText:
    """The text of one model call; a listener for `StreamingModel.stream`.

    `pay` is called if the call is cancelled on the way, with what it used: as the provider said, or else
    estimated from the text that had come.
    """

    def __init__(self, version: VersionText, attempt: int) -> None:
        self.pay: Callable[[TokenUsage], None] | None = None
        self._version = version
        self._attempt = attempt
        self._pieces: list[str] = []
        self._usage: TokenUsage | None = None
        self._is_open = True

    def __call__(self, text: str, usage: TokenUsage | None = None, /) -> None:
        """Take the next piece of the reply, and what the call has used so far."""
        if self._is_open:  # a thread may go on for a token after its call was cancelled
            self._usage = usage or self._usage
            self.send(text)

    def send(self, text: str) -> None:
        """Emit the next piece of the reply."""
        if text:
            self._pieces.append(text)
            self._version.send(self._attempt, text)

    @property
    def streams(self) -> bool:
        """Whether to call a model in a stream, if it can."""
        return self._version.streams

    async def follow(
        self, stream: Callable[[TextListener], Awaitable[R]], role: ModelRole, input_tokens: int
    ) -> R:
        """Make a call in a stream; if it breaks off, its error or its run has the usage.

        `input_tokens` is an estimate, for a provider that does not say.
        """
        try:
            return await stream(self)
        except asyncio.CancelledError:
            if (used := self._used(input_tokens)) is not None:
                (self.pay or partial(self._version.tally.add, role))(used)
            raise
        except ModelError as error:
            self._version.streams = error.status is not None
            error.usage = error.usage or self._used(input_tokens)
            raise
        finally:
            self._is_open = False

    def finish(self, reply: str) -> None:
        """Emit what has not been emitted of a reply: all of it, if it was not streamed."""
        sent = "".join(self._pieces)
        if not reply.startswith(sent):  # the model's stream had another text than its reply
            self._version.begin().send(reply)
        else:
            self.send(reply[len(sent) :])

    def _used(self, input_tokens: int) -> TokenUsage | None:
        """Return what a call that broke off has used; None if nothing came of it.

        What the provider has not said is estimated; its cost is unknown, unless the model is free.
        """
        said, written = self._usage or NOTHING_USED, estimate_tokens("".join(self._pieces))
        if not said.total_tokens and not written:
            return None
        given = said.input_tokens or input_tokens
        used = replace(said, input_tokens=given, output_tokens=max(said.output_tokens, written))
        estimated = used.total_tokens - said.total_tokens
        self._version.tally.estimated_tokens += estimated
        is_free = said.total_tokens > 0 and said.cost_usd == 0
        return replace(used, cost_usd=None) if estimated and not is_free else used
