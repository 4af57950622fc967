"""An HTTP server on loopback, for tests of what goes online: a real socket, in a thread."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Handler(BaseHTTPRequestHandler):
    """Answer a path by the route of the server: a function of the handler, or status, headers and body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        length = int(self.headers.get("content-length", 0))
        self.body = self.rfile.read(length)
        self.server.requests.append(self)
        route = self.server.routes.get(self.path.partition("?")[0], (404, {}, b"nothing here"))
        if callable(route):
            route(self)
        else:
            self.reply(*route)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 (the names that http.server asks for)

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        """Say nothing of clients that went away: that is what some tests are about."""


@contextmanager
def serving(routes):
    """Serve routes; yields the server, which has a `url` and the `requests` that came."""
    server = Server(("127.0.0.1", 0), Handler)
    server.routes, server.requests = routes, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def of_json(value, status=200):
    """A route that answers with JSON."""
    return status, {"content-type": "application/json"}, json.dumps(value).encode()


def of_text(text, kind="text/plain", status=200):
    return status, {"content-type": kind}, text if isinstance(text, bytes) else text.encode()


def redirect(to, status=302):
    return status, {"location": to}, b""
