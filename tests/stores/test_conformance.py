"""What every store must do: the sentences of its protocol, on every backend."""

import asyncio
import math
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from types import MappingProxyType

import psycopg
import pytest

from redraft._sync import run_sync
from redraft.errors import ConfigError, StoreError
from redraft.stores.base import FencedStore, ManagedStore, Record
from redraft.stores.postgres import PostgresStore
from redraft.stores.sqlite import SqliteStore
from support.store_faults import note, run


def keys(records):
    return [record.key for record in records]


async def put_each(store, *records):
    return await asyncio.gather(*map(store.put, records))


# What a record is


SURVIVES = {
    "nothing": {},
    "null": {"a": None, "b": [None]},
    "numbers": {"int": -3, "big": 2**70, "float": 0.1, "tiny": 5e-324, "true": True, "whole": 1.0},
    "nested": {"a": {"b": [{"c": [[], {}]}]}},
    "quotes": {'"\\/': "'\"`;--", "": "empty key", "$.a": "%_*?[", "a.b": 1},
    "unicode": {"schlüssel 🔑": "naïve 東京 \u200b\u202e 👩‍👩‍👧", "nfd": "e\u0301"},
    "control": {"nul": "a\0b\0", "lines": "\r\n\t\x1b[31m\x7f", "separators": "\u2028\u2029\ufeff"},
    "surrogates": {"high": "\ud83d alone", "low \udc00": "\udfff"},
    "long": {"text": "ab€" * 1_100_000},  # 5.5 MB as UTF-8
    "many": {str(number): number for number in range(2_000)},
}


@pytest.mark.parametrize("data", SURVIVES.values(), ids=SURVIVES)
def test_data_comes_back_unchanged(store, data):
    async def main():
        written = await store.put(Record("note", "a", data, schema_version=7))
        read = await store.get("note", "a")
        assert written == read == (await store.find("note"))[0]
        assert read.data == data
        assert read.schema_version == 7
        assert [type(value) for value in read.data.values()] == [type(value) for value in data.values()]

    asyncio.run(main())


def itself():
    data = {}
    data["data"] = data
    return data


REFUSED = {
    "nan": ({"scores": [0.5, {"judge": math.nan}]}, r"data\['scores'\]\[1\]\['judge'\] is nan"),
    "infinity": ({"a": -math.inf}, r"data\['a'\] is -inf"),
    "object": ({"at": datetime.now(UTC)}, r"data\['at'\] is a datetime"),
    "bytes": ({"a": b"bytes"}, "is a bytes"),
    "set": ({"a": {1}}, "is a set"),
    "mapping": ({"a": MappingProxyType({})}, "is a mappingproxy"),
    "number as key": ({"a": {1: "x"}}, r"data\['a'\] has the key 1"),
    "truth as key": ({"a": [{True: "x"}]}, r"data\['a'\]\[0\] has the key True"),
    "dataclass": ({"a": Record("note", "a", {})}, r"data\['a'\] is a Record"),
    "no object": (["a"], "data is a list"),
    "itself": (itself(), "holds itself"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_data_that_is_not_json_is_refused_by_name(store, data, message):
    async def main():
        for write in (store.put, store.put_if_absent, store.replace):
            with pytest.raises(StoreError, match=f"The record 'note' 'a' can't be stored: .*{message}"):
                await write(Record("note", "a", data))
        assert await store.find("note") == []

    asyncio.run(main())


@pytest.mark.parametrize("version", ["1", 1.5, None, -1, 2**70])
def test_a_schema_version_is_a_whole_number(store, version):
    with pytest.raises(StoreError, match="'note' 'a' can't be stored: schema_version must be a whole number"):
        run_sync(store.put(Record("note", "a", {}, schema_version=version)))


def test_data_may_be_any_mapping_and_tuples_become_lists(store):
    written = (
        run_sync(store.put(note(pair=(1, 2)))),
        run_sync(store.put(Record("note", "b", MappingProxyType({"a": 1})))),
    )
    assert [record.data for record in written] == [{"pair": [1, 2]}, {"a": 1}]


@pytest.mark.parametrize(
    "key", ["k", "ключ/🔑/a b", "'; DROP TABLE records; --", "..", "é" * 499, "\U0010ffff"]
)
def test_kinds_and_keys_may_be_any_text(store, key):
    async def main():
        written = await store.put(Record(key, key, {}))
        assert (written.kind, written.key) == (key, key)
        assert await store.get(key, key) == written
        assert await store.find(key, prefix=key) == [written]
        assert await store.get(key, key + " ") is None
        assert await store.delete(key, key)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "é" * 501, None, 1])
