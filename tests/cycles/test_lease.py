"""Leases: one live process per agent."""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from redraft.cycles import lease as module
from redraft.cycles.lease import LEASE, Lease
from redraft.errors import LeaseError, StoreError
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore, SqliteStore
from support.store_faults import child


def lease(store, **options):
    return Lease(store, "monitor", **options)


async def test_a_second_holder_is_refused_until_the_release():
    store = MemoryStore()
    first, second = lease(store), lease(store)
    await first.acquire()
    await first.acquire()
    message = rf"The agent 'monitor' is run by this process \({os.getpid()} on .*\) since 20.* UTC.*end it"
    with pytest.raises(LeaseError, match=message):
        await second.acquire()
    assert isinstance(second.lost, LeaseError)
    assert first.lost is None
    await first.release()
    await second.acquire()
    assert second.lost is None
    with pytest.raises(LeaseError):
        await first.acquire()
    await second.release()


async def test_only_one_of_many_acquires_it():
    store = MemoryStore()
    leases = [lease(store) for _ in range(20)]
    results = await asyncio.gather(*(each.acquire() for each in leases), return_exceptions=True)
    assert sum(each is None for each in results) == 1
    assert sum(isinstance(each, LeaseError) for each in results) == 19
    await asyncio.gather(*(each.release() for each in leases))


@pytest.mark.parametrize("changed", [{"pid": None}, {"until": "soon"}, {"until": 5}, {"id": None}])
async def test_a_record_in_another_format_is_an_error(changed):
    store = MemoryStore()
    await lease(store).acquire()
    held = await store.get(LEASE, LEASE)
    left = {key: value for key, value in {**held.data, **changed}.items() if value is not None}
    await store.put(Record(LEASE, LEASE, left))
    message = "is run by" if "id" in changed else "a format that .* can't read.*Upgrade redraft"
    with pytest.raises(LeaseError, match=message):
        await lease(store).acquire()


OTHERS = {
    "another machine": ({"machine": "another"}, True),
    "another machine, expired": ({"machine": "another", "until": -1}, False),
    "another machine, free": ({"machine": "another", "is_free": True}, False),
    "here, gone": ({"started": "1"}, False),
    "a container on this host": ({"started": "1", "machine": "another"}, True),
    "here": ({}, True),
    "here, expired": ({"until": -1}, False),
}


@pytest.mark.parametrize(("changes", "is_held"), OTHERS.values(), ids=OTHERS)
async def test_when_a_lease_is_still_held(changes, is_held):
    store, first = MemoryStore(), lease(MemoryStore())
    data = first._data(1) | changes
    if "until" in changes:
        data["until"] = (datetime.now(UTC) + timedelta(seconds=changes["until"])).isoformat()
    await store.put(Record(LEASE, LEASE, data))
    second = lease(store)
    if is_held:
        with pytest.raises(LeaseError):
            await second.acquire()
    else:
        await second.acquire()
    await second.release()


async def test_it_is_renewed_in_the_background():
    store = MemoryStore()
    first = lease(store, duration=0.09)
    await first.acquire()
    await asyncio.sleep(0.3)
    with pytest.raises(LeaseError):
        await lease(store).acquire()
    await first.release()


class Away(MemoryStore):
    """A store that is out of reach for a while."""

    is_away = False

    async def replace(self, record):
        if self.is_away:
            raise StoreError("away")
        return await super().replace(record)


async def test_an_outage_does_not_change_the_holder():
    store = Away()
    first = lease(store, duration=0.06)
    await first.acquire()
    store.is_away = True
    await asyncio.sleep(0.1)
    with pytest.raises(StoreError, match="away"):
        await first.acquire()
    assert first.lost is None
    store.is_away = False
    await asyncio.sleep(0.05)
    with pytest.raises(LeaseError):
        await lease(store).acquire()
    store.is_away = True
    await first.release()
    store.is_away = False
    await lease(store).acquire()  # within the process that released it, it is free


async def test_a_paused_holder_learns_that_it_lost_the_lease():
    store = MemoryStore()
    first, second = lease(store, duration=0.03), lease(store)
    await first.acquire()
    record = await store.get(LEASE, LEASE)
    await store.put(Record(LEASE, LEASE, {**record.data, "is_free": True}))
    await second.acquire()
    await asyncio.sleep(0.05)
    assert "is run by" in str(first.lost)
    await first.release()
    with pytest.raises(LeaseError):
        await lease(store).acquire()
    await second.release()


