"""Agent: a model with a pattern around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from redraft.core.events import RunFinished
from redraft.core.settings import load_settings
from redraft.core.steps import direct
from redraft.core.sync import run_sync
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.run import last_result, run_loop
from redraft.loop.wire import given_draft, parts_of_model, task_of
from redraft.models.names import model_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redraft.core.events import Event
    from redraft.core.protocols import ChatModel, Step
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task
    from redraft.core.version import Draft, Output


class Agent:
    """Answer with a model, and redraft the answer until the pattern is content.

    `model` is a `provider:model` or `local:...` name, a name of your own from the settings, or any
    `ChatModel`; without it the settings decide (REDRAFT_MODEL). The agent holds no state of its runs: one may
    serve many at once.

    Raises `ConfigError` for a model, key or criterion that can't work, before anything is spent.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        pattern: ReflectionPattern | None = None,
        system_prompt: str = "",
    ) -> None:
        self._model = model_of(model, load_settings())
        self._pattern = pattern or ReflectionPattern()
        self._system_prompt = system_prompt
        self._parts = parts_of_model(self._pattern, self._model, system_prompt)

    @property
    def model(self) -> ChatModel:
        """The model that drafts and revises."""
        return self._model

    @property
    def pattern(self) -> ReflectionPattern:
        """The pattern of the runs that name no other."""
        return self._pattern

    @property
    def system_prompt(self) -> str:
        """What the model is told before anything else."""
        return self._system_prompt

    async def run(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        step: Step = direct,
    ) -> ReflectionResult:
        """Answer `query`; return the best version, why the run stopped and what it cost.

        `pattern` stands in for the agent's own in this run; `draft` starts from an answer that is there.
        """
        pattern = pattern or self.pattern
        task = task_of(query, pattern)
        parts = self._parts
        if pattern is not self.pattern or task.task_type not in ("", pattern.task_type):
            parts = parts_of_model(pattern, self.model, self.system_prompt, task.task_type)
        return await run_loop(task, parts, pattern, step, given_draft(draft))

    def run_sync(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
    ) -> ReflectionResult:
        """Do what `run` does, from code that is not async; also inside a running event loop."""
        return run_sync(self.run(query, pattern=pattern, draft=draft))

    async def stream(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
    ) -> AsyncIterator[Event]:
        """Answer `query` and yield the events of the run as they happen; the last is `RunFinished`.

        Leaving the iteration early cancels the run.
        """
        chosen = pattern or self.pattern
        events: asyncio.Queue[Event | None] = asyncio.Queue()

        def listen(event: Event) -> None:
            events.put_nowait(event)
            if chosen.on_event is not None:
                chosen.on_event(event)

        run = asyncio.ensure_future(self.run(query, pattern=replace(chosen, on_event=listen), draft=draft))
        run.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                if isinstance(event, RunFinished):
                    last_result.set(event.result)  # the run is a task, whose context is its own
                yield event
            await run
        finally:
            run.cancel()
