import pytest

from redraft import ConfigError, ModelError, OutputError, TokenUsage
from redraft.loop.budget import NO_BUDGET, Budget, Tally


@pytest.mark.parametrize("field", ["tokens", "usd", "seconds", "revision_tokens"])
@pytest.mark.parametrize("bound", [0, -1, float("nan")])
def test_a_bound_that_lets_nothing_run_is_refused(field, bound):
    with pytest.raises(ConfigError, match="above 0"):
        Budget(**{field: bound})


@pytest.mark.parametrize(
    ("budget", "usage", "expected"),
    [
        (Budget(tokens=10), TokenUsage(5, 4), None),
        (Budget(tokens=10), TokenUsage(5, 5), "token_budget"),
        (Budget(usd=0.1), TokenUsage(cost_usd=0.09), None),
        (Budget(usd=0.1), TokenUsage(cost_usd=0.1), "cost_budget"),
        (Budget(usd=0.1), TokenUsage(cost_usd=None), None),
        (Budget(seconds=1e-9), TokenUsage(), "time_budget"),
        (NO_BUDGET, TokenUsage(10**9, cost_usd=1e9), None),
    ],
)
def test_spent(budget, usage, expected):
    tally = Tally(budget)
    tally.add("generation", usage)
    assert tally.spent() == expected


def test_revisions_have_a_budget_of_their_own():
    tally = Tally(Budget(revision_tokens=100))
    tally.add("generation", TokenUsage(500, 500))
    assert tally.revision_tokens_left() == 100
    tally.add("revision", TokenUsage(30, 50))
    assert tally.revision_tokens_left() == 20
    tally.add("revision", TokenUsage(30, 50))
    assert tally.revision_tokens_left() == 0


def test_failures_count_with_what_they_cost():
    tally = Tally(NO_BUDGET)
    tally.add_failure("evaluation", ModelError("down", usage=TokenUsage(3, 4, requests=1)))
    tally.add_failure("evaluation", OutputError("empty", usage=TokenUsage(1, 1, requests=1)))
    tally.add_failure("evaluation", ValueError("not a call"))
    used = tally.by_role["evaluation"]
    assert (used.total_tokens, used.requests, used.failed_requests) == (9, 2, 1)


def test_an_unknown_cost_makes_the_sum_unknown():
    tally = Tally(NO_BUDGET)
    tally.add("generation", TokenUsage(cost_usd=0.5))
    assert tally.total().cost_usd == 0.5
    tally.add("revision", TokenUsage(cost_usd=None))
    assert tally.total().cost_usd is None
