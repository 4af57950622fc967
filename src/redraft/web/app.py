"""The dashboard as an ASGI app: the pages of features, live updates, static files and error pages."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Match, Route

from redraft._codec import to_json
from redraft._validation import readable
from redraft.errors import ConfigError, RedraftError, StoreError
from redraft.text.json import load_json
from redraft.web.page import Form, NotFoundError, Page, PageRequest
from redraft.web.project import Project
from redraft.web.rendering import STATIC, render, static_text, url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import Scope

    from redraft.web.page import Change, PlainText, Slice

    Endpoint = Callable[[Request], Awaitable[Response]]

NOT_FOUND = 404
INTERVAL = 1.0
"""Shortest polling interval for the fingerprint of an open page, in seconds."""
BUSY_SHARE = 0.1
"""The share of time for which an open page may keep the server busy: slow pages are polled less often."""
LONGEST_INTERVAL = 10.0
KEEPALIVE = 15
"""Number of unchanged polls before a keep-alive comment is sent."""


def app(project: Project, slices: Sequence[Slice], navigation: Mapping[str, str]) -> Starlette:
    """Make the unguarded app of a project. `navigation` maps labels to paths; `/` leads to the first."""
    pages = [page for slice_ in slices for page in slice_.pages]
    site = Site(project, navigation, {kind: page for page in pages for kind in page.kinds})
    routes = [Route("/", site.front), Route("/static/{name}", site.static)]
    for page in pages:
        if page.fingerprint is not None:
            routes.append(DataRoute(f"{page.path}.events", site.events(page)))
        routes += [DataRoute(f"{page.path}.json", site.document(page)), Route(page.path, site.html(page))]
    for slice_ in slices:
        routes += [Route(text.path, site.text(text)) for text in slice_.texts]
        routes += [Route(change.path, site.change(change), methods=["POST"]) for change in slice_.changes]
    failures = (RedraftError, NotFoundError, HTTPException, Exception)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(failures, site.failure))


class DataRoute(Route):
    """The data of a page. An escaped dot belongs to an id: `/runs/x%2Ejson` is the page of `x.json`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the route matches a request."""
        is_page = _ESCAPED.search(scope.get("raw_path") or b"") is not None
        return (Match.NONE, {}) if is_page else super().matches(scope)


_ESCAPED = re.compile(rb"%2E(?:json|events)$", re.IGNORECASE)


def interval(seconds: float) -> float:
    """The polling interval for a page that takes `seconds` to render."""
    return min(LONGEST_INTERVAL, max(INTERVAL, seconds / BUSY_SHARE))


@dataclass(frozen=True, slots=True)
class Site:
    """Makes the endpoints of a project's dashboard."""

    project: Project
    navigation: Mapping[str, str]
    by_kind: Mapping[str, Page]
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """The time of the last rendering, by the path of the page."""

    async def front(self, _: Request) -> Response:
        """Redirect to the first page."""
        return RedirectResponse(next(iter(self.navigation.values())), 303)

    async def static(self, request: Request) -> Response:
        """Serve a static file. Browsers may cache it forever, since its address changes with its content."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise NotFoundError(f"There is no file {name!r}.")
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(static_text(name), media_type=STATIC[name], headers=headers)

    def html(self, page: Page) -> Endpoint:
        """Make the endpoint of a page."""

        async def serve(request: Request) -> Response:
            page_request, started = self._page_request(request), perf_counter()
            # The fingerprint comes first, so that no change is missed while the page is made.
            try:
                fingerprint = None if page.fingerprint is None else await page.fingerprint(page_request)
                view = await page.read(page_request)
            except NotFoundError:
                if (path := await self._path_of_other_kind(page, page_request)) is None:
                    raise
                return RedirectResponse(path, 303)
            site = self._site(request, page, fingerprint)
            text = await asyncio.to_thread(render, page.template, page=view, site=site, **page.functions)
            self.seconds[page.path] = perf_counter() - started
            return HTMLResponse(text)

        return serve

    def document(self, page: Page) -> Endpoint:
        """Make the endpoint of a page as JSON."""

        async def serve(request: Request) -> Response:
            page_request = self._page_request(request, full=True)
            if (path := await self._path_of_other_kind(page, page_request)) is not None:
                return RedirectResponse(f"{path}.json", 303)
            view = await page.read(page_request)

            def text() -> str:
                return json.dumps(to_json({"schema_version": 1, **page.document(view)}), indent=2)

            return Response(await asyncio.to_thread(text), media_type="application/json")

        return serve

    async def _path_of_other_kind(self, page: Page, request: PageRequest) -> str | None:
        """The path of the page to which an id of another kind redirects; None if there is none."""
        if page.redirects:
            run_id = request.path["run_id"]
            for kind, other in self.by_kind.items():
                if other is not page and await self.project.store.get(kind, run_id) is not None:
                    return other.path.replace("{run_id}", url(run_id))
        return None

    def text(self, text: PlainText) -> Endpoint:
        """Make the endpoint of an uncut text, as plain text."""

        async def serve(request: Request) -> Response:
            redacted = await self.project.redacted_text(await text.read(self._page_request(request)))
            content = redacted.encode("utf-8", "backslashreplace")
            return Response(content, media_type="text/plain; charset=utf-8")

        return serve

    def events(self, page: Page) -> Endpoint:
        """Make the endpoint that streams an event whenever a page has changed."""

        async def serve(request: Request) -> Response:
            return StreamingResponse(
                self._events(page, self._page_request(request)), media_type="text/event-stream"
            )

        return serve

    async def _events(self, page: Page, request: PageRequest) -> AsyncIterator[str]:
        previous, unchanged = request.query.get("since"), 0
        while page.fingerprint is not None and not self.project.closing.is_set():
            try:
                fingerprint = await page.fingerprint(request)
            except (RedraftError, NotFoundError) as error:
                fingerprint = f"error: {type(error).__name__}"  # the page shows the error when fetched again
            if fingerprint != previous:
                previous, unchanged = fingerprint, 0
                yield f"event: change\ndata: {json.dumps(fingerprint)}\n\n"
            elif unchanged % KEEPALIVE == 0:
                yield ": no change\n\n"
            unchanged += 1
            try:
                async with asyncio.timeout(interval(self.seconds.get(page.path, 0.0))):
                    await self.project.closing.wait()
            except TimeoutError:
                continue

    def change(self, change: Change) -> Endpoint:
        """Make the endpoint of a change."""

        async def serve(request: Request) -> Response:
            try:
                fields = load_json(await request.body())
            except ValueError as error:
                raise ConfigError(f"The body is not JSON: {error}.") from error
            if not isinstance(fields, dict):
                raise ConfigError("The body must be a JSON object with the fields of the form.")
            message = await change.make(Form(self.project, request.path_params, fields))  # pyright: ignore[reportUnknownArgumentType] (any JSON)
            return JSONResponse({"message": await self.project.redacted_text(message)})

        return serve

    async def failure(self, request: Request, error: Exception) -> Response:
        """Answer an error: as JSON to POST requests and requests for JSON, else as a page."""
        status, title, message = await self._described(error)
        if request.method == "POST" or request.url.path.endswith(".json"):
            return JSONResponse({"error": message}, status)
        page = {"status": status, "title": title, "message": message, "place": self.project.place}
        site = self._site(request, None, None)
        return HTMLResponse(render("web/templates/error.html", page=page, site=site), status)

    async def _described(self, error: Exception) -> tuple[int, str, str]:
        """The status, title and message of an error."""
        if isinstance(error, HTTPException):
            title = "Not found" if error.status_code == NOT_FOUND else "Request refused"
            return error.status_code, title, error.detail
        # str() of a LookupError would quote its message.
        text = readable(error.args[0] if isinstance(error, NotFoundError) else error)
        message = await self.project.redacted_text(text)
        if isinstance(error, NotFoundError):
            return NOT_FOUND, "Not found", message
        if isinstance(error, StoreError):
            return 503, "The store can't be read", message
        if isinstance(error, RedraftError):
            return 400, "Bad request", message
        return 500, "A bug in Redraft", f"{type(error).__name__}: {message}"

    def _page_request(self, request: Request, *, full: bool = False) -> PageRequest:
        return PageRequest(self.project, request.path_params, dict(request.query_params), full=full)

    def _site(self, request: Request, page: Page | None, fingerprint: str | None) -> dict[str, Any]:
        """The data of the shell around every page."""
        query = f"?{request.url.query}" if request.url.query else ""
        path = quote(request.scope["path"], errors="surrogatepass")
        inside = "" if page is None else f"{page.section or page.path}/"
        nav = [
            (label, section, inside.startswith(f"{section}/")) for label, section in self.navigation.items()
        ]
        return {
            "nonce": request.state.nonce if "nonce" in request.scope.get("state", {}) else "",
            "nav": nav,
            "json": "" if page is None else f"{path}.json{query}",
            "events": "" if not fingerprint else f"{path}.events{query}",
            "fingerprint": fingerprint,
            "place": self.project.place,
        }
