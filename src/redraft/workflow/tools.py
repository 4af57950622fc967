"""Tools that a model calls: Python functions in the workflow's folder, and the tools of MCP servers."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from hashlib import sha256
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from redraft._calls import functions_in, in_daemon_thread
from redraft._codec import describe_error
from redraft._steps import Retry, direct, step_context, step_scope
from redraft._tasks import PATIENCE, end_tasks
from redraft._validation import named_error, nearest
from redraft.errors import ConfigError, MissingExtraError, UnfinishedError
from redraft.loop.budget import NO_BUDGET, Tally
from redraft.loop.output_type import output_type_of
from redraft.loop.steps import Steps
from redraft.loop.triggers import RunState
from redraft.models.fallback import providers_of
from redraft.models.provider import messages_of
from redraft.protocols import Attempt, ChatRequest, Message, RunContext
from redraft.redact.log import logger
from redraft.text.templates import template
from redraft.types import PlainTask
from redraft.workflow.spec import ToolServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Self, TextIO

    from mcp import Client
    from pydantic_ai.tools import Tool

    from redraft.protocols import ChatModel, Step
    from redraft.types import Draft
    from redraft.workflow.spec import LlmParams

P = ParamSpec("P")
R = TypeVar("R")

FUNCTIONS = "functions.py"
"""The file in a workflow's folder whose public functions are tools."""


@dataclass(slots=True)
class Tools:
    """The tools of one run: functions, and MCP servers, each started when it is first needed.

    An async context manager, which stops the servers that were started. Each server has a task of its own,
    since it has to be stopped in the task that started it.
    """

    servers: Mapping[str, ToolServer] = field(default_factory=dict[str, ToolServer])
    folder: Path | None = None
    """The folder with `functions.py`."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The environment variables that the file lists."""
    results: Mapping[str, Any] | None = None
    """Results of tools by name, in a test: then no server is started."""
    _started: dict[str, _Connection] = field(init=False, default_factory=dict[str, "_Connection"])
    _connections: list[_Connection] = field(init=False, default_factory=list["_Connection"])

    def check(self, name: str) -> None:
        """Raise `ConfigError` unless the function or the server exists; a server's tools are not checked."""
        server, _, tool = name.partition(".")
        if server in self.servers:
            if self.results is None and find_spec("mcp") is None:
                raise MissingExtraError(f"The MCP server {server!r}", "mcp")
        elif tool or name not in self.functions():
            hint = nearest(name, [*self.functions(), *self.servers])
            raise ConfigError(
                f"unknown tool {name!r}; give a function of {FUNCTIONS} next to the file, the name of a "
                f"server under 'mcp' for all its tools, or SERVER.TOOL for one; {hint}"
            )

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The public functions of `functions.py`, by name; raises `ConfigError` if it can't be loaded."""
        path = None if self.folder is None else self.folder / FUNCTIONS
        if path is None or not path.is_file():
            return {}
        return _loaded(path, path.stat().st_mtime_ns)

    async def named(self, names: Sequence[str]) -> list[Callable[..., Any] | Tool[Any]]:
        """The tools of these names: functions, tools of a server (`SERVER.TOOL`), or all tools of a server.

        Raises `ConfigError` for an unknown name and for a program that can't be started, `UnfinishedError`
        for a server that does not answer or ends.
        """
        tools: list[Callable[..., Any] | Tool[Any]] = []
        for name in names:
            server, _, tool = name.partition(".")
            self.check(name)
            if self.results is not None and (stand_ins := self._stand_ins(name)):
                tools += stand_ins
                continue
            if server not in self.servers:
                tools.append(_abandonable(self.functions()[name]))
                continue
            offered = await self._tools_of(server)
            if tool and tool not in offered:
                raise ConfigError(f"The MCP server {server!r} has no tool {tool!r}; {nearest(tool, offered)}")
            tools += [offered[tool]] if tool else offered.values()
        return tools

    def _stand_ins(self, name: str) -> list[Tool[Any]]:
        """Tools that return the test's results, in place of a function, a server, or a tool of a server."""
        from pydantic_ai.tools import Tool  # noqa: PLC0415 (0.3 s, on first use)

        results, functions = self.results or {}, self.functions()
        server, _, tool_of_server = name.partition(".")
        if server not in self.servers:
            names = [name] if name in results else []
        else:
            names = [tool_of_server] if tool_of_server else [key for key in results if key not in functions]

        def tool(name: str) -> Tool[Any]:
            def call(**_arguments: Any) -> Any:
                if name not in results:
                    raise ConfigError(f"There is no result for the tool {name!r}; add it under 'tools'.")
                return results[name]

            return Tool.from_schema(call, name, "", {"type": "object", "additionalProperties": True})

        return [tool(name) for name in names]

    async def _tools_of(self, server: str) -> dict[str, Tool[Any]]:
        if self.results is not None:
            return {}
        connection = self._started.get(server)
        if connection is None or connection.is_broken:
            self._started[server] = connection = _Connection(server, self.servers[server], self.env)
            self._connections.append(connection)
        return await connection.tools()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for connection in self._connections:
            await connection.close()


