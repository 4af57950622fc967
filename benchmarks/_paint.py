"""When a browser of this machine first paints a page of the dashboard."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

from _dashboard import TOKEN
from _measure import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _dashboard import Server
    from playwright.sync_api import Browser

LOADS = 7
PAINTED = """async () => {
    while (performance.getEntriesByType("paint").length < 2) await new Promise((on) => setTimeout(on, 10));
    const { startTime } = performance.getEntriesByName("first-contentful-paint")[0];
    return [startTime, performance.getEntriesByType("navigation")[0].loadEventEnd];
}"""


def paint_table(server: Server, paths: Mapping[str, str]) -> str:
    """Open each page some times in Chromium, each time in a new window, and say when it was painted."""
    chromium = (
        os.environ.get("REDRAFT_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if chromium is None or find_spec("playwright") is None:
        return "There is no Chromium here, or no Playwright, so the first paint was not measured."
    from playwright.sync_api import sync_playwright

    rows: list[tuple[str, ...]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path in paths.items():
            loads = [_load(browser, server.address, path) for _ in range(LOADS)]
            painted, loaded = zip(*loads, strict=True)
            rows.append((name, f"{median(painted):,.0f}", f"{max(painted):,.0f}", f"{median(loaded):,.0f}"))
        version = browser.version
        browser.close()
    head = ("page in Chromium, milliseconds", "first paint", "slowest", "loaded")
    return (
        f"{table(head, rows)}\n\nChromium {version}; {LOADS} loads of each page, none with anything cached."
    )


def _load(browser: Browser, address: str, path: str) -> tuple[float, float]:
    """Return the milliseconds until a page was painted first, and until all of it was there."""
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {TOKEN}"})
    page = context.new_page()
    page.goto(address + path, wait_until="load")
    painted, loaded = page.evaluate(PAINTED)
    context.close()
    return painted, loaded
