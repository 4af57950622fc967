"""Pass on drafts and revisions while a model writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from redraft._texts import as_text, estimate_tokens
from redraft.errors import ModelError
from redraft.events import TokenEvent
from redraft.types import NOTHING_USED

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redraft.protocols import ModelRole, TextListener
    from redraft.types import Draft, TokenUsage

R = TypeVar("R")

ROLES: dict[str, Literal["draft", "revision"]] = {"generate": "draft", "revise": "revision"}
"""The steps of a run that write a version, with the role of their text."""


class UsageTally(Protocol):
    """Counts the usage of calls that broke off."""

    estimated_tokens: int
    """Tokens not reported by the provider."""

    def add(self, role: ModelRole, usage: TokenUsage) -> None: ...


@dataclass
class VersionText:
    """The text of one version, as its model calls write it.

    Each call is an attempt with its own number: a retry, for example, or the second call of a revision after
    an unusable reply.
    """

    emit: Callable[[TokenEvent], None]
    run_id: str
    version: int
    role: Literal["draft", "revision"]
    attempts: Iterator[int]
    tally: UsageTally
    has_text: bool = field(default=False, init=False)
    streams: bool = field(default=True, init=False)
    """Whether models are asked to stream. False once a stream broke off, since it may do so again."""

    def candidate(self) -> VersionText:
        """The text of one of several drafts for this version, which are written in parallel."""
        return replace(self)

    def tell(self, draft: Draft[Any]) -> None:
        """Emit a draft in one piece, unless a model call has emitted it."""
        if not self.has_text:
            self.begin().send(as_text(draft.output))

    def begin(self) -> ReplyText:
        """Begin the text of another call."""
        return ReplyText(self, next(self.attempts))

    def of_call(self, role: ModelRole) -> ReplyText | None:
        """Begin the text of a call, if calls of this role write the version."""
        return self.begin() if role in ("generation", "revision") else None

    def send(self, attempt: int, text: str) -> None:
        """Emit the next piece of an attempt."""
        self.has_text = True
        self.emit(TokenEvent(self.run_id, text, self.version, self.role, attempt))


class ReplyText:
    """The text of one model call; a listener for `StreamingModel.stream`.

    `pay` is called with the usage of the call if it is cancelled on the way: the reported usage, or an
    estimate from the text so far.
    """

    def __init__(self, version: VersionText, attempt: int) -> None:
        self.pay: Callable[[TokenUsage], None] | None = None
        self._version = version
        self._attempt = attempt
        self._pieces: list[str] = []
        self._usage: TokenUsage | None = None
        self._is_open = True

    def __call__(self, text: str, usage: TokenUsage | None = None, /) -> None:
        """Take the next piece of the reply, and the usage of the call so far."""
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
        """Make a call in a stream; if it breaks off, its usage is added to its error or to its run.

        `input_tokens` is an estimate for providers that report no usage.
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
        """Emit the rest of a reply: all of it, if it was not streamed."""
        sent = "".join(self._pieces)
        if not reply.startswith(sent):  # the stream differed from the reply
            self._version.begin().send(reply)
        else:
            self.send(reply[len(sent) :])

    def _used(self, input_tokens: int) -> TokenUsage | None:
        """Usage of a call that broke off; None if nothing was reported or written.

        Tokens that the provider has not reported are estimated; the cost is then unknown, unless the model is
        free.
        """
        reported, written = self._usage or NOTHING_USED, estimate_tokens("".join(self._pieces))
        if not reported.total_tokens and not written:
            return None
        used = replace(
            reported,
            input_tokens=reported.input_tokens or input_tokens,
            output_tokens=max(reported.output_tokens, written),
        )
        estimated = used.total_tokens - reported.total_tokens
        self._version.tally.estimated_tokens += estimated
        is_free = reported.total_tokens > 0 and reported.cost_usd == 0
        return replace(used, cost_usd=None) if estimated and not is_free else used
