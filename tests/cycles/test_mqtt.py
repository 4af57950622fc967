import asyncio
import secrets

import aiomqtt
import pytest

from redraft.cycles.mqtt import KEY_PROPERTY, MAX_PAYLOAD, Broker, collecting, publish
from redraft.cycles.sense import sense
from redraft.errors import AgentFileError, ConfigError, MissingExtraError, OutputError
from redraft.loop.journal import Journalled
from redraft.stores.memory import MemoryStore
from support.cycles import cycle_of
from support.monitor import monitor, run
from support.mqtt_broker import MqttBroker


def sent(broker, topic, payload, **options):
    return publish(Broker(broker.url), topic, payload, "k1", **options)


async def collected(broker, topic, seconds=0.3, limit=100, **options):
    async with collecting(Broker(broker.url), topic, wait_seconds=seconds, limit=limit, **options) as found:
        return found


async def arrived(broker, topic, count, **options):
    """Return the messages of a topic, however many times a busy broker is asked for them."""
    found = []
    for _ in range(40):
        found += await collected(broker, topic, **options)
        if len(found) >= count:
            break
    return found


class _KilledError(BaseException):
    """What ends a process."""


def session():
    return {"identifier": f"redraft-{secrets.token_hex(4)}", "session_seconds": 60}


def test_retained_messages_arrive_at_once(mqtt_broker):
    async def main():
        await sent(mqtt_broker, "plant/1/rate", {"rate": 4}, retain=True)
        await sent(mqtt_broker, "plant/1/other", 1, retain=True)
        return await arrived(mqtt_broker, "plant/+/rate", 1)

    assert run(main()) == [{"topic": "plant/1/rate", "data": {"rate": 4}, "retained": True}]


def test_a_session_keeps_what_arrives_between_two_cycles(mqtt_broker):
    own = session()

    async def main():
        assert await collected(mqtt_broker, "line/#", **own) == []
        for number in range(5):
            await sent(mqtt_broker, "line/a", number)
        kept = await arrived(mqtt_broker, "line/#", 3, limit=3, **own)
        return [one["data"] for one in kept], await collected(mqtt_broker, "line/#", **own)

    assert run(main()) == ([2, 3, 4], [])


def test_a_broker_forgets_nothing_before_it_is_told_to(mqtt_broker):
    own = session()

    async def killed(topic, own):
        taking = collecting(Broker(mqtt_broker.url), topic, wait_seconds=1, limit=100, qos=2, **own)
        async with taking as found:
            assert found
            raise _KilledError

    async def main():
        assert await collected(mqtt_broker, "many", **own) == []
        for number in range(60):
            await sent(mqtt_broker, "many", number)
        with pytest.raises(_KilledError):
            await killed("many", own)
        again = await arrived(mqtt_broker, "many", 60, **own)
        return [one["data"] for one in again], await collected(mqtt_broker, "many", **own)

    assert run(main()) == (list(range(60)), [])


def test_without_a_session_only_what_arrives_meanwhile(mqtt_broker):
    is_over = asyncio.Event()

    async def keep_sending():
        while not is_over.is_set():
            await sent(mqtt_broker, "live/a", "meanwhile")

    async def main():
        await sent(mqtt_broker, "live/a", "before")
        sending = asyncio.ensure_future(keep_sending())
        found = await arrived(mqtt_broker, "live/a", 1)
        is_over.set()
        await sending
        return {one["data"] for one in found}

    assert run(main()) == {"meanwhile"}


def test_a_message_has_its_key(mqtt_broker):
    async def main():
        async with aiomqtt.Client(
            "127.0.0.1", mqtt_broker.port, protocol=aiomqtt.ProtocolVersion.V5
        ) as client:
            await client.subscribe("keyed", 1)
            await sent(mqtt_broker, "keyed", None, qos=2)
            message = await anext(aiter(client.messages))
        return message.payload, message.properties.UserProperty

    assert run(main()) == (b"null", [(KEY_PROPERTY, "k1")])


@pytest.mark.parametrize(
    ("payload", "data"),
    [
        (b"\xff\x00", "base64,/wA="),
        (b"", ""),
        (b"{", "{"),
        (b"NaN", "NaN"),
        (b"[" * 5_000, "[" * 5_000),
        (b'"a"', "a"),
    ],
)
def test_payloads_that_are_not_json(mqtt_broker, payload, data):
    own = session()

    async def main():
        await collected(mqtt_broker, "raw", 0.01, **own)
        async with aiomqtt.Client("127.0.0.1", mqtt_broker.port) as client:
            await client.publish("raw", payload, 1)
        return await arrived(mqtt_broker, "raw", 1, **own)

    assert run(main()) == [{"topic": "raw", "data": data, "retained": False}]


def test_large_payloads_are_refused_in_both_directions(mqtt_broker):
    async def main():
        with pytest.raises(OutputError, match="a payload is limited to 100,000 bytes, got 100,001"):
            await sent(mqtt_broker, "big", "x" * (MAX_PAYLOAD + 1))
        async with aiomqtt.Client("127.0.0.1", mqtt_broker.port) as client:
            await client.publish("big", "x" * 200_000, 1, retain=True)
        await sent(mqtt_broker, "big/not", "x" * MAX_PAYLOAD, retain=True)
        return await arrived(mqtt_broker, "big/#", 1)

    assert [one["topic"] for one in run(main())] == ["big/not"]


