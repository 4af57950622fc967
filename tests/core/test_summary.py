import pytest

from redraft import Issue, ReflectionEvaluation, TokenUsage, reflect_sync
from redraft.core.summary import failures, render_usage, render_usd


def test_a_summary_tells_the_run():
    drafts = iter(["one", "two"])
    result = reflect_sync("W.", generate=lambda p: next(drafts), evaluate=lambda o: (o == "two", "too\nlong"))
    lines = result.summary().splitlines()
    assert lines[0] == "  version 1  0.00  draft  failed: too long"
    assert lines[1] == "* version 2  1.00  revise"
    assert lines[2] == "Stopped: the quality threshold was met (quality_met)."
    assert lines[3] == "Returned: version 2, satisfactory."
    assert lines[4].startswith("Used: 0 tokens in 0 calls, cost unknown, ")


def test_every_reason_has_a_sentence():
    from redraft import ConvergenceReason
    from redraft.core.summary import REASONS

    assert set(REASONS) == {reason.value for reason in ConvergenceReason}


def test_many_issues_are_shortened():
    evaluation = ReflectionEvaluation(0.1, issues=tuple(Issue(f"issue {n}") for n in range(5)))
    assert failures(evaluation) == "  failed: issue 0; issue 1; issue 2; and 2 more"


def test_what_is_not_known_is_said_to_be_so():
    assert (
        render_usage(TokenUsage(1000, 234, requests=2, cost_usd=None))
        == "1,234 tokens in 2 calls, cost unknown"
    )
    assert (
        render_usage(TokenUsage(requests=2, failed_requests=1, cost_usd=0.5))
        == "0 tokens in 2 calls (1 failed), $0.5000"
    )


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [(0.0, "$0.0000"), (0.000003, "<$0.0001"), (0.0001, "$0.0001"), (1.23456, "$1.2346")],
)
def test_what_costs_little_is_not_free(dollars, shown):
    assert render_usd(dollars) == shown
