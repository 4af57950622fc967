"""A server on the loopback that speaks OpenAI's protocol, badly where it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic


class Server(ThreadingHTTPServer):
    """Answer each request with the next of `answers`: status, headers, and a text, JSON or a `Stream`.

    `asked` has the path and the body of each request, `headers` its headers by their name in small letters.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked, self.headers, self.released = [], [], [], threading.Event()


@contextmanager
def serving(monkeypatch):
    """Start a server, and send the calls of OpenAI's client to it."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    try:
        yield server
    finally:  # a test that fails must not wait for the server's thread
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        status, headers, answer = self.server.answers.pop(0)
        if status is None:
            self.server.released.wait(60)
            self.close_connection = True
            return
        if isinstance(answer, Stream | Events):
            self.send_stream(answer)
            return
        data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": len(data),
            **headers,
        }.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def send_stream(self, answer):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = [f"{answer.name_of(event)}data: {event}\n\n".encode() for event in answer.events()]
        if answer.start:
            first = answer.start + (lines[0] if lines else b"")
            lines[:1] = filter(None, (first[: answer.cut], first[answer.cut :]))
        for line in lines:
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            except BrokenPipeError:  # the client has read enough
                self.close_connection = True
                return
            answer.sent.append(monotonic())
        if answer.ending == "hangs":
            self.server.released.wait(60)
        self.close_connection = True
        if answer.ending not in ("hangs", "drops"):
            with suppress(BrokenPipeError):
                self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


@dataclass
class Stream:
    """A reply in pieces, and how it ends.

    `done` ends as it should; `silent` without usage; `cut` without a reason and usage; `drops` the
    connection; `hangs`; `garbage` and `error` come instead of the end. `sent` are the times of the pieces.
    `start` comes before everything; its first `cut` bytes are a chunk of their own.
    """

    pieces: Sequence[str]
    ending: str = "done"
    sent: list[float] = field(default_factory=list)
    start: bytes = b""
    cut: int = 0

    def name_of(self, _event):
        return ""

    def events(self):
        for text in self.pieces:
            yield chunk({"delta": {"role": "assistant", "content": text}, "finish_reason": None})
        if self.ending in ("done", "silent"):
            yield chunk({"delta": {}, "finish_reason": "stop"})
        if self.ending == "done":
            yield chunk(usage=completion()["usage"])
        if self.ending in ("done", "silent"):
            yield "[DONE]"
        if self.ending == "garbage":
            yield "{not JSON"
        if self.ending == "error":
            yield json.dumps({"error": {"message": "overloaded", "type": "server_error", "code": 503}})


@dataclass
class Events:
    """A stream of events as they are, each a dict or a text; `named` also sends their types."""

    listed: Sequence[dict | str]
    ending: str = "done"
    named: bool = False
    sent: list[float] = field(default_factory=list)
    start: bytes = b""
    cut: int = 0

    def events(self):
        return [event if isinstance(event, str) else json.dumps(event) for event in self.listed]

    def name_of(self, event):
        return f"event: {json.loads(event)['type']}\n" if self.named else ""


def chunk(choice=None, **more):
    choices = [] if choice is None else [{"index": 0, **choice}]
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini-2024-07-18"}
    return json.dumps({**head, "choices": choices, **more})


def completion(text="hello", **choice):
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }


def asking(name, call_id="call-1", **arguments):
    """A completion that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return completion(message=message, finish_reason="tool_calls")
