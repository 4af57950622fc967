"""HTTP over a real socket, with hostile servers."""

import gzip
import json
import socket
import time
import tracemalloc

import httpx2 as httpx
import pytest

from redraft._validation import is_web_address
from redraft.errors import ConfigError, OutputError
from redraft.http import HttpRequest, _follow, _public_address, fetch
from support.cycles import run
from support.http_server import of_json, of_text, redirect, serving

BIG = 10_000_001


def gzipped(body):
    return 200, {"content-type": "application/json", "content-encoding": "gzip"}, gzip.compress(body)


def gzipped_twice(*parts):
    status, headers, _ = gzipped(b"")
    return status, headers, b"".join(map(gzip.compress, parts))


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
        ((200, {}, b"42"), 42),
        ((200, {}, b"pong"), "pong"),
        ((200, {}, "grün".encode()), "grün"),
        ((200, {}, b'{"a": NaN}'), '{"a": NaN}'),
        ((200, {}, b"[" * 150), "[" * 150),
        ((200, {}, b""), None),
        ((200, {"content-type": ""}, b"pong"), "pong"),
        (of_text('{"a": 1}', 'Application/JSON;Charset="UTF8"'), {"a": 1}),
        (of_text('{"a": 1}', "text/json"), {"a": 1}),
        (of_text('{"a": 1}', "application/json, application/json"), {"a": 1}),
        (of_text('{"a": 1}', " application/json ; charset="), {"a": 1}),
        (of_text('{"a": 1}', "application/x-ndjson"), '{"a": 1}'),
        (of_text("grün", "text/plain;charset=utf8"), "grün"),
        (of_text("grün", "text/plain; CHARSET=Utf_8"), "grün"),
        (of_text("grün", "text/plain; format=flowed; charset='UTF-8'"), "grün"),
        (of_text("grün".encode("iso-8859-1"), "text/plain; charset=Latin1"), "grün"),
        (of_text("grün".encode("cp1252"), "text/plain; charset=cp1252"), "grün"),
        (of_text("grün".encode("utf-16-le"), "text/plain; charset=UTF-16LE"), "grün"),
        (of_text("", "text/plain; charset=punycode"), None),
        (of_text("", "application/json"), None),
        ((204, {"content-encoding": "br"}, b""), None),
        ((200, {"content-encoding": "gzip"}, b""), None),
        ((200, {"content-encoding": "X-Gzip"}, gzip.compress(b"1")), 1),
        ((200, {"content-encoding": "identity, gzip"}, gzip.compress(b"1")), 1),
        ((200, {"content-encoding": ""}, b"1"), 1),
        (gzipped_twice(b"[1,", b" 2]"), [1, 2]),
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
        ((200, {"content-encoding": "gzip, gzip"}, b"x"), OutputError, "'gzip, gzip'"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b"1" * 99)[:-9]), OutputError, "cut off"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b"1")[:9]), OutputError, "cut off"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b"1") + b"?"), OutputError, "decompressed"),
        ((503, {"content-encoding": "br"}, b"x"), OutputError, "status 503$"),
        ((503, {"content-encoding": "gzip"}, b"x"), OutputError, "status 503$"),
        ((200, {}, b"\x89PNG"), OutputError, "not valid 'utf-8' text"),
        (of_text("x", "text/plain; charset=x-odd"), OutputError, "'x-odd'"),
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


HERE = "http://127.0.0.1:1/"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (HttpRequest("ftp://example.test/x"), "begin with 'http://'"),
        (HttpRequest("/etc/passwd"), "begin with 'http://'"),
        (HttpRequest("file:///etc/passwd"), "begin with 'http://'"),
        (HttpRequest("http://good.test@evil.test/"), "credentials in a header"),
        (HttpRequest("http://user:private@evil.test/"), "credentials in a header"),
        (HttpRequest("http://[::/"), "Invalid URL"),
        (HttpRequest("http://:80/"), "begin with 'http://'"),
        (HttpRequest("http:///x"), "begin with 'http://'"),
        (HttpRequest(None), "Invalid URL"),
        (HttpRequest("http://127.0.0.1:0/"), r"must be in 1\.\.65535, got 0"),
        (HttpRequest("http://127.0.0.1:-1/"), r"must be in 1\.\.65535, got -1"),
        (HttpRequest("http://127.0.0.1:70000/"), r"must be in 1\.\.65535, got 70000"),
        (HttpRequest("https://127.0.0.1:99999/"), r"must be in 1\.\.65535, got 99999"),
        (HttpRequest("http://127.0.0.1:x/"), "Invalid URL"),
        (HttpRequest("http://a..b/"), "neither a name nor an address"),
        (HttpRequest("http://.:1/"), "neither a name nor an address"),
        (HttpRequest("http://a b/"), "neither a name nor an address"),
        (HttpRequest("http://%31/"), "neither a name nor an address"),
        (HttpRequest("http://[fe80::1%25eth0]:1/"), "neither a name nor an address"),
        (HttpRequest("http://[fe80::1%eth0]:1/"), "neither a name nor an address"),
        (HttpRequest("http://\ud83d/"), "Invalid URL"),
        (HttpRequest(f"{HERE}\ud83d"), "Invalid URL"),
        (HttpRequest("http://a\nb/"), "Invalid URL"),
        (HttpRequest(HERE, "GE T"), "method 'GE T'"),
        (HttpRequest(HERE, ""), "method ''"),
        (HttpRequest(HERE, "GÉT"), "method 'GÉT'"),
        (HttpRequest(HERE, "CONNECT"), "method 'CONNECT'"),
        (HttpRequest(HERE, headers={"X-Key": "private\r\nX-Admin: 1"}), "header 'X-Key'"),
        (HttpRequest(HERE, headers={"X-Key": "privaté"}), "header 'X-Key'"),
        (HttpRequest(HERE, headers={"X-Key": ["private\n"]}), "header 'X-Key'"),
        (HttpRequest(HERE, headers={"X\n": "private"}), r"header 'X\\n'"),
        (HttpRequest(HERE, headers={"": "private"}), "header ''"),
        (HttpRequest(HERE, headers={"a b": "private"}), "header 'a b'"),
        (HttpRequest(HERE, headers={"a:b": "private"}), "header 'a:b'"),
        *(
            (HttpRequest(HERE, "POST", {name: "5"}, {}), f"header '{name}' can't be set")
            for name in (
                "Content-Length",
                "transfer-encoding",
                "HOST",
                "Connection",
                "Upgrade",
                "Expect",
                "TE",
            )
        ),
    ],
)
def test_rejects_unsendable_requests(call, message):
    with pytest.raises(ConfigError, match=message) as raised:
        run(fetch(call))
    assert "privat" not in str(raised.value)


