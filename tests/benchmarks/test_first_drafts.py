"""The families whose form only the checks state, and the benchmark of first drafts with a scripted model."""

import asyncio
import json
import sys
from dataclasses import replace

import _memory
import first_drafts
import pytest
from _arms import Replies
from _memory import run_all
from first_drafts import FAMILIES, REPORTED, TUNING_FAMILIES
from form_families import FREE_FAMILIES, PATTERN_FAMILIES

from redraft import Agent, ReflectionPattern, ScriptedModel
from redraft.evaluate.requirements import requirements_of
from redraft.protocols import ChatRequest, Message

ERRANDS = "- Water the plants\n- Feed the cat\n- Lock the shed"
RIGHT = {
    "repairs": {
        0: '{"trade": "water", "floor": 3, "rooms": ["kitchen"]}',
        1: '{"trade": "heating", "floor": 7, "rooms": ["the hall", "Bedroom"]}',
        3: '{"trade": "locks", "floor": 0, "rooms": ["cellar"]}',
    },
    "errands": {
        0: ERRANDS,
        1: "- Buy milk\n- Post the letter\n- Return drill to Ben",
        18: "- Read a story\n- Bathe the dog\n- Heat the soup",
    },
    "flights": {
        0: '{"passenger": "Ana Ruiz", "flight": "LH402", "departure": "2026-05-05T09:10", "seat": "12C"}',
        15: '{"passenger": "Dora Kiss", "flight": "RO341", "departure": "2026-07-04T14:15", "seat": "8F"}',
        18: '{"passenger": "Mei Tan", "flight": "SQ26", "departure": "2026-08-16T09:45", "seat": "29C"}',
    },
    "invoices": {
        0: '{"invoice": "INV-2024-0042", "amount": "19.50", "country": "ES"}',
        4: '{"invoice": "INV-2024-3310", "amount": "1200.00", "country": "JP"}',
        19: '{"invoice": "INV-2024-9005", "amount": "58.15", "country": "MX"}',
    },
    "shifts": {
        0: "TUE Ana 06:00-14:30",
        6: "THU Greta (guard) 18:00-23:30",
        19: "THU Viktor 12:30-20:30",
    },
    "packages": {
        0: '{"name": "moon-clock", "version": "2.4.1", "megabytes": 12, "stable": true}',
        3: '{"name": "quick-sort-kit", "version": "3.1.4", "megabytes": 0.8, "stable": false}',
        19: '{"name": "color-mixer", "version": "0.1.3", "megabytes": 6.5, "stable": false}',
    },
    "subjects": {0: "Parking lot closed", 5: "Summer party on 12 July", 19: "Storm: shut windows"},
    "parcels": {0: "B12 Ida Holm SMALL", 5: "E44 Mr. Abbas: SMALL", 11: "P11 for Nina Wolf, MEDIUM"},
    "visits": {0: "09:15 Mrs. Lang, ROOM 4", 5: "13:00 Ito (3 people) ROOM 3", 11: "17:25 - Lund - ROOM 1"},
}
WRONG_FORM = {
    "repairs": (
        '{"trade": "plumbing", "floor": 3, "rooms": ["kitchen"]}',
        '{"trade": "water", "floor": 31, "rooms": ["kitchen"]}',
        '{"trade": "water", "floor": 3, "rooms": []}',
    ),
    "errands": (
        ERRANDS.replace("- ", ""),
        ERRANDS.partition("\n")[2],
        f"To do:\n{ERRANDS}",
        ERRANDS.replace("Water", "On Friday, before you go, please water"),
    ),
    "flights": (
        RIGHT["flights"][0].replace("LH402", "LH 402"),
        RIGHT["flights"][0].replace("T", " "),
        RIGHT["flights"][0].replace("12C", "12 C"),
    ),
    "invoices": (
        RIGHT["invoices"][0].replace("INV-2024-0042", "2024/0042"),
        RIGHT["invoices"][0].replace("19.50", "19.5"),
        RIGHT["invoices"][0].replace("ES", "Spain"),
    ),
    "shifts": (
        "Tuesday Ana 06:00-14:30",
        "TUE Ana 6:00-14:30",
        "TUE\nAna 06:00-14:30",
    ),
    "packages": (
        RIGHT["packages"][0].replace("moon-clock", "Moon Clock"),
        RIGHT["packages"][0].replace("2.4.1", "2.4"),
        RIGHT["packages"][0].replace("12", "0"),
        RIGHT["packages"][0].replace("true", '"yes"'),
    ),
    "subjects": (
        "Parking",
        "Parking lot closed.",
        "Parking: the lot behind the house is closed",
        "Parking\nclosed now",
    ),
    "parcels": ("Shelf B12 Ida Holm SMALL", "B12 Ida Holm small", "B12, Ida Holm, SMALL."),
    "visits": ("9:15 Mrs. Lang, ROOM 4", "09:15 Mrs. Lang, room 4", "09:15 Mrs. Lang\nROOM 4"),
}
BY_HAND = [pytest.param(FAMILIES[name], id=name) for name in RIGHT]


