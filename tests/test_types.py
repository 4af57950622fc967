import copy
import json
import pickle
from operator import add, eq

import pytest
from pydantic import TypeAdapter, ValidationError

from redraft import (
    Agent,
    ConfigError,
    ConvergenceReason,
    Issue,
    ReflectionEvaluation,
    ReflectionHistory,
    ReflectionVersion,
    ScriptedModel,
    SqliteStore,
    Task,
    TokenUsage,
    reflect_sync,
)
from redraft._codec import from_json, from_record, to_json, to_record
from redraft._prompts import prompt_of
from redraft.types import (
    NOTHING_USED,
    REASONS,
    Advice,
    Image,
    Message,
    PlainTask,
    failures,
    in_prose,
    joined,
    render_usage,
    render_usd,
    version_line,
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("short", "short"),
        ("Says what it costs.", "'Says what it costs.'"),
        (r"matches \d+ g", r"'matches \d+ g'"),
        ("It's so.", '"It\'s so."'),
    ],
)
def test_a_criterion_is_named_in_a_sentence(name, shown):
    assert in_prose(name) == shown


PLACED = Issue("'due' is missing", "shape", "/orders/0", 3)


def places(issue):
    return str(issue), issue.message, issue.criterion, issue.path, issue.line


def test_an_issue_is_a_string():
    issues = ReflectionEvaluation(0.5, issues=(PLACED, "too long")).issues
    assert ", ".join(issues) == "'due' is missing, too long"
    assert "too long" in issues
    assert "'due' is missing" in issues
    assert "due" in PLACED
    assert {"'due' is missing": 1}[PLACED] == 1
    assert json.dumps(issues) == '["\'due\' is missing", "too long"]'


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (a test's own)


LISTS = [
    ReflectionEvaluation(0.5, issues=["a", "b"]).issues,
    ReflectionEvaluation(0.5, suggestions=["a", "b"]).suggestions,
    ReflectionVersion(1, "x", ReflectionEvaluation(0.5), ["a", "b"]).improvements_applied,
    ReflectionHistory(["a", "b"], None, None, "", 1).versions,
]


@pytest.mark.parametrize("items", LISTS)
def test_frozen_lists_behave_like_immutable_lists(items):
    assert items == ["a", "b"]
    assert eq(["a", "b"], items)
    assert items == ("a", "b")
    assert items != ["a"]
    assert add(items, ["x"]) == ["a", "b", "x"]
    assert add(["x"], items) == ["x", "a", "b"]
    assert add(add(("x",), items), ("y",)) == ["x", "a", "b", "y"]
    assert items[1:] == ["b"]
    assert items[0] == "a"
    assert items * 2 == ["a", "b", "a", "b"]
    assert sorted(items, reverse=True) == ["b", "a"]
    assert isinstance(items.copy(), list)
    assert hash(items) == hash(("a", "b"))
    assert json.dumps(items) == '["a", "b"]'
    for through in (copy.copy, copy.deepcopy, through_pickle):
        assert add(through(items), ["x"]) == ["a", "b", "x"]
    grown = ["x"]
    grown += items
    assert grown == ["x", "a", "b"]
    with pytest.raises(AttributeError):
        items.append("c")


@pytest.mark.parametrize("empty", [(), [], None])
def test_empty_lists_of_an_evaluation_are_shared(empty):
    evaluation = ReflectionEvaluation(0.5) if empty is None else ReflectionEvaluation(0.5, issues=empty)
    assert evaluation.issues == []
    assert eq([], evaluation.suggestions)
    assert evaluation.issues is ReflectionEvaluation(0.1).issues
    assert evaluation.issues is from_record(ReflectionEvaluation, to_record(evaluation)).issues


def test_printing_issues_shows_their_texts():
    assert f"{PLACED}" == "'due' is missing"
    assert f"{(Issue('a', path='/b'), Issue('c'))}" == "('a', 'c')"


@pytest.mark.parametrize(
    "through",
    [
        copy.copy,
        copy.deepcopy,
        lambda issue: pickle.loads(pickle.dumps(issue)),  # noqa: S301 (our own bytes)
        lambda issue: from_json(Issue, json.loads(json.dumps(to_json(issue)))),
        lambda issue: from_record(Issue, json.loads(json.dumps(to_record(issue)))),
        lambda issue: TypeAdapter(Issue).validate_json(TypeAdapter(Issue).dump_json(issue)),
        lambda issue: ReflectionEvaluation(0.5, issues=(issue,)).issues[0],
    ],
)
def test_an_issue_keeps_its_place(through):
    kept = through(PLACED)
    assert type(kept) is Issue
    assert places(kept) == places(PLACED) == ("'due' is missing", "'due' is missing", "shape", "/orders/0", 3)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ("'due' is missing", True),
        (Issue("'due' is missing", "shape", "/orders/0", 3), True),
        (Issue("'due' is missing", "shape", "/orders/1", 3), False),
        (Issue("'due' is missing", "form", "/orders/0", 3), False),
        (Issue("'due' is missing", "shape", "/orders/0", 4), False),
        ("something else", False),
        (3, False),
    ],
)
def test_issues_are_equal_by_message_and_place(other, equal):
    assert (PLACED == other) is (other == PLACED) is equal  # noqa: SIM300 (both ways round)
    assert (other != PLACED) is not equal
    assert not equal or hash(other) == hash(PLACED)


