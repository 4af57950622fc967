"""Actions of installed packages, found by their entry points."""

import sys

import pytest

from redraft import ScriptedModel
from redraft.errors import WorkflowError
from redraft.protocols import ChatReply
from redraft.workflow import Workflow, actions
from support.commands import redraft

CODE = """\
import shop_of_nowhere_in_use

def price(state, name):
    return {"lamp": 24.5}[name]

async def slowly(state):
    return state["wanted"].upper()

number = 7
"""
POINTS = """\
[redraft.actions]
shop.price = shop_for_tests:price
shop.slowly = shop_for_tests:slowly
shop.number = shop_for_tests:number
shop.missing = shop_for_tests:nothing_there
shop.broken = shop_that_breaks:price
shop.exits = shop_that_exits:price
llm.call = shop_for_tests:price
"""
FILE = """\
name: shop
nodes:
  - name: look
    uses: ACTION
    with: {PARAMS}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution with actions, one module of which does not import."""
    (tmp_path / "shop_for_tests.py").write_text(CODE.partition("\n")[2])
    (tmp_path / "shop_that_breaks.py").write_text(CODE)
    (tmp_path / "shop_that_exits.py").write_text("raise SystemExit")
    about = tmp_path / "shop_for_tests-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-for-tests\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    actions._entry_points.cache_clear()
    yield tmp_path
    actions._entry_points.cache_clear()
    for name in ("shop_for_tests", "shop_that_breaks"):
        sys.modules.pop(name, None)


def text(action, params=""):
    return FILE.replace("ACTION", action).replace("PARAMS", params)


@pytest.mark.parametrize(
    ("action", "params", "value"),
    [
        ("shop.price", 'name: "{{ state.wanted }}"', 24.5),
        ("shop.slowly", "", "LAMP"),
        ("reflection.correct", "data: x, corrector_action: shop.slowly", None),
    ],
)
def test_package_actions_need_no_registration(installed, action, params, value):
    state = Workflow.from_text(text(action, params), keep=False).run_sync({"wanted": "lamp"}).state
    assert state.get("look", state.get("corrected_output")) == (value or "LAMP")


@pytest.mark.parametrize(
    ("action", "params", "key", "message"),
    [
        ("shop.broken", "", "uses", "of the package 'shop-for-tests' can't be used"),
        ("shop.broken", "", "uses", "'shop_that_breaks:price' failed with ModuleNotFoundError"),
        ("shop.exits", "", "uses", "failed with SystemExit"),
        ("shop.missing", "", "uses", "failed with AttributeError"),
        ("shop.number", "", "uses", "must be a function, got 7"),
        ("shop.prise", "", "uses", "did you mean 'shop.price'"),
        ("shop.price", "", "with", "the action 'shop.price' needs the parameter 'name'"),
        ("reflection.correct", "corrector_action: shop.broken", "with.corrector_action", "failed with"),
        (
            "reflection.loop",
            "generator: {action: shop.missing}, evaluator: {type: custom, run: 'return 1'}",
            "with.generator.action",
            "failed with AttributeError",
        ),
    ],
)  # fmt: skip
def test_broken_package_actions_are_reported_before_anything_runs(installed, action, params, key, message):
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text(action, params), keep=False)
    assert message in str(caught.value)
    assert (caught.value.node, caught.value.key) == ("look", key)


def test_broken_package_actions_do_not_affect_other_files(installed):
    Workflow.from_text(text("shop.price", "name: lamp"), keep=False)
    assert "shop_that_breaks" not in sys.modules


def test_packages_can_not_override_built_in_actions(installed):
    with pytest.raises(WorkflowError, match="either 'prompt' or 'messages'"):
        Workflow.from_text(text("llm.call"), keep=False)


def test_the_actions_argument_overrides_package_actions(installed):
    actions = {"shop.price": lambda state, name: 1.0}
    workflow = Workflow.from_text(text("shop.price", "name: lamp"), actions=actions, keep=False)
    assert workflow.run_sync().state["look"] == 1.0


def test_the_command_finds_package_actions(installed, monkeypatch):
    monkeypatch.chdir(installed)
    (installed / "w.yaml").write_text(text("shop.price", 'name: "{{ state.wanted }}"'))
    assert redraft("run", "w.yaml", "--no-keep", "-v", "wanted=lamp").stdout == "24.5\n"
    (installed / "w.yaml").write_text(text("shop.broken"))
    result = redraft("run", "w.yaml", "--check")
    assert result.exit_code == 2
    assert "w.yaml, line 4, node 'look', uses: the action 'shop.broken'" in " ".join(result.stderr.split())


def test_a_reply_without_a_schema_is_text_even_if_the_model_parses_it():
    model = ScriptedModel([ChatReply('{"a": 1}', parsed={"a": 1})])
    workflow = Workflow.from_text(text("llm.call", "prompt: Go"), model=model, keep=False)
    assert workflow.run_sync().state["look"] == '{"a": 1}'