def test_invalid_kinds_and_keys_are_refused(store, name):
    async def main():
        for call in (
            store.put(Record("note", name, {})),
            store.put(Record(name, "a", {})),
            store.get("note", name),
            store.get(name, "a"),
            store.delete("note", name),
            store.find(name),
        ):
            with pytest.raises(StoreError, match=r"(kind|key) "):
                await call

    asyncio.run(main())


def test_returned_data_is_a_copy(store):
    async def main():
        given = {"list": [1]}
        written = await store.put(Record("note", "a", given))
        read, (found,) = await store.get("note", "a"), await store.find("note")
        for data in (given, written.data, read.data, found.data):
            data["list"].append(2)
            data["more"] = True
        assert (await store.get("note", "a")).data == {"list": [1]}

    asyncio.run(main())


def test_the_store_fills_in_revision_and_times(store):
    async def main():
        before = datetime.now(UTC)
        old = datetime(2001, 1, 1, tzinfo=UTC)
        first = await store.put(Record("note", "a", {}, revision=17, created_at=old, updated_at=old))
        second = await store.put(first)
        third = await store.replace(second)
        assert [each.revision for each in (first, second, third)] == [1, 2, 3]
        assert before - timedelta(milliseconds=1) <= first.created_at <= datetime.now(UTC)
        assert first.created_at == first.updated_at
        assert first.created_at == second.created_at == third.created_at
        assert first.updated_at < second.updated_at < third.updated_at
        assert third.created_at.tzinfo is UTC
        assert await store.delete("note", "a")
        again = await store.put(third)
        assert again.revision == 1
        assert again.created_at > third.updated_at

    asyncio.run(main())


# Writing


def test_put_replaces_the_whole_record(store):
    async def main():
        await store.put(Record("note", "a", {"old": 1}, 1))
        written = await store.put(Record("note", "a", {"new": 2}, 2))
        assert (written.data, written.schema_version) == ({"new": 2}, 2)
        assert await store.get("note", "a") == written

    asyncio.run(main())


def test_put_all_stores_each_as_put_does(store):
    async def main():
        first = await store.put(note("b", x=1))
        await asyncio.sleep(0.001)
        given = [Record("other", "z", {"x": (2,)}, 7), note("c", x=3), note("b", x=4)]
        written = await store.put_all(given)
        assert [each.data for each in written] == [{"x": [2]}, {"x": 3}, {"x": 4}]
        assert [each.revision for each in written] == [1, 1, 2]
        assert written[2].created_at == first.created_at < written[2].updated_at
        assert len({each.updated_at for each in written}) == 1
        assert [await store.get(each.kind, each.key) for each in written] == written
        given[1].data["x"] = 0
        assert (await store.get("note", "c")).data == {"x": 3}

    asyncio.run(main())


def test_put_all_keeps_the_last_of_equal_keys(store):
    async def main():
        written = await store.put_all([note("b", x=1), note("a", x=2), note("b", x=3)])
        assert [(each.key, each.data["x"], each.revision) for each in written] == [
            ("b", 1, 1),
            ("a", 2, 1),
            ("b", 3, 2),
        ]
        assert (await store.get("note", "b")).data == {"x": 3}

    asyncio.run(main())


