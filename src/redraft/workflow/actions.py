"""Actions: llm.call, the table of built-in ones, and the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._steps import Retry, answer, direct, retried
from redraft.errors import ConfigError, OutputError
from redraft.protocols import ChatReply, ChatRequest, Message
from redraft.workflow.loop import correct_action, loop_action
from redraft.workflow.scope import Made, parsed
from redraft.workflow.spec import CORRECT, EVALUATE, LLM_CALL, LOOP, LlmParams, plain_name
from redraft.workflow.verdict import evaluate_action

if TYPE_CHECKING:
    from redraft.protocols import ChatModel
    from redraft.workflow.scope import Bench, BuiltIn, Scope


async def llm_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Answer a prompt or messages; with a schema, return the reply's value.

    Raises `ModelError` if the provider failed for good, `OutputError` for a reply that is empty or does not
    follow the schema.
    """
    given = parsed(LlmParams, params, scope, "llm.call")
    request = ChatRequest(_messages(given), given.schema_, given.temperature, given.max_tokens)
    reply = await patiently(bench.model_for(given.model, scope), request)
    if not reply.text.strip():
        raise OutputError(f"The model {reply.model!r} returned an empty reply.", usage=reply.usage)
    if given.schema_ is None:
        return Made(reply.text, reply.usage, is_reply=True)
    found = bench.schema(given.schema_).check(reply.text if reply.parsed is None else reply.parsed)
    if not found.valid:
        wrong = "; ".join(problem.message for problem in found.errors)
        raise OutputError(f"The reply does not follow the schema: {wrong}", usage=reply.usage)
    return Made(found.value, reply.usage, is_reply=True)


async def patiently(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request; transient failures are retried, so that they don't cost an attempt."""
    step = retried(direct, Retry(), lambda _name, _error, wait: wait)
    return await step("model", ChatReply, answer, model, request)


def _messages(given: LlmParams) -> tuple[Message, ...]:
    if (given.prompt is None) == (given.messages is None):
        raise ConfigError("llm.call: give either 'prompt' or 'messages'.")
    system = (Message("system", given.system),) if given.system else ()
    if given.messages is None:
        return (*system, Message("user", str(given.prompt)))
    if isinstance(given.messages, str):
        raise ConfigError(f"llm.call: messages must be a list of role and content, got {given.messages!r}.")
    return (*system, *(Message(turn.role, turn.content) for turn in given.messages))


F = TypeVar("F", bound=Callable[..., Any])

ENTRY_POINTS = "redraft.actions"

BUILT_IN: dict[str, BuiltIn] = {
    LLM_CALL: llm_action,
    LOOP: loop_action,
    EVALUATE: evaluate_action,
    CORRECT: correct_action,
}

_registered: dict[str, Callable[..., Any]] = {}


def action(name: str) -> Callable[[F], F]:
    """Register an action for all workflows of this process, called as `fn(state=..., **params)`.

    It may be async, and returns plain JSON data. Raises `ConfigError` for the name of a built-in action.
    """
    if plain_name(name) in BUILT_IN:
        raise ConfigError(f"The action {name!r} is built in; give yours another name.")

    def register(fn: F) -> F:
        _registered[name] = fn
        return fn

    return register


def known_actions(given: Mapping[str, Callable[..., Any]] | None = None) -> Mapping[str, Callable[..., Any]]:
    """Return the user's own actions: those given, then those registered, then those of installed packages."""
    own = {plain_name(name): fn for name, fn in {**_registered, **(given or {})}.items()}
    return _Actions(own, _points())


class _Actions(Mapping[str, Callable[..., Any]]):
    """Actions by name; one from a package is imported only if a file names it."""

    def __init__(self, own: Mapping[str, Callable[..., Any]], points: Mapping[str, EntryPoint]) -> None:
        self._own = own
        self._points = points

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._own[name] if name in self._own else _loaded(self._points[name])

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **self._points})

    def __len__(self) -> int:
        return len({**self._own, **self._points})


@lru_cache(maxsize=1)  # looking for them reads the metadata of every package that is installed
def _points() -> dict[str, EntryPoint]:
    """Return the entry points of packages, except those that have the name of a built-in action."""
    points = {plain_name(point.name): point for point in entry_points(group=ENTRY_POINTS)}
    return {name: point for name, point in points.items() if name not in BUILT_IN}


def _loaded(point: EntryPoint) -> Callable[..., Any]:
    package = f" of the package {point.dist.name!r}" if point.dist is not None else ""
    what = f"the action {point.name!r}{package} can't be used: its entry point {point.value!r}"
    try:
        fn = point.load()
    except Exception as error:  # importing a package runs its code, which raises what it likes
        raise ConfigError(f"{what} failed with {type(error).__name__}: {error}") from error
    if not callable(fn):
        raise ConfigError(f"{what} must be a function, got {fn!r:.60}")
    return fn
