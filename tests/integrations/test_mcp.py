import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path

import httpx2
import pytest
from typer.main import get_command

from redraft import Ensemble, QualityCriterion, Runs, ScriptedModel, Task
from redraft.lessons import LessonLibrary
from redraft.lessons.lesson import ADVICE_KINDS, KINDS
from redraft.main import app
from redraft.notes import Notes
from redraft.stores.location import close_project_store
from support.commands import THREE_A, redraft
from support.counting_server import provider
from support.mcp_clients import FAILURE, TOKEN, http_server, in_process, over_http, over_stdio, play
from support.pages import Page

TOOLS = {
    "check_draft",
    "recall_lessons",
    "record_reflection",
    "rate_lesson",
    "list_runs",
    "get_run",
    "start_task",
    "finish_attempt",
}
TASK = "Write three letters a."


@pytest.fixture
def criteria(project):
    (project / "criteria.yaml").write_text(THREE_A)
    return project


async def use_every_tool(session):
    """Do a task as a coding agent does: fail, reflect, succeed, and look at what is stored."""
    checked = await session.call("check_draft", draft="ab")
    assert (checked["status"], checked["satisfactory"], checked["score"]) == ("finished", False, 0.0)
    assert [issue["criterion"] for issue in checked["issues"]] == ["three", "no b"]
    assert session.progress[0] == f"Run {checked['run_id']} has begun."
    first = await session.call("start_task", task=TASK)
    failed = await session.call("finish_attempt", attempt_id=first["attempt_id"], output="ab")
    assert (failed["run_id"], failed["reflection_due"]) == (first["attempt_id"], True)
    assert "a reflection of the kind 'failure'" in failed["next_step"]
    assert first["attempt_id"] in await session.refused("start_task", task=TASK)
    lesson = await session.call(
        "record_reflection", reflection=FAILURE, attempt_id=first["attempt_id"], title="Count the letters"
    )
    assert (lesson["status"], lesson["title"]) == ("quarantined", "Count the letters")
    second = await session.call("start_task", task=TASK)
    assert [one["id"] for one in second["lessons"]] == [lesson["id"]]
    assert "Count the letters before you answer." in second["advice"]
    done = await session.call("finish_attempt", attempt_id=second["attempt_id"], output="aaa")
    assert (done["satisfactory"], done["reflection_due"]) == (True, False)
    rated = await session.call("rate_lesson", lesson_id=lesson["id"], helped=True)
    assert (rated["used"], rated["helped"]) == (1, 1)  # one run shows nothing yet
    recalled = await session.call("recall_lessons", task=TASK)
    assert [one["id"] for one in recalled["lessons"]] == [lesson["id"]]
    listed = await session.call("list_runs", limit=2)
    assert [run["run_id"] for run in listed["runs"]] == [second["attempt_id"], first["attempt_id"]]
    earlier = await session.call("list_runs", before=listed["next_page"])
    assert [run["run_id"] for run in earlier["runs"]] == [checked["run_id"]]
    shown = await session.call("get_run", run_id=first["attempt_id"])
    assert (shown["best_output"], shown["judged"][0]["criteria"]) == ("ab", checked["criteria"])


# --- the tools ---------------------------------------------------------------------------------------------


def test_all_tools_over_stdio(criteria):
    (criteria / "slow_rules.py").write_text(SLOW)
    (criteria / "slow.yaml").write_text(SLOW_CRITERIA)
    # What a function prints must not get between the messages.
    (criteria / "talkative.py").write_text("def chat(text):\n    print('checking', text)\n    return True\n")
    with (criteria / "criteria.yaml").open("a") as file:
        file.write("  - {name: chat, evaluator: function, config: {function: 'talkative:chat'}, weight: 0}\n")

    async def main():
        async with over_stdio(mode="legacy") as session:
            await use_every_tool(session)
            await cancel(session, criteria, criteria_file="slow.yaml")

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_all_tools_over_http(criteria, mode):
    async def main():
        async with http_server() as address, over_http(address, mode=mode) as session:
            await use_every_tool(session)

    asyncio.run(main())


