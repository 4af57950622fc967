"""Guard: who may use the dashboard, from which hosts and pages, and with how large a request."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1024 * 1024
SHORTEST = 16
"""Characters that a token which a person chose must have: who may try for long must not succeed."""
READING = frozenset({"GET", "HEAD"})
CHANGING = frozenset({"POST"})
TOKEN = "token"  # noqa: S105 (the name of a parameter)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 (what a person gives when all may come)
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+):(?P<port>\d{1,5})")

HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types redraft"
)


class Keys:
    """Hold the keys of one running dashboard.

    A ticket stands in an address that is printed, so it is good once; what it is exchanged for is the cookie.
    A token was given by who started the dashboard, and is good as long as it runs. Raises `ConfigError` for a
    token that is too short.
    """

    def __init__(self, token: str | None = None) -> None:
        if token is not None and (len(token) < SHORTEST or not token.isascii() or not token.isprintable()):
            raise ConfigError(
                f"The token (--token, REDRAFT_UI_TOKEN) must have at least {SHORTEST} printable ASCII "
                "characters; leave it out to have one made."
            )
        self.cookie = secrets.token_urlsafe(32)
        self._token = token
        self._tickets: set[str] = set()

    def ticket(self) -> str:
        """Return a new ticket."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    def redeem(self, token: str) -> bool:
        """Say whether this is the token or a ticket, which is used up by it."""
        if self.is_token(token):
            return True
        known = [ticket for ticket in self._tickets if _same(token, ticket)]
        self._tickets.difference_update(known)
        return bool(known)

    def is_token(self, given: str) -> bool:
        """Say whether this is the token that was given."""
        return self._token is not None and _same(given, self._token)

    def opens(self, cookie: str | None) -> bool:
        """Say whether a browser's cookie is the one."""
        return cookie is not None and _same(cookie, self.cookie)


def _same(given: str, known: str) -> bool:
    """Compare without telling by the time it takes how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())


@dataclass(frozen=True, slots=True)
class Door:
    """Say under which hosts the dashboard answers: on loopback its names, else the one that was given.

    Where it listens everywhere, any address in figures is one too: it can't be another's name for this
    machine, which is what a page of somebody else's would need.
    """

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether nobody but this machine gets there."""
        return _bracketed(self.host) in LOOPBACK

    @property
    def url(self) -> str:
        """Where a browser of this machine finds it."""
        host = "127.0.0.1" if self.host in EVERYWHERE else _bracketed(self.host)
        return f"http://{host}:{self.port}/"

    def admits(self, host: str) -> bool:
        """Say whether a Host header, port included, is one of this door."""
        found = _HOST.fullmatch(host.lower())
        if found is None:
            # A browser leaves out the port that a scheme has anyway.
            return self.port == 80 and self.admits(f"{host}:80")  # noqa: PLR2004 (HTTP's)
        if int(found["port"]) != self.port:
            return False
        name = found["name"]
        if name in LOOPBACK or name == _bracketed(self.host.lower()):
            return True
        return self.host in EVERYWHERE and _is_address(name)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class RefusedError(HTTPException):
    """Say with which status a request is turned away, and why."""


class Guard:
    """Wrap an app so that nobody but the holder of a key reaches it, and no page of another site through him.

    A request must name a host of the door, exactly. `?token=` is exchanged for a cookie that no script sees
    and no other site sends; programs send `Authorization: Bearer`. Changes are JSON, come from a page of
    this origin (or with a bearer token), and no body is over 1 MiB, however it is sent. Each answer carries
    headers by which a browser runs and loads nothing but the app's own; the nonce for it is in
    `scope["state"]["nonce"]`.
    """

    def __init__(self, app: ASGIApp, keys: Keys, door: Door) -> None:
        self._app, self._keys, self._door = app, keys, door
        self._cookie = f"redraft_{door.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        answering = _Answering(send, nonce)
        try:
            if await self._let_in(scope, receive, answering):
                await self._app(scope, _bounded(receive), answering)
        except RefusedError as refused:
            if answering.began:
                raise
            answer = PlainTextResponse(f"{refused.detail}\n", refused.status_code, {"connection": "close"})
            await answer(scope, receive, answering)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Say whether the app may answer; raises `RefusedError`, and answers itself to who brings a token."""
        headers, method = Headers(scope=scope), scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._door.admits(hosts[0]):
            raise RefusedError(421, f"This is {self._door.url}, and answers under no other name.")
        if method not in READING | CHANGING:
            raise RefusedError(405, f"{method[:20]!r} is not done here: GET, HEAD and POST are.")
        self._check_origin(headers, method)
        if method == "GET" and (token := _token_in(scope)) is not None:
            await self._exchange(token, scope, receive, send)
            return False
        bearer = _bearer(headers)
        if bearer is None and not self._keys.opens(
            cookie_parser(headers.get("cookie", "")).get(self._cookie)
        ):
            raise RefusedError(
                401, "Open the address that `redraft ui` printed: its token lets this browser in, once."
            )
        if bearer is not None and not self._keys.is_token(bearer):
            raise RefusedError(401, "The bearer token is not that of this dashboard.")
        if method in CHANGING:
            self._check_change(headers, is_program=bearer is not None)
        if _length(headers) > LARGEST_BODY:
            raise RefusedError(413, f"A body of more than {LARGEST_BODY:,} bytes is not read.")
        return True

    def _check_origin(self, headers: Headers, method: str) -> None:
        """Refuse what a page of another site sent."""
        origins = headers.getlist("origin")
        if len(origins) > 1 or any(not self._is_ours(origin) for origin in origins):
            raise RefusedError(403, "The request comes from a page of another site.")
        site = headers.get("sec-fetch-site", "none")
        visit = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not visit:
            raise RefusedError(403, "The request comes from a page of another site.")

    def _is_ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self._door.admits(host)

    def _check_change(self, headers: Headers, *, is_program: bool) -> None:
        if not is_program and "origin" not in headers:
            raise RefusedError(403, "A change must say from which page it comes (the header Origin).")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "A change is sent as application/json.")

    async def _exchange(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a browser a cookie for its token, and lead it to the same page without the token."""
        if not self._keys.redeem(token):
            raise RefusedError(
                401, "This address was used already, or is not of this dashboard: start `redraft ui` anew."
            )
        query = [pair for pair in _query(scope) if pair[0] != TOKEN]
        # From the path alone: "//host" would lead elsewhere.
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(f"{path}{'?' * bool(query)}{urlencode(query)}", 303)
        answer.set_cookie(self._cookie, self._keys.cookie, httponly=True, samesite="strict", path="/")
        await answer(scope, receive, send)


class _Answering:
    """Send an answer with the headers that each one has."""

    def __init__(self, send: Send, nonce: str) -> None:
        self._send, self._nonce = send, nonce
        self.began = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers["content-security-policy"] = POLICY.format(nonce=self._nonce)
        await self._send(message)


def _bounded(receive: Receive) -> Receive:
    """Return what receives a body up to the largest, and refuses the rest, whatever its header said."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise RefusedError(413, f"A body of more than {LARGEST_BODY:,} bytes is not read.")
        return message

    return bounded


def _length(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    if not (given.isascii() and given.isdigit()):
        raise RefusedError(400, "The header Content-Length is no number.")
    return int(given[:20])


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _token_in(scope: Scope) -> str | None:
    return next((value for name, value in _query(scope) if name == TOKEN), None)
