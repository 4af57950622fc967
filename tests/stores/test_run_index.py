"""What every index of runs must answer: the same from columns as from the records."""

import asyncio
import random
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta

import pytest

from redraft import ConfigError, TokenUsage
from redraft.stores.base import Record
from redraft.stores.run_index import (
    CYCLE,
    ENDED,
    LESSON_USE,
    NOTE_COST,
    NOTE_USE,
    RUN,
    Count,
    Expense,
    ExpenseGroup,
    RunQuery,
    RunRow,
    RunUse,
    Share,
    Totals,
    run_index,
    spent,
)


@pytest.fixture(params=["memory", "sqlite", "postgres", "isolated", "plain"])
def backend(request):
    """Also a store without tables, whose records are read at each query."""
    return request.param


START = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
HOSTILE = 'a\0b \ud83d "x\\n" \'; DROP TABLE runs; -- 100%(s :name'


def row(run_id, **columns):
    known = {"status": "finished", "agent": "writer", "task": "t1", "known_usd": 0.25, "unpriced": False}
    return RunRow(run_id, START, **known | columns)


def record(one, *shares):
    return Record(RUN, one.run_id, {"text": "whole", "index": replace(one, shares=shares).to_data()})


async def keep(store, *records):
    """Store runs one after the other, so that each has a time of its own."""
    for each in records:
        await store.put(each)
        await asyncio.sleep(0.00001)


def ids(rows):
    return [each.run_id for each in rows]


def found(store, *args, **query):
    return ids(asyncio.run(run_index(store).find(RunQuery(*args, **query))))


def counted(store, by, *args, **query):
    counts = asyncio.run(run_index(store).count(by, RunQuery(*args, **query)))
    return {value: one.runs for value, one in counts.items()}


def summed(store, by, *args, **query):
    return asyncio.run(run_index(store).sum(by, RunQuery(*args, **query)))


def test_a_row_round_trips(store):
    full = row(
        "full", reason="plateau", model=HOSTILE, judge="j", parent="p", is_inner=True, host="h", pid=2**40,
        process_started="7", is_advised=True, strategy="hybrid", max_iterations=3, threshold=0.8,
        selection="highest_score", versions=4, first_score=0.1, best_score=0.7, satisfactory=True,
        seconds=1.5, requests=3, failed_requests=1, input_tokens=10, output_tokens=5, known_usd=0.125,
        unpriced=True, later_tokens=7, later_usd=0.0625, later_unpriced=True,
        criteria={"facts": (0.5, None), HOSTILE: (None, 1.0)},
    )  # fmt: skip
    least = row("least")

    async def main():
        await keep(store, record(full), record(least))
        rows = await run_index(store).find()
        kept = [await store.get(RUN, each.run_id) for each in rows]
        assert [each.created_at for each in rows] == [each.created_at for each in kept]
        assert [replace(each, created_at=START) for each in rows] == [least, full]
        assert (rows[1].cost_usd, rows[0].cost_usd) == (None, 0.25)

    asyncio.run(main())


