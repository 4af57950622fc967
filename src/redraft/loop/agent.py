"""Agent: a model with a pattern around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft._sync import run_sync
from redraft._validation import check_list, check_name
from redraft.errors import ConfigError, MissingExtraError
from redraft.loop.keeper import check_keep, kept_step, run_kept
from redraft.loop.pattern import (
    check_advisor,
    judges_of,
    live_run,
    model_verbs,
    pattern_or_default,
    starting_draft,
    task_of,
    with_reflections,
)
from redraft.loop.record import Origin
from redraft.loop.stream import RunStream
from redraft.models.names import model_of
from redraft.protocols import Learner
from redraft.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pydantic_ai import UsageLimits
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.tools import Tool

    from redraft.events import Listener
    from redraft.loop.live import LiveRun
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.run import Judges, Verbs
    from redraft.loop.tool_agent import Performer
    from redraft.protocols import Advisor, ChatModel, Step
    from redraft.stores.base import Store
    from redraft.types import Draft, Output, ReflectionResult, Task


class Agent:
    """Answer with a model, and redraft the answer until the pattern is content.

    `model` is a `provider:model` or `local:...` name, a name of your own from the settings, or any
    `ChatModel`; without it the settings decide (REDRAFT_MODEL). With `tools` (functions, sync or async, or
    Tools of Pydantic AI) the agent acts before it answers: a version is then one such run, a revision goes
    on in its conversation, and a tool that raises is told to the model, which may try something else. Only a
    provider's model can call tools, and it is asked at most 50 times for a version.

    `lessons` (or any other advisor) give advice before each run, beside the advisors of the pattern, and
    learn from how it went; with the agent's model, if they have none of their own.

    The agent holds no state of its runs: one may serve many at once. Each run is kept under the agent's
    `name`: in the project's store, in one that is given as `keep`, or with `keep=False` nowhere.

    Raises `ConfigError` for a model, key, tool, trigger or criterion that can't work, before anything is
    spent.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        pattern: ReflectionPattern | None = None,
        system_prompt: str = "",
        tools: Sequence[Callable[..., Any] | Tool[Any]] = (),
        lessons: Advisor | None = None,
        keep: bool | Store = True,
        name: str = "agent",
    ) -> None:
        check_list("tools", tools)
        if not isinstance(system_prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"system_prompt must be a text, got {system_prompt!r}.")
        settings = load_settings()
        check_keep(keep)
        check_name("name", name)
        self._model: ChatModel | None = model_of(model, settings)
        self._keep: bool | Store = keep
        named = model if isinstance(model, str) else settings.model if model is None else type(model).__name__
        self._origin = Origin("agent", name, named or "")
        self._system_prompt = system_prompt
        self._performer = performer_with(self._model, system_prompt, tools) if tools else None
        self._set_pattern(pattern, lessons)

    def _set_pattern(self, pattern: ReflectionPattern | None, lessons: Advisor | None) -> None:
        if lessons is not None:
            check_advisor("lessons", lessons)
        if isinstance(lessons, Learner) and self._model is not None:
            lessons = lessons.with_model(self._model)
        self._lessons = lessons
        self._pattern = pattern_or_default(pattern)
        self._judges = judges_of(self._pattern, self._model)
        self._live(self._pattern)  # what is wrong with its triggers shows here

    @staticmethod
    def from_pydantic_ai(
        agent: AbstractAgent[Any, Any],
        *,
        pattern: ReflectionPattern | None = None,
        lessons: Advisor | None = None,
        keep: bool | Store = True,
        name: str = "",
    ) -> WrappedAgent:
        """Wrap an agent of Pydantic AI: its output, typed as it is, is what gets judged and redrafted.

        The agent is left as it is, its validators, retries and settings included. Its model judges, too,
        unless the pattern or the settings name another. Its runs are kept under `name`, else its own name.
        """
        return WrappedAgent(agent, pattern=pattern, lessons=lessons, keep=keep, name=name)

    @property
    def model(self) -> ChatModel | None:
        """The model that drafts and revises; None for a wrapped agent that has none of its own."""
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
        run_id: str | None = None,
        step: Step | None = None,
    ) -> ReflectionResult:
        """Answer `query`; return the best version, why the run stopped and what it cost.

        `pattern` stands in for the agent's own in this run; `draft` starts from an answer that is there.
        Under a `run_id` of yours the same call again goes on where a killed one stopped, and gives the result
        of a finished one again. `step` carries out every effect, instead of the journal of a kept run.
        """
        return await self._run(query, pattern, draft, run_id, step)

    def run_sync(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
    ) -> ReflectionResult:
        """Do what `run` does, from code that is not async; also inside a running event loop."""
        return run_sync(self.run(query, pattern=pattern, draft=draft, run_id=run_id))

    def stream(
        self,
        query: str | Task,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
    ) -> RunStream:
        """Answer `query`, and give a handle on the run: iterate over it for the events as they happen.

        A run that is resumed by its `run_id` tells its events from the beginning.
        """
        return self._stream(query, pattern, draft, run_id)

    def _stream(
        self,
        query: str | Task,
        given: ReflectionPattern | None,
        draft: Output | Draft | None,
        run_id: str | None,
        performer: Performer | None = None,
    ) -> RunStream:
        pattern = pattern_or_default(given, self._pattern)
        live = self._live(pattern)

        def start(listener: Listener) -> Coroutine[Any, Any, ReflectionResult]:
            return self._run(query, pattern, draft, run_id, performer=performer, live=live, on_event=listener)

        return RunStream(start, live, pattern.run_options)

    async def _run(
        self,
        query: str | Task,
        given: ReflectionPattern | None,
        draft: Output | Draft | None,
        run_id: str | None,
        step: Step | None = None,
        *,
        performer: Performer | None = None,
        live: LiveRun | None = None,
        on_event: Listener | None = None,
    ) -> ReflectionResult:
        pattern = pattern_or_default(given, self._pattern)
        performer = performer or self._performer
        task = task_of(query, pattern)
        if performer is not None and not task.tools:
            task = replace(task, tools=performer.tool_names)
        judges = self._judges
        if pattern is not self._pattern or task.task_type not in ("", pattern.task_type):
            judges = judges_of(pattern, self._model, task.task_type)
        verbs = self._verbs(pattern, judges, performer, live or self._live(pattern))
        if step is None:
            step = kept_step(self._keep, run_id, task)
        elif run_id is not None:
            raise ConfigError("run_id and step were both given; a Journalled step has its own run_id.")
        options = pattern.options_for(judges)
        if self._lessons is not None:
            options = replace(options, advisors=(*options.advisors, self._lessons))
        if on_event is not None:
            options = replace(options, on_event=on_event)
        return await run_kept(task, verbs, options, step, starting_draft(draft), self._origin)

    def _live(self, pattern: ReflectionPattern) -> LiveRun:
        if self._performer is None:
            return live_run(pattern, self._model, "a text agent")
        self._performer.check(pattern.triggers)
        return live_run(pattern, self._model)

    def _verbs(
        self, pattern: ReflectionPattern, judges: Judges, performer: Performer | None, live: LiveRun
    ) -> Verbs:
        if performer is not None:
            from redraft.loop.tools import acting_verbs  # noqa: PLC0415 (only who acts pays for it)

            return with_reflections(acting_verbs(performer, judges, live), live)
        if self._model is None:
            raise AssertionError("an agent that does not act has a model")
        return model_verbs(pattern, self._model, self._system_prompt, judges, live)


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
            from redraft.loop.tools import model_of_agent, performer_around  # noqa: PLC0415 (on first use)
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


def performer_with(
    model: ChatModel, system_prompt: str, tools: Sequence[Callable[..., Any] | Tool[Any]]
) -> Performer:
    """Make what acts with tools; raises `MissingExtraError` where the part for it is not installed."""
    try:
        from redraft.loop.tools import performer_of  # noqa: PLC0415 (only who acts pays for it)
    except ImportError as error:
        raise MissingExtraError("An agent with tools", "providers") from error
    return performer_of(model, system_prompt, tools)
