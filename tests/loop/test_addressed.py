import pytest

from redraft import Issue, ReflectionEvaluation
from redraft.loop.addressed import addressed


@pytest.mark.parametrize(
    ("older", "newer", "score", "marks", "new"),
    [
        (["too long"], [], 0.9, [True], []),
        (["too long"], ["too long"], 0.9, [False], []),
        (["it is much too long here"], ["it is much too long there"], 0.9, [False], []),
        (["too long"], ["no title"], 0.9, [True], ["no title"]),
        ([Issue("a", "c", "/x")], [Issue("b", "c", "/x")], 0.9, [False], []),
        ([Issue("a", "c", "/x")], [Issue("b", "c", "/y")], 0.9, [True], ["b"]),
        (["too long"], [], None, [None], []),
        ([], [], 0.9, [], []),
    ],
)
def test_a_point_is_addressed_when_it_is_not_made_again(older, newer, score, marks, new):
    found = addressed(ReflectionEvaluation(0.5, issues=older), ReflectionEvaluation(score, issues=newer))
    assert [point.addressed for point in found.points] == marks
    assert [str(issue) for issue in found.new] == new