def test_rows_are_updated_with_their_records(store):
    async def main():
        index = run_index(store)

        async def seen():
            return {each.run_id: each.status for each in await index.find()}, [*await index.count("role")]

        running, ended = row("a", status="running"), row("a")
        written, _ = await store.put_if_absent(record(running))
        assert await seen() == ({"a": "running"}, [])
        await store.put_if_absent(record(ended))
        assert (await seen())[0] == {"a": "running"}
        written = await store.replace(
            replace(record(ended, Share("role", "writing")), revision=written.revision)
        )
        assert await seen() == ({"a": "finished"}, ["writing"])
        assert await store.replace(replace(record(running), revision=99)) is None
        await store.put_all([record(row("b", status="failed")), record(row("a"), Share("role", "judging"))])
        assert await seen() == ({"a": "finished", "b": "failed"}, ["judging"])
        assert await store.put_all_if(RUN, "a", {"text": "other"}, [record(row("c"))]) is None
        assert await store.put_all_if(RUN, "a", {"text": "whole"}, [record(row("c"))])
        await store.put(Record("note", "d", {"index": row("d").to_data()}))
        assert set((await seen())[0]) == {"a", "b", "c"}
        assert await store.delete(RUN, "a")
        assert await store.delete("note", "c") is False
        assert await seen() == ({"b": "failed", "c": "finished"}, [])

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"index": None},
        {"index": {"status": "finished"}},
        {"index": {"agent": 3, "shares": [[1]]}},
        {"index": row("a").to_data() | {"input_tokens": 2**63}},
        {"index": row("a").to_data() | {"seconds": 10**400}},
    ],
)
def test_a_run_without_columns_that_can_be_read_is_damaged(store, data):
    asyncio.run(store.put(Record(RUN, "a", data)))
    [one] = asyncio.run(run_index(store).find())
    assert (one.status, one.cost_usd, one.versions) == ("damaged", None, 0)


WHERE = {
    "all": ({}, "edcba"),
    "one value": ({"status": "failed"}, "b"),
    "several": ({"status": ("running", "failed")}, "cb"),
    "two columns": ({"agent": "writer", "status": ENDED}, "dba"),
    "nothing": ({"agent": ()}, ""),
    "none": ({"threshold": None}, "ba"),
    "none or a value": ({"threshold": (None, 0.5)}, "cba"),
    "a whole number": ({"threshold": 1}, "d"),
    "true": ({"is_inner": True}, "e"),
    "false": ({"is_inner": False}, "dcba"),
    "hostile": ({"agent": HOSTILE}, "e"),
    "empty": ({"agent": ""}, "c"),
}


def some_runs():
    return (
        record(row("a")),
        record(row("b", status="failed")),
        record(row("c", status="running", agent="", threshold=0.5)),
        record(row("d", threshold=1.0)),
        record(row("e", agent=HOSTILE, threshold=0.25, is_inner=True)),
    )


@pytest.mark.parametrize(("where", "expected"), WHERE.values(), ids=WHERE)
def test_runs_are_filtered(store, where, expected):
    asyncio.run(keep(store, *some_runs()))
    assert "".join(found(store, where)) == expected
    assert sum(counted(store, "day", where).values()) == len(expected)


def test_pages_are_consecutive(store):
    async def main():
        index = run_index(store)
        await keep(store, *some_runs())
        first = await index.find(limit=2)
        second = await index.find(after=first[-1], limit=2)
        assert ids(first + second) == ["e", "d", "c", "b"]
        last = await store.get(RUN, "b")
        assert ids(await index.find(after=last)) == ["a"]
        await store.delete(RUN, "b")
        assert ids(await index.find(after=last)) == ["a"]
        assert ids(await index.find(RunQuery(since=second[1].created_at))) == ["e", "d", "c"]
        assert list(await index.sum("agent", RunQuery(since=first[0].created_at))) == [HOSTILE]

    asyncio.run(main())


def test_runs_are_found_by_id_prefix(store):
    asyncio.run(keep(store, *(record(row(name)) for name in ("ab", "a%", "a_c", "b", "ab\U0010ffff"))))
    assert found(store, prefixes=("ab",)) == ["ab\U0010ffff", "ab"]
    assert found(store, prefixes=("a%", "b", "x")) == ["b", "a%"]


ODD_IDS = [r"C:\x", r"a\u0041", r"a\b", 'say "a"', "é/100%"]


def test_runs_and_their_expenses_are_found_by_ids_of_any_characters(store):
    costs = [expense(NOTE_COST, f"{number}", run_id=run_id) for number, run_id in enumerate(ODD_IDS)]
    strange = expense(NOTE_COST, "strange", run_id=HOSTILE)
    asyncio.run(keep(store, *(record(row(run_id)) for run_id in ODD_IDS), *costs, strange))
    assert found(store) == ODD_IDS[::-1]
    assert found(store, {"run_id": (ODD_IDS[0],)}) == [ODD_IDS[0]]
    of_writer = ExpenseGroup(DAY, "writer", "", "t1")
    assert expenses(store, NOTE_COST) == {of_writer: Totals(len(ODD_IDS)), ExpenseGroup(DAY): Totals(1)}


