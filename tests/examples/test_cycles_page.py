"""Every block of docs/cycles.md runs."""

import asyncio
import json
import os
import shlex
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from redraft import CycleAgent, ScriptedModel
from redraft.cycles import LongTermStorage
from redraft.cycles.mqtt import Broker, publish
from redraft.cycles.webhook import distrust, secret_key
from support.commands import redraft
from support.http_server import serving
from support.mail_server import mail_server
from support.pages import Page

PAGE = Page("docs/cycles.md")
FILES = PAGE.files("yaml") | PAGE.files("python")
PYTHON = [text for text in PAGE.blocks("python") if text not in FILES.values()]
COMMANDS = PAGE.commands()


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.setattr("redraft.cycles.storage._in_process", WeakValueDictionary())
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    [readings] = PAGE.blocks("csv")
    Path("readings.csv").write_text(readings)
    Path("redraft.toml").touch()


def test_the_commands_run_one_after_the_other():
    commands = [one for one in COMMANDS if one.startswith("redraft") and "--listen" not in one]
    assert len(commands) == 8
    for command in commands:
        ran = redraft(*shlex.split(command, comments=True)[1:])
        assert ran.exit_code == 0, (command, ran.stderr)
    assert "20 degrees are enough" not in redraft("cycle", "memory", "thermostat").stdout
    assert "1 new" in redraft("cycle", "status").stdout


def test_the_python_example_runs():
    names, _ = PAGE.run(PYTHON[0])
    assert names["result"].success
    assert [one["action"] for one in names["memory"].of("recentActions")] == ["heat"] * 3
    assert [one["message"] for one in names["memory"].of("feedbackHistory")] == ["that was right"]


def test_a_limit_blocks_what_goes_beyond_it():
    async def main():
        async with CycleAgent.from_file("refunds.yaml", functions={"refund": lambda: None}) as agent:
            return [await agent.run_cycle() for _ in range(4)]

    results = asyncio.run(main())
    done = [result.state["derivedData"]["execution"]["actions"][0]["status"] for result in results]
    assert done == ["succeeded", "succeeded", "succeeded", "blocked"]
    assert "'act/refund'" in results[-1].metrics.failures[0]


def test_an_agent_listens_for_signed_requests(monkeypatch):
    monkeypatch.setenv("ORDERS_SECRET", "the secret that both sides know")
    [command] = [command for command in COMMANDS if "--listen" in command]
    ran = redraft(*shlex.split(command.replace("8080", "0"))[1:], "--cycles", "1")
    assert (ran.exit_code, "listening at http://127.0.0.1:" in ran.stderr) == (0, True), ran.stderr
    names, _ = PAGE.run(PYTHON[1])
    key = secret_key(os.environ["ORDERS_SECRET"], "ORDERS_SECRET")
    assert distrust(key, names["headers"], names["body"], datetime.now(UTC)) == ""


def test_an_agent_with_a_database_and_a_broker(mqtt_broker, monkeypatch):
    monkeypatch.setenv("SHOP_URL", "sqlite:///shop.db")
    monkeypatch.setenv("BROKER_URL", mqtt_broker.url)
    with closing(sqlite3.connect("shop.db")) as database, database:
        database.execute("CREATE TABLE stock (item TEXT, count INTEGER)")
        database.execute("CREATE TABLE orders (item TEXT, key TEXT UNIQUE)")
        database.execute("INSERT INTO stock VALUES ('tea', 3), ('cups', 9)")
    asyncio.run(publish(Broker(mqtt_broker.url), "shelves/3/weight", 20, "k", retain=True))
    result = CycleAgent.from_file("stock.yaml").run_cycle_sync()
    done = [one["status"] for one in result.state["derivedData"]["execution"]["actions"]]
    assert done == ["succeeded", "succeeded"], result.metrics.failures
    with closing(sqlite3.connect("shop.db")) as database:
        assert database.execute("SELECT item FROM orders").fetchall() == [("tea",)]


def test_people_are_told(monkeypatch):
    secret, told = "the secret of both sides", []

    def take(handler):
        told.append((json.loads(handler.body)["type"], "webhook-signature" in handler.headers))
        handler.reply(204, {}, b"")

    with serving({"/hook": take}) as server, mail_server() as mails:
        monkeypatch.setenv("OPS_WEBHOOK", f"{server.url}/hook")
        monkeypatch.setenv("OPS_SECRET", secret)
        monkeypatch.setenv("REDRAFT_SMTP_URL", mails.url)
        assert CycleAgent.from_file("watched.yaml", storage="project").run_cycle_sync().success
    assert told == [("agent.alert", True)]
    assert mails.messages == []


def test_feedback_reaches_an_agent_of_another_process():
    assert redraft("cycle", "run", "thermostat.yaml", "--cycles", "1").exit_code == 0
    names, _ = PAGE.run(PYTHON[2])
    assert [agent.name for agent in names["agents"]] == ["thermostat"]
    assert names["agents"][0].pending == 1
    assert [cycle.number for cycle in names["latest"]] == [1]


def test_a_storage_registers_itself():
    names, _ = PAGE.run(PYTHON[3])
    try:
        assert isinstance(names["storage"], LongTermStorage)
        assert names["agent"]._location.storage is names["storage"]
    finally:
        asyncio.run(names["storage"].aclose())


def test_the_learning_agent_files_a_pattern():
    model = ScriptedModel([{"newPatterns": [{"description": "It is cold at night.", "confidence": 0.6}]}])
    levels = []

    def heat(level):
        levels.append(level)

    agent = CycleAgent.from_file("learning.yaml", functions={"heat": heat}, models={"fast": model})
    result = agent.run_cycle_sync()
    assert (result.status, levels) == ("finished", [2])
    assert [one["description"] for one in agent.memory.of("patterns")] == ["It is cold at night."]