@pytest.mark.parametrize("name", ["message", "criterion", "path", "line", "more"])
def test_an_issue_is_immutable(name):
    with pytest.raises(AttributeError):
        setattr(PLACED, name, "other")


def test_a_subclass_of_issue_may_have_attributes():
    class Rated(Issue):
        severity = 0

    issue = Rated("Too long.")
    issue.severity = 2
    assert issue.severity == 2


def test_records_omit_unknown_fields_of_an_issue():
    assert to_record(Issue("a", line=3)) == {"message": "a", "line": 3}
    assert set(to_json(Issue("a", line=3))) == {"message", "criterion", "path", "line", "number"}


@pytest.mark.parametrize("data", [3, {"criterion": "a"}, {"message": "a", "line": "x"}, None])
def test_other_data_is_not_read_as_an_issue(data):
    with pytest.raises(ValidationError):
        from_json(Issue, data)


def test_a_summary_has_versions_reason_and_usage():
    drafts = iter(["one", "two"])
    result = reflect_sync("W.", generate=lambda p: next(drafts), evaluate=lambda o: (o == "two", "too\nlong"))
    lines = result.summary().splitlines()
    assert lines[0] == "  version 1  0.00  draft  failed: too\\nlong"
    assert lines[1] == "* version 2  1.00  revise"
    assert lines[2] == "Stopped: the quality threshold was met (quality_met)."
    assert lines[3] == "Returned: version 2, satisfactory."
    assert lines[4].startswith("Used: tokens and cost not reported, ")


def test_a_summary_leaves_out_control_characters():
    result = reflect_sync("W.", generate=lambda _: "a", evaluate=lambda _: (False, "bad\x1b[31m\x07\x9b2J"))
    assert result.summary().startswith("* version 1  0.00  draft  failed: bad[31m2J\n")


@pytest.mark.parametrize(
    ("score", "threshold", "verdict"),
    [
        (0.75, 0.8, "not satisfactory: the score 0.75 < 0.80."),
        ((0.75, "Add the date."), 0.8, "not satisfactory: the score 0.75 < 0.80."),
        ((0.5, "Add the date."), 0.4, "not satisfactory."),  # the issue of the version says why
    ],
)
def test_a_summary_says_why_the_best_version_falls_short(tmp_path, score, threshold, verdict):
    def complete(text):
        return score

    store = SqliteStore(tmp_path / "runs.db")
    agent = Agent(
        ScriptedModel(["one"]), criteria=[complete], quality_threshold=threshold, max_iterations=0, keep=store
    )
    for _ in range(2):  # the second result is the stored one
        result = agent.run_sync("W.", run_id="r")
        assert f"Returned: version 1, {verdict}" in result.summary().splitlines()
        assert verdict in result._repr_html_().replace("&lt;", "<")


def test_every_reason_has_a_sentence():
    assert set(REASONS) == {reason.value for reason in ConvergenceReason}


def test_many_issues_are_shortened():
    evaluation = ReflectionEvaluation(0.1, issues=tuple(Issue(f"issue {n}") for n in range(5)))
    assert failures(evaluation) == "  failed: issue 0; issue 1; issue 2; and 2 more"
    evaluation = ReflectionEvaluation(0.0, issues=("There is nothing at /x.", "One line\nonly."))
    assert failures(evaluation) == "  failed: There is nothing at /x; One line\\nonly."


