import asyncio

import pytest

from redraft.cycles.agents import Agents
from redraft.cycles.web import SLICE
from redraft.web.page import PageRequest
from redraft.web.project import Project
from support.dashboards import Seen
from support.kept_agents import project, visited, waiting, went_round
from support.monitor import MONITOR

__all__ = ["project"]


def seen(*paths, cycles=5, **given):
    """Return what pages of an agent answer that has gone round."""

    async def main():
        await went_round(cycles, **given)
        async with visited() as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(main())


def test_a_page_shows_how_an_agent_does_and_what_it_remembers(project):
    [page, document] = seen("/agents/monitor", "/agents/monitor.json")
    words, found = Seen(page.text).words, document.json()
    for said in (
        "✓ finished",
        "Watches a rate.",
        "Failures last 0, median 0, most 0",
        "Not tracked: cost ( trackCost in capture-metrics has it recorded)",
        "Cycle 5 ✓ finished",
        "lower 5-1✓ succeeded",
        "From the end of cycle 4 to the end of cycle 5:",
        "Monday has press 185 idle",
        "recentActions 3",
    ):
        assert said.replace(" ", "") in words.replace(" ", ""), said
    assert [cycle["number"] for cycle in found["cycles"]] == [5, 4, 3, 2, 1]
    assert found["cycle"]["derived_data"]["evaluation"]["success"] is True
    assert [item["cycle"] for item in found["memory"]["memory"]["recentActions"]] == [3, 4, 5]
    assert (found["diff"]["from"], found["diff"]["to"], found["older"]) == (4, 5, None)


@pytest.mark.parametrize(
    ("query", "told", "not_told"),
    [
        ("cycle=4", ["Cycle 4 ✓", "- retired", "press 37 idle", "- dropped", "~ changed", "+ new"], []),
        ("cycle=2", ["Cycle 2 ✓", "From the end of cycle 1 to the end of cycle 2:"], ["- dropped"]),
        ("from=1&to=5", ["From the end of cycle 1 to the end of cycle 5:", "- dropped", "- retired"], []),
        ("from=1&to=4", ["to the end of cycle 4:", "- dropped", "- retired"], ["- gone"]),
        ("from=2&to=2", ["Nothing changed."], ["+ new"]),
        ("from=9&to=10", ["There is no cycle 9: expected one from 0 to 5."], ["Nothing changed."]),
        ("before=3", ["Cycle 5 ✓"], []),
        ("from=&to=&cycle=", ["Cycle 5 ✓"], []),
    ],
)
def test_what_can_be_asked(project, query, told, not_told):
    [page] = seen(f"/agents/monitor?{query}")
    words = Seen(page.text).words
    assert page.status_code == 200
    assert [said for said in told if said not in words] == []
    assert [said for said in not_told if said in words] == []


def test_of_too_many_cycles_it_is_not_known_what_they_retired(project, monkeypatch):
    monkeypatch.setattr("redraft.cycles.web.LOOKED_AT", 3)
    [page] = seen("/agents/monitor?from=1&to=5")
    words = Seen(page.text).words
    assert "- gone" in words
    assert "- retired" not in words


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/agents/monitr", 404, "did you mean &#39;monitor&#39;"),
        ("/agents/monitor.events/x", 404, "There is no agent"),
        ("/agents/monitor?cycle=9", 404, "no cycle 9 here"),
        ("/agents/monitor?before=9", 400, "no cycle 9 here"),
        ("/agents/monitor?cycle=-1", 400, "cycle is the number of a cycle, got &#39;-1&#39;"),
        ("/agents/monitor?from=%3Cb%3E", 400, "from is the number of a cycle, got &#39;&lt;b&gt;&#39;"),
        ("/agents/monitor?to=99999999999", 400, "to is the number of a cycle"),
    ],
)
def test_what_cant_be_asked_is_told(project, path, status, told):
    [page] = seen(path, cycles=1)
    assert (page.status_code, told in page.text) == (status, True), page.text


def test_older_cycles_are_a_page_further(project, monkeypatch):
    monkeypatch.setattr("redraft.cycles.web.MOST", 2)
    first, second = seen("/agents/monitor", "/agents/monitor.json?before=4", cycles=5)
    assert "/agents/monitor?before=4#how" in Seen(first.text).links
    assert [cycle["number"] for cycle in second.json()["cycles"]] == [3, 2]


