"""Graphs of LangGraph whose answers are judged and revised."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, cast
from uuid import uuid4

from redraft._hints import keyword_hints
from redraft._steps import in_time, step_context, user_call
from redraft._texts import estimate_tokens
from redraft._validation import check_function, named_error
from redraft.errors import ConfigError, MissingExtraError, ModelError, RedraftError, UnfinishedError
from redraft.loop.agent import UNCHANGED, AdaptedAgent
from redraft.loop.conversation import AgentAdapter
from redraft.loop.pattern import pattern_with
from redraft.models.provider import ListedModel
from redraft.types import NOTHING_USED, Conversation, Draft, TokenUsage

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        HumanMessage,
        convert_to_messages,
        messages_from_dict,
        messages_to_dict,
    )
    from langchain_core.runnables.config import merge_configs
    from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs] (it has types, but no marker)
except ImportError as missing:
    raise MissingExtraError("A graph of LangGraph", "langgraph") from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_core.outputs import LLMResult
    from langchain_core.runnables import RunnableConfig

    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.triggers import RunState
    from redraft.protocols import Advisor, ModelChoice, ModelRole, RunContext
    from redraft.stores.base import Store
    from redraft.types import Criterion

__all__ = ["GraphAgent", "reflecting"]


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
def reflecting(
    graph: Pregel[Any, Any, Any, Any],
    *,
    output: Callable[[Mapping[str, Any]], Any] | None = None,
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
) -> GraphAgent:
    """Wrap a compiled graph whose state has `messages`, to judge and revise its answers.

    `output` extracts the answer from the final state; by default the `structured_response`, of any type, else
    the text of the last message. A revision adds the critique to the messages of the version that it starts
    from. With a checkpointer, it forks that version's checkpoint, which restores the rest of the state, too.
    `judge` is the model for criteria that need one, by default the model of the settings. Arguments override
    the pattern. Runs are stored under `name`, by default the graph's own name.

    Raises `ConfigError` for anything but a compiled graph with `messages`, an async `output`, and a pattern
    that can't work.
    """
    if not isinstance(graph, Pregel):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(f"reflecting takes a compiled graph of LangGraph, got {graph!r}.")
    channels = sorted(cast("dict[str, Any]", graph.channels))  # pyright: ignore[reportUnknownMemberType] (the library's)
    if "messages" not in channels:
        raise ConfigError(
            f"The state of the graph {graph.get_name()!r} has no 'messages' to add a critique to, only "
            f"{', '.join(channels)}."
        )
    check_function("output", output)
    return GraphAgent(
        GraphAdapter(graph, output),
        type(graph).__name__,
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
        name=name or graph.get_name(),
    )


class GraphAgent(AdaptedAgent[Any]):
    """A graph of LangGraph whose answers are judged and revised; made by `reflecting`."""

    @keyword_hints()
    def with_options(
        self,
        *,
        config: RunnableConfig | None = UNCHANGED,
        context: Any = UNCHANGED,
        history: Sequence[BaseMessage] | None = UNCHANGED,
        on_event: Callable[[str, Any], None] | None = UNCHANGED,
    ) -> Self:
        """Copy this agent with options of LangGraph; options of earlier calls stay unless they are replaced.

        `config` and `context` are passed to each run of the graph, one for each version. Each run has its own
        thread, so a `thread_id` raises `ConfigError`. `history` holds the messages before the query.
        `on_event` is called with the mode and the data of each streamed event. None removes an option. A new
        `config` replaces the earlier `config` as a whole.
        """
        if config is not UNCHANGED and "thread_id" in ((config or {}).get("configurable") or {}):
            raise ConfigError(
                "config: 'thread_id' can't be set, since each run has its own; pass earlier messages as "
                "history."
            )
        return self._with_adapter(config=config, context=context, history=history, on_event=on_event)


@dataclass(frozen=True, slots=True)
class GraphAdapter(AgentAdapter):
    """Runs a graph from a prompt to its final state, whose answer becomes a draft."""

    graph: Any  # a Pregel, which is only partly typed
    output: Any  # a function of the final state, or None
    config: Any = None
    context: Any = None
    history: tuple[BaseMessage, ...] = ()
    """Messages before the prompt."""
    on_event: Any = None  # called with the mode and the data of each streamed event

    async def complete(self, prompt: str, messages: list[Any] | None, run: RunContext) -> Draft:
        """Run the graph once; returns its answer with usage and conversation.

        `messages` is the conversation to continue, as JSON; None starts a new conversation. Raises
        `ModelError` if a model failed permanently, else `UnfinishedError`, each with the usage. Don't retry
        the run after either.
        """
        if run.task.all_images:
            raise ConfigError("A graph takes text as its query; pass messages with images as `history`.")
        # The thread of a killed attempt may exist already, and end with a tool call without a result.
        place: dict[str, Any] = {"thread_id": f"{run.run_id}:{uuid4()}"}
        message = HumanMessage(prompt, id=str(uuid4()))
        if messages is None:
            sent_messages: list[BaseMessage] = [*self.history, message]
        elif checkpoint := await self._checkpoint(run):
            place, sent_messages = checkpoint, [message]
        else:
            sent_messages = [*messages_from_dict(messages), message]
        run_state: RunState = run.state
        calls = GraphCalls(run_state, "generation" if run.attempt.number == 1 else "revision")
        final = FinalState({"messages": sent_messages}, place)
        try:
            await in_time(
                user_call(self._run(sent_messages, final, calls), "the graph"), "the graph was at work"
            )
            answer = self._answer(final.values, message)
        except asyncio.CancelledError:
            run_state.count_cancelled(calls.role, calls.used)
            raise
        except Exception as error:
            raise calls.failure(error, final.conversation) from error
        return Draft(answer, calls.used, conversation=final.conversation, memo=final.place)

    def _answer(self, state: Mapping[str, Any], prompt: BaseMessage) -> Any:
        """The result of `output`, else a structured response, else the text of the last message."""
        if "__interrupt__" in state:
            raise UnfinishedError("The graph was interrupted: it is waiting for a person, and has no answer.")
        if self.output is not None:
            if (answer := self.output(state)) is None:
                raise UnfinishedError("The graph came to no answer: `output` returned None.")
            return answer
        if (answer := state.get("structured_response")) is not None:
            return answer
        last = convert_to_messages(state["messages"])[-1]
        if last.id == prompt.id:
            raise UnfinishedError("The graph came to no answer: it added no message after the prompt.")
        return last.text

    async def _checkpoint(self, run: RunContext) -> dict[str, Any] | None:
        """Checkpoint at the end of the version to revise; None if it doesn't exist, or no longer."""
        memo = None if run.base is None else run.base.memo
        if not isinstance(memo, dict) or "checkpoint_id" not in memo or not self.graph.checkpointer:
            return None
        place = cast("dict[str, Any]", memo)
        snapshot = await self.graph.aget_state({"configurable": place})
        return place if snapshot.values else None

    async def _run(self, messages: list[BaseMessage], final: FinalState, calls: GraphCalls) -> None:
        version = step_context.get().text
        config = merge_configs(self.config, {"configurable": final.place, "callbacks": [calls]})
        modes = ["values", "checkpoints"]
        if version is not None or self.on_event is not None:
            modes += ["messages", "updates", "custom"]
        texts: dict[str | None, Any] = {}  # of each model call
        streamed = self.graph.astream({"messages": messages}, config, context=self.context, stream_mode=modes)
        async for mode, data in streamed:
            if self.on_event is not None:
                self.on_event(mode, data)
            if mode == "values":
                final.values = data
            elif mode == "checkpoints":
                final.place = {
                    key: value
                    for key, value in data["config"]["configurable"].items()
                    if key in ("thread_id", "checkpoint_ns", "checkpoint_id")
                }
            elif mode == "messages" and version is not None and isinstance(data[0], AIMessageChunk):
                chunk = data[0]
                text = texts[chunk.id] = texts.get(chunk.id) or version.begin()
                text.send(chunk.text)