async def paused_holder(first, store):
    """A holder that was paused until another one had acquired the lease, run and ended."""
    first._renewing.cancel()
    await asyncio.sleep(0.25)
    second = lease(store)
    await second.acquire()
    assert second.generation == first.generation + 1
    await second.write([Record("memory", "memory", {"by": "second"})])
    await second.release()


@pytest.mark.parametrize("fences", [True, False])
@pytest.mark.parametrize("does", ["check", "acquire", "write"])
async def test_a_paused_holder_neither_acts_nor_writes(fences, does):
    store = MemoryStore() if fences else Unfenced()
    first = lease(store, duration=0.2)
    await first.acquire()
    await first.check()
    await first.write([Record("memory", "memory", {"by": "first"})])
    await paused_holder(first, store)
    doing = (
        first.write([Record("memory", "memory", {"by": "first"})])
        if does == "write"
        else getattr(first, does)()
    )
    with pytest.raises(LeaseError, match="was run by another process while this one did not renew"):
        await doing
    for again in (first.check(), first.acquire(), first.write([])):
        with pytest.raises(LeaseError):
            await again
    assert (await store.get("memory", "memory")).data == {"by": "second"}
    third = lease(store)
    await third.acquire()
    assert third.generation == 3
    await third.release()


class Unfenced:
    """A user's own store, with only the methods of the protocol."""

    def __init__(self):
        self._store = MemoryStore()
        for verb in ("put", "put_all", "put_if_absent", "replace", "get", "find", "delete", "aclose"):
            setattr(self, verb, getattr(self._store, verb))


async def test_a_deleted_lease_is_recreated():
    store = MemoryStore()
    first = lease(store)
    await first.acquire()
    await store.delete(LEASE, LEASE)
    await first.write([Record("memory", "memory", {})])
    with pytest.raises(LeaseError):
        await lease(store).acquire()
    await first.release()


async def test_in_an_outage_effects_are_not_held_up():
    store = Away()
    first = lease(store, duration=0.2)
    await first.acquire()
    store.is_away = True
    await asyncio.sleep(0.3)
    await first.check()
    await first.release()


HOLDS = """
from redraft.cycles.lease import Lease
async def main():
    await Lease(SqliteStore(sys.argv[2]), "monitor").acquire()
    print("held", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_a_killed_process_loses_it_immediately(tmp_path):
    async def main(process):
        store = SqliteStore(tmp_path / "redraft.db")
        second = lease(store)
        with pytest.raises(LeaseError, match=rf"is run by process \({process.pid} on "):
            await second.acquire()
        process.send_signal(signal.SIGKILL)
        process.wait()
        await second.acquire()
        await second.release()
        await store.aclose()

    with child(HOLDS, tmp_path / "redraft.db") as process:
        assert process.stdout.readline() == "held\n"
        asyncio.run(main(process))


async def test_a_lease_that_cannot_be_released_expires(monkeypatch):
    class Hanging(MemoryStore):
        async def replace(self, record):
            await asyncio.sleep(60)

    monkeypatch.setattr(module, "RELEASE_TIMEOUT", 0.01)
    first = lease(Hanging())
    await first.acquire()
    await first.release()


@pytest.mark.parametrize("is_confirmed", [True, False])
async def test_a_release_comes_after_a_renewal_under_way(is_confirmed):
    class Slow(MemoryStore):
        """A store that writes a renewal, and answers late or never."""

        renewals = 0

        async def replace(self, record):
            self.renewals += 1
            found = await super().replace(record)
            if self.renewals == 1:
                renewed.set()
                if is_confirmed:
                    await asyncio.sleep(0.01)
                else:
                    raise StoreError("the connection was cut")
            return found

    renewed = asyncio.Event()
    store = Slow()
    first, second = lease(store, duration=0.03), lease(store)
    await first.acquire()
    await renewed.wait()
    await first.release()
    assert (await store.get(LEASE, LEASE)).data["is_free"]
    await second.acquire()
    await second.release()


async def test_a_check_waits_for_the_renewal_under_way():
    class Distant(MemoryStore):
        async def replace(self, record):
            await asyncio.sleep(0.1)
            return await super().replace(record)

    store = Distant()
    paused, other = lease(store, duration=0.3), lease(store)
    await paused.acquire()
    paused._renewing.cancel()  # as in a process that is paused
    await store.put(Record(LEASE, LEASE, {**(await store.get(LEASE, LEASE)).data, "is_free": True}))
    await other.acquire()
    await asyncio.sleep(0.3)
    renewal = asyncio.ensure_future(paused.acquire())
    await asyncio.sleep(0)
    with pytest.raises(LeaseError, match="is run by"):
        await paused.check()
    with pytest.raises(LeaseError):
        await renewal
    await other.release()