@pytest.mark.parametrize("port", [0, 70_000])
def test_an_address_with_a_wrong_port_is_found_before_it_is_used(port):
    assert not is_web_address(f"https://example.test:{port}/")


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ("https://127.0.0.1:99999/", "the redirect can't be followed: The port"),
        ("https://127.0.0.1:0/", "the redirect can't be followed: The port"),
        ("https://user:key@127.0.0.1/", "the redirect can't be followed: Put credentials"),
    ],
)
def test_a_redirect_to_an_odd_address_is_an_error(there, message):
    with pytest.raises(OutputError, match=message):
        get({"/": redirect(there)})


KEYS = {
    "Authorization": "Bearer k",
    "Proxy-Authorization": "Basic k",
    "Cookie": "session=k",
    "X-Api-Key": "k",
    "Api-Token": "k",
}


@pytest.mark.parametrize(
    ("there", "is_kept"),
    [
        ("http://h.test/b", True),
        ("http://h.test:80/b", True),
        ("/b", True),
        ("https://h.test/b", False),
        ("https://h.test:8443/b", False),
    ],
)
def test_a_redirect_to_another_origin_gets_no_credentials(there, is_kept):
    sent = []

    def answer(request):
        sent.append(request.headers)
        return httpx.Response(200) if len(sent) > 1 else httpx.Response(307, headers={"location": there})

    async def main():
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, cookies={"theirs": "k"}) as client:
            headers = {**KEYS, "Idempotency-Key": "once", "Content-Type": "text/plain"}
            request = client.build_request("POST", "http://h.test/a", headers=headers, content=b"x")
            await _follow(client, request, is_read=False)

    run(main())
    assert all(name in sent[0] for name in KEYS)
    assert [name in sent[1] for name in KEYS] == [is_kept] * len(KEYS)
    assert (sent[1]["idempotency-key"], sent[1]["content-type"]) == ("once", "text/plain")


# --- addresses that are not public -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # where clouds tell their machines secrets
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 (an address to refuse)
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fec0::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_addresses_that_are_not_public_are_refused_if_settings_say_so(address, monkeypatch):
    monkeypatch.setenv("REDRAFT_HTTP_ADDRESSES", "public")
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ConfigError, match=r"is not public, and the setting `http_addresses` is 'public'"):
        run(fetch(HttpRequest(f"http://{host}:1/")))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
def test_public_addresses_are_not_refused(address):
    assert run(_public_address(address, 1)) == address


@pytest.mark.parametrize("host", ["localhost", "0x7f000001", "2130706433", "127.1"])
def test_alternative_notations_of_an_address_are_refused(host, monkeypatch):
    monkeypatch.setenv("REDRAFT_HTTP_ADDRESSES", "public")
    with pytest.raises(ConfigError, match="is not public"):
        run(fetch(HttpRequest(f"http://{host}:1/")))


def test_the_connection_uses_the_checked_address(monkeypatch):
    """A name may have another address when it is asked for again."""
    monkeypatch.setenv("REDRAFT_HTTP_ADDRESSES", "public")
    monkeypatch.setattr("redraft.http._is_public", lambda address: str(address) == "127.0.0.1")
    asked = []
    with serving({"/": redirect("/there"), "/there": of_text("found")}) as server:
        port = server.server_port

        async def getaddrinfo(_loop, host, port, **_):
            asked.append(host)
            address = "127.0.0.1" if len(asked) < 3 else "10.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", getaddrinfo)
        request = HttpRequest(f"http://rebinding.test:{port}/", headers={"Authorization": "k"})
        assert run(fetch(request)) == "found"
        hosts = [(sent.headers["host"], sent.headers["authorization"]) for sent in server.requests]
        assert hosts == [(f"rebinding.test:{port}", "k")] * 2
        with pytest.raises(ConfigError, match=r"'rebinding.test' has the address '10.0.0.1'"):
            run(fetch(request))
    assert asked == ["rebinding.test"] * 3  # once for each request


def test_an_unknown_value_of_the_setting_is_refused(monkeypatch):
    monkeypatch.setenv("REDRAFT_HTTP_ADDRESSES", "some")
    with pytest.raises(ConfigError, match="must be 'any' or 'public', got 'some'"):
        run(fetch(HttpRequest(HERE)))


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
