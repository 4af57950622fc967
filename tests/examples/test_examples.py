"""Each example runs: with replies such as models give, to the end that its page promises."""

import re
from pathlib import Path

import pytest

from support.commands import document, redraft
from support.scripted_workflows import script_workflows

FOLDER = Path(__file__).parent.parent.parent / "examples"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))

LAMPS = {"name": "desk lamp", "quantity": "3", "price": 24.5}
TRAY = {"name": "tea tray", "quantity": 1, "price": "11"}
ORDER = {"customer": "Dana Okafor", "items": [LAMPS, TRAY], "paid": 11}
STEPS = ["fill the kettle", "boil the water", "put the tea into the pot", "pour the water", "drink the tea"]
UNSURE, SORRY = (
    {"valid": False, "score": 0.3, "reason": "it does not say sorry"},
    {"valid": True, "score": 0.9},
)

RUNS = {
    "order.yaml: mended": (
        [ORDER, ORDER | {"paid": "true"}],
        "Dana Okafor: 2 items, 84.50 in all",
        ["paid: expected true or false", "read_order  valid after 2 attempts, best score 1.00"],
    ),
    "order.yaml: hopeless": (
        ["I can't.", "Sorry.", {"customer": "Dana Okafor"}, "No."],
        'The order could not be read; the best attempt: {"customer": "Dana Okafor"}',
        ["read_order  not valid after 4 attempts"],
    ),
    "tagline.yaml: counted": (
        ["The best light there is, for you and for me.", "A solar lamp, light as air."],
        "A solar lamp, light as air.",
        ["do not say 'best'", "it has 10 words, and 4 to 9 are wanted", "it does not say 'solar'"],
    ),
    "plan.yaml: put right": (
        [[STEPS[1], STEPS[0], *STEPS[2:]], STEPS],
        "5. drink the tea\n(every step comes after what it needs)",
        ["version 1  0.75", "fill the kettle comes before boil the water"],
    ),
    "plan.yaml: without a step": (
        [[*STEPS[:4], STEPS[0]]] * 6,
        "5. fill the kettle\n(not in order yet)",
        ["pour the water comes before drink the tea", "version 6  0.75"],
    ),
    "inbox.yaml: sorted": (
        [{"team": "billing"}, "It crashes.", {"team": "sales"}],
        " a person: The app crashes whenever I open the settings.\n a person: \n    sales: Do you ship",
        ["no JSON: 'It crashes.'", "raised ValueError: an empty message", "take               failed"],
    ),
    "answer.yaml: said sorry": (
        ["It is broken.", UNSURE, "We are sorry that it broke. A new one leaves today.", SORRY],
        "We are sorry that it broke. A new one leaves today.\n\n(the judge agrees, score 0.90)",
        ["it does not say sorry", "write  valid after 2 attempts, best score 0.90"],
    ),
}


@pytest.mark.parametrize(("replies", "printed", "told"), RUNS.values(), ids=RUNS)
def test_each_example_prints_what_its_page_says(request, monkeypatch, replies, printed, told):
    model = script_workflows(monkeypatch, *replies)
    name = request.node.callspec.id.partition(":")[0]
    result = redraft("run", FOLDER / name, "--no-keep")
    assert result.exit_code == 0, result.stderr
    assert printed in result.stdout
    for line in told:
        assert line in result.stderr
    assert len(model.requests) == len(replies)


def test_errors_reach_the_next_attempt(monkeypatch):
    model = script_workflows(monkeypatch, ORDER, ORDER | {"paid": True})
    redraft("run", FOLDER / "order.yaml", "--no-keep")
    second = model.requests[1].messages[-1].content
    assert '"quantity": 3' in second
    assert "- paid: expected true or false" in second
    assert "Dana Okafor. Please send me" in second


def test_values_of_the_command_override_the_file(monkeypatch):
    model = script_workflows(monkeypatch, {"team": "sales"})
    words = ("-v", 'messages:=["Is it blue?"]', "--no-keep", "--json")
    state = document(redraft("run", FOLDER / "inbox.yaml", *words))["state"]
    assert state["sorted"] == [{"team": "sales", "message": "Is it blue?"}]
    assert model.requests[0].messages[-1].content == "Is it blue?"


@pytest.mark.parametrize("name", FILES)
def test_every_example_is_tested_and_documented(name):
    page = (FOLDER / "README.md").read_text("utf-8")
    assert f"[{name}]({name})" in page
    assert any(row.startswith(f"{name}:") for row in RUNS)
    comment = (FOLDER / name).read_text("utf-8").partition("\nname:")[0]
    assert re.search(rf"^#   redraft run examples/{name}", comment, re.MULTILINE)


def test_there_are_five_examples():
    assert len(FILES) == 5
