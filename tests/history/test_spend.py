import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from redraft import ReflectionPattern, ScriptedModel, Task, TokenUsage, reflect
from redraft._steps import answer
from redraft.cycles.agents import Agents
from redraft.cycles.records import stored_cycle
from redraft.cycles.web import AgentList
from redraft.history.spend import MOST, SpendTally, _day_rows, without_gaps
from redraft.loop.journal import Journalled
from redraft.loop.record import Origin
from redraft.protocols import ChatReply, ChatRequest, Message
from redraft.stores.base import Record
from redraft.stores.run_index import NOTE_COST, Expense, spent
from redraft.stores.sqlite import MemoryStore
from support.dashboards import HOSTILE, Seen, described, pages, put
from support.kept_agents import project, ran_cycles, visited
from support.kept_runs import CALL, GONE
from support.versions import history

FREE = TokenUsage(50, 5, requests=1, cost_usd=0.0)
UNPRICED = TokenUsage(70, 7, requests=2, failed_requests=1, cost_usd=None)

ANOTHER, FUNCTION = Task("Another."), Origin("function", "reflect", "")


def run(run_id, *scores, judge="", **fields):
    """A run whose versions used a call each."""
    known = {"usage_by_role": {"generation": CALL}, "reason": "plateau"}
    made = described(run_id, versions=history(*scores or (0.5,), token_usage=CALL), **known | fields)
    return replace(made, options={**made.options, "judge": judge})


def read(*runs, query="", kind="json"):
    store = MemoryStore()
    put(store, *runs)
    answer = pages(store).get(f"/spend{'.json' if kind == 'json' else ''}{query}")
    assert answer.status_code == 200
    return answer.json() if kind == "json" else answer.text


def rows(table):
    return {row["name"]: (row["cost_usd"], row["unknown"]) for row in table["rows"]}


def test_spend_is_summed_by_role_model_agent_and_task():
    told = read(
        run("a", usage_by_role={"generation": CALL, "evaluation": FREE}),
        run("b", judge="big:judge", usage_by_role={"generation": CALL, "evaluation": CALL}),
        run("c", judge="Judge('mine')", usage_by_role={"evaluation": CALL}),
        run("d", task=ANOTHER, origin=FUNCTION, usage_by_role={"generation": UNPRICED}),
    )
    assert (told["total"]["runs"], told["total"]["cost_usd"], told["total"]["unknown"]) == (
        4,
        pytest.approx(0.04),
        1,
    )
    assert (told["total"]["failed_requests"], told["total"]["requests"]) == (1, 7)
    assert rows(told["roles"]) == {
        "generation": (pytest.approx(0.02), 1),
        "evaluation": (pytest.approx(0.02), 0),
    }
    assert rows(told["models"]) == {
        "any:model": (pytest.approx(0.03), 0),
        "big:judge": (0.01, 0),
        "": (0.0, 1),
    }
    assert rows(told["agents"]) == {"guide writer": (pytest.approx(0.04), 0), "reflect": (0.0, 1)}
    assert list(rows(told["tasks"])) == ["Describe the bridge in one sentence, for a guide book.", "Another."]


def test_spend_after_the_best_version_is_shown():
    told = read(run("a", 0.2, 0.9, 0.4, 0.3), run("b", 0.2, 0.9))
    assert (told["total"]["later_usd"], told["total"]["later_tokens"]) == (0.02, 240)
    dropped = run("c", 0.2, 0.9, 0.4)
    told = read(replace(dropped, versions=dropped.versions[:2]))
    assert (told["total"]["later_usd"], told["total"]["later_unknown"]) == (0.0, 1)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([run("a", usage_by_role={"generation": CALL})], "cost$0.0100"),
        (
            [run("a", usage_by_role={"generation": CALL}), run("b", usage_by_role={"x": UNPRICED})],
            "costat least $0.0100",
        ),
        ([run("a", usage_by_role={"generation": UNPRICED})], "costnot known"),
        ([run("a", usage_by_role={}, status="failed")], "costnot known"),
        ([run("a"), run("b", reason=None)], "Not counted yet: 1 running."),
        ([run("a"), run("b", reason=None, process=GONE)], "Not counted yet: 1 interrupted."),
        ([run("a"), run("b", parent="x")], "1 inside others"),
        ([run("a", reason=None)], "No runs finished in this period."),
        ([], "No finished runs are stored here yet."),
    ],
)
def test_unknown_costs_are_mentioned(runs, told):
    runs = [replace(one, versions=()) if one.status == "failed" else one for one in runs]
    assert told in Seen(read(*runs, kind="html")).words


@pytest.mark.parametrize(
    ("query", "runs"), [("?days=all", 2), ("?days=7&inner=0", 1), ("?inner=1", 2), ("?days=90", 2)]
)
def test_inner_runs_can_be_left_out(query, runs):
    assert read(run("a"), run("b", parent="a"), query=query)["total"]["runs"] == runs


def test_an_empty_page_says_what_to_run():
    for query in ("", "?days=7", "?days=all"):
        assert "redraft demo" in Seen(pages(MemoryStore()).get(f"/spend{query}").text).words