def test_tools_say_what_they_take_give_and_change(criteria):
    async def main():
        async with in_process() as session:
            tools = {tool.name: tool for tool in (await session.client.list_tools()).tools}
        assert tools.keys() == TOOLS
        assert all(tool.output_schema and tool.description for tool in tools.values())
        reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
        assert reading == {"check_draft", "recall_lessons", "list_runs", "get_run"}
        assert {name for name, tool in tools.items() if tool.annotations.idempotent_hint} == {
            *reading,
            "finish_attempt",
        }
        assert not any(tool.annotations.destructive_hint for tool in tools.values())
        evaluator = tools["check_draft"].input_schema["$defs"]["ClientCriterion"]["properties"]["evaluator"]
        assert "function" not in evaluator["enum"]
        kinds = tools["record_reflection"].input_schema["properties"]["reflection"]["anyOf"]
        assert [kind["title"] for kind in kinds] == ["failure", "partial", "procedure", "decision"]

    asyncio.run(main())


ARGUMENTS = [
    ("check_draft", {"drafft": "a"}, "unknown argument 'drafft'; did you mean 'draft'? Expected one of"),
    ("check_draft", {"draftArguments": 1}, "unknown argument 'draftArguments'; did you mean 'draft'?"),
    ("check_draft", {}, "the argument 'draft' is missing."),
    ("check_draft", {"draft": "a", "files": []}, "unknown argument 'files'; expected one of 'draft'"),
    ("check_draft", {"draft": 5, "taks": "x"}, "did you mean 'task'? Expected one of"),
    ("check_draft", {"draft": 5, "taks": "x"}, "; draft: expected a string, got 5."),
    ("check_draft", {"draft": "a", "criteria": [{"nam": "x"}]}, "criteria.0.nam: unknown key 'nam'; did you"),
    ("recall_lessons", {"task": "a", "k": 99}, "k: expected at most 20, got 99."),
    ("rate_lesson", {"lesson_id": "a"}, "the argument 'helped' is missing."),
]


@pytest.mark.parametrize(("tool", "arguments", "message"), ARGUMENTS)
def test_wrong_arguments_are_named_in_plain_words(criteria, tool, arguments, message):
    async def main():
        async with in_process() as session:
            told = await session.refused(tool, **arguments)
        assert told.startswith(f"{tool}: ")
        assert message in told
        assert "pydantic" not in told
        assert told.endswith(".")

    asyncio.run(main())


def test_an_attempt_gets_the_note_of_its_task(criteria):
    order = Task(
        "Order {item}.",
        name="order",
        criteria=[
            QualityCriterion("right", evaluator="command", evaluator_config={"calls": [["cups(2)", 4]]})
        ],
        reflect=True,
    )
    Ensemble(ScriptedModel(lambda request: "cups = int"), [order]).run_sync({"item": "tea"})

    async def main(session):
        started = [
            await session.call("start_task", task=task) for task in ("Order {item}.", "order", "Order")
        ]
        await session.call("finish_attempt", attempt_id=started[0]["attempt_id"], output="aaa")
        shown = await Runs().get(started[0]["attempt_id"])
        return [one["note"] for one in started], [one["lessons"] for one in started], shown.advice

    (same, named, other), lessons, advice = play(main)
    assert "- `cups(2)` is 4." in same
    assert (named, other, lessons) == (same, "", [[], [], []])
    assert [(one.source, one.text) for one in advice] == [("note v1", same)]
    # What judges the attempt is not what the note was learned from.
    assert len(revisions_of("order")) == 1


def revisions_of(task):
    async def read():
        async with Notes() as notes:
            return (await notes.get(task)).revisions

    return asyncio.run(read())


