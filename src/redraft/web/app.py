"""The dashboard as an ASGI app: its pages, changes and files behind the guard."""

from __future__ import annotations

import asyncio
import json
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
from redraft.web.change import Change, Wanted
from redraft.web.guard import Guard
from redraft.web.page import Asked, NotFoundError, Page
from redraft.web.pages import CHANGES, PAGES, TEXTS
from redraft.web.project import Project
from redraft.web.rendering import STATIC, render, static_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from redraft.web.guard import Door
    from redraft.web.keys import Keys
    from redraft.web.text import Text

    Endpoint = Callable[[Request], Awaitable[Response]]

NOT_FOUND = 404
EACH = 1.0
"""Seconds between two looks at what an open page shows."""
SHARE = 0.1
"""Of the time that an open page may keep this server busy: what is slow to make is looked at less often."""
LONGEST = 10.0
"""Seconds between two looks at most."""
QUIET = 15
"""Looks without a change after which an open page is told that it is still watched."""


def dashboard(project: Project, keys: Keys, door: Door) -> ASGIApp:
    """Return the dashboard of a project, guarded."""
    return Guard(pages_of(project), keys, door)


def pages_of(project: Project) -> Starlette:
    """Return the pages of a project without the guard, for a test or for an app that has its own."""
    site = Site(project)
    routes = [Route("/", site.front), Route("/static/{name}", site.static)]
    for page in PAGES:
        if page.mark is not None:
            routes.append(Route(f"{page.path}.events", site.events(page)))
        routes += [
            Route(f"{page.path}.json", site.document(page)),
            Route(page.path, site.html(page)),
        ]
    routes += [Route(text.path, site.text(text)) for text in TEXTS]
    routes += [Route(change.path, site.change(change), methods=["POST"]) for change in CHANGES]
    troubles = dict.fromkeys((RedraftError, NotFoundError, HTTPException, Exception), site.trouble)
    return Starlette(routes=routes, exception_handlers=troubles)


def pause(took: float) -> float:
    """Return the seconds between two looks at what a page shows that took so many to make."""
    return min(LONGEST, max(EACH, took / SHARE))


@dataclass(frozen=True, slots=True)
class Site:
    """Answer requests about one project."""

    project: Project
    took: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds that each kind of page took when it was last made."""

    async def front(self, _: Request) -> Response:
        """Lead to the first page."""
        return RedirectResponse(PAGES[0].path, 303)

    async def static(self, request: Request) -> Response:
        """Serve a file of ours; its address changes when it does."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise NotFoundError(f"There is no file {name!r}.")
        kept = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(static_text(name), media_type=STATIC[name], headers=kept)

    def html(self, page: Page) -> Endpoint:
        """Return what serves a page."""

        async def serve(request: Request) -> Response:
            asked, began = self._asked(request), perf_counter()
            # First, so that what changes while the page is made is not missed.
            mark = None if page.mark is None else await page.mark(asked)
            view = await page.view(asked)
            frame = self._frame(request, page, mark)
            text = await asyncio.to_thread(_html, page, view, frame)
            self.took[page.path] = perf_counter() - began
            return HTMLResponse(text)

        return serve

    def document(self, page: Page) -> Endpoint:
        """Return what serves the same as data."""

        async def serve(request: Request) -> Response:
            view = await page.view(self._asked(request, whole=True))
            return Response(await asyncio.to_thread(_json, page, view), media_type="application/json")

        return serve

    def text(self, text: Text) -> Endpoint:
        """Return what serves a text whole, as nothing but text."""

        async def serve(request: Request) -> Response:
            whole = await self.project.text(await text.read(self._asked(request)))
            return Response(whole.encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8")

        return serve

    def events(self, page: Page) -> Endpoint:
        """Return what tells an open page that there is something new to show."""

        async def serve(request: Request) -> Response:
            return StreamingResponse(self._news(page, self._asked(request)), media_type="text/event-stream")

        return serve

    async def _news(self, page: Page, asked: Asked) -> AsyncIterator[str]:
        known, quiet = asked.query.get("since"), 0
        while page.mark is not None and not self.project.closing.is_set():
            try:
                mark = await page.mark(asked)
            except (RedraftError, NotFoundError) as error:
                mark = f"trouble: {type(error).__name__}"  # the page, read again, tells what it is
            if mark != known:
                known, quiet = mark, 0
                yield f"event: change\ndata: {json.dumps(mark)}\n\n"
            elif quiet % QUIET == 0:
                yield ": watched\n\n"
            quiet += 1
            try:
                await asyncio.wait_for(self.project.closing.wait(), pause(self.took.get(page.path, 0.0)))
            except TimeoutError:
                continue

    def change(self, change: Change) -> Endpoint:
        """Return what makes a change."""

        async def serve(request: Request) -> Response:
            try:
                fields = json.loads(await request.body())
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"The body is not JSON: {error}.") from error
            if not isinstance(fields, dict):
                raise ConfigError("The body must be a JSON object with the fields of the change.")
            happened = await change.make(Wanted(self.project, request.path_params, fields))  # pyright: ignore[reportUnknownArgumentType] (any JSON)
            return JSONResponse({"happened": await self.project.text(happened)})

        return serve

    async def trouble(self, request: Request, error: Exception) -> Response:
        """Answer with what went wrong: as a page, or as data where data was asked for."""
        status, title, told = await self._told(error)
        if request.method == "POST" or request.url.path.endswith(".json"):
            return JSONResponse({"error": told}, status)
        frame = self._frame(request, None, None)
        page = {"status": status, "title": title, "told": told, "place": self.project.place}
        return HTMLResponse(render("trouble.html", page=page, site=frame), status)

    async def _told(self, error: Exception) -> tuple[int, str, str]:
        said = await self.project.text(str(error))
        if isinstance(error, HTTPException):
            return (
                error.status_code,
                "Not found" if error.status_code == NOT_FOUND else "Refused",
                error.detail,
            )
        if isinstance(error, StoreError):
            return 503, "The store can't be read", said
        if isinstance(error, NotFoundError):
            return NOT_FOUND, "Not found", str(await self.project.text(error.args[0]))
        if isinstance(error, RedraftError):
            return 400, "This can't be asked", said
        return 500, "A defect in Redraft", f"{type(error).__name__}: {said}"

    def _asked(self, request: Request, *, whole: bool = False) -> Asked:
        return Asked(self.project, request.path_params, dict(request.query_params), whole=whole)

    def _frame(self, request: Request, page: Page | None, mark: str | None) -> dict[str, Any]:
        """Return what all pages have around them."""
        query = f"?{request.url.query}" if request.url.query else ""
        path = quote(request.scope["path"], errors="surrogatepass")
        return {
            "nonce": request.state.nonce if "nonce" in request.scope.get("state", {}) else "",
            "nav": [(one.nav, one.path, _is_within(page, one)) for one in PAGES if one.nav],
            "path": request.url.path,
            "json": "" if page is None else f"{path}.json{query}",
            "events": "" if not mark else f"{path}.events{query}",
            "mark": mark,
            "place": self.project.place,
        }


def _html(page: Page, view: Any, frame: dict[str, Any]) -> str:
    return render(page.template, page=page.arrange(view), site=frame)


def _is_within(page: Page | None, other: Page) -> bool:
    """Say whether a page is another one, or leads on from it."""
    return page is not None and f"{page.within or page.path}/".startswith(f"{other.path}/")


def _json(page: Page, view: Any) -> str:
    return json.dumps(to_json({"schema_version": 1, **page.document(view)}), indent=2)
