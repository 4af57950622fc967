"""The dashboard in a real browser, over runs that were really made."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from redraft import Issue, Task
from redraft.loop.record import Origin
from redraft.stores.sqlite import SqliteStore
from redraft.types import Advice, Reflection
from support.dashboards import described, faults, put
from support.kept_runs import ran
from support.kept_workflows import TEXT, kept
from support.noted_task import IDENTITY, noted_task

PAGES = {
    "runs": "runs",
    "no runs": "runs?name=nobody",
    "a run": "runs/described",
    "a run of the loop": "runs/of-the-loop",
    "a diff": "runs/described/diff?a=1&b=4",
    "a diff side by side": "runs/described/diff?a=1&b=4&view=side",
    "a workflow": "workflows/a-workflow",
    "a run of long words": "runs/long-words",
    "a diff of long words": "runs/long-words/diff?a=1&b=4",
    "a workflow of long words": "workflows/long-workflow",
    "a workflow that fails with long words": "workflows/long-failure",
    "tasks": "tasks",
    "a task": f"tasks/{IDENTITY}",
    "not found": "runs/unknown",
}
STEPWISE = """
import asyncio, sys
from pathlib import Path
from redraft import ReflectionPattern, reflect
from redraft.loop.journal import Journalled
from redraft.stores.sqlite import SqliteStore

numbers = iter(range(1, 9))

async def generate(prompt, feedback=""):
    number = next(numbers)
    while int(Path(sys.argv[3]).read_text() or 0) < number:
        await asyncio.sleep(0.02)
    return f"draft {number} of what is watched"

async def main():
    store = SqliteStore(sys.argv[1])
    score = iter([0.2, 0.5, 0.7, 0.95]).__next__
    await reflect("Watch this.", generate=generate, evaluate=lambda output: score(),
                  pattern=ReflectionPattern(max_iterations=3), step=Journalled(store, sys.argv[2]))
    await store.aclose()

