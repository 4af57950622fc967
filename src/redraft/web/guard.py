"""Guard: check the token, the host, the origin and the size of each request to the dashboard."""

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
MIN_TOKEN_LENGTH = 16
"""Fewest characters of a user's token, against brute force."""
READING = frozenset({"GET", "HEAD"})
CHANGING = frozenset({"POST"})
FOR_PROGRAMS = frozenset({"DELETE"})
"""The method that ends a session of MCP, which browsers don't have."""
TOKEN = "token"  # noqa: S105 (the name of a parameter)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 (users choose it deliberately)
_FOR_BROWSERS = (
    "There is no token: open the address that the command printed, which lets one browser in, once, or send "
    "the header Authorization: Bearer TOKEN."
)
_FOR_PROGRAMS = (
    "There is no token: send the header Authorization: Bearer TOKEN with each request. The token is what "
    "REDRAFT_MCP_TOKEN or --token says, or else what `redraft mcp --http` printed when it started."
)
_PUBLIC = re.compile(r"(?i)(?P<scheme>https?)://(?P<host>[^/?#@\s]+)(?=[/?#]|$)")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?")

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
    """The credentials of a running server: tickets, a cookie, and optionally a token.

    A ticket is part of a printed address, so it works once: it is exchanged for the cookie. The token is
    chosen by the user who starts the dashboard, and works until that ends. With `browsers=False`, as for MCP,
    there are neither tickets nor a cookie: each request sends the token. Raises `ConfigError` for a token
    that is too short.
    """

    def __init__(self, token: str | None = None, *, browsers: bool = True) -> None:
        if token is not None and (
            len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()
        ):
            variable = "REDRAFT_UI_TOKEN" if browsers else "REDRAFT_MCP_TOKEN"
            without = "the printed address lets a browser in" if browsers else "one is made and printed"
            raise ConfigError(
                f"The token (--token, {variable}) must have at least {MIN_TOKEN_LENGTH} printable ASCII "
                f"characters. Or leave it out: {without}."
            )
        self.browsers = browsers
        self.cookie = secrets.token_urlsafe(32)
        self._token = token
        self._tickets: set[str] = set()

    def ticket(self) -> str:
        """Create a ticket."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    def redeem(self, token: str) -> bool:
        """Whether this is the token or a ticket; a ticket works once."""
        if self.is_token(token):
            return True
        matches = [ticket for ticket in self._tickets if _same(token, ticket)]
        self._tickets.difference_update(matches)
        return bool(matches)

    def is_token(self, value: str) -> bool:
        """Whether this is the token."""
        return self._token is not None and _same(value, self._token)

    def opens(self, cookie: str | None) -> bool:
        """Whether a browser's cookie is valid."""
        return self.browsers and cookie is not None and _same(cookie, self.cookie)


