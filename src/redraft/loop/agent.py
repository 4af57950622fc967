"""Agent: a model with a pattern around it."""

from __future__ import annotations

import inspect
import pickle
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from redraft._calls import importable_name
from redraft._hints import keyword_hints
from redraft._steps import name_of_model
from redraft._sync import run_sync
from redraft._texts import short_repr
from redraft._validation import check_function, check_list, check_name, check_text, is_number
from redraft.errors import ConfigError, MissingExtraError
from redraft.loop.budget import check_prices
from redraft.loop.conversation import conversation_verbs
from redraft.loop.journal import check_keep, journalled_step
from redraft.loop.output_type import output_type_of
from redraft.loop.pattern import (
    check_advisor,
    check_images,
    pattern_or_default,
    pattern_with,
    starting_draft,
    task_of,
    variant_of,
)
from redraft.loop.record import Origin
from redraft.loop.run import run_and_store
from redraft.loop.stream import RunStream
from redraft.loop.triggers import RunState
from redraft.loop.verbs import judge_of, judges_of, model_verbs
from redraft.models.model_settings import checked_settings, recorded_settings
from redraft.models.names import label_of_model, model_of
from redraft.protocols import Advisor, CriteriaAdvisor, LearningAdvisor, MistakeAdvisor
from redraft.settings import load_settings
from redraft.types import OutputT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from pydantic_ai import UsageLimits
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.tools import Tool

    from redraft.loop.conversation import AgentAdapter
    from redraft.loop.output_type import OutputType
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.record import RunRecord
    from redraft.loop.run import Judges, Verbs
    from redraft.loop.stream import StreamEvent
    from redraft.loop.tool_agent import ToolAgent
    from redraft.models.content import Query
    from redraft.protocols import ChatModel, Mistake, ModelChoice, RunContext, Step
    from redraft.stores.base import Store
    from redraft.types import (
        Advice,
        Criterion,
        Draft,
        Output,
        PlainTask,
        QualityCriterion,
        ReflectionResult,
    )


