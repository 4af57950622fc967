import asyncio
import os
import re
import socket
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from redraft import ConfigError, MemoryStore, Runs, SqliteStore
from redraft.loop.labels import LABEL
from redraft.loop.record import Origin, Process, RunRecord
from redraft.retention import ProjectData
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.types import PlainTask
from support.commands import document, redraft

NOTHING = timedelta(0)


def run_record(run_id, status="finished", parent="", task="a task"):
    process = Process(socket.gethostname(), os.getpid(), Process.this().started)
    return RunRecord(
        run_id, PlainTask(task), Origin(), {}, datetime.now(UTC), process, status, parent=parent
    ).stored()


async def fill(store, *names, size=10):
    """Store finished runs, each with a step, the first one first."""
    for name in names:
        await store.put_all([run_record(name), Record("step", f"{name}/00001", {"result": "x" * size})])


async def left(store):
    return sorted(run.run_id for run in await Runs(store).find(inner=True))


def data_of(store):
    return ProjectData(store, "nowhere", "nowhere")


def test_old_runs_go_with_all_that_is_inside_them():
    async def main():
        store = MemoryStore()
        await fill(store, "old", "older")
        await store.put_all([run_record("old.0a0b0c0d", parent="old"), Record("claim", "old", {})])
        await store.put(Record("approval", "old.11111111", {"run_id": "old"}))
        await store.put(Record("lesson_use", "clerk/a/old", {"lesson": "clerk/a", "run_id": "old"}))
        checked = await data_of(store).prune(older_than=NOTHING, check=True)
        assert await left(store) == ["old", "old.0a0b0c0d", "older"]
        pruned = await data_of(store).prune(older_than=NOTHING)
        assert pruned.runs == checked.runs == ("older", "old")
        assert (pruned.bytes, pruned.bytes > 0) == (checked.bytes, True)
        assert pruned.size == checked.size == (await store.kinds())["lesson_use"].bytes
        assert list(await store.kinds()) == ["lesson_use"]
        assert (await data_of(store).prune(older_than=NOTHING)).runs == ()

    asyncio.run(main())


def test_younger_runs_stay():
    async def main():
        store = MemoryStore()
        await fill(store, "young")
        assert (await data_of(store).prune(older_than=timedelta(hours=1))).runs == ()
        assert await left(store) == ["young"]

    asyncio.run(main())


def test_runs_that_are_still_needed_stay():
    async def main():
        store = MemoryStore()
        await fill(store, "done", "labelled", "due")
        await store.put(run_record("live", "running"))
        await store.put(Record("workflow", "asks", {"status": "waiting"}))
        await store.put(Record(LABEL, "judge/1", {"run": "labelled"}))
        await store.put(Record("lesson_due", "clerk/due/failure", {"run_id": "due"}))
        await store.put_all([Record("evaluation", "e", {}), run_record("e.0a0b0c0d", parent="e")])
        pruned = await data_of(store).prune(older_than=NOTHING)
        assert pruned.runs == ("done",)
        assert pruned.spared == {
            "still going on, or not known to have ended": 1,
            "waiting for a person": 1,
            "labelled by a person": 1,
            "due for a reflection": 1,
        }
        assert (await data_of(store).prune(older_than=NOTHING, labelled=True)).runs == ("labelled",)
        assert await left(store) == ["due", "e.0a0b0c0d", "live"]
        assert (await store.kinds())[LABEL].records == 1

    asyncio.run(main())


def test_the_oldest_runs_go_until_the_file_is_small_enough(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "kept.db")
        await fill(store, *(f"run-{number:02}" for number in range(40)), size=50_000)
        path = tmp_path / "kept.db"
        assert await store.size() > 2_000_000
        checked = await data_of(store).prune(max_bytes=1_000_000, check=True)
        pruned = await data_of(store).prune(max_bytes=1_000_000)
        assert pruned.runs[: len(checked.runs)] == checked.runs
        assert pruned.size == path.stat().st_size <= 1_000_000
        assert pruned.size > 800_000
        assert await left(store) == [f"run-{number:02}" for number in range(len(pruned.runs), 40)]
        await store.put(run_record("live", "running"))
        for check, is_larger in ((False, "is still larger"), (True, "would still be larger")):
            nothing = await data_of(store).prune(max_bytes=1_000, check=check)
            assert nothing.remarks == (
                f"The store {is_larger}: the rest is never pruned, or belongs to other projects.",
            )
        assert await left(store) == ["live"]
        await store.aclose()

    asyncio.run(main())


def test_a_bound_is_needed():
    with pytest.raises(ConfigError, match="Say what to prune"):
        asyncio.run(data_of(MemoryStore()).prune())


@pytest.mark.parametrize("age", [timedelta.max, timedelta(days=365 * 3_000)])
def test_nothing_is_older_than_time_itself(age):
    async def main():
        store = MemoryStore()
        await fill(store, "done")
        assert (await data_of(store).prune(older_than=age)).runs == ()
        assert await left(store) == ["done"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "bound",
    [
        {"older_than": timedelta.min},
        {"older_than": timedelta(microseconds=-1)},
        {"older_than": 90},
        {"max_bytes": -1},
        {"max_bytes": nan},
        {"max_bytes": inf},
        {"max_bytes": 0.5},
        {"max_bytes": True},
        {"max_bytes": "2GB"},
    ],
    ids=str,
)
def test_a_bound_that_bounds_nothing_is_refused_before_anything_is_deleted(bound):
    async def main():
        store = MemoryStore()
        await fill(store, "done")
        [(name, value)] = bound.items()
        with pytest.raises(
            ConfigError, match=rf"^{name} must be .* of at least 0, got {re.escape(repr(value))}"
        ):
            await data_of(store).prune(**bound)
        assert await left(store) == ["done"]

    asyncio.run(main())


def test_a_size_that_no_disk_has_deletes_nothing():
    async def main():
        store = MemoryStore()
        await fill(store, "done")
        assert (await data_of(store).prune(max_bytes=10**400)).runs == ()

    asyncio.run(main())


def test_the_command_asks_and_reports(project):
    async def filling():
        await fill(project_store(), "one", "two")

    asyncio.run(filling())
    refused = redraft("prune", "--older-than", "0h")
    assert (refused.exit_code, "Pass --yes to delete" in refused.stderr) == (2, True)
    checked = document(redraft("prune", "--older-than", "0d", "--check", "--json"))["pruned"]
    assert (checked["checked"], checked["runs"]) == (True, ["one", "two"])
    assert "There are no runs to delete." in redraft("prune", "--older-than", "1w").stdout
    assert redraft("prune", "--max-size", "0KB", "--yes").stdout.startswith("Deleted 2 runs, ")
    assert redraft("prune", "--older-than", "1w", "--max-size", "2 GB", "--yes").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--older-than", "90"],
        ["--max-size", "5 bits"],
        ["--older-than", "-1d"],
        ["--older-than", "999999w"],
        ["--max-size", f"{'9' * 400}GB"],
    ],
)
def test_what_to_prune_must_be_clear(project, words):
    assert redraft("prune", *words, "--yes").exit_code == 2
