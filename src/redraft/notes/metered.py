"""Metered: a model that counts what it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.chat import ChatReply
from redraft.core.errors import RedraftError
from redraft.core.protocols import ChatModel
from redraft.core.steps import Retry, direct, retried
from redraft.core.usage import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from redraft.core.chat import ChatRequest


@dataclass(slots=True)
class Metered:
    """Ask a model, again where its failure may pass, and add up what all calls used; a `ChatModel`.

    `failed` is the part of `used` that went into calls which failed.
    """

    model: ChatModel
    used: TokenUsage = NOTHING_USED
    failed: TokenUsage = NOTHING_USED
    retry: Retry = Retry()  # noqa: RUF009 (frozen, so sharing it is safe)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Return the reply; raises what the model raised for good."""
        reply = await retried(direct, self.retry, self._failed)("reflect", ChatReply, self.model, request)
        self.used += reply.usage
        return reply

    def _failed(self, _name: str, error: Exception, wait: float | None) -> float | None:
        lost = TokenUsage(failed_requests=1)
        if isinstance(error, RedraftError) and error.usage is not None:
            lost += error.usage
        self.failed += lost
        self.used += lost
        return wait
