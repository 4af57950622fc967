import json
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest

from redraft.errors import LessonFileError
from redraft.lessons.lesson import KINDS, Procedure, headings_of
from redraft.lessons.markdown import TITLE, heading_in, parse, parse_draft, render, template, unknown_keys
from support.lessons import CONTENTS, FAILURE, PARTIAL, lesson

ID = "researcher-agent/2026-03-01-api-timeout-handling"


def test_a_failure_is_rendered_with_the_five_headings_of_the_protocol():
    text = render(lesson())
    body = text.split("---\n", 2)[2]
    assert body.splitlines()[0] == "# Reflection: 2026-03-01 - researcher-agent - API timeout handling"
    assert [line for line in body.splitlines() if line.startswith("## ")] == [
        "## What happened?",
        "## What went wrong?",
        "## Why did it go wrong?",
        "## What should I do differently?",
        "## Tactical rule candidate",
    ]
    assert "task_type: web scraping\n" in text
    assert "tools: [http_get]\n" in text


def test_a_procedure_has_a_title_of_its_own():
    body = render(lesson(CONTENTS[2])).split("---\n", 2)[2]
    assert body.startswith(
        "# Procedure: 2026-03-01 - researcher-agent - API timeout handling\n\n## Strategy\n"
    )


HOSTILE = [
    "---\nstatus: active\n---",
    "## What happened?\nforged",
    "\\## What happened?",
    "\\\\## Why it worked",
    "  ## Strategy",
    "## STRATEGY ##",
    "# Reflection: 2020-01-01 - other - other",
    "```python\n## Strategy\n```",
    "a: b\n- c\n{{ x }} ${x} %s",
    "'\"`|&*!",
    "\u4f60\u597d \U0001f600 \u00e9",
    "tabs\tand   spaces",
    "## Not a heading of ours",
    "### What happened",
    "# Strategy:",
    "\\### What happened",
    "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> main",
    "\\<<<<<<< HEAD",
]


@pytest.mark.parametrize("content", CONTENTS)
def test_any_lesson_survives_a_round_trip(content):
    for field, hostile in product(fields(content), HOSTILE):
        written = lesson(replace(content, **{field.name: f"before\n{hostile}\nafter"}), task=hostile, id=ID)
        assert parse(render(written), ID, "researcher-agent") == written


@pytest.mark.parametrize("name", ["task", "task_type", "error", "why", "source"])
def test_front_matter_can_have_any_text(name):
    yaml = ["no", "null", "12", "1.5", "true", "2026-01-01", "~", "- a", "# b", "key: value", "x: 'y"]
    for value in [*HOSTILE, *yaml]:
        written = lesson(**{name: value}, id=ID)
        assert parse(render(written), ID, "researcher-agent") == written


def test_invisible_characters_are_removed():
    hidden = "safe\u202etxt\u200b\U000e0041\ufe0f\x00\x1b[31m\ud800"
    text = render(lesson(replace(FAILURE, why=hidden), summary=hidden, task=hidden, agent=hidden))
    text.encode()
    read = parse(text, ID, "researcher-agent")
    assert read.content.why == read.summary == read.task == "safetxt[31m"


def test_a_line_of_spaces_like_a_heading_takes_linear_time():
    strategy = "## a" + " " * 100_000 + "b"
    written = lesson(Procedure(strategy, "It did."))
    assert parse(render(written), "agent/2026-03-01-x", "agent").content == written.content
    assert heading_in("##  Tactical  ##  ") == "tactical"
    assert heading_in("## ##") == heading_in("# Tactical") == ""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("heading", ["## {}", "### {}", "# {}", "###### {} ######", "## {}:", "##  {} "])
def test_a_person_may_write_headings_in_another_form(heading, end):
    names = [one.rstrip("?") for one in headings_of(type(FAILURE)).values()]
    text = "".join(f"{heading.format(name)}\n\n{number}\n\n" for number, name in enumerate(names))
    read = parse(text.replace("\n", end), ID, "a").content
    assert [getattr(read, field.name) for field in fields(read)] == list("01234")


def test_an_entry_of_the_front_matter_that_has_no_meaning_stays_in_the_file():
    others = "author: Ada\nstauts: retired\ntags: [a, b]\n1: {x: null}\nwhen: 2026-03-01\n"
    read = parse(TEXT.replace("kind:", f"{others}kind:", 1), ID, "researcher-agent")
    assert read.status == "active"
    assert unknown_keys(read)[:2] == [
        "The key 'author' has no meaning here.",
        "The key 'stauts' has no meaning here; did you mean 'status'?",
    ]
    again = parse(render(read), ID, "researcher-agent")
    assert again == read
    assert json.loads(again.others) == {
        "author": "Ada",
        "stauts": "retired",
        "tags": ["a", "b"],
        "1": {"x": None},
        "when": "2026-03-01",
    }


def test_headings_are_enough():
    text = "\ufeff# Pages are not cursors\r\n\n" + "\r\n".join(
        f"## {heading} \r\n\r\nSomething.\r\n" for heading in headings_of(type(FAILURE)).values()
    )
    read = parse(text, ID, "researcher-agent")
    assert (read.kind, read.day, read.status) == ("failure", date(2026, 3, 1), "active")
    assert (read.summary, read.confidence) == ("Pages are not cursors", 0.7)
    assert read.content.rule == "Something."


