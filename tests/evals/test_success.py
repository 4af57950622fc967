"""The five success criteria of the specification."""

import asyncio

import pytest

from redraft import Agent, ConfigError, ModelError, QualityCriterion, ReflectionPattern, Runs, ScriptedModel
from redraft._codec import to_json
from redraft.evals import SuccessCriteria, success_criteria
from redraft.loop.record import Origin
from redraft.loop.select import BestScores
from redraft.stores.sqlite import MemoryStore
from redraft.types import Issue
from support.kept_runs import record
from support.versions import version


def run(*scores, reason="max_iterations", **fields):
    """A record of a run with these scores, satisfactory from 0.8; a pair has issues, too."""
    versions, best_scores = [], BestScores()
    for number, given in enumerate(scores, 1):
        score, issues = given if isinstance(given, tuple) else (given, ())
        good = score is not None and score >= 0.8
        base = {"base": number - 1} if number > 1 else {}
        versions.append(
            version(
                number, score, f"text {number}", satisfactory=good, issues=tuple(map(Issue, issues)), **base
            )
        )
    for one in versions:
        one.gain = best_scores.gain(one.evaluation)[0]
    return record(versions, reason, **fields)


def figure(name, *records):
    found = SuccessCriteria.of(records).figures[name]
    return found.met, found.cases, found.unknown


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (run(0.5, 0.9, reason="quality_met"), (1, 1, 0)),
        (run(0.5, 0.4), (0, 1, 0)),
        (run(0.5, 0.5), (0, 1, 0)),
        (run(0.5, 0.9, 0.7), (1, 1, 0)),  # the best is returned
        (run(0.9, reason="quality_met"), (0, 0, 0)),  # it did not revise
        (run(None, 0.9, reason="quality_met"), (0, 0, 1)),
        (run(None, None), (0, 0, 1)),
        (run(0.5, 0.9, status="failed"), (1, 1, 0)),
        (run(), (0, 0, 0)),
    ],
)
def test_quality_improvement(one, expected):
    assert figure("quality_improvement", one) == expected


def test_a_gain_within_the_margin_of_error_is_no_improvement():
    first, second = version(1, 0.5, "a", spread=0.2), version(2, 0.6, "b", spread=0.2, base=1)
    assert figure("quality_improvement", record([first, second], "max_iterations", best=2)) == (0, 1, 0)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (run(0.9, reason="quality_met"), (1, 1, 0)),
        (run(0.1, 0.2, 0.3, 0.9, reason="quality_met"), (1, 1, 0)),
        (run(0.1, 0.2, 0.3, 0.4, 0.9, reason="quality_met"), (0, 1, 0)),  # the fourth revision is too late
        (run(0.1, 0.2), (0, 1, 0)),
        (run(None), (0, 0, 1)),
        (run(0.1, status="cancelled"), (0, 0, 1)),
        (run(0.1, status="failed"), (0, 0, 1)),
        (run(status="failed"), (0, 0, 1)),
        (run(0.9, status="failed"), (1, 1, 0)),
    ],
)
def test_convergence(one, expected):
    assert figure("convergence", one) == expected


def test_a_late_success_is_unknown_if_earlier_versions_were_not_stored():
    whole = run(0.1, 0.2, 0.3, 0.4, 0.9, reason="quality_met", best_version_selection="latest")
    whole.versions = (whole.versions[0], whole.versions[-1])
    assert figure("convergence", whole) == (0, 0, 1)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (run((0.5, ["too long"]), 0.9, reason="quality_met"), (1, 1, 0)),
        (run((0.5, ["too long", "no price"]), (0.6, ["no price"]), 0.9), (2, 3, 0)),
        (run((0.5, ["too long"]), None), (0, 0, 1)),
        (run((0.5, ["too long"])), (0, 0, 0)),
    ],
)
def test_issue_resolution(one, expected):
    assert figure("issue_resolution", one) == expected


def test_a_fresh_start_is_measured_by_the_issues_in_its_prompt():
    first = version(1, 0.5, "a", issues=(Issue("too long"),))
    worse = version(2, 0.2, "b", issues=(Issue("it is rude"),), base=1)
    fresh = version(3, 0.9, "c", issues=(Issue("it is rude"),), strategy="fresh")
    # Version 2 lacks "too long", and so does version 3, which started from the issues of version 1.
    assert figure("issue_resolution", record([first, worse, fresh], "max_iterations")) == (2, 2, 0)


