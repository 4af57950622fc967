"""The pages of tasks in a real browser, with notes that an ensemble wrote."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from redraft.notes.store import NoteStore
from redraft.stores.sqlite import SqliteStore
from support.dashboards import faults

NOTING = """
from redraft import Ensemble, QualityCriterion, ScriptedModel, Task
from redraft.notes import LlmReflectionStrategy, ReflectionConfig
from redraft.notes.trial import Trial

REPLY = '''REFINED_DESCRIPTION:
Summarise the {what} report, with {count} figures

REFINED_EXPECTED_OUTPUT:
Five sentences

OBSERVATIONS:
- Readers missed figures

SUGGESTIONS:
- Name the sources
'''
reflected = 0

def summarise(request):
    global reflected
    said = request.messages[-1].content
    if "task prompt optimization specialist" in said:
        reflected += 1
        return REPLY.format(what="{what}", count=reflected)
    return "Sales rose by 4 %." if "figures" in said or request.role == "revision" else "Sales rose."

figure = QualityCriterion("figure", evaluator="regex", evaluator_config={"pattern": "[0-9]"})
model = ScriptedModel(summarise)
report = Task(
    "Summarise the {what} report", "Five sentences", name="summary", criteria=[figure],
    reflect=ReflectionConfig(strategy=LlmReflectionStrategy(model), trial=Trial(share=0.3, min_runs=1)),
)
ensemble = Ensemble(model, [report])
for number in range(12):
    ensemble.run_sync({"what": "sales"}, run_id=f"report-{number:02}")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project in which an ensemble wrote notes."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "redraft.toml").write_text("embedder = ''\n")
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}
    subprocess.run([sys.executable, "-c", NOTING], cwd=folder, check=True, timeout=60, env=environment)
    return folder


def in_force(project):
    """The stored state of the notes on the task."""

    async def main():
        store = SqliteStore(project / ".redraft" / "redraft.db")
        task = (await NoteStore(store).tasks())[0]
        await store.aclose()
        return task

    # In another thread, because the browser's event loop runs in this one.
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, main()).result()


def test_every_page_is_accessible_and_fits(opened, dashboard_url, project):
    pages = {"tasks": "tasks", "task": f"tasks/{in_force(project).identity}"}
    assert faults(opened(""), dashboard_url, pages) == {}


def test_a_note_can_be_rolled_back_switched_off_and_on(opened, project):
    before = in_force(project)
    page = opened("tasks")
    page.get_by_role("link", name="summary").click()
    page.get_by_role(
        "heading", name=f"Version {before.in_force} of {before.run_count} is in force"
    ).wait_for()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Put version 1 in force").click()
    page.get_by_text("Version 1 is in force, until a run with it leads to the next version.").wait_for()
    page.get_by_role("heading", name=f"Version 1 of {before.run_count} is in force").wait_for()
    assert in_force(project).in_force == 1
    page.get_by_label("Reason").fill("it misleads")
    page.get_by_role("button", name="Switch notes off").click()
    page.get_by_role("heading", name="Notes are off").wait_for()
    page.get_by_text("It misleads.").wait_for()
    assert (in_force(project).off, in_force(project).why_off) == (True, "it misleads")
    page.get_by_role("button", name="Switch notes on").click()
    page.get_by_role("heading", name=f"Version 1 of {before.run_count} is in force").wait_for()
    assert not in_force(project).off


def test_two_versions_can_be_compared(opened, project):
    page = opened(f"tasks/{in_force(project).identity}")
    page.get_by_role("link", name="v1 to v2").click()
    page.get_by_role("heading", name="Changes from version 1 to version 2").wait_for()
    assert page.locator("ins").first.inner_text() == "2"
    assert page.locator("svg .dot").count() > 0
