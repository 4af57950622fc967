"""The pages on agents, their cycles and memory, and feedback."""

import asyncio
from datetime import UTC, datetime
from shutil import copytree

import pytest

from redraft.cycles.agents import (
    Agents,
    changed_fields,
    cycle_document,
    details_of,
    title_field,
    value_text,
)
from redraft.cycles.mail import Feedback
from redraft.cycles.records import CycleRecord
from redraft.cycles.storage import locate, storage_of
from redraft.cycles.web import (
    MAX_TEXT,
    SLICE,
    anomalies,
    decision,
    deprecated,
    gone,
    short,
    violations,
    without_keys,
)
from redraft.stores.base import Record
from redraft.web.page import PageRequest
from redraft.web.project import Project
from support.commands import document, redraft
from support.dashboards import HOSTILE, Seen
from support.kept_agents import project, ran_cycles, visited, waiting
from support.monitor import MONITOR, World

__all__ = ["project"]

NAMES = [text for text in HOSTILE if text.isprintable()] + ["a/b?c#d", "a.b%2f", "x" * 200]


async def test_the_empty_page_says_what_to_run(project):
    async with visited() as client:
        page, document = await client.get("/agents"), await client.get("/agents.json")
    assert "redraft cycle run FILE" in Seen(page.text).words
    assert document.json() == {"schema_version": 1, "agents": []}


async def test_lists_agents_with_their_status(project):
    await ran_cycles(2, "calm")
    await ran_cycles(1, "failing", world=World(-1))
    async with visited() as client:
        page, document = await client.get("/agents"), await client.get("/agents.json")
    words = Seen(page.text).words
    assert "calm Watches a rate. ✓ finished 2 just now" in words.replace("calmWatches", "calm Watches")
    assert "✗ failed 1 just now" in words
    calm, failing = document.json()["agents"]
    assert (calm["name"], calm["status"], calm["last"]["number"]) == ("calm", "finished", 2)
    assert (failing["status"], len(failing["last"]["metrics"]["failures"])) == ("failed", 1)


async def test_a_waiting_plan_can_be_decided_on_the_page(project):
    world = World(9)
    async with visited() as client, waiting(world=world) as cycle:
        page = Seen((await client.get("/agents")).text)
        answers = [
            await client.post("/agents/controlled/feedback", json={"cycle": "1", **fields})
            for fields in (
                {"verdict": "reject", "action": "1-1", "message": "not this one", "by": "Ada"},
                {"verdict": "modify", "action": "1-2", "changes": '{"level": 3}'},
            )
        ]
        result = await asyncio.wait_for(cycle, 60)
        after = Seen((await client.get("/agents")).text)
    for expected in (
        "controlled is waiting for you",
        "rate is high",
        '{"level": 7}',
        "it is high",
        "all waiting actions",
    ):
        assert expected in page.words
    assert [answer.json() for answer in answers] == [
        {"message": "Sent to controlled: reject of 1-1 in cycle 1; the cycle uses it."},
        {"message": "Sent to controlled: modify of 1-2 in cycle 1; the cycle uses it."},
    ]
    assert [int(level) for level in world.levels] == [3]
    assert result.state["memory"]["feedbackHistory"][0]["by"] == "Ada"
    assert "waiting for you" not in after.words


