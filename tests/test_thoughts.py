import pytest

from redraft._thoughts import ThoughtFilter, without_thoughts
from support.properties import given, some

ROWS = [
    ("Tea", "Tea"),
    ("\nTea", "\nTea"),
    ("<think>hm</think>Tea", "Tea"),
    ("<think>\nhm\n</think>\n\n  Tea", "  Tea"),
    ("\n\n<THINK>hm</Think> Tea", "Tea"),
    ("<thinking>a</thinking>\n<reasoning>b</reasoning>\nTea", "Tea"),
    ("[THINK]hm[/THINK]Tea", "Tea"),
    ("◁think▷hm◁/think▷Tea", "Tea"),
    ("<think>never closed", ""),
    ("<think>a</thinking>b</think>Tea", "Tea"),
    ("hm\n</think>\n\nTea", "Tea"),
    ("hm.</think>Tea", "Tea"),
    ("hm. </think>\n\nTea", "Tea"),
    ("</think>\nTea", "Tea"),
    ("</think>", ""),
    ("```\ncode\n```\nhm\n</think>\nTea", "Tea"),
    (
        "<think>a</think>\nWrite </think> at the end\n</think>\nTea",
        "Write </think> at the end\n</think>\nTea",
    ),
    ("A closing </think> tag.", "A closing </think> tag."),
    ("`</think>`", "`</think>`"),
    ("The tag is `<think>`\n", "The tag is `<think>`\n"),
    ("Wrap it: <think></think>.", "Wrap it: <think></think>."),
    ("x\n<think>\ny\n</think>\nz", "x\n<think>\ny\n</think>\nz"),
    ("```xml\n</think>\n```", "```xml\n</think>\n```"),
    ("<table><tr></tr></table>", "<table><tr></tr></table>"),
    ("\ufeff<think>hm</think>Tea", "Tea"),
    ("\n\ufeff <think>hm</think>\ufeff<think>hm</think>Tea", "Tea"),
    ("\ufeffTea", "\ufeffTea"),
    ("<thinker>x</thinker>", "<thinker>x</thinker>"),
    ("[1, 2]", "[1, 2]"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "rest"), ROWS)
def test_reasoning_at_the_start_is_removed(text, rest):
    assert without_thoughts(text) == rest


def filtered(pieces, **more):
    passed_on = []
    thoughts = ThoughtFilter(passed_on.append, **more)
    for piece in pieces:
        thoughts.add(piece)
    thoughts.finish()
    return "".join(passed_on), thoughts


PARTS = [
    "\ufeff",
    "<think>",
    "</think>",
    "<th",
    "ink>",
    "</thi",
    "nk>",
    "\n",
    " ",
    "hm",
    "Tea",
    "`",
    "```\n",
    "<b>",
    "[",
]


@given(some.lists(some.sampled_from(PARTS)))
def test_a_stream_passes_on_what_the_whole_text_leaves(pieces):
    rest = without_thoughts("".join(pieces))
    passed_on, thoughts = filtered(pieces)
    if thoughts.unopened:
        assert "".join(pieces).startswith(passed_on)  # it came before the closing tag
    else:
        assert passed_on == (rest if rest.strip() else "")
    held, thoughts = filtered(pieces, held=True)
    assert held == (rest if rest.strip() else "")


def test_a_stream_begins_at_the_first_certain_character():
    passed_on = []
    thoughts = ThoughtFilter(passed_on.append)
    for piece in ["<", "b>", "x", "<think>"]:
        thoughts.add(piece)
    assert passed_on == ["<b>", "x", "<think>"]