def test_put_all_accepts_an_empty_list(store):
    assert run_sync(store.put_all([])) == []


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "bad",
    [
        Record("note", "x", {"at": math.nan}),
        Record("note", "a\0", {}),
        Record("note", "x", {}, schema_version=-1),
    ],
    ids=["data", "key", "version"],
)
def test_put_all_stores_nothing_if_one_is_invalid(store, bad, place):
    async def main():
        await store.put(note("a", x=0))
        given = [note("a", x=1), note("b", x=1)]
        given.insert(place, bad)
        with pytest.raises(StoreError):
            await store.put_all(given)
        assert [(each.key, each.data) for each in await store.find("note")] == [("a", {"x": 0})]

    asyncio.run(main())


def test_put_all_if_writes_only_while_the_condition_holds(store):
    async def main():
        guard = {"id": "me", "turn": 3}
        await store.put(Record("lease", "lease", guard | {"until": "noon"}))
        written = await store.put_all_if("lease", "lease", guard, [note("a", x=1), note("b", x=2)])
        assert [(one.key, one.revision, dict(one.data)) for one in written] == [
            ("a", 1, {"x": 1}),
            ("b", 1, {"x": 2}),
        ]
        written = await store.put_all_if("lease", "lease", {"turn": (2, 3)}, [note("b", x=3)])
        assert [one.revision for one in written] == [2]
        for kind, key, where in (
            ("lease", "lease", {"id": "you"}),
            ("lease", "lease", guard | {"turn": 4}),
            ("lease", "lease", guard | {"until": None}),
            ("lease", "other", guard),
            ("other", "lease", guard),
        ):
            assert await store.put_all_if(kind, key, where, [note("a", x=9), note("c", x=9)]) is None
        assert [(record.key, record.data["x"]) for record in await store.find("note")] == [("a", 1), ("b", 3)]
        assert isinstance(store, FencedStore)

    asyncio.run(main())


def test_a_replaced_writer_writes_nothing_in_any_order(store, open_store):
    async def main():
        other = open_store()

        async def writes(number):
            held = {"turn": number}
            return await store.put_all_if(
                "lease", "lease", held, [note("a", by=number), note("b", by=number)]
            )

        for number in range(20):
            await store.put(Record("lease", "lease", {"turn": number}))
            wrote, again, _ = await asyncio.gather(
                writes(number), writes(number), other.put(Record("lease", "lease", {"turn": number + 1}))
            )
            found = {record.data["by"] for record in await store.find("note")}
            assert (wrote is not None or again is not None) == (found == {number})
            assert await writes(number) is None

    asyncio.run(main())


def test_concurrent_put_all_never_mix_their_records(store):
    async def main():
        names = [f"{number:02}" for number in range(20)]
        await asyncio.gather(
            *(
                store.put_all([note(name, by=number) for name in (names, names[::-1])[number % 2]])
                for number in range(20)
            )
        )
        found = await store.find("note")
        assert keys(found) == names
        assert len({each.data["by"] for each in found}) == 1
        assert {each.revision for each in found} == {20}

    asyncio.run(main())


def test_put_if_absent_returns_the_stored_record(store):
    async def main():
        first, is_new = await store.put_if_absent(note(x=1))
        assert is_new
        second, is_new = await store.put_if_absent(note(x=2))
        assert not is_new
        assert first == second == await store.get("note", "a")
        assert second.data == {"x": 1}

    asyncio.run(main())


def test_replace_needs_the_revision(store):
    async def main():
        assert await store.replace(note(x=0)) is None
        first = await store.put(note(x=1))
        assert await store.replace(note(x=2)) is None  # revision 0 is none that is stored
        second = await store.replace(replace(first, data={"x": 3}))
        assert (second.data, second.revision) == ({"x": 3}, 2)
        assert await store.replace(replace(first, data={"x": 4})) is None
        assert (await store.get("note", "a")).data == {"x": 3}
        await store.delete("note", "a")
        assert await store.replace(replace(second, data={"x": 5})) is None
        assert await store.get("note", "a") is None

    asyncio.run(main())


def test_replace_refuses_a_record_that_was_recreated(store):
    async def main():
        first = await store.put(note(x=1))
        await store.delete("note", "a")
        await asyncio.sleep(0.001)
        await store.put(note(x=2))
        assert await store.replace(replace(first, data={"x": 3})) is None
        assert (await store.replace(Record("note", "a", {"x": 4}, revision=1))).data == {"x": 4}

    asyncio.run(main())


