import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from redraft.cycles.sense import sense
from redraft.cycles.sql import Statement, parsed_url, run_statement
from redraft.errors import AgentFileError, ConfigError, OutputError
from redraft.loop.journal import Journalled
from redraft.stores.memory import MemoryStore
from support.cycles import cycle_of, spec_of
from support.monitor import monitor, run

URL = "sqlite:///shop.db"


@pytest.fixture
def shop(tmp_path):
    """A folder with a database of three orders."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price NUMERIC, photo BLOB)")
        rows = [(1, "tea", 4.5, b"\x01"), (2, "cup", 3, None), (3, "it's; DROP TABLE orders", None, None)]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    return tmp_path


def ran(folder, query, url=URL, **options):
    return run(run_statement(Statement(url, query, folder=folder, **options)))


def items(folder):
    return [row["item"] for row in ran(folder, "SELECT item FROM orders ORDER BY id")[0]]


def test_rows_are_objects_of_plain_data(shop):
    rows, count = ran(shop, "SELECT id, item, price, photo FROM orders WHERE id < :most", values={"most": 3})
    assert rows == [
        {"id": 1, "item": "tea", "price": 4.5, "photo": "01"},
        {"id": 2, "item": "cup", "price": 3, "photo": None},
    ]
    assert count == 2


def test_a_value_never_becomes_sql(shop):
    rows, _ = ran(shop, "SELECT id FROM orders WHERE item = :item", values={"item": "x' OR '1' = '1"})
    assert rows == []
    found, _ = ran(
        shop, "SELECT id FROM orders WHERE item = :item", values={"item": "it's; DROP TABLE orders"}
    )
    assert found == [{"id": 3}]


WRITES = [
    "DELETE FROM orders",
    "UPDATE orders SET price = 0",
    "INSERT INTO orders (id) VALUES (9)",
    "DROP TABLE orders",
    "CREATE TABLE more (id INTEGER)",
    "WITH gone AS (SELECT 1) DELETE FROM orders",
    "PRAGMA user_version = 7",
]


@pytest.mark.parametrize("query", ["ATTACH '{file}' AS more", "VACUUM INTO '{file}'"])
def test_a_statement_that_reads_writes_no_other_file(shop, tmp_path, query):
    other = tmp_path / "other.db"
    with pytest.raises(OutputError, match=r"not authorized|authorization denied"):
        ran(shop, query.format(file=f"file:{other}?mode=rwc"))
    assert not list(tmp_path.glob("*other*"))


@pytest.mark.parametrize("query", WRITES)
def test_a_statement_only_reads_by_default(shop, query):
    with pytest.raises(OutputError, match="readonly database"):
        ran(shop, query)
    assert len(items(shop)) == 3


def test_a_statement_that_may_write_is_committed(shop):
    query = "INSERT INTO orders (id, item) VALUES (:id, :item)"
    assert ran(shop, query, values={"id": 4, "item": "pot"}, is_read_only=False) == ([], 1)
    query = "UPDATE orders SET price = 1 WHERE id > 2 RETURNING id"
    assert ran(shop, query, is_read_only=False) == ([{"id": 3}, {"id": 4}], 2)
    assert items(shop)[3] == "pot"
    with pytest.raises(OutputError, match="UNIQUE"):
        ran(shop, "INSERT INTO orders (id) VALUES (5), (1)", is_read_only=False)
    assert len(items(shop)) == 4


PROBLEMS = [
    ("SELECT * FROM nowhere", {}, OutputError, "^sqlite shop.db: no such table: nowhere$"),
    ("SELECT 1; SELECT 2", {}, OutputError, "one statement at a time"),
    ("SELECT id, id FROM orders", {}, OutputError, "two columns are named 'id'; rename one with AS"),
    ("SELECT * FROM orders", {"max_rows": 2}, OutputError, "more than 2 rows; add a LIMIT, or set maxRows"),
    ("SELECT 9e999 AS n", {}, OutputError, "not plain JSON data"),
    ("SELECT 1", {"url": "sqlite:///none.db"}, ConnectionError, "unable to open database file"),
    ("SELECT 1", {"url": "sqlite:///none.db", "is_read_only": False}, ConnectionError, "unable to open"),
    (
        "SELECT 1",
        {"url": "postgresql://me:hush@127.0.0.1:1/db"},
        ConnectionError,
        "postgresql 127.0.0.1:1/db:",
    ),
    ("SELECT 1", {"url": "mysql://me:hush@here/db"}, ConfigError, "set readOnly: false|not installed"),
    ("SELECT 1", {"url": "shop.db"}, ConfigError, "Expected the URL of a database"),
    ("SELECT 1", {"url": "odbc9://me:hush@here/db"}, ConfigError, "Expected the URL of a database"),
]


@pytest.mark.parametrize(("query", "options", "error", "message"), PROBLEMS)
def test_problems_say_which_database_it_is_and_no_password(shop, query, options, error, message):
    with pytest.raises(error, match=message) as found:
        ran(shop, query, **options)
    assert "hush" not in str(found.value)
    assert not (shop / "none.db").exists()


def test_a_statement_that_takes_too_long_is_interrupted(shop):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS n FROM n"
    began = time.monotonic()
    with pytest.raises((TimeoutError, OutputError), match=r"did not answer within 0.2 s|interrupted"):
        ran(shop, endless, seconds=0.2)
    assert time.monotonic() - began < 10


COLUMNS = "id int, price numeric, at timestamptz, tags text[], more jsonb, uid uuid"
ROWS = """(1, 4.5, '2026-11-22 12:00+00', '{a,b}', '{"k": [1]}', '00000000-0000-0000-0000-000000000001'),
(2, 7, NULL, NULL, NULL, NULL)"""
READ_ONLY = ["DELETE FROM orders", "TRUNCATE orders", "SELECT nextval('s')"]
SEVERAL = [
    "COMMIT; DELETE FROM orders",
    "SET TRANSACTION READ WRITE; DELETE FROM orders",
    "COMMIT; BEGIN READ WRITE; DELETE FROM orders; COMMIT",
]


def test_postgresql(postgres):
    postgres.ask(f"CREATE TABLE orders ({COLUMNS})")
    postgres.ask(f"INSERT INTO orders VALUES {ROWS}")  # noqa: S608 (the test's own)
    postgres.ask("CREATE SEQUENCE s")
    url = postgres.url
    rows, _ = ran(None, "SELECT * FROM orders WHERE id <= :most ORDER BY id", url, values={"most": 2})
    assert rows[0]["price"] == 4.5
    assert rows[0]["at"].startswith("2026-11-22T12:00")
    assert (rows[0]["tags"], rows[0]["more"], rows[1]["price"]) == (["a", "b"], {"k": [1]}, 7)
    assert rows[0]["uid"] == "00000000-0000-0000-0000-000000000001"
    for query in READ_ONLY:
        with pytest.raises(OutputError, match="read-only transaction"):
            ran(None, query, url)
    for query in SEVERAL:
        with pytest.raises(OutputError, match="multiple commands"):
            ran(None, query, url)
    assert ran(None, "DELETE FROM orders WHERE id = 1", url, is_read_only=False) == ([], 1)
    with pytest.raises((TimeoutError, OutputError), match=r"did not answer|statement timeout"):
        ran(None, "SELECT pg_sleep(60)", url, seconds=0.3)
    assert postgres.ask("SELECT count(*) FROM orders") == [(1,)]


AGENT = """\
name: seller
env: [SHOP]
stages:
  sense:
    substages:
      - type: sql
        name: orders
        config: {url: "{{ env.SHOP }}", query: "SELECT * FROM orders WHERE id >= :from", with: {from: 2}}
  reason:
    substages:
      - type: plan
        name: plan
        config: {rules: [{action: log, params: {item: "{{ environmentalData.payload.orders[0].item }}"}}]}
  actuate:
    substages:
      - type: execute
        name: act
        config:
          actions:
            - type: sql
              name: log
              url: "{{ env.SHOP }}"
              query: "INSERT INTO done VALUES (:item, :idempotency_key)"
              with: {item: "{{ params.item }}"}
              readOnly: false
