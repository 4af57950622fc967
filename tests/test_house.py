"""The rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "redraft").rglob("*.py"))


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_module_docstrings_are_one_line(path):
    if path.name == "errors.py":  # the tree is drawn there
        return
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert docstring, "there is none"
    assert path.name == "__init__.py" or "\n" not in docstring


def test_every_folder_is_in_the_import_contract():
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {part.strip() for layer in layers for part in layer.split("|")}
    folders = {path.name for path in (ROOT / "src" / "redraft").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= named


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_no_module_checks_the_class_of_a_step(path):
    """A step of a user's own may stand around it: what is inside is asked for with `find_in_step`."""
    asked = [
        ast.unparse(call)
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "isinstance"
        if {"Journalled", "InnerStep", "TimedStep"} & set(_names(call.args[1]))
    ]
    assert asked == []


def _names(node):
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