def test_an_unknown_period_is_an_error():
    answer = pages(MemoryStore()).get("/spend?days=8")
    assert (answer.status_code, "days must be one of 7, 30, 90, all" in answer.text) == (400, True)


def test_rows_beyond_the_limit_are_summed():
    runs = [run(f"r{number:02}", task=Task(f"Task {number}")) for number in range(MOST + 5)]
    tasks = read(*runs)["tasks"]
    assert (len(tasks["rows"]), tasks["others"]["count"], tasks["others"]["runs"]) == (MOST, 5, 5)
    assert "5 other tasks" in Seen(read(*runs, kind="html")).words
    assert "1 other task" in Seen(read(*runs[4:], kind="html")).words


def test_many_days_are_shown_by_month():
    days = {
        date(2026, 1, 31): SpendTally(1),
        date(2026, 1, 1): SpendTally(2),
        date(2025, 6, 1): SpendTally(4),
    }
    assert [(row["name"], row["runs"]) for row in _day_rows(days, by_month=True)] == [
        ("2026-01", 3),
        ("2025-06", 4),
    ]
    by_day = _day_rows(days, by_month=False)
    assert [row["name"] for row in by_day] == ["2026-01-31", "2026-01-01", "2025-06-01"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_are_escaped(text):
    page = read(run("a", task=Task(text), origin=Origin("agent", text, text)), kind="html")
    seen = Seen(page)
    assert "img" not in seen.tags
    assert not any(name.startswith("on") for name, _ in seen.attributes)
    assert all(link.startswith(("/", "#")) for link in seen.links)
    assert not any(character in page for character in "\x1b\x00\x9b\u202e\u2066")


def test_secrets_are_withheld_before_a_description_is_cut(monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    monkeypatch.setenv("MY_API_KEY", secret)
    task, name = Task("x" * 190 + secret), f"agent {secret}"
    made = run("a", task=task, origin=Origin("agent", name, secret))
    for kind in ("html", "json"):
        told = str(read(made, kind=kind))
        assert "zeppelin" not in told


__all__ = ["project"]


def counted_rows(table):
    return {
        row["name"]: (row["runs"], row["cycles_and_notes"], row["input_tokens"] + row["output_tokens"])
        for row in table
    }


@pytest.mark.usefixtures("project")
def test_spend_includes_the_cycles_of_agents():
    async def main():
        await ran_cycles(3)
        await ran_cycles(2, "other")
        records = [
            cycle for name in ("monitor", "other") for cycle in await (await Agents().get(name)).cycles()
        ]
        async with visited() as client:
            return (
                [record.usage for record in records],
                (await client.get("/spend.json")).json(),
                await client.get("/spend"),
            )

    usages, told, page = asyncio.run(main())
    used = sum(one.total_tokens for one in usages)
    assert used > 0
    assert (told["total"]["runs"], told["total"]["cycles_and_notes"]) == (0, 5)
    assert told["total"]["input_tokens"] + told["total"]["output_tokens"] == used
    assert counted_rows(told["roles"]["rows"]) == {"cycle": (0, 5, used)}
    assert {name: row[:2] for name, row in counted_rows(told["agents"]["rows"]).items()} == {
        "monitor": (0, 3),
        "other": (0, 2),
    }
    assert told["tasks"]["rows"] == []
    assert ("href", "/agents/monitor") in Seen(page.text).attributes


@pytest.mark.usefixtures("project")
def test_spend_grows_with_each_cycle_and_leaves_out_those_under_way():
    async def main():
        agents, counts = AgentList(), []
        for cycles in (12, 0, 2):
            if cycles:
                await ran_cycles(cycles)
            agents.expire()
            counts.append(sum(used.runs for used in (await agents.spend())["monitor"].values()))
        async with await Agents().get("monitor") as handle:
            last = (await handle.cycles(limit=1))[0]
            await handle.location.store.put(stored_cycle(replace(last, status="abandoned")))
            agents.expire()
            counts.append(sum(used.runs for used in (await agents.spend())["monitor"].values()))
        return counts

    assert asyncio.run(main()) == [12, 12, 14, 13]


def noted(run_id="noted"):
    store = MemoryStore()
    put(store, described(run_id, usage_by_role={"generation": CALL}))
    cost = Expense(datetime.now(UTC), run_id, **spent([CALL + CALL]))
    asyncio.run(store.put(Record(NOTE_COST, f"{run_id}/reflection", {"index": cost.to_data()})))
    return store


def test_spend_includes_notes():
    told = pages(noted()).get("/spend.json?days=all").json()
    assert told["total"]["cost_usd"] == pytest.approx(0.03)
    assert (told["total"]["runs"], told["total"]["cycles_and_notes"]) == (1, 1)
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


def test_the_page_of_a_run_includes_the_cost_of_lessons():
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


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["2026-02-27", "2026-03-02"], 4),
        (["2025-11", "2026-02"], 4),
        (["2026-02-27"], 1),
        ([], 0),
    ],
)
def test_periods_without_runs_are_gaps(names, count):
    filled = without_gaps(names)
    assert len(filled) == count
    assert filled[:1] + filled[-1:] == names[:1] + names[-1:]
