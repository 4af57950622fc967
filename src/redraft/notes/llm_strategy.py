"""LlmReflectionStrategy: ask a model how the instructions of a task could be better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.chat import ChatRequest, Message
from redraft.core.errors import ModelError, OutputError
from redraft.core.protocols import ChatModel
from redraft.notes.bounds import bounded, losses, settled, size_of, without_losses
from redraft.notes.markers import sections_of
from redraft.notes.meta_prompt import meta_prompt, shorten_prompt
from redraft.notes.reflection import TaskReflection

if TYPE_CHECKING:
    from redraft.notes.strategy import ReflectionInput


# Compared by identity: so are models.
@dataclass(frozen=True, slots=True, eq=False)
class LlmReflectionStrategy:
    """Ask a model how the instructions of a task could be better; the strategy where none is given.

    A reply that is too long is asked to be shortened, once; what is still too long is cut (`bounded`). Raises
    what the model raises, and `OutputError` for a reply without a marker, or one that says nothing but what
    `bounded` refuses. Specification: Default Reflection Prompt.
    """

    model: ChatModel

    async def __call__(self, given: ReflectionInput, /) -> TaskReflection:
        """Return the improved brief; a section that the reply leaves out stays as the task has it."""
        reflection = without_losses(await self._asked(meta_prompt(given), given), given)
        size = size_of(reflection, given.task)
        if size > given.max_tokens:
            reflection = await self._shortened(reflection, given, size)
        return bounded(reflection, given)

    async def _asked(self, prompt: str, given: ReflectionInput) -> TaskReflection:
        """Return what the model says, as long as it is."""
        reply = await self.model(ChatRequest((Message("user", prompt),), role="reflection"))
        return settled(_reflection_of(reply.text, given, reply.finish_reason == "length"), given)

    async def _shortened(self, long: TaskReflection, given: ReflectionInput, size: int) -> TaskReflection:
        """Return a shorter reflection, or the long one: it can still be cut, and it has been paid for."""
        try:
            short = await self._asked(shorten_prompt(given, long, size), given)
        except (ModelError, OutputError):
            return long
        return short if size_of(short, given.task) < size and not losses(short, given) else long


def _reflection_of(reply: str, given: ReflectionInput, cut_off: bool) -> TaskReflection:
    found = sections_of(reply, output=given.task_output, cut_off=cut_off)
    return TaskReflection(
        found.description,
        found.expected_output,
        found.observations,
        found.suggestions,
        run_count=1 if given.prior_reflection is None else given.prior_reflection.run_count + 1,
    )
