"""Drafts: lessons that a person writes."""

import pytest

from redraft import ConfigError
from redraft.errors import LessonFileError
from redraft.lessons.draft import TITLE, content_of, parse_draft, template
from redraft.lessons.lesson import KINDS, Procedure, headings_of


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_follows_from_the_fields(kind):
    fields = {name: f"The {name} of it." for name in headings_of(KINDS[kind])}
    assert content_of(fields | {"unused": None}) == KINDS[kind](**fields)
    assert content_of(fields, kind) == KINDS[kind](**fields)


def test_without_fields_there_is_no_content():
    assert content_of({"why": None}) is None


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"strategy": "x"}, None, "A procedure also needs --why-it-worked."),
        ({"rule": "x"}, "partial", "A partial also needs --what-happened, --what-went-wrong, --do-diff"),
        ({"strategy": "x", "why_it_worked": "y", "rule": "z"}, None, "A procedure takes no --rule."),
        ({}, "x", "--kind: there is no 'x'"),
    ],
)
def test_fields_that_are_missing_or_odd_are_named_as_options(fields, kind, says):
    with pytest.raises(ConfigError, match=says):
        content_of(fields, kind)


def filled(kind="procedure"):
    text = template(kind, "clerk").replace(TITLE, "Ask for a seat")
    for number, says in enumerate(line for line in text.splitlines() if line.startswith("> ")):
        text = text.replace(says, f"Line {number}.")
    return text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_template_that_is_filled_in_is_a_lesson(kind, end):
    lesson = parse_draft(filled(kind).replace("\n", end), "lesson.md", "clerk")
    assert (lesson.kind, lesson.summary, lesson.agent, lesson.task) == (kind, "Ask for a seat", "clerk", "")


def test_headings_are_enough():
    text = "# Tests first\n\n## Strategy\nWrite the test.\n\n## Why it worked\nIt failed first.\n"
    lesson = parse_draft(text, "mine.md", "clerk")
    assert (lesson.summary, lesson.content) == (
        "Tests first",
        Procedure("Write the test.", "It failed first."),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (template("procedure", "a").replace(TITLE, "It"), "mine.md.*There is nothing under '## Strategy'"),
        (filled().replace("Ask for a seat", TITLE), "The title still says"),
        ("---\nkind: procedure\nsure: 1\n---\n# x\n", "mine.md, line 3: Unknown key 'sure'"),
        ("ab\n", "mine.md, line 1: 'ab' comes before the first heading"),
    ],
)
def test_a_draft_that_is_no_lesson_is_refused_with_the_line(text, says):
    with pytest.raises(LessonFileError, match=says):
        parse_draft(text, "mine.md", "clerk")
