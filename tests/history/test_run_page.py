import asyncio
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from time import perf_counter

import pytest

from redraft import (
    Agent,
    Issue,
    MemoryStore,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    Task,
    TokenUsage,
)
from redraft.history.run_page import MOST, excerpt, notes_of, run_page, versions_in_full
from redraft.loop.record import Origin
from redraft.loop.runs import Runs, StoredRun
from redraft.text.characters import visible
from redraft.types import Advice, Choice, ConvergenceReason, Reflection
from redraft.web.rendering import LONGEST
from support.dashboards import HOSTILE, VOID, Seen, pages, put
from support.kept_runs import GONE, kept, ran, record
from support.versions import history, version


def test_each_note_on_versions_is_a_line():
    notes = {"a": "One sentence. And another.", "b": "First. Version 2: c. Versions 3, 4 and 5: d."}
    lines = notes_of(record(history(0.5), "plateau", diagnostics=notes))
    assert lines == ["One sentence. And another.", "First.", "Version 2: c.", "Versions 3, 4 and 5: d."]


MANY = MOST + 15
BEST = 4


def many():
    """A store with a run of many versions whose fourth is the best, and the run."""
    judged = []

    def better(output):
        judged.append(output)
        return 0.7 if len(judged) == BEST else 0.1

    model = ScriptedModel(lambda _: f"Draft {len(judged) + 1} says so.")
    score = QualityCriterion("better", evaluator="function", evaluator_config={"function": better})
    pattern = ReflectionPattern(
        max_iterations=MANY,
        revision_strategy="full_rewrite",
        quality_criteria=[score],
        until=lambda versions: ConvergenceReason.PLATEAU if len(versions) == MANY else None,
    )
    store = MemoryStore()

    async def main():
        await Agent(model, pattern=pattern, keep=store).run("Say it.", run_id="many")
        runs = Runs(store)
        return StoredRun(await runs.get("many"), tuple(await runs.steps("many")))

    run = asyncio.run(main())
    assert (len(run.record.versions), run.record.best) == (MANY, BEST)
    return store, run


@pytest.mark.parametrize(
    ("scores", "whole"),
    [
        ([], set()),
        ([0.5], {1}),
        ([0.5] * MOST, set(range(1, MOST + 1))),
        ([0.5] * (MOST + 1), {1, *range(4, MOST + 2)}),
        ([0.1, 0.2, 0.9, *[0.1] * MOST], {1, 3, *range(6, MOST + 4)}),
        ([*[0.1] * MOST, 0.9, 0.1], {1, *range(5, MOST + 3)}),
    ],
)
def test_the_first_best_and_newest_versions_are_shown_in_full(scores, whole):
    made = record(history(*scores), "plateau", run_id="a")
    assert versions_in_full(made) == whole
    assert len(whole) <= MOST


def test_an_excerpt_keeps_the_sums_and_drops_texts():
    _, run = many()
    less = excerpt(run)
    assert less.after_best == run.after_best
    assert less.record.usage == run.record.usage
    assert len(less.outer_steps) == len(run.outer_steps)
    said = {version.iteration for version in less.record.versions if version.output}
    assert said == versions_in_full(run.record)
    asked = {stretch.version for stretch in less.timeline if stretch.inner}
    assert asked == said
    few = StoredRun(record(history(0.5, 0.6), "plateau", run_id="a"))
    assert excerpt(few) is few


def test_the_page_links_to_texts_that_it_cuts():
    store, _ = many()
    client = pages(store)
    page = client.get("/runs/many").text
    seen = Seen(page)
    for number in range(1, MANY + 1):
        is_whole = number in {1, BEST, *range(MANY - MOST + 3, MANY + 1)}
        assert f"Draft {number} says so." in seen.words or not is_whole
        assert (f"/runs/many/versions/{number}.txt" in seen.links) == (not is_whole)
    assert f"/runs/many/diff?a={BEST}&b=9" in seen.links  # revised from the best
    assert client.get("/runs/many/versions/9.txt").text == "Draft 9 says so."
    versions = client.get("/runs/many.json").json()["versions"]
    assert len(versions) == MANY
    assert all(version["output"] == f"Draft {version['iteration']} says so." for version in versions)


