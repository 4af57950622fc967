"""The page of a run with many versions: some of them whole, of the others what the tables say."""

import asyncio

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.history.excerpt import MOST, excerpt, whole_versions
from redraft.history.export import run_page
from redraft.loop.runs import KeptRun, Runs, after_best, timeline
from redraft.types import ConvergenceReason
from support.dashboards import Seen, pages
from support.kept_runs import record
from support.versions import history

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
        return KeptRun(await runs.get("many"), tuple(await runs.steps("many")))

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
def test_the_first_the_best_and_the_newest_are_whole(scores, whole):
    made = record(history(*scores), "plateau", run_id="a")
    assert whole_versions(made) == whole
    assert len(whole) <= MOST


def test_an_excerpt_counts_what_the_run_does_and_says_less():
    _, run = many()
    less = excerpt(run)
    assert after_best(less) == after_best(run)
    assert less.record.usage == run.record.usage
    assert len(less.outer_steps) == len(run.outer_steps)
    said = {one.iteration for one in less.record.versions if one.output}
    assert said == whole_versions(run.record)
    asked = {stretch.version for stretch in timeline(less) if stretch.inner}
    assert asked == said
    few = KeptRun(record(history(0.5, 0.6), "plateau", run_id="a"))
    assert excerpt(few) is few


def test_its_page_leads_to_what_it_does_not_show():
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
    assert all(one["output"] == f"Draft {one['iteration']} says so." for one in versions)


def test_the_exported_page_has_every_output():
    _, run = many()
    words = Seen(run_page(run)).words
    assert all(f"Draft {number} says so." in words for number in range(1, MANY + 1))
