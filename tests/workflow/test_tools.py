"""Tools of models in workflows: functions next to the file, and MCP servers in processes and over HTTP."""

# ruff: noqa: E501 (files on a line)

import asyncio
import socket
import sys
import threading
import time

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from redraft.errors import UnfinishedError, WorkflowError
from redraft.loop.runs import Runs
from redraft.models.provider import ProviderModel
from redraft.stores.sqlite import MemoryStore
from redraft.workflow import Workflow

FUNCTIONS = """\
calls = []

def count(text: str) -> int:
    "Count the words of a text."
    calls.append(text)
    return len(text.split())

def fail():
    raise ValueError("no luck")

def reset():
    calls.clear()

def _private():
    pass
"""
SERVER = """\
import json, sys, time
from pathlib import Path

here = Path(__file__).parent
with (here / "started").open("a") as started:
    started.write("x")
if (here / "silent").exists():
    (here / "silent").unlink()
    time.sleep(60)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    answer = {"error": {"code": -32601, "message": "unknown"}}
    if method == "initialize":
        about = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        answer = {"result": about | {"serverInfo": {"name": "shop", "version": "1"}}}
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("price", "wait")]
        answer = {"result": {"tools": tools}}
    elif method == "tools/call" and params["name"] == "wait":
        print("the shop is closed", file=sys.stderr, flush=True)
        continue
    elif method == "tools/call" and params["arguments"]["name"] == "lamp":
        answer = {"result": {"content": [], "structuredContent": {"result": 24.5}}}
    elif method == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": "no such product"}], "isError": True}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def call(tool, **arguments):
    return ModelResponse([ToolCallPart(tool, arguments)])


def say(text):
    return ModelResponse([TextPart(text)])


def file(folder, tools, *, uses="llm.call", head="", more=""):
    path = folder / "w.yaml"
    path.write_text(
        f"name: w\n{head}\nnodes:\n- name: ask\n  uses: {uses}\n  with: {{model: gpt-4, system: Be kind., "
        f"prompt: How many?, tools: [{tools}]{more}}}\n"
    )
    return path


def workflow(path, *script, keep=False):
    """A workflow whose model replies by this script, and the requests to the model."""
    requests = []

    def answer(messages, info):
        requests.append((messages, [tool.name for tool in info.function_tools]))
        reply = script[len(requests) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply

    model = ProviderModel(FunctionModel(answer))
    return Workflow.from_file(path, models={"gpt-4": model}, keep=keep), requests


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return tmp_path


def results(requests):
    """The results of the tools, in order."""
    return [part.content for messages, _ in requests[1:] for part in messages[-1].parts]


def test_a_model_calls_functions_next_to_the_file(folder):
    made, requests = workflow(
        file(folder, "count, fail"), call("count", text="a b c"), call("fail"), say("3")
    )
    result = made.run_sync()
    assert result.state["ask"] == "3"
    assert result.usage.requests == 3
    assert requests[0][1] == ["count", "fail"]
    assert "Be kind." in str(requests[0][0])
    assert results(requests) == [3, "ValueError: no luck"]


HANGING = """\
import time
from pathlib import Path
from threading import current_thread

def hang(said: str) -> None:
    Path(said).write_text(f"daemon: {current_thread().daemon}")
    time.sleep(30)
