import pytest

from redraft.core.codec import from_json, from_record, to_json, to_record
from redraft.core.usage import NOTHING_USED, TokenUsage


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (TokenUsage(), 0.0),
        (NOTHING_USED, 0.0),
        (TokenUsage(input_tokens=40, requests=2), None),
        (TokenUsage(output_tokens=3), None),
        (TokenUsage(requests=1), None),
        (TokenUsage(failed_requests=1), 0.0),  # nothing came back, so nothing is known to be charged
        (TokenUsage(40, 2, cost_usd=0.0), 0.0),  # weights of one's own cost nothing
        (TokenUsage(40, 2, cost_usd=0.5), 0.5),
        (TokenUsage(cost_usd=None), None),
        (TokenUsage(40, 2, cost_usd=0.5) + TokenUsage(1), None),
        (TokenUsage(1) + TokenUsage(40, 2, cost_usd=0.5), None),
        (TokenUsage(1) + NOTHING_USED, None),
        (NOTHING_USED + TokenUsage(1), None),
        (TokenUsage(40, 2, cost_usd=0.5) + TokenUsage(failed_requests=1), 0.5),
        (TokenUsage(40, 2, cost_usd=0.5) + TokenUsage(1, cost_usd=0.25), 0.75),
    ],
)
def test_a_cost_that_was_not_given_is_unknown_where_something_was_used(usage, cost):
    assert usage.cost_usd == cost
    assert type(usage.cost_usd) is type(cost)
    assert from_json(TokenUsage, to_json(usage)) == usage
    assert from_record(TokenUsage, to_record(usage)) == usage


def test_a_usage_without_a_cost_can_be_read():
    assert from_json(TokenUsage, {"input_tokens": 4}).cost_usd is None
    assert from_json(TokenUsage, {}).cost_usd == 0.0
