# stock/functions.py
"""Sources and actions in a database and at an MQTT broker; agent.yaml names them."""

import asyncio
import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

SHOP = Path(__file__).absolute().with_name("shop.db")


def low_stock(least: int) -> list[dict[str, object]]:
    """Read the items that are nearly sold out; the connection cannot write."""
    query = "SELECT item, count FROM stock WHERE count < :least ORDER BY count LIMIT 100"
    with closing(sqlite3.connect(f"{SHOP.as_uri()}?mode=ro", uri=True, timeout=10)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(query, {"least": least})]


def order(item: str, idempotency_key: str) -> dict[str, str]:
    """Order an item once, even if a killed cycle runs this again; `key` is UNIQUE."""
    statement = "INSERT INTO orders (item, key) VALUES (:item, :key) ON CONFLICT (key) DO NOTHING"
    with closing(sqlite3.connect(SHOP, timeout=10)) as database, database:  # commits, or rolls back
        database.execute(statement, {"item": item, "key": idempotency_key})
    return {"ordered": item}


def _broker() -> aiomqtt.Client:
    """Connect to the broker: with MQTT 5, and ten seconds for each answer."""
    host, port = os.environ.get("BROKER_HOST", "127.0.0.1"), int(os.environ.get("BROKER_PORT", "1883"))
    return aiomqtt.Client(host, port, protocol=aiomqtt.ProtocolVersion.V5, timeout=10)


async def weights(seconds: float = 1.0) -> list[dict[str, object]]:
    """Collect the weights that the broker retains, and those that arrive within `seconds`."""
    messages: list[dict[str, object]] = []
    async with _broker() as client:
        await client.subscribe("shelves/+/weight", qos=1)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for message in client.messages:
                    shelf = str(message.topic).split("/")[1]
                    messages.append({"shelf": shelf, "weight": json.loads(message.payload)})
    return messages[-100:]


async def light(shelf: str, level: int, idempotency_key: str) -> dict[str, str]:
    """Switch the light of a shelf; returns once the broker has the message."""
    topic, properties = f"shelves/{shelf}/light", Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("idempotency-key", idempotency_key)]
    async with _broker() as client:
        await client.publish(topic, json.dumps({"level": level}), qos=1, properties=properties)
    return {"published": topic}
