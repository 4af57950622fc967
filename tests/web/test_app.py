import asyncio
import json
import re
from urllib.parse import unquote

import pytest

from redraft import Task
from redraft.errors import ConfigError, StoreError
from redraft.loop.record import Origin
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore, SqliteStore
from redraft.web.app import interval
from redraft.web.page import Change, NotFoundError, Slice
from redraft.web.rendering import LONGEST
from support.dashboards import HOSTILE, TOKEN, Seen, described, guarded, pages, put
from support.kept_runs import record
from support.redact_corpus import Maker, person
from support.versions import history, version

BEARER = {"authorization": f"Bearer {TOKEN}"}


async def approve(wanted):
    what = wanted.path["what"]
    if what == "none":
        raise NotFoundError("There is no lesson 'none'.")
    if what == "away":
        raise StoreError("The disk is full.")
    if what == "wrong":
        raise ConfigError("It is approved already.")
    return f"{what} was approved {wanted.text('how', 'at once')}."


@pytest.fixture
def changes(monkeypatch):
    """A dashboard with a change, and what posts to it."""
    own = Slice((), (Change("/lessons/{what}/approve", approve),))
    monkeypatch.setattr("redraft.dashboard.slices", lambda: [own])
    client, _ = guarded(MemoryStore())

    def post(what, content, **headers):
        return client.post(
            f"/lessons/{what}/approve",
            content=content,
            headers={**BEARER, "content-type": "application/json", **headers},
        )

    return post


@pytest.mark.parametrize(
    ("what", "content", "status", "told"),
    [
        ("it", "{}", 200, {"message": "it was approved at once."}),
        ("it", '{"how": "by hand"}', 200, {"message": "it was approved by hand."}),
        ("it", '{"how": 3}', 400, {"error": "The field 'how' must be a string, got 3."}),
        ("none", "{}", 404, {"error": "There is no lesson 'none'."}),
        ("away", "{}", 503, {"error": "The disk is full."}),
        ("wrong", "{}", 400, {"error": "It is approved already."}),
        ("it", "[]", 400, {"error": "The body must be a JSON object with the fields of the form."}),
        ("it", "{", 400, None),
        ("it", "[" * 100_000, 400, None),
        ("it", b"\xff\xfe", 400, None),
    ],
)
def test_a_change_answers_with_a_message(changes, what, content, status, told):
    answer = changes(what, content)
    assert answer.status_code == status
    assert answer.json() == told if told else "error" in answer.json()


def test_a_body_that_is_too_large_is_refused(changes):
    answer = changes("it", (b"x" * 300_000 for _ in range(5)))
    assert (answer.status_code, list(answer.json())) == (413, ["error"])


def test_get_does_not_trigger_a_change(changes):
    client, _ = guarded(MemoryStore())
    assert client.get("/lessons/it/approve", headers=BEARER).status_code in (404, 405)


def hostile(text):
    """A run with a text in each place that a page shows."""
    return described(
        "a-run",
        task=Task(text, expected_output=text, context=text),
        origin=Origin("agent", text, text),
        versions=tuple(history(0.2, 0.6, output=f"{text} once more")),
        diagnostics={"note": text},
        error=text,
    )


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("path", ["/runs", "/runs/a-run"])
def test_content_of_a_run_is_escaped(text, path):
    store = MemoryStore()
    put(store, hostile(text))
    client = pages(store)
    answer = client.get(path)
    assert answer.status_code == 200
    seen = Seen(answer.text)
    assert {"script", "style", "iframe", "img", "base", "object"} & seen.tags <= {"script"}
    assert answer.text.count("<script") == 1  # ours
    assert not [name for name, value in seen.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith(("/", "#")) for link in seen.links)
    assert not any(ord(one) < 32 and one not in "\n\t" for one in answer.text)
    assert client.get(f"{path}.json").json()


@pytest.mark.parametrize("name", ["<script>", "a&reason=plateau", "\x1b[31m", "%ff", "javascript:alert(1)"])
def test_query_parameters_are_escaped(name):
    for query in ({"name": name}, {"before": name}, {"status": name}):
        answer = pages(MemoryStore()).get("/runs", params=query)
        assert answer.status_code in (200, 400, 404)
        assert "<script>" not in answer.text
        assert "\x1b" not in answer.text


def test_large_outputs_are_cut_with_a_link_to_the_rest():
    store, whole = MemoryStore(), "many words " * 470_000
    put(store, described("large", versions=tuple(history(0.2, 0.6, output=whole))))
    client = pages(store)
    page = client.get("/runs/large")
    assert len(page.content) < 10 * LONGEST
    assert "[cut here: " in page.text
    assert "/runs/large/versions/2.txt" in Seen(page.text).links
    text = client.get("/runs/large/versions/2.txt")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text == whole


def test_a_lone_surrogate_is_shown_as_an_escape():
    store = MemoryStore()
    put(store, described("it", versions=(version(1, 0.5, "a \ud83d b"),)))
    assert pages(store).get("/runs/it/versions/1.txt").text == "a \\ud83d b"
    assert json.loads(pages(store).get("/runs/it.json").content)["versions"][0]["output"] == "a \ud83d b"