def test_a_version_lists_what_failed_and_each_reason_once():
    said = [("Fine as it is.", "met"), ("Two words are missing.", "a"), ("Two words are missing.", "b")]
    issues = tuple(Issue(message, criterion) for message, criterion in said)
    scores = {"met": 0.9, "a": 0.1, "b": 0.1}
    failed = version(1, 0.4, issues=issues, criteria_scores=scores, unmet=("a", "b"))
    met = version(2, 0.9, issues=issues[:1], criteria_scores=scores | {"a": 1.0, "b": 1.0}, satisfactory=True)
    store = MemoryStore()
    put(store, record([failed, met], "quality_met", run_id="both"))
    versions = pages(store).get("/runs/both").text.partition('id="versions"')[2].partition('id="time"')[0]
    listed = versions.partition("Changes from version")[0]
    assert listed.count("Two words are missing.") == 1
    assert "Fine as it is." not in listed


@pytest.mark.parametrize("path", ["/runs/ours", "/runs/ours.json", "/runs/ours/diff"])
def test_criteria_are_shown_as_they_were_written(path):
    says = "The tone of Olumide Fashola, our founder."
    run = record(
        [version(1, 0.5, "By Thandiwe Mokoena, today", issues=(Issue(says),))], "plateau", run_id="ours"
    )
    criteria = [{**run.options["criteria"][0], "name": "tone", "description": says}]
    store = MemoryStore()
    put(store, replace(run, options={**run.options, "criteria": criteria}))
    page = pages(store).get(path)
    assert page.status_code == 200
    assert says in page.text
    assert "Mokoena" not in page.text


def test_the_exported_page_has_every_output():
    _, run = many()
    words = Seen(run_page(run)).words
    assert all(f"Draft {number} says so." in words for number in range(1, MANY + 1))


OURS = VOID | {
    *("html", "head", "title", "style", "body", "header", "h1", "h2", "h3", "h4", "p", "time", "span"),
    *("details", "summary", "nav", "a", "main", "code", "strong", "ul", "li", "dl", "div", "dt", "dd"),
    *("figure", "svg", "text", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "caption"),
    *("section", "small", "article", "del", "ins", "footer"),
}


def hostile(text):
    """A kept run with a text in every place that one can have."""
    issue = Issue(text, text, text, 3)
    versions = history(0.2, 0.6, 0.4)
    for each in versions:
        each.output, each.strategy, each.base = f"{text} {each.iteration} of some words", text, 1
        each.evaluation = replace(
            each.evaluation, issues=(issue,), suggestions=(text,), criteria_scores={text: 0.5, "other": None}
        )
    versions[2].output = {text: [text]}
    versions[0].choice = Choice(text, {text: text}, (replace(versions[1], candidate=2),))
    run = kept(
        versions, "plateau", run_id=text, task=Task(text, text, context=text), error=text, parent=text,
        origin=Origin("agent", text, text), diagnostics={text: text}, advice=(Advice(text, text, text, 3),),
        reflections=(Reflection("error", text, 2, 1), Reflection("manual", "", 2, problem=text)),
        usage_by_role={text: TokenUsage(1, 2)},
    )  # fmt: skip
    return replace(run, steps=ran((text, 0.1), OSError(text)).steps)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_of_a_run_are_escaped(text):
    page = run_page(hostile(text))
    page.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    seen = Seen(page)
    assert seen.tags <= OURS
    assert " ".join(visible(text).split()) in seen.words
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("style", "src")]
    assert all(link.startswith("#") for link in seen.links)


def test_the_exported_page_loads_nothing_and_has_no_script():
    page = run_page(ran(("a b c d", 0.1), ("a b c e", 1.0)))
    policy = next(value for _, value in Seen(page).attributes if value.startswith("default-src"))
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)[1]
    allowed = b64encode(sha256(style.encode()).digest()).decode()
    expected = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    assert policy == expected
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?:", page)


