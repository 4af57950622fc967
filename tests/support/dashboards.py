"""Dashboards for tests: over a store, in this process or as a server that a browser can visit."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from redraft import Issue, Task, TokenUsage
from redraft.dashboard import dashboard
from redraft.loop.record import Origin
from redraft.types import Advice, Reflection
from redraft.web.guard import Address, Guard, Keys
from redraft.web.project import Project
from support.kept_runs import CALL, START, record
from support.versions import gained, version

TOKEN = "of-the-dashboard-tests"


VOID = {"col", "meta", "link", "input", "line", "polyline", "rect", "circle", "path"}
HOSTILE = [
    "</script><script>alert(1)</script><img src=x onerror=alert(1)></style><style>*{}</style></main>",
    '" onmouseover="alert(1) {{ 7 * 7 }} {% raw %} &lt;b&gt; &#0; ]]> <!-- ',
    "javascript:alert(1)",
    "\x1b]0;owned\x07\x1b[31mred \x00\x08\x7f\x9b user\u202enimda\u202c \u2066x\u2069 \ufeff\u2028 a\r\nb\rc",
    "\ud83d lone",
]
"""Texts that want to be more than text on a page; each field of a page is tried with each of them."""


class Seen(HTMLParser):
    """Read a page as a browser would, and remember its elements, attributes and text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], set(), [], []
        self.ids, self.links = [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).split())


def project_of(store, place="a store"):
    """The project of a store."""
    return Project(store, place)


def pages(store):
    """A client of the pages alone."""
    return TestClient(dashboard(project_of(store)), raise_server_exceptions=False, follow_redirects=False)


def guarded(store, host="127.0.0.1", port=8765):
    """A client of the whole dashboard, and its keys."""
    keys = Keys(TOKEN)
    app = Guard(dashboard(project_of(store)), keys, Address(host, port))
    client = TestClient(
        app, base_url=f"http://127.0.0.1:{port}", raise_server_exceptions=False, follow_redirects=False
    )
    return client, keys


def put(store, *records):
    """Keep these runs."""

    async def main():
        for run in records:
            await store.put(run.stored())

    asyncio.run(main())


def described(run_id="a-described-run", **fields):
    """A run that has something in each part of its page; `fields` are of its record."""
    scores = [
        (0.42, {"facts": 0.5, "short": 0.2, "tone": 0.56}, 0.1),
        (0.71, {"facts": 0.8, "short": 0.6, "tone": 0.7}, 0.06),
        (0.64, {"facts": 0.9, "short": None, "tone": 0.4}, 0.2),
        (0.88, {"facts": 0.9, "short": 0.85, "tone": 0.9}, 0.04),
        (0.83, {"facts": 0.9, "short": 0.8, "tone": 0.78}, 0.08),
    ]
    texts = [
        "The bridge was opened in 1932. It is long, and it was built by many people over many years.",
        "The bridge opened in 1932. It is 1,149 m long, and was built by 1,400 people in eight years.",
        "The bridge opened in 1932, is 1,149 m long and took 1,400 people eight years. Visit it!",
        "Opened in 1932 after eight years' work by 1,400 people, the bridge is 1,149 m long.",
        "Opened in 1932 after eight years of work by 1,400 people, the bridge is 1,149 metres in length.",
    ]
    versions = gained(
        [
            version(
                number,
                score,
                text,
                criteria_scores=criteria,
                spread=spread,
                satisfactory=score > 0.8,
                issues=()
                if score > 0.8
                else (
                    Issue("How long the bridge is, is not said.", criterion="facts"),
                    Issue("Too many words."),
                ),
                strategy="generate" if number == 1 else "targeted_edit",
                base=None if number == 1 else max(1, number - 1),
                token_usage=CALL,
            )
            for number, ((score, criteria, spread), text) in enumerate(zip(scores, texts, strict=True), 1)
        ]
    )
    known = {
        "run_id": run_id,
        "task": Task(
            "Describe the bridge in one sentence, for a guide book.",
            expected_output="One sentence with three numbers.",
        ),
        "origin": Origin("agent", "guide writer", "any:model"),
        "usage_by_role": {
            "generation": CALL,
            "revision": CALL,
            "evaluation": TokenUsage(900, 60, 300, 5, 1, 0.004),
        },
        "execution_time": 21.4,
        "budget_usd": 0.05,
        "advice": (
            Advice(
                "Say the length in metres, with the figure.", "lesson", "same task type, used 3 times", 11
            ),
            Advice("Readers like one number a clause.", "notes", "of this task, version 4", 9),
        ),
        "reflections": (Reflection("every_2_steps", "The length is still missing.", 2, 2),),
        "diagnostics": {"unstable_judge": "The judge's scores of one text lay up to 0.20 apart."},
        "finished_at": START + timedelta(seconds=22),
    }
    fields = {"versions": versions, "reason": "plateau"} | fields
    return record(fields.pop("versions"), fields.pop("reason"), **known | fields)