def test_a_secret_is_withheld_on_every_page(monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    monkeypatch.setenv("MY_API_KEY", secret)
    told, personal = person(Maker())
    store = MemoryStore()
    put(
        store,
        hostile(f"the word {secret} here, {told}"),
        record((version(1, 0.5, "x" * (LONGEST - 9) + secret),), run_id="b"),
    )
    client = pages(store)
    for path in (
        "/runs",
        "/runs.json",
        "/runs/a-run",
        "/runs/a-run.json",
        "/runs/a-run/versions/2.txt",
        "/runs/b",
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "zeppelin" not in answer.text, path
        assert not any(value in answer.text for value in personal), path


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/", 303, ""),
        ("/nothing", 404, "<h1>Not found</h1>"),
        ("/static/../app.py", 404, ""),
        ("/static/app.py", 404, "There is no file"),
        ("/runs/unknown", 404, "There is no run &#39;unknown&#39; here"),
        ("/runs/unknown.json", 404, '{"error":"There is no run'),
        ("/runs/it/versions/9.txt", 404, "has no version"),
        ("/runs/it/versions/x.txt", 404, "A version must be a number"),
        ("/runs?status=odd", 400, "Unknown status &#39;odd&#39;"),
        ("/runs?reason=odd", 400, "Unknown reason &#39;odd&#39;"),
        ("/runs?name=a&before=unknown", 404, "Can&#39;t page from the run"),
    ],
)
def test_a_missing_page_is_a_404_page(path, status, told):
    store = MemoryStore()
    put(store, described("it"))
    answer = pages(store).get(path)
    assert (answer.status_code, told in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("damage", ["away", "not a database", "a record"])
def test_an_unreadable_store_is_reported_on_every_page(tmp_path, damage):
    path = tmp_path / "r.db"
    store = SqliteStore(path)
    put(store, described("it"))
    if damage == "a record":
        import sqlite3

        with sqlite3.connect(path) as connection:
            connection.execute('UPDATE records SET data = \'{"task": 3, "inner": false}\'')
        connection.close()
    else:
        asyncio.run(store.aclose())
        path.unlink()
        (path.mkdir if damage == "away" else lambda: path.write_bytes(b"SQLite format 3\0" + b"x" * 5000))()
    client = pages(store)
    of_the_run = ("/runs/it", "/runs/it.json", "/runs/it/diff")
    of_all = ("/runs", "/runs.json", "/runs?name=x", "/evaluations", "/spend", "/spend.json", "/tasks")
    for page in (*of_the_run, *of_all):
        answer = client.get(page)
        one_record = damage == "a record" and page in of_all  # which must not hide the others
        assert answer.status_code == (200 if one_record else 503), (page, answer.text)
    assert "The store can&#39;t be read" in client.get("/runs/it").text
    asyncio.run(store.aclose())


@pytest.mark.parametrize(
    ("kind", "path"), [("run", "/runs"), ("workflow", "/runs"), ("noted_task", "/tasks")]
)
def test_a_record_of_another_schema_is_listed_with_what_to_do(kind, path):
    store = MemoryStore()
    put(store, described("it"))
    asyncio.run(store.put(Record(kind, "odd-one", {"name": 3, "from": "a newer Redraft"})))
    client = pages(store)
    for answer in (client.get(path), client.get(f"{path}.json")):
        assert answer.status_code == 200, answer.text
        assert "odd-one" in answer.text
        assert "damaged" in answer.text
        assert path == "/tasks" or "Describe the bridge" in answer.text
    assert "if a newer Redraft wrote it, upgrade" in client.get(f"{path}.json").text


@pytest.mark.parametrize("run_id", ["x.json", "x.events", "x.JSON", "a.b", "x.json.json"])
def test_an_id_that_ends_like_the_data_of_a_page_has_a_page(run_id):
    store = MemoryStore()
    for each in {run_id, "x"}:
        put(store, described(each))
    client = pages(store)
    links = re.findall(r'href="(/runs/[^"]+)"', client.get("/runs").text)
    [path] = [link for link in links if unquote(link) == f"/runs/{run_id}"]
    page = client.get(path)
    assert page.headers["content-type"].startswith("text/html")
    assert f'<span class="id">{run_id}</span>' in page.text
    [data] = re.findall(r'href="(/runs/[^"]+\.json)"', page.text)[:1]
    document = client.get(data).json()
    assert document["run_id"] == run_id


class MuteError(Exception):
    def __str__(self):
        raise KeyError


@pytest.mark.parametrize(
    ("error", "message"),
    [(ValueError("surprise"), "ValueError: surprise"), (MuteError(), "whose str() raises KeyError")],
)
def test_a_defect_is_a_500_page(error, message, monkeypatch):
    def broken(*_):
        raise error

    store = MemoryStore()
    put(store, described("it"))
    monkeypatch.setattr("redraft.history.run_page.Runs", broken)
    answer = pages(store).get("/runs/it")
    assert (answer.status_code, message in answer.text) == (500, True)


@pytest.mark.parametrize("path", ["/runs", "/runs/a-run", "/runs/a-run/diff"])
def test_the_navigation_marks_the_current_page(path):
    store = MemoryStore()
    put(store, described("a-run"))
    assert '<a href="/runs" aria-current="page">Runs</a>' in pages(store).get(path).text


@pytest.mark.parametrize(("took", "seconds"), [(0.0, 1.0), (0.05, 1.0), (0.4, 4.0), (60.0, 10.0)])
def test_a_slow_page_is_refreshed_less_often(took, seconds):
    assert interval(took) == seconds
