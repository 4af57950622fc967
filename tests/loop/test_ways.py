"""Ways: the next version is made in the way that was a gain before."""

import asyncio
from random import Random

import pytest

from redraft import Agent, QualityCriterion, ReflectionPattern, Runs, ScriptedModel, reflect
from redraft.loop.ways import (
    MODEL_WAYS,
    SAMPLE,
    Revision,
    RevisionEvidence,
    choose_way,
    remember,
    remembered,
    revisions_of,
    stored_evidence,
    ways_of,
)
from redraft.models.testing import Cassette
from redraft.stores.sqlite import MemoryStore
from redraft.types import TokenUsage, Way
from support.commands import document, redraft

SHORT = [way for way in MODEL_WAYS if way != "targeted_edit"]
FEEDBACK, RESAMPLING, ALIKE = (0.15, 0.45), (0.45, 0.15), (0.3, 0.3)
"""The share of gains of another sample and of a revision with feedback."""


def usual(name, **options):
    return Way(name, "check", "short", **options)


def revision(name, *, gain=False, tokens=100):
    return Revision(usual(name), gain, TokenUsage(tokens, 0))


def simulated(model, name, seed, runs=40, *, turned_after=None, tokens=(100, 100)):
    """The ways chosen in each run of an agent whose model fixes so many failures by each way."""
    evidence, luck, chosen = RevisionEvidence(), Random(seed), []  # noqa: S311 (a simulation)
    for run in range(runs):
        sample, feedback = model if turned_after is None or run < turned_after else model[::-1]
        chosen.append([])
        for attempt in (2, 3):
            way = choose_way(evidence, usual(name), SHORT, f"{seed}/{run}/{attempt}")
            is_gain = luck.random() < (sample if way.name == SAMPLE else feedback)
            evidence = evidence.plus([revision(way.name, gain=is_gain, tokens=tokens[way.name != SAMPLE])])
            chosen[-1].append(way.name)
            if is_gain:
                break
    return chosen


def share_of_samples(several, first, last):
    chosen = [way for runs in several for run in runs[first:last] for way in run]
    return chosen.count(SAMPLE) / len(chosen)


@pytest.mark.parametrize("name", [SAMPLE, "full_rewrite"])
def test_the_better_way_is_found_within_20_runs(name):
    sampling = [simulated(RESAMPLING, name, seed) for seed in range(40)]
    revising = [simulated(FEEDBACK, name, seed) for seed in range(40)]
    assert share_of_samples(sampling, 20, 40) >= 0.8
    assert share_of_samples(revising, 20, 40) <= 0.2


def test_the_cheapest_of_equally_good_ways_is_chosen():
    cheap = [simulated(ALIKE, "full_rewrite", seed, tokens=(100, 300)) for seed in range(30)]
    assert share_of_samples(cheap, 20, 40) >= 0.75


def test_a_change_of_the_model_is_followed_within_40_runs():
    several = [simulated(RESAMPLING, SAMPLE, seed, 140, turned_after=100) for seed in range(20)]
    assert share_of_samples(several, 80, 100) >= 0.8
    assert share_of_samples(several, 120, 140) <= 0.25


def test_the_regret_is_at_most_a_quarter_of_always_taking_the_worse_way():
    several = [simulated(RESAMPLING, "full_rewrite", seed, 200) for seed in range(10)]
    worse = 1 - share_of_samples(several, 0, 200)
    assert worse <= 0.25


def test_the_choice_depends_on_the_evidence_and_the_seed_alone():
    evidence = RevisionEvidence().plus([revision(SAMPLE), revision("full_rewrite", gain=True)])
    choices = [choose_way(evidence, usual(SAMPLE), SHORT, str(seed)) for seed in range(50)]
    assert choices == [choose_way(evidence, usual(SAMPLE), SHORT, str(seed)) for seed in range(50)]
    assert {choice.name for choice in choices} >= {SAMPLE, "full_rewrite"}


def test_without_evidence_in_the_situation_it_is_the_usual_way():
    other = Revision(Way("fresh", "judge", "short"), True, TokenUsage(9, 9))
    assert choose_way(RevisionEvidence().plus([other]), usual(SAMPLE), SHORT, "x") == usual(SAMPLE)