"""


def test_a_hanging_tool_is_abandoned(folder):
    (folder / "functions.py").write_text(HANGING)
    path, said = file(folder, "hang"), folder / "said"
    path.write_text(path.read_text().replace("uses:", "timeout: 0.5\n  uses:"))
    made, _ = workflow(path, call("hang", said=str(said)), say("done"))
    with pytest.raises(UnfinishedError, match="time budget"):
        made.run_sync()
    assert said.read_text() == "daemon: True"  # any other thread would be joined at exit


def test_finished_replies_and_calls_are_not_repeated(folder):
    store = MemoryStore()
    path = file(folder, "count")
    made, _ = workflow(path, call("count", text="a"), call("count", text="a b"), OSError("gone"), keep=store)
    with pytest.raises(UnfinishedError, match="gone"):
        made.run_sync(run_id="one")
    steps = asyncio.run(Runs(store).steps("one"))
    assert sum(" tool count " in step.name for step in steps) == 2
    calls = made._resources.tools.functions()["count"].__globals__["calls"]
    assert calls == ["a", "a b"]
    again, requests = workflow(path, say("2"), keep=store)
    result = asyncio.run(again.resume("one"))
    assert result.state["ask"] == "2"
    assert results([None, *requests])[-1] == 2
    assert calls == ["a", "a b"]
    assert result.usage.requests == 3


def test_a_reply_with_tools_follows_its_schema(folder):
    schema = ", schema: {type: object, required: [n], properties: {n: {type: integer}}}"
    made, requests = workflow(
        file(folder, "count", more=schema), call("count", text="a"), call("final_result", n=1)
    )
    assert made.run_sync().state["n"] == 1
    assert len(requests) == 2


def test_the_steps_of_a_model_are_bounded(folder):
    made, requests = workflow(file(folder, "count", more=", max_steps: 2"), *[call("count", text="a")] * 3)
    with pytest.raises(UnfinishedError, match="limit"):
        made.run_sync()
    assert len(requests) == 2


def test_a_generator_has_tools(folder):
    path = folder / "w.yaml"
    path.write_text(
        "nodes:\n- name: n\n  uses: reflection.loop\n  with:\n    generator: {action: llm.call, model: gpt-4, "
        "prompt: '{{ state.what }}', tools: [count]}\n    evaluator: {type: custom, run: 'return output == \"2\"'}\n"
    )
    made, requests = workflow(path, call("count", text="a"), say("1"), call("count", text="a b"), say("2"))
    state = made.run_sync({"what": "Count."}).state
    assert state["success"] is True
    assert [entry["output"] for entry in state["reflection_history"]] == ["1", "2"]
    assert len(requests) == 4


def test_a_model_calls_the_tools_of_a_server_in_a_process(folder):
    (folder / "server.py").write_text(SERVER)
    head = f"mcp: {{shop: {{command: [{sys.executable}, {folder / 'server.py'}]}}}}"
    script = [call("price", name="lamp"), call("price", name="x"), say("24.50")]
    made, requests = workflow(file(folder, "shop, count", head=head), *script)
    assert made.run_sync().state["ask"] == "24.50"
    assert requests[0][1] == ["price", "wait", "count"]
    assert results(requests) == [{"result": 24.5}, "no such product"]


@pytest.fixture
def address():
    import uvicorn
    from mcp.server import MCPServer
    from starlette.responses import PlainTextResponse

    server = MCPServer("shop")

    @server.tool()
    def price(name: str) -> float:
        return 24.5

    inner = server.streamable_http_app()

    async def app(scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != b"Bearer sesame":
            return await PlainTextResponse("no", 401)(scope, receive, send)
        return await inner(scope, receive, send)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        host = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
        thread = threading.Thread(target=host.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not host.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        host.should_exit = True
        thread.join()


def test_a_model_calls_the_tools_of_a_server_over_http(folder, address, monkeypatch):
    head = f"env: [SHOP]\nmcp: {{shop: {{url: '{address}', headers: {{Authorization: 'Bearer {{{{ env.SHOP }}}}'}}}}}}"
    path = file(folder, "shop.price", head=head)
    monkeypatch.setenv("SHOP", "sesame")
    made, requests = workflow(path, call("price", name="lamp"), say("24.50"))
    assert made.run_sync().state["ask"] == "24.50"
    assert results(requests) == [{"result": 24.5}]
    monkeypatch.setenv("SHOP", "wrong")
    made, _ = workflow(path)
    with pytest.raises(UnfinishedError, match="The MCP server 'shop' can't be used") as caught:
        made.run_sync()
    assert "wrong" not in str(caught.value)
    monkeypatch.setenv("SHOP", "sesame")
    made, _ = workflow(file(folder, "shop.prise", head=head))
    with pytest.raises(WorkflowError, match="has no tool 'prise'; did you mean 'price'"):
        made.run_sync()


COMMANDS = {
    "a server that ends": (["sh", "-c", "echo no such shop >&2"], UnfinishedError, "it wrote: no such shop"),
    "a program that is not there": (["/nowhere/server"], WorkflowError, "No such file"),
    "a server that says why": (
        ["sh", "-c", "echo the stock is locked >&2; exec sleep 60"],
        UnfinishedError, "did not answer within 0.5 s; it wrote: the stock is locked",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("command", "kind", "message"), COMMANDS.values(), ids=COMMANDS)
def test_a_server_that_does_not_start_ends_the_node(folder, command, kind, message):
    head = f"mcp: {{shop: {{command: {command}, timeout: 0.5}}}}"
    made, _ = workflow(file(folder, "shop", head=head))
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        made.run_sync()
    assert message in str(caught.value)
    assert "node 'ask'" in f"{caught.value} {getattr(caught.value, '__notes__', '')}"
    assert time.monotonic() - began < 20


def test_retries_restart_a_silent_server_and_the_model_learns_of_a_silent_tool(folder):
    """It waits twice for 1.5 s: with less, a busy machine could not tell a silent server from a slow one."""
    (folder / "server.py").write_text(SERVER)
    (folder / "silent").touch()
    head = f"mcp: {{shop: {{command: [{sys.executable}, {folder / 'server.py'}], timeout: 1.5}}}}"
    path = file(folder, "shop", head=head)
    path.write_text(path.read_text().replace("uses:", "retries: {times: 1, wait: 0}\n  uses:"))
    made, requests = workflow(path, call("wait"), say("Nobody answers."))
    assert made.run_sync().state["ask"] == "Nobody answers."
    assert (folder / "started").read_text() == "xx"
    silent = "The MCP server 'shop' did not answer within 1.5 s; it wrote: the shop is closed"
    assert results(requests) == [silent]