def test_sums_count_unknown_costs_separately(store):
    runs = [
        row("a", requests=1, input_tokens=10, output_tokens=1, later_tokens=4, later_usd=0.5),
        row("b", requests=2, failed_requests=3, known_usd=0.5, unpriced=True, later_unpriced=True),
        row("c", agent=HOSTILE, known_usd=0.0, unpriced=True),
    ]
    asyncio.run(keep(store, *map(record, runs)))
    assert summed(store, "agent") == {
        "writer": Totals(2, 3, 3, 10, 1, 0.75, 1, 4, 0.5, 1),
        HOSTILE: Totals(1, unknown=1),
    }
    assert summed(store, "agent")["writer"].total_tokens == 11


@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("agent", {"writer": 2, "": 1}),
        ("is_advised", {True: 1, False: 2}),
        ("max_iterations", {None: 1, 3: 2}),
        ("threshold", {None: 2, 0.8: 1}),
        ("model", {"": 3}),
    ],
)
def test_runs_are_summed(store, by, values):
    runs = [
        row("a", max_iterations=3),
        row("b", agent="", is_advised=True, threshold=0.8, max_iterations=3),
        row("c"),
    ]
    asyncio.run(keep(store, *map(record, runs)))
    assert counted(store, by) == values
    assert {value: one.runs for value, one in summed(store, by).items()} == values


def test_a_count_has_the_greatest_id(store):
    asyncio.run(keep(store, *(record(row(name)) for name in ("b", "c", "a"))))
    assert asyncio.run(run_index(store).count("agent")) == {"writer": Count(3, "c")}


def test_a_run_belongs_to_the_day_it_began(store):
    asyncio.run(keep(store, record(row("a"))))
    [one] = asyncio.run(run_index(store).find())
    assert summed(store, "day") == {one.created_at.astimezone(UTC).date(): Totals(1, cost_usd=0.25)}
    assert found(store, {"day": one.day}) == ["a"]
    assert found(store, {"day": one.day - timedelta(days=1)}) == []


def test_shares_are_summed_by_role_and_by_model(store):
    role = [
        Share("role", "writing", requests=2, known_usd=0.25),
        Share("role", HOSTILE, requests=1, unpriced=True),
    ]
    model = Share("role_model", "big", requests=3, known_usd=0.25, unpriced=True)
    asyncio.run(
        keep(
            store,
            record(row("a"), *role, model),
            record(row("b", agent="other", is_inner=True), role[0], Share("role_model", "small")),
        )
    )
    writing = Totals(2, 4, cost_usd=0.5)
    assert summed(store, "role") == {"writing": writing, HOSTILE: Totals(1, 1, unknown=1)}
    assert summed(store, "role_model") == {
        "big": Totals(1, 3, cost_usd=0.25, unknown=1),
        "small": Totals(1),
    }
    assert summed(store, "role", {"is_inner": True}) == {"writing": Totals(1, 2, cost_usd=0.25)}
    assert list(summed(store, "role_model", {"agent": "writer"})) == ["big"]
    assert summed(store, "role", since=datetime.now(UTC) + timedelta(minutes=1)) == {}


def test_the_shares_of_the_latest_runs_come_newest_first(store):
    first, second = Share("way", "001 one", input_tokens=3, output_tokens=1), Share("way", "002 two")
    for run_id, agent in (("a", "writer"), ("b", HOSTILE), ("c", "writer"), ("d", "writer")):
        asyncio.run(keep(store, record(row(run_id, agent=agent), second, first, Share("role", "writing"))))
    asyncio.run(keep(store, record(row("e", agent="writer"))))  # no revision

    def latest(runs, **where):
        return asyncio.run(run_index(store).shares_of_latest("way", RunQuery(where), runs))

    assert [share.value for share in latest(9)] == ["002 two", "001 one"] * 4
    assert [share.value for share in latest(2, agent="writer")] == ["002 two", "001 one"]
    assert latest(9, agent=HOSTILE)[1][:5] == (HOSTILE, row("b").model, "001 one", 3, 1)
    assert latest(9, agent="nobody") == []