@pytest.mark.parametrize("topic", ["a/+", "", "a/#"])
def test_a_topic_to_publish_to_has_no_wildcard(mqtt_broker, topic):
    with pytest.raises(OutputError, match="a message needs a topic without wildcards"):
        run(sent(mqtt_broker, topic, 1))


def test_a_broker_that_is_not_there_or_does_not_answer():
    with pytest.raises(ConnectionError, match=r"mqtt://127.0.0.1:1: "):
        run(publish(Broker("mqtt://me:hush@127.0.0.1:1"), "a", 1, "k"))

    writers = []

    async def main():
        server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await publish(Broker(f"mqtt://127.0.0.1:{port}", seconds=0.3), "a", 1, "k")
        finally:
            server.close()
            for writer in writers:
                writer.close()

    with pytest.raises((TimeoutError, ConnectionError), match=r"mqtt://127.0.0.1:\d+"):
        run(main())


def test_a_password():
    password = secrets.token_hex(8)
    broker = MqttBroker(password)
    try:
        url = broker.url.replace("//", f"//agent:{password}@")
        run(publish(Broker(url), "a", 1, "k"))
        with pytest.raises(ConnectionError, match=r"(?i)not authorized") as found:
            run(publish(Broker(url.replace(password, "wrong")), "a", 1, "k"))
        assert password not in str(found.value)
        assert password not in f"{Broker(url)}{Broker(url)!r}"
    finally:
        broker.remove()


AGENT = """\
name: plant
env: [BROKER]
stages:
  sense:
    substages:
      - type: mqtt
        name: rates
        config: {url: "{{ env.BROKER }}", topic: works/+/rate, waitMs: 300, sessionMs: 60000}
  actuate:
    substages:
      - type: execute
        name: act
        config:
          actions:
            - type: mqtt
              name: lower
              url: "{{ env.BROKER }}"
              topic: "works/{{ environmentalData.payload.rates[0].data.line }}/set"
              body: {level: 1}
              retain: true
"""


def test_a_source_and_an_action(mqtt_broker, monkeypatch):
    monkeypatch.setenv("BROKER", mqtt_broker.url)
    store = MemoryStore()

    async def main():
        async with monitor(text=AGENT, storage=store) as agent:
            first = await agent.run_cycle()
            await sent(mqtt_broker, "works/7/rate", {"line": 7})
            second = await agent.run_cycle()
        return first, second, await arrived(mqtt_broker, "works/7/set", 1)

    first, second, published = run(main())
    assert first.state["environmentalData"]["payload"] == {"rates": []}
    [action] = second.state["derivedData"]["execution"]["actions"]
    assert (action["status"], action["result"]) == ("succeeded", {"topic": "works/7/set"}), action
    assert [(one["topic"], one["data"]) for one in published] == [("works/7/set", {"level": 1})]


def test_what_a_killed_cycle_had_taken_comes_again_or_is_in_its_journal(mqtt_broker, monkeypatch):
    monkeypatch.setenv("BROKER", mqtt_broker.url)
    store, spec = MemoryStore(), monitor(text=AGENT).spec

    def sensing(number, *, ends_at="", resumes=False):
        journal = Journalled(store, f"cycle-{number}", resumes=resumes)

        async def step(name, returns, fn, /, *args):
            if name == ends_at:
                raise _KilledError
            return await journal(name, returns, fn, *args)

        cycle, _ = cycle_of(spec, step=step)
        return sense(spec.stages.sense, cycle), cycle

    async def main():
        await sensing(6)[0]  # which makes the session
        await sent(mqtt_broker, "works/7/rate", {"line": 7})
        with pytest.raises(_KilledError):
            await sensing(7, ends_at="sense/acknowledge")[0]
        resumed, cycle = sensing(7, resumes=True)
        await resumed
        again, later = sensing(8)
        await again
        return [one.state.environmental_data["payload"]["rates"] for one in (cycle, later)]

    in_journal, once_more = run(main())
    assert [one["data"] for one in in_journal] == [{"line": 7}]
    assert once_more == in_journal


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mqtt://",
        "here:1883",
        "http://here",
        "mqtt://here/path",
        "mqtt://here:x",
        "mqtt://[",
        "mqtt://h?a=b",
    ],
)
def test_bad_urls(url):
    with pytest.raises(ConfigError, match="Expected the URL of a broker, such as 'mqtt://HOST'"):
        Broker(url)


BAD = [
    ('url: "{{ env.BROKER }}", topic', "url: here, topic", "Expected the URL of a broker"),
    ("waitMs: 300", "waitMs: 0", "waitMs"),
    ("waitMs: 300", "qos: 3", "qos"),
    ("topic: works/+/rate, ", "", "topic"),
]


@pytest.mark.parametrize(("there", "instead", "message"), BAD)
def test_a_bad_source_is_an_error_at_its_line(there, instead, message):
    with pytest.raises(AgentFileError, match=message) as found:
        monitor(text=AGENT.replace(there, instead, 1))
    assert found.value.line in (6, 8)


def test_an_agent_without_the_extra_is_refused_before_it_runs(monkeypatch):
    monkeypatch.setattr("redraft.cycles.mqtt.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'redraft\[mqtt\]'"):
        monitor(text=AGENT)
