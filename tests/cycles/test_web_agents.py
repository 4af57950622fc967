import asyncio

import pytest

from redraft.cycles.storage import _project_store_for, storage_of
from redraft.stores.base import Record
from support.dashboards import HOSTILE, Seen
from support.kept_agents import project, visited, waiting, went_round
from support.monitor import World

__all__ = ["project"]

NAMES = [text for text in HOSTILE if text.isprintable()] + ["a/b?c#d", "a.b%2f", "x" * 200]


def test_no_agents_is_an_empty_state_that_says_what_to_run(project):
    async def main():
        async with visited() as client:
            return await client.get("/agents"), await client.get("/agents.json")

    page, document = asyncio.run(main())
    assert "redraft cycle run FILE" in Seen(page.text).words
    assert document.json() == {"schema_version": 1, "agents": []}


def test_agents_are_listed_with_how_they_stand(project):
    async def main():
        await went_round(2, "calm")
        await went_round(1, "failing", world=World(-1))
        async with visited() as client:
            return await client.get("/agents"), await client.get("/agents.json")

    page, document = asyncio.run(main())
    words = Seen(page.text).words
    assert "calm Watches a rate. ✓ finished 2 just now" in words.replace("calmWatches", "calm Watches")
    assert "✗ failed 1 just now" in words
    calm, failing = document.json()["agents"]
    assert (calm["name"], calm["status"], calm["last"]["number"]) == ("calm", "finished", 2)
    assert (failing["status"], len(failing["last"]["metrics"]["failures"])) == ("failed", 1)


def test_a_plan_that_waits_is_decided_on_where_it_is_shown(project):
    world = World(9)

    async def main():
        async with visited() as client, waiting(world=world) as cycle:
            page = Seen((await client.get("/agents")).text)
            answers = [
                await client.post("/agents/controlled/feedback", json={"cycle": "1", **fields})
                for fields in (
                    {"verdict": "reject", "action": "1-1", "message": "not this one", "by": "Ada"},
                    {"verdict": "modify", "action": "1-2", "changes": '{"level": 3}'},
                )
            ]
            result = await asyncio.wait_for(cycle, 10)
            after = Seen((await client.get("/agents")).text)
            return page, answers, result, after

    page, answers, result, after = asyncio.run(main())
    for said in ("controlled waits for you", "rate is high", '{"level": 7}', "it is high", "all that waits"):
        assert said in page.words
    assert [answer.json() for answer in answers] == [
        {"message": "controlled has it: reject 1-1 in cycle 1; the cycle hears it."},
        {"message": "controlled has it: modify 1-2 in cycle 1; the cycle hears it."},
    ]
    assert [int(level) for level in world.levels] == [3]
    assert result.state["memory"]["feedbackHistory"][0]["by"] == "Ada"
    assert "waits for you" not in after.words


def test_what_was_said_of_one_action_is_shown_while_the_other_waits(project):
    async def main():
        async with visited() as client, waiting():
            general = await client.post("/agents/controlled/feedback", json={"verdict": "reject"})
            said = {"verdict": "approve", "cycle": "1", "action": "1-2"}
            await client.post("/agents/controlled/feedback", json=said)
            for _ in range(100):  # between two verdicts it is under way for a moment
                page = Seen((await client.get("/agents/controlled")).text)
                if "It waits for you" in page.words:
                    break
            return page, general

    page, general = asyncio.run(main())
    assert "lower 1-2approved" in page.words
    assert page.words.count("? waits for you") >= 2
    assert (general.status_code, general.json()["error"]) == (
        400,
        "Cycle 1 waits for a decision, which this would be: decide on it first.",
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_shown_harmlessly(project, name):
    async def main():
        learnt = '{"newPatterns": ["<img src=x onerror=alert(1)>"], "insights": ["</script>"]}'
        await went_round(2, name, replies=lambda request: learnt)
        async with visited() as client:
            listed = await client.get("/agents")
            [link] = [one for one in Seen(listed.text).links if one.startswith("/agents/")]
            page = await client.get(link)
            [data] = [one for one in Seen(page.text).links if one.endswith(".json")]
            return listed, page, await client.get(data)

    listed, page, document = asyncio.run(main())
    assert document.json()["name"] == name
    for answer in (listed, page):
        seen = Seen(answer.text)
        assert answer.status_code == 200
        assert {"img", "iframe", "base"}.isdisjoint(seen.tags)
        assert answer.text.count("<script") == 1  # ours
        assert not [one for one, _ in seen.attributes if one.startswith("on") or one == "style"]
        assert all(link.startswith(("/", "#")) for link in seen.links)


@pytest.mark.parametrize("path", ["/agents", "/agents.json", "/agents/monitor", "/agents/monitor.json"])
def test_a_store_that_cant_be_read_is_told(project, path):
    async def main():
        await went_round(1)
        async with visited() as client:
            for beside in (project / ".redraft").glob("redraft.db-*"):
                beside.unlink()
            (project / ".redraft" / "redraft.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
            return await client.get(path)

    answer = asyncio.run(main())
    assert (answer.status_code, "redraft.db" in answer.text) == (503, True), answer.text


def test_an_agent_whose_process_is_gone_is_shown_as_interrupted(project):
    async def main():
        async with waiting():
            store = _project_store_for("controlled")
            lease = await store.get("lease", "lease")
            gone = {**lease.data, "pid": 2**22 + 1, "started": "1"}
            async with visited() as client:
                await store.put(Record("lease", "lease", gone))
                return Seen((await client.get("/agents")).text), Seen(
                    (await client.get("/agents/controlled")).text
                )

    listed, page = asyncio.run(main())
    assert "✗ interrupted" in listed.words
    assert "Its process is gone" in page.words


def test_agents_of_a_long_term_storage_are_seen_and_told(project, postgres, monkeypatch):
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", postgres.url)

    async def main():
        await went_round(2, storage=None)
        async with visited() as client:
            said = await client.post("/agents/monitor/feedback", json={"verdict": "approve", "cycle": "2"})
            found = [await client.get(path) for path in ("/agents", "/agents/monitor")]
        await storage_of().aclose()
        return said, *found

    said, listed, page = asyncio.run(main())
    assert said.json()["message"].startswith("monitor has it: approve in cycle 2")
    assert "✓ finished 2 just now" in Seen(listed.text).words
    assert "kept in the network" in Seen(page.text).words
    assert "approve, cycle 2" in Seen(page.text).words


def test_a_long_term_storage_that_is_away_is_told(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", "postgresql://127.0.0.1:1/nothing")

    async def main():
        async with visited() as client:
            found = [await client.get(path) for path in ("/agents", "/agents/monitor")]
        await storage_of().aclose()
        return found

    for answer in asyncio.run(main()):
        assert (answer.status_code, "127.0.0.1" in answer.text) == (503, True), answer.text