def test_failed_attempts_teach_the_note_of_their_task(project):
    (project / "criteria.yaml").write_text(
        "criteria:\n- {name: right, evaluator: command, config: {calls: [['cups(2)', 4]]}}\n"
    )
    wrong, right = "cups = int", "def cups(n): return 2 * n"

    async def main(session):
        passed = await session.call("start_task", task="Write another function cups.")
        await session.call("finish_attempt", attempt_id=passed["attempt_id"], output=right)
        notes = []
        for output in (wrong, right):
            started = await session.call("start_task", task=TASK)
            notes.append(started["note"])
            for _ in range(2):  # repeating the call teaches nothing twice
                ended = await session.call("finish_attempt", attempt_id=started["attempt_id"], output=output)
            if ended["reflection_due"]:
                await session.call("record_reflection", reflection=FAILURE, attempt_id=started["attempt_id"])
        own = [{"name": "long", "evaluator": "words", "config": {"at_least": 9}}]
        started = await session.call("start_task", task=TASK, criteria=own)
        await session.call("finish_attempt", attempt_id=started["attempt_id"], output=right)
        return notes

    without, noted = play(main)
    assert without == ""
    assert "- `cups(2)` is 4." in noted
    assert len(revisions_of(TASK)) == 2  # of the failure and of the success; not by the client's criteria


def test_criteria_of_a_client_judge_without_a_file(project):
    criteria = [
        {"name": "short", "evaluator": "words", "config": {"at_most": 2}},
        {"name": "price", "evaluator": "regex", "config": {"pattern": r"\$\d"}},
        {"name": "order", "evaluator": "schema", "config": {"schema": {"type": "string"}}, "weight": 0},
    ]

    async def main(session):
        met = await session.call("check_draft", draft='"$5"', criteria=criteria)
        assert met["criteria"] == {"short": 1.0, "price": 1.0, "order": 1.0}
        nothing = await session.refused("check_draft", draft="x")
        assert nothing.startswith("There is nothing to judge by: send 'criteria', or write 'criteria.yaml'")

    play(main)


def test_functions_of_the_projects_own_files_run(project):
    (project / "manners.py").write_text("def polite(text):\n    return 'please' in text\n")
    (project / "own.yaml").write_text(
        "- {name: polite, evaluator: function, config: {function: 'manners:polite'}}\n"
    )

    async def main(session):
        assert (await session.call("check_draft", draft="Tea, please"))["satisfactory"]
        assert not (await session.call("check_draft", draft="Tea", criteria_file="own.yaml"))["satisfactory"]

    play(main, criteria="own.yaml")


def test_a_model_judges_within_the_budget(project, monkeypatch):
    def judge(request):
        names = request.schema["properties"]["criteria"]["properties"]
        scores = {name: {"reason": "so", "score": 0.95} for name in names}
        return {"criteria": scores, "issues": [], "suggestions": [], "confidence": 0.9}

    model = ScriptedModel(judge)
    monkeypatch.setattr("redraft.loop.verbs.model_of", lambda *_args, **_missing: model)

    async def main():
        async with in_process() as session:
            told = await session.refused("check_draft", draft="Tea", criteria=["Is polite."])
            assert "needs a model to judge it, and none is configured" in told
        async with in_process(model="any:model", budget_tokens=10_000) as session:
            judged = await session.call("check_draft", draft="Tea", criteria=["Is polite."])
            assert judged["satisfactory"], judged
        async with in_process(model="any:model", budget_tokens=1) as session:
            broke = await session.call("check_draft", draft="Tea", criteria=["Is polite."])
            assert (broke["satisfactory"], broke["score"]) == (False, None)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("budget", "calls"),
    [({"budget_usd": 0.00001}, 0), ({"budget_tokens": 100}, 0), ({"budget_usd": 0.01}, 1)],
)
@pytest.mark.usefixtures("project")
def test_a_judge_that_cannot_fit_is_not_called(budget, calls, monkeypatch):
    async def main(session):
        return await session.call("check_draft", draft="Tea " * 300, criteria=["clarity"])

    with provider(monkeypatch) as server:
        answer = play(main, model="openai-chat:gpt-4o-mini", **budget)
        assert len(server.limits) == calls
        assert server.usd <= 0.01
    assert (answer["score"] is None) == (not calls)
    if not calls:
        assert "left no room for all model calls" in answer["error"]
        assert "it takes about" in answer["error"]


