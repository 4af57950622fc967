"""The pages of agents in a real browser, while agents run."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from support.dashboards import faults, inaccessible
from support.kept_agents import ran_cycles
from support.monitor import World

TESTS = Path(__file__).parents[1]
HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "unbroken" * 25
PAGES = {
    "agents": "agents",
    "an agent": "agents/monitor",
    "a cycle": "agents/monitor?cycle=4",
    "a hostile name": f"agents/{quote(HOSTILE, safe='')}",
    "long words": f"agents/{LONG}",
}
WAITS = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from support.monitor import World
from support.kept_agents import waiting

async def main():
    world = World(9)
    async with waiting(sys.argv[2], world) as cycle:
        await cycle
    print([int(level) for level in world.levels])

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with an agent that has run, and one with a hostile name that fails."""
    folder = tmp_path_factory.mktemp("a_project_whose_name_is_longer_than_a_narrow_window_is_wide")
    (folder / "redraft.toml").touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("REDRAFT_HOME", ".redraft")
        asyncio.run(ran_cycles(6))
        asyncio.run(ran_cycles(2, HOSTILE, world=World(-1)))
        asyncio.run(ran_cycles(2, LONG, world=World(ValueError(LONG * 9))))
    return folder


@pytest.fixture
def expected():
    return ("400",)


@contextmanager
def waits(project, name):
    """A process in which an agent waits for a person."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(TESTS), name],
        cwd=project,
        env={**os.environ, "REDRAFT_HOME": ".redraft"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def remembered(project, agent):
    """The output of `redraft cycle memory`."""
    command = [sys.executable, "-m", "redraft", "cycle", "memory", agent, "--json"]
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}
    output = subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True).stdout
    return json.loads(output)["memory"]


def test_every_page_is_accessible_and_fits(opened, dashboard_url):
    assert faults(opened(""), dashboard_url, PAGES) == {}


CUT = """
() => [...document.querySelectorAll("svg.chart")].flatMap(svg => {
  const room = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < room.left || own.right > room.right || own.top < room.top || own.bottom > room.bottom;
  }).map(text => text.textContent);
})
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_chart_labels_are_not_cut_off(opened, width):
    page = opened("agents/monitor")
    page.set_viewport_size({"width": width, "height": 740})
    label = page.locator(".trends svg").first.locator("text").first
    label.evaluate("label => { label.textContent = '1,314.5 ms' }")
    assert page.evaluate(CUT) == []


def test_a_person_decides_on_a_waiting_plan(opened, project):
    name = "hall"
    page = opened("agents")
    with waits(project, name) as process:
        card = page.get_by_role("region", name=f"{name} is waiting for you")
        card.get_by_text("rate is high").wait_for(timeout=20_000)
        assert inaccessible(page) == []
        other = opened("agents").get_by_role("region", name=f"{name} is waiting for you")
        other.get_by_label("Your name").fill("Ada")
        other.get_by_label("Message").fill("still being written")
        other.get_by_label("Message").press("ArrowLeft")
        card.get_by_role("combobox").select_option("1-1")
        card.get_by_label("Message").fill("not the first")
        card.get_by_role("button", name="Reject").click()
        page.get_by_text(f"Sent to {name}: reject of 1-1 in cycle 1").wait_for()
        card.get_by_text("✗ rejected").wait_for(timeout=10_000)
        other.get_by_text("✗ rejected").wait_for(timeout=10_000)
        assert other.get_by_label("Your name").input_value() == "Ada"
        other.page.keyboard.type("...")
        assert other.get_by_label("Message").input_value() == "still being writte...n"
        assert card.get_by_label("Message").input_value() == ""
        card.get_by_role("link", name=name).click()
        card = page.get_by_role("region", name="Waiting for you")
        card.get_by_label("Parameters").fill('{"level": 3}')
        card.get_by_role("button", name="Use these parameters").click()
        page.get_by_role("heading", name="Cycle 1 ✓ finished").wait_for(timeout=15_000)
        card.wait_for(state="hidden")
        assert process.wait(timeout=20) == 0
        assert json.loads(process.stdout.read()) == [3]
    said = remembered(project, name)["feedbackHistory"]
    assert [(one["verdict"], one["message"]) for one in said] == [("reject", "not the first"), ("modify", "")]


def test_feedback_can_be_typed_while_the_page_updates(opened, project):
    first, second = opened("agents/monitor"), opened("agents/monitor?cycle=4")
    second.get_by_label("Message").fill("still being written")
    first.get_by_label("Your name").focus()
    first.keyboard.type("Ada")
    first.get_by_label("Message").fill("it was right")
    first.get_by_role("button", name="Approve").focus()
    first.keyboard.press("Enter")
    first.get_by_text("Sent to monitor: approve in cycle 6; its next cycle takes it into account.").wait_for()
    assert first.get_by_label("Message").input_value() == ""
    second.get_by_text("approve, cycle 6: it was right").wait_for(timeout=10_000)
    assert second.get_by_label("Message").input_value() == "still being written"
    first.get_by_role("button", name="Modify").click()
    first.get_by_text("The parameters must be a JSON object").wait_for()


def test_two_cycles_are_compared_from_the_page(opened):
    page = opened("agents/monitor")
    page.get_by_label("From the end of cycle").fill("3")
    page.get_by_label("to the end of cycle").fill("4")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/agents/monitor?from=3&to=4*")
    page.locator("#changes").get_by_text("- retired").wait_for()
    page.get_by_role("link", name="2", exact=True).click()
    page.get_by_role("heading", name="Cycle 2 ✓ finished").wait_for()
