"""One record that is damaged is seen, named, and hides no other: in every store."""

import asyncio
import json
import sqlite3

import pytest

from redraft import MemoryStore, SqliteStore
from redraft.errors import StoreError
from redraft.stores import PostgresStore, Record, base
from redraft.stores.base import DamagedData, checksum, intact, is_whole
from support.memory_stores import connection_of

DATA = {"status": "finished", "inner": False, "n": 12, "said": "drei Äpfel 🍎", "list": [1, {"a": None}]}
KEYS = ["a", "b", "c"]


class Sqlite:
    def __init__(self, tmp_path):
        self.path = tmp_path / "redraft.db"
        self.store = SqliteStore(self.path)

    def damage(self, column, value):
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"UPDATE records SET {column} = ? WHERE key = 'b'", (value,))  # noqa: S608 (a test's own)
        connection.close()

    def text(self):
        with sqlite3.connect(self.path) as connection:
            ((text,),) = connection.execute("SELECT data FROM records WHERE key = 'b'")
        connection.close()
        return text


class Postgres:
    def __init__(self, postgres):
        self.postgres = postgres
        self.store = PostgresStore(postgres.url)

    def damage(self, column, value):
        given = value if isinstance(value, int) else f"$given${value}$given$"
        self.postgres.ask(f"UPDATE redraft_records SET {column} = {given} WHERE key = 'b'")  # noqa: S608 (a test's own)

    def text(self):
        return self.postgres.ask("SELECT data FROM redraft_records WHERE key = 'b'")[0][0]


class Memory:
    def __init__(self):
        self.store = MemoryStore()

    def damage(self, column, value):
        sql = f"UPDATE records SET {column} = ? WHERE key = 'b'"  # noqa: S608 (a test's own)
        connection_of(self.store).execute(sql, (value,))

    def text(self):
        return connection_of(self.store).execute("SELECT data FROM records WHERE key = 'b'").fetchone()[0]


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def kept(request, tmp_path):
    """A store that can be damaged; with three records."""
    if request.param == "sqlite":
        place = Sqlite(tmp_path)
    elif request.param == "postgres":
        place = Postgres(request.getfixturevalue("postgres"))
    else:
        place = Memory()
    asyncio.run(fill(place.store))
    return place


async def fill(store):
    for key in KEYS:
        await store.put(Record("note", key, DATA | {"key": key}))
    await store.aclose()


async def seen(store):
    """Look at the three records in every way; return what is said of the one in the middle."""
    for asked in ({}, {"newest_first": True}, {"where": {"status": "finished", "inner": False}}):
        found = await store.find("note", **asked)
        by_key = {record.key: record for record in found}
        assert [key for key in sorted(by_key) if not by_key[key].damage] == ["a", "c"], asked
        assert by_key["a"].data == DATA | {"key": "a"}
    [broken] = [record for record in found if record.damage]
    with pytest.raises(StoreError) as caught:
        broken.data["status"]
    assert str(caught.value) == broken.damage
    assert (await store.get("note", "c")).data["n"] == 12
    await store.aclose()
    return broken


def test_any_flipped_character_changes_the_checksum():
    text = json.dumps(DATA, ensure_ascii=False)
    stored = checksum(b"note", b"b", text.encode(), 1)
    assert is_whole(stored, "note", "b", text, 1)
    for place, letter in enumerate(text):
        flipped = text[:place] + chr(ord(letter) ^ 1) + text[place + 1 :]
        assert not is_whole(stored, "note", "b", flipped, 1)