@pytest.mark.usefixtures("project")
def test_a_model_without_a_price_is_refused_before_the_first_call(monkeypatch):
    async def main(session):
        return await session.refused("check_draft", draft="Tea", criteria=["clarity"])

    with provider(monkeypatch) as server:
        assert "The price of 'openai-chat:my-own' is not known" in play(
            main, model="openai-chat:my-own", budget_usd=1.0
        )
        assert server.limits == []


def test_a_hidden_criterion_stays_hidden(criteria):
    (criteria / "criteria.yaml").write_text(
        "- {name: secret word, evaluator: regex, config: {pattern: xyzzy}, shown: false}\n"
        "- {name: short, evaluator: words, config: {at_most: 3}}\n"
    )

    async def main(session):
        checked = await session.call("check_draft", draft="Tea")
        shown = await session.call("get_run", run_id=checked["run_id"])
        assert not checked["satisfactory"]
        assert "xyzzy" not in json.dumps([checked, shown])
        assert "secret word" not in json.dumps([checked, shown])

    play(main)


def test_what_a_client_can_choose_releases_no_lesson(project):
    async def attempt(session, output, **sent):
        begun = await session.call("start_task", task=TASK, **sent.pop("start", {}))
        return await session.call("finish_attempt", attempt_id=begun["attempt_id"], output=output, **sent)

    easy = {"start": {"criteria": [{"name": "any", "evaluator": "words", "config": {"at_least": 1}}]}}

    async def main():
        async with in_process() as session:
            failed = await attempt(session, "ab", succeeded=False, error="One letter is missing.")
            assert (failed["criteria"], failed["reflection_due"]) == ({"own word": 0.0}, False)
            lesson = await session.call("record_reflection", reflection=FAILURE, attempt_id=failed["run_id"])
            for sent in ({"succeeded": True}, easy):
                assert (await attempt(session, "aaa", **sent))["satisfactory"]
        [found] = (await LessonLibrary().find()).lessons
        assert (found.lesson.id, found.lesson.status) == (lesson["id"], "quarantined")
        assert found.counters.helped == 0
        await close_project_store()

    asyncio.run(main())


def test_finishing_twice_judges_once(criteria):
    async def main(session):
        begun = await session.call("start_task", task=TASK)
        answers = [
            await session.call("finish_attempt", attempt_id=begun["attempt_id"], output="aaa")
            for _ in range(2)
        ]
        assert answers[0] == answers[1]
        other = await session.refused("finish_attempt", attempt_id=begun["attempt_id"], output="aaaa")
        assert f"The attempt {begun['attempt_id']!r} has been judged with another output" in other
        assert "call start_task again" in other  # a client can't choose the run_id
        assert "run_id" not in other
        assert len((await session.call("list_runs"))["runs"]) == 1

    play(main)


def test_a_project_that_stores_nothing_still_judges(criteria, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "")

    async def main(session):
        checked = await session.call("check_draft", draft="aaa")
        assert (checked["run_id"], checked["satisfactory"]) == (None, True)
        assert "is empty, so no attempts are stored" in await session.refused("start_task", task=TASK)

    play(main, wait=0.0)


# --- slow tools, many sessions, and servers that die ------------------------------------------------------

SLOW = """\
import asyncio, pathlib
async def slow(text):
    pathlib.Path("judging").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return True
"""
SLOW_CRITERIA = "- {name: slow, evaluator: function, config: {function: 'slow_rules:slow'}}\n"


