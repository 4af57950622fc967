import asyncio
import json
from pathlib import Path

import httpx2 as httpx
import pytest

from redraft.dashboard import dashboard
from redraft.errors import ConfigError
from redraft.stores.location import project_store
from redraft.stores.sqlite import MemoryStore
from redraft.web.people import PERSON, People, people_of
from redraft.web.project import Project
from support.commands import redraft


def test_a_token_identifies_its_person_until_it_is_revoked():
    async def main():
        store = MemoryStore()
        people = People(store)
        anna, bo = await people.add("anna"), await people.add("bo")
        assert (await people.identify(anna)).name == "anna"
        assert [one.name for one in await people.all()] == ["anna", "bo"]
        stored = json.dumps([[record.key, dict(record.data)] for record in await store.find(PERSON)])
        assert anna not in stored
        assert bo not in stored
        await people.revoke("anna")
        for wrong in (anna, "", bo[:-1], "\ud800"):
            with pytest.raises(ConfigError, match="unknown, or was revoked"):
                await people.identify(wrong)
        assert await people.add("anna") != anna

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", " anna", "an\nna", "x" * 201])
def test_a_name_is_one_visible_line(name):
    with pytest.raises(ConfigError, match="Expected a name"):
        asyncio.run(People(MemoryStore()).add(name))


ASKS = """
name: asks
stages:
  reason:
    substages:
      - {type: plan, name: plan, config: {rules: [{action: tell}]}}
      - {type: authorize, name: ask, config: {mode: supervised, timeoutMs: 1}}
  actuate:
    substages:
      - {type: execute, name: act, config: {actions: [{type: log, name: tell, message: hello}]}}
  reflect:
    substages: [{type: update-state, name: keep}]
"""


def test_a_token_proves_who_gave_feedback(project, monkeypatch):
    Path("asks.yaml").write_text(ASKS)
    assert "Nobody has a token yet" in redraft("token", "list").stdout
    token = redraft("token", "add", "anna").stdout.strip()
    assert redraft("token", "add", "anna").exit_code == 2
    [listed] = json.loads(redraft("token", "list", "--json").stdout)["people"]
    assert (listed["name"], token in json.dumps(listed)) == ("anna", False)
    assert redraft("token", "list").stdout.split() == [*listed, *listed.values()]
    assert redraft("cycle", "run", "asks.yaml", "--cycles", "1").exit_code == 0
    monkeypatch.setenv("REDRAFT_TOKEN", token)
    refused = redraft("cycle", "feedback", "asks", "-m", "Well done.", "--by", "bo")
    assert "belongs to 'anna', not to 'bo'" in refused.stderr
    assert redraft("cycle", "feedback", "asks", "-m", "Well done.").exit_code == 0
    assert redraft("cycle", "run", "asks.yaml", "--cycles", "1").exit_code == 0
    [item] = json.loads(redraft("cycle", "memory", "asks", "--json").stdout)["memory"]["feedbackHistory"]
    assert (item["by"], item["proof"]) == ("anna", listed["token"])
    monkeypatch.delenv("REDRAFT_TOKEN")
    claimed = redraft("cycle", "feedback", "asks", "-m", "Well done.", "--by", "anna")
    assert "'anna' has a token; give it, too" in claimed.stderr
    assert redraft("cycle", "feedback", "asks", "-m", "Well done.", "--by", "bo").exit_code == 0
    monkeypatch.setenv("REDRAFT_TOKEN", token)
    assert redraft("token", "revoke", "anna").exit_code == 0
    assert "was revoked" in redraft("cycle", "feedback", "asks", "-m", "Well done.").stderr


def test_a_token_proves_on_the_dashboard_who_decides(project):
    Path("asks.yaml").write_text(ASKS)
    token = redraft("token", "add", "anna").stdout.strip()
    [listed] = json.loads(redraft("token", "list", "--json").stdout)["people"]
    assert redraft("cycle", "run", "asks.yaml", "--cycles", "1").exit_code == 0

    def tell(**fields):
        return asyncio.run(_post("/agents/asks/feedback", {"verdict": "approve", **fields}))

    for wrong in ({"by": "anna"}, {"by": "bo", "token": token}, {"token": token[:-1]}):
        assert tell(**wrong).status_code == 400, wrong
    assert tell(by="bo").status_code == 200
    assert tell(token=token).status_code == 200
    assert redraft("cycle", "run", "asks.yaml", "--cycles", "1").exit_code == 0
    kept = json.loads(redraft("cycle", "memory", "asks", "--json").stdout)["memory"]["feedbackHistory"]
    assert [(one["by"], one.get("proof")) for one in kept] == [("bo", None), ("anna", listed["token"])]


async def _post(path, fields):
    project = Project.here()
    transport = httpx.ASGITransport(app=dashboard(project))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        answer = await client.post(path, json=fields)
    await project.store.aclose()
    return answer


APPROVES = """
name: approves
nodes:
  - {name: ask, uses: human.approve, with: {message: May I?}}
"""


def test_a_token_proves_who_answers_a_workflow(project, monkeypatch):
    Path("approves.yaml").write_text(APPROVES)
    token = redraft("token", "add", "anna").stdout.strip()
    [listed] = json.loads(redraft("token", "list", "--json").stdout)["people"]
    asked = [redraft("run", "approves.yaml").exit_code for _ in range(2)]
    assert asked == [5, 5]
    first, second = (one["id"] for one in json.loads(redraft("approve", "--json").stdout)["waiting"])
    assert asyncio.run(_post(f"/approvals/{first}", {"verdict": "approve", "token": "no"})).status_code == 400
    assert (
        asyncio.run(_post(f"/approvals/{first}", {"verdict": "approve", "token": token})).status_code == 200
    )
    monkeypatch.setenv("REDRAFT_TOKEN", token)
    for answered in (
        redraft("resume", first.partition(".")[0], "--json"),
        redraft("approve", second, "--json"),
    ):
        result = json.loads(answered.stdout)["state"]
        assert (result["approved"], result["by"], result["proof"]) == (True, "anna", listed["token"])


def test_people_of_a_long_term_storage_are_known_on_all_machines(project, postgres, monkeypatch):
    own = asyncio.run(_add("project's own"))
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", postgres.url)
    shared = asyncio.run(_add("anna"))

    async def names(store):
        async with people_of(store) as people:
            return [(await people.identify(token)).name for token in (shared, own)]

    assert asyncio.run(names(project_store())) == ["anna", "project's own"]
    with pytest.raises(ConfigError, match="is unknown, or was revoked"):
        asyncio.run(names(MemoryStore()))  # a project on another machine knows only anna


async def _add(name):
    async with people_of(project_store()) as people:
        return await people.add(name)
