"""Fetch data over HTTP, bounded in size and time."""

from __future__ import annotations

import json
import zlib
from asyncio import timeout, to_thread
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text, shortened
from redraft.cycles.state import plain_data
from redraft.errors import ConfigError, MissingExtraError, OutputError
from redraft.text.characters import visible

if TYPE_CHECKING:
    import ssl

    import httpx2

MOST_BYTES = 10_000_000
MOST_REDIRECTS = 5
SHOWN_BYTES = 2_000
CHARSETS = frozenset({"utf-8", "us-ascii", "ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-16"})
"""Those that are read; some of Python's codecs take for ever on hostile bytes."""
GZIP = zlib.MAX_WBITS | 16
SEE_OTHER = 303
ERRORS = 400


@dataclass(frozen=True, slots=True)
class HttpCall:
    """Say what to send and where; `body` is sent as JSON, None is no body."""

    url: str
    method: str = "GET"
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    seconds: float = 10.0


async def fetched(call: HttpCall) -> Any:
    """Return what a server replies: the JSON data that it says it is, else the text; None for nothing.

    Raises `OutputError` for a status of 400 and above, for more than 10 MB, for JSON or text that can't be
    read, and for a redirect to another host, since headers may hold a key that is for this one;
    `TimeoutError` when the whole has not come within `seconds`, `ConnectionError` when there was no
    connection, `ConfigError` for a URL or header that can't be sent.
    """
    try:
        import httpx2  # noqa: PLC0415 (only an agent that goes online pays for it)
    except ImportError as error:
        raise MissingExtraError("HTTP in an agent file", "cycles") from error

    content = None if call.body is None else json.dumps(plain_data(call.body, "The body")).encode()
    place = _place(call.method, _address(call.url))
    certificates = await to_thread(_certificates)
    try:
        async with timeout(call.seconds), httpx2.AsyncClient(verify=certificates, timeout=None) as client:
            request = client.build_request(
                call.method, call.url, headers=_headers(call.headers, content), content=content
            )
            return await _reply(client, request)
    except TimeoutError as error:
        raise TimeoutError(f"{place}: no whole reply came within {call.seconds:g} s") from error
    except httpx2.TransportError as error:
        raise ConnectionError(f"{place}: {type(error).__name__}: {error}") from error


async def _reply(client: httpx2.AsyncClient, request: httpx2.Request) -> Any:
    """Return the data of the reply, behind the redirects that lead to it."""
    first = request.url
    for _ in range(MOST_REDIRECTS + 1):
        place = _place(request.method, request.url)
        response = await client.send(request, stream=True)
        try:
            if response.next_request is None:
                return await _data(response, place)
            request = _followed(request, response, place)
        finally:
            await response.aclose()
    raise OutputError(f"{_place(request.method, first)}: more than {MOST_REDIRECTS} redirects.")


def _followed(request: httpx2.Request, response: httpx2.Response, place: str) -> httpx2.Request:
    following = response.next_request
    assert following is not None  # noqa: S101 (looked at by the caller)
    here, there = request.url, following.url
    if here.host != there.host or (_origin(here) != _origin(there) and there.scheme != "https"):
        raise OutputError(
            f"{place}: redirected to {_shown(there)!r}; only redirects on the same host are followed."
        )
    if following.method != request.method and response.status_code != SEE_OTHER:
        raise OutputError(
            f"{place}: redirected with {response.status_code}, which makes a {following.method} of it; "
            "give the URL that it is redirected to."
        )
    return following


async def _data(response: httpx2.Response, place: str) -> Any:
    if response.status_code >= ERRORS:
        start = (await _body(response, place, SHOWN_BYTES, whole=False)).decode("utf-8", "replace")
        what = shortened(visible(start), 200)
        raise OutputError(f"{place}: status {response.status_code}{f', {what}' if what else ''}")
    text = _text(await _body(response, place, MOST_BYTES), response, place)
    if not text.strip():
        return None
    kind = response.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return text
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{place}: the reply is no JSON, although it says so: {error}") from error
    return plain_data(value, place)


async def _body(response: httpx2.Response, place: str, most: int, *, whole: bool = True) -> bytes:
    """Return the bytes of a body, unpacked no further than `most`; without `whole` the first so many."""
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise OutputError(f"{place}: the reply is encoded with {encoding!r}; 'gzip' was asked for.")
    unpack = zlib.decompressobj(GZIP).decompress if encoding == "gzip" else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            body += chunk if unpack is None else unpack(chunk, most + 1 - len(body))
        except zlib.error as error:
            raise OutputError(f"{place}: the reply can't be unpacked: {error}") from error
        if len(body) > most:
            if whole:
                raise OutputError(f"{place}: the reply has more than {most:,} bytes.")
            break
    return bytes(body[:most])


def _text(body: bytes, response: httpx2.Response, place: str) -> str:
    charset = (response.charset_encoding or "utf-8").lower()
    if charset not in CHARSETS:
        raise OutputError(f"{place}: the reply is in {charset!r}; expected 'utf-8'.")
    try:
        return body.decode("utf-8-sig" if charset == "utf-8" else charset)
    except UnicodeDecodeError as error:
        raise OutputError(f"{place}: the reply is no text in {charset!r}: {error}") from error


def _headers(given: Mapping[str, Any], content: bytes | None) -> dict[str, str]:
    """Return the headers, by their names in lower case; a message on them never shows a value."""
    headers = {"accept-encoding": "gzip", "accept": "application/json, text/*;q=0.8"}
    if content is not None:
        headers["content-type"] = "application/json"
    for name, value in given.items():
        text = as_text(value).strip()
        if not (text.isascii() and text.isprintable() and name.isascii() and name.isprintable()):
            raise ConfigError(f"The header {name!r} can't be sent: it has characters other than plain ASCII.")
        headers[name.lower()] = text
    headers["accept-encoding"] = "gzip"
    return headers


def _address(url: Any) -> httpx2.URL:
    import httpx2  # noqa: PLC0415 (as above)

    try:
        address = httpx2.URL(url)
    except (httpx2.InvalidURL, TypeError) as error:
        raise ConfigError(f"The URL {shortened(visible(str(url)), 80)!r} is none: {error}") from error
    if address.scheme not in ("http", "https") or not address.host:
        raise ConfigError(f"A URL begins with 'http://' or 'https://' and a host, got {_shown(address)!r}.")
    if address.userinfo:
        raise ConfigError(f"Who asks is said in a header, not in the URL of {address.host!r}.")
    return address


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _shown(url: httpx2.URL) -> str:
    """Return a URL without its query, where keys stand at times."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def _place(method: str, url: httpx2.URL) -> str:
    return f"{method} {_shown(url)}"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _number(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


@lru_cache(maxsize=1)  # reading the certificates takes a third of a second
def _certificates() -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 (as above)

    return httpx2.create_ssl_context()
