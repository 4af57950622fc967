"""HTTP: send a request, and read its reply within bounds."""

from __future__ import annotations

import json
import re
import socket
import zlib
from asyncio import get_running_loop, timeout, to_thread
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import lru_cache
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text, shortened
from redraft._validation import named_error
from redraft.errors import ConfigError, MissingExtraError, OutputError
from redraft.settings import PUBLIC_ADDRESSES, load_settings
from redraft.text.characters import visible
from redraft.text.json import bounded_json, load_json

if TYPE_CHECKING:
    import ssl

    import httpx2

MAX_BYTES = 10_000_000
MAX_REDIRECTS = 5
ERROR_BYTES = 2_000
CHARSETS = ("utf_8", "ascii", "latin_1", "iso8859_15", "cp1252", "utf_16", "utf_16_be", "utf_16_le")
"""An allow-list of Python's codecs, because some of them hang on malicious input."""
JSON_TYPES = ("application/json", "text/json")
GZIP = zlib.MAX_WBITS | 16
LARGEST_PORT = 65_535
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD = re.compile(r"(?!CONNECT$)[A-Za-z]+", re.IGNORECASE)
_CONNECTION_HEADERS = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
"""Headers that follow from the URL and the body, or change how a request is read."""
_HARMLESS_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-length", "content-type", "host", "user-agent"}
    | {"idempotency-key", "webhook-id", "webhook-signature", "webhook-timestamp"}
)
"""Headers that may be sent to another origin. Any other header may be a credential."""
_NAT64 = bytes.fromhex("0064ff9b") + bytes(8)
SEE_OTHER = 303
FIRST_ERROR_STATUS = 400


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request."""

    url: str
    method: str = "GET"
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    """Sent as JSON, or unchanged if it is bytes; None sends no body."""
    seconds: float = 10.0
    """The time limit for the complete reply."""
    is_read: bool = True
    """Whether to read the reply; otherwise only its status matters."""


def require_http(what: str) -> None:
    """Raise `MissingExtraError` unless requests can be sent; `what` names the feature that sends them."""
    if find_spec("httpx2") is None:
        raise MissingExtraError(what, "http")


async def fetch(request: HttpRequest) -> Any:
    """Send a request; return the reply as JSON data if it is JSON, else as text, and None if it is empty.

    Without a Content-Type, a reply that parses as JSON is JSON. Raises `OutputError` for a status of 400 and
    above, more than 10 MB, invalid JSON or text, and a redirect to another host; `TimeoutError` when the
    complete reply has not arrived within `seconds`, `ConnectionError` when there was no connection, and
    `ConfigError` for an invalid URL, method or header, and for an address that the setting `http_addresses`
    refuses. Headers that may be credentials are not sent on a redirect to another port or scheme.
    """
    require_http("An HTTP request")
    import httpx2  # noqa: PLC0415 (0.2 s, on first use)

    content = request.body
    if content is not None and not isinstance(content, bytes):
        content = json.dumps(bounded_json(content, "The body")).encode()
    if not _METHOD.fullmatch(request.method):
        raise ConfigError(f"The method {request.method!r:.50} can't be sent; expected one such as 'GET'.")
    where = _request_line(request.method, _parsed_url(request.url))
    headers = _headers(request.headers, content)
    only_public = load_settings().http_addresses == PUBLIC_ADDRESSES
    certificates = await to_thread(_certificates)
    try:
        transport = _public_transport(certificates) if only_public else None
        async with (
            timeout(request.seconds),
            httpx2.AsyncClient(verify=certificates, timeout=None, transport=transport) as client,
        ):
            built = client.build_request(request.method, request.url, headers=headers, content=content)
            return await _follow(client, built, is_read=request.is_read)
    except TimeoutError as error:
        raise TimeoutError(f"{where}: no complete reply within {request.seconds:g} s") from error
    except httpx2.TransportError as error:
        raise ConnectionError(f"{where}: {named_error(error)}") from error


async def _follow(client: httpx2.AsyncClient, request: httpx2.Request, *, is_read: bool) -> Any:
    """Follow redirects and return the data of the final reply."""
    first = request.url
    for _ in range(MAX_REDIRECTS + 1):
        where = _request_line(request.method, request.url)
        response = await client.send(request, stream=True)
        try:
            if response.next_request is None:
                return await _data(response, where, is_read=is_read)
            request = _redirected(request, response, response.next_request, where)
        finally:
            await response.aclose()
    raise OutputError(f"{_request_line(request.method, first)}: more than {MAX_REDIRECTS} redirects.")


def _public_transport(certificates: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
    """Make a transport that connects to public addresses only, without a proxy.

    A host is resolved only once for a request, so that its address cannot change before the connection.
    """
    import httpx2  # noqa: PLC0415 (as above)

    class PublicTransport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            host = request.url.host
            address = await _public_address(host, request.url.port or 0)
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # with the name of the host
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},  # whose certificate is expected
            )
            return await super().handle_async_request(pinned)

    return PublicTransport(verify=certificates)


async def _public_address(host: str, port: int) -> str:
    """An address of a host; raises `ConfigError` if any of its addresses is not public."""
    try:
        entries = await get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"The host {host!r} can't be resolved: {error}") from error
    addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]
    for address in addresses:
        if not _is_public(address):
            raise ConfigError(
                f"The host {host!r} has the address {str(address)!r}, which is not public, and the setting "
                f"`http_addresses` is {PUBLIC_ADDRESSES!r}."
            )
    return str(addresses[0])


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is public; an IPv6 address that embeds an IPv4 address counts as that address."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
    if address.packed.startswith(_NAT64):
        inner = IPv4Address(address.packed[12:])
    if inner:
        return _is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_site_local


def _redirected(
    request: httpx2.Request, response: httpx2.Response, following: httpx2.Request, where: str
) -> httpx2.Request:
    url, target = request.url, following.url
    is_same_origin = (url.scheme, url.host, url.port) == (target.scheme, target.host, target.port)
    if url.host != target.host or not (is_same_origin or target.scheme == "https"):
        raise OutputError(
            f"{where}: redirected to {_without_query(target)!r}; only redirects on the same host are "
            "followed."
        )
    try:
        _check_url(target)
    except ConfigError as error:
        raise OutputError(f"{where}: the redirect can't be followed: {error}") from error
    if following.method != request.method and response.status_code != SEE_OTHER:
        raise OutputError(
            f"{where}: redirected with {response.status_code}, which would turn it into a "
            f"{following.method}; give the URL that it redirects to."
        )
    if not is_same_origin:
        for name in set(following.headers) - _HARMLESS_HEADERS:
            del following.headers[name]
    return following


async def _data(response: httpx2.Response, where: str, *, is_read: bool) -> Any:
    if response.status_code >= FIRST_ERROR_STATUS:
        beginning = b""
        with suppress(OutputError):  # a body that can't be read must not hide the status
            beginning = await _body(response, where, ERROR_BYTES, truncate=True)
        excerpt = shortened(visible(beginning.decode("utf-8", "replace")), 200)
        raise OutputError(f"{where}: status {response.status_code}{f', {excerpt}' if excerpt else ''}")
    if not is_read:
        return None
    text = _decoded(await _body(response, where, MAX_BYTES), response, where)
    if not text.strip():
        return None
    media_type = re.split("[;,]", response.headers.get("content-type", ""), maxsplit=1)[0].strip().lower()
    if media_type and media_type not in JSON_TYPES and not media_type.endswith("+json"):
        return text
    try:
        value = load_json(text)
    except ValueError as error:
        if not media_type:  # then the data decides
            return text
        raise OutputError(f"{where}: the reply is not valid JSON: {error}") from error
    return bounded_json(value, f"{where}: the reply")


async def _body(response: httpx2.Response, where: str, limit: int, *, truncate: bool = False) -> bytes:
    """Read a body, decompressed up to `limit` bytes."""
    header = response.headers.get("content-encoding", "").lower()
    encodings = [name.strip() for name in header.split(",") if name.strip() not in ("", "identity")]
    is_packed = len(encodings) == 1 and encodings[0] in ("gzip", "x-gzip")
    unpacker, body, is_cut_off = zlib.decompressobj(GZIP), bytearray(), False
    async for chunk in response.aiter_raw():
        if encodings and not is_packed:
            raise OutputError(f"{where}: the reply is encoded with {header!r}; expected 'gzip'.")
        packed = chunk if is_packed else b""
        if not is_packed:
            body += chunk
        while packed and len(body) <= limit:
            if unpacker.eof:  # gzip data may have several parts
                unpacker = zlib.decompressobj(GZIP)
            try:
                body += unpacker.decompress(packed, limit + 1 - len(body))
            except zlib.error as error:
                raise OutputError(f"{where}: the reply can't be decompressed: {error}") from error
            packed, is_cut_off = unpacker.unused_data, not unpacker.eof
        if len(body) > limit:
            if not truncate:
                raise OutputError(f"{where}: the reply has more than {limit:,} bytes.")
            return bytes(body[:limit])
    if is_cut_off:
        raise OutputError(f"{where}: the reply can't be decompressed: it is cut off.")
    return bytes(body)


def _decoded(body: bytes, response: httpx2.Response, where: str) -> str:
    named = (response.charset_encoding or "utf-8") if body else "utf-8"
    charset = normalize_encoding(named).lower()
    charset = aliases.get(charset, charset)
    if charset not in CHARSETS:
        raise OutputError(f"{where}: the reply is in {named!r}; expected 'utf-8'.")
    try:
        return body.decode("utf-8-sig" if charset == "utf_8" else charset)
    except UnicodeDecodeError as error:
        raise OutputError(f"{where}: the reply is not valid {named!r} text: {error}") from error


def _headers(requested: Mapping[str, Any], content: bytes | None) -> dict[str, str]:
    """Check headers, and lower their names. Errors never show a value, which may be a key."""
    headers = {"accept": "application/json, text/*;q=0.8"}
    if content is not None:
        headers["content-type"] = "application/json"
    for name, value in requested.items():
        text = as_text(value).strip()
        if name.strip().lower() in _CONNECTION_HEADERS:
            raise ConfigError(f"The header {name!r} can't be set: it follows from the URL and the body.")
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(
                f"The header {name!r} can't be sent: its name must be letters, digits and hyphens."
            )
        if not (text.isascii() and text.isprintable()):
            raise ConfigError(f"The header {name!r} can't be sent: only printable ASCII is allowed in it.")
        headers[name.lower()] = text
    headers["accept-encoding"] = "gzip"  # the only encoding that is decompressed within bounds
    return headers


def host_of(url: str) -> tuple[str, int | None]:
    """The host of a URL in lower case, and its port; raises `ConfigError` for an invalid URL."""
    require_http("An HTTP request")
    parsed = _parsed_url(url)
    return parsed.host.lower(), parsed.port or {"http": 80, "https": 443}[parsed.scheme]


def _parsed_url(url: Any) -> httpx2.URL:
    import httpx2  # noqa: PLC0415 (as above)

    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, TypeError, ValueError) as error:
        raise ConfigError(f"Invalid URL {shortened(visible(str(url)), 80)!r}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"A URL must begin with 'http://' or 'https://' and a host, got {_without_query(parsed)!r}."
        )
    _check_url(parsed)
    return parsed


def _check_url(url: httpx2.URL) -> None:
    """Raise `ConfigError` for a URL with credentials, or to which no connection can be made."""
    if url.userinfo:
        raise ConfigError(f"Put credentials in a header, not in the URL of {url.host!r}.")
    if url.port is not None and not 0 < url.port <= LARGEST_PORT:
        raise ConfigError(
            f"The port of {_without_query(url)!r:.200} must be in 1..{LARGEST_PORT}, got {url.port}."
        )
    if "%" in url.host or not all(url.host.removesuffix(".").split(".")):
        raise ConfigError(f"The host {url.host!r:.100} is neither a name nor an address.")


def _without_query(url: httpx2.URL) -> str:
    """Remove the query of a URL, which may contain a key."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def _request_line(method: str, url: httpx2.URL) -> str:
    return f"{method} {_without_query(url)}"


@lru_cache(maxsize=1)  # reading the certificates takes a third of a second
def _certificates() -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 (as above)

    return httpx2.create_ssl_context()