T = TypeVar("T")


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
class Agent(Generic[OutputT]):
    """Answer queries with a model, and revise the answers as a pattern says.

    `model` is a `provider:model` or `local:...` name, an alias from the settings, or any `ChatModel`; by
    default the settings decide (REDRAFT_MODEL). A list of them is tried in order: see `FallbackModel`.

    `criteria` judge: sentences, functions, compiled patterns, pydantic classes, data classes, JSON Schemas
    and `QualityCriterion`s. `judge` is the model for those that need one (by default the agent's own),
    `quality_threshold` (0..1) is the overall score to reach, and at most `max_iterations` revisions are made.
    The budgets bound a run. `pattern` holds all other options; an argument given here overrides the
    pattern's.

    `model_settings` are those of every call that drafts or revises, but not of the judge's, named as in
    Pydantic AI's `ModelSettings`: `temperature`, `max_tokens`, `top_p`, `timeout`, `extra_body`, and those of
    the provider. A budget may lower `max_tokens`, and a draft that has to differ gets a temperature of its
    own. A `ChatModel` of your own finds them in its `ChatRequest`.

    With `tools` (sync or async functions, or Pydantic AI Tools) the model may call them before it answers. A
    revision continues the conversation of the version that it starts from. An exception in a tool is reported
    to the model, which may try something else. Only a provider's model can call tools; it gets at most 50
    requests for a version.

    `lessons` (or any other advisor) give advice before each run, in addition to the pattern's advisors, and
    learn from its result, with the agent's model if they have none of their own.

    With an `output_type`, the outputs are of that type: a pydantic model, a data class, a TypedDict, a list
    of these, or a JSON Schema. A reply of another type is a version, too: a text with an issue for each place
    that is wrong, which is revised. If no version has the type, `best_output` is such a text, and the result
    is no `success`.

    An agent has no state of its runs, so it may serve many at once. A copy shares the agent's models, tools
    and store; an agent that is unpickled makes its provider's client anew. Each run is stored under the
    agent's `name` in the project's store, or in the store passed as `keep`; `keep=False` keeps none.

    Raises `ConfigError` for a model, key, tool, trigger, criterion or type that can't work, before anything
    is spent.
    """

    def __init__(
        self,
        model: ModelChoice | None = None,
        *,
        system_prompt: str = "",
        tools: Sequence[Callable[..., Any] | Tool[Any]] = (),
        output_type: type[OutputT] | Mapping[str, Any] = str,
        model_settings: Mapping[str, Any] | None = None,
        criteria: Sequence[Criterion] | None = None,
        max_iterations: int | None = None,
        quality_threshold: float | None = None,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        budget_seconds: float | None = None,
        judge: ModelChoice | None = None,
        pattern: ReflectionPattern | None = None,
        lessons: Advisor | None = None,
        keep: bool | Store = True,
        name: str = "agent",
    ) -> None:
        check_list("tools", tools)
        check_text("system_prompt", system_prompt)
        self._output_type = output_type_of(output_type)
        settings = load_settings()
        check_keep(keep)
        check_name("name", name)
        self._model: ChatModel | None = model_of(model, settings)
        self._keep: bool | Store = keep
        model_name = label_of_model(settings.model if model is None else model)
        self._settings = checked_settings(model_settings, self._model)
        self._origin = Origin(
            "agent",
            name,
            model_name,
            system_prompt=system_prompt,
            model_settings=recorded_settings(self._settings),
        )
        self._module = _calling_module()
        self._system_prompt = system_prompt
        self._tools = tuple(tools)
        self._tool_agent: AgentAdapter | None = (
            tool_agent_with(self._model, system_prompt, tools, self._output_type, self._settings)
            if tools
            else None
        )
        pattern = pattern_with(
            pattern,
            criteria=criteria,
            max_iterations=max_iterations,
            quality_threshold=quality_threshold,
            budget_usd=budget_usd,
            budget_tokens=budget_tokens,
            budget_seconds=budget_seconds,
            judge=judge,
        )
        self._set_pattern(pattern, lessons)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in ("run", "run_sync", "stream"):
            if getattr(cls, name) is not getattr(Agent, name):
                raise ConfigError(
                    f"{cls.__name__} overrides {name}(), which evaluations, fleets and other ways to run an "
                    "agent do not call. Call the agent from a function or class of your own instead."
                )

    def __copy__(self) -> Self:
        agent = object.__new__(type(self))
        vars(agent).update(vars(self))
        return agent

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._tool_agent is not None and not self._tools:
            raise ConfigError(
                f"The agent {self.name!r} can't be pickled, since it is that of a framework; make it in each "
                "process instead."
            )
        derived = ("_tool_agent", "_judges", "_output_type")  # made again
        state = {name: value for name, value in vars(self).items() if name not in derived}
        for name, value in state.items():
            try:
                pickle.dumps(value)
            except Exception as error:
                raise ConfigError(
                    f"The agent {self.name!r} can't be pickled: its {name.removeprefix('_')}, "
                    f"{short_repr(value)}, can't ({error}). Make the agent in each process instead, or use "
                    "what has a name, such as a model's name or a function of a module."
                ) from error
        kind = str if self._output_type is None else self._output_type.kind
        return self._unpickled, (state, kind)

    @staticmethod
    @keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
    def from_pydantic_ai(
        agent: AbstractAgent[Any, T],
        *,
        criteria: Sequence[Criterion] | None = None,
        max_iterations: int | None = None,
        quality_threshold: float | None = None,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        budget_seconds: float | None = None,
        judge: ModelChoice | None = None,
        pattern: ReflectionPattern | None = None,
        lessons: Advisor | None = None,
        keep: bool | Store = True,
        name: str = "",
    ) -> WrappedAgent[T]:
        """Wrap a Pydantic AI agent: its output, of whatever type, is judged and revised.

        The agent keeps its validators, retries and settings. Its model judges, too, unless `judge` or the
        settings name another. An argument given here overrides the pattern's. Runs are stored under
        `name`, by default the agent's own name.
        """
        try:
            from redraft.loop.tool_agent import ToolAgent  # noqa: PLC0415 (loads Pydantic AI)
        except ImportError as error:
            raise MissingExtraError("An agent of Pydantic AI", "providers") from error
        adapter = ToolAgent.around(agent)
        return WrappedAgent(
            adapter,
            type(agent).__name__ if adapter.model is None else name_of_model(adapter.model),
            pattern=pattern_with(
                pattern,
                criteria=criteria,
                max_iterations=max_iterations,
                quality_threshold=quality_threshold,
                budget_usd=budget_usd,
                budget_tokens=budget_tokens,
                budget_seconds=budget_seconds,
                judge=judge,
            ),
            lessons=lessons,
            keep=keep,
            name=name or agent.name or "agent",
        )

    @property
    def name(self) -> str:
        """The name under which runs are stored."""
        return self._origin.name

    @property
    def keep(self) -> bool | Store:
        """Where runs are stored: in the project's store (True), in another store, or nowhere (False)."""
        return self._keep

    @property
    def definition(self) -> Mapping[str, object]:
        """What shapes the agent's runs; agents with equal definitions can continue each other's runs."""
        return {
            "name": self.name,
            "model": self._origin.model,
            "system_prompt": self._system_prompt,
            "model_settings": self._origin.model_settings,
            "tools": () if self._tool_agent is None else self._tool_agent.tool_names,
            "output_type": None if self._output_type is None else self._output_type.record,
            "pattern": self._pattern,
            "criteria": self._judges.criteria,
        }

    @property
    def model(self) -> ChatModel | None:
        """The model that drafts and revises; None if a wrapped agent has none of its own."""
        return self._model

    @property
    def model_settings(self) -> Mapping[str, Any]:
        """The settings of every model call that drafts or revises."""
        return dict(self._settings)

    @property
    def advisors(self) -> tuple[Advisor, ...]:
        """The advisors of its runs: those of the pattern, and the agent's lessons."""
        return (*self._pattern.advisors, *(() if self._lessons is None else (self._lessons,)))

    @property
    def pattern(self) -> ReflectionPattern:
        """The pattern of runs without a pattern of their own."""
        return self._pattern

    @property
    def system_prompt(self) -> str:
        """The system prompt of every model call that drafts or revises."""
        return self._system_prompt

    @keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
    async def run(
        self,
        query: Query,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
        step: Step | None = None,
        temperature: float | None = None,
    ) -> ReflectionResult[OutputT]:
        """Answer `query`: the best version, why the run stopped and what it cost.

        A query is a text, a `Task`, or a list of texts and images (Pydantic AI's `ImageUrl` and
        `BinaryContent`), which the messages of an earlier conversation may precede. `pattern` replaces the
        agent's own for this run; `draft` is an existing answer to start from. With a `run_id`, repeating the
        call resumes a run that was killed, and returns the result of one that has finished. `step` carries
        out every effect, instead of the journal of a stored run. `temperature` is that of the first draft; an
        agent of a framework keeps its own.
        """
        return await self._run(query, pattern, draft, run_id, step, temperature=temperature)

    @keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
    def run_sync(
        self,
        query: Query,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
    ) -> ReflectionResult[OutputT]:
        """Like `run`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.run(query, pattern=pattern, draft=draft, run_id=run_id))

    def result_of(self, record: RunRecord) -> ReflectionResult[OutputT]:
        """The result of a stored run of this agent; raises `ValueError` if the run has none (yet)."""
        return record.result(self._output_type)

    @keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
    def stream(
        self,
        query: Query,
        *,
        pattern: ReflectionPattern | None = None,
        draft: Output | Draft | None = None,
        run_id: str | None = None,
    ) -> RunStream[OutputT]:
        """Answer `query` as a stream: iterate over it for the events as they happen.

        Models that can stream do: each piece of a draft or a revision is a `TokenEvent`. A run that is
        resumed by its `run_id` repeats its events from the beginning, with the text of a version in one
        piece.
        """
        pattern = pattern_or_default(pattern, self._pattern)
        if pattern is not self._pattern:
            self._verbs(pattern, self._judges)  # raises the errors of its triggers now
        state = RunState(pattern.triggers)

        def start(
            listener: Callable[[StreamEvent], None],
        ) -> Coroutine[Any, Any, ReflectionResult[OutputT]]:
            return self._run(query, pattern, draft, run_id, state=state, on_event=listener)

        return RunStream(start, state, pattern)

    async def _run(
        self,
        query: Query,
        pattern: ReflectionPattern | None,
        draft: Output | Draft | None,
        run_id: str | None,
        step: Step | None = None,
        *,
        state: RunState | None = None,
        on_event: Callable[[StreamEvent], None] | None = None,
        temperature: float | None = None,
    ) -> ReflectionResult[OutputT]:
        if temperature is not None and not (is_number(temperature) and temperature >= 0):
            raise ConfigError(f"temperature must be None or a number of at least 0, got {temperature!r}.")
        pattern = pattern_or_default(pattern, self._pattern)
        tool_agent = self._tool_agent
        task = task_of(query, pattern)
        if tool_agent is not None and task.messages:
            raise ConfigError(
                "An agent with tools can't take a query with messages; pass them to a wrapped agent by "
                "with_options(message_history=...)."
            )
        if tool_agent is not None and not task.tools:
            task = replace(task, tools=tool_agent.tool_names)
        judges = self._judges
        if pattern is not self._pattern or task.task_type not in ("", pattern.task_type):
            judges = judges_of(pattern, self._model, task.task_type)
        if task.all_images:
            check_images(task, self._model, judge_of(pattern, self._model) if judges.signals.judged else None)
        if pattern.budget_usd is not None:
            check_prices(self._model, judge_of(pattern, self._model) if judges.signals.judged else None)
        verbs = replace(self._verbs(pattern, judges), state=state)
        if temperature is not None:
            verbs = _drafting_at(temperature, verbs)
        if step is None:
            step = journalled_step(self._keep, run_id, task)
        elif run_id is not None:
            raise ConfigError("Pass either run_id or step, not both: a Journalled step has its own run_id.")
        changes: dict[str, Any] = {}
        if self._lessons is not None:
            changes["advisors"] = (*pattern.advisors, self._lessons)
        if on_event is not None:
            changes["on_event"] = on_event
        if changes:
            pattern = variant_of(pattern, **changes)
        start = starting_draft(draft)
        origin = replace(self._origin, importable=importable_name(self, self._module))
        return await run_and_store(pattern, task, verbs, step, start, origin, on_token=on_event)

    def for_evaluation(self, *, advised: bool = True) -> Self:
        """A copy of this agent that learns nothing; with `advised`, its advisors still give advice."""
        advisors = [RecallOnly(advisor) for advisor in self.advisors if advised]
        agent = copy(self)
        agent._set_pattern(replace(self._pattern, advisors=advisors), None)  # noqa: SLF001 (a copy of itself)
        return agent

    def variant(
        self, *, system_prompt: str | None = None, criteria: Sequence[Criterion] | None = None
    ) -> Self:
        """A copy of this agent with another system prompt, or with other criteria in its pattern.

        Raises `ConfigError` for a system prompt if the agent is that of a framework, which has its own.
        """
        agent = copy(self)
        if system_prompt is not None:
            if isinstance(self, AdaptedAgent):
                raise ConfigError(f"The agent {self.name!r} has prompts of its own; change them there.")
            origin, adapter = replace(self._origin, system_prompt=system_prompt), self._tool_agent
            if adapter is not None:
                adapter = replace(cast("Any", adapter), system_prompt=system_prompt)
            vars(agent).update(_system_prompt=system_prompt, _origin=origin, _tool_agent=adapter)
        if criteria is not None:
            agent._set_pattern(replace(self._pattern, quality_criteria=tuple(criteria)), self._lessons)  # noqa: SLF001 (a copy of itself)
        return agent

    @classmethod
    def _unpickled(cls, state: dict[str, Any], output_type: Any) -> Self:
        agent = object.__new__(cls)
        vars(agent).update(state)
        agent._output_type = output_type_of(output_type)
        agent._tool_agent = None
        if agent._tools and agent._model is not None:
            agent._tool_agent = tool_agent_with(
                agent._model, agent._system_prompt, agent._tools, agent._output_type, agent._settings
            )
        agent._set_pattern(agent._pattern, agent._lessons)
        return agent

    def _set_pattern(self, pattern: ReflectionPattern | None, lessons: Advisor | None) -> None:
        if lessons is not None:
            check_advisor("lessons", lessons)
        if isinstance(lessons, LearningAdvisor) and self._model is not None:
            lessons = lessons.with_model(self._model)
        self._lessons = lessons
        self._pattern = pattern_or_default(pattern)
        self._judges = judges_of(self._pattern, self._model)
        self._verbs(self._pattern, self._judges)  # raises the errors of its triggers now

    def _verbs(self, pattern: ReflectionPattern, judges: Judges) -> Verbs:
        if self._tool_agent is not None:
            return conversation_verbs(
                pattern, self._tool_agent, self._model, judges, self._output_type, self._system_prompt
            )
        if self._model is None:
            raise AssertionError("an agent without tools has a model")
        return model_verbs(
            pattern, self._model, judges, self._system_prompt, self._output_type, self._settings
        )


@dataclass(frozen=True, slots=True)
class RecallOnly:
    """An advisor that gives the advice of another advisor, and learns nothing."""

    advisor: Advisor

    def with_criteria(self, criteria: Sequence[QualityCriterion], /, *, in_prompt: bool = True) -> RecallOnly:
        """The same for the other advisor on a run that these criteria judge."""
        other = self.advisor
        if not isinstance(other, CriteriaAdvisor):
            return self
        return RecallOnly(other.with_criteria(criteria, in_prompt=in_prompt))

    async def recall(self, task: PlainTask, /) -> list[Advice]:
        """The other's advice."""
        return await self.advisor.recall(task)

    async def advise_on(self, task: PlainTask, mistake: Mistake, /) -> list[Advice]:
        """The other's advice on a mistake."""
        other = self.advisor
        return await other.advise_on(task, mistake) if isinstance(other, MistakeAdvisor) else []

    async def observe(self, result: ReflectionResult, /) -> None:
        """Ignore the result."""


