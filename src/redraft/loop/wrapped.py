"""WrappedAgent: an agent of Pydantic AI behind the face of an Agent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.core.errors import MissingExtraError
from redraft.core.sync import run_sync
from redraft.loop.agent import Agent
from redraft.loop.keep import check_keep
from redraft.loop.record import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai import UsageLimits
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import ModelMessage

    from redraft.core.protocols import Advisor, Step
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task
    from redraft.core.version import Draft, Output
    from redraft.loop.acting.performer import Performer
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.stream import RunStream
    from redraft.stores.base import Store


class WrappedAgent(Agent):
    """Redraft what an agent of Pydantic AI answers; made by `Agent.from_pydantic_ai`.

    A tool of its that raises ends the agent's run, as it does without Redraft, unless the trigger `error` is
    on: then the model is told, and the look back follows.
    """

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        *,
        pattern: ReflectionPattern | None = None,
        lessons: Advisor | None = None,
        keep: bool | Store = True,
        name: str = "",
    ) -> None:
        # Not through Agent's own, which makes a model of a name: here an agent is there.
        try:
            from redraft.loop.acting.make import model_of_agent, performer_around  # noqa: PLC0415 (on first use)
        except ImportError as error:
            raise MissingExtraError("An agent of Pydantic AI", "providers") from error
        check_keep(keep)
        self._acting = self._performer = performer_around(agent)
        self._model = model_of_agent(self._performer)
        self._keep = keep
        self._origin = Origin("agent", name or agent.name or "agent", type(agent).__name__)
        self._system_prompt = ""
        self._set_pattern(pattern, lessons)

    async def run(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
        step: Step | None = None,
        deps: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        usage_limits: UsageLimits | None = None,
    ) -> ReflectionResult:
        """Answer `query`; return the best version, why the run stopped and what it cost.

        `deps`, `message_history` and `usage_limits` are what they are to the wrapped agent, for each of its
        runs: one makes a version. A fresh start begins anew after `message_history`.
        """
        performer = self._with(deps, message_history, usage_limits)
        return await self._run(query, pattern, draft, run_id, step, performer=performer)

    def run_sync(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
        deps: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        usage_limits: UsageLimits | None = None,
    ) -> ReflectionResult:
        """Do what `run` does, from code that is not async; also inside a running event loop."""
        run = self.run(
            query,
            pattern=pattern,
            draft=draft,
            run_id=run_id,
            deps=deps,
            message_history=message_history,
            usage_limits=usage_limits,
        )
        return run_sync(run)

    def stream(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
        deps: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        usage_limits: UsageLimits | None = None,
    ) -> RunStream:
        """Answer `query`, and give a handle on the run: iterate over it for the events as they happen."""
        performer = self._with(deps, message_history, usage_limits)
        return self._stream(query, pattern, draft, run_id, performer)

    def _with(
        self, deps: Any, history: Sequence[ModelMessage] | None, limits: UsageLimits | None
    ) -> Performer:
        return replace(self._acting, deps=deps, history=tuple(history or ()), limits=limits)
