import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx2 as httpx
import pytest

from redraft.cycles import endpoint
from redraft.cycles.host import AgentHost
from redraft.cycles.webhook import secret_key, signed_headers
from redraft.errors import ConfigError, LeaseError, StoreError
from redraft.stores.sqlite import MemoryStore
from redraft.web.server import parsed_address, serving
from support.commands import redraft
from support.monitor import MONITOR, World, monitor, run

SECRET = "sixteen bytes or more"
HOOKED = MONITOR.replace("stages:", "triggers: [{type: webhook, topic: orders, secret: HOOK}]\nstages:", 1)
SENSED = "sense:\n    substages:\n      - {type: agent-messages, name: mail, config: {into: mail}}\n"
ORDERS = "/hooks/monitor/orders"


@pytest.fixture(autouse=True)
def _secret(monkeypatch):
    monkeypatch.setenv("HOOK", SECRET)


def named(name, text=HOOKED):
    return text.replace("name: monitor", f"name: {json.dumps(name)}", 1)


def signed(body, message_id="m1", seconds=0, **more):
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return signed_headers(secret_key(SECRET, "HOOK"), message_id, body, at) | more


@asynccontextmanager
async def visited(*agents, root=""):
    """Yield a client of the endpoint of open agents."""
    host = AgentHost(agents)
    transport = httpx.ASGITransport(app=host.app(), raise_app_exceptions=False, root_path=root)
    async with httpx.AsyncClient(transport=transport, base_url="http://agents") as client:
        for agent in agents:
            await agent.open()
        yield client
        for agent in agents:
            await agent.aclose()


def post(client, body=b'{"order": 7}', path=ORDERS, **headers):
    return client.post(path, content=body, headers=headers or signed(body))


async def test_a_webhook_starts_a_cycle_which_reads_its_body():
    results, events = [], []
    agent = monitor(text=HOOKED, storage=MemoryStore(), on_event=events.append)
    async with visited(agent) as client:
        going = asyncio.ensure_future(agent.run_forever(1))
        response = await post(client)
        await going
        results = [event.result for event in events if hasattr(event, "result")]
    (result,) = results
    assert (response.status_code, response.json()) == (202, {"ok": True, "repeated": False})
    assert result.trigger == "webhook"
    (message,) = result.state["environmentalData"]["payload"]["mail"]
    assert (message["topic"], message["data"], message["sender"]) == ("orders", {"order": 7}, "webhook")


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"[" + b"1," * 49_998 + b"12]", "application/json"),
        (b'["' + b"\\u007f" * 16_000 + b"\x7f" * 3_996 + b'"]', "application/json"),
        (b'a"\n' * 33_333 + b"a", "text/plain"),
    ],
)
async def test_a_body_of_100_000_bytes_is_stored_whatever_it_holds(body, media_type):
    assert len(body) == 100_000
    async with visited(monitor(text=HOOKED, storage=MemoryStore())) as client:
        response = await post(client, body, **signed(body, **{"content-type": media_type}))
    assert response.status_code == 202


async def test_a_repeated_delivery_leaves_no_second_message_whatever_happened_meanwhile():
    store = MemoryStore()
    agent = monitor(text=HOOKED, storage=store)
    async with visited(agent) as client:
        headers = signed(b"1", **{"content-type": "text/plain"})
        answers = [await post(client, b"1", **headers) for _ in range(2)]
        await agent.run_cycle()
    assert await store.find("message") == []
    async with visited(monitor(text=HOOKED, storage=store)) as client:  # another process
        answers.append(await post(client, b"1", **headers))
    assert [answer.json()["repeated"] for answer in answers] == [False, True, True]
    assert await store.find("message") == []


@pytest.mark.parametrize(("age", "left"), [(timedelta(minutes=10), 1), (timedelta(seconds=-1), 0)])
async def test_old_deliveries_are_forgotten(monkeypatch, age, left):
    monkeypatch.setattr("redraft.cycles.mail.DELIVERY_AGE", age)
    store = MemoryStore()
    async with visited(monitor(text=HOOKED, storage=store)) as client:
        await post(client)
    assert len(await store.find("delivery")) == left