@pytest.fixture
def slow(project):
    """A project whose criterion waits until there is a file `go`, and writes `judging` before."""
    (project / "slow_rules.py").write_text(SLOW)
    (project / "criteria.yaml").write_text(SLOW_CRITERIA)
    yield project
    sys.modules.pop("slow_rules", None)


async def until(condition):
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 (another process does it)
            await asyncio.sleep(0.02)


async def exists(path):
    return path.exists()


async def state_of(session, run_id):
    return (await session.call("get_run", run_id=run_id))["status"]


def test_a_slow_tool_answers_with_a_run_to_ask_for(slow):
    async def main(session):
        begun = await session.call("check_draft", draft="Tea")
        assert (begun["status"], begun["satisfactory"]) == ("running", None)
        assert await state_of(session, begun["run_id"]) == "running"
        (slow / "go").touch()
        await until(lambda: ended(session, begun["run_id"]))
        shown = await session.call("get_run", run_id=begun["run_id"])
        assert (shown["status"], shown["satisfactory"]) == ("finished", True)

    async def ended(session, run_id):
        return await state_of(session, run_id) == "finished"

    play(main, wait=0.05)


async def cancel(session, folder, **arguments):
    """Cancel a call while its draft is judged, and wait for the end of its run."""
    call = asyncio.create_task(session.call("check_draft", draft="Tea", **arguments))
    await until(lambda: exists(folder / "judging"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    async def cancelled():
        return await state_of(session, "last") == "cancelled"

    await until(cancelled)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_hangs_up_cancels_its_call_over_http(slow, mode):
    async def main():
        async with http_server() as address, over_http(address, mode=mode) as session:
            await cancel(session, slow)

    asyncio.run(main())


def test_an_attempt_outlives_a_server_that_is_killed(slow):
    async def begin():
        async with over_stdio("--wait", "0.05") as session:
            begun = await session.call("start_task", task=TASK)
            answer = await session.call("finish_attempt", attempt_id=begun["attempt_id"], output="aaa")
            assert answer["status"] == "running"
            [run] = await Runs().find()
            os.kill(run.process.pid, signal.SIGKILL)
        return begun["attempt_id"]

    async def go_on(attempt_id):
        async with in_process() as session:
            assert await state_of(session, attempt_id) == "killed"
            (slow / "go").touch()
            answer = await session.call("finish_attempt", attempt_id=attempt_id, output="aaa")
            assert (answer["status"], answer["satisfactory"]) == ("finished", True)

    async def main():
        await go_on(await begin())

    asyncio.run(main())


def test_an_http_client_goes_on_with_a_server_that_was_restarted(criteria):
    async def serve(started, ending, port=0):  # in a task of its own: it ends before its client does
        async with http_server(port) as address:
            started.set_result(address)
            await ending.wait()

    async def main():
        started, ending = asyncio.Future(), asyncio.Event()
        first = asyncio.create_task(serve(started, ending))
        address = await started
        async with over_http(address) as session:
            begun = await session.call("start_task", task=TASK)
            ending.set()
            await first
            again, ending_again = asyncio.Future(), asyncio.Event()
            second = asyncio.create_task(serve(again, ending_again, address.port))
            await again
            done = await session.call("finish_attempt", attempt_id=begun["attempt_id"], output="aaa")
            assert done["satisfactory"]
        ending_again.set()
        await second

    asyncio.run(main())


def test_several_sessions_work_at_once(criteria):
    async def work(session, name):
        begun = await session.call("start_task", task=f"{TASK} For {name}.")
        checked = await asyncio.gather(
            *(session.call("check_draft", draft="a" * count) for count in range(1, 6))
        )
        assert [one["satisfactory"] for one in checked] == [False, False, True, True, True]
        done = await session.call("finish_attempt", attempt_id=begun["attempt_id"], output="aaa")
        assert done["satisfactory"]

    async def main():
        async with (
            http_server() as address,
            over_http(address) as one,
            over_http(address) as two,
            in_process() as three,
        ):
            await asyncio.gather(*(work(each, str(at)) for at, each in enumerate((one, two, three))))
            assert len((await three.call("list_runs", limit=100))["runs"]) == 18

    asyncio.run(main())


def test_the_name_of_a_criterion_of_the_project_is_that_criterion(criteria):
    """Not a sentence for a model; none is configured."""

    async def main(session):
        for named in (["three"], ["Three "], [{"name": "three"}], ["three", "no b"]):
            checked = await session.call("check_draft", draft="aaa", criteria=named)
            assert checked["satisfactory"] is True
            checked = await session.call("check_draft", draft="ab", criteria=named)
            assert (checked["satisfactory"], checked["criteria"]["three"]) == (False, 0)
            begun = await session.call("start_task", task=TASK, criteria=named)
            done = await session.call("finish_attempt", attempt_id=begun["attempt_id"], output="aaa")
            assert done["satisfactory"] is True
        said = await session.refused("check_draft", draft="aaa", criteria=["three letters"])
        assert "The criterion 'three letters' needs a model" in said

    play(main)


# --- sessions over HTTP ------------------------------------------------------------------------------------


@asynccontextmanager
async def raw_client():
    """Yield functions that begin a session, ask in it and end it, and return the answers."""
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    async with http_server() as address, httpx2.AsyncClient(headers=headers, timeout=60) as http:
        url = f"{address.url}mcp"

        async def ask(session):
            return (await http.post(url, json=ping, headers={"Mcp-Session-Id": session})).status_code

        async def end(session):
            return (await http.delete(url, headers={"Mcp-Session-Id": session})).status_code

        yield lambda: http.post(url, json=begin), ask, end


def test_a_client_ends_its_session(criteria, monkeypatch):
    monkeypatch.setattr("redraft.integrations.mcp.MOST_SESSIONS", 2)

    async def main():
        async with raw_client() as (begin, ask, end):
            one, two, three = await begin(), await begin(), await begin()
            assert [answer.status_code for answer in (one, two, three)] == [200, 200, 503]
            session = one.headers["Mcp-Session-Id"]
            assert [await ask(session), await end(session), await ask(session)] == [200, 200, 404]
            assert (await begin()).status_code == 200

    asyncio.run(main())


def test_an_idle_session_ends(criteria, monkeypatch):
    monkeypatch.setattr("redraft.integrations.mcp.SESSION_SECONDS", 0.01)
    monkeypatch.setattr("redraft.integrations.mcp.MOST_SESSIONS", 1)

    async def main():
        async with raw_client() as (begin, ask, _):
            session = (await begin()).headers["Mcp-Session-Id"]
            async with asyncio.timeout(60):
                while (await begin()).status_code == 503:
                    pass
            assert await ask(session) == 404

    asyncio.run(main())


# --- who may not ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status", "told"),
    [
        ({}, 401, "REDRAFT_MCP_TOKEN or --token says, or else what `redraft mcp --http` printed"),
        ({"Authorization": "Bearer wrong"}, 401, "The bearer token is wrong."),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421, "Unknown host"),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "https://evil.example"}, 403, "another site"),
        ({"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain"}, 415, "application/json"),
    ],
)
def test_http_requests_pass_the_guard(criteria, headers, status, told):
    async def main():
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        async with http_server() as address, httpx2.AsyncClient() as http:
            known = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            content = json.dumps(call).encode()
            answer = await http.post(f"{address.url}mcp", content=content, headers=known | headers)
            assert (answer.status_code, told in answer.text) == (status, True), answer.text
            # No address lets a browser in, as that of the dashboard does.
            visit = await http.get(f"{address.url}mcp?token={TOKEN}")
            assert (visit.status_code, "set-cookie" in visit.headers) == (401, False)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--folder", "no-such-folder"), "The folder 'no-such-folder' can't be used"),
        (("--http", "--port", "0", "--token", "short"), "(--token, REDRAFT_MCP_TOKEN) must have at least 16"),
        (("--budget-usd", "-1"), "budget_usd"),
        (("--criteria", "nope.yaml"), "'nope.yaml' is not a criteria file"),
        (("--criteria", "../c.yaml"), "'../c.yaml' is not a criteria file"),
    ],
)
def test_bad_options_are_refused(project, words, told):
    result = redraft("mcp", *words)
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr


