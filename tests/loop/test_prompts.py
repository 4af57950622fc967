"""docs/prompts.md and docs/how-it-works.md show the prompts that are sent, and the loop as it is."""

import inspect
import re
from textwrap import dedent

import pytest

from redraft.loop.run import Run
from support.pages import Page
from support.prompts import BLOCK, PAGE, QUOTING, prompts, written

WRITE = "The prompts have changed. Write the page anew: PYTHONPATH=tests python tests/support/prompts.py"


@pytest.mark.parametrize("page", [PAGE, QUOTING])
def test_the_page_shows_the_prompts_of_today(page):
    text = Page(page).text
    assert BLOCK.search(text)
    assert text == written(text), WRITE


def test_the_loop_is_quoted_word_for_word():
    assert dedent(inspect.getsource(Run._loop)) == Page(QUOTING).blocks("text")[0]


def test_every_prompt_is_on_the_page():
    assert {name for _, name, _ in BLOCK.findall(Page(PAGE).text)} == set(prompts())


KINDS = ("code", "program", "python", "humaneval", "test", "bullet", "json schema")


@pytest.mark.parametrize("name", ["draft", "judge", "rewrite", "regression", "edits", "fresh", "tools"])
def test_no_prompt_names_a_kind_of_task(name):
    text = prompts()[name].lower().replace("with the code", "")
    assert [kind for kind in KINDS if re.search(rf"\b{kind}s?\b", text)] == []