async def test_a_verdict_on_one_action_is_shown_while_another_waits(project):
    async with visited() as client, waiting():
        general = await client.post("/agents/controlled/feedback", json={"verdict": "reject"})
        fields = {"verdict": "approve", "cycle": "1", "action": "1-2"}
        await client.post("/agents/controlled/feedback", json=fields)
        for _ in range(100):  # between two verdicts, the cycle runs for a moment
            page = Seen((await client.get("/agents/controlled")).text)
            if "Waiting for you" in page.words:
                break
    assert "lower 1-2approved" in page.words
    assert page.words.count("? waiting for you") >= 2
    assert (general.status_code, general.json()["error"]) == (
        400,
        "Cycle 1 is waiting for a decision; decide on that cycle first.",
    )


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_escaped(project, name):
    async def main():
        learned = '{"newPatterns": ["<img src=x onerror=alert(1)>"], "insights": ["</script>"]}'
        await ran_cycles(2, name, replies=lambda request: learned)
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
async def test_an_unreadable_store_is_reported(project, path):
    await ran_cycles(1)
    async with visited() as client:
        for file in (project / ".redraft").glob("redraft.db-*"):
            file.unlink()
        (project / ".redraft" / "redraft.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
        answer = await client.get(path)
    assert (answer.status_code, "redraft.db" in answer.text) == (503, True), answer.text


async def test_an_agent_without_its_process_is_shown_as_interrupted(project):
    async with waiting():
        store = locate("controlled", "project", "default").store
        lease = await store.get("lease", "lease")
        gone = {**lease.data, "pid": 2**22 + 1, "started": "1"}
        async with visited() as client:
            await store.put(Record("lease", "lease", gone))
            listed, page = (
                Seen((await client.get("/agents")).text),
                Seen((await client.get("/agents/controlled")).text),
            )
    assert "✗ interrupted" in listed.words
    assert "The agent's process is gone" in page.words


async def test_shows_agents_of_a_long_term_storage_and_sends_them_feedback(project, postgres, monkeypatch):
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", postgres.url)
    await ran_cycles(2, storage=None)
    async with visited() as client:
        answer = await client.post("/agents/monitor/feedback", json={"verdict": "approve", "cycle": "2"})
        found = [await client.get(path) for path in ("/agents", "/agents/monitor")]
    await storage_of().aclose()
    answer, listed, page = answer, *found
    assert answer.json()["message"].startswith("Sent to monitor: approve in cycle 2")
    assert "✓ finished 2 just now" in Seen(listed.text).words
    assert "stored in the network" in Seen(page.text).words
    assert "approve, cycle 2" in Seen(page.text).words


def test_an_unreachable_long_term_storage_is_reported(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", "postgresql://127.0.0.1:1/nothing")

    async def main():
        async with visited() as client:
            found = [await client.get(path) for path in ("/agents", "/agents/monitor")]
        await storage_of().aclose()
        return found

    for answer in asyncio.run(main()):
        assert (answer.status_code, "127.0.0.1" in answer.text) == (503, True), answer.text


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The stored data of a project whose agent has run five cycles."""
    folder = tmp_path_factory.mktemp("ran")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("REDRAFT_HOME", ".redraft")
        asyncio.run(ran_cycles(5))
    return folder / ".redraft"


@pytest.fixture
def monitored(project, ran):
    """A project whose agent has run five cycles."""
    return copytree(ran, project / ".redraft")


async def seen(*paths):
    """The responses of pages."""
    async with visited() as client:
        return [await client.get(path) for path in paths]


async def test_the_page_of_an_agent_shows_metrics_and_memory(monitored):
    [page, document] = await seen("/agents/monitor", "/agents/monitor.json")
    words, found = Seen(page.text).words, document.json()
    for expected in (
        "✓ finished",
        "Watches a rate.",
        "Failures last 0, median 0, max 0",
        "Not tracked: cost ( trackCost in capture-metrics records it)",
        "Cycle 5 ✓ finished",
        "lower 5-1✓ succeeded",
        "From the end of cycle 4 to the end of cycle 5:",
        "Monday has press 185 idle",
        "recentActions 3",
    ):
        assert expected.replace(" ", "") in words.replace(" ", ""), expected
    assert [cycle["number"] for cycle in found["cycles"]] == [5, 4, 3, 2, 1]
    assert found["cycle"]["derived_data"]["evaluation"]["success"] is True
    assert [item["cycle"] for item in found["memory"]["memory"]["recentActions"]] == [3, 4, 5]
    assert (found["diff"]["from"], found["diff"]["to"], found["older"]) == (4, 5, None)


@pytest.mark.parametrize(
    ("query", "shown", "hidden"),
    [
        ("cycle=4", ["Cycle 4 ✓", "- retired", "press 37 idle", "- dropped", "~ changed", "+ new"], []),
        ("cycle=2", ["Cycle 2 ✓", "From the end of cycle 1 to the end of cycle 2:"], ["- dropped"]),
        ("from=1&to=5", ["From the end of cycle 1 to the end of cycle 5:", "- dropped", "- retired"], []),
        ("from=1&to=4", ["to the end of cycle 4:", "- dropped", "- retired"], ["- gone"]),
        ("from=2&to=2", ["Nothing changed."], ["+ new"]),
        ("from=9&to=10", ["There is no cycle 9; expected a number from 0 to 5."], ["Nothing changed."]),
        ("before=3", ["Cycle 5 ✓"], []),
        ("from=&to=&cycle=", ["Cycle 5 ✓"], []),
    ],
)
async def test_queries_of_the_page(monitored, query, shown, hidden):
    [page] = await seen(f"/agents/monitor?{query}")
    words = Seen(page.text).words
    assert page.status_code == 200
    assert [text for text in shown if text not in words] == []
    assert [text for text in hidden if text in words] == []


async def test_retired_patterns_are_unknown_across_too_many_cycles(monitored, monkeypatch):
    monkeypatch.setattr("redraft.cycles.web.MAX_BETWEEN", 3)
    [page] = await seen("/agents/monitor?from=1&to=5")
    words = Seen(page.text).words
    assert "- gone" in words
    assert "- retired" not in words


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/agents/monitr", 404, "did you mean &#39;monitor&#39;"),
        ("/agents/monitor.events/x", 404, "There is no agent"),
        ("/agents/monitor?cycle=9", 404, "no cycle 9 here"),
        ("/agents/monitor?before=9", 400, "no cycle 9 here"),
        ("/agents/monitor?cycle=-1", 400, "cycle must be the number of a cycle, got &#39;-1&#39;"),
        ("/agents/monitor?from=%3Cb%3E", 400, "from must be the number of a cycle, got &#39;&lt;b&gt;&#39;"),
        ("/agents/monitor?to=99999999999", 400, "to must be the number of a cycle"),
    ],
)
async def test_rejects_invalid_queries(monitored, path, status, message):
    [page] = await seen(path)
    assert (page.status_code, message in page.text) == (status, True), page.text


async def test_older_cycles_are_on_the_next_page(monitored, monkeypatch):
    monkeypatch.setattr("redraft.cycles.web.PAGE_SIZE", 2)
    first, second = await seen("/agents/monitor", "/agents/monitor.json?before=4")
    assert "/agents/monitor?before=4#cycles" in Seen(first.text).links
    assert [cycle["number"] for cycle in second.json()["cycles"]] == [3, 2]


async def test_the_page_shows_the_newest_items_and_the_data_all(monitored, monkeypatch):
    monkeypatch.setattr("redraft.cycles.web.MAX_ITEMS", 2)
    monkeypatch.setattr("redraft.cycles.web.MAX_CHANGES", 1)
    page, document = await seen("/agents/monitor", "/agents/monitor.json")
    assert "… and 1 older" in Seen(page.text).words
    assert "… and 3 more" in Seen(page.text).words
    assert len(document.json()["memory"]["memory"]["recentActions"]) == 3
    assert len(document.json()["diff"]["changes"]) == 4


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"verdict": "approve"}, 200, "Sent to monitor: approve; its next cycle takes it into account."),
        (
            {"verdict": "reject", "cycle": "1", "message": "no"},
            200,
            "Sent to monitor: reject in cycle 1; its",
        ),
        (
            {"verdict": "modify", "changes": '{"level": 2}', "action": "lower"},
            200,
            "modify of lower; its next",
        ),
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
        ({"verdict": "modify", "changes": '{"level": NaN}'}, 400, "NaN is not a number of JSON"),
        ({"verdict": "modify", "changes": "[" * 100_000}, 400, "The parameters must be a JSON object"),
        ({"verdict": "approve", "cycle": "7"}, 400, "no cycle 7 here"),
        ({"verdict": "approve", "cycle": "0"}, 400, "no cycle 0 here"),
        ({"verdict": "approve", "cycle": "-1"}, 400, "cycle must be the number of a cycle, got '-1'"),
        ({"verdict": "approve", "cycle": "one"}, 400, "cycle must be the number of a cycle, got 'one'."),
        ({"verdict": "approve", "message": "x" * 4_001}, 400, "Feedback is limited to 4,000 characters"),
        ({"verdict": "approve", "by": 3}, 400, "The field 'by' must be a string, got 3."),
    ],
)
async def test_feedback_is_stored_or_rejected(project, fields, status, message):
    await ran_cycles(1)
    async with visited() as client:
        answer = await client.post("/agents/monitor/feedback", json=fields)
        kept, page = await (await Agents().get("monitor")).pending(), await client.get("/agents/monitor")
    assert (answer.status_code, message in "".join(answer.json().values())) == (status, True), answer.text
    assert [one.verdict for one in kept] == ([fields["verdict"]] if status == 200 else [])
    assert ("<h3>Pending</h3>" in page.text) == (status == 200)


async def test_feedback_for_an_unknown_agent_is_not_found(project):
    async with visited() as client:
        answer = await client.post("/agents/nobody/feedback", json={"verdict": "approve"})
    assert (answer.status_code, "no agent 'nobody'" in answer.json()["error"]) == (404, True)


async def test_an_open_page_hears_of_feedback_and_cycles(project):
    marks = []
    asked = PageRequest(Project.here(), {"name": "controlled"}, {})
    async with visited() as client, waiting() as cycle:
        marks.append(await SLICE.pages[1].fingerprint(asked))
        fields = {"verdict": "approve", "cycle": "1", "action": "1-1"}
        await client.post("/agents/controlled/feedback", json=fields)
        marks.append(await SLICE.pages[1].fingerprint(asked))
        await client.post("/agents/controlled/feedback", json=fields | {"action": "1-2"})
        await asyncio.wait_for(cycle, 60)
        marks.append(await SLICE.pages[1].fingerprint(asked))
    assert len(set(marks)) == 3
    assert all(marks)


async def test_stored_secrets_are_withheld(project, monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    text = MONITOR.replace("as always", f"because of {secret}")
    await ran_cycles(2, text=text)
    monkeypatch.setenv("MY_API_KEY", secret)  # known to the dashboard, unknown to the agent
    async with visited() as client:
        answers = [await client.get(path) for path in ("/agents/monitor", "/agents/monitor.json", "/agents")]
    for answer in answers:
        assert answer.status_code == 200
        assert "zeppelin" not in answer.text


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
PLAN = {"actions": [{"id": "7-1", "action": "lower", "params": {"level": 1}, "reason": "high"}]}
DONE = {
    "id": "7-1",
    "action": "lower",
    "status": "succeeded",
    "result": {"ok": 1},
    "idempotencyKey": "k" * 32,
}
BLOCKED = {
    "approved": [],
    "violations": [
        {"constraint": "c", "action": "lower", "actionId": "7-1", "message": "too low", "blocked": True}
    ],
}


def cycle(status="finished", **derived):
    return CycleRecord(7, NOON, status=status, derived_data=derived)


def feedback(verdict, action=None, number=7):
    return Feedback("f1", verdict, "", "2026-11-22T12:00:00.000Z", number, action)


@pytest.mark.parametrize(
    ("record", "pending", "status", "outcome"),
    [
        (cycle(plan=PLAN), [], "planned", None),
        (cycle(plan=PLAN, execution={"actions": [DONE]}), [], "succeeded", {"ok": 1}),
        (cycle(plan=PLAN, execution={"actions": [DONE | {"error": "no"}]}), [], "succeeded", "no"),
        (cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}), [], "waiting", None),
        (
            cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}),
            [feedback("reject")],
            "rejected",
            None,
        ),
        (
            cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}),
            [feedback("modify", "lower")],
            "modified",
            None,
        ),
        (
            cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}),
            [feedback("approve", "other"), feedback("approve", number=6)],
            "waiting",
            None,
        ),
        (cycle("waiting", plan=PLAN, governance=BLOCKED), [], "blocked", "too low"),
        (cycle(plan=PLAN, governance={"approved": ["7-1"]}), [], "planned", None),
    ],
)
def test_the_status_of_an_action(record, pending, status, outcome):
    [action] = cycle_document(record, pending)["actions"]
    assert (action["status"], action["outcome"], action["params"]) == (status, outcome, {"level": 1})


@pytest.mark.parametrize(
    "derived",
    [
        {},
        {"plan": {"leftOut": "60,000 characters"}, "execution": [], "governance": None},
        {"plan": {"actions": "all"}, "analysis": {"anomalies": [3, None]}, "governance": {"violations": 4}},
        {"plan": {"actions": [{}]}, "governance": {"approved": 3, "authority": "yes"}},
        {"learnings": {"deprecatedPatterns": {"a": 1}}},
    ],
)
def test_data_of_another_shape_is_left_out(derived):
    actions = cycle_document(cycle("waiting", **derived))["actions"]
    assert [action for action in actions if action["status"] == "waiting"] == []
    assert (decision(derived), anomalies(derived), violations(derived)) == ("", [], [])
    assert list(deprecated(cycle(**derived))) == []


@pytest.mark.parametrize(
    ("authorization", "text"),
    [
        ({"mode": "autonomous", "decision": "approved"}, ""),
        ({"mode": "controlled", "decision": "rejected", "by": "Ada", "message": "no"}, "rejected by Ada: no"),
        ({"mode": "supervised", "decision": "approved", "by": ""}, "approved by an unnamed person"),
        (
            {"mode": "supervised", "decision": "default", "message": "nobody decided"},
            "by its default: nobody decided",
        ),
    ],
)
def test_the_decision_names_who_decided(authorization, text):
    assert decision({"governance": {"authority": authorization}}) == text


def test_idempotency_keys_are_left_out():
    bare = without_keys(cycle(plan=PLAN, execution={"actions": [DONE], "more": 1}))
    assert "idempotencyKey" not in str(bare.derived_data)
    assert bare.derived_data["execution"]["more"] == 1


def test_deprecated_patterns_by_id_or_description():
    found = {"deprecatedPatterns": ["p1-1 ", {"id": "p2-1"}, {"description": "old"}, 3, {}]}
    assert list(deprecated(cycle(learnings=found))) == ["p1-1", "p2-1", "old"]


ITEM = {"id": "p1-1", "timestamp": "2026-11-22T12:00:00.000Z", "cycle": 1, "description": "press 2 is slow"}


@pytest.mark.parametrize(
    ("item", "title", "details"),
    [
        (ITEM, "press 2 is slow", {"cycle": "1"}),
        (ITEM | {"confidence": 0.1 + 0.2}, "press 2 is slow", {"cycle": "1", "confidence": "0.3"}),
        ({"action": "lower", "params": {"level": 1}, "error": None}, "lower", {"params": '{"level": 1}'}),
        ({"id": "x", "any": []}, "x", {}),
        ({"message": {"odd": "shape"}}, '{"odd": "shape"}', {}),
        ({}, "", {}),
    ],
)
def test_an_item_has_a_title_and_other_fields(item, title, details):
    assert short(item.get(title_field(item), "")) == title
    assert {name: short(value) for name, value in details_of(item).items()} == details


def test_long_texts_are_shortened():
    assert len(short("x" * 5_000)) <= MAX_TEXT
    assert len(value_text({"a": "x" * 5_000}, 60)) <= 60


def test_the_fields_of_an_item_that_changed():
    assert changed_fields(ITEM, ITEM | {"count": 2, "timestamp": "later"}) == ["count"]


@pytest.mark.parametrize(
    ("retired", "word"),
    [(["p2-1"], "dropped"), (["p1-1"], "retired"), (["press 2 is slow"], "retired"), (None, "gone")],
)
def test_the_fate_of_an_item(retired, word):
    assert gone(ITEM, retired) == word


@pytest.mark.parametrize("path", ["/agents.json", "/agents/controlled.json"])
async def test_the_data_has_the_plan_that_a_page_shows(project, path):
    async with visited() as client, waiting():
        fields = {"verdict": "approve", "cycle": "1", "action": "1-2"}
        await client.post("/agents/controlled/feedback", json=fields)
        waits = None
        while waits is None:  # between two verdicts, the cycle runs for a moment
            answer = (await client.get(path)).json()
            waits = answer.get("agents", [answer])[0]["waiting"]
        first, second = waits["actions"]
    assert (first["action"], first["params"], first["reason"]) == ("lower", {"level": 1}, "it is high")
    assert [first["status"], second["status"]] == ["waiting", "approved"]


def test_the_data_has_what_the_command_says(monitored):
    [page] = asyncio.run(seen("/agents/monitor.json"))
    said = document(redraft("cycle", "status", "monitor", "--json"))
    shared = said.keys() & page.json().keys()
    assert {"status", "last", "waiting", "spent", "pending_feedback"} <= shared
    assert {name: said[name] for name in shared - {"cycles"}} == {
        name: page.json()[name] for name in shared - {"cycles"}
    }
    [newest, shown] = said["cycles"][0], page.json()["cycle"]
    for data in (newest, shown):
        del data["derived_data"]["execution"]  # the page leaves out idempotency keys
    assert newest == shown