def test_a_missing_extra_is_named(project, monkeypatch):
    monkeypatch.setattr("redraft.integrations.cli.find_spec", lambda _name: None)
    assert "pip install 'redraft[mcp]'" in redraft("mcp").stderr


def test_the_page_is_true(project, monkeypatch):
    page = Page("docs/coding-agents.md")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (project / "release.yaml").write_text(page.files("yaml")["release.yaml"])
    for program in (
        json.loads(page.blocks("json")[0])["mcpServers"],
        tomllib.loads(page.files("toml")[".codex/config.toml"])["mcp_servers"],
    ):
        known = {option for one in get_command(app).get_command(None, "mcp").params for option in one.opts}
        assert program["redraft"]["args"][0] == "mcp"
        assert {word for word in program["redraft"]["args"] if word.startswith("--")} <= known
    assert page.run(page.blocks("python")[0])[1] == page.blocks("text")[1]
    for kind, content in ((kind, KINDS[kind]) for kind in ADVICE_KINDS if kind != "correction"):
        assert f"| `{kind}` | {', '.join(f'`{one.name}`' for one in fields(content))} |" in page.text
    for tool in TOOLS:
        assert f"`{tool}`" in page.text


def test_secrets_are_withheld_from_every_answer(project, monkeypatch):
    secret = "".join(chr(97 + 7 * at % 26) for at in range(24))
    monkeypatch.setenv("SHOP_API_KEY", secret)
    forbidden = {
        "name": "no key",
        "evaluator": "regex",
        "config": {"pattern": "k[a-z]+", "must_match": False},
    }

    async def main():
        async with in_process() as session:
            checked = await session.call("check_draft", draft=f"Use {secret}.", criteria=[forbidden])
            shown = await session.call("get_run")
            unknown = await session.refused("get_run", run_id=secret)
        assert checked["issues"]
        assert secret not in json.dumps([checked, shown, unknown])

    asyncio.run(main())