BODY = b'{"order": 7}'
EARLY, LATE = {"seconds": -301}, {"seconds": 310}
REFUSED = [
    (401, "POST", ORDERS, BODY, None, "expected the headers"),
    (401, "POST", ORDERS, BODY, {"body": b"another"}, "does not match the body"),
    (401, "POST", ORDERS, BODY, EARLY, "more than 300 seconds"),
    (401, "POST", ORDERS, BODY, LATE, "more than 300 seconds"),
    (413, "POST", ORDERS, b"x" * 100_001, None, "more than 100,000 bytes"),
    (413, "POST", ORDERS, b"[" + b"1e9," * 24_000 + b"1]", {}, "limited to 100,000 characters"),
    (400, "POST", ORDERS, b"{", {}, "not application/json"),
    (400, "POST", ORDERS, b"\xff", {}, "not application/json"),
    (400, "POST", ORDERS, b"1e999", {}, "not application/json"),
    (400, "POST", ORDERS, b"NaN", {}, "not application/json"),
    (400, "POST", ORDERS, b"[" * 9_999, {}, "not application/json"),
    (400, "POST", ORDERS, b"[" * 200 + b"]" * 200, {}, "not application/json"),
    (405, "GET", ORDERS, b"", None, "Method not allowed"),
    (405, "POST", "/health", b"", None, "Method not allowed"),
    (404, "POST", "/hooks/monitor/other", BODY, {}, "Not found"),
    (404, "POST", "/hooks/other/orders", BODY, {}, "Not found"),
    (404, "POST", "/hooks/monitor/orders/more", BODY, {}, "Not found"),
    (404, "GET", "/", b"", None, "Not found"),
]
"""Status, request, how it is signed (None: not at all), and the reason."""


def test_any_other_request_is_refused_with_the_reason():
    async def main():
        store, answers = MemoryStore(), []
        async with visited(monitor(text=HOOKED, storage=store)) as client:
            for _, method, path, body, signing, _ in REFUSED:
                headers = {} if signing is None else signed(**{"body": body, **signing})
                answers.append(await client.request(method, path, content=body, headers=headers))
                assert await store.find("message") == [], (method, path, body[:20])
        return answers

    for answer, (status, *_, reason) in zip(run(main()), REFUSED, strict=True):
        assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.text


async def test_names_in_the_path_are_quoted_and_an_application_may_be_mounted():
    name, topic = "a/b ü", "x y/z"
    text = named(name).replace("topic: orders", f"topic: {json.dumps(topic)}")
    async with visited(monitor(text=text), root="/agents") as client:
        path = f"/agents/hooks/{quote(name, safe='')}/{quote(topic, safe='')}"
        statuses = [
            (await post(client, path=path)).status_code,
            (await client.get("/agents/health")).status_code,
        ]
    assert statuses == [202, 200]


async def test_a_webhook_that_cannot_be_stored_must_be_sent_again(monkeypatch):
    async def fails(*_):
        raise StoreError("it is away")

    store = MemoryStore()
    async with visited(monitor(text=HOOKED, storage=store)) as client:
        monkeypatch.setattr(store, "put_if_absent", fails)
        answer = await post(client)
        monkeypatch.undo()
        monkeypatch.setenv("HOOK", SECRET)
        again = (await post(client)).status_code
    assert (answer.status_code, answer.headers["retry-after"], again) == (503, "5", 202)


async def never():
    yield b"{"
    await asyncio.Event().wait()


async def ask(app, headers, body):
    """Post a body as it arrives; return the status, and whether any of the body was read."""
    sent, read = [], False

    async def receive():
        nonlocal read
        read = True
        return {"type": "http.request", "body": await anext(body), "more_body": True}

    async def send(message):
        sent.append(message)

    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": ORDERS, "headers": encoded, "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"], read