"""


def test_a_source_and_an_action(shop, monkeypatch):
    monkeypatch.setenv("SHOP", f"sqlite:///{shop}/shop.db")
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute("CREATE TABLE done (item TEXT, key TEXT UNIQUE)")

    async def main():
        async with monitor(text=AGENT, storage=MemoryStore()) as agent:
            return await agent.run_cycle()

    result = run(main())
    assert result.status == "finished", result.error
    assert result.state["environmentalData"]["payload"]["orders"][0]["item"] == "cup"
    [action] = result.state["derivedData"]["execution"]["actions"]
    assert (action["status"], action["result"]) == ("succeeded", {"rows": [], "count": 1})
    rows = ran(shop, "SELECT * FROM done")[0]
    assert rows == [{"item": "cup", "key": action["idempotencyKey"]}]


def test_a_source_that_writes_is_an_effect_with_a_key(shop, monkeypatch):
    monkeypatch.setenv("SHOP", f"sqlite:///{shop}/shop.db")
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute("CREATE TABLE done (item TEXT, key TEXT UNIQUE)")
    claim = {
        "url": "{{ env.SHOP }}",
        "query": "INSERT INTO done VALUES ('cup', :idempotency_key) RETURNING item",
        "readOnly": False,
    }
    spec = spec_of(sense=[{"type": "sql", "name": "claim", "config": claim}])
    store, cycles = MemoryStore(), []
    for resumes in (False, True):
        cycle, _ = cycle_of(
            spec.model_copy(update={"env": ["SHOP"]}), step=Journalled(store, "cycle-7", resumes=resumes)
        )
        run(sense(spec.stages.sense, cycle))
        cycles.append(cycle)
    assert [one.state.environmental_data["payload"] for one in cycles] == [{"claim": [{"item": "cup"}]}] * 2
    assert ran(shop, "SELECT * FROM done")[0] == [
        {"item": "cup", "key": cycles[0].idempotency_key("sense/claim")}
    ]


BAD = [
    ("with: {from: 2}", "with: {}", "the parameter 'from' has no value; give one under 'with'", 8),
    ("with: {from: 2}", "with: {from: 2, form: 1}", "the query has no parameter :form", 8),
    (">= :from", ">= {{ cycle }}", "a query is not a template, so that no value can become SQL", 8),
    (", :idempotency_key", ", :idempotence_key", "the parameter 'idempotence_key' has no value", 23),
    ('url: "{{ env.SHOP }}", query', "url: shop.db, query", "Expected the URL of a database", 8),
    ('url: "{{ env.SHOP }}", query', 'url: "{{ env.SHOPS }}", query', "'SHOPS' is not listed under 'env'", 8),
    ('query: "SELECT', 'qeury: "SELECT', "qeury", 8),
    ("with: {from: 2}", "with: {from: 2}, maxRows: 0", "maxRows", 8),
]


@pytest.mark.parametrize(("there", "instead", "message", "line"), BAD)
def test_a_bad_statement_is_an_error_at_its_line(there, instead, message, line):
    with pytest.raises(AgentFileError) as found:
        monitor(text=AGENT.replace(there, instead, 1))
    assert message in str(found.value)
    assert found.value.line == line


def test_urls():
    assert parsed_url("postgresql://me@here/db").drivername == "postgresql+psycopg"
    assert "hush" not in repr(Statement("postgresql://me:hush@here/db", "SELECT 1"))


def test_statements_do_not_block_the_loop(shop):
    async def main():
        slow = run_statement(Statement(URL, "SELECT count(*) FROM orders a, orders b", folder=shop))
        return await asyncio.gather(slow, asyncio.sleep(0, "free"))

    assert run(main())[1] == "free"
