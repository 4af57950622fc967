import pytest

from redraft import ConfigError, ConvergenceReason, Issue, OutputError, ReflectionCallbacks, TokenUsage
from redraft.loop.record import Origin
from redraft.loop.runs import RULES, after_best, falls_short, timeline, why
from support.kept_runs import GONE, kept, ran
from support.versions import gained, history, version

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


def told(*scores, **fields):
    return kept(history(*scores), **fields)


def used(usage):
    return {"usage_by_role": {"revision": usage}}


REPEATED = gained([version(1, 0.5), version(2, 0.5, repeats=1), version(3, 0.5, "OUTPUT 1", repeats=None)])
STUCK = gained([version(n, 0.5, issues=(Issue("too long"), Issue("no title"))) for n in (1, 2, 3)])
SHORT = [version(1, 0.92, satisfactory=True, criteria_scores={"short": 0.9})]
BLIND = version(1, None, criteria_scores={"short": None}, issues=(Issue("no\nreply"),))
NOISY = gained([version(1, 0.7), version(2, 0.72, spread=0.1), version(3, 0.6)])


@pytest.mark.parametrize(
    ("run", "detail"),
    [
        (
            kept(SHORT, "quality_met"),
            "Version 1 scored 0.92 >= 0.80, and every criterion is at its threshold: short 0.90 >= 0.70.",
        ),
        (
            kept([version(1, 1.0, satisfactory=True)], "quality_met", quality_threshold=1.0),
            "Version 1 scored 1.00 >= 1.00.",
        ),
        (
            kept([version(1, 0.3, satisfactory=True)], "quality_met"),
            "Version 1 is satisfactory by its evaluator, and scored 0.30.",
        ),
        (
            told(0.2, reason="max_iterations", max_iterations=0, origin=Origin("workflow", "w")),
            "1 of 1 attempts were made; the best is version 1 (0.20).",
        ),
        (
            told(0.2, 0.4, 0.3, 0.35, reason="max_iterations"),
            "3 of 3 revisions were made; the best is version 2 (0.40).",
        ),
        (
            told(0.2, 0.4, reason="max_iterations", max_iterations=1),
            "The one revision that was allowed was made; the best is version 2 (0.40).",
        ),
        (
            told(0.2, reason="max_iterations", max_iterations=0),
            "No revision was allowed (max_iterations = 0); the best is version 1 (0.20).",
        ),
        (
            told(0.5, 0.72, 0.70, 0.71, reason="plateau"),
            (
                "The best score, 0.72 of version 2, was not beaten by versions 3 (0.70) and 4 (0.71); "
                "plateau_iterations = 2."
            ),
        ),
        (
            kept(NOISY, "plateau"),
            (
                "The best score, 0.70 of version 1, was not beaten by versions 2 (0.72, within the judge's "
                "spread of 0.10) and 3 (0.60); plateau_iterations = 2."
            ),
        ),
        (
            told(0.5, 0.4, reason="plateau", plateau_iterations=1),
            "The best score, 0.50 of version 1, was not beaten by version 2 (0.40); plateau_iterations = 1.",
        ),
        (
            told(0.70, 0.72, reason="diminishing"),
            "Version 2 (0.72) beat the best before it by only 0.02 < 0.05 (improvement_threshold).",
        ),
        (
            told(0.70, 0.749, reason="diminishing"),
            "Version 2 (0.75) beat the best before it by only 0.049 < 0.050 (improvement_threshold).",
        ),
        (
            told(0.5, 0.7, 0.5, 0.7, reason="oscillation"),
            (
                "The last scores went up and down and ended no higher: 0.50 (version 1), 0.70 (version 2), "
                "0.50 (version 3) and 0.70 (version 4)."
            ),
        ),
        (
            kept(REPEATED, "semantic_stability"),
            (
                "Nothing changed in substance any more: version 2 is the same as version 1 and version 3 won "
                "nothing."
            ),
        ),
        (
            kept(STUCK, "repeated_issues"),
            (
                "Versions 1, 2 and 3 have the same issues, and the score went from 0.50 to 0.50: too long; "
                "no title."
            ),
        ),
        (told(0.4, reason="user_accepted"), "A callback accepted version 1 (0.40)."),
        (
            told(0.4, reason="user_stopped"),
            "A callback, or a rule of the caller's, said stop after version 1 (0.40).",
        ),
        (
            told(0.4, reason="token_budget", budget_tokens=1000, **used(TokenUsage(1200, 34))),
            "1,234 of 1,000 tokens were used (budget_tokens).",
        ),
        (
            told(
                0.4,
                reason="token_budget",
                budget_tokens=1000,
                diagnostics={"budget": "budget_tokens=1000 left no room for all model calls: 1 not started."},
                **used(TokenUsage(900, 20)),
            ),
            "920 of 1,000 tokens were used (budget_tokens). What was left was too little for the next call.",
        ),
        (
            told(0.4, reason="token_budget", max_revision_tokens=500, **used(TokenUsage(500))),
            "Revisions used 500 of 500 tokens (max_revision_tokens).",
        ),
        (
            told(0.4, reason="cost_budget", budget_usd=0.01, **used(TokenUsage(cost_usd=0.0123))),
            "$0.0123 of $0.0100 were spent (budget_usd).",
        ),
        (
            told(0.4, reason="cost_budget", budget_usd=0.00002, **used(TokenUsage(cost_usd=0.00003))),
            "<$0.0001 of <$0.0001 were spent (budget_usd).",
        ),
        (
            told(0.4, reason="cost_budget", budget_usd=0.01, **used(TokenUsage(cost_usd=None))),
            "Part of the cost is not known; what is reached $0.0100 (budget_usd).",
        ),
        (
            told(0.4, reason="time_budget", budget_seconds=60.0, execution_time=61.25),
            "61.2 of 60.0 seconds went by (budget_seconds).",
        ),
        (
            kept([BLIND], "unjudged"),
            "Version 1 could not be judged: short (no reply).",
        ),
        (told(0.4, reason="error", error="E: away"), "A step failed after version 1: E: away"),
        (told(0.4, reason="cancelled"), "It was cancelled after version 1."),
    ],
)
def test_the_numbers_are_those_that_the_rule_went_by(run, detail):
    found = why(run)
    assert found.detail == detail
    assert found.rule == run.record.reason.value
    assert found.headline


def test_every_reason_has_its_words():
    assert set(RULES) == {reason.value for reason in ConvergenceReason}


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
