"""LiveRun: a run as its own verbs see it while it lasts, and the looks back in the middle of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from redraft.core.answer import affordable
from redraft.core.chat import ChatReply, ChatRequest
from redraft.core.errors import ConfigError, RedraftError, UnfinishedError, over_budget
from redraft.core.events import Reflected, StepFailed
from redraft.core.reflection import Reflection
from redraft.core.result import ConvergenceReason
from redraft.core.steps import Retry, direct, inner_step, observed, retried
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.loop.budget import NO_BUDGET, Tally
from redraft.loop.reflection_prompt import reflection_turns, shortened
from redraft.loop.tell import nobody
from redraft.loop.triggers import NO_TRIGGERS, Triggers
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redraft.core.chat import ModelRole
    from redraft.core.context import RunContext
    from redraft.core.events import Listener
    from redraft.core.protocols import ChatModel, Step


class LiveRun:
    """Tell the verbs of one run how it stands: what is left of its budget, who listens, when to reflect.

    Made before the run begins, since a person may hold it (`reflect_now`); the run joins it when it does.
    """

    def __init__(
        self, triggers: Triggers = NO_TRIGGERS, model: ChatModel | None = None, retry: Retry | None = None
    ) -> None:
        self.triggers = triggers
        self.retry = retry or Retry()
        self.run_id = ""
        self._model = model
        self._tally = Tally(NO_BUDGET)
        self._emit: Listener = nobody
        self._notes: dict[str, str] = {}
        self._made: dict[tuple[int, int, str], Reflection] = {}
        self._asked = False

    def begin(self, run_id: str, tally: Tally, emit: Listener, notes: dict[str, str]) -> None:
        """Join the run; `notes` are what its diagnostics will say."""
        self.run_id, self._tally, self._emit, self._notes = run_id, tally, emit, notes

    @property
    def reflections(self) -> tuple[Reflection, ...]:
        """The looks back until now, in their order."""
        return tuple(self._made.values())

    def spent(self, role: ModelRole, used: TokenUsage) -> ConvergenceReason | None:
        """Name the budget that is spent with what a step under way has used, if one is."""
        if reason := self._tally.spent(used):
            return reason
        left = self._tally.revision_tokens_left() if role == "revision" else None
        return ConvergenceReason.TOKEN_BUDGET if left is not None and used.total_tokens >= left else None

    def pay(self, role: ModelRole, used: TokenUsage) -> None:
        """Count what a step used that comes to no end."""
        self._tally.add(role, used)

    def step(self, on_failure: Callable[[str, Exception, float | None], float | None] | None = None) -> Step:
        """Return the step for an effect inside the step under way, watched by who listens.

        With `on_failure` it is tried again, as `redraft.core.steps.retried` does.
        """
        step = inner_step.get()
        if on_failure is not None:
            step = retried(step, self.retry, on_failure)
        return step if self._emit is nobody else observed(step, self._emit, self.run_id)

    def wait_before(
        self, name: str, error: Exception, wait: float | None, used: TokenUsage = NOTHING_USED
    ) -> float | None:
        """Return the seconds to wait before another try, or None where the budget does not allow it."""
        if wait is None or not self._tally.allows_waiting(wait, used):
            return None
        logger.info("%s failed and is tried again in %.1f s: %s", name, wait, error)
        self._emit(StepFailed(self.run_id, name, error, wait))
        return wait

    def ask(self) -> bool:
        """Ask for a reflection; return whether there will be one at the next opportunity.

        Raises `ConfigError` where the pattern does not have the trigger `manual`.
        """
        if not self.triggers.manual:
            raise ConfigError("reflect_now() needs 'manual' among the pattern's reflection_triggers.")
        if self._asked or not self._has_room():
            return False
        self._asked = True
        return True

    async def asked(self, step: int) -> bool:
        """Say, once, whether someone asked for a reflection: a step, since what a person said must last."""
        return self.triggers.manual and await inner_step.get()(f"asked {step}", bool, self._take_asked)

    async def _take_asked(self) -> bool:
        asked, self._asked = self._asked, False
        return asked

    def before(self, iteration: int) -> Reflection | None:
        """Return the look back that came before a version, if there was one: its step may be tried again."""
        made = (one for one in self._made.values() if one.iteration == iteration and one.step == 0)
        return next(made, None)

    def _has_room(self) -> bool:
        return len(self._made) < self.triggers.most

    async def reflect(self, trigger: str, step: int, run: RunContext, shown: str) -> Reflection | None:
        """Ask the reflecting model for a short message on how it goes; None where there is no room for one.

        `shown` is what there is to look back on. A failure of the model is logged and noted, never raised.
        """
        model = self._model
        if model is None or not self._has_room() or self._tally.spent():
            return None
        blank = Reflection(trigger, "", run.iteration, step)

        async def look_back(request: ChatRequest) -> Reflection:
            return await self._answered(model, request, blank)

        request = ChatRequest(reflection_turns(run.task, trigger, shown), role="reflection")
        try:
            reflection = await self.step()(f"reflect {trigger} {step}", Reflection, look_back, request)
        except UnfinishedError as error:
            if error.reason is None:
                raise
            self._notes["reflection_failed"] = f"A reflection ({trigger}) failed: {error}"
            return None
        self.keep([reflection])
        if reflection.problem:
            logger.warning("The reflection on %s failed and was left out: %s", trigger, reflection.problem)
            self._notes["reflection_failed"] = f"A reflection ({trigger}) failed: {reflection.problem}."
        else:
            self._emit(Reflected(self.run_id, trigger, reflection.text, step))
        return reflection

    async def _answered(self, model: ChatModel, request: ChatRequest, blank: Reflection) -> Reflection:
        failed = 0

        def on_failure(name: str, error: Exception, wait: float | None) -> float | None:
            nonlocal failed
            failed += 1
            return self.wait_before(name, error, wait)

        try:
            ask = retried(direct, self.retry, on_failure)
            reply = await ask("reflect", ChatReply, partial(affordable, model), request)
        except Exception as error:
            if over_budget(error):
                raise
            known = error.usage if isinstance(error, RedraftError) else None
            used = (known or NOTHING_USED) + TokenUsage(failed_requests=failed)
            return replace(blank, usage=used, problem=f"{type(error).__name__}: {error}")
        used = reply.usage + TokenUsage(failed_requests=failed)
        if not reply.text.strip():
            return replace(blank, usage=used, problem="the model returned an empty reply")
        return replace(blank, text=shortened(reply.text), usage=used)

    def keep(self, reflections: Iterable[Reflection]) -> None:
        """Keep reflections with what they cost; those that are kept already are left alone.

        A resumed run has some of them from its record: they count, too.
        """
        for reflection in reflections:
            key = reflection.iteration, reflection.step, reflection.trigger
            if key not in self._made:
                self._made[key] = reflection
                self._tally.add("reflection", reflection.usage)
