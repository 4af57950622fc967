"""The dashboard as an ASGI app: what features add to it, its live pages, static files and error pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from redraft._codec import to_json
from redraft.errors import ConfigError, RedraftError, StoreError
from redraft.web.page import Form, NotFoundError, Page, PageRequest
from redraft.web.project import Project
from redraft.web.rendering import STATIC, render, static_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request

    from redraft.web.page import Change, PlainText, Slice

    Endpoint = Callable[[Request], Awaitable[Response]]

NOT_FOUND = 404
INTERVAL = 1.0
"""Seconds between two looks at the fingerprint of an open page."""
BUSY_SHARE = 0.1
"""The share of time that an open page may keep the server busy: slow pages are looked at less often."""
LONGEST_INTERVAL = 10.0
KEEPALIVE = 15
"""Number of unchanged polls before a keep-alive comment is sent."""


def app(project: Project, slices: Sequence[Slice], navigation: Mapping[str, str]) -> Starlette:
    """Return the app of a project, unguarded; `navigation` maps labels to paths, `/` leads to the first."""
    by_kind = {kind: page for one in slices for page in one.pages for kind in page.kinds}
    site = Site(project, navigation, by_kind)
    routes = [Route("/", site.front), Route("/static/{name}", site.static)]
    for page in (page for one in slices for page in one.pages):
        if page.fingerprint is not None:
            routes.append(Route(f"{page.path}.events", site.events(page)))
        routes += [Route(f"{page.path}.json", site.document(page)), Route(page.path, site.html(page))]
    for one in slices:
        routes += [Route(text.path, site.text(text)) for text in one.texts]
        routes += [Route(change.path, site.change(change), methods=["POST"]) for change in one.changes]
    failures = (RedraftError, NotFoundError, HTTPException, Exception)
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(failures, site.failure))


def interval(seconds: float) -> float:
    """Return the seconds to wait between two looks at a page that takes so many to make."""
    return min(LONGEST_INTERVAL, max(INTERVAL, seconds / BUSY_SHARE))


@dataclass(frozen=True, slots=True)
class Site:
    """Make the endpoints of one project's dashboard."""

    project: Project
    navigation: Mapping[str, str]
    by_kind: Mapping[str, Page]
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """How long each kind of page took when it was last made."""

    async def front(self, _: Request) -> Response:
        """Redirect to the first page."""
        return RedirectResponse(next(iter(self.navigation.values())), 303)

    async def static(self, request: Request) -> Response:
        """Serve a static file; browsers may cache it forever, since its address changes when it does."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise NotFoundError(f"There is no file {name!r}.")
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(static_text(name), media_type=STATIC[name], headers=headers)

    def html(self, page: Page) -> Endpoint:
        """Return an endpoint that serves a page."""

        async def serve(request: Request) -> Response:
            page_request, started = self._page_request(request), perf_counter()
            # First, so that what changes while the page is made is not missed.
            try:
                fingerprint = None if page.fingerprint is None else await page.fingerprint(page_request)
                view = await page.read(page_request)
            except NotFoundError:
                if (there := await self._of_another_kind(page, page_request)) is None:
                    raise
                return RedirectResponse(there, 303)
            site = self._site(request, page, fingerprint)
            text = await asyncio.to_thread(_html, page, view, site)
            self.seconds[page.path] = perf_counter() - started
            return HTMLResponse(text)

        return serve

    def document(self, page: Page) -> Endpoint:
        """Return an endpoint that serves a page as JSON."""

        async def serve(request: Request) -> Response:
            page_request = self._page_request(request, full=True)
            if (there := await self._of_another_kind(page, page_request)) is not None:
                return RedirectResponse(f"{there}.json", 303)
            view = await page.read(page_request)
            return Response(await asyncio.to_thread(_json, page, view), media_type="application/json")

        return serve

    async def _of_another_kind(self, page: Page, request: PageRequest) -> str | None:
        """Return the path of the page for an id of a record of another kind; None if there is none."""
        if page.redirects:
            run_id = request.path["run_id"]
            for kind, other in self.by_kind.items():
                if other is not page and await self.project.store.get(kind, run_id) is not None:
                    return other.path.replace("{run_id}", quote(run_id, safe="", errors="surrogatepass"))
        return None

    def text(self, text: PlainText) -> Endpoint:
        """Return an endpoint that serves a text, uncut, as nothing but text."""

        async def serve(request: Request) -> Response:
            shown = await self.project.redacted_text(await text.read(self._page_request(request)))
            return Response(shown.encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8")

        return serve

    def events(self, page: Page) -> Endpoint:
        """Return an endpoint that streams an event whenever a page has changed."""

        async def serve(request: Request) -> Response:
            return StreamingResponse(
                self._events(page, self._page_request(request)), media_type="text/event-stream"
            )

        return serve

    async def _events(self, page: Page, request: PageRequest) -> AsyncIterator[str]:
        known, quiet = request.query.get("since"), 0
        while page.fingerprint is not None and not self.project.closing.is_set():
            try:
                found = await page.fingerprint(request)
            except (RedraftError, NotFoundError) as error:
                found = f"error: {type(error).__name__}"  # the page, fetched again, shows which
            if found != known:
                known, quiet = found, 0
                yield f"event: change\ndata: {json.dumps(found)}\n\n"
            elif quiet % KEEPALIVE == 0:
                yield ": no change\n\n"
            quiet += 1
            try:
                async with asyncio.timeout(interval(self.seconds.get(page.path, 0.0))):
                    await self.project.closing.wait()
            except TimeoutError:
                continue

    def change(self, change: Change) -> Endpoint:
        """Return an endpoint that makes a change."""

        async def serve(request: Request) -> Response:
            try:
                fields = json.loads(await request.body())
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"The body is not JSON: {error}.") from error
            if not isinstance(fields, dict):
                raise ConfigError("The body must be a JSON object with the fields of the form.")
            message = await change.make(Form(self.project, request.path_params, fields))  # pyright: ignore[reportUnknownArgumentType] (any JSON)
            return JSONResponse({"message": await self.project.redacted_text(message)})

        return serve

    async def failure(self, request: Request, error: Exception) -> Response:
        """Answer with what went wrong: as a page, or as JSON where that was asked for."""
        status, title, message = await self._described(error)
        if request.method == "POST" or request.url.path.endswith(".json"):
            return JSONResponse({"error": message}, status)
        page = {"status": status, "title": title, "message": message, "place": self.project.place}
        site = self._site(request, None, None)
        return HTMLResponse(render("web/templates/error.html", page=page, site=site), status)

    async def _described(self, error: Exception) -> tuple[int, str, str]:
        """Return the status, title and message of an error."""
        if isinstance(error, HTTPException):
            title = "Not found" if error.status_code == NOT_FOUND else "Request refused"
            return error.status_code, title, error.detail
        # str() of a LookupError would quote its message.
        text = str(error.args[0] if isinstance(error, NotFoundError) else error)
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
        """Return what the shell around every page shows."""
        query = f"?{request.url.query}" if request.url.query else ""
        path = quote(request.scope["path"], errors="surrogatepass")
        nav = [(word, to, _is_within(page, to)) for word, to in self.navigation.items()]
        return {
            "nonce": request.state.nonce if "nonce" in request.scope.get("state", {}) else "",
            "nav": nav,
            "json": "" if page is None else f"{path}.json{query}",
            "events": "" if not fingerprint else f"{path}.events{query}",
            "fingerprint": fingerprint,
            "place": self.project.place,
        }


def _is_within(page: Page | None, section: str) -> bool:
    return page is not None and f"{page.section or page.path}/".startswith(f"{section}/")


def _html(page: Page, view: Any, site: dict[str, Any]) -> str:
    return render(page.template, page=view, site=site, **page.functions)


def _json(page: Page, view: Any) -> str:
    return json.dumps(to_json({"schema_version": 1, **page.document(view)}), indent=2)
