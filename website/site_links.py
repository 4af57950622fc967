"""Check the pages of a built site: every link leads somewhere, and nothing is loaded from another host."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def faults(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each file that another host would serve."""
    pages = {path: _Page.of(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # served in any folder, with addresses from the root of the host
            continue
        name = path.relative_to(site)
        found += [f"{name} loads {url} from another host" for url in page.loaded if urlsplit(url).netloc]
        for url in page.links + page.loaded:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} links to {url}, which doesn't exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {url}, a page without that heading")
    return found


def external_links(site: Path) -> dict[str, list[str]]:
    """Return the links to other hosts, sorted, each with the pages that it is on."""
    found: dict[str, list[str]] = {}
    for path in sorted(site.rglob("*.html")):
        for url in _Page.of(path).links:
            on = found.setdefault(url, []) if urlsplit(url).netloc else []
            if (name := path.relative_to(site).as_posix()) not in on:
                on.append(name)
    return dict(sorted(found.items()))


class _Page(HTMLParser):
    """The links of a page, the files that it loads, and the anchors that it offers."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {"__top", ""}

    @classmethod
    def of(cls, path: Path) -> _Page:
        page = cls()
        page.feed(path.read_text("utf-8"))
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in _LOADED and _LOADED[tag] in given:
            self.loaded.append(given[_LOADED[tag]])
