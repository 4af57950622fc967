"""A chat model that retries what may pass, and adds up what all its calls used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft._steps import Retry, direct, retried
from redraft.errors import RedraftError
from redraft.protocols import ChatModel, ChatReply
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from redraft.protocols import ChatRequest


@dataclass(slots=True)
class MeteredModel:
    """Call a chat model, retry transient failures, and add up the usage of all calls; a `ChatModel`.

    `failed` is the part of `used` that went into calls that failed.
    """

    model: ChatModel
    used: TokenUsage = NOTHING_USED
    failed: TokenUsage = NOTHING_USED
    retry: Retry = Retry()  # noqa: RUF009 (frozen, so sharing it is safe)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Return the reply; raises what the model raised after the last retry."""
        reply = await retried(direct, self.retry, self._add_failure)(
            "reflect", ChatReply, self.model, request
        )
        self.used += reply.usage
        return reply

    def _add_failure(self, _name: str, error: Exception, wait: float | None) -> float | None:
        lost = TokenUsage(failed_requests=1)
        if isinstance(error, RedraftError) and error.usage is not None:
            lost += error.usage
        self.failed += lost
        self.used += lost
        return wait
