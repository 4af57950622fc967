import asyncio

import pytest

from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore
from redraft.stores.postgres_database import Database


def test_a_hasty_store_writes_the_same_records_without_waiting_for_the_disk(postgres):
    async def main():
        store = PostgresStore(postgres.url, "one")
        hasty = store.hasty()
        await hasty.put_all([Record("step", "a", {"n": 1}), Record("step", "b", {"n": 2})])
        found = [record.data["n"] for record in await store.find("step")]
        await store.put(Record("step", "a", {"n": 3}))
        again = await hasty.get("step", "a")
        await store.aclose()
        await hasty.delete("step", "b")
        left = await store.find("step")
        await store.aclose()
        return found, again, [record.key for record in left]

    found, again, left = asyncio.run(main())
    assert found == [1, 2]
    assert again.data == {"n": 3}
    assert left == ["a"]


@pytest.mark.parametrize(("hasty", "waits"), [(False, "on"), (True, "off")])
def test_only_a_hasty_session_does_not_wait_for_the_disk(postgres, hasty, waits):
    database = Database(postgres.url, 5.0)
    database.is_hasty = hasty
    with database.connect() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == (waits,)
