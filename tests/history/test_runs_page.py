from redraft.evals import SuccessCriteria
from redraft.stores.sqlite import MemoryStore, SqliteStore
from redraft.types import PlainTask
from support.commands import document, redraft
from support.dashboards import Seen, described, pages, put
from support.versions import version


def run(run_id, *scores, **fields):
    """A run whose versions have these scores, the last of which is the best one."""
    versions = tuple(
        version(number, score, satisfactory=score > 0.7) for number, score in enumerate(scores, 1)
    )
    known = {"best": len(scores), "final": len(scores), "revisions": len(scores) - 1}
    return described(run_id, versions=versions, **known | fields)


def test_success_criteria_are_shown_on_request_and_of_the_runs_that_match():
    store, better, worse = (
        MemoryStore(),
        run("better", 0.4, 0.8, reason="quality_met"),
        run("worse", 0.4, 0.4, reason="plateau"),
    )
    put(store, better, worse)
    client = pages(store)
    assert "Success criteria of" not in client.get("/runs").text
    assert "criteria" not in client.get("/runs.json").json()
    page = Seen(client.get("/runs?criteria=1").text).words
    assert "Success criteria of 2 runs" in page
    measured = SuccessCriteria.of([better, worse])
    for figure in measured.figures.values():
        mark = {True: "✓ ", False: "✗ ", None: ""}[figure.reached]
        assert f"{figure.title}{mark}{figure.shown_value}{figure.shown_target}{figure.stands_on}" in page
    assert measured.quality_improvement.value == 0.5
    filtered = client.get("/runs.json?criteria=1&reason=plateau").json()
    assert filtered["criteria"]["runs"] == 1
    assert filtered["criteria"]["quality_improvement"]["value"] == 0.0


def test_without_runs_every_success_criterion_is_unknown():
    page = Seen(pages(MemoryStore()).get("/runs?criteria=1").text).words
    assert "Success criteria of 0 runs" in page
    assert page.count("?") == 5


def test_a_text_from_right_to_left_is_cut_at_its_end():
    store = MemoryStore()
    put(store, run("hebrew", 0.8, task=PlainTask("\u05db\u05ea\u05d5\u05d1 \u05de\u05db\u05ea\u05d1")))
    assert '<a dir="auto" href="/runs/hebrew">' in pages(store).get("/runs").text


def test_the_page_and_the_command_list_the_same(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    options = {"quality_threshold": 0.8, "budget_usd": 0.5}
    put(store, run("dear", 0.4, 0.8, options=options), run("cheap", 0.8, options={}))
    listed = pages(store).get("/runs.json").json()["runs"]
    printed = document(redraft("runs", "--database", tmp_path / "runs.db", "--json"))["runs"]
    assert listed == printed
    assert {row["run_id"]: row["budget_usd"] for row in printed} == {"dear": 0.5, "cheap": None}