@contextlib.contextmanager
def served(folder):
    """Run `redraft ui` in a folder; yields the address of the dashboard, and how it went in the end."""
    command = [sys.executable, "-m", "redraft", "ui", "--no-open", "--port", "0", "--token", TOKEN]
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield next(found[0] for line in process.stderr if (found := re.search(r"http://[0-9.:]+/", line)))
    finally:
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=20)[1]
    assert process.returncode == 0, told
    assert "Traceback" not in told, told


@contextlib.contextmanager
def chromium():
    """A browser of this machine: REDRAFT_TEST_CHROMIUM, or the one on the PATH; else the test is skipped."""
    pytest.importorskip("playwright", reason="Playwright is not installed: pip install 'redraft[dev]'")
    from playwright.sync_api import sync_playwright

    found = (
        os.environ.get("REDRAFT_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if found is None:
        pytest.skip("There is no Chromium here: install it, or name one in REDRAFT_TEST_CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def windows(browser, place, expected):
    """Yield what opens pages, with a key, in windows of their own, whose consoles say what is expected."""
    contexts, complaints = [], []

    def opened(path):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"{dialog.type}: {dialog.message}"))
        context.request.get(f"{place}?token={TOKEN}", max_redirects=0)  # sets the cookie
        page.goto(f"{place}{path}")
        return page

    try:
        yield opened
    finally:
        for context in contexts:
            context.close()
    assert [one for one in complaints if not any(code in one for code in expected)] == []


SERIOUS = """
async () => (await axe.run({resultTypes: ["violations"]})).violations
  .filter(one => ["serious", "critical"].includes(one.impact))
  .map(one => [one.id, one.nodes.map(node => node.html)])
"""


def inaccessible(page):
    """Return what axe finds to be serious on a page, in the light and in the dark scheme."""
    from axe_playwright_python.base import AXE_SCRIPT

    page.evaluate(AXE_SCRIPT)  # injected as a test's own, past the page's policy
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [(scheme, *violation) for violation in page.evaluate(SERIOUS)]
    return found


CUT_LISTS = """
[...document.querySelectorAll("table.list")]
  .filter(list => list.scrollWidth > list.parentElement.clientWidth)
  .map(list => `the list ${list.parentElement.getAttribute("aria-label")} needs ${list.scrollWidth} of ` +
    `${list.parentElement.clientWidth} px`)
"""


def faults(page, address, paths):
    """Visit pages, unfold what folds, and return by name what is inaccessible or wider than its window."""
    found = {}
    for name, path in paths.items():
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(f"{address}{path}")
        page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
        found[name] = inaccessible(page)
        for width in (1280, 360):
            page.set_viewport_size({"width": width, "height": 740})
            needed = page.evaluate("document.documentElement.scrollWidth")
            if needed > width:
                found[name].append(f"needs {needed} of {width} px")
            found[name] += page.evaluate(CUT_LISTS)
    return {name: one for name, one in found.items() if one}
