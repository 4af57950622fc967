"""The files of the page on tools and requests pass their check, with the function of the page."""

import pytest

from redraft import ScriptedModel
from redraft.workflow import Workflow
from support.pages import Page

PAGE = Page("docs/workflow-tools.md")
FILES = PAGE.files("yaml")


@pytest.fixture
def folder(tmp_path):
    for name, text in (PAGE.files("python") | FILES).items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_valid(folder, name):
    models = {"openai:gpt-6-luna": ScriptedModel([])}
    Workflow.from_file(folder / name, models=models, keep=False)


def test_the_function_is_a_tool_without_its_tests(folder):
    made = Workflow.from_file(
        folder / "counted.yaml", models={"openai:gpt-6-luna": ScriptedModel([])}, keep=False
    )
    functions = made._resources.tools.functions()
    assert list(functions) == ["word_count"]
    assert functions["word_count"]("a b") == 2


@pytest.mark.parametrize("key", ["command", "env", "url", "headers", "timeout", "method", "body"])
def test_the_tables_have_the_keys_of_the_format(key):
    assert f"`{key}`" in PAGE.text