def test_a_changed_character_is_detected_and_named(kept):
    async def main():
        whole = kept.text()
        kept.damage("data", whole.replace("12", "13"))
        assert (await seen(kept.store)).key == "b"
        with pytest.raises(StoreError, match="'note' 'b' is damaged: it does not match its checksum"):
            await kept.store.get("note", "b")
        with pytest.raises(StoreError, match=r"remove it with `store\.delete\('note', 'b'\)`"):
            await kept.store.put_if_absent(Record("note", "b", {}))
        kept.damage("data", whole)
        assert (await kept.store.get("note", "b")).data["said"] == DATA["said"]
        await kept.store.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("data", '{"status": '),
        ("data", ""),
        ("data", "[]"),
        ("schema_version", 2),
        ("checksum", 0),
        ("created_at", 2**62),
        ("updated_at", -(2**62)),
    ],
)
def test_damage_in_any_column_is_detected(kept, column, value):
    kept.damage(column, value)
    assert "'note' 'b' is damaged" in asyncio.run(seen(kept.store)).damage


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("data", b"\xff\xfe"),  # no text
        ("data", 7),
        ("kind", b"note"),
    ],
)
def test_damage_that_only_sqlite_can_hold_is_detected(tmp_path, column, value):
    kept = Sqlite(tmp_path)
    asyncio.run(fill(kept.store))
    kept.damage(column, value)
    if column != "kind":
        assert "'note' 'b' is damaged" in asyncio.run(seen(kept.store)).damage
    else:  # it is in no list of notes, as one that was deleted
        assert [one.key for one in asyncio.run(kept.store.find("note"))] == ["a", "c"]


@pytest.mark.parametrize(("key", "named"), [(b"b", "'b'"), (b"\xff\xfe", r"'\\xff\\xfe'")])
def test_a_key_that_is_no_text_is_damage(tmp_path, key, named):
    kept = Sqlite(tmp_path)
    asyncio.run(fill(kept.store))
    kept.damage("key", key)
    found = asyncio.run(kept.store.find("note"))
    assert [record.key for record in found if not record.damage] == ["a", "c"]
    [broken] = [record for record in found if record.damage]
    assert f"The record 'note' {named} is damaged: its key is not a text" in broken.damage


@pytest.mark.parametrize("key", ["x'62'", "x'fffe'", "CAST(x'fffe' AS TEXT)"])
@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_end_after_a_damaged_key(tmp_path, key, newest_first):
    kept = Sqlite(tmp_path)
    asyncio.run(fill(kept.store))
    with sqlite3.connect(kept.path) as connection:
        connection.execute(f"UPDATE records SET key = {key} WHERE key = 'b'")  # noqa: S608 (a test's own)
    connection.close()

    async def main():
        seen, after = [], None
        for _ in range(4):
            page = await kept.store.find("note", newest_first=newest_first, after=after, limit=1)
            seen += [record.key for record in page if not record.damage]
            if not page:
                break
            after = page[-1]
        assert page == []
        assert sorted(seen) == ["a", "c"]

    asyncio.run(main())


def test_invalid_utf_8_hides_no_other_record(tmp_path):
    kept = Sqlite(tmp_path)
    asyncio.run(fill(kept.store))
    content = kept.path.read_bytes()
    at = content.rindex(b"drei", 0, content.index(b'"key":"b"'))
    kept.path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    broken = [one for one in asyncio.run(kept.store.find("note")) if one.damage]
    assert len(broken) == 1
    assert "'note' 'b' is damaged" in broken[0].damage


def test_a_damaged_record_can_be_overwritten_and_deleted(kept):
    async def main():
        kept.damage("data", "{}")
        assert (await kept.store.put(Record("note", "b", {"n": 1}))).revision == 2
        assert (await kept.store.get("note", "b")).data == {"n": 1}
        kept.damage("data", "{}")
        assert await kept.store.delete("note", "b")
        assert await kept.store.get("note", "b") is None
        await kept.store.aclose()

    asyncio.run(main())


def test_intact_drops_damaged_records_and_logs_each_once(kept, caplog):
    base.warn_once.cache_clear()
    kept.damage("data", "{}")
    for _ in range(3):
        assert [record.key for record in intact(asyncio.run(kept.store.find("note")))] == ["a", "c"]
    [warning] = caplog.records
    assert "'note' 'b' is damaged" in warning.getMessage()


@pytest.mark.parametrize(
    "look",
    [
        dict,
        list,
        len,
        bool,
        lambda data: data["a"],
        lambda data: data.get("a"),
        lambda data: "a" in data,
        lambda data: {**data},
        lambda data: data | {},
        lambda data: {} | data,
        lambda data: data == {},
        lambda data: [*data.items()],
        lambda data: [*data.keys()],
        lambda data: [*data.values()],
        lambda data: data.copy(),
    ],
)
def test_reading_damaged_data_raises(look):
    with pytest.raises(StoreError, match="broken"):
        look(DamagedData("broken"))
    assert "broken" in repr(DamagedData("broken"))