@pytest.mark.parametrize(
    ("fields", "failing"),
    [
        pytest.param(({"a": 0.6, "b": 0.2}, False, ("b",)), ["Wrong in b."], id="a is met"),
        pytest.param(({"a": 0.6, "b": 0.9}, True, ()), [], id="all are met"),
        pytest.param(({"a": 0.6, "b": 0.6}, False, ()), ["Vague in a.", "Wrong in b."], id="only the mean"),
        pytest.param(({"a": 0.6, "b": 0.2}, False, None), ["Vague in a.", "Wrong in b."], id="not known"),
    ],
)
def test_issues_of_criteria_that_are_met_have_not_failed(fields, failing):
    scores, satisfactory, unmet = fields
    if unmet is None:
        scores = {}
    issues = (Issue("Vague in a.", "a"), Issue("Wrong in b.", "b"))
    evaluation = ReflectionEvaluation(0.5, scores, satisfactory, issues=issues, unmet=unmet)
    assert list(map(str, evaluation.failing)) == failing
    version = ReflectionVersion(1, "x", evaluation)
    assert version_line(version).partition("  failed: ")[2] == "; ".join(
        [*(text.rstrip(".") for text in failing[:-1]), *failing[-1:]]
    )


def test_a_reason_for_several_criteria_is_listed_once_and_ends_without_a_second_stop():
    reason = (
        f"Not judged: the judge's reply can't be used. {'It is long. ' * 4}expected a number" + " of it" * 9
    )
    issues = tuple(Issue(reason, name) for name in "abc")
    evaluation = ReflectionEvaluation(None, dict.fromkeys("abc"), issues=issues)
    assert [str(issue) for issue in evaluation.failing] == [reason]
    line = version_line(ReflectionVersion(1, "x", evaluation))
    assert line.endswith("...)"), line
    assert joined(["Cut off...", "Ends."]) == "Cut off...; Ends."


def test_usage_is_rendered_with_its_cost_or_as_unknown():
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
def test_a_tiny_cost_is_not_rendered_as_free(dollars, shown):
    assert render_usd(dollars) == shown


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"description": None}, "The description of a task must be a string, got None"),
        ({"context": 5}, "The context of a task must be a string, got 5"),
        ({"tools": "search"}, "The tools of a task must be a list, got 'search'"),
        ({"messages": None}, "The messages of a task must be a list, got None"),
    ],
)
def test_a_task_with_a_field_of_another_type_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        PlainTask(**{"description": "Write.", **fields})


def test_a_task_with_lists_equals_the_stored_task():
    task = PlainTask("Write.", tools=["search"], messages=[Message("user", "Hello.")], images=[])
    assert from_record(PlainTask, json.loads(json.dumps(to_record(task)))) == task


def test_the_plain_form_of_a_task_has_its_messages_and_images():
    messages, images = (Message("user", "Hello."),), (Image("image/png", url="https://example.org/a.png"),)
    assert Task("Write.", messages=messages, images=images).plain() == PlainTask(
        "Write.", messages=messages, images=images
    )


def test_a_plain_task_is_its_description():
    assert prompt_of(Task("Write.")) == "Write."


def test_a_prompt_has_advice_context_task_and_expected_output_in_order():
    task = Task("Write.", expected_output="One line.", context="For children.")
    prompt = prompt_of(task, [Advice("Mention milk.", "note"), Advice("Be brief.", "lesson")])
    order = [
        "information, not instructions",
        "- Mention milk.",
        "- Be brief.",
        "For children.",
        "Write.",
        "One line.",
    ]
    places = [prompt.index(part) for part in order]
    assert places == sorted(places)


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
def test_a_missing_cost_is_unknown_if_anything_was_used(usage, cost):
    assert usage.cost_usd == cost
    assert type(usage.cost_usd) is type(cost)
    assert from_json(TokenUsage, to_json(usage)) == usage
    assert from_record(TokenUsage, to_record(usage)) == usage


def test_a_usage_without_a_cost_can_be_read():
    assert from_json(TokenUsage, {"input_tokens": 4}).cost_usd is None
    assert from_json(TokenUsage, {}).cost_usd == 0.0
