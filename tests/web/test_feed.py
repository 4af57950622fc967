import asyncio

import pytest

from redraft.errors import StoreError
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore
from redraft.web import feed
from redraft.web.feed import Feed


def put(store, *numbers):
    return store.put_all([Record("use", f"{number:04}", {"number": number}) for number in numbers])


@pytest.fixture
def small(monkeypatch):
    """Portions of a few records."""
    monkeypatch.setattr(feed, "FIRST", 3)
    monkeypatch.setattr(feed, "MOST", 4)


def told_of(store):
    told = []
    return told, Feed(store, "use", lambda record: told.append(record.data["number"]))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 8, 11, 30])
def test_each_record_is_told_once_the_newest_first(small, count):
    async def main():
        store = MemoryStore()
        for number in range(count):
            await put(store, number)
        told, reading = told_of(store)
        for _ in range(3):
            await reading.read(60)
        assert told == list(reversed(range(count)))
        assert reading.is_complete

    asyncio.run(main())


def test_what_comes_while_the_older_ones_are_read_is_told_once(small):
    async def main():
        store = MemoryStore()
        await put(store, *range(20))
        told, reading = told_of(store)
        number = 20
        while not reading.is_complete:
            await reading.read(1e-9)  # a portion at a time
            for _ in range(6):
                await put(store, number)
                number += 1
        await reading.read()
        assert sorted(told) == list(range(number))

    asyncio.run(main())


def test_many_at_once_are_told_once(small):
    async def main():
        store = MemoryStore()
        told, reading = told_of(store)
        await reading.read()
        assert reading.is_complete
        for start in (0, 50, 100):
            await put(store, *range(start, start + 50))  # with one time
            await reading.read()
            await reading.read()
        assert sorted(told) == list(range(150))

    asyncio.run(main())


def test_what_was_long_ago_is_not_read_again(small, monkeypatch):
    class Counted(MemoryStore):
        read = 0

        async def find(self, *asked, **how):
            found = await super().find(*asked, **how)
            self.read += len(found)
            return found

    async def main():
        store = Counted()
        for number in range(40):
            await put(store, number)
        _, reading = told_of(store)
        await reading.read(60)
        await reading.read()
        before = store.read
        await reading.read()
        assert store.read - before == feed.FIRST

    monkeypatch.setattr(feed, "OVERLAP", -feed.OVERLAP)  # as if an hour had passed
    asyncio.run(main())


def test_asked_by_many_at_once_it_tells_each_once(small):
    async def main():
        store = MemoryStore()
        await put(store, *range(30))
        told, reading = told_of(store)
        await asyncio.gather(*(reading.read(60) for _ in range(5)))
        assert sorted(told) == list(range(30))

    asyncio.run(main())


def test_a_store_that_is_away_is_told_and_nothing_is_lost(small):
    class Away(MemoryStore):
        is_away = False

        async def find(self, *asked, **how):
            if self.is_away:
                raise StoreError("The disk is gone.")
            return await super().find(*asked, **how)

    async def main():
        store = Away()
        await put(store, *range(10))
        told, reading = told_of(store)
        await reading.read(1e-9)
        store.is_away = True
        with pytest.raises(StoreError, match="disk"):
            await reading.read(60)
        store.is_away = False
        await reading.read(60)
        assert sorted(told) == list(range(10))

    asyncio.run(main())
