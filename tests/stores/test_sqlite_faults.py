"""A SQLite store on a machine that refuses: no rights, no room on the disk, a lock held for ever."""

import asyncio
import fcntl
import signal
import time

import pytest

from redraft.core.errors import StoreError
from redraft.stores.base import Record
from redraft.stores.sqlite import SqliteStore
from store_faults import child, run

BEGIN = """
from pathlib import Path
from store_faults import without_privileges
path = Path(sys.argv[2])
store = SqliteStore(path, wait=0.5)

async def fails(call, *says):
    try:
        print("no error:", await call)
    except StoreError as error:
        assert str(path) in str(error) and any(each in str(error) for each in says), error

async def put(key, **data):
    return await store.put(Record("note", key, data))
"""


def rights(body):
    """Make a script of what is done without root's rights, in a folder that holds a database."""
    return f"""{BEGIN}
async def main():
    await put("a")
    await store.aclose()
    without_privileges()
{body}
    path.parent.chmod(0o700)
    path.chmod(0o600)
    await put("b")
    assert len(await store.find("note")) == 2
    await store.aclose()
asyncio.run(main())
"""


RIGHTS = {
    "file": """
    path.chmod(0o400)
    await fails(put("x"), "can't be written: see who may write")
    assert await store.get("note", "a")
    await store.aclose()
    path.with_name(path.name + ".lock").chmod(0o400)
    await fails(put("x"), "Permission denied")
    path.with_name(path.name + ".lock").chmod(0o600)
    path.chmod(0)
    await fails(put("x"), "can't be opened: see who may write")
    await fails(store.get("note", "a"), "can't be opened: see who may write")
    """,
    "folder": """
    path.parent.chmod(0o500)
    await fails(put("x"), "can't be opened: see who may write", "can't be written")
    path.parent.chmod(0)
    await fails(put("x"), "Permission denied")
    await fails(store.get("note", "a"), "Permission denied")
    """,
    "while open": """
    await put("a")
    path.parent.chmod(0)
    await fails(put("x"), "Permission denied")
    await fails(store.get("note", "a"), "Permission denied")
    """,
    "above": """
    path.parent.parent.chmod(0o500)
    elsewhere = SqliteStore(path.parent.with_name("other") / "redraft.db")
    try:
        await elsewhere.put(Record("note", "x", {}))
        raise AssertionError("no error")
    except StoreError as error:
        assert "other/redraft.db can't be used" in str(error) and "Permission denied" in str(error), error
    path.parent.parent.chmod(0o700)
    await elsewhere.put(Record("note", "x", {}))
    await elsewhere.aclose()
    """,
}


@pytest.mark.parametrize("body", RIGHTS.values(), ids=RIGHTS)
def test_without_rights_it_is_a_named_error_and_passes(tmp_path, body):
    assert run(rights(body), tmp_path / "kept" / "redraft.db") == ""


FULL = f"""{BEGIN}
import resource
NO_BOUND = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

async def main():
    if sys.argv[3] == "old":
        await put("first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000 if sys.argv[3] == "old" else 100, NO_BOUND[1]))
    large = [put(str(n), text="x" * 100_000) for n in range(10)]
    found = await asyncio.gather(*large, return_exceptions=True)
    errors = [each for each in found if isinstance(each, StoreError)]
    assert errors and len(errors) + sum(isinstance(each, Record) for each in found) == 10, found
    for error in errors:
        assert str(path) in str(error), error
        assert "the disk is full" in str(error) or "File too large" in str(error), error
    acknowledged = {{each.key for each in found if isinstance(each, Record)}}
    resource.setrlimit(resource.RLIMIT_FSIZE, NO_BOUND)
    await put("last")
    keys = {{record.key for record in await store.find("note")}}
    assert keys >= acknowledged | {{"last"}}, (keys, acknowledged)
    print(len(errors))
    await store.aclose()
asyncio.run(main())
"""


@pytest.mark.parametrize("age", ["old", "new"])
def test_a_disk_that_takes_no_more_is_a_named_error_and_passes(tmp_path, age):
    """The system refuses to write beyond a size: the same to SQLite as a quota or a disk without room."""
    assert int(run(FULL, tmp_path / "kept" / "redraft.db", age)) >= 1


HOLDS_THE_LOCK = """
import fcntl
file = open(sys.argv[2], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_a_stopped_process_holds(tmp_path):
    store = SqliteStore(tmp_path / "redraft.db", wait=0.3)

    async def main():
        await store.put(Record("note", "a", {}))
        with child(HOLDS_THE_LOCK, tmp_path / "redraft.db.lock") as process:
            assert process.stdout.readline() == "held\n"
            process.send_signal(signal.SIGSTOP)
            for _ in range(2):
                started = time.monotonic()
                writes = [store.put(Record("note", str(n), {})) for n in range(5)]
                for found in await asyncio.gather(*writes, return_exceptions=True):
                    assert isinstance(found, StoreError)
                    assert "redraft.db has been locked by another program for 0.3 s" in str(found)
                assert 0.2 < time.monotonic() - started < 30
            assert await store.get("note", "a") is not None  # who reads waits for nobody
            process.kill()
        await store.put(Record("note", "b", {}))
        assert [record.key for record in await store.find("note")] == ["a", "b"]
        with (tmp_path / "redraft.db.lock").open("r+") as file:  # those who gave up have given it back
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await store.aclose()

    asyncio.run(main())
