import asyncio

import pytest

from redraft.errors import ConfigError
from redraft.web.guard import HEADERS, LARGEST_BODY, MIN_TOKEN_LENGTH, Address, Guard, Keys
from support.dashboards import TOKEN

HOST = "127.0.0.1:8765"
ORIGIN = f"http://{HOST}"
COOKIE, BEARER = object(), {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json"}


async def echo(scope, receive, send):
    """An app that reads the whole body and says how long it is."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def ask(
    *headers,
    method="GET",
    path="/runs",
    query="",
    body=(b"",),
    host=HOST,
    address=None,
    kind="http",
    keys=None,
):
    """Send a request to a guarded app; return the status, the headers and the body of the answer."""
    keys = keys or Keys(TOKEN)
    given = [("host", host)] if isinstance(host, str) else [("host", one) for one in host]
    for header in headers:
        given += [("cookie", f"redraft_8765={keys.cookie}")] if header is COOKIE else list(header.items())
    scope = {
        "type": kind, "method": method, "path": path, "raw_path": path.encode(), "scheme": "http",
        "query_string": query.encode("latin-1"), "http_version": "1.1", "server": ("127.0.0.1", 8765),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given],
    }  # fmt: skip
    waiting = [{"type": "http.request", "body": one, "more_body": True} for one in body]
    waiting[-1]["more_body"] = False
    sent = []

    async def receive():
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(echo, keys, address or Address("127.0.0.1", 8765))(scope, receive, send))
    if kind == "websocket":
        return sent
    answer = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answer, b"".join(one.get("body", b"") for one in sent[1:])


LARGE = b"x" * (LARGEST_BODY // 4)
POST = {"method": "POST", "path": "/lessons/a/approve"}
FLOOD = POST | {"body": (LARGE,) * 5}
VISIT = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 (nothing listens)
TRIES = {
    # Who holds a key gets in.
    "cookie": (200, (COOKIE,), {}),
    "bearer": (200, (BEARER,), {}),
    "head": (200, (COOKIE,), {"method": "HEAD"}),
    "localhost": (200, (COOKIE,), {"host": "localhost:8765"}),
    "IPv6 loopback": (200, (COOKIE,), {"host": "[::1]:8765"}),
    "a link from elsewhere, with the cookie": (200, (COOKIE, VISIT), {}),
    "change of a page": (200, (COOKIE, JSON, {"origin": ORIGIN, "sec-fetch-site": "same-origin"}), POST),
    "change of a program": (200, (BEARER, JSON), POST),
    "change with a charset": (200, (BEARER, {"content-type": "application/JSON; charset=utf-8"}), POST),
    "largest body": (200, (BEARER, JSON), {**POST, "body": (LARGE,) * 4}),
    # The host, exactly.
    "DNS rebinding": (421, (COOKIE,), {"host": "evil.example:8765"}),
    "another port": (421, (COOKIE,), {"host": "127.0.0.1:8766"}),
    "no port": (421, (COOKIE,), {"host": "127.0.0.1"}),
    "no host": (421, (COOKIE,), {"host": ()}),
    "two hosts": (421, (COOKIE,), {"host": (HOST, "evil.example:8765")}),
    "host with a path": (421, (COOKIE,), {"host": f"{HOST}/evil"}),
    "host with a user": (421, (COOKIE,), {"host": f"{HOST}@evil.example:8765"}),
    "subdomain of localhost": (421, (COOKIE,), {"host": "localhost.evil.example:8765"}),
    "address as a number": (421, (COOKIE,), {"host": "2130706433:8765"}),
    "host of a line break": (421, (COOKIE,), {"host": f"{HOST}\nevil"}),
    "machine's name, on loopback": (421, (COOKIE,), {"host": "myhost:8765"}),
    "another address, on loopback": (421, (COOKIE,), {"host": "10.0.0.1:8765"}),
    # The key.
    "no key": (401, (), {}),
    "empty cookie": (401, ({"cookie": "redraft_8765="},), {}),
    "wrong cookie": (401, ({"cookie": "redraft_8765=wrong"},), {}),
    "cookie of another port": (401, ({"cookie": "redraft_8766=wrong"},), {}),
    "token as cookie": (401, ({"cookie": f"redraft_8765={TOKEN}"},), {}),
    "cookie beyond ASCII": (401, ({"cookie": "redraft_8765=\xe9"},), {}),
    "wrong bearer": (401, ({"authorization": "Bearer wrong"},), {}),
    "wrong bearer with a cookie": (401, (COOKIE, {"authorization": "Bearer wrong"}), {}),
    "empty bearer": (401, ({"authorization": "Bearer "},), {}),
    "basic": (401, ({"authorization": f"Basic {TOKEN}"},), {}),
    "wrong token in the address": (401, (), {"query": "token=wrong"}),
    "empty token in the address": (401, (), {"query": "token="}),
    "token in a post's address": (401, (JSON,), {**POST, "query": f"token={TOKEN}"}),
    # Pages of other sites.
    "foreign origin": (403, (COOKIE, JSON, {"origin": "https://evil.example"}), POST),
    "origin null": (403, (COOKIE, JSON, {"origin": "null"}), POST),
    "https origin": (403, (COOKIE, JSON, {"origin": f"https://{HOST}"}), POST),
    "origin of another port": (403, (COOKIE, JSON, {"origin": "http://127.0.0.1:9"}), POST),
    "origin with a path": (403, (COOKIE, JSON, {"origin": f"{ORIGIN}/x"}), POST),
    "two origins": (403, (COOKIE, JSON, {"origin": ORIGIN}, {"origin": "https://evil.example"}), POST),
    "no origin": (403, (COOKIE, JSON), POST),
    "foreign origin with a bearer": (403, (BEARER, JSON, {"origin": "https://evil.example"}), POST),
    "cross-site fetch": (403, (COOKIE, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}), {}),
    "same-site frame": (403, (COOKIE, {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}), {}),
    "cross-site post by a form": (403, (COOKIE, JSON, VISIT), POST),
    # What is sent.
    "form": (415, (COOKIE, {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}), POST),
    "text": (415, (COOKIE, {"origin": ORIGIN, "content-type": "text/plain"}), POST),
    "no type": (415, (COOKIE, {"origin": ORIGIN}), POST),
    "large, and says so": (413, (BEARER, JSON, {"content-length": str(LARGEST_BODY + 1)}), POST),
    "large, in chunks": (413, (BEARER, JSON, {"transfer-encoding": "chunked"}), FLOOD),
    "larger than it says": (413, (BEARER, JSON, {"content-length": "4"}), FLOOD),
    "length of a word": (400, (BEARER, JSON, {"content-length": "many"}), POST),
    "length below nothing": (400, (BEARER, JSON, {"content-length": "-1"}), POST),
    "length of many digits": (413, (BEARER, JSON, {"content-length": "9" * 5000}), POST),
    "put": (405, (BEARER,), {"method": "PUT"}),
    "delete": (405, (BEARER,), {"method": "DELETE"}),
    "options": (405, (BEARER,), {"method": "OPTIONS"}),
    "trace": (405, (BEARER,), {"method": "TRACE"}),
    "a method of its own": (405, (BEARER,), {"method": "GET\x1b[31m"}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "headers", "request_"), TRIES.values(), ids=TRIES)
def test_requests_with_and_without_a_key(status, headers, request_):
    got, answer, body = ask(*headers, **request_)
    assert got == status, body
    assert HEADERS.items() <= answer.items()
    policy = answer["content-security-policy"]
    assert "unsafe-inline" not in policy
    assert policy.startswith("default-src 'none'")
    assert b"\x1b" not in body
    assert TOKEN.encode() not in body


def test_web_sockets_are_refused():
    assert ask(BEARER, kind="websocket") == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("path", "query", "leads_to"),
    [
        ("/runs", "", "/runs"),
        ("/runs", "status=killed&name=a%26b", "/runs?status=killed&name=a%26b"),
        ("//evil.example/x", "", "/evil.example/x"),
        ("/\\evil.example", "", "/evil.example"),
        ("/x\r\nset-cookie: a=b", "", "/x%0D%0Aset-cookie:%20a=b"),
    ],
)
def test_a_ticket_works_once_and_is_removed_from_the_address(path, query, leads_to):
    keys = Keys()
    ticket = keys.ticket()
    status, answer, _ = ask(path=path, query=f"{query}&token={ticket}".lstrip("&"), keys=keys)
    assert (status, answer["location"]) == (303, leads_to)
    assert answer["set-cookie"] == f"redraft_8765={keys.cookie}; HttpOnly; Path=/; SameSite=strict"
    assert ticket not in str(answer)
    assert ask(query=f"token={ticket}", keys=keys)[0] == 401


def test_each_response_has_a_new_nonce():
    policies = {ask(BEARER)[1]["content-security-policy"] for _ in range(3)}
    assert len(policies) == 3


@pytest.mark.parametrize(
    ("host", "given", "admitted"),
    [
        (EVERYWHERE, "192.168.1.7:80", False),
        (EVERYWHERE, "192.168.1.7:8765", True),
        (EVERYWHERE, "[fe80::1]:8765", True),
        (EVERYWHERE, "evil.example:8765", False),
        ("::", "127.0.0.1:8765", True),
        ("box.example", "box.example:8765", True),
        ("box.example", "BOX.example:8765", True),
        ("box.example", "other.example:8765", False),
        ("::1", "[::1]:8765", True),
    ],
)
def test_allowed_hosts(host, given, admitted):
    assert Address(host, 8765).admits(given) is admitted


@pytest.mark.parametrize(
    ("public", "host", "origin", "status"),
    [
        ("https://box.example", "box.example", "https://box.example", 200),
        ("https://Box.example:443/", "box.example", "https://box.example", 200),
        ("https://box.example:8443/x", "box.example:8443", "https://box.example:8443", 200),
        ("http://box.example", "box.example", "http://box.example", 200),
        ("https://box.example", HOST, f"http://{HOST}", 200),
        ("https://box.example", "evil.example", "https://box.example", 421),
        ("https://box.example", "box.example:8765", "https://box.example", 421),
        ("https://box.example", "box.example", "http://evil.example", 403),
        ("https://box.example", "box.example", "http://box.example", 403),
        ("", "box.example", "https://box.example", 421),
    ],
)
def test_a_dashboard_behind_a_proxy_answers_to_its_public_address(public, host, origin, status):
    address = Address("127.0.0.1", 8765, public)
    change = {"origin": origin, "content-type": "application/json"}
    assert ask(COOKIE, change, method="POST", host=host, address=address)[0] == status


@pytest.mark.parametrize("public", ["box.example", "ftp://box.example", "https://", "https://me@box.example"])
def test_a_public_address_is_a_url(public):
    with pytest.raises(ConfigError, match="dashboard_url"):
        Address("127.0.0.1", 8765, public)


def test_an_empty_host_does_not_listen_everywhere():
    with pytest.raises(ConfigError, match="host to listen on is empty"):
        Address("", 8765)


def test_the_default_port_is_left_out_of_the_host():
    assert Address("127.0.0.1", 80).admits("127.0.0.1")
    for host in ("evil.example", "", "127.0.0.1:", "a b", "127.0.0.1:http"):
        assert not Address("127.0.0.1", 80).admits(host)


@pytest.mark.parametrize("token", ["", "x" * (MIN_TOKEN_LENGTH - 1), "é" * 20, "line\nbreak" * 4])
def test_a_weak_token_is_refused(token):
    with pytest.raises(ConfigError, match="at least 16"):
        Keys(token)
