"""Every block of docs/cycles.md runs."""

import asyncio
import json
import os
import re
import shlex
import socket
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakValueDictionary

import aiomqtt
import psycopg
import pytest

from redraft import CycleAgent, ScriptedModel
from redraft._calls import functions_in
from redraft.cycles import LongTermStorage
from redraft.cycles.webhook import distrust, secret_key
from support.commands import redraft
from support.http_server import serving
from support.pages import Page

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
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
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    [readings] = PAGE.blocks("csv")
    Path("readings.csv").write_text(readings)
    Path("redraft.toml").touch()


def test_the_commands_run_one_after_the_other():
    commands = [
        one for one in COMMANDS if one.startswith("redraft") and "--listen" not in one and "stock" not in one
    ]
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
    names, _ = PAGE.run(PYTHON[2])
    key = secret_key(os.environ["ORDERS_SECRET"], "ORDERS_SECRET")
    assert distrust(key, names["headers"], names["body"], datetime.now(UTC)) == ""


def test_the_example_is_the_one_on_the_page():
    for name in ("agent.yaml", "functions.py"):
        assert (EXAMPLES / "stock" / name).read_text("utf-8") == FILES[f"stock/{name}"]


def shop(commands=COMMANDS):
    """Make the database as the page does."""
    [create] = [shlex.split(one) for one in commands if one.startswith("sqlite3 ")]
    with closing(sqlite3.connect(create[1])) as database, database:
        database.executescript(create[2])


def orders():
    with closing(sqlite3.connect("stock/shop.db")) as database:
        return database.execute("SELECT item, key FROM orders").fetchall()


@pytest.fixture
def stock():
    """The functions of the example; its database is made."""
    shop()
    return functions_in(Path("stock/functions.py"))


def test_the_stock_agent_reads_and_acts_in_a_database_and_at_a_broker(mqtt_broker, monkeypatch, stock):
    monkeypatch.setenv("BROKER_PORT", str(mqtt_broker.port))

    async def main():
        async with aiomqtt.Client(
            "127.0.0.1", mqtt_broker.port, protocol=aiomqtt.ProtocolVersion.V5
        ) as client:
            await client.publish("shelves/3/weight", "20", qos=1, retain=True)
            await client.subscribe("shelves/+/light", qos=1)
            async with CycleAgent.from_file("stock/agent.yaml", functions=stock) as agent:
                result = await agent.run_cycle()
            async with asyncio.timeout(60):
                return result, await anext(aiter(client.messages))

    result, message = asyncio.run(main())
    assert result.success, result.metrics.failures
    payload = result.state["environmentalData"]["payload"]
    assert payload == {"low": [{"item": "tea", "count": 3}], "shelves": [{"shelf": "3", "weight": 20}]}
    ordered, lit = result.state["derivedData"]["execution"]["actions"]
    assert orders() == [("tea", ordered["idempotencyKey"])]
    assert (str(message.topic), json.loads(message.payload)) == ("shelves/3/light", {"level": 1})
    assert message.properties.UserProperty == [("idempotency-key", lit["idempotencyKey"])]


def test_the_stock_agent_orders_without_a_broker(monkeypatch, stock):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        monkeypatch.setenv("BROKER_PORT", str(server.getsockname()[1]))
    result = CycleAgent.from_file("stock/agent.yaml", functions=stock).run_cycle_sync()
    assert result.success, result.metrics.failures
    assert [one["source"] for one in result.state["environmentalData"]["errors"]] == ["shelves"]
    assert [item for item, _ in orders()] == ["tea"]


def test_an_order_that_is_repeated_is_placed_once(stock):
    for item in ("tea", "tea", "it's; DROP TABLE orders"):
        stock["order"](item, f"key of {item}")
    assert [item for item, _ in orders()] == ["tea", "it's; DROP TABLE orders"]


def test_the_source_cannot_write(stock):
    text = Path("stock/functions.py").read_text("utf-8")
    Path("stock/functions.py").write_text(re.sub("query = .*", 'query = "DELETE FROM stock"', text))
    with pytest.raises(sqlite3.OperationalError, match="readonly database"):
        functions_in(Path("stock/functions.py"))["low_stock"](5)
    Path("stock/shop.db").unlink()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        stock["low_stock"](5)
    assert not Path("stock/shop.db").exists()


def test_the_source_in_postgresql(postgres, monkeypatch):
    postgres.ask("CREATE TABLE stock (item text, count int)")
    postgres.ask("INSERT INTO stock VALUES ('tea', 3), ('cups', 9)")
    monkeypatch.setenv("SHOP_URL", postgres.url)
    [code] = [text for text in PYTHON if "psycopg" in text]
    names, _ = PAGE.run(code)
    assert names["low_stock"](5) == [{"item": "tea", "count": 3}]
    names, _ = PAGE.run(re.sub("query = .*", 'query = "DELETE FROM stock WHERE count < %(least)s"', code))
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        names["low_stock"](5)


def test_the_inbox_agent_takes_each_file_once():
    for name in ("new", "done"):
        Path("inbox", name).mkdir()
    for age, name in ((0, "unfinished.csv"), (60, "b.csv"), (90, "a.csv")):
        path = Path("inbox/new", name)
        path.write_text("1\n2\n")
        os.utime(path, (time.time() - age,) * 2)
    agent = CycleAgent.from_file("inbox/agent.yaml", functions=functions_in(Path("inbox/functions.py")))
    done = [
        [one["result"] for one in agent.run_cycle_sync().state["derivedData"]["execution"]["actions"]]
        for _ in range(3)
    ]
    assert done == [[{"file": "a.csv", "lines": 2}], [{"file": "b.csv", "lines": 2}], []]
    assert [path.name for path in Path("inbox/new").iterdir()] == ["unfinished.csv"]


def test_people_are_notified(monkeypatch):
    secret, told = "the secret of both sides", []

    def take(handler):
        told.append((json.loads(handler.body)["type"], "webhook-signature" in handler.headers))
        handler.reply(204, {}, b"")

    with serving({"/hook": take}) as server:
        monkeypatch.setenv("OPS_WEBHOOK", f"{server.url}/hook")
        monkeypatch.setenv("OPS_SECRET", secret)
        assert CycleAgent.from_file("watched.yaml", storage="project").run_cycle_sync().success
    assert told == [("agent.alert", True)]


def test_feedback_reaches_an_agent_of_another_process():
    assert redraft("cycle", "run", "thermostat.yaml", "--cycles", "1").exit_code == 0
    names, _ = PAGE.run(PYTHON[3])
    assert [agent.name for agent in names["agents"]] == ["thermostat"]
    assert names["agents"][0].pending == 1
    assert [cycle.number for cycle in names["latest"]] == [1]


def test_a_storage_registers_itself():
    names, _ = PAGE.run(PYTHON[4])
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