def test_links_have_targets_and_ids_are_unique():
    seen = Seen(run_page(hostile("x")))
    assert len(set(seen.ids)) == len(seen.ids)
    assert {link.removeprefix("#") for link in seen.links} <= set(seen.ids)


def test_the_parts_of_a_run_are_shown():
    words = Seen(run_page(ran(("one two three", 0.1), ("one two four", 0.9), quality_threshold=0.8))).words
    for said in (
        "Why it stopped: quality_met",
        "Version 2 scored 0.90 >= 0.80",
        "✓ Version 2 meets the criteria.",
        "From version 1 to version 2.",
        "$0.0200",
        "generation",
        "evaluate",
    ):
        assert said in words


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (kept([]), "State: running"),
        (kept([], process=GONE), "State: interrupted"),
        (kept([version(1, None)], "unjudged"), "not judged"),
        (kept([version(1, None)], "unjudged"), "Version 1, the best, was not fully judged:"),
        (kept(history(0.5, 0.4), "plateau"), "The first version is the best one; no revision beat it."),
        (kept(history(*[0.3] * 40), "max_iterations"), "Version 40"),
        (
            kept([version(1, 0.5, spread=0.2), version(2, 0.5, repeats=1)], "plateau"),
            "the margin of error",
        ),
        (kept([version(1, 0.5, {"a": 1}), version(2, 0.9, {"a": 2})], "plateau"), "/a"),
        (kept(history(0.5), "plateau", usage_by_role={"a": TokenUsage(cost_usd=None)}), "not known"),
        (kept(history(0.5), "plateau", revisions=3), "not all versions are stored"),
    ],
)
def test_every_kind_of_run_has_a_page(run, said):
    assert said in Seen(run_page(run)).words


def test_a_run_is_watched_from_before_its_first_step():
    store = MemoryStore()
    put(store, record([], run_id="begun"))
    assert "/runs/begun.events" in pages(store).get("/runs/begun").text


def test_outputs_of_a_megabyte_are_cut_quickly():
    big = "".join(f"word{number} <b>\n" for number in range(80_000))
    started = perf_counter()
    page = run_page(kept([version(1, 0.2, big), version(2, 0.5, big.upper())], "plateau"))
    assert perf_counter() - started < 60
    assert len(page) < 12 * LONGEST
    assert "more characters]" in page


def test_the_preference_of_the_judge_is_shown():
    page = run_page(kept([version(1, 0.6), version(2, 0.6, preferred=1.0, base=1)], "plateau"))
    assert "from version 1, preferred to the best before" in Seen(page).words


def test_rejected_candidates_are_shown_with_the_chosen_candidate():
    store = MemoryStore()
    ran(("a dull text", (0.2, "dull")), ("a lively text", 0.7), store=store, candidates=2, max_iterations=0)
    client = pages(store)
    seen = Seen(client.get("/runs/a-run").text)
    assert "Candidate 2 of 2 is the best by the checks (1: 0.20, 2: 0.70)." in seen.words
    assert "Candidate 1.1, not chosen: 0.20 dull a dull text" in seen.words
    assert "/runs/a-run/diff?a=1.1&b=1" in seen.links
    diff = Seen(client.get("/runs/a-run/diff?a=1.1&b=1").text).words
    assert "version 1.1 (0.20) to version 1 (0.70)" in diff
    assert client.get("/runs/a-run/versions/1.1.txt").text == "a dull text"
    assert client.get("/runs/a-run/versions/1.2.txt").status_code == 404
    assert client.get("/runs/a-run.json").json()["versions"][0]["choice"]["numbers"]["chosen"] == 2


def test_a_stored_criterion_without_a_threshold_has_the_default():
    run = kept(history(0.5), "plateau")
    for criterion in run.record.options["criteria"]:
        criterion.pop("threshold", None)
    assert run.thresholds == {"short": 0.7}
    assert "0.70" in Seen(run_page(run)).words
