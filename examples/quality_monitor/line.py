"""Simulate a production line: serve its status on http://127.0.0.1:8799/status."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STATUS = {"station": "press-2", "batch": "B-204", "defectRate": 8.0, "temperature": 71}


class Line(BaseHTTPRequestHandler):
    """Answer every request with the status of the line."""

    def do_GET(self) -> None:
        """Send the status."""
        body = json.dumps(STATUS).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def server(port: int = 8799) -> ThreadingHTTPServer:
    """Return the server, not started yet; port 0 takes any free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), Line)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        server(int(sys.argv[1]) if len(sys.argv) > 1 else 8799).serve_forever()