async def judged(family, place, output):
    """Whether an output meets the form, and whether its content is right for an input."""
    evaluation = await ReflectionPattern(quality_criteria=family.criteria).reflect(output)
    return evaluation.satisfactory, await family.hidden(family.inputs[place])(output)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_inputs_of_a_family_differ_and_no_criterion_is_described(family):
    assert len({str(inputs) for inputs in family.inputs}) == len(family.inputs)
    assert len(family.inputs) == 20 or (family.name in TUNING_FAMILIES and len(family.inputs) >= 12)
    assert [criterion.description for criterion in family.criteria if criterion.description] == []
    assert all("{" not in family.description.format(**inputs) for inputs in family.inputs)


def test_families_for_tuning_are_not_reported():
    assert not set(REPORTED) & set(TUNING_FAMILIES)
    assert set(RIGHT) == set(FREE_FAMILIES) | set(PATTERN_FAMILIES) | set(TUNING_FAMILIES)


@pytest.mark.parametrize("family", BY_HAND)
def test_right_answers_meet_the_form_and_are_right_for_their_input_alone(family):
    answers = RIGHT[family.name]
    for place in answers:
        for other, answer in answers.items():
            expected = (True, other == place)
            assert asyncio.run(judged(family, place, answer)) == expected, (place, answer)


@pytest.mark.parametrize(
    ("family", "output"),
    [
        pytest.param(FAMILIES[name], output, id=name)
        for name, several in WRONG_FORM.items()
        for output in several
    ],
)
def test_wrong_forms_fail(family, output):
    met, _ = asyncio.run(judged(family, 0, output))
    assert not met


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("repairs", '{"trade": "power", "floor": 3, "rooms": ["kitchen"]}'),
        ("repairs", '{"trade": "water", "floor": 3, "rooms": ["kitchen", "hall"]}'),
        ("errands", "- Water the plants\n- Water the plants\n- Feed the cat"),
        ("errands", "- Water plants, feed cat\n- Lock the shed\n- Go home"),
        ("flights", RIGHT["flights"][0].replace("09:10", "21:10")),
        ("invoices", RIGHT["invoices"][0].replace("19.50", "19.05")),
        ("shifts", "TUE Ben 06:00-14:30"),
        ("shifts", "TUE Ana 06:00-16:30"),
        ("packages", RIGHT["packages"][0].replace("true", "false")),
        ("subjects", "News about the house"),
        ("parcels", "B12 SMALL"),
        ("visits", "09:15 ROOM 4"),
    ],
)
def test_wrong_content_in_the_right_form_is_wrong(name, output):
    assert asyncio.run(judged(FAMILIES[name], 0, output)) == (True, False)


# --- the benchmark ------------------------------------------------------------------------------------------


@pytest.fixture
def three_flights(monkeypatch):
    family = PATTERN_FAMILIES["flights"]
    monkeypatch.setitem(FAMILIES, "flights", replace(family, inputs=family.inputs[:3]))


def drafted(request):
    """Answer the first input rightly, the second in the right form, and the third in another form."""
    text = request.messages[-1].content
    if "Noor Haddad" in text:
        return json.dumps({"booking": "AF 1080"})
    return RIGHT["flights"][0]


def test_the_table_counts_form_and_content(three_flights):
    series = [each for arm in first_drafts.ARMS for each in first_drafts.series("flights", arm, 1)]
    runs = asyncio.run(run_all(series, Replies("scripted", lambda seed: ScriptedModel(drafted))))
    assert [run.calls for run in runs] == [1] * 12
    # The arms differ in what their prompts say; what is counted does not depend on it.
    runs = [replace(run, input_tokens=100, output_tokens=10) for run in runs]
    runs = [replace(run, met=False, solved=False) if run.arm == "withheld" else run for run in runs]
    report = first_drafts.report(runs)
    assert "| flights | withheld | 0 of 3 | 0 of 3 | 0 | 100 | 10 |" in report
    assert "| flights | stated | 2 of 3 | 1 of 3 | 1 | 100 | 10 |" in report
    assert "| flights | expression | 2 of 3 | 1 of 3 | 1 | 100 | 10 |" in report
    assert "| flights | stated - withheld | 3 | +0.67 (+0.00 to +1.00) | +0.33 (+0.00 to +1.00) |" in report
    assert "| flights | words - expression | 3 | +0.00 (+0.00 to +0.00) |" in report


