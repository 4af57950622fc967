"""HTTP over a real socket, with hostile servers."""

import gzip
import json
import time
import tracemalloc

import pytest

from redraft.errors import ConfigError, OutputError
from redraft.http import HttpRequest, fetch
from support.cycles import run
from support.http_server import of_json, of_text, redirect, serving

BIG = 10_000_001


def gzipped(body):
    return 200, {"content-type": "application/json", "content-encoding": "gzip"}, gzip.compress(body)


def hang(handler):
    time.sleep(0.6)


def dribble(handler):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    for _ in range(12):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def drop(handler):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.close_connection = True


def get(routes, path="/", **call):
    with serving(routes) as server:
        return run(fetch(HttpRequest(server.url + path, **call)))


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (of_json({"rate": 5}), {"rate": 5}),
        (of_json([1, None, "x"]), [1, None, "x"]),
        (of_text('{"a": 1}', "application/vnd.api+json; charset=utf-8"), {"a": 1}),
        (of_text('\ufeff{"a": 1}', "application/json"), {"a": 1}),
        (of_text('{"a": 1}', "text/plain"), '{"a": 1}'),
        (of_text("grün".encode("iso-8859-1"), "text/plain; charset=iso-8859-1"), "grün"),
        (of_text("{{ env.KEY }}"), "{{ env.KEY }}"),
        ((204, {}, b""), None),
        ((200, {}, b'{"no": "type"}'), {"no": "type"}),
        (gzipped(b'{"packed": true}'), {"packed": True}),
        (redirect("/there"), "found"),
    ],
)
def test_replies_are_read_by_their_content_type(reply, value):
    assert get({"/": reply, "/there": of_text("found")}) == value


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (of_text("sorry\x1b[31m", status=500), OutputError, r"status 500, sorry\\x1b\[31m$"),
        (of_json({"why": "x" * 9_000}, 503), OutputError, "status 503, .{150}"),
        (of_text("{", "application/json"), OutputError, "not valid JSON"),
        (of_text("[NaN]", "application/json"), OutputError, "NaN"),
        (of_text("[1e999]", "application/json"), OutputError, "too large"),
        (of_text("[" * 90_000, "application/json"), OutputError, "not valid JSON"),
        (of_text("[" * 150 + "]" * 150, "application/json"), OutputError, "100 levels"),
        (of_text(b"\xff\xfe\x00", "text/plain"), OutputError, "not valid 'utf-8' text"),
        (of_text(b"abc", "text/plain; charset=punycode"), OutputError, "'punycode'"),
        (of_text(b" " * BIG), OutputError, "more than 10,000,000 bytes"),
        ((200, {"content-encoding": "gzip"}, b"not packed"), OutputError, "can't be decompressed"),
        ((200, {"content-encoding": "br"}, b"x"), OutputError, "'br'"),
        (redirect("/"), OutputError, "more than 5 redirects"),
        (redirect("http://localhost:9/?key=s"), OutputError, r"redirected to 'http://localhost:9/'"),
        (redirect("https://localhost:9/"), OutputError, "only redirects on the same host"),
        (redirect("//127.0.0.1:9/"), OutputError, "only redirects on the same host"),
        (redirect("file:///etc/passwd"), OutputError, "redirect"),
        (hang, TimeoutError, "no complete reply within 0.3 s"),
        (dribble, TimeoutError, "within 0.3 s"),
        (drop, ConnectionError, "RemoteProtocolError"),
    ],
)
def test_unusable_replies_name_the_request(reply, error, message):
    with pytest.raises(error, match=message) as raised:
        get({"/": reply}, "/?key=private", seconds=0.3 if callable(reply) else 10)
    assert "127.0.0.1" in str(raised.value)
    assert "private" not in str(raised.value)


def test_decompression_is_bounded():
    bomb = gzipped(b" " * 400_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(OutputError, match="more than 10,000,000 bytes"):
            get({"/": bomb})
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_no_server_is_a_connection_error():
    with pytest.raises(ConnectionError, match="ConnectError"):
        run(fetch(HttpRequest("http://127.0.0.1:1/")))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (HttpRequest("ftp://example.test/x"), "begin with 'http://'"),
        (HttpRequest("/etc/passwd"), "begin with 'http://'"),
        (HttpRequest("file:///etc/passwd"), "begin with 'http://'"),
        (HttpRequest("http://good.test@evil.test/"), "credentials in a header"),
        (HttpRequest("http://[::/"), "Invalid URL"),
        (HttpRequest("http://127.0.0.1:1/", headers={"X-Key": "private\r\nX-Admin: 1"}), "header 'X-Key'"),
        (HttpRequest("http://127.0.0.1:1/", headers={"X-Key": "privaté"}), "header 'X-Key'"),
    ],
)
def test_rejects_unsendable_requests(call, message):
    with pytest.raises(ConfigError, match=message) as raised:
        run(fetch(call))
    assert "privat" not in str(raised.value)


def test_sends_method_headers_and_body():
    with serving({"/": of_json(1), "/moved": redirect("/", 307), "/done": redirect("/", 303)}) as server:
        headers = {"X-Key": " k\n", "Accept-Encoding": "br", "Content-Type": "application/merge-patch+json"}
        call = HttpRequest(server.url + "/moved", "PATCH", headers, {"name": "grün"})
        assert run(fetch(call)) == 1
        sent = server.requests[1]
        assert (sent.command, sent.path) == ("PATCH", "/")
        assert sent.headers["x-key"] == "k"
        assert sent.headers.get_all("accept-encoding") == ["gzip"]
        assert sent.headers["content-type"] == "application/merge-patch+json"
        assert json.loads(sent.body) == {"name": "grün"}
        run(fetch(HttpRequest(server.url + "/done", "POST", body={})))
        assert [request.command for request in server.requests[2:]] == ["POST", "GET"]


def test_a_redirect_does_not_turn_a_post_into_a_get():
    with pytest.raises(OutputError, match="turn it into a GET"):
        get({"/": redirect("/x", 302)}, method="POST", body={})


def test_a_missing_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigError, match=r"redraft\[http\]"):
        run(fetch(HttpRequest("http://127.0.0.1:1/")))
