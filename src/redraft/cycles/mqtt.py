"""MQTT: publish a message, and collect what a broker has."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from redraft.errors import ConfigError, MissingExtraError, OutputError
from redraft.text.schema_tree import plain_data

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from aiomqtt import Client, Message

PORTS = {"mqtt": 1883, "mqtts": 8883}
MAX_PAYLOAD = 100_000
"""Bytes of the payload of one message; a broker does not send larger ones."""
MAX_HEADER = 66_000
"""Bytes of the rest of a message: its topic and its properties."""
MAX_UNACKNOWLEDGED = 65_535
"""Messages that a broker sends before the first is acknowledged: as many as the protocol can count."""
KEY_PROPERTY = "idempotency-key"
"""The MQTT 5 user property that tells a message from all others."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, from a URL such as `mqtts://USER:PASSWORD@HOST:8883`.

    Raises `ConfigError` for any other URL, without showing it, since it may have a password.
    """

    url: str = field(repr=False)
    seconds: float = 10.0

    def __post_init__(self) -> None:
        """Check the URL."""
        try:
            parts = urlsplit(self.url)
            has_more = parts.path not in ("", "/") or parts.query or parts.fragment
            is_valid = parts.scheme in PORTS and parts.hostname and not has_more
            _ = parts.port
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError("Expected the URL of a broker, such as 'mqtt://HOST' or 'mqtts://HOST:8883'.")

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or PORTS[parts.scheme]}"

    def client(self, identifier: str | None = None, session_seconds: int = 0) -> Client:
        """Return a client that is not connected yet, and acknowledges no message by itself.

        With a session, the broker keeps messages for the identifier after the client has gone.
        """
        require_mqtt()
        from aiomqtt import Client, ProtocolVersion  # noqa: PLC0415 (only agents that use MQTT load it)
        from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
        from paho.mqtt.properties import Properties  # noqa: PLC0415

        parts, tls = urlsplit(self.url), None
        if parts.scheme == "mqtts":
            from ssl import create_default_context  # noqa: PLC0415 (it takes as long as all of an agent)

            tls = create_default_context()
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = session_seconds
        properties.MaximumPacketSize = MAX_PAYLOAD + MAX_HEADER
        properties.ReceiveMaximum = MAX_UNACKNOWLEDGED
        client = Client(
            parts.hostname or "",
            parts.port or PORTS[parts.scheme],
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            identifier=identifier,
            protocol=ProtocolVersion.V5,
            clean_start=not session_seconds,
            properties=properties,
            timeout=self.seconds,
            tls_context=tls,
        )
        client._client.manual_ack_set(True)  # noqa: SLF001, FBT003  # pyright: ignore[reportPrivateUsage] (aiomqtt has no option for it)
        return client


def require_mqtt() -> None:
    """Raise `MissingExtraError` if no MQTT client is installed."""
    if find_spec("aiomqtt") is None:
        raise MissingExtraError("MQTT in an agent file", "mqtt")


Quality = Literal[0, 1, 2]
"""MQTT's quality of service: at most once, at least once, exactly once."""


async def publish(
    broker: Broker, topic: str, payload: Any, key: str, *, qos: Quality = 1, retain: bool = False
) -> None:
    """Publish a message: text as it is, anything else as JSON.

    With a quality of 1 or 2, returns when the broker has it. Raises `ConnectionError` without a connection,
    `TimeoutError` after the broker's `seconds`, and `OutputError` for an invalid topic or a payload that is
    too large.
    """
    data = payload if isinstance(payload, str) else json.dumps(plain_data(payload, "The payload"))
    if (size := len(data.encode())) > MAX_PAYLOAD:
        raise OutputError(f"{broker}: a payload is limited to {MAX_PAYLOAD:,} bytes, got {size:,}.")

    if not topic or {"+", "#"} & set(topic):
        raise OutputError(f"{broker}: a message needs a topic without wildcards, got {topic!r}.")

    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415 (as above)
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [(KEY_PROPERTY, key)]
    with _naming(broker, broker.seconds):
        async with _connected(broker.client()) as client, asyncio.timeout(broker.seconds):
            await client.publish(topic, data, qos, retain, properties)


@asynccontextmanager
async def collecting(
    broker: Broker,
    topic: str,
    *,
    wait_seconds: float,
    limit: int,
    qos: Quality = 1,
    identifier: str | None = None,
    session_seconds: int = 0,
) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yield the newest messages of a topic filter, oldest first: `topic`, `data`, `retained`.

    They are those that the broker retains, those that arrive within `wait_seconds`, and with a session those
    that it has kept for the `identifier` since the last time: until the block ends without an error, which
    acknowledges them, so that none is lost, though one may come twice. `data` is that of JSON, else the text,
    else base64 after `base64,`. Raises like `publish`.
    """
    found: deque[Message] = deque()
    client = broker.client(identifier, session_seconds)
    if session_seconds:  # more would need a client that keeps on disk what it has half received
        qos = min(qos, 1)
    seconds = broker.seconds + wait_seconds
    async with AsyncExitStack() as stack:
        with _naming(broker, seconds):
            await stack.enter_async_context(_connected(client))
            async with asyncio.timeout(seconds):
                await client.subscribe(topic, qos)
                with suppress(TimeoutError):  # as always: the broker never says that there is no more
                    async with asyncio.timeout(wait_seconds):
                        async for message in client.messages:
                            found.append(message)
                            if len(found) > limit:
                                _acknowledge(client, found.popleft())
        yield [_reading(message) for message in found]
        with _naming(broker, seconds):
            for message in found:
                _acknowledge(client, message)
            await stack.aclose()


def _acknowledge(client: Client, message: Message) -> None:
    # aiomqtt has no call for it.
    client._client.ack(message.mid, message.qos)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@asynccontextmanager
async def _connected(client: Client) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        # Before it connects: after a failure to, it would leave its socket open.
        stack.push_async_exit(client)
        yield await client.__aenter__()


@contextmanager
def _naming(broker: Broker, seconds: float) -> Generator[None]:
    """Let errors name the broker."""
    from aiomqtt import MqttError  # noqa: PLC0415 (as above)

    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"{broker} did not answer within {seconds:g} s") from error
    except MqttError as error:
        raise ConnectionError(f"{broker}: {error}") from error
    except ValueError as error:  # a topic that is none
        raise OutputError(f"{broker}: {error}.") from error


def _reading(message: Message) -> dict[str, Any]:
    return {"topic": str(message.topic), "data": _data(message.payload), "retained": message.retain}


def _data(payload: bytes) -> Any:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"base64,{b64encode(payload).decode()}"
    try:
        return plain_data(json.loads(text), "The message")
    except (ValueError, RecursionError, OutputError):
        return text