def _calling_module() -> str:
    """The name of the module that makes an agent: the first in the stack outside of Redraft."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("redraft."):
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


class Unchanged:
    """The default of an option that None can remove."""

    def __repr__(self) -> str:
        """As `help` shows it."""
        return "UNCHANGED"


UNCHANGED = cast("Any", Unchanged())


class AdaptedAgent(Agent[OutputT]):
    """An agent of a framework whose answers are judged and revised.

    It keeps its instructions, tools and settings; each version is a run of it, and a revision continues the
    conversation of the version that it starts from.
    """

    def __init__(
        self,
        adapter: AgentAdapter,
        kind: str,
        *,
        pattern: ReflectionPattern | None = None,
        lessons: Advisor | None = None,
        keep: bool | Store = True,
        name: str = "agent",
    ) -> None:
        # Agent.__init__ is not called: it would need a model.
        check_keep(keep)
        check_name("name", name)
        self._tools = ()
        self._settings = {}
        self._tool_agent = adapter
        self._model = adapter.model
        self._keep = keep
        self._output_type = None  # the framework's agent has its own
        self._origin = Origin("agent", name, kind)
        self._module = _calling_module()
        self._system_prompt = ""
        self._set_pattern(pattern, lessons)

    def _with_adapter(self, *, history: Sequence[Any] | None, **options: Any) -> Self:
        """A copy of this agent whose adapter has other options; `UNCHANGED` options stay."""
        if history is not UNCHANGED:
            check_list("history", history or ())
            options["history"] = tuple(history or ())
        if (on_event := options.get("on_event", UNCHANGED)) is not UNCHANGED:
            check_function("on_event", on_event)
        changes = {name: value for name, value in options.items() if value is not UNCHANGED}
        agent = copy(self)
        agent._tool_agent = replace(cast("Any", self._tool_agent), **changes)  # noqa: SLF001 (a copy of itself)
        return agent


class WrappedAgent(AdaptedAgent[OutputT]):
    """A Pydantic AI agent whose answers are judged and revised; made by `Agent.from_pydantic_ai`.

    An exception in one of its tools ends the agent's run, as it does without Redraft, unless the trigger
    `error` is on: then it is reported to the model, and followed by a reflection.
    """

    def with_options(
        self,
        *,
        deps: Any = UNCHANGED,
        message_history: Sequence[ModelMessage] | None = UNCHANGED,
        usage_limits: UsageLimits | None = UNCHANGED,
    ) -> Self:
        """A copy of this agent with options of Pydantic AI; unnamed options of an earlier call stay.

        They are passed to each run of the wrapped agent; each version is a run. A fresh start begins after
        `message_history`. None removes an option.
        """
        return self._with_adapter(deps=deps, history=message_history, limits=usage_limits)


def _drafting_at(temperature: float, verbs: Verbs) -> Verbs:
    """Verbs that make the first draft at a temperature."""
    draft = verbs.generate
    if draft is None:
        raise AssertionError("an agent drafts")

    async def generate(prompt: str, run: RunContext, /) -> Any:
        if run.attempt.mode == "draft" and run.attempt.temperature is None:
            run = replace(run, attempt=replace(run.attempt, temperature=temperature))
        return await draft(prompt, run)

    return replace(verbs, generate=generate)


def tool_agent_with(
    model: ChatModel,
    system_prompt: str,
    tools: Sequence[Callable[..., Any] | Tool[Any]],
    output_type: OutputType[Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ToolAgent:
    """Build an agent with tools; raises `MissingExtraError` if Pydantic AI is not installed."""
    try:
        from redraft.loop.tool_agent import ToolAgent  # noqa: PLC0415 (loads Pydantic AI)
    except ImportError as error:
        raise MissingExtraError("An agent with tools", "providers") from error
    return ToolAgent.with_tools(model, system_prompt, tools, output_type, settings)
