import pytest

from redraft.cycles import Agents, mail
from redraft.cycles.mail import FEEDBACK, MESSAGE, PENDING, Mailbox, drop_excess_mail
from redraft.errors import ConfigError
from redraft.stores.sqlite import MemoryStore
from support.monitor import MONITOR, monitor

DEAF = MONITOR.replace("      - {type: agent-messages, name: mail, config: {into: mail}}\n", "")
MOST = 20


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(mail, "MAX_PENDING", MOST)
    monkeypatch.setattr(mail, "PAGE", 5)


def mailbox(store):
    return Mailbox(store, lambda data: data)


async def waiting(store, kind=MESSAGE):
    return [record.data for record in await store.find(kind, where={"status": PENDING})]


@pytest.mark.parametrize(
    ("sent", "gone"), [(0, 0), (MOST - 1, 0), (MOST, 0), (MOST + 1, 1), (3 * MOST + 2, 2 * MOST + 2)]
)
async def test_only_the_newest_pending_mail_stays(sent, gone):
    store = MemoryStore()
    for number in range(sent):
        await mailbox(store).message("weather", number)
    await mailbox(store).feedback("approve")
    assert await drop_excess_mail(store) == gone
    assert sorted(one["data"] for one in await waiting(store)) == [*range(gone, sent)]
    assert len(await waiting(store, FEEDBACK)) == 1


@pytest.mark.parametrize(
    ("topic", "data", "sender", "message"),
    [
        ("weather", float("nan"), "", "The data of a message is not JSON data: "),
        ("weather", {"at": object()}, "", "The data of a message is not JSON data: "),
        (" ", 1, "", "topic must be a non-empty string, got ' '."),
        (None, 1, "", "topic must be a non-empty string, got None."),
        ("weather", 1, None, "sender must be a string, got None."),
    ],
)
async def test_a_message_that_would_change_on_its_way_is_refused(topic, data, sender, message):
    async with monitor() as agent:
        with pytest.raises(ConfigError, match=message):
            await agent.deliver(topic, data, "first", sender=sender)
        with pytest.raises(ConfigError, match=message):
            await (await Agents().get("monitor")).send_message(topic, data, sender=sender)


@pytest.mark.parametrize("storage", ["process", "given"])
async def test_untaken_messages_are_dropped_eventually(storage):
    store = None if storage == "process" else MemoryStore()
    async with monitor(text=DEAF, storage=store) as agent:
        await agent.run_cycle()
        view = await Agents().get("monitor")
        for number in range(3 * MOST):
            await view.send_message("weather", number)
        for _ in range(99):
            await agent.run_cycle()
        await agent.aclose()  # after the deletion under way
        assert len(await waiting(view.location.store)) == MOST
        await view.send_message("weather", "last")
        assert (await view.prune(1_000))["mail"] == 1
        assert "last" in [one["data"] for one in await waiting(view.location.store)]
