"""What is spent beside runs, on the page of spend and on that of a run."""

import asyncio

import pytest

from redraft import ChatReply, ReflectionPattern, ScriptedModel, reflect
from redraft._steps import answer
from redraft.cycles.agents import Agents
from redraft.cycles.web import AgentList
from redraft.history.beside import Beside
from redraft.loop.journal import Journalled
from redraft.loop.keeper import RunKey
from redraft.notes.learning import Learned
from redraft.protocols import ChatRequest, Message
from redraft.stores.memory import MemoryStore
from redraft.web.project import Project
from support.dashboards import Seen, described, pages, put
from support.kept_agents import project, visited, went_round
from support.kept_runs import CALL

__all__ = ["project"]


def rows(table):
    return {
        row["name"]: (row["runs"], row["beside"], row["input_tokens"] + row["output_tokens"]) for row in table
    }


@pytest.mark.usefixtures("project")
def test_spend_includes_the_cycles_of_agents():
    async def main():
        await went_round(3)
        await went_round(2, "other")
        records = [one for name in ("monitor", "other") for one in await (await Agents().get(name)).cycles()]
        async with visited() as client:
            return (
                [one.usage for one in records],
                (await client.get("/spend.json")).json(),
                await client.get("/spend"),
            )

    usages, told, page = asyncio.run(main())
    used = sum(one.total_tokens for one in usages)
    assert used > 0
    assert (told["total"]["runs"], told["total"]["beside"]) == (0, 5)
    assert told["total"]["input_tokens"] + told["total"]["output_tokens"] == used
    assert rows(told["roles"]["rows"]) == {"cycle": (0, 5, used)}
    assert {name: row[:2] for name, row in rows(told["agents"]["rows"]).items()} == {
        "monitor": (0, 3),
        "other": (0, 2),
    }
    assert told["tasks"]["rows"] == []
    assert ("href", "/agents/monitor") in Seen(page.text).attributes
    assert "Older ones are being read" not in page.text


@pytest.mark.usefixtures("project")
def test_a_cycle_is_counted_once_and_a_later_one_too():
    async def main():
        here = Project.here()
        counts = []
        for cycles in (120, 0, 2, 60):
            if cycles:
                await went_round(cycles)
            here.shared(AgentList.of).expire()
            while True:
                await here.shared(Beside.of).read()
                if here.shared(Beside.of).is_whole:
                    break
            counts.append(sum(used.beside for used in here.shared(Beside.of).spent.values()))
        await here.store.aclose()
        return counts

    assert asyncio.run(main()) == [120, 120, 122, 182]


def noted(run_id="noted"):
    store = MemoryStore()
    put(store, described(run_id, usage_by_role={"generation": CALL}))
    asyncio.run(RunKey(run_id, store).note("reflection", Learned(usage=CALL + CALL)))
    return store


def test_spend_includes_the_notes_that_were_made_after_runs():
    told = pages(noted()).get("/spend.json?days=all").json()
    assert told["total"]["cost_usd"] == pytest.approx(0.03)
    assert (told["total"]["runs"], told["total"]["beside"]) == (1, 1)
    assert {row["name"]: row["cost_usd"] for row in told["roles"]["rows"]} == {
        "generation": 0.01,
        "note": 0.02,
    }
    assert {row["name"] for row in told["models"]["rows"]} == {"any:model"}
    assert [row["cost_usd"] for row in told["tasks"]["rows"]] == [pytest.approx(0.03)]


def test_the_page_of_a_run_includes_its_note():
    told = pages(noted()).get("/runs/noted.json").json()
    assert told["usage_by_role"]["note"]["cost_usd"] == 0.02
    assert told["usage"]["cost_usd"] == pytest.approx(0.03)
    assert "$0.0300" in Seen(pages(noted()).get("/runs/noted").text).words


class Learning:
    """An advisor that asks a model what there is to learn."""

    def __init__(self, model):
        self.model = model

    async def recall(self, task):
        return []

    async def observe(self, result):
        await answer(self.model, ChatRequest((Message("user", "What went wrong?"),)))


def test_the_page_of_a_run_includes_what_lessons_took():
    store = MemoryStore()
    model = ScriptedModel([ChatReply("Nothing.", usage=CALL)])
    pattern = ReflectionPattern(max_iterations=0, advisors=[Learning(model)])
    step = Journalled(store, "observed")
    asyncio.run(
        reflect(
            "Say it.", generate=lambda prompt: "it", evaluate=lambda output: 0.9, pattern=pattern, step=step
        )
    )
    told = pages(store).get("/runs/observed.json").json()
    assert told["usage_by_role"]["lesson"]["input_tokens"] == CALL.input_tokens
    assert told["usage"]["output_tokens"] == CALL.output_tokens