def test_only_issues_in_a_prompt_count():
    first = version(1, 0.5, "a", issues=(Issue("too long", "long"), Issue("the secret", "hidden")))
    first.evaluation.shown = {"hidden": False}
    again = version(2, 0.5, "b", issues=first.evaluation.issues, strategy="resample")
    again.evaluation.shown = first.evaluation.shown
    revised = version(3, 0.9, "c", base=1)
    assert figure("issue_resolution", record([first, again, revised], "max_iterations")) == (1, 1, 0)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (run(0.5, 0.9, reason="quality_met"), (1, 1, 0)),
        (run(0.5, 0.9, 0.95), (0, 1, 0)),  # it went on after the quality was met
        (run(0.5, 0.5, 0.5, reason="plateau"), (1, 1, 0)),
        (run(0.5, 0.5, 0.5, 0.5), (0, 1, 0)),  # it went on after a plateau
        (run(0.5, 0.5, 0.5, 0.5, plateau_iterations=3, reason="plateau"), (1, 1, 0)),
        (run(0.3, 0.5, reason="diminishing"), (1, 1, 0)),
        (run(0.3, 0.5, 0.7), (0, 0, 0)),  # neither was reached
        (run(0.3, reason="token_budget"), (0, 0, 0)),
    ],
)
def test_termination(one, expected):
    assert figure("termination", one) == expected


def test_the_figures_of_no_runs_are_unknown():
    measured = SuccessCriteria.of([])
    assert measured.runs == 0
    assert {figure.value for figure in measured.figures.values()} == {None}
    assert {figure.reached for figure in measured.figures.values()} == {None}


def test_targets_are_those_of_the_specification():
    measured = SuccessCriteria.of([run(0.5, 0.9, reason="quality_met")] * 4 + [run(0.5, 0.4)])
    improved = measured.quality_improvement
    assert (improved.value, improved.target, improved.reached) == (0.8, 0.8, True)
    assert [figure.target for figure in measured.figures.values()] == [0.8, 0.7, 0.85, 0.1, 0.9]


# --- consistency ---------------------------------------------------------------------------------------


def scoring(*scores):
    """A judge that gives these scores to all criteria."""
    left = list(scores)

    def reply(request):
        score = left.pop(0)
        if isinstance(score, Exception):
            raise score
        names = request.schema["properties"]["criteria"]["properties"]
        return {
            "criteria": {name: {"reason": "r", "score": score} for name in names},
            "issues": [],
            "suggestions": [],
            "confidence": 1.0,
        }

    return ScriptedModel(reply)


def stored(store, *scores, criteria=("clarity",), **options):
    """Run agents once for each score, and keep the runs."""
    judge = scoring(*scores)
    pattern = ReflectionPattern(1, criteria, reflection_model=judge, until=lambda _: True, **options)
    for number in range(len(scores)):
        Agent(ScriptedModel(["a text"]), pattern=pattern, keep=store).run_sync(f"Write {number}.")


def measure(store, **options):
    return asyncio.run(success_criteria(store, **options))


def judging(*scores, **options):
    return ReflectionPattern(reflection_model=scoring(*scores), **options)


def test_nothing_is_judged_again_unless_asked_for():
    store = MemoryStore()
    stored(store, 0.95, 0.95)
    consistency = measure(store, pattern=judging()).consistency
    assert (consistency.value, consistency.cases, consistency.unknown) == (None, 0, 2)


def test_a_second_judgement_is_stored_and_counts_from_then_on():
    store = MemoryStore()
    stored(store, 0.95, 0.5, 0.6)
    measured = measure(store, judge_again=2, pattern=judging(0.65, 0.2))  # the newest runs: 0.6 and 0.5
    assert measured.consistency.value == pytest.approx((0.05 + 0.3) / 2)
    assert (measured.consistency.met, measured.consistency.cases, measured.consistency.unknown) == (1, 2, 1)
    assert measured.consistency.reached is False
    assert (measured.usage.requests, measured.note) == (2, "")
    later = measure(store)
    assert later.consistency == measured.consistency
    assert later.usage.requests == 0
    assert later.runs == 3
    assert measure(store, judge_again=9, pattern=judging(0.9)).consistency.cases == 3  # one call, not three


