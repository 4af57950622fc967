"""Fulfilling: do what runs owe, with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.errors import ModelError, OutputError, StoreError
from redraft.lessons.writing import FORMS
from redraft.redact.log import logger

if TYPE_CHECKING:
    from redraft.core.protocols import ChatModel
    from redraft.lessons.duties import Duty
    from redraft.lessons.learning import Learning
    from redraft.lessons.memory import Memory
    from redraft.lessons.outcome import Outcome


class Fulfilling:
    """Reflect on the runs of one agent that have to be reflected on; many processes may do so at once."""

    def __init__(self, memory: Memory, learning: Learning) -> None:
        self._duties = memory.duties
        self._learning = learning

    async def begin(self, outcome: Outcome) -> None:
        """Write down that a run has to be reflected on."""
        await self._duties.begin(outcome, FORMS[outcome.status].kind)

    async def fulfil(self, outcome: Outcome, model: ChatModel) -> None:
        """Reflect on a run, unless somebody else is at it."""
        kind = FORMS[outcome.status].kind
        if not await self._duties.hold(outcome.run_id, kind):
            return
        try:
            await self._learning.reflect(outcome, model)
        except BaseException:
            await self._duties.release(outcome.run_id, kind)
            raise

    async def still_due(self, model: ChatModel | None) -> list[Duty]:
        """Do what is due where there is a model for it, and return what is left."""
        due = await self._duties.due()
        if not due or model is None:
            return due
        return [duty for duty in due if duty.outcome is None or not await self._made_up(duty.outcome, model)]

    async def _made_up(self, outcome: Outcome, model: ChatModel) -> bool:
        try:
            await self.fulfil(outcome, model)
        except (StoreError, ModelError, OutputError) as error:
            logger.warning("The run %r could not be reflected on: %s", outcome.run_id, error)
            return False
        return True