asyncio.run(main())
"""


LONG = "https://example.com/" + "unbroken" * 60


def of_long_words():
    """A run all of whose texts are one unbroken word."""
    run = described(
        "long-words",
        task=Task(LONG),
        origin=Origin("agent", LONG, LONG),
        diagnostics={"unstable_judge": LONG},
        reflections=(Reflection(LONG, "", 2, problem=LONG),),
        advice=(Advice(LONG, LONG, LONG, 9),),
    )
    said = {"issues": (Issue(LONG, path=LONG),), "suggestions": (LONG,), "criteria_scores": {LONG: 0.5}}
    versions = [replace(version, evaluation=replace(version.evaluation, **said)) for version in run.versions]
    return replace(
        run, versions=tuple(replace(version, output=f"{LONG}{version.iteration}") for version in versions)
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with runs that were described, and one that a loop made."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "redraft.toml").touch()
    store = SqliteStore(folder / ".redraft" / "redraft.db")
    put(store, described("described"))
    ran(("one", (0.3, "too short")), ("two", 0.6), ("three of them", 0.9), store=store, run_id="of-the-loop")
    kept("a-workflow", inputs={"who": "Ada"}, store=store)
    put(store, of_long_words())
    kept("long-workflow", inputs={LONG: LONG}, gave=LONG, store=store, text=TEXT.replace("two nodes", LONG))
    failing = TEXT.replace("two nodes", "failing").replace("on_error: continue", "")
    kept("long-failure", failing=9, why=LONG, store=store, text=failing)
    noted_task(store, control=1)
    asyncio.run(store.aclose())
    return folder


def test_every_page_is_accessible_and_fits(opened, dashboard_url):
    assert faults(opened(""), dashboard_url, PAGES) == {}


def test_every_control_is_reachable_by_keyboard(opened):
    page = opened("runs")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to content"
    link = page.get_by_role("link", name="Describe the bridge")
    for _ in range(40):
        page.keyboard.press("Tab")
        if link.evaluate("link => link === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Why it stopped").wait_for()


def test_the_theme_is_remembered(opened):
    page = opened("runs")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(paper)
    assert light != dark
    page.reload()
    assert page.evaluate(paper) == dark
    page.get_by_role("button", name="Light").wait_for()


def test_filters_are_in_the_address(opened):
    page = opened("runs")
    page.get_by_label("Stopped by").select_option("quality_met")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**reason=quality_met**")
    assert page.locator("tbody tr").count() == 4
    page.get_by_role("link", name="All runs").click()
    page.wait_for_url("**/runs")


def test_a_workflow_leads_to_its_loops_and_back(opened):
    page = opened("runs")
    page.get_by_role("link", name="Workflow two nodes").click()
    page.get_by_role("heading", name="Result").wait_for()
    page.get_by_role("region", name="Nodes").get_by_role("link").click()
    page.get_by_role("heading", name="Why it stopped: quality_met").wait_for()
    page.get_by_role("link", name="a-workflow", exact=True).click()
    page.get_by_role("heading", name="Workflow two nodes").wait_for()


def test_a_note_can_be_rolled_back_switched_off_and_on(opened):
    page = opened("tasks")
    page.get_by_role("link", name="board summary").click()
    page.get_by_role("heading", name="Version 3 of 3 is in force").wait_for()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Put version 1 in force").click()
    page.get_by_text("Version 1 is in force, until a run with it leads to the next version.").wait_for()
    page.get_by_role("heading", name="Version 1 of 3 is in force").wait_for()
    page.get_by_label("Reason").fill("it misleads")
    page.get_by_role("button", name="Switch notes off").click()
    page.get_by_role("heading", name="Notes are off").wait_for()
    page.get_by_text("It misleads.").wait_for()
    page.get_by_role("button", name="Switch notes on").click()
    page.get_by_role("heading", name="Version 1 of 3 is in force").wait_for()


def test_two_versions_of_a_note_can_be_compared(opened):
    page = opened(f"tasks/{IDENTITY}")
    page.get_by_role("link", name="v1 to v2").click()
    page.get_by_role("heading", name="Changes from version 1 to version 2").wait_for()
    assert "Keep rule 2 in mind." in page.locator("ins").all_inner_texts()[0]
    assert page.locator("svg .dot").count() > 0


class Running:
    """A run in a process of its own, which makes as many drafts as it may."""

    def __init__(self, project, run_id):
        self._allowed = project / f"{run_id}.drafts"
        self.allow(1)
        database = str(project / ".redraft" / "redraft.db")
        self.process = subprocess.Popen(
            [sys.executable, "-c", STEPWISE, database, run_id, str(self._allowed)]
        )

    def allow(self, drafts):
        self._allowed.write_text(str(drafts))


@contextmanager
def running(project, run_id):
    run = Running(project, run_id)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()


def test_a_run_is_watched_from_its_start_to_its_stop(opened, project):
    table = opened("runs")
    before = table.locator("tbody tr").count()
    with running(project, "watched") as run:
        row = table.locator("tbody tr", has_text="watched")
        row.get_by_text("running").wait_for()
        assert table.locator("tbody tr").count() == before + 1
        page = opened("runs/watched")
        page.get_by_text("live", exact=True).wait_for()
        page.get_by_role("heading", name="Version 1").first.wait_for()
        run.allow(2)
        page.get_by_role("heading", name="Version 2").wait_for()
        run.allow(4)
        page.get_by_role("heading", name="Why it stopped: quality_met").wait_for()
        assert run.process.wait(timeout=20) == 0
        page.get_by_text("Version 4 meets the criteria").wait_for()
        page.get_by_text("live", exact=True).wait_for(state="hidden")
        row.get_by_text("quality_met").wait_for()


def test_updates_keep_focus_and_open_sections(opened, project):
    with running(project, "moving") as run:
        page = opened("runs")
        page.locator("tbody tr", has_text="moving").wait_for()
        page.goto(page.url + "/moving")
        page.get_by_role("heading", name="Version 1").first.wait_for()
        page.locator("article summary", has_text="Output").first.click()
        opened_before = page.locator("article details").first.evaluate("fold => fold.open")
        run.allow(2)
        page.get_by_role("heading", name="Version 2").wait_for()
        assert page.locator("article details").first.evaluate("fold => fold.open") == opened_before


def test_a_run_whose_process_was_killed_is_shown_as_interrupted(opened, project):
    with running(project, "to-be-killed") as run:
        page = opened("runs")
        page.locator("tbody tr", has_text="to-be-killed").get_by_text("running").wait_for()
        page = opened("runs/to-be-killed")
        page.get_by_role("heading", name="Version 1").first.wait_for()
        run.process.kill()
        run.process.wait()
        page.get_by_role("heading", name="State: interrupted").wait_for()


def test_an_exported_page_needs_no_server(browser, project, tmp_path):
    from redraft.history.run_page import run_page
    from redraft.loop.runs import StoredRun

    file = tmp_path / "run.html"
    file.write_text(run_page(StoredRun(described("described"))), "utf-8")
    context, complaints = browser.new_context(), []
    page = context.new_page()
    page.on("console", lambda said: complaints.append(said.text))
    page.on(
        "request",
        lambda request: complaints.append(request.url) if not request.url.startswith("file:") else None,
    )
    page.goto(file.as_uri())
    assert (
        page.get_by_role("heading", name="Why it stopped").evaluate("it => getComputedStyle(it).fontWeight")
        == "700"
    )
    context.close()
    assert complaints == []
