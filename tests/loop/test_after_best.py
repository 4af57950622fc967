import pytest

from kept import ran
from redraft import OutputError, TokenUsage
from redraft.loop.after_best import after_best

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
