"""What is special to the file of a SQLite store: who may read it, what it was before, and what befalls it."""

import asyncio
import errno
import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from redraft.core.errors import ConfigError, StoreError
from redraft.stores import sqlite_file
from redraft.stores.base import Record
from redraft.stores.migrate import scripts
from redraft.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "redraft.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path, wait=0.2)
    yield store
    asyncio.run(store.aclose())


def note(key="a", **data):
    return Record("note", key, data)


async def fill(store, count=200):
    await asyncio.gather(*(store.put(note(f"{n:04}", text="x" * 1000)) for n in range(count)))


def make_foreign(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE records (theirs)")
    connection.close()


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# What it makes


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_files_are_for_their_owner_only(path, store, umask):
    async def main():
        await store.put(note())
        await store.get("note", "a")
        found = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        del found[".gitignore"]  # not of the secret kind
        names = [path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}.lock"]
        assert found == dict.fromkeys(names, 0o600)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    before = os.umask(umask)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)
    assert "*" in (path.parent / ".gitignore").read_text().splitlines()


def test_a_folder_of_others_is_left_as_it_is(path, store):
    path.parent.mkdir(mode=0o755)
    asyncio.run(store.put(note()))
    assert not (path.parent / ".gitignore").exists()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


def test_there_is_no_folder_that_git_would_take(path, store, monkeypatch):
    def full(file, text, *_):
        file.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.write_text", full)
        with pytest.raises(StoreError, match="No space left on device"):
            asyncio.run(store.put(note()))
    assert not path.parent.exists()
    asyncio.run(store.put(note()))
    assert (path.parent / ".gitignore").read_text()


def test_reading_makes_nothing(path, store):
    async def main():
        assert await store.get("note", "a") is None
        assert await store.find("note", where={"x": 1}) == []
        assert await store.near("note", [1.0]) == []
        assert not path.parent.exists()
        await store.put(note())
        assert await store.get("note", "a") is not None

    asyncio.run(main())


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ключ.db", "file:x?mode=memory"])
def test_any_name_of_a_file(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(name)
    asyncio.run(store.put(note()))
    assert (tmp_path / name).stat().st_size > 0
    monkeypatch.chdir("/")
    assert asyncio.run(store.get("note", "a")) is not None
    asyncio.run(store.aclose())


@pytest.mark.parametrize("path", ["a\0b", Path("a\0b"), "\0"])
def test_a_path_that_no_file_can_have_is_refused_at_once(path):
    with pytest.raises(ConfigError, match=r"without NUL characters, got '.*\\x00"):
        SqliteStore(path)


def test_what_is_written_is_on_the_disk_when_a_write_returns(path):
    file = sqlite_file.SqliteFile(path, 1)
    with file.locked():
        connection = file.connection()
    found = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }
    assert found == {"journal_mode": "wal", "synchronous": 2}  # FULL
    file.close()


# What was there before


def test_an_empty_file_becomes_ours(path, store):
    path.parent.mkdir()
    path.touch(0o644)
    asyncio.run(store.put(note()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def newer(path):
    asyncio.run(SqliteStore(path).put(note()))
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(scripts('sqlite')) + 1}")
    connection.close()


def ours_by_name_only(path):
    make_foreign(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()


def text(path):
    path.parent.mkdir()
    path.write_text("not a database\n" * 1000)


def short_text(path):
    path.parent.mkdir()
    path.write_text("short")


FOREIGN = {
    "text": (text, "is no SQLite database"),
    "short text": (short_text, "is no SQLite database"),
    "folder": (lambda path: path.mkdir(parents=True), "is a folder: give the store the path of a file"),
    "another program's": (make_foreign, "is a database of another program .*another path"),
    "with a version": (ours_by_name_only, "is a database of another program"),
    "newer": (newer, "version 2 of the schema, and this Redraft knows 1: .* upgrade redraft"),
}


@pytest.mark.parametrize(("make", "message"), FOREIGN.values(), ids=FOREIGN)
def test_what_is_not_ours_is_named_and_left_as_it_is(path, store, make, message):
    async def main():
        for _ in range(2):
            for call in (
                store.get("note", "a"),
                store.put(note()),
                store.find("note"),
                store.delete("n", "a"),
            ):
                with pytest.raises(StoreError, match=f"{path} .*{message}"):
                    await call
        await store.aclose()

    make(path)
    if path.is_dir():
        return asyncio.run(main())
    before = path.read_bytes()
    asyncio.run(main())
    assert path.read_bytes() == before
    assert set(content(path.parent)) <= {path.name, f"{path.name}.lock", ".gitignore"}
    return None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "is damaged as a file, not in single records.* .recover"),
        (lambda data: data[:4096] + os.urandom(len(data) - 4096), "is damaged"),
        (lambda data: data[:100] + b"\xff" * 3996 + data[4096:], "is damaged"),
        (lambda data: b"\0" * 100 + data[100:], "is no SQLite database"),
    ],
    ids=["cut", "overwritten", "first page", "header"],
)
def test_a_damaged_file_is_named_and_left_as_it_is(path, store, damage, message):
    async def main():
        await fill(store)
        await store.aclose()
        intact = path.read_bytes()
        path.write_bytes(damaged := damage(intact))
        for _ in range(2):
            with pytest.raises(StoreError, match=message) as caught:
                await store.find("note", where={"text": "y"}) or await store.find("note")
            assert str(path) in str(caught.value) or "'note'" in str(caught.value)
        await store.aclose()
        assert path.read_bytes() == damaged
        path.write_bytes(intact)
        assert len(await store.find("note")) == 200
        await store.put(note("new"))

    asyncio.run(main())