GAINS = [revision("full_rewrite", gain=True)] * 14
REASONS = {
    "A rewrite: 14 of 20 rewrites were gains here, and 0 of 1 sample.": [
        *GAINS,
        *[revision("full_rewrite")] * 6,
        revision(SAMPLE),
    ],
    "A rewrite: 14 of 14 rewrites were gains here.": GAINS,
    "A rewrite: 1 of 2 rewrites was a gain here.": [*GAINS[:1], revision("full_rewrite")],
    "A rewrite, not tried here before: 0 of 3 fresh starts were gains here, and 0 of 2 samples.": [
        *[revision(SAMPLE)] * 2,
        *[revision("fresh")] * 3,
    ],
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_reason_names_the_evidence_for_the_choice(reason):
    evidence = RevisionEvidence().plus(REASONS[reason])
    assert choose_way(evidence, usual("full_rewrite"), ["full_rewrite"], "").reason == reason


# --- in runs ------------------------------------------------------------------------------------------------

WORDS = QualityCriterion("words", evaluator="words", evaluator_config={"at_most": 2}, threshold=1.0)


def writer(fixes):
    """A model whose drafts are too long, and whose revisions are right if made in a way that fixes."""
    drafts = iter(range(10_000))

    def answer(request):
        way = "full_rewrite" if request.role == "revision" and len(request.messages) > 2 else SAMPLE
        is_right = request.role == "revision" and way == fixes
        return "two words" if is_right else f"far too many words {next(drafts)}"

    return ScriptedModel(answer)


def agent_of(model, store=False, **options):
    pattern = ReflectionPattern(quality_criteria=[WORDS], max_iterations=2, **options)
    return Agent(model, name="writer", pattern=pattern, keep=store)


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("fixes", [SAMPLE, "full_rewrite"])
def test_an_agent_comes_to_revise_as_its_model_gains(fixes, is_stored):
    async def run():
        store = MemoryStore() if is_stored else False
        results = [await agent_of(writer(fixes), store).run(f"Write {n}.") for n in range(40)]
        return [version.way for result in results[20:] for version in result.history.versions[1:]]

    ways = asyncio.run(run())
    assert sum(way.name == fixes for way in ways) / len(ways) >= 0.8
    assert all(way.reason for way in ways)


def test_a_strategy_of_the_pattern_is_not_overruled():
    async def run():
        for n in range(20):
            await agent_of(writer(SAMPLE)).run(f"Write {n}.")
        result = await agent_of(writer(SAMPLE), revision_strategy="full_rewrite").run("Write.")
        return result.history.versions

    first, *revised = asyncio.run(run())
    assert [version.strategy for version in revised] == ["full_rewrite", "full_rewrite"]
    assert first.way is None
    assert not any(version.way.reason for version in revised)


def test_a_new_agent_revises_by_the_rules_and_records_how():
    result = asyncio.run(agent_of(ScriptedModel(["a b c", "a b c d", "a b"])).run("Write."))
    assert [version.strategy for version in result.history.versions] == ["draft", "fresh", "resample"]
    assert result.history.versions[1].way == Way("fresh", "check", "short")
    assert [revision.is_gain for revision in revisions_of(result.history.versions)] == [False, True]


def test_agents_and_models_learn_for_themselves():
    remember("one", "model", asyncio.run(agent_of(writer(SAMPLE)).run("Write.")).history.versions)
    assert remembered("one", "model").records
    assert not remembered("other", "model").records
    assert not remembered("one", "other").records


def test_a_function_that_revises_is_one_way_among_others(monkeypatch):
    drafts = iter(range(1_000))
    model = ScriptedModel(
        lambda request: "two words" if request.temperature else f"many words {next(drafts)}"
    )
    monkeypatch.setattr("redraft.loop.verbs.model_of", lambda *_, **__: model)

    async def run():
        pattern = ReflectionPattern(quality_criteria=[WORDS], max_iterations=2)
        results = [
            await reflect(f"Write {n}.", revise=lambda output, evaluation: f"{output} more", pattern=pattern)
            for n in range(30)
        ]
        return [version for result in results[15:] for version in result.history.versions[1:]]

    versions = asyncio.run(run())
    assert {version.way.name for version in versions} <= {"resample", "fresh", "revise"}
    assert sum(version.way.name != "revise" for version in versions) / len(versions) >= 0.7
    assert any(version.output == "two words" for version in versions)


def test_plain_functions_have_no_choice():
    async def run():
        pattern = ReflectionPattern(quality_criteria=[WORDS], max_iterations=2)
        return await reflect("Write.", generate=lambda prompt: "a b c", pattern=pattern)

    assert all(version.way is None for version in asyncio.run(run()).history.versions)


def test_a_recording_is_asked_for_what_was_recorded(tmp_path):
    place = tmp_path / "replies.jsonl"

    async def run(model):
        results = [await agent_of(model).run(f"Write {n}.") for n in range(12)]
        return [[version.strategy for version in result.history.versions] for result in results]

    recorded = asyncio.run(run(Cassette(place, record=writer(SAMPLE))))
    assert asyncio.run(run(Cassette(place))) == recorded


def test_a_resumed_run_goes_by_the_evidence_that_it_began_with(monkeypatch):
    class Dies(BaseException):
        pass

    seen = []

    def answer(request):
        if request.role == "revision":
            seen.append(request.messages)
            if len(seen) == 1:
                raise Dies
        return "far too many words"

    async def run():
        store = MemoryStore()
        for n in range(8):
            await agent_of(writer(SAMPLE), store).run(f"Write {n}.")
        with pytest.raises(Dies):
            await agent_of(ScriptedModel(answer), store).run("Write.", run_id="mine")
        for n in range(30):
            await agent_of(writer("full_rewrite"), store).run(f"Write {n} more.")
        await agent_of(ScriptedModel(answer), store).run("Write.", run_id="mine")
        evidence = await stored_evidence(store, "writer", "scripted")
        return evidence, await ways_of(store, {}, 100)

    asyncio.run(run())
    assert seen[0] == seen[1]


# --- what a person sees -------------------------------------------------------------------------------------


def test_runs_shows_the_ways_of_each_agent(project):
    async def run():
        for n in range(12):
            await Agent(
                writer(SAMPLE), name="writer", pattern=ReflectionPattern(quality_criteria=[WORDS])
            ).run(f"Write {n}.")
        return (await Runs().find(limit=1))[0].run_id

    run_id = asyncio.run(run())
    output = redraft("runs", "--ways").stdout
    assert output.startswith("writer  ")
    assert "resample" in output
    ways = document(redraft("runs", "--ways", "--json"))["ways"]
    assert {(way["agent"], way["failure"], way["length"]) for way in ways} == {("writer", "check", "short")}
    assert "were gains here" in redraft("why", run_id).stdout
    assert "were gains here" in redraft("show", run_id, "--json").stdout
