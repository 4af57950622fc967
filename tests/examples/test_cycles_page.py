"""Every block of docs/cycles.md runs, and so does the example to which it leads."""

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakValueDictionary

import aiomqtt
import pytest

from redraft import CycleAgent, ScriptedModel
from redraft._calls import functions_in
from redraft.cycles import Agents, LongTermStorage
from redraft.cycles.webhook import secret_key, signature_problem
from redraft.text.yaml import load_yaml
from support.commands import redraft
from support.http_server import serving
from support.pages import Page

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PAGE = Page("docs/cycles.md")
FILES = PAGE.files("yaml") | PAGE.files("python")
PYTHON = [text for text in PAGE.blocks("python") if text not in FILES.values()]
COMMANDS = PAGE.commands()
STOCK = [shlex.split(line) for line in Page("examples/README.md").commands() if "stock" in line]


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
    assert [item["message"] for item in names["memory"].of("feedbackHistory")] == ["that was right"]


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
    assert signature_problem(key, names["headers"], names["body"], datetime.now(UTC)) == ""


def shop(path):
    """Make the database of a shop as the README of the examples does."""
    [create] = [command for command in STOCK if command[0] == "sqlite3"]
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(create[2])


def orders(path="stock/shop.db"):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT item, key FROM orders").fetchall()


@pytest.fixture
def stock():
    """The functions of the example; its database is made."""
    shutil.copytree(EXAMPLES / "stock", "stock", ignore=shutil.ignore_patterns("shop.db*", "__pycache__"))
    shop("stock/shop.db")
    return functions_in(Path("stock/functions.py"))


@pytest.mark.usefixtures("stock")
def test_the_command_of_the_example_orders_what_is_nearly_sold_out():
    [run] = [command for command in STOCK if command[0] == "redraft"]
    ran = redraft(*[word.removeprefix("examples/") for word in run[1:]])
    assert ran.exit_code == 0, ran.stderr
    assert [item for item, _ in orders()] == ["tea"]


@pytest.fixture(params=["shop", "stock"])
def shelf(request):
    """The folder with the functions of the page, or of the example, and a database."""
    request.getfixturevalue("stock") if request.param == "stock" else shop("shop.db")
    return Path(request.param)


def test_the_functions_read_and_write_a_database(shelf):
    functions = functions_in(shelf / "functions.py")
    assert "tea" in str(functions["low_stock"](5))
    for item in ("tea", "tea", "it's; DROP TABLE orders"):
        functions["order"](item, f"key of {item}")
    path = "shop.db" if shelf.name == "shop" else "stock/shop.db"
    assert [item for item, _ in orders(path)] == ["tea", "it's; DROP TABLE orders"]


def test_the_source_cannot_write(shelf):
    text = (shelf / "functions.py").read_text("utf-8")
    (shelf / "functions.py").write_text(re.sub('"SELECT .*"', '"DELETE FROM stock"', text))
    with pytest.raises(sqlite3.OperationalError, match="readonly database"):
        functions_in(shelf / "functions.py")["low_stock"](5)


def test_the_source_makes_no_database(stock):
    Path("stock/shop.db").unlink()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        stock["low_stock"](5)
    assert not Path("stock/shop.db").exists()


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
    assert [error["source"] for error in result.state["environmentalData"]["errors"]] == ["shelves"]
    assert [item for item, _ in orders()] == ["tea"]


def test_the_agent_for_an_inbox_takes_each_file_once():
    for name in ("new", "done"):
        Path("inbox", name).mkdir()
    for age, name in ((-3600, "unfinished.csv"), (60, "b.csv"), (90, "a.csv")):
        path = Path("inbox/new", name)
        path.write_text("1\n2\n")
        os.utime(path, (time.time() - age,) * 2)
    agent = CycleAgent.from_file("inbox/agent.yaml", functions=functions_in(Path("inbox/functions.py")))
    done = [
        [action["result"] for action in agent.run_cycle_sync().state["derivedData"]["execution"]["actions"]]
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
    names, _ = PAGE.run(PYTHON[1], {"asyncio": asyncio})
    assert [cycle.number for cycle in names["latest"]] == [1]
    [agent] = asyncio.run(Agents().all())
    assert (agent.name, agent.pending) == ("thermostat", 1)


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

    [learn] = [load_yaml(text) for text in PAGE.blocks("yaml") if text.startswith("- type: learn")]
    document = load_yaml(FILES["thermostat.yaml"])
    document["stages"]["reflect"]["substages"][:0] = learn
    Path("learning.yaml").write_text(json.dumps(document))
    agent = CycleAgent.from_file("learning.yaml", functions={"heat": heat}, models={"fast": model})
    result = agent.run_cycle_sync()
    assert (result.status, levels) == ("finished", [2])
    assert [pattern["description"] for pattern in agent.memory.of("patterns")] == ["It is cold at night."]