@pytest.mark.parametrize(
    ("changed", "status", "is_read"),
    [
        ({}, 408, True),
        (None, 401, False),
        ({"webhook-id": ""}, 401, False),
        ({"webhook-id": "x" * 201}, 401, False),
        ({"webhook-timestamp": "1"}, 401, False),
        ({"webhook-signature": ""}, 401, False),
        ({"webhook-signature": "v2,x"}, 401, False),
        ({"content-length": "100001"}, 413, False),
    ],
)
def test_a_body_is_waited_for_only_if_its_signature_may_be_right(monkeypatch, changed, status, is_read):
    monkeypatch.setattr(endpoint, "BODY_TIMEOUT", 0.01)
    app = AgentHost([monitor(text=HOOKED)]).app()
    headers = {} if changed is None else signed(b"{}", **changed)
    assert run(ask(app, headers, never())) == (status, is_read)


async def test_slow_bodies_take_no_place_of_a_webhook(monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_DELIVERIES", 1)
    monkeypatch.setattr(endpoint, "MAX_BODIES", 3)
    agent = monitor(text=HOOKED, storage=MemoryStore())
    host = AgentHost([agent])
    app = host.app()
    transport = httpx.ASGITransport(app=app)
    async with agent, httpx.AsyncClient(transport=transport, base_url="http://agents") as client:
        slow = [asyncio.ensure_future(ask(app, signed(b"{}", f"s{n}"), never())) for n in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        accepted = await post(client)
        slow.append(asyncio.ensure_future(ask(app, signed(b"{}", "s9"), never())))
        for _ in range(5):
            await asyncio.sleep(0)
        refused, health = await post(client, b"2"), await client.get("/health")
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        again = await post(client, b"3", **signed(b"3", "m3"))
    statuses = [answer.status_code for answer in (accepted, refused, health, again)]
    assert statuses == [202, 503, 200, 202]


@pytest.mark.parametrize(
    ("listen", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "localhost", 200),
        ("127.0.0.1", "evil.example", 421),
        ("127.0.0.1", "127.0.0.1.evil.example", 421),
        ("0.0.0.0", "10.1.2.3", 200),  # noqa: S104 (as in a container)
        ("0.0.0.0", "evil.example", 421),  # noqa: S104 (as above)
    ],
)
async def test_health_answers_only_its_own_hosts(listen, host, status):
    agent = monitor(text=HOOKED, storage=MemoryStore())
    host_of_agents = AgentHost([agent])
    async with agent, host_of_agents._serving(f"{listen}:0") as url, httpx.AsyncClient() as client:
        port = url.rstrip("/").rpartition(":")[2]
        answer = await client.get(f"{url}health", headers={"Host": f"{host}:{port}"})
        hook = await client.post(
            f"{url}hooks/monitor/orders", content=b"1", headers={**signed(b"1"), "Host": "hooks.example"}
        )
    assert (answer.status_code, hook.status_code) == (status, 202)


def test_health_lists_the_running_agents():
    async def main():
        good = monitor(text=named("good", MONITOR), storage=MemoryStore())
        bad = monitor(text=named("bad", MONITOR), storage=MemoryStore())
        host = AgentHost([good, bad])
        before = host.health()

        async def lost(*_):
            raise LeaseError("another process runs it")

        bad.run_cycle = lost
        with pytest.raises(LeaseError, match="another process"):
            await host.run(1)
        async with visited(good, bad) as client:
            fresh = await client.get("/health")
        transport = httpx.ASGITransport(app=host.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://agents") as client:
            return before, fresh, await client.get("/health")

    before, fresh, after = run(main())
    assert before["ok"]
    assert before["agents"][0] == {
        "name": "good",
        "state": "running",
        "failed_cycles": 0,
        "storage": "ok",
        "cycle": None,
    }
    assert fresh.status_code == 200
    good, bad = after.json()["agents"]
    assert (after.status_code, bad["state"], bad["cycle"]) == (503, "failed", None)
    assert (good["state"], good["cycle"]["number"], good["cycle"]["status"]) == ("ended", 1, "finished")


async def test_health_shows_failing_and_waiting_agents():
    supervised = MONITOR.replace(
        "  actuate:", "      - {type: authorize, name: ask, config: {mode: controlled}}\n  actuate:", 1
    )
    world = World(rate=ConnectionError("no rate today"))
    failing = monitor(world, text=named("failing", MONITOR), storage=MemoryStore())
    waiting = monitor(text=named("waiting", supervised), storage=MemoryStore())
    host = AgentHost([failing, waiting])
    async with failing, waiting:
        for _ in range(2):
            await failing.run_cycle()
        cycle = asyncio.ensure_future(waiting.run_cycle())
        async with asyncio.timeout(60):
            while host.health()["agents"][1]["state"] != "waiting":  # noqa: ASYNC110 (as a supervisor does)
                await asyncio.sleep(0.01)
        before = host.health()
        world.rate = 3
        await failing.run_cycle()
        await waiting.send_feedback("approve")
        await cycle
        after = host.health()
    assert [agent["state"] for agent in before["agents"]] == ["failing", "waiting"]
    assert before["ok"]
    assert [agent["failed_cycles"] for agent in before["agents"]] == [2, 0]
    assert [agent["state"] for agent in after["agents"]] == ["running", "running"]


async def end_of(reader):
    """Read until the server closes or resets the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_idle_connections_block_no_others(monkeypatch):
    monkeypatch.setattr("redraft.web.server.REQUEST_TIMEOUT", 0.5)
    agent, clients = monitor(text=HOOKED, storage=MemoryStore()), []
    app = AgentHost([agent]).app()
    async with agent, serving(app, "127.0.0.1:0") as address:
        port = address.port
        for sent in [b"", b"GET /hea", b"POST /hooks/monitor/orders HTTP/1.1\r\nhost: "] * 40:
            clients.append(await asyncio.open_connection("127.0.0.1", port))
            clients[-1][1].write(sent)
        async with httpx.AsyncClient(base_url=address.url) as client:
            statuses = [(await client.get("/health")).status_code, (await post(client)).status_code]
        ends = [await end_of(reader) for reader, _ in clients]
        for _, writer in clients:
            writer.close()
    assert (statuses, ends) == ([200, 202], [b""] * 120)


async def test_beyond_so_many_connections_the_oldest_that_waits_is_closed(monkeypatch):
    monkeypatch.setattr("redraft.web.server.MAX_CONNECTIONS", 5)
    async with serving(AgentHost([]).app(), "127.0.0.1:0") as address:
        port = address.port
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        assert await clients[0][0].read() == b""
        clients[0][1].close()
        for reader, writer in clients[1:]:
            writer.write(b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()


async def test_too_many_parallel_webhooks_are_retried_later_and_health_answers(monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_DELIVERIES", 1)
    agent = monitor(text=HOOKED, storage=MemoryStore())
    goes_on, deliver = asyncio.Event(), agent.deliver

    async def slowly(*message):
        await goes_on.wait()
        return await deliver(*message)

    agent.deliver = slowly
    async with visited(agent) as client:
        first = asyncio.ensure_future(post(client))
        await asyncio.sleep(0.1)
        refused = await post(client, b"2")
        assert (await client.get("/health")).status_code == 200
        goes_on.set()
        await first
        later = await post(client, b"3", **signed(b"3", "m3"))
    statuses = [first.result().status_code, later.status_code]
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert statuses == [202, 202]


@pytest.mark.parametrize("trigger", ["{type: manual}", "{type: interval, intervalMs: 10}"])
def test_no_cycles_are_none(trigger):
    world, text = World(), MONITOR.replace("stages:", f"triggers: [{trigger}]\nstages:", 1)
    agent = monitor(world, text=text, storage=MemoryStore())
    run(asyncio.wait_for(AgentHost([agent]).run(0), 10))
    assert world.looks == 0


async def test_one_agent_that_fails_leaves_the_others_running():
    worlds = World(), World()
    agents = [
        monitor(world, text=named(name, MONITOR), storage=MemoryStore())
        for name, world in zip(("a", "b"), worlds, strict=True)
    ]

    async def lost(*_):
        raise LeaseError("taken over")

    agents[0].run_cycle = lost
    with pytest.raises(LeaseError, match="taken over"):
        await AgentHost(agents).run(3, immediately=True)
    assert [world.looks for world in worlds] == [0, 3]


def test_problems_of_a_host_are_reported_before_a_cycle(monkeypatch):
    with pytest.raises(ConfigError, match="two agents named 'monitor'"):
        AgentHost([monitor(), monitor()])
    monkeypatch.setenv("HOOK", "short")
    with pytest.raises(ConfigError, match="The secret 'HOOK' must have at least 16 bytes"):
        AgentHost([monitor(text=HOOKED)]).app()
    monkeypatch.delenv("HOOK")
    with pytest.raises(ConfigError, match="The environment variable 'HOOK' is not set"):
        run(AgentHost([monitor(text=HOOKED)]).run(1, listen="127.0.0.1:0"))


@pytest.mark.parametrize("text", ["8080", ":8080", "host:", "host:x", "host:65536", "host:-1", ""])
def test_bad_addresses(text):
    with pytest.raises(ConfigError, match=r"Expected an address such as '127.0.0.1:8080'"):
        parsed_address(text)


def test_addresses():
    assert parsed_address("127.0.0.1:80").url == "http://127.0.0.1:80/"
    assert parsed_address("[::1]:8080").url == "http://[::1]:8080/"


def test_an_address_in_use_is_refused_before_any_cycle():
    world = World()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"Can't listen on '127.0.0.1'"):
            run(AgentHost([monitor(world, storage=MemoryStore())]).run(1, listen=listen))
    assert world.looks == 0


AGENT = """\
name: {name}
triggers: [{{type: webhook, topic: orders, secret: HOOK}}]
stages:
  sense:
    substages: [{{type: agent-messages, name: mail}}]
  actuate:
    substages:
      - {{type: execute, name: act, config: {{actions: [{{name: it, type: function, function: act}}]}}}}
"""


def two_agents(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "agent.yaml").write_text(AGENT.format(name=name))
        (folder / name / "functions.py").write_text(f"def act():\n    return {name!r}\n")
    return "one/agent.yaml", "two/agent.yaml"


def test_several_agents_on_the_command_line(project):
    files = two_agents(Path())
    both = redraft("cycle", "run", *files, "--cycles", 2, "--listen", "127.0.0.1:0")
    assert both.exit_code == 0, both.stderr
    assert "listening at http://127.0.0.1:" in both.stderr
    assert "one: cycle 2    finished  actions: 1 done" in both.stderr
    assert "2 cycles of two; redraft cycle memory two" in both.stderr
    data = json.loads(
        redraft("cycle", "run", *files, "--cycles", 1, "--listen", "127.0.0.1:0", "--json").stdout
    )
    assert [(agent["agent"], agent["count"]) for agent in data["agents"]] == [("one", 1), ("two", 1)]
    results = [
        agent["cycles"][0]["derived_data"]["execution"]["actions"][0]["result"] for agent in data["agents"]
    ]
    assert results == ["one", "two"]  # each has its own functions.py
    checked = redraft("cycle", "run", *files, "--check")
    assert ("one/agent.yaml: one" in checked.stdout, "HOOK (set)" in checked.stdout) == (True, True)
    refused = redraft("cycle", "run", *files)
    assert (refused.exit_code, "--listen HOST:PORT" in refused.stderr) == (2, True)
    assert redraft("cycle", "run", *files, "--cycles", 1).exit_code == 0


def test_a_process_answers_webhooks_and_supervisors_until_a_signal(project):
    files = two_agents(Path())
    command = [sys.executable, "-m", "redraft", "cycle", "run", *files, "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            url = line.split()[-1].rstrip("/")
            assert httpx.get(f"{url}/health").json()["ok"]
            body = b'{"order": 7}'
            sent = httpx.post(f"{url}/hooks/two/orders", content=body, headers=signed(body))
            assert sent.status_code == 202
            end = time.monotonic() + 20
            while time.monotonic() < end:
                two = httpx.get(f"{url}/health").json()["agents"][1]
                if two["cycle"] and two["cycle"]["status"] == "finished":
                    break
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert [(agent["agent"], agent["count"]) for agent in json.loads(out)["agents"]] == [
        ("one", 0),
        ("two", 1),
    ]
