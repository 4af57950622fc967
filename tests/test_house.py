"""The rules of the house that no linter knows."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "redraft").rglob("*.py"))


def name(path):
    return str(path.relative_to(ROOT))


@cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"))


def test_module_docstrings_are_one_line():
    wrong = []
    for path in SOURCES:
        docstring = ast.get_docstring(parsed(path)) or ""
        # The tree is drawn in errors.py; a package may explain itself.
        many = "\n" in docstring and path.name not in ("errors.py", "__init__.py")
        if many or not docstring:
            wrong.append(name(path))
    assert wrong == []


def test_every_folder_is_in_the_import_contract():
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {part.strip() for layer in layers for part in layer.split("|")}
    folders = {path.name for path in (ROOT / "src" / "redraft").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= named


def test_every_command_of_make_is_phony():
    """One that has the name of a folder would otherwise do nothing."""
    text = (ROOT / "Makefile").read_text("utf-8")
    commands = re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE)
    assert sorted(re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)[1].split()) == sorted(commands)


def test_no_module_checks_the_class_of_a_step():
    """A step of a user's own may stand around it: `journal_in` and `enclosing_step` find what is inside."""
    asked = [
        (name(path), ast.unparse(call))
        for path in SOURCES
        for call in ast.walk(parsed(path))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "isinstance"
        if {"Journalled", "InnerStep"} & set(_names(call.args[1]))
    ]
    assert asked == []


def _names(node):
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def test_errors_are_named_in_one_way():
    """A message written by hand ends in ": " where the error has none, and fails where `str` raises."""
    by_hand = re.compile(r"type\((\w+)\)\.__name__\}: \{\1(?:!r)?\}")
    assert [name(path) for path in SOURCES if by_hand.search(path.read_text("utf-8"))] == []


def test_public_class_names_stand_once():
    """A name with two meanings makes a reader look at the imports to know which one a module is about."""
    names = Counter(
        node.name
        for path in SOURCES
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
