"""Fake model servers on loopback, which drive the real Claude Code and Codex.

A server speaks Anthropic's Messages API and OpenAI's Responses API. What the model does is a function: it
reads a conversation and returns text, or a call of a tool.
"""

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count


@dataclass(frozen=True)
class Call:
    """A call of a tool by the model."""

    tool: str
    arguments: dict


@dataclass(frozen=True)
class Conversation:
    """A request of the agent: its tools by name, and as JSON all messages and those since the last reply."""

    tools: frozenset[str]
    text: str
    new: str

    @property
    def has_result(self):
        """Whether the new messages hold the result of a tool."""
        return '"tool_result"' in self.new or "call_output" in self.new

    def write(self, path, code):
        """The call that writes a file with the tools that the agent offers."""
        if "Write" in self.tools:
            return Call("Write", {"file_path": str(path), "content": code})
        command = f"cat > {path} <<'END'\n{code}END"
        if "exec_command" in self.tools:
            return Call("exec_command", {"cmd": command})
        return Call("shell_command", {"command": command})


def is_reply(message):
    """Whether a message of either API is the model's."""
    return message.get("role") == "assistant" or message.get("type") == "function_call"


@dataclass
class ModelServer:
    """A server whose model is the function `reply`; it keeps the conversations that a reply was asked for.

    Requests without tools are the agent's own, for a title, for example, and get the text "ok".
    """

    reply: Callable[[Conversation], str | Call]
    conversations: list[Conversation] = field(default_factory=list)
    url: str = ""
    _ids: count = field(default_factory=count)

    def answer(self, tools, messages):
        """The model's reply to a request."""
        replies = [place for place, message in enumerate(messages, 1) if is_reply(message)]
        conversation = Conversation(
            frozenset(filter(None, (tool.get("name") for tool in tools))),
            json.dumps(messages, ensure_ascii=False),
            json.dumps(messages[max(replies, default=0) :], ensure_ascii=False),
        )
        if not conversation.tools:
            return "ok"
        self.conversations.append(conversation)
        return self.reply(conversation)

    def messages(self, body):
        """Yield the events of a reply of the Messages API."""
        said = self.answer(body.get("tools", []), body.get("messages", []))
        number = next(self._ids)
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
        yield {"type": "message_start", "message": message}
        if isinstance(said, Call):
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": said.tool, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": said}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        reason = "tool_use" if isinstance(said, Call) else "end_turn"
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}
        yield {"type": "message_stop"}

    def responses(self, body):
        """Yield the events of a reply of the Responses API."""
        said = self.answer(body.get("tools", []), body.get("input", []))
        number = next(self._ids)
        if isinstance(said, Call):
            arguments = json.dumps(said.arguments)
            item = {
                "type": "function_call",
                "call_id": f"call_{number}",
                "name": said.tool,
                "arguments": arguments,
            }
        else:
            content = [{"type": "output_text", "text": said, "annotations": []}]
            item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
        usage = {
            "input_tokens": 10,
            "input_tokens_details": None,
            "output_tokens": 5,
            "output_tokens_details": None,
            "total_tokens": 15,
        }
        yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
        yield {"type": "response.output_item.done", "item": item}
        yield {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}


@contextmanager
def serving(reply):
    """Yield a server on a free port of loopback, with its address in `url`."""
    model = ModelServer(reply)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            path = self.path.partition("?")[0]
            if path == "/v1/messages/count_tokens":
                self._send(json.dumps({"input_tokens": 100}), "application/json")
            elif path in ("/v1/messages", "/v1/responses"):
                events = model.messages(body) if path == "/v1/messages" else model.responses(body)
                lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
                self._send("".join(lines), "text/event-stream")
            else:
                self._send("{}", "application/json")

        def do_GET(self):
            self._send('{"data": [], "models": []}', "application/json")

        def do_HEAD(self):
            self._send("", "application/json")

        def _send(self, text, content_type):
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield model
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
