"""A chat model that retries transient failures and adds up the usage of its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from redraft._steps import Retry, call_model, name_of_model
from redraft.errors import ModelError
from redraft.protocols import ChatModel
from redraft.types import NOTHING_USED, TokenUsage, usage_before

if TYPE_CHECKING:
    from redraft.protocols import ChatReply, ChatRequest


@dataclass(slots=True)
class MeteredModel:
    """A `ChatModel` that calls another model, retries transient failures, and adds up the usage of all calls.

    An empty or unreadable reply is a transient failure; after the last retry, its error is final.
    """

    model: ChatModel
    used: TokenUsage = NOTHING_USED
    failed: TokenUsage = NOTHING_USED
    """The part of `used` that was spent on failed calls."""
    gates_calls: ClassVar[bool] = True
    retry: Retry = Retry()  # noqa: RUF009 (frozen, so sharing it is safe)

    @property
    def name(self) -> str:
        """The name of the model that it calls."""
        return name_of_model(self.model)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """The reply; raises the model's error after the last retry."""
        try:
            reply = await self.retry.run(call_model, self.model, request, on_failure=self._add_failure)
        except ModelError as error:
            if error.unusable_reply:
                error.usage = None  # already in `failed`: the caller must not count it twice
                error.unusable_reply = False  # already retried: the caller must not ask again
            raise
        self.used += reply.usage
        return reply

    def _add_failure(self, error: Exception, wait: float | None) -> float | None:
        lost = TokenUsage(failed_requests=1) + usage_before(error)
        self.failed += lost
        self.used += lost
        return wait