def test_an_attempt_that_two_servers_finish_at_once_is_judged_once(criteria):
    async def main():
        async with in_process() as one, in_process() as two:
            begun = await one.call("start_task", task=TASK)
            finish = {"attempt_id": begun["attempt_id"], "output": "ab"}
            answers = await asyncio.gather(
                *(session.answer("finish_attempt", **finish) for session in (one, two))
            )
            verdicts = [one.structured_content for one in answers if not one.is_error]
            assert verdicts
            assert all(verdict["reflection_due"] for verdict in verdicts)
            assert len((await one.call("list_runs"))["runs"]) == 1
            await two.call("record_reflection", reflection=FAILURE, attempt_id=begun["attempt_id"])
            await one.call("start_task", task=TASK)

    asyncio.run(main())


def test_ctrl_c_ends_a_server_that_waits_for_a_line(criteria):
    command = [sys.executable, "-m", "redraft", "mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(20) == -signal.SIGINT
        finally:
            server.kill()


def test_the_server_uses_the_lessons_of_the_hook(criteria, monkeypatch):
    served = []
    monkeypatch.setattr(
        "redraft.integrations.mcp.serve_stdio", lambda tools: served.append(tools.agent) or idle()
    )

    async def idle():
        pass

    assert redraft("mcp").exit_code == 0
    (criteria / "redraft.toml").write_text("[hook]\nlessons = 'reviewer'\n")
    assert redraft("mcp").exit_code == redraft("mcp", "--agent", "clerk").exit_code == 0
    assert served == ["coding-agent", "reviewer", "clerk"]
