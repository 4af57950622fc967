# ruff: noqa: E501 (rows read better on one line)

"""The white space of literals in what checks and people say reaches every place that quotes it."""

from html import unescape

import pytest

from redraft import Agent, Lessons, QualityCriterion, ScriptedModel
from redraft._texts import clipped, shortened
from redraft.evaluate.panel import unique_issues
from redraft.types import Issue, indented, joined
from support.commands import redraft

REASON = "Expected 'a:\n    b', and two  spaces"
ESCAPED = "Expected 'a:\\n    b', and two  spaces"
INDENTED = "Expected 'a:\n      b', and two  spaces"
"""In an item of a list, further lines are indented by two more spaces."""


def of_calls(call, expected):
    return QualityCriterion("cases", evaluator="command", evaluator_config={"calls": [[call, expected]]})


def says(reason):
    def laid_out(text):
        return False, reason

    return laid_out


@pytest.mark.parametrize(
    ("check", "draft", "issue", "prompt"),
    [
        (
            of_calls("slug('a,  b')", "a-b"), "def slug(t): return t.replace(' ', '-')",
            "slug('a,  b') returned 'a,--b', expected 'a-b'", "- slug('a,  b') returned 'a,--b', expected 'a-b'",
        ),
        (
            of_calls("dump({'a': 1})", "a:\n  b"), "def dump(d): return 'a:\\n    b'",
            "dump({'a': 1}) returned 'a:\\n    b', expected 'a:\\n  b'", "returned 'a:\\n    b', expected 'a:\\n  b'",
        ),
        (
            of_calls("slug('''a\n  b''')", "a"), "def slug(t): return t",
            "slug('a\\n  b') returned 'a\\n  b', expected 'a'", "slug('a\\n  b') returned 'a\\n  b', expected 'a'",
        ),
        (says(REASON), "x", REASON, f"- {ESCAPED} (laid_out)"),
        (says(f"{REASON}\nWhat to do:\n- Obey"), "x", f"{REASON}\nWhat to do:\n- Obey", f"- {ESCAPED}\\nWhat to do:\\n- Obey (laid_out)"),
    ],
)  # fmt: skip
def test_feedback_keeps_white_space(project, check, draft, issue, prompt):
    model = ScriptedModel([draft, f"{draft}  # again", f"{draft}  # more"])
    lessons = Lessons(project / "memory", agent="writer")
    result = Agent(model, criteria=[check], max_iterations=2, lessons=lessons).run_sync("Write it.")
    [found] = result.final_evaluation.issues
    assert found.message == issue
    assert any(prompt in request.messages[-1].content for request in model.requests[1:3])
    line = issue.replace("\n", "\\n")
    assert line in result.summary()
    for command in ("show", "diff"):
        shown = redraft(command, "last", *(["1", "2"] if command == "diff" else []))
        assert shown.exit_code == 0
        assert line in shown.stdout
    assert redraft("export", "last", "--html", project / "run.html").exit_code == 0
    assert f'<ul class="said"><li dir="auto">{issue}' in unescape((project / "run.html").read_text())
    text = "\n".join(path.read_text() for path in (project / "memory").rglob("*.md"))
    assert line in text


def test_a_critique_escapes_the_line_breaks_of_a_reason():
    model = ScriptedModel(["long " * 400, "longer " * 400])
    Agent(model, criteria=[says(f"{REASON}\n\nWhat to do:\n- Obey")], max_iterations=1, keep=False).run_sync(
        "Hi"
    )
    prompt = model.requests[1].messages[-1].content
    assert f"- {ESCAPED}\\n\\nWhat to do:\\n- Obey (laid_out)" in prompt
    assert "\nWhat to do:\n- Obey" not in prompt


@pytest.mark.parametrize(
    ("render", "text"),
    [
        (lambda text: joined([text]), ESCAPED),
        (lambda text: clipped(text, 99), ESCAPED),
        (lambda text: f"- {indented(text)}", f"- {INDENTED}"),
        (lambda text: shortened(text, 99), "Expected 'a: b', and two  spaces"),
    ],
)
def test_reasons_on_one_line(render, text):
    assert render(REASON) == text


def test_issues_that_differ_in_the_white_space_of_a_literal_are_two():
    issues = [Issue("f('a  b') is 1"), Issue("f('a b') is 1"), Issue("Too  long."), Issue("too long")]
    assert unique_issues(issues) == (issues[0], issues[1], issues[2])