def test_the_second_judgement_is_asked_for_as_the_first_was():
    store, judge = MemoryStore(), scoring(0.6, 0.6)
    kind = QualityCriterion("kind", "It is kind.", weight=3)
    short = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 5})
    pattern = ReflectionPattern(0, [kind, short], reflection_model=judge)
    pattern_of_run = ReflectionPattern(1, [kind, short], reflection_model=judge, until=lambda _: True)
    Agent(ScriptedModel(["a text"]), pattern=pattern_of_run, keep=store).run_sync("Write.")
    assert measure(store, judge_again=1, pattern=pattern).consistency.value == 0.0
    first, second = judge.requests
    assert first.messages == second.messages


def test_samples_are_judgements_of_one_output():
    store = MemoryStore()
    stored(store, 0.95, 0.5, criteria=["clarity"])
    judge = scoring(0.6, 0.9)
    pattern = ReflectionPattern(1, ["clarity"], reflection_model=judge, judge_samples=2, until=lambda _: True)
    Agent(ScriptedModel(["b"]), pattern=pattern, keep=store).run_sync("Write.")
    consistency = measure(store).consistency
    assert consistency.value == pytest.approx(0.3)
    assert (consistency.cases, consistency.unknown) == (1, 2)


def test_the_budget_holds_for_all_second_judgements():
    store = MemoryStore()
    stored(store, *[0.95] * 6)
    judge = scoring(*[0.9] * 6)
    pattern = ReflectionPattern(reflection_model=judge, budget_tokens=1200)
    measured = measure(store, judge_again=6, pattern=pattern)
    assert 0 < len(judge.requests) < 6
    assert measured.consistency.cases == len(judge.requests)
    assert measured.usage.total_tokens <= 1200 + 100
    assert "The budget was spent after" in measured.note


@pytest.mark.parametrize(
    ("error", "says"),
    [(ModelError("no such key"), "failed: no such key"), (KeyError("key"), "failed: KeyError: 'key'")],
)
def test_a_failing_judge_ends_the_second_judgements_and_is_asked_anew_the_next_time(error, says):
    store = MemoryStore()
    stored(store, 0.95, 0.95)
    broken = measure(store, judge_again=2, pattern=judging(error))
    assert broken.note.endswith(says)
    assert (broken.consistency.cases, broken.consistency.unknown) == (0, 2)
    assert measure(store, judge_again=2, pattern=judging(0.9, 0.9)).consistency.cases == 2


def test_an_unknown_judge_is_named_before_any_call():
    store = MemoryStore()
    stored(store, 0.95)
    record = asyncio.run(Runs(store).get())
    record.options = {**record.options, "judge": "Judge(...)"}
    record.origin = Origin("agent", "agent", "")
    asyncio.run(store.put(record.stored()))
    with pytest.raises(ConfigError, match="No run names the model that judged"):
        measure(store, judge_again=1)


@pytest.mark.parametrize("count", [-1, 1.5, True, "2"])
def test_a_wrong_number_is_refused(count):
    with pytest.raises(ConfigError, match="judge_again"):
        measure(MemoryStore(), judge_again=count)


def test_an_option_of_the_pattern_is_named_as_one():
    with pytest.raises(TypeError, match=r"pattern=ReflectionPattern\(budget_usd=\.\.\.\)"):
        measure(MemoryStore(), budget_usd=1)


def test_runs_that_only_judge_and_runs_without_a_judge_are_no_cases():
    store = MemoryStore()
    short = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 5})
    for most in (0, 1):
        pattern = ReflectionPattern(most, [short])
        Agent(ScriptedModel(["a text"]), pattern=pattern, keep=store).run_sync("Write.")
    measured = measure(store, judge_again=5)
    assert measured.runs == 1
    assert (measured.consistency.cases, measured.consistency.unknown) == (0, 0)


def test_second_judgements_are_runs_inside_the_runs_that_they_judge():
    store = MemoryStore()
    stored(store, 0.95)
    measure(store, judge_again=1, pattern=judging(0.9))
    outer, *others = asyncio.run(Runs(store).find())
    assert others == []
    inner = next(one for one in asyncio.run(Runs(store).find(inner=True)) if one.parent)
    assert (inner.parent, inner.origin.name) == (outer.run_id, "second judgement")
    assert asyncio.run(Runs(store).get(outer.run_id[:15])).run_id == outer.run_id


def test_the_document_has_every_figure_with_its_target_and_counts():
    document = to_json(SuccessCriteria.of([run(0.5, 0.9, reason="quality_met")]).document())
    assert document["quality_improvement"] == {
        "value": 1.0,
        "target": 0.8,
        "reached": True,
        "met": 1,
        "cases": 1,
        "unknown": 0,
        "noun": "runs",
    }
    assert document["consistency"]["value"] is None
    assert document["runs"] == 1