def test_a_sqlite_that_is_too_old_is_named(store, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    with pytest.raises(StoreError, match=r"needs SQLite 3\.35, and this Python has"):
        asyncio.run(store.put(note()))


# What befalls it


@pytest.mark.parametrize("everything", [True, False])
def test_a_file_that_is_deleted_in_use_is_an_error_once(path, store, everything):
    async def main():
        await fill(store)
        assert len(await store.find("note")) == 200
        if everything:
            shutil.rmtree(path.parent)
        else:
            path.unlink()
        for call in (store.find("note"), store.put(note())):
            with pytest.raises(StoreError, match="was deleted or replaced while it was in use"):
                await call
        assert (await store.put(note("new"))).revision == 1
        assert [record.key for record in await store.find("note")] == ["new"]

    asyncio.run(main())


def test_a_full_database_says_so_and_what_fits_is_stored(store, monkeypatch):
    settings = sqlite_file._SETTINGS

    async def main():
        await fill(store, 10)
        await store.aclose()
        monkeypatch.setattr(sqlite_file, "_SETTINGS", f"{settings} PRAGMA max_page_count = 40;")
        large = note("large", text="x" * 400_000)
        found = await asyncio.gather(
            *(store.put(note(f"{n:04}")) for n in range(20, 25)),
            store.put(large),
            *(store.put(note(f"{n:04}")) for n in range(25, 30)),
            return_exceptions=True,
        )
        assert [type(each) for each in found] == [Record] * 5 + [StoreError] + [Record] * 5
        with pytest.raises(StoreError, match="can't grow, because the disk is full: free some space"):
            await store.put(large)
        assert len(await store.find("note")) == 20
        monkeypatch.setattr(sqlite_file, "_SETTINGS", settings)
        await store.put(large)

    asyncio.run(main())


def test_a_database_locked_by_another_program(path, store):
    async def main():
        await store.put(note())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writes = [store.put(note(str(n))) for n in range(5)]
        for found in await asyncio.gather(*writes, return_exceptions=True):
            assert isinstance(found, StoreError)
            assert f"{path} has been locked by another program for 0.2 s" in str(found)
        assert await store.get("note", "a") is not None
        other.execute("COMMIT")
        other.close()
        await store.put(note("b"))

    asyncio.run(main())


def test_a_script_that_fails_leaves_the_database_as_it_was(path, store, monkeypatch):
    asyncio.run(store.put(note()))
    asyncio.run(store.aclose())
    before = path.read_bytes()
    more = (*scripts("sqlite"), "CREATE TABLE more (x); INSERT INTO nowhere VALUES (1);")
    monkeypatch.setattr(sqlite_file, "scripts", lambda _: more)
    with pytest.raises(StoreError, match="no such table: nowhere"):
        asyncio.run(store.put(note("b")))
    asyncio.run(store.aclose())
    assert path.read_bytes() == before
    monkeypatch.setattr(sqlite_file, "scripts", lambda _: (*scripts("sqlite"), "CREATE TABLE more (x);"))
    assert asyncio.run(store.put(note("b"))).revision == 1
    assert len(asyncio.run(store.find("note"))) == 2
    asyncio.run(store.aclose())
    monkeypatch.undo()
    with pytest.raises(StoreError, match="upgrade redraft"):
        asyncio.run(store.find("note"))


@pytest.mark.parametrize("how", ["ABORT", "ROLLBACK"])
def test_one_that_the_database_refuses_keeps_all_of_put_all_from_it(path, store, how):
    async def main():
        await store.put(note("a"))
        with sqlite3.connect(path) as connection:
            connection.execute(
                "CREATE TRIGGER no_bad BEFORE INSERT ON records WHEN new.key = 'bad' "
                f"BEGIN SELECT RAISE({how}, 'no_bad'); END"
            )
        connection.close()
        found = await asyncio.gather(
            store.put(note("x")),
            store.put_all([note("a", x=1), note("bad"), note("c")]),
            store.put_all([note("y"), note("a", x=2)]),
            return_exceptions=True,
        )
        assert "no_bad" in str(found[1])
        records = {record.key: record.data for record in await store.find("note")}
        assert records == {"a": {"x": 2}, "x": {}, "y": {}}

    asyncio.run(main())
