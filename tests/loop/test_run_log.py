"""What a run writes to the log: INFO lines, and on request one line of JSON."""

import json
import logging

import pytest

from redraft import QualityCriterion, ReflectionPattern, reflect_sync
from support.pages import Page

PASSWORD = "Sommer" + "4711x"
short = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 2})


def run(drafts=("one two three", "one two"), **options):
    texts = iter(drafts)
    pattern = ReflectionPattern(quality_criteria=[short], **options)
    return reflect_sync("Say it, Ada Lovelace.", generate=lambda prompt: next(texts), pattern=pattern)


@pytest.fixture
def lines(caplog):
    """The lines of the log of runs."""
    caplog.set_level(logging.INFO, "redraft.runs")
    return lambda: [
        json.loads(record.getMessage()) for record in caplog.records if record.name == "redraft.runs"
    ]


def test_the_start_the_versions_and_the_end_are_logged(caplog):
    caplog.set_level(logging.INFO, "redraft")
    result = run()
    begin, first, second, end = [record.getMessage() for record in caplog.records]
    assert begin == f"Run {result.run_id} started."
    assert first == f"Run {result.run_id}: version 1 scored 0.00, the best so far."
    assert second == f"Run {result.run_id}: version 2 scored 1.00, the best so far."
    assert end.startswith(
        f"Run {result.run_id} stopped: the quality threshold was met (quality_met). "
        "It returned version 2, satisfactory. Used: tokens and cost not reported, 0."
    )
    assert not any("Lovelace" in line or "one two" in line for line in (begin, first, second, end))


def test_nothing_is_logged_by_default(caplog):
    run()
    assert caplog.records == []


def test_a_run_is_one_line_on_request(lines):
    result = run()
    [line] = lines()
    assert {name: line[name] for name in list(line)[:2]} == {"schema_version": 1, "event": "run"}
    assert (line["run_id"], line["reason"], line["satisfactory"]) == (result.run_id, "quality_met", True)
    assert (line["versions"], line["best_version"]) == (2, 2)
    assert (line["first_score"], line["best_score"]) == (0.0, 1.0)
    assert (line["cost_usd"], line["failed"], line["error"]) == (None, [], None)


def test_versions_that_are_not_preserved_count(lines):
    result = run(("one two three", "four five six", "one two"), preserve_all_versions=False)
    [line] = lines()
    assert [version.iteration for version in result.history.versions] == [1, 3]
    assert (line["versions"], line["best_version"]) == (3, 3)
    assert repr(result) == "<ReflectionResult quality_met: version 3 of 3, score 1.00>"


def test_the_page_shows_the_line(lines):
    run()
    [documented] = [text for text in Page("docs/runs.md").blocks("json") if "schema_version" in text]
    assert list(json.loads(documented)) == list(lines()[0])


def test_an_error_is_shown_without_secrets(lines):
    def evaluate(text):
        if text == "b":
            raise RuntimeError(f"password={PASSWORD}")
        return 0.1

    drafts = iter("ab")
    reflect_sync("x", generate=lambda prompt: next(drafts), evaluate=evaluate)
    [line] = lines()
    assert (line["reason"], line["best_score"]) == ("error", 0.1)
    assert "RuntimeError" in line["error"]
    assert PASSWORD not in line["error"]


def test_a_run_whose_criteria_are_not_met_names_them(lines):
    run(max_iterations=0)
    assert (lines()[0]["failed"], lines()[0]["satisfactory"]) == (["short"], False)
