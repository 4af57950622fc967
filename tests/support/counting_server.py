"""A server of models on loopback that counts what is spent."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from redraft._texts import estimate_tokens
from support.openai_server import completion

INPUT_USD, OUTPUT_USD = 0.15e-6, 0.6e-6  # of gpt-4o-mini
VERDICT = {"criteria": {"clarity": {"reason": "so", "score": 0.5}}, "issues": [], "suggestions": []}


class Provider(ThreadingHTTPServer):
    """A provider of models whose replies take `wanted` output tokens, unless their limit is lower.

    `most` is the highest limit that the model accepts. A server that `ignores` limits sends everything, and
    one that is `silent` reports no usage. `usage` and `error` have, for each request, the tokens of input and
    output, and how many more input tokens there were than estimated.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.wanted, self.most = lambda: 100, 10**9
        self.ignores = self.silent = False
        self.usage, self.error, self.limits, self.lock = [], [], [], threading.Lock()

    def answer(self, body):
        text = "".join(str(message["content"]) for message in body["messages"])
        estimate = sum(estimate_tokens(str(message["content"])) for message in body["messages"])
        given = round(1.2 * estimate) + 3
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        with self.lock:
            self.limits.append(limit)
            if limit is not None and limit > self.most:
                message = f"max_tokens is too large: {limit}. This model supports at most {self.most}."
                return 400, {"error": {"message": message, "type": "invalid_request_error"}}
            wanted = self.wanted()
            size = wanted if limit is None or self.ignores else min(limit, wanted)
            self.usage.append((given, size))
            self.error.append(given - estimate)
        is_judge = "clarity" in text and "response_format" in body
        whole = json.dumps(VERDICT) if is_judge else f"draft {len(self.usage)} " + "word " * wanted
        reply = completion(whole if size == wanted else whole[: size * 4])
        reply["choices"][0]["finish_reason"] = "stop" if size == wanted else "length"
        reply["model"] = body["model"]
        reply["usage"] = {"prompt_tokens": given, "completion_tokens": size, "total_tokens": given + size}
        if self.silent:
            del reply["usage"]
        return 200, reply

    @property
    def tokens(self):
        return sum(given + size for given, size in self.usage)

    @property
    def usd(self):
        return sum(given * INPUT_USD + size * OUTPUT_USD for given, size in self.usage)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.server.answer(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def provider(monkeypatch):
    server = Provider()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    try:
        yield server
    finally:  # as in `openai_server`
        server.shutdown()
        thread.join()
        server.server_close()
