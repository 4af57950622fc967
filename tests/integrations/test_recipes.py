"""The example whose client is always here. `make test-integrations` runs all of `examples/frameworks`."""

import sys

from support.pages import ROOT, Page
from support.recipes import DONE, FOLDER, play


def test_the_recipe_for_openais_client_continues_the_conversation(tmp_path):
    assert play("openai_client", sys.executable, tmp_path) == DONE


def test_a_run_that_was_killed_goes_on_with_the_conversation_of_its_memo(tmp_path):
    assert play("openai_client", sys.executable, tmp_path, DIES_AFTER="2") is None
    told = play("openai_client", sys.executable, tmp_path, FIRST_ANSWER="2")
    assert told == DONE | {"looked_up": [], "heard": [2]}  # by the process that went on


def test_every_recipe_is_run_by_the_integration_tests():
    tests = (ROOT / "tests" / "frameworks" / "test_frameworks.py").read_text("utf-8")
    page = Page("docs/frameworks.md").text
    recipes = [path.stem for path in sorted(FOLDER.glob("*.py")) if path.stem != "shop"]
    assert len(recipes) == 8
    assert [name for name in recipes if f'"{name}"' not in tests or f"[{name}.py]" not in page] == []


def test_the_table_names_the_pinned_versions():
    pinned = "\n".join(
        path.read_text("utf-8")
        for path in sorted((ROOT / "tests" / "frameworks").glob("*.txt"))
        if path.stem not in ("jupyter", "instructor")  # for the notebook, and for docs/migration.md
    )
    text = Page("docs/frameworks.md").text
    assert [one for one in pinned.split() if f"| {one.replace('==', ' ')} |" not in text] == []
