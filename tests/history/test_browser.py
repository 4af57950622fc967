"""What was spent, in a real browser, over runs of agents with a scripted model."""

import asyncio

import pytest

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.stores.sqlite import SqliteStore
from support.dashboards import faults

PAGES = {
    "spend": "spend",
    "no spend": "spend?days=all&inner=0",
    "success criteria": "runs?criteria=1",
}
SHORT = QualityCriterion("short", evaluator="regex", evaluator_config={"pattern": "^.{1,12}$"})
NAMED = QualityCriterion("named", evaluator="regex", evaluator_config={"pattern": "tea"})
RUNS = 11
DRAFTS = {"wordy": "two cups of tea, if you please", "terse": "tea: 2"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project in which a terse agent and a wordy one wrote down orders."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "redraft.toml").touch()

    async def main():
        store = SqliteStore(folder / ".redraft" / "redraft.db")
        for name, draft in DRAFTS.items():
            pattern = ReflectionPattern(quality_criteria=[SHORT, NAMED], max_iterations=1)
            model = ScriptedModel(lambda request, draft=draft: draft)
            agent = Agent(name=name, model=model, pattern=pattern, keep=store)
            for _ in range(RUNS):
                await agent.run("Write down the order.")
        await store.aclose()

    asyncio.run(main())
    return folder


def test_every_page_is_accessible_and_fits(opened, dashboard_url):
    assert faults(opened(""), dashboard_url, PAGES) == {}


def test_a_period_and_an_agent_are_chosen(opened):
    page = opened("spend")
    page.get_by_label("Runs of").select_option("all")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**days=all**")
    table = page.get_by_role("region", name="By agent")
    assert table.locator("tbody tr").count() == len(DRAFTS)
    table.get_by_role("link", name="wordy").click()
    page.wait_for_url("**/runs?name=wordy")
    assert page.locator("tbody tr").count() == RUNS