def _same(value: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(value.encode("utf-8", "surrogatepass"), secret.encode())


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the dashboard, and the Host headers that it admits.

    It admits the names of loopback, `host`, and the host of `public`. If it listens on every interface, it
    also admits any IP address: DNS rebinding needs a name. Raises `ConfigError` for an empty host, which
    sockets take for every interface, and for an invalid `public` URL.
    """

    host: str
    port: int
    public: str = ""
    """The URL of the dashboard behind a proxy; pages of its origin are admitted. Empty without a proxy."""

    def __post_init__(self) -> None:
        """Check the host and the public URL."""
        if not self.host:
            raise ConfigError("The host to listen on is empty; '127.0.0.1' serves this machine only.")
        if self.public and not _PUBLIC.match(self.public):
            raise ConfigError(
                "The setting `dashboard_url` (REDRAFT_DASHBOARD_URL) must begin with http:// or https:// and "
                f"a host, got {self.public!r}."
            )

    @property
    def origin(self) -> str:
        """The origin of the public URL, as browsers send it; empty without one."""
        if (match := _PUBLIC.match(self.public)) is None:
            return ""
        scheme, host = match["scheme"].lower(), match["host"].lower()
        return f"{scheme}://{host.removesuffix(':443' if scheme == 'https' else ':80')}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the dashboard."""
        return _bracketed(self.host) in LOOPBACK

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        host = "127.0.0.1" if self.host in EVERYWHERE else _bracketed(self.host)
        return f"http://{host}:{self.port}/"

    def admits(self, host: str) -> bool:
        """Whether to answer a request with this Host header, port included."""
        is_public = bool(self.public) and host.lower() == self.origin.partition("://")[2]
        return is_public or self._is_own(host)

    def admits_page(self, origin: str) -> bool:
        """Whether a page of this origin may make changes."""
        if self.public and origin.lower() == self.origin:
            return True
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self._is_own(host)

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        # Browsers leave out the default port of a scheme.
        if match is None or int(match["port"] or 80) != self.port:
            return False
        name = match["name"]
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
    """Refuse a request, with a status and a reason."""


def check_host(headers: Headers, address: Address) -> None:
    """Raise `RefusedError` unless a request names a single host, which the address admits."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not address.admits(hosts[0]):
        raise RefusedError(421, f"Unknown host: this server answers at {address.url} only.")


class Guard:
    """ASGI middleware that rejects requests without a token, and cross-site requests.

    A request must name a host that the address admits. If the keys are for browsers, `?token=` is exchanged
    for a cookie that scripts can't read and other sites can't send; programs send `Authorization: Bearer`. A
    change must be JSON and come from a page of this origin, or with a bearer token. No body may be larger
    than 1 MiB, whatever its Content-Length. The headers of every response keep the browser from running or
    loading anything but the app's own files; the nonce for its script and style is in
    `scope["state"]["nonce"]`.
    """

    def __init__(self, app: ASGIApp, keys: Keys, address: Address) -> None:
        self._app, self._keys, self._address = app, keys, address
        self._cookie = f"redraft_{address.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        secured = _SecuredSend(send, nonce)
        try:
            if await self._let_in(scope, receive, secured):
                await self._app(scope, _bounded(receive), secured)
        except RefusedError as refused:
            if secured.started:
                raise
            answer = PlainTextResponse(f"{refused.detail}\n", refused.status_code, {"connection": "close"})
            await answer(scope, receive, secured)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether the app may answer. Raises `RefusedError`, or answers a token with a cookie itself."""
        headers, method = Headers(scope=scope), scope["method"]
        check_host(headers, self._address)
        if method not in READING | CHANGING and (self._keys.browsers or method not in FOR_PROGRAMS):
            raise RefusedError(405, f"Method {method[:20]!r} is not allowed; use GET, HEAD or POST.")
        self._check_origin(headers, method)
        if self._keys.browsers and method == "GET" and (token := _token_in(scope)) is not None:
            await self._exchange(token, scope, receive, send)
            return False
        bearer = _bearer(headers)
        if bearer is None and not self._keys.opens(
            cookie_parser(headers.get("cookie", "")).get(self._cookie)
        ):
            raise RefusedError(401, _FOR_BROWSERS if self._keys.browsers else _FOR_PROGRAMS)
        if bearer is not None and not self._keys.is_token(bearer):
            raise RefusedError(401, "The bearer token is wrong.")
        if method in CHANGING:
            self._check_change(headers, is_program=bearer is not None)
        if _length(headers) > LARGEST_BODY:
            raise RefusedError(413, f"The body is larger than {LARGEST_BODY:,} bytes.")
        return True

    def _check_origin(self, headers: Headers, method: str) -> None:
        """Refuse cross-site requests, except for links from other sites."""
        origins = headers.getlist("origin")
        if len(origins) > 1 or any(not self._address.admits_page(origin) for origin in origins):
            raise RefusedError(403, "The request comes from a page of another site.")
        site = headers.get("sec-fetch-site", "none")
        is_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not is_link:
            raise RefusedError(403, "The request comes from a page of another site.")

    def _check_change(self, headers: Headers, *, is_program: bool) -> None:
        if not is_program and "origin" not in headers:
            raise RefusedError(403, "A request that makes a change needs the header Origin.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(
                415, "A request that makes a change must have the content type application/json."
            )

    async def _exchange(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Exchange a token for the cookie, and redirect to the same page without the token."""
        if not self._keys.redeem(token):
            raise RefusedError(
                401,
                "This address has been used, or belongs to another dashboard: restart `redraft ui`.",
            )
        query = [pair for pair in _query(scope) if pair[0] != TOKEN]
        # A path such as "//host" would lead to another site.
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(f"{path}{'?' * bool(query)}{urlencode(query)}", 303)
        answer.set_cookie(self._cookie, self._keys.cookie, httponly=True, samesite="strict", path="/")
        await answer(scope, receive, send)


class _SecuredSend:
    """Adds the security headers to a response."""

    def __init__(self, send: Send, nonce: str) -> None:
        self._send, self._nonce = send, nonce
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers["content-security-policy"] = POLICY.format(nonce=self._nonce)
        await self._send(message)


def _bounded(receive: Receive) -> Receive:
    """Limit the size of a body as it arrives, whatever its Content-Length."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise RefusedError(413, f"The body is larger than {LARGEST_BODY:,} bytes.")
        return message

    return bounded


def _length(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise RefusedError(400, "The header Content-Length is not a number.")
    return int(length[:20])


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _token_in(scope: Scope) -> str | None:
    return next((value for name, value in _query(scope) if name == TOKEN), None)
