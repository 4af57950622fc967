import pytest

from redraft import ConfigError, ConvergenceReason, OutputError, ReflectionCallbacks, Stop, TokenUsage
from redraft.loop.runs import after_best, falls_short, timeline, why
from support.kept_runs import GONE, kept, ran
from support.versions import history, version

PAID = OutputError("no", usage=TokenUsage(7, 3, requests=1, cost_usd=0.05))


@pytest.mark.parametrize(
    ("made", "choices", "versions", "tokens", "cost"),
    [
        ([("a", 0.1), ("b", 1.0)], {}, 0, 0, 0.0),
        ([("a", 0.5), ("b", 0.4), ("c", 0.3)], {}, 2, 240, 0.02),
        ([("a", 0.1), ("b", 0.5), ("c", 0.3), ("d", 0.3)], {}, 2, 240, 0.02),
        ([("a", 0.5), PAID], {}, 0, 10, 0.05),
        ([("a", 0.5), ("b", 0.4), PAID], {}, 1, 130, 0.06),
        ([("a", 0.5), ("b", 0.4), ("c", 0.3)], {"preserve_all_versions": False}, 2, None, None),
    ],
)
def test_what_came_after_the_best_is_added_up(made, choices, versions, tokens, cost):
    spent = after_best(ran(*made, **choices))
    assert spent.versions == versions
    assert spent.seconds >= 0
    if tokens is None:
        assert spent.usage is None
    else:
        assert spent.usage.total_tokens == tokens
        assert spent.usage.cost_usd is None or spent.usage.cost_usd == pytest.approx(cost)


@pytest.mark.parametrize(
    ("name", "number"),
    [("2", 2), ("v2", 2), ("first", 1), ("best", 2), ("last", 3), ("final", 3)],
)
def test_a_version_has_many_names(name, number):
    assert kept(history(0.1, 0.5, 0.3)).version(name).iteration == number


@pytest.mark.parametrize(
    ("scores", "name", "says"),
    [
        ((0.1, 0.2), "7", "has no version '7'; kept are 1, 2."),
        ((0.1,), "bset", "A version is a number such as 2 or v2, 'first', 'best' or 'last'; got 'bset'."),
        ((0.1,), "²", "got '²'"),
        ((), "best", "has no version yet: it is running."),
    ],
)
def test_a_version_that_is_not_there_is_an_error(scores, name, says):
    with pytest.raises(ConfigError, match="version") as error:
        kept(history(*scores)).version(name)
    assert says in str(error.value)


def seen(run):
    return [(one.step.name, one.version) for one in timeline(run)]


def test_each_step_belongs_to_the_version_that_it_worked_on():
    run = ran(("a", 0.1), ("b", 0.5), callbacks=ReflectionCallbacks(), max_iterations=1)
    assert seen(run) == [
        ("generate", 1), ("on_generation", 1), ("evaluate", 1), ("on_reflection", 1),
        ("revise", 2), ("on_generation", 2), ("on_revision", 2), ("evaluate", 2), ("on_reflection", 2),
    ]  # fmt: skip


def test_a_step_that_failed_was_for_the_version_that_never_came():
    assert seen(ran(("a", 0.1), OSError("away")))[-1] == ("revise", 2)


def test_steps_add_up():
    stretches = timeline(ran(("a", 0.1), ("b", 0.5), max_iterations=1))
    assert all(one.seconds >= 0 and one.began >= 0 for one in stretches)
    assert [one.began for one in stretches] == sorted(one.began for one in stretches)


def test_why_shows_what_the_rule_said_and_derives_nothing():
    stop = Stop(ConvergenceReason.PLATEAU, "It was not beaten.", {"plateau_iterations": 2})
    found = why(kept(history(0.5, 0.4, 0.3), stop=stop))
    assert (found.rule, found.detail, found.numbers) == ("plateau", stop.detail, stop.numbers)
    assert found.headline == "the best version was not beaten any more"


@pytest.mark.parametrize(
    ("fields", "rule", "says"),
    [
        ({}, "running", "is at work on it: 1 version and 0 finished steps so far."),
        ({"process": GONE}, "killed", "is gone; kept are 1 version and 0 finished steps"),
        ({"status": "failed", "error": "E: x"}, "failed", "A step failed after version 1: E: x"),
        ({"status": "cancelled"}, "cancelled", "It was cancelled after version 1."),
    ],
)
def test_a_run_that_no_rule_stopped_says_how_it_stands(fields, rule, says):
    found = why(kept(history(0.4), **fields))
    assert found.rule == rule
    assert says in found.detail


def test_the_step_that_failed_is_named():
    run = ran(("a", 0.1), OSError("away"))
    assert why(run).detail == "The step 'revise' failed after version 1: OSError: away"
    assert why(run).numbers == {"step": "revise", "error": "OSError: away"}


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"satisfactory": True}, ()),
        ({"criteria_scores": {"short": 0.5}}, ("the score 0.60 < 0.80", "short 0.50 < 0.70")),
        ({"criteria_scores": {"short": None}}, ("the score 0.60 < 0.80", "short could not be judged")),
        ({"criteria_scores": {"short": 0.69999}}, ("the score 0.60 < 0.80", "short 0.69999 < 0.70000")),
    ],
)
def test_what_a_version_lacks(fields, lacks):
    one = version(1, 0.6, **fields)
    assert falls_short(kept([one]), one) == lacks
