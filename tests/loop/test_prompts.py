"""docs/prompts.md shows the prompts that are sent."""

import re

import pytest

from support.pages import Page
from support.prompts import BLOCK, PAGE, prompts, written

WRITE = "The prompts have changed. Write the page anew: PYTHONPATH=tests python tests/support/prompts.py"


def test_the_page_shows_the_prompts_of_today():
    text = Page(PAGE).text
    assert BLOCK.search(text)
    assert text == written(text), WRITE


def test_every_prompt_is_on_the_page():
    assert {name for _, name, _ in BLOCK.findall(Page(PAGE).text)} == set(prompts())


KINDS = ("code", "program", "python", "humaneval", "test", "bullet", "json schema")


@pytest.mark.parametrize("name", ["draft", "judge", "rewrite", "regression", "edits", "fresh", "tools"])
def test_no_prompt_names_a_kind_of_task(name):
    text = prompts()[name].lower().replace("with the code", "")
    assert [kind for kind in KINDS if re.search(rf"\b{kind}s?\b", text)] == []