def _abandonable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a sync function in a daemon thread, so that it can't keep the process alive if it hangs."""
    if iscoroutinefunction(function):
        return function

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await in_daemon_thread(function, *args, **kwargs)

    return call


@lru_cache(maxsize=64)  # until the file changes
def _loaded(path: Path, _changed: int) -> dict[str, Callable[..., Any]]:
    return functions_in(path)


class _Connection:
    """A connection to an MCP server, open until `close` is called."""

    def __init__(self, name: str, server: ToolServer, env: Mapping[str, str]) -> None:
        self.is_broken = False
        """Whether a call has failed; a broken connection can't be used any more."""
        self._name, self._server, self._env = name, server, env
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (`close` closes it)
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve())

    async def tools(self) -> dict[str, Tool[Any]]:
        """The server's tools by name.

        Raises `ConfigError` for a program that can't be started, `UnfinishedError` for any other failure.
        """
        listed: list[Any] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self._server.timeout):
                client = await asyncio.shield(self._client)
            while True:
                page = await client.list_tools(cursor=cursor)
                listed += page.tools
                cursor = page.next_cursor
                if not cursor:
                    return {tool.name: self._tool(client, tool) for tool in listed}
        except Exception as error:  # transports raise errors of many types, also in groups
            raise self._failure(error) from error

    def _tool(self, client: Client, tool: Any) -> Tool[Any]:
        from pydantic_ai.exceptions import ToolFailed  # noqa: PLC0415 (0.3 s, on first use)
        from pydantic_ai.tools import Tool  # noqa: PLC0415 (as above)

        async def call(**arguments: Any) -> Any:
            try:
                result = await client.call_tool(
                    tool.name, arguments, read_timeout_seconds=self._server.timeout
                )
            except Exception as error:  # as above
                raise ToolFailed(str(self._failure(error))) from error
            text = "\n".join(getattr(part, "text", f"[{part.type}]") for part in result.content)
            if result.is_error:
                raise ToolFailed(text)
            return text if result.structured_content is None else result.structured_content

        return Tool.from_schema(call, tool.name, tool.description or "", tool.input_schema)

    async def _serve(self) -> None:
        from mcp import Client  # noqa: PLC0415 (0.8 s, on first use)

        try:
            async with AsyncExitStack() as stack:
                transport = await self._transport(stack, self._errors)
                client = Client(transport, read_timeout_seconds=self._server.timeout)
                self._client.set_result(await stack.enter_async_context(client))
                await self._closing.wait()
        except Exception as error:
            if self._client.done():
                raise
            self._client.set_exception(error)

    async def _transport(self, stack: AsyncExitStack, errors: TextIO) -> Any:
        from mcp import StdioServerParameters, stdio_client  # noqa: PLC0415 (as above)

        server = self._server
        if server.command is not None:
            program, *arguments = server.command
            variables = {name: self._env[name] for name in server.env if name in self._env}
            return stdio_client(StdioServerParameters(command=program, args=arguments, env=variables), errors)
        from httpx2 import AsyncClient  # noqa: PLC0415 (as above)
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 (as above)

        headers = {
            name: str(template(text).render({"env": self._env})) for name, text in server.headers.items()
        }
        http = await stack.enter_async_context(AsyncClient(headers=headers, timeout=server.timeout))
        return streamable_http_client(str(server.url), http_client=http)

    def _failure(self, error: Any) -> ConfigError | UnfinishedError:
        """The exception to raise for an error of the connection, with the last line that the server wrote."""
        from mcp_types import REQUEST_TIMEOUT  # noqa: PLC0415 (as above)

        self.is_broken = True
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[Any]", error).exceptions[0]
        self._errors.seek(0)
        last_line = self._errors.read().strip().splitlines()[-1:]
        output = f"; it wrote: {last_line[0]}" if last_line else ""
        if isinstance(error, TimeoutError) or getattr(error, "code", None) == REQUEST_TIMEOUT:
            what = f"did not answer within {self._server.timeout:g} s"
        else:
            what = f"can't be used: {named_error(error)}"
        # A program that can't be started is a mistake in the file; other failures may be temporary.
        is_mistake = isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)
        kind = ConfigError if is_mistake else UnfinishedError
        return kind(f"The MCP server {self._name!r} {what}{output}")

    async def close(self) -> None:
        """Stop the server, if it runs."""
        self._closing.set()
        if self._client.done():  # otherwise it is still being started
            await asyncio.wait([self._task], timeout=PATIENCE)
        unended = await end_tasks([self._task])
        self._errors.close()
        if not unended and not self._task.cancelled() and (error := self._task.exception()) is not None:
            logger.warning(
                "The MCP server %r did not shut down cleanly: %s", self._name, describe_error(error)
            )


