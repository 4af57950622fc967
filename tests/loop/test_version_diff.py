import pytest

from redraft import Issue, ReflectionEvaluation
from redraft._codec import to_json
from redraft.loop.version_diff import addressed, diff_document, version_diff
from support.versions import version


@pytest.mark.parametrize(
    ("old", "new", "same", "found"),
    [
        ("a b", "a c", False, {"words": [("=", "a "), ("-", "b"), ("+", "c")]}),
        ("a b", "a b", True, {"words": [("=", "a b")]}),
        ({"a": 1}, {"a": 2}, False, {"fields": [{"path": "/a", "old": 1, "new": 2}]}),
        ('{"a": 1}', '```json\n{"b": 1}\n```', False,
         {"fields": [{"path": "/a", "old": 1}, {"path": "/b", "new": 1}]}),
        ('{"a": 1}', '{"a":1}', False, {"words": [("=", '{"a":'), ("-", " "), ("=", "1}")]}),
        ('{"a": 1}', "sorry", False, {"words": [("-", '{"a": 1}'), ("+", "sorry")]}),
        ("1", "2", False, {"words": [("-", "1"), ("+", "2")]}),
    ],
)  # fmt: skip
def test_json_is_compared_by_fields_and_text_by_words(old, new, same, found):
    diff = version_diff(version(1, 0.5, old), version(3, None, new))
    document = diff_document(diff)
    if "words" in found:
        found = {"words": [{"op": op, "text": text} for op, text in found["words"]]}
    assert diff.is_same is same
    assert to_json(document) == {
        "from": {"version": 1, "score": 0.5},
        "to": {"version": 3, "score": None},
        "points": [],
        "new_issues": [],
        **found,
    }


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
def test_an_issue_is_addressed_if_it_is_not_raised_again(older, newer, score, marks, new):
    critique = addressed(ReflectionEvaluation(0.5, issues=older), ReflectionEvaluation(score, issues=newer))
    assert [point.addressed for point in critique.points] == marks
    assert [str(issue) for issue in critique.new] == new


@pytest.mark.parametrize(
    ("issue", "scores", "mark"),
    [
        (Issue("vague", "clarity", number=1), {"clarity": 0.8, "tests": 1.0}, True),
        (Issue("vague", "clarity", number=1), {"clarity": None, "tests": 0.0}, None),
        (Issue("vague", number=1), {"clarity": None, "tests": 0.0}, None),
        (Issue("one failed", "tests"), {"clarity": None, "tests": 0.0}, True),
    ],
)
def test_whether_an_issue_is_addressed_is_unknown_without_its_judge(issue, scores, mark):
    """After a failed gate the judge is not asked."""
    newer = ReflectionEvaluation(0.5, scores, issues=(Issue("another failed", "tests", line=3),))
    found = addressed(ReflectionEvaluation(0.5, issues=(issue,)), newer)
    assert [point.addressed for point in found.points] == [mark]


FORBIDDEN = Issue("Found forbidden '!'", "calm")


@pytest.mark.parametrize(
    ("older", "newer", "scores", "mark"),
    [
        ([FORBIDDEN], [Issue("Avoid question marks", "calm")], (0.0, 0.0), False),
        ([FORBIDDEN], [Issue("Avoid question marks", "calm")], (0.0, 0.5), True),
        ([FORBIDDEN], [Issue("Avoid question marks", "short")], (0.0, 0.0), True),
        ([FORBIDDEN, Issue("No end", "calm")], [Issue("Avoid question marks", "calm")], (0.0, 0.0), True),
        ([Issue("vague", "calm", number=1)], [Issue("No end", "calm", number=2)], (0.5, 0.5), True),
        ([Issue("vague", "calm", "/a")], [Issue("No end", "calm", "/b")], (0.0, 0.0), True),
    ],
)
def test_a_check_that_still_fails_addresses_nothing(older, newer, scores, mark):
    before, after = (
        ReflectionEvaluation(score, {"calm": score}, issues=issues)
        for score, issues in zip(scores, (older, newer), strict=True)
    )
    found = addressed(before, after)
    assert found.points[0].addressed is mark
    assert found.new == tuple(newer)


def test_issues_of_a_judge_are_identified_by_number():
    older = ReflectionEvaluation(0.5, issues=(Issue("no source for A", number=1), Issue("no end", number=2)))
    newer = ReflectionEvaluation(0.5, issues=(Issue("no end", number=2), Issue("no source for B", number=3)))
    found = addressed(older, newer)
    assert [point.addressed for point in found.points] == [True, False]
    assert found.new == ("no source for B",)
