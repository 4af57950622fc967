import asyncio
import json
from pathlib import Path

import pytest

from redraft.errors import ConfigError
from redraft.stores.memory import MemoryStore
from redraft.web.people import PERSON, People
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
            with pytest.raises(ConfigError, match="unknown here, or was revoked"):
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
    assert redraft("cycle", "run", "asks.yaml", "--cycles", "1").exit_code == 0
    monkeypatch.setenv("REDRAFT_TOKEN", token)
    refused = redraft("cycle", "feedback", "asks", "--approve", "--by", "bo")
    assert "that of 'anna', not of 'bo'" in refused.stderr
    assert redraft("cycle", "feedback", "asks", "--approve", "--cycle", "2").exit_code == 0
    assert redraft("cycle", "run", "asks.yaml", "--cycles", "1").exit_code == 0
    found = json.loads(redraft("cycle", "status", "asks", "--json").stdout)["cycles"][0]
    authority = found["derived_data"]["governance"]["authority"]
    assert (authority["decision"], authority["by"], authority["proof"]) == (
        "approved",
        "anna",
        listed["token"],
    )
    [item] = json.loads(redraft("cycle", "memory", "asks", "--json").stdout)["memory"]["feedbackHistory"]
    assert (item["by"], item["proof"]) == ("anna", listed["token"])
    assert redraft("token", "revoke", "anna").exit_code == 0
    assert "was revoked" in redraft("cycle", "feedback", "asks", "--approve").stderr