def can_call_tools(model: ChatModel) -> bool:
    """Whether a model can call tools: models of providers can, through Pydantic AI."""
    return bool(providers_of(model))


async def answer_with_tools(
    model: ChatModel, messages: Sequence[Message], call: LlmParams, tools: Tools
) -> Draft:
    """Answer messages with a model that calls tools, in at most `max_steps` replies.

    Each reply and each call is a step of its own within the step of the node, so that a resumed run does not
    repeat it. Raises `ModelError`, `ConfigError`, and `UnfinishedError` if the model does not come to an
    answer.
    """
    from pydantic_ai.usage import UsageLimits  # noqa: PLC0415 (0.3 s, on first use)

    from redraft.loop.tool_agent import ToolAgent  # noqa: PLC0415 (as above)

    system = "\n\n".join(message.content for message in messages if message.role == "system")
    *earlier, last = (message for message in messages if message.role != "system")
    kind = None if call.schema_ is None else output_type_of(call.schema_)
    agent = replace(
        ToolAgent.with_tools(model, system, await tools.named(call.tools or ()), kind),
        history=messages_of(ChatRequest(tuple(earlier))),
        limits=UsageLimits(request_limit=call.max_steps),
    )
    state = RunState()  # outside of a run, without a budget of its own
    state.attach(Steps(direct, Tally(NO_BUDGET), Retry()), {})
    attempt = Attempt(temperature=call.temperature)
    run = RunContext(PlainTask(last.content), "", attempt=attempt, state=state)
    content = json.dumps([[message.role, message.content] for message in messages] + list(call.tools or ()))
    step = _prefixed_step(step_context.get().step, sha256(content.encode()).hexdigest()[:8])
    with step_scope(step=step):
        return await agent.complete(last.content, None, run)


def _prefixed_step(step: Step, prefix: str) -> Step:
    """Put a prefix before the names of steps, since one step of a loop may contain two conversations."""
    if step is direct:
        return step

    @wraps(step, (), ())
    async def prefixed(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return await step(f"{prefix} {name}", returns, fn, *args, **kwargs)

    return prefixed