def test_delete_returns_whether_the_record_existed(store):
    async def main():
        await put_each(store, note("a"), note("b"), Record("other", "a", {}))
        assert [await store.delete("note", "a") for _ in range(2)] == [True, False]
        assert keys(await store.find("note")) == ["b"]
        assert keys(await store.find("other")) == ["a"]

    asyncio.run(main())


# Finding


KEYS = [
    "run", "run/1", "run/10", "run/2", "run0", "Run/1", "r%n/1", "r_n/1", "r*n/1", "r?n/1", "r[u]n/1",
    "r\\n", "ru", "é/1", "e\u0301/1", "\ud7ff1", "\ue0001", "\U0010ffff", "\U0010ffff\U0010ffffx", "zz",
]  # fmt: skip


PREFIXES = [
    "", "run", "run/", "r%", "r_", "r*", "r?", "r[", "r\\", "R", "é", "\ud7ff", "\ue000",
    "\U0010ffff", "\U0010ffff\U0010ffff", "z", "nothing",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_literal(store, prefix):
    async def main():
        await put_each(store, *map(note, KEYS), Record("other", prefix or "x", {}))
        assert keys(await store.find("note", prefix=prefix)) == sorted(
            key for key in KEYS if key.startswith(prefix)
        )

    asyncio.run(main())


FIELDS = {
    "absent": {},
    "null": {"x": None},
    "true": {"x": True},
    "false": {"x": False},
    "zero": {"x": 0},
    "one": {"x": 1},
    "one as float": {"x": 1.0},
    "one as text": {"x": "1"},
    "half": {"x": 0.5},
    "negative zero": {"x": -0.0},
    "big": {"x": 2**70},
    "big and one": {"x": 2**70 + 1},
    "big as float": {"x": 1e30},
    "small": {"x": 1e-05},
    "small next to a surrogate": {"x": 1e-05, "y": "\ud800"},
    "great": {"x": 1.5e300},
    "empty": {"x": ""},
    "null as text": {"x": "null"},
    "text": {"x": "naïve 'quoted' \"text\""},
    "nul": {"x": "a\0b"},
    "cut": {"x": "a"},
    "surrogate": {"x": "\ud800"},
    "list": {"x": [1]},
    "object": {"x": {"y": 1}},
    "list as text": {"x": "[1]"},
    "two": {"x": "both", "y é.z": "both"},
}
WHERE = [
    ({}, [*FIELDS]),
    ({"x": None}, ["absent", "null"]),
    ({"x": True}, ["true"]),
    ({"x": False}, ["false"]),
    ({"x": 0}, ["zero", "negative zero"]),
    ({"x": 1}, ["one", "one as float"]),
    ({"x": 1.0}, ["one", "one as float"]),
    ({"x": "1"}, ["one as text"]),
    ({"x": 0.5}, ["half"]),
    ({"x": 2**70}, ["big"]),
    ({"x": 10**30}, []),  # 1e30 is another number
    ({"x": 1e30}, ["big as float"]),
    ({"x": 10**400}, []),
    ({"x": 1e-05}, ["small", "small next to a surrogate"]),
    ({"x": 1.5e300}, ["great"]),
    ({"x": math.nan}, []),
    ({"x": ""}, ["empty"]),
    ({"x": "null"}, ["null as text"]),
    ({"x": "naïve 'quoted' \"text\""}, ["text"]),
    ({"x": "a\0b"}, ["nul"]),
    ({"x": "a"}, ["cut"]),
    ({"x": "\ud800"}, ["surrogate"]),
    ({"x": "[1]"}, ["list as text"]),
    ({"x": ()}, []),
    ({"x": ("a", 0.5, None, True)}, ["absent", "null", "true", "half", "cut"]),
    ({"x": "both", "y é.z": "both"}, ["two"]),
    ({"x": "both", "y é.z": None}, []),
    ({"y": 1}, []),
    ({"x.y": 1}, []),
    ({"x' OR 1=1 --": 1}, []),
]


@pytest.mark.parametrize(("where", "expected"), WHERE, ids=lambda value: repr(value)[:40])
def test_where_compares_fields_as_json(store, where, expected):
    async def main():
        await put_each(store, *(Record("note", key, data) for key, data in FIELDS.items()))
        assert set(keys(await store.find("note", where=where))) == set(expected)

    asyncio.run(main())


@pytest.mark.parametrize(
    "asked",
    [
        {"where": {'a"b': 1}},
        {"where": {"a\\": 1}},
        {"where": {"": 1}},
        {"where": {"a\0": 1}},
        {"where": {"a": [1]}},
        {"where": {"a": {"b": 1}}},
        {"where": {"a": (1, (2,))}},
        {"limit": 0},
        {"limit": -1},
        {"limit": True},
        {"after": note()},
    ],
    ids=repr,
)
def test_an_invalid_query_is_a_config_error(store, asked):
    with pytest.raises(ConfigError, match=next(iter(asked))):
        run_sync(store.find("note", **asked))


async def paged(store, limit, between=None, **asked):
    found, after = [], None
    while page := await store.find("note", after=after, limit=limit, **asked):
        assert len(page) <= limit
        found += page
        after = page[-1]
        if between:
            await between(after)
    return found


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_show_each_record_once_and_in_order(store, limit, newest_first):
    async def main():
        order = Random(1).sample(range(20), 20)  # noqa: S311 (no secret)
        written = await put_each(store, *(note(f"{number:02}", even=number % 2 == 0) for number in order))
        expected = written[::-1] if newest_first else sorted(written, key=lambda record: record.key)
        assert await store.find("note", newest_first=newest_first) == expected
        assert await paged(store, limit, newest_first=newest_first) == expected
        expected = [record for record in expected if record.key.startswith("0") and record.data["even"]]
        asked = {"newest_first": newest_first, "prefix": "0", "where": {"even": True}}
        assert await paged(store, limit, **asked) == expected

    asyncio.run(main())


@pytest.mark.parametrize("newest_first", [False, True])
def test_records_created_at_the_same_time_are_paged_by_key(store, monkeypatch, newest_first):
    for module in ("redraft.stores.sqlite", "redraft.stores.postgres"):
        monkeypatch.setattr(f"{module}.time_ns", lambda: 1_700_000_000_000_000_000)

    async def main():
        await put_each(store, *map(note, "dbeac"))
        found = keys(await paged(store, 2, newest_first=newest_first))
        assert found == (list("edcba") if newest_first else list("abcde"))

    asyncio.run(main())


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_are_stable_while_records_change(store, newest_first):
    async def main():
        written = await put_each(store, *(note(f"{number:02}") for number in range(0, 40, 2)))

        async def between(last):
            if last in written:
                await store.put(note(f"new {last.key}"))  # newer than all, and after them all
                await store.put(replace(last, data={"changed": True}))  # stays in its place
                await store.delete("note", last.key)  # the cursor need not be there any more

        found = keys(await paged(store, 3, between, newest_first=newest_first))
        stayed = [record.key for record in written]
        old = [key for key in found if not key.startswith("new")]
        assert old == (stayed[::-1] if newest_first else stayed)
        assert len(found) == len(set(found)) == (20 if newest_first else 26)

    asyncio.run(main())


# Many at once


def test_put_if_absent_lets_exactly_one_of_many_win(store):
    async def main():
        results = await asyncio.gather(*(store.put_if_absent(note(by=number)) for number in range(50)))
        assert sum(is_new for _, is_new in results) == 1
        assert len({record.data["by"] for record, _ in results}) == 1
        assert {record.revision for record, _ in results} == {1}

    asyncio.run(main())


def test_concurrent_replace_loses_no_update(store):
    async def increment():
        while True:
            record = await store.get("note", "a")
            count = record.data["count"] + 1
            if await store.replace(replace(record, data={"count": count})):
                return

    async def main():
        await store.put(note(count=0))
        await asyncio.gather(*(increment() for _ in range(50)))
        record = await store.get("note", "a")
        assert (record.data["count"], record.revision) == (50, 51)

    asyncio.run(main())


def test_a_task_reads_what_it_wrote(store):
    async def one(number):
        for turn in range(5):
            await store.put(note(str(number), turn=turn))
            assert (await store.get("note", str(number))).data == {"turn": turn}
            assert (await store.find("note", where={"turn": turn}, prefix=str(number))) != []
            assert await store.delete("note", str(number))
            assert await store.get("note", str(number)) is None

    async def main():
        await asyncio.gather(*map(one, range(10, 30)))

    asyncio.run(main())


def test_one_failing_write_does_not_affect_others(store):
    async def main():
        results = await asyncio.gather(
            *(
                call
                for number in range(20)
                for call in (
                    store.put(note(str(number))),
                    store.put(note("nan", x=math.nan)),
                    store.get("note", "a\0"),
                )
            ),
            return_exceptions=True,
        )
        errors = [each for each in results if isinstance(each, StoreError)]
        assert (len(results), len(errors)) == (60, 40)
        assert len(await store.find("note")) == 20

    asyncio.run(main())


def test_a_write_of_a_cancelled_task_happens_once(store):
    async def main():
        tasks = [asyncio.create_task(store.put(note(str(number)))) for number in range(30)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.put(note("last"))
        records = await store.find("note")
        assert len(records) == 31
        assert {record.revision for record in records} == {1}

    asyncio.run(main())


def test_threads_and_loops_share_a_store(store):
    failed = []

    def work(number):
        try:
            for turn in range(5):
                run_sync(store.put(note(f"{number}/{turn}")))
                assert len(run_sync(store.find("note", prefix=f"{number}/"))) == turn + 1
        except BaseException as error:  # noqa: BLE001 (the test fails with it)
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(run_sync(store.find("note"))) == 40


# Spaces, and closing


def test_spaces_are_isolated(open_store):
    async def main():
        one, other, again = open_store("one"), open_store("other"), open_store("one")
        await one.put(Record("note", "a", {"x": 1}))
        assert await other.get("note", "a") is None
        assert await other.find("note", where={"x": 1}) == []
        assert not await other.delete("note", "a")
        assert (await other.put_if_absent(Record("note", "a", {"x": 2})))[1]
        assert await other.replace(await one.get("note", "a")) is None
        assert (await again.get("note", "a")).data == {"x": 1}

    asyncio.run(main())


def test_a_closed_store_reopens(store):
    async def main():
        await store.aclose()
        for turn in range(3):
            writes = [asyncio.create_task(store.put(note(f"{turn}{n}"))) for n in range(9)]
            await asyncio.sleep(0)
            await store.aclose()  # what was asked for is written first
            assert all(task.done() for task in writes) or await asyncio.gather(*writes)
            assert len(await store.find("note")) == 9 * (turn + 1)
        await store.aclose()
        await store.aclose()

    asyncio.run(main())


# What a store holds, and what is left of what was deleted


def test_a_store_says_how_much_there_is_of_each_kind(open_store):
    async def main():
        store = open_store("one")
        await open_store("two").put(Record("note", "elsewhere", {}))
        await store.put_all([Record("b", "1", {"text": "é"}), Record("b", "2", {})])
        await store.put(Record("a", "1", {}))
        assert await store.kinds() == {"a": (1, 2), "b": (2, 15)}
        assert list(await store.kinds()) == ["a", "b"]
        assert await store.size() > 0
        assert await store.problems() == []

    asyncio.run(main())


def test_an_empty_store_holds_nothing(open_store):
    async def main():
        store = open_store()
        assert isinstance(store, ManagedStore)
        assert (await store.kinds(), await store.size(), await store.problems()) == ({}, 0, [])
        assert isinstance(await store.scrub(), str)

    asyncio.run(main())


def test_a_store_is_used_on_after_it_was_scrubbed(store):
    async def main():
        await store.put(Record("note", "a", {"text": "stays"}))
        await store.delete("note", "a")
        await store.put(Record("note", "b", {"text": "stays"}))
        await store.scrub()
        assert keys(await store.find("note")) == ["b"]
        await store.put(Record("note", "c", {}))
        assert keys(await store.find("note")) == ["b", "c"]

    asyncio.run(main())


# Processes


@pytest.fixture(params=[SqliteStore, PostgresStore])
def shared(request, tmp_path):
    """A store for many processes, its place, and the beginning of a script that opens it there."""
    kind = request.param
    place = (
        tmp_path / "new" / "redraft.db" if kind is SqliteStore else request.getfixturevalue("postgres").url
    )
    store = kind(place)
    yield store, place, f"from redraft.stores import {kind.__name__}\nstore = {kind.__name__}(sys.argv[2])\n"
    run_sync(store.aclose())


TRIGGER = """
CREATE TRIGGER no_bad BEFORE INSERT ON records WHEN new.key = 'bad' BEGIN SELECT RAISE({}, 'no_bad'); END"""
REFUSALS = {
    "ABORT": (SqliteStore, TRIGGER.format("ABORT")),
    "ROLLBACK": (SqliteStore, TRIGGER.format("ROLLBACK")),
    "CHECK": (PostgresStore, "ALTER TABLE redraft_records ADD CONSTRAINT no_bad CHECK (key <> 'bad')"),
}


@pytest.mark.parametrize(("shared", "refusal"), REFUSALS.values(), ids=REFUSALS, indirect=["shared"])
def test_what_the_database_refuses_is_refused_alone(shared, refusal):
    store, place, _ = shared
    run_sync(store.put(note("a")))
    with closing(psycopg.connect(place) if refusal.startswith("ALTER") else sqlite3.connect(place)) as other:
        other.execute(refusal)
        other.commit()

    async def main():
        results = await asyncio.gather(
            store.put(note("x")),
            store.put_all([note("a", x=1), note("bad"), note("c")]),
            store.put_all([note("y"), note("a", x=2)]),
            return_exceptions=True,
        )
        assert "no_bad" in str(results[1])
        records = {record.key: record.data for record in await store.find("note")}
        assert records == {"a": {"x": 2}, "x": {}, "y": {}}

    asyncio.run(main())


OPEN = """
from support.store_faults import at_once

async def main(process):
    record, is_new = await store.put_if_absent(Record("note", "a", {"by": process}))
    assert await store.get("note", "a") == record
    os.write(1, f"{is_new}\\n".encode())
    await store.aclose()

at_once(12, lambda process: asyncio.run(main(process)))
"""


def test_many_processes_create_the_store_at_once(shared):
    _, place, begin = shared
    said = run(begin + OPEN, place).split()
    assert sorted(said) == ["False"] * 11 + ["True"]


ENDS = {
    "open": "asyncio.run(store.put(Record('note', 'a', {})))",
    "cancelled": """
async def main():
    task = asyncio.create_task(store.put(Record("note", "a", {})))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())""",
    "forgotten": """
import gc, threading, time
asyncio.run(store.put(Record("note", "a", {})))
asyncio.run(store.get("note", "a"))
assert threading.active_count() == 3
del store
gc.collect()
for _ in range(500):
    time.sleep(0.01)
    if threading.active_count() == 1:
        break
assert threading.active_count() == 1, threading.enumerate()""",
    "forked": """
async def main():
    await asyncio.gather(*(store.put(Record("note", str(n), {})) for n in range(20)))
    for n in range(20):
        await store.delete("note", str(n))
asyncio.run(main())
import warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of any fork with threads
child = os.fork()
if child == 0:
    asyncio.run(store.put(Record("note", "a", {})))
    assert asyncio.run(store.get("note", "a"))
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
asyncio.run(store.put(Record("note", "b", {})))
assert asyncio.run(store.get("note", "a"))
asyncio.run(store.delete("note", "b"))""",
}


@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS)
def test_a_process_ends_although_its_store_is_open(shared, script):
    store, place, begin = shared
    assert run(begin + script, place) == ""
    assert keys(run_sync(store.find("note"))) == ["a"]
