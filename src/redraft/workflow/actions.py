"""Actions: `llm.call`, `http.request`, the table of built-in actions, and the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redraft._steps import Retry, answer
from redraft._validation import check_name
from redraft.errors import ConfigError, OutputError
from redraft.http import HttpRequest, fetch, host_of
from redraft.protocols import ChatRequest, Message
from redraft.types import joined
from redraft.workflow.approval import approve_action
from redraft.workflow.loop import correct_action, loop_action
from redraft.workflow.runtime import SCHEMA, ActionResult, as_template_text, read_params
from redraft.workflow.spec import (
    APPROVE,
    CORRECT,
    EVALUATE,
    HTTP,
    LLM_CALL,
    LOOP,
    HttpParams,
    LlmParams,
    plain_name,
)
from redraft.workflow.tools import answer_with_tools
from redraft.workflow.verdict import evaluate_action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.types import TokenUsage
    from redraft.workflow.runtime import BuiltIn, Resources, Scope


async def llm_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Send a prompt or messages to a model: its reply as text, or with a schema as the parsed value.

    Raises `ModelError` if the provider failed for good, `OutputError` for a reply that does not follow the
    schema.
    """
    call = read_params(LlmParams, _rendered(params, scope), LLM_CALL, rendered=True)
    model = resources.model_for(call.model, scope)
    if call.tools is not None:
        draft = await answer_with_tools(model, _messages(call), call, resources.tools)
        return _read_reply(draft.output, call, resources, draft.usage)
    request = ChatRequest(_messages(call), call.schema_, call.temperature, call.max_tokens)
    # Transient failures are retried here, so that they don't cost an attempt of a loop.
    reply = await Retry().run(answer, model, request)
    has_data = call.schema_ is not None and reply.parsed is not None
    return _read_reply(reply.parsed if has_data else reply.text, call, resources, reply.usage)


def _read_reply(value: Any, call: LlmParams, resources: Resources, usage: TokenUsage) -> ActionResult:
    """Validate a reply against the call's schema, if it has a schema; raises `OutputError`."""
    if call.schema_ is None:
        return ActionResult(value, usage)
    checked = resources.schema(call.schema_).check(value)
    if not checked.valid:
        wrong = joined(problem.message for problem in checked.errors)
        raise OutputError(f"The reply does not follow the schema: {wrong}", usage=usage)
    return ActionResult(checked.value, usage)


def _messages(call: LlmParams) -> tuple[Message, ...]:
    if (call.prompt is None) == (call.messages is None):
        raise ConfigError("llm.call: give either 'prompt' or 'messages'.")
    system = (Message("system", call.system),) if call.system else ()
    if call.messages is None:
        return (*system, Message("user", str(call.prompt)))
    return (*system, *(Message(turn.role, turn.content) for turn in call.messages))


def _rendered(params: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Render the parameters of `llm.call`, except its schema."""

    def render(key: str, value: Any) -> Any:
        if key == SCHEMA:
            return value
        if key in ("prompt", "system", "content") and isinstance(value, str):
            return scope.text(value)  # always text: a single expression could have another type
        if key == "messages" and isinstance(value, list):
            return [_rendered(message, scope) for message in cast("list[Any]", value)]
        return scope.render(value)

    return {key: render(key, value) for key, value in params.items()}


async def http_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Send a request to a host that the file lists: the data of its reply, or None if that is empty.

    Raises `OutputError` for a status of 400 and above, and the other errors of `redraft.http.fetch`.
    """
    rendered = scope.render(params)
    if isinstance(headers := rendered.get("headers"), dict):  # a single expression could be a number
        values = cast("dict[str, Any]", headers).items()
        rendered["headers"] = {name: as_template_text(value) for name, value in values}
    call = read_params(HttpParams, rendered, HTTP, rendered=True)
    check_host(call.url, resources.spec.hosts)
    request = HttpRequest(call.url, call.method, call.headers, call.body, call.timeout)
    return ActionResult(await fetch(request))


def check_host(url: str, hosts: Sequence[str]) -> None:
    """Raise `ConfigError` unless `hosts` (`HOST`, `HOST:PORT` or `*.DOMAIN`) include the URL's host."""
    host, port = host_of(url)
    for allowed in hosts:
        # An IPv6 address has colons of its own, so it is written in brackets.
        parts = re.fullmatch(r"\[?([^\]]+?)\]?(?::(\d+))?", allowed.lower())
        if parts is None:
            continue
        name, allowed_port = parts.groups()
        is_same = host.endswith(name.removeprefix("*")) if name.startswith("*.") else host == name
        if is_same and allowed_port in (None, str(port)):
            return
    listed = f"the file lists {', '.join(map(repr, hosts))}" if hosts else "the file lists none"
    raise ConfigError(f"{HTTP}: the host {host!r} with port {port} is not listed under 'hosts'; {listed}.")


F = TypeVar("F", bound=Callable[..., Any])

ENTRY_POINTS = "redraft.actions"

BUILT_IN: dict[str, BuiltIn] = {
    LLM_CALL: llm_action,
    LOOP: loop_action,
    EVALUATE: evaluate_action,
    CORRECT: correct_action,
    HTTP: http_action,
    APPROVE: approve_action,
}

_registered: dict[str, Callable[..., Any]] = {}


def action(name: str) -> Callable[[F], F]:
    """Register a function as an action for all workflows of this process.

    It is called as `fn(state=..., **params)`, may be async, and returns plain JSON data. Raises `ConfigError`
    for the name of a built-in action.
    """
    check_name("The name of an action", name)
    if plain_name(name) in BUILT_IN:
        raise ConfigError(f"The action {name!r} is built in; give yours another name.")

    def register(fn: F) -> F:
        _registered[name] = fn
        return fn

    return register


def own_actions(actions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any] | EntryPoint]:
    """The user's own actions by name: `actions`, else registered ones, else those of installed packages."""
    own = {plain_name(name): fn for name, fn in {**_registered, **actions}.items()}
    return {**_entry_points(), **own}


@lru_cache(maxsize=1)  # listing entry points reads the metadata of every installed package
def _entry_points() -> dict[str, EntryPoint]:
    """The actions of installed packages; the names of built-in actions are ignored."""
    points = {plain_name(point.name): point for point in entry_points(group=ENTRY_POINTS)}
    return {name: point for name, point in points.items() if name not in BUILT_IN}