def test_content_that_is_not_checked_is_left_blank(three_flights):
    run = _memory.MemoryRun("flights-1", "stated", 1, "flights", 1, 1.0, True, 1, 0, 9, 5, met=True)
    order = replace(run, task="orders-1", family="orders")
    report = first_drafts.report([run, order])
    assert "| orders | stated | 1 of 1 |  |  | 9 | 5 |" in report
    assert "| all | stated | 2 of 2 | 1 of 1 | 0 | 9 | 5 |" in report


def test_an_arm_decides_what_the_writer_learns(three_flights, monkeypatch):
    patterns, stated, schemas = [], [], []

    def agent(model, *, pattern, keep):
        async def constrained(request):
            return await model(replace(request, schema={"type": "object"}))

        patterns.append(pattern)
        return Agent(constrained, pattern=pattern, keep=keep)

    def answer(request):
        requirements = [
            each for criterion in patterns[-1].quality_criteria for each in requirements_of(criterion)
        ]
        stated.append(" ".join(requirement.text for requirement in requirements))
        schemas.append(request.schema)
        return drafted(request)

    monkeypatch.setattr(first_drafts, "Agent", agent)
    expression = r"matches the regular expression `^[A-Z]{2}\d{2,4}$`"
    for arm in first_drafts.ARMS:
        stated.clear(), schemas.clear()
        series = first_drafts.series("flights", arm, 1)
        asyncio.run(run_all(series, Replies("scripted", lambda seed: ScriptedModel(answer))))
        assert len(stated) == 3
        assert all(bool(text) is (arm != "withheld") for text in stated)
        assert all((expression in text) is (arm == "expression") for text in stated)
        assert all((schema is None) is (arm in ("words", "expression")) for schema in schemas)


def test_a_reply_constrained_to_a_schema_is_recorded_separately():
    asked = []
    replies = Replies("scripted", lambda seed: ScriptedModel(lambda request: asked.append(request) or "{}"))
    request = ChatRequest((Message("user", "Write JSON."),))
    for each in (request, replace(request, schema={"type": "object"}), request):
        asyncio.run(replies.draw(each, 1, 0))
    assert [each.schema for each in asked] == [None, {"type": "object"}]


def test_only_families_with_patterns_have_the_arm_with_expressions():
    for name, family in FAMILIES.items():
        configured = str([criterion.evaluator_config for criterion in family.criteria])
        assert not first_drafts.series(name, "expression", 1) or "pattern" in configured
    names = {name for name in FAMILIES if first_drafts.series(name, "expression", 1)}
    assert names == {*PATTERN_FAMILIES, "packages", "parcels", "visits"}


def command(monkeypatch, *arguments):
    monkeypatch.setattr(first_drafts, "code_version", lambda *_, **__: "1")  # takes seconds
    monkeypatch.setattr(sys, "argv", ["first_drafts", *map(str, arguments)])
    first_drafts.BENCHMARK.main()


def test_the_table_is_made_again_from_the_recorded_replies(three_flights, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("_memory.model_of", lambda name, threads: lambda seed: ScriptedModel(drafted))
    out = tmp_path / "rows.jsonl"
    chosen = ["--families", "flights", "--arms", "withheld,stated", "--model", "scripted"]
    command(monkeypatch, *chosen, "--out", out)
    table = capsys.readouterr().out
    assert "| flights | stated | 2 of 3 | 1 of 3 | 1 |" in table
    command(monkeypatch, *chosen, "--replay", "--replies", tmp_path / "rows.replies.jsonl")
    assert capsys.readouterr().out == table


def test_families_for_tuning_are_never_published(tmp_path, monkeypatch):
    published = []
    monkeypatch.setattr("_memory.publish", lambda section, text, *, write: published.append(write))
    monkeypatch.setattr("_memory.model_of", lambda name, threads: lambda seed: ScriptedModel(drafted))
    for name in TUNING_FAMILIES:
        monkeypatch.setitem(FAMILIES, name, replace(FAMILIES[name], inputs=FAMILIES[name].inputs[:1]))
    chosen = ["--arms", "stated", "--model", "scripted", "--write"]
    command(monkeypatch, *chosen, "--tuning")
    assert published == [False]
    with pytest.raises(SystemExit, match="Unknown family 'packages'"):
        command(monkeypatch, *chosen, "--families", "packages")
