"""Endpoint: the HTTP API of a process with agents: signed webhooks, and their health."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from redraft.cycles.webhook import ID, header_problem, signature_problem
from redraft.errors import ConfigError, LeaseError, OutputError, StoreError
from redraft.redact.log import logger
from redraft.text.json import bounded_json, load_json
from redraft.web.guard import check_host

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from redraft.cycles.agent import CycleAgent
    from redraft.web.guard import Address

MAX_BODY = 100_000
"""The maximum size of the body of a webhook, in bytes."""
BODY_TIMEOUT = 10.0
"""The time limit for receiving a body, in seconds."""
MAX_BODIES = 1_000
"""The limit of bodies received in parallel. Unverified requests must not block verified ones."""
MAX_DELIVERIES = 100
"""The limit of webhooks stored in parallel; `/health` answers meanwhile."""
READING = ("GET", "HEAD")
RETRY_SOON = {"retry-after": "5"}
CLOSE = {"connection": "close"}
"""For a response to a request whose body was not read."""


class Endpoint:
    """The ASGI application of an `AgentHost`; `keys` are the keys of its webhooks, by agent and topic.

    `POST /hooks/AGENT/TOPIC` stores the body of a signed request as a message for the agent. It answers 202,
    also for a repetition, which stores no second message; 401 without a valid signature, before the body is
    read if the headers have none; 503 while the message can't be stored, and above 100 parallel requests, so
    that the sender retries. `GET /health` answers 200, or 503 if an agent has failed. If `address` is set, it
    admits only the hosts of that address. Webhooks may use any host, since their signature identifies the
    sender.
    """

    def __init__(
        self,
        agents: Mapping[str, CycleAgent],
        keys: Mapping[tuple[str, str], bytes],
        health: Callable[[], Mapping[str, Any]],
        address: Address | None = None,
    ) -> None:
        self._agents = agents
        self._keys = keys
        self._health = health
        self.address = address
        self._bodies, self._deliveries = asyncio.Semaphore(MAX_BODIES), asyncio.Semaphore(MAX_DELIVERIES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except HTTPException as refusal:
            response = JSONResponse({"error": refusal.detail}, refusal.status_code, refusal.headers)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        parts = [unquote(part) for part in _path(request.scope).strip("/").split("/")]
        match parts:
            case ["health"]:
                if request.method not in READING:
                    raise HTTPException(405, "Method not allowed.")
                if self.address is not None:
                    check_host(request.headers, self.address)
                health = self._health()
                return JSONResponse(health, 200 if health["ok"] else 503)
            case ["hooks", agent, topic] if (agent, topic) in self._keys:
                if request.method != "POST":
                    raise HTTPException(405, "Method not allowed.")
                return await self._deliver(agent, topic, request)
            case _:
                raise HTTPException(404, "Not found.")

    async def _deliver(self, agent: str, topic: str, request: Request) -> JSONResponse:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > MAX_BODY:
            raise HTTPException(413, f"The body has more than {MAX_BODY:,} bytes.", CLOSE)
        key, now = self._keys[agent, topic], datetime.now(UTC)
        reason = header_problem(request.headers, now)
        body = b""
        if not reason:
            async with _place_of(self._bodies):
                body = await _body(request)
            reason = signature_problem(key, request.headers, body, now)
        if reason:
            logger.warning("Refused a webhook to %r, topic %r: %s.", agent, topic, reason)
            raise HTTPException(401, f"Not signed: {reason}.", CLOSE)
        data = _data(body, request.headers.get("content-type", "application/json"))
        try:
            async with _place_of(self._deliveries):
                is_new = await self._agents[agent].deliver(topic, data, request.headers[ID])
        except ConfigError as error:
            raise HTTPException(413, str(error)) from error
        except (StoreError, LeaseError, TimeoutError) as error:
            logger.warning("A webhook to %r can't be stored now: %s", agent, error)
            raise HTTPException(503, "The message can't be stored now.", RETRY_SOON) from error
        return JSONResponse({"ok": True, "repeated": not is_new}, 202)


@asynccontextmanager
async def _place_of(places: asyncio.Semaphore) -> AsyncGenerator[None]:
    """Take a place while the block runs; refuse the request if no place is free."""
    if places.locked():
        raise HTTPException(503, "Too many webhooks at once.", RETRY_SOON)
    async with places:
        yield


def _path(scope: Scope) -> str:
    """The raw path without the path of a mount; a name in it may have an encoded slash."""
    path: str = scope.get("raw_path", b"").decode("ascii", "replace") or scope["path"]
    return path.partition("?")[0].removeprefix(scope.get("root_path", ""))


async def _body(request: Request) -> bytes:
    """Read the body of a request, within limits of size and time."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise HTTPException(413, f"The body has more than {MAX_BODY:,} bytes.")
    except TimeoutError as error:
        raise HTTPException(408, f"The body has not arrived within {BODY_TIMEOUT:g} s.") from error
    return bytes(body)


def _data(body: bytes, content_type: str) -> Any:
    """The JSON data of a body, or its text if it is not JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode()
        if media_type != "application/json" and not media_type.endswith("+json"):
            return text
        return bounded_json(load_json(text) if text.strip() else None, "The body")
    except (ValueError, OutputError) as error:
        raise HTTPException(400, f"The body is not {media_type} in UTF-8: {error}") from error