def test_an_unknown_column_is_named(store):
    for ask in (lambda: found(store, {"agnet": "x"}), lambda: summed(store, "agent", {"agnet": "x"})):
        with pytest.raises(ConfigError, match="Runs have no column 'agnet'; did you mean 'agent'"):
            ask()
    with pytest.raises(ConfigError, match="Runs can't be grouped by 'seconds'"):
        summed(store, "seconds")


def test_the_index_agrees_with_the_records(store):
    rng = random.Random(7)  # noqa: S311 (no secrets here)

    def made(number):
        one = row(
            f"run-{rng.randrange(40):02}",
            status=rng.choice((*ENDED, "running")),
            agent=rng.choice(("x", "y", HOSTILE)),
            threshold=rng.choice((None, 0.5, 0.8)),
            is_inner=rng.random() < 0.3,
            known_usd=rng.randrange(8) / 8,
            unpriced=rng.random() < 0.3,
            later_tokens=number,
        )
        shares = [
            Share("role", role, requests=number) for role in ("generation", "revision") if rng.random() < 0.6
        ]
        return record(one, *shares)

    async def main():
        for number in range(90):
            if rng.random() < 0.2:
                await store.delete(RUN, f"run-{rng.randrange(40):02}")
            await keep(store, made(number))
        index = run_index(store)
        stored = await store.find(RUN, newest_first=True)
        runs = [RunRow.of(each.key, each.created_at, each.data) for each in stored]
        middle = runs[len(runs) // 2]
        wheres = (
            {},
            {"status": ENDED},
            {"agent": ("x", HOSTILE), "is_inner": False},
            {"threshold": (None, 0.8)},
        )
        for where in wheres:
            for since in (None, middle.created_at):
                query = RunQuery(where, since)
                chosen = [run for run in runs if meets(run, query)]
                expected = [replace(one, shares=()) for one in chosen]
                assert await index.find(query) == expected
                older = [each for each in expected if each.created_at < middle.created_at]
                assert await index.find(query, after=middle, limit=5) == older[:5]
                for by in ("agent", "threshold", "is_advised", "day", "role", "role_model"):
                    parts = list(parts_of(chosen, by))
                    counts = {value: Count(0, "") for value, *_ in parts}
                    sums = {value: Totals() for value in counts}
                    for value, run_id, used in parts:
                        before = counts[value]
                        counts[value] = Count(before.runs + 1, max(before.latest, run_id))
                        sums[value].add(used)
                    assert await index.count(by, query) == counts
                    assert await index.sum(by, query) == sums

    asyncio.run(main())


def meets(one, query):
    wanted = {name: query.values(name) for name in query.where}
    begun = query.since is None or one.created_at >= query.since
    return begun and all(getattr(one, name) in values for name, values in wanted.items())


def parts_of(runs, by):
    """Yield what a group adds up: its value, the run, and what that used."""
    for run in runs:
        if by in ("role", "role_model"):
            for share in run.shares:
                if share.facet == by:
                    yield share.value, run.run_id, Totals(1, share.requests)
        else:
            later = {"later_tokens": run.later_tokens}
            cost = {"cost_usd": run.known_usd, "unknown": int(run.unpriced)}
            yield getattr(run, by), run.run_id, Totals(1, **cost, **later)


def test_sums_of_usage_mark_unknown_costs():
    used = spent([TokenUsage(1, 2, requests=1, cost_usd=0.5), TokenUsage(3, failed_requests=1)])
    assert (used["known_usd"], used["unpriced"], used["input_tokens"]) == (0.5, True, 4)
    assert spent([]) == {**dict.fromkeys(used, 0), "known_usd": 0.0, "unpriced": False}


def test_totals_add_up():
    total = Totals(*range(1, 11))
    total.add(Totals(*range(10, 0, -1)))
    assert astuple(total) == (11,) * 10


# Uses of lessons and notes


def use(subject, name, minutes=0, outcome="", run_id=None, **columns):
    at = START + timedelta(minutes=minutes)
    one = RunUse(subject, name if run_id is None else run_id, at, outcome, **columns)
    return Record(LESSON_USE, f"{subject}/{name}", {"text": "whole", "index": one.to_data()})


def uses_of(store, subject, **options):
    return [one.run_id for one in asyncio.run(run_index(store).uses(LESSON_USE, subject, **options))]


def use_counts(store, *outcomes, prefix=""):
    return asyncio.run(run_index(store).count_uses(LESSON_USE, outcomes, prefix=prefix))


def test_a_use_comes_back_as_it_was(store):
    full = RunUse("a/1", HOSTILE, START + timedelta(microseconds=1), HOSTILE, 3, 0.25)
    asyncio.run(store.put(Record(LESSON_USE, "a/1/x", {"index": full.to_data()})))
    assert asyncio.run(run_index(store).uses(LESSON_USE, "a/1")) == [full]
    assert asyncio.run(run_index(store).uses(NOTE_USE, "a/1")) == []


def test_the_latest_uses_come_first(store):
    records = [use("a/1", name, minutes) for name, minutes in (("x", 2), ("y", 3), ("z", 1), ("y2", 3))]
    asyncio.run(keep(store, *records, use("a/10", "other", 9), use("a", "another", 9)))
    assert uses_of(store, "a/1") == ["y2", "y", "x", "z"]
    assert uses_of(store, "a/1", limit=3) == ["y2", "y", "x"]
    assert uses_of(store, "a") == ["another"]


def test_uses_are_found_by_outcome_and_counted(store):
    records = [
        use("a/1", "x", 1, "helped"),
        use("a/1", "y", 2, "hurt"),
        use("a/1", "z", 3),
        use("a/1", "rated-1", 4, "hurt", run_id=""),
        use("a/2", "x", 1, "helped"),
        use("b/1", "x", 1, HOSTILE),
    ]
    asyncio.run(keep(store, *records))
    assert uses_of(store, "a/1", outcome="hurt") == ["", "y"]
    assert uses_of(store, "a/1", outcome="hurt", limit=1) == [""]
    assert use_counts(store, "helped", "hurt", prefix="a/") == {"a/1": (3, 1, 2), "a/2": (1, 1, 0)}
    assert use_counts(store, HOSTILE) == {"a/1": (3, 0), "a/2": (1, 0), "b/1": (1, 1)}
    assert use_counts(store, prefix="c") == {}


def test_uses_follow_their_records(store):
    async def main():
        index = run_index(store)
        await keep(store, use("a/1", "x", 1, "helped"), use("a/1", "y", 2, "helped"))
        await store.put(use("a/1", "x", 3, "hurt"))
        assert await index.count_uses(LESSON_USE, ("helped", "hurt")) == {"a/1": (2, 1, 1)}
        assert [one.outcome for one in await index.uses(LESSON_USE, "a/1")] == ["hurt", "helped"]
        await store.put(Record(LESSON_USE, "a/1/y", {"text": "no columns"}))
        assert await index.count_uses(LESSON_USE) == {"a/1": (1,)}
        assert await store.delete(LESSON_USE, "a/1/x")
        assert await index.count_uses(LESSON_USE) == {}

    asyncio.run(main())


# Expenses outside of runs: cycles and notes

DAY = START.date()


def expense(kind, key, minutes=0, **columns):
    one = Expense(START + timedelta(minutes=minutes), **columns)
    return Record(kind, key, {"text": "whole", "index": one.to_data()})


def expenses(store, kind, since=None):
    return asyncio.run(run_index(store).expenses(kind, since))


def test_expenses_are_summed_by_day(store):
    records = [
        expense(CYCLE, "1", requests=1, input_tokens=10, output_tokens=1, known_usd=0.25),
        expense(CYCLE, "2", 29, requests=2, failed_requests=3, known_usd=0.5, unpriced=True),
        expense(CYCLE, "3", 30, known_usd=0.125),
        expense(NOTE_COST, "a/reflection", known_usd=8.0),
    ]
    asyncio.run(keep(store, *records, Record(CYCLE, "4", {"text": "still running"})))
    today = Totals(2, 3, 3, 10, 1, 0.75, unknown=1)
    tomorrow = {ExpenseGroup(DAY + timedelta(days=1)): Totals(1, cost_usd=0.125)}
    assert expenses(store, CYCLE) == {ExpenseGroup(DAY): today, **tomorrow}
    assert expenses(store, CYCLE, START + timedelta(minutes=30)) == tomorrow
    assert expenses(store, NOTE_COST) == {ExpenseGroup(DAY): Totals(1, cost_usd=8.0)}


def test_expenses_of_a_run_have_its_agent_model_and_task(store):
    records = [
        record(row("a", model=HOSTILE)),
        record(row("b", agent="other")),
        expense(NOTE_COST, "a/reflection", run_id="a", known_usd=0.5),
        expense(NOTE_COST, "a/again", run_id="a", known_usd=0.25),
        expense(NOTE_COST, "b/reflection", run_id="b"),
        expense(NOTE_COST, "gone/reflection", run_id="gone", unpriced=True),
    ]
    asyncio.run(keep(store, *records))
    assert expenses(store, NOTE_COST) == {
        ExpenseGroup(DAY, "writer", HOSTILE, "t1"): Totals(2, cost_usd=0.75),
        ExpenseGroup(DAY, "other", "", "t1"): Totals(1),
        ExpenseGroup(DAY): Totals(1, unknown=1),
    }


def test_expenses_follow_their_records(store):
    async def main():
        index = run_index(store)
        await keep(store, Record(CYCLE, "1", {"text": "running"}), expense(CYCLE, "1"), expense(CYCLE, "2"))
        await store.put_all([expense(CYCLE, "1", requests=3), expense(CYCLE, "2", requests=1)])
        assert await index.expenses(CYCLE) == {ExpenseGroup(DAY): Totals(2, 4)}
        await store.put(Record(CYCLE, "2", {"index": ["no time"]}))
        assert await index.expenses(CYCLE) == {ExpenseGroup(DAY): Totals(1, 3)}
        assert await store.delete(CYCLE, "1")
        assert await index.expenses(CYCLE) == {}

    asyncio.run(main())


def test_the_columns_of_another_space_are_not_seen(open_store):
    ours, theirs = open_store("ours"), open_store("theirs")
    cost, used = expense(NOTE_COST, "a/reflection", run_id="a"), use("a/1", "x")
    asyncio.run(keep(ours, record(row("a"), Share("role", "writing")), cost, used))
    asyncio.run(keep(theirs, record(row("b")), cost))
    assert (found(ours), found(theirs)) == (["a"], ["b"])
    assert (list(summed(ours, "role")), list(summed(theirs, "role"))) == (["writing"], [])
    assert (uses_of(ours, "a/1"), uses_of(theirs, "a/1")) == (["x"], [])
    assert expenses(ours, NOTE_COST) == {ExpenseGroup(DAY, "writer", "", "t1"): Totals(1)}
    assert expenses(theirs, NOTE_COST) == {ExpenseGroup(DAY): Totals(1)}
    for kind, key in ((RUN, "a"), (LESSON_USE, "a/1/x"), (NOTE_COST, "a/reflection")):
        asyncio.run(theirs.delete(kind, key))
    assert (found(ours), use_counts(ours), len(expenses(ours, NOTE_COST))) == (["a"], {"a/1": (1,)}, 1)
    assert expenses(theirs, NOTE_COST) == {}