def test_without_a_title_the_summary_comes_from_the_file_name():
    text = "\n".join(f"## {heading.upper()}\nx" for heading in headings_of(type(PARTIAL)).values())
    read = parse(text, ID, "researcher-agent")
    assert (read.kind, read.summary) == ("partial", "api timeout handling")


TEXT = render(lesson())
BROKEN = [
    ("", "none of a lesson's headings"),
    ("Just text.", "line 1: 'Just text.' comes before"),
    ("---\nkind: failure\n", "not closed"),
    (TEXT.replace("kind: failure", "kind: failed"), "line 2: Unknown kind 'failed'"),
    (TEXT.replace("status: active", "status: actve"), "'active'"),
    (TEXT.replace("confidence: 0.7", "confidence: 70"), "number in 0..1"),
    (TEXT.replace("tools: [http_get]", "tools: http_get"), "list of names"),
    (TEXT.replace("task_type: web scraping", "task_type: 7"), "put it in quotes"),
    (TEXT.replace("task_type: web scraping", "task_type: &a [*a]"), "front matter"),
    (TEXT.replace("task_type: web scraping", "task_type: !!python/object:os.system x"), "front matter"),
    (TEXT.replace("kind: failure", "- kind"), "front matter"),
    (TEXT.replace("## What happened?", "## What happenend?"), "comes before the first heading"),
    (TEXT + "\n## What happened?\nagain", "Duplicate heading"),
    (TEXT + "\n## Strategy\nodd", "no heading 'strategy'"),
    (TEXT.replace(FAILURE.why, "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main"), "conflict markers of git"),
    (f"<<<<<<< HEAD\r\n{TEXT}=======\r\n{TEXT}>>>>>>> main\r\n", "line 1: There are conflict markers"),
    (TEXT.replace(FAILURE.why, ""), "There is nothing under '## Why did it go wrong?'"),
    (TEXT.replace("# Reflection: 2026-03-01", "# Reflection: 2026-13-01"), "in the title is not a day"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_invalid_files_are_refused_with_the_line(text, says):
    with pytest.raises(LessonFileError, match="researcher-agent/2026") as caught:
        parse(text, ID, "researcher-agent")
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_kind_follows_from_the_headings(kind):
    text = "\n".join(f"## {heading}\nx" for heading in headings_of(kind).values())
    assert parse(text, ID, "a").kind == kind.kind


def filled(kind="procedure"):
    text = template(kind, "clerk").replace(TITLE, "Ask for a seat")
    for number, says in enumerate(line for line in text.splitlines() if line.startswith("> ")):
        text = text.replace(says, f"Line {number}.")
    return text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_filled_in_template_is_a_lesson(kind, end):
    lesson = parse_draft(filled(kind).replace("\n", end), "lesson.md", "clerk")
    assert (lesson.kind, lesson.summary, lesson.agent, lesson.task) == (kind, "Ask for a seat", "clerk", "")


def test_a_draft_needs_only_the_headings():
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
        ("---\nkind: procedure\nstatus: 1\n---\n# x\n", "mine.md, line 3: Unknown status 1"),
        ("ab\n", "mine.md, line 1: 'ab' comes before the first heading"),
    ],
)
def test_an_invalid_draft_is_refused_with_the_line(text, says):
    with pytest.raises(LessonFileError, match=says):
        parse_draft(text, "mine.md", "clerk")


AT = datetime(2026, 3, 1, 10, 15, 30, 123000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changed", "written", "at"),
    [
        pytest.param({}, None, None, id="only a day"),
        pytest.param({}, AT, AT, id="a file of that day"),
        pytest.param({}, AT + timedelta(days=3), None, id="a file that was edited later"),
        pytest.param({"at": AT}, AT + timedelta(hours=3), AT, id="a time of its own"),
        pytest.param({"at": AT - timedelta(days=3)}, AT, AT, id="a time of another day than the title says"),
    ],
)
def test_a_lesson_has_the_time_at_which_it_was_written(changed, written, at):
    found = parse(render(lesson(**changed)), "researcher-agent/2026-03-01-x", "researcher-agent", written)
    assert found.at == at
    assert parse(render(found), found.id, found.agent) == found


def test_lessons_of_one_name_and_day_are_as_new_as_their_numbers():
    names = [f"researcher-agent/2026-03-01-x{end}" for end in ("", "-2", "-3", "-10")]
    recency = [parse(render(lesson()), name, "researcher-agent").recency for name in names]
    assert recency == sorted(set(recency))


@pytest.mark.parametrize("at", ["yesterday", "2026-03-01T10:15:00", "12"])
def test_a_time_that_is_none_is_refused_with_its_line(at):
    text = render(lesson(at=AT)).replace(AT.isoformat(timespec="milliseconds"), at)
    with pytest.raises(LessonFileError, match="line 6: at must be a time with its zone"):
        parse(text, "researcher-agent/2026-03-01-x", "researcher-agent")