@dataclass(slots=True)
class FinalState:
    """The latest state of a graph."""

    values: dict[str, Any]
    place: dict[str, Any]
    """Thread and checkpoint of the state."""

    @property
    def conversation(self) -> Conversation:
        """The messages so far, as JSON; none if they can't be read."""
        try:
            messages = convert_to_messages(self.values.get("messages", []))
        except Exception:  # noqa: BLE001 (whatever LangChain raises for what a node has written)
            messages = []
        return Conversation(messages_to_dict(messages))


class GraphCalls(BaseCallbackHandler):
    """The model calls of one run of a graph: counts their usage and enforces the budget."""

    raise_error = True  # makes LangChain end the run on an error in this handler
    run_inline = True

    def __init__(self, run_state: RunState, role: ModelRole) -> None:
        self.used = NOTHING_USED
        self.role: ModelRole = role
        self._run_state = run_state
        self._counting = Lock()
        self._over: UnfinishedError | None = None
        self._failed: BaseException | None = None

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 (the signature is LangChain's)
        messages: list[list[BaseMessage]],
        **options: Any,
    ) -> None:
        """Stop before a call if the budget is spent, or too small for what the call sends."""
        if reason := self._run_state.spent(self.role, self.used):
            self._over = UnfinishedError(
                f"The {reason.value.replace('_', ' ')} was spent before the graph came to its answer.",
                reason=reason,
            )
            raise self._over
        if (within := step_context.get().budget) is not None:
            tokens = sum(estimate_tokens(message.text) for several in messages for message in several)
            try:
                within.call(self.role, tokens, None, _priced(options.get("metadata") or {})).check()
            except UnfinishedError as error:
                self._over = error
                raise

    def on_llm_end(self, response: LLMResult, **_options: Any) -> None:
        """Count the usage of a call."""
        replies = [
            getattr(generation, "message", None)
            for generations in response.generations
            for generation in generations
        ]
        used = TokenUsage(requests=1)
        for reply in replies:
            if isinstance(reply, AIMessage) and (usage := reply.usage_metadata):
                cached = usage.get("input_token_details", {}).get("cache_read", 0)
                used += TokenUsage(usage["input_tokens"], usage["output_tokens"], cached)
                metadata = reply.response_metadata
                if (provider := metadata.get("model_provider")) and (model := metadata.get("model_name")):
                    used = ListedModel(provider, model).priced(used)
        with self._counting:  # nodes that are not async run in threads
            self.used += used
        if (within := step_context.get().budget) is not None:
            with within.call(self.role, 0) as call:
                call.used(used)

    def on_llm_error(self, error: BaseException, **_options: Any) -> None:
        """Record that a model failed."""
        self._failed = error

    def failure(self, error: Exception, conversation: Conversation) -> RedraftError:
        """The error that ends the graph's run, with its usage and conversation."""
        error = self._over or error
        if isinstance(error, UnfinishedError):
            error.usage, error.conversation = self.used, conversation
            return error
        if isinstance(error, RedraftError):
            return error
        if error is self._failed:
            status = getattr(error, "status_code", None)
            reason = str(error) or named_error(error)
            return ModelError(f"A model of the graph failed: {reason}", status=status, usage=self.used)
        return UnfinishedError(
            f"The graph came to no answer: {named_error(error)}",
            conversation=conversation,
            usage=self.used,
        )


def _priced(metadata: Mapping[str, Any]) -> ListedModel | None:
    """The priced model of a call by LangChain's metadata; None if its price is unknown."""
    provider, model = metadata.get("ls_provider"), metadata.get("ls_model_name")
    if not (isinstance(provider, str) and isinstance(model, str)):
        return None
    priced = ListedModel(provider, model)
    return None if priced.cost_of(1, 1) is None else priced
