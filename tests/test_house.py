"""The rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "redraft").rglob("*.py"))
LONGEST_FILE = 350
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 8


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_and_functions_are_short(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, f"{node.name} is too long"
            arguments = node.args
            if path.parent.name == "cli" and node.name == path.stem:
                continue  # the parameters of a command are its options
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
            is_method = bool(arguments.args) and arguments.args[0].arg in ("self", "cls")
            assert count - is_method <= MOST_PARAMETERS, f"{node.name} takes too many parameters"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_modules_docstring_is_one_line(path):
    if path.name == "errors.py":  # the tree is drawn there
        return
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert docstring, "there is none"
    assert path.name == "__init__.py" or "\n" not in docstring


def test_the_package_has_the_floors_that_the_linter_holds():
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {part.strip() for layer in layers for part in layer.split("|")}
    folders = {path.name for path in (ROOT / "src" / "redraft").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= named