def test_of_many_items_the_newest_are_shown_and_all_are_in_the_data(project, monkeypatch):
    monkeypatch.setattr("redraft.cycles.web.SHOWN", 2)
    monkeypatch.setattr("redraft.cycles.web.MOST_CHANGES", 1)
    page, document = seen("/agents/monitor", "/agents/monitor.json")
    assert "… and 1 older" in Seen(page.text).words
    assert "… and 3 more" in Seen(page.text).words
    assert len(document.json()["memory"]["memory"]["recentActions"]) == 3
    assert len(document.json()["diff"]["changes"]) == 4


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"verdict": "approve"}, 200, "monitor has it: approve; its next cycle takes it into account."),
        ({"verdict": "reject", "cycle": "1", "message": "no"}, 200, "monitor has it: reject in cycle 1; its"),
        ({"verdict": "modify", "changes": '{"level": 2}', "action": "lower"}, 200, "modify lower; its next"),
        (
            {"verdict": "modify", "changes": '{"levle": 2}'},
            400,
            "no parameter 'levle'; did you mean 'level'?",
        ),
        ({"verdict": "approve", "action": "lowr"}, 400, "no action 'lowr'; did you mean 'lower'?"),
        ({}, 400, "verdict must be one of approve, reject, modify, got ''."),
        ({"verdict": "maybe"}, 400, "got 'maybe'"),
        ({"verdict": "modify"}, 400, 'The parameters must be a JSON object such as {"level": 2}: Expecting'),
        ({"verdict": "modify", "changes": "[1]"}, 400, "got '[1]'"),
        ({"verdict": "modify", "changes": "[" * 100_000}, 400, "The parameters must be a JSON object"),
        ({"verdict": "approve", "cycle": "7"}, 400, "no cycle 7 here"),
        ({"verdict": "approve", "cycle": "one"}, 400, "cycle is the number of a cycle, got 'one'."),
        ({"verdict": "approve", "message": "x" * 4_001}, 400, "Feedback may have 4,000 characters"),
        ({"verdict": "approve", "by": 3}, 400, "The field 'by' must be a text, got 3."),
    ],
)
def test_feedback_is_kept_or_refused(project, fields, status, told):
    async def main():
        await went_round(1)
        async with visited() as client:
            answer = await client.post("/agents/monitor/feedback", json=fields)
            return (
                answer,
                await (await Agents().get("monitor")).pending(),
                await client.get("/agents/monitor"),
            )

    answer, kept, page = asyncio.run(main())
    assert (answer.status_code, told in "".join(answer.json().values())) == (status, True), answer.text
    assert [one.verdict for one in kept] == ([fields["verdict"]] if status == 200 else [])
    assert ("Not taken by a cycle yet" in page.text) == (status == 200)


def test_feedback_for_nobody_is_not_found(project):
    async def main():
        async with visited() as client:
            return await client.post("/agents/nobody/feedback", json={"verdict": "approve"})

    answer = asyncio.run(main())
    assert (answer.status_code, "no agent 'nobody'" in answer.json()["error"]) == (404, True)


def test_an_open_page_hears_of_feedback_and_of_cycles(project):
    async def main():
        marks = []
        asked = PageRequest(Project.here(), {"name": "controlled"}, {})
        async with visited() as client, waiting() as cycle:
            marks.append(await SLICE.pages[1].fingerprint(asked))
            said = {"verdict": "approve", "cycle": "1", "action": "1-1"}
            await client.post("/agents/controlled/feedback", json=said)
            marks.append(await SLICE.pages[1].fingerprint(asked))
            await client.post("/agents/controlled/feedback", json=said | {"action": "1-2"})
            await asyncio.wait_for(cycle, 10)
            marks.append(await SLICE.pages[1].fingerprint(asked))
        return marks

    marks = asyncio.run(main())
    assert len(set(marks)) == 3
    assert all(marks)


def test_a_secret_in_what_an_agent_keeps_is_withheld(project, monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    text = MONITOR.replace("as always", f"because of {secret}")

    async def main():
        await went_round(2, text=text)
        monkeypatch.setenv("MY_API_KEY", secret)  # known to whoever looks, not to who wrote it
        async with visited() as client:
            return [await client.get(path) for path in ("/agents/monitor", "/agents/monitor.json", "/agents")]

    for answer in asyncio.run(main()):
        assert answer.status_code == 200
        assert "zeppelin" not in answer.text
