"""Cases: read from files and data sets, made of stored runs, and appended without touching what is there."""

import asyncio
import errno
import json
import os
import re
import sys
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from redraft import Agent, ConfigError, QualityCriterion, ReflectionPattern, Runs, ScriptedModel, reflected
from redraft.evals.cases import EvalCase, add_cases, case_of, cases_of_rows, read_cases
from redraft.evals.evaluation import graders_of
from redraft.stores.sqlite import MemoryStore
from redraft.types import PlainTask
from support.kept_runs import record
from support.versions import version

FILE = """\
# What every answer needs.
threshold: 0.9
criteria:
  - {name: short, evaluator: words, config: {at_most: 50}}

cases:
  - id: greeting
    task: Greet Ada.
    reference: Hello, Ada!
    match: includes

  # Written by hand.
  - task: |
      Say it
      in two lines.
    criteria: [Names the price.]
    hidden:
      - {name: price, evaluator: regex, config: {pattern: '[0-9]+ EUR'}}
    threshold: 0.5
    control: true
"""


def written(tmp_path, text, name="cases.yaml"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_a_file_is_read(tmp_path):
    greeting, price = read_cases(written(tmp_path, FILE))
    assert (greeting.id, greeting.threshold, greeting.match) == ("greeting", 0.9, "includes")
    assert [criterion.name for criterion in greeting.criteria] == ["short"]
    assert [one.name for one in greeting.grading] == ["short", "expected"]
    assert (price.id, price.threshold, price.control) == ("say-it-in-two-lines", 0.5, True)
    assert [criterion.name for criterion in price.criteria] == ["Names the price."]
    assert [one.name for one in price.grading] == ["price"]


MISTAKES = {
    "no list": ("cases: 3", "line 1: expected a mapping with 'cases'"),
    "an empty file": ("", "line 1: the file is empty; expected a mapping with 'cases'"),
    "empty": ("cases: []", "line 1: expected at least one case"),
    "no task": ("cases:\n  - id: a", "line 2: the case has no 'task'"),
    "unknown key": (
        "cases:\n  - task: a\n    criterai: []",
        "line 3: unknown key 'criterai'; did you mean 'criteria'",
    ),
    "twice": ("cases:\n  - {id: a, task: b}\n  - {id: a, task: c}", "line 3: the id 'a' is used twice"),
    "criterion": (
        "cases:\n  - task: a\n    criteria:\n      - {name: x, evaluator: regx}",
        "line 4: .*'regx'",
    ),
    "shared": (
        "criteria:\n  - {evaluator: regex}\ncases:\n  - task: a",
        "line 2: the criterion has no 'name'",
    ),
    "threshold": ("cases:\n  - {task: a, threshold: 3}", "line 2: .*must be a number in 0..1"),
    "match": ("cases:\n  - {task: a, match: exact}", "line 2: .*no reference to match"),
    "kind": ("cases:\n  - {task: a, reference: b, match: like}", "line 2: .*unknown value 'like'"),
    "yaml": ("cases:\n\t- task", "line 2"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_line(text, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        read_cases(written(tmp_path, text))


def test_cases_are_appended_and_read_again(tmp_path):
    path = written(tmp_path, FILE)
    check = QualityCriterion("good", evaluator="regex", evaluator_config={"pattern": "a: b"}, weight=2)
    cases = [
        EvalCase(
            "greeting",
            PlainTask("Say:\n  it - # no comment"),
            (check, QualityCriterion("clear", "Is it clear?")),
            run="r1",
        ),
        EvalCase(
            "json",
            PlainTask("x", context="c"),
            (check,),
            reference={"a": [1]},
            wrong=("no: price",),
            run="r2",
        ),
    ]
    added = add_cases(path, cases)
    assert [one.id for one in added] == ["greeting-2", "json"]
    assert path.read_text("utf-8").startswith(FILE.rstrip())
    assert read_cases(path)[2:] == [
        EvalCase(
            one.id,
            one.task,
            one.criteria,
            threshold=0.9,
            reference=one.reference,
            wrong=one.wrong,
            run=one.run,
        )
        for one in added
    ]
    assert add_cases(path, cases) == []
    fresh = tmp_path / "new" / "cases.yaml"
    assert add_cases(fresh, cases)[0].id == "greeting"
    assert read_cases(fresh) == cases


@pytest.mark.parametrize(("mark", "end"), [("", "\n"), ("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_a_file_keeps_its_mark_its_line_ends_and_its_link(mark, end, tmp_path):
    before = f"{mark}cases:{end}  - task: a  # the first{end}".encode()
    (tmp_path / "real.yaml").write_bytes(before)
    path = tmp_path / "cases.yaml"
    path.symlink_to("real.yaml")
    add_cases(path, [EvalCase("b", PlainTask("b"))])
    after = path.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == after.count(end.encode())
    assert path.is_symlink()
    assert [case.id for case in read_cases(path)] == ["a", "b"]


def test_a_file_in_another_encoding_gets_no_case(tmp_path):
    path = tmp_path / "cases.yaml"
    path.write_bytes("cases:\n  - task: größe\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        add_cases(path, [EvalCase("b", PlainTask("b"))])


def test_a_file_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("redraft.evals.cases.replace_file", denied)
    with pytest.raises(ConfigError, match=r"cases.yaml' can't be written: Permission denied"):
        add_cases(tmp_path / "cases.yaml", [EvalCase("b", PlainTask("b"))])


def denied(*_args):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_case_without_an_id_gets_one_of_its_own(tmp_path):
    tasks = ["Say hi!", "写一首诗", "Say hi?", "Скажи привет"]
    text = "cases:\n" + "".join(f"  - task: {task}\n" for task in tasks) + "  - {id: say-hi, task: x}\n"
    ids = [case.id for case in read_cases(written(tmp_path, text))]
    assert ids == ["say-hi-2", "2", "say-hi-3", "4", "say-hi"]


CITIES = ["Mumbai", "Bombay"]


@pytest.mark.parametrize(
    ("match", "reference", "answer", "is_right"),
    [
        ("exact", "Paris", "Paris", True),
        ("exact", "Paris", " Paris\n", True),
        ("exact", "Paris", "Paris.", False),
        ("includes", "Paris", "It is paris.", True),
        ("includes", "Paris", "Lyon", False),
        ("json", {"a": 1}, '```json\n{"a": 1}\n```', True),
        ("json", {"a": 1}, '{"a": 2}', False),
        ("json", {"a": 1}, "nothing", False),
        ("json", True, "1", False),  # true is no number
        ("json", 1, "true", False),
        ("json", {"a": [1]}, '{"a": [true]}', False),
        ("json", 1, "1.0", True),
        ("includes", CITIES, "It is Bombay.", True),
        ("includes", CITIES, "It is Delhi.", False),
        ("exact", CITIES, "mumbai", False),
        ("exact", CITIES, "Mumbai", True),
        ("exact", CITIES, CITIES, True),
        ("json", CITIES, '["Mumbai", "Bombay"]', True),
        ("json", CITIES, '"Bombay"', False),
        ("exact", [4, "four"], "4", True),  # YAML reads 4 as a number
        ("exact", [4, "four"], "four", True),
        ("exact", [4, "four"], "5", False),
    ],
)
def test_a_reference_is_matched(match, reference, answer, is_right):
    (case,) = cases_of_rows([{"input": "Which?", "target": reference}], match=match)
    assert asyncio.run(graders_of([case])[case.id](case, answer)).satisfactory is is_right


@pytest.mark.parametrize("text", ["cases: [{task: a}]\n", "cases:\n  - task: a\nthreshold: 0.5\n"])
def test_nothing_is_appended_to_a_file_of_another_form(text, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match="last key"):
        add_cases(path, [EvalCase("b", PlainTask("b"))])
    assert path.read_text("utf-8") == text


def is_fine(output):
    return "fine" in output


writer = Agent(
    ScriptedModel(lambda _: "all fine"),
    pattern=ReflectionPattern(
        0, [QualityCriterion("fine", evaluator="function", evaluator_config={"function": is_fine})]
    ),
    system_prompt="You write.",
)


def test_a_run_of_an_agent_can_be_run_again(monkeypatch):
    """Its record names the agent and the function that judged, so that another process can import them."""
    module = SimpleNamespace(writer=writer)
    monkeypatch.setitem(sys.modules, "an_app", module)
    store = MemoryStore()
    agent = Agent(writer.model, pattern=writer.pattern, system_prompt="You write.", keep=store, name="w")
    module.writer = agent
    monkeypatch.setattr(agent, "_module", "an_app")
    result = agent.run_sync("Write to ada.byron@lovelace.io.")

    async def stored():
        return await Runs(store).get(result.run_id)

    import asyncio

    case = case_of(asyncio.run(stored()))
    assert case.agent == "an_app:writer"
    assert case.system_prompt == "You write."
    assert "ada.byron@lovelace.io" not in case.task.description
    assert case.task.description.startswith("Write to ")
    assert case.reference == "all fine"
    (criterion,) = case.criteria
    assert criterion.evaluator_config == {"function": f"{__name__}:is_fine"}


total = reflected(evaluate=lambda output: "EUR" in output, keep=MemoryStore())(
    lambda prompt, feedback="": f"{prompt}: 10 EUR"
)
total.__qualname__, total.__module__ = "total", __name__


@pytest.mark.parametrize(
    ("arguments", "keywords", "description"),
    [(("Sum 2",), {}, "Sum 2"), ((), {"prompt": "Sum 2"}, "Sum 2"), ((2,), {}, "<lambda>\nprompt: 2")],
)
def test_a_run_of_a_function_becomes_a_case_with_the_same_call(arguments, keywords, description):
    result = total.run_sync(*arguments, **keywords)
    (stored,) = asyncio.run(Runs(total._keep).find(limit=1))
    assert stored.run_id == result.run_id
    case = case_of(stored)
    assert (case.task.description, case.agent) == (description, f"{__name__}:total")
    assert ("..." in stored.resuming_call()) is (description != "Sum 2")


def test_what_was_wrong_is_in_the_case():
    case = case_of(record([version(1, 0.2, issues=("no price",)), version(2, 0.4)], "max_iterations"))
    assert case.wrong == ("no price",)
    assert case.reference is None
    assert case.run == "20261122-034500-ab12cd34"


@pytest.mark.parametrize(
    ("key", "name", "noun"),
    [
        ("function", "<lambda>", "function"),
        ("function", "<function deploy at 0x7f0000000000>", "function"),  # in the script, as `__main__`
        ("schema", "<class '__main__.Total'>", "class"),
        ("schema", "<class 'f'>", "class"),
    ],
)
def test_what_cannot_be_imported_makes_no_case(key, name, noun):
    options = {"criteria": [{"name": "f", "evaluator": key, "evaluator_config": {key: name}}]}
    advice = "Define it at the top of a module that the script imports, not in the script itself"
    with pytest.raises(ConfigError, match=f"'f' is a {noun} that can't be imported. {advice}"):
        case_of(record([version(1, 1.0)], "quality_met", options=options))


class Total(BaseModel):
    total: int


@pytest.mark.parametrize("surface", ["made", "stored", "written"])
def test_criteria_in_their_short_forms_grade_a_case(surface, tmp_path):
    criteria = [re.compile("total"), Total]
    case = EvalCase("a", PlainTask("Add 2 and 3."), criteria)
    if surface != "made":
        keep = MemoryStore()
        Agent(ScriptedModel(['{"total": 5}']), criteria=criteria, keep=keep).run_sync("Add 2 and 3.")
        case = case_of(asyncio.run(Runs(keep).get()))
    if surface == "written":
        path = tmp_path / "cases.yaml"
        add_cases(path, [case])
        assert f"schema: {__name__}:Total" in path.read_text("utf-8")
        [case] = read_cases(path)
    grader = graders_of([case])[case.id]
    good, bad = (asyncio.run(grader(case, text)) for text in ('{"total": 5}', '{"total": "five"}'))
    assert (good.overall_score, bad.overall_score) == (1.0, 0.5)
    assert list(good.criteria_scores) == ["matches total", "Total"]


def test_rows_become_cases(tmp_path):
    path = written(tmp_path, "id,question,answer\na,Capital of France?,Paris\nb,2+2?,4\n", "q.csv")
    first, second = read_cases(path)
    assert (first.id, first.task.description, first.reference, first.match) == (
        "a", "Capital of France?", "Paris", "includes",
    )  # fmt: skip
    assert second.reference == "4"
    lines = [
        {
            "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}],
            "target": "Hi",
        },
        {"input": "Say it.", "metadata": {"x": 1}},
    ]
    path = written(tmp_path, "\n".join(map(json.dumps, lines)), "inspect.jsonl")
    chat, plain = read_cases(path)
    assert (chat.id, chat.task.description, chat.task.messages[0].content) == ("1", "Hi?", "Be brief.")
    assert (plain.match, plain.reference) == ("", None)
    (own,) = cases_of_rows([{"q": "x", "a": "y"}], columns={"task": "q", "reference": "a"}, match="exact")
    assert (own.task.description, own.reference, own.match) == ("x", "y", "exact")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no rows"),
        ([{"a": 1}], "row 1: there is no task"),
        ([{"task": float("nan")}], "row 1: there is no task"),
        ([3], "row 1: expected an object"),
        ([{"task": "a", "id": 1}, {"task": "b", "id": 1}], "'1' is used twice"),
        ([{"input": "a", "choices": ["b"]}], "multiple choice"),
        ([{"input": [{"role": "assistant", "content": "b"}]}], "must end with a message of the user"),
        ([{"input": [{"role": "tool", "content": "b"}]}], "only text messages"),
    ],
)
def test_rows_that_are_no_cases(rows, message):
    with pytest.raises(ConfigError, match=message):
        cases_of_rows(rows)


FOREIGN = {
    "promptfoo": ("cases.yaml", "prompts: ['Hi {{x}}']\ntests: [{vars: {x: 1}}]\n", "a mapping with 'cases'"),
    "rows of promptfoo": ("cases.csv", "task,__expected\nHi,Hello\n", "unknown column '__expected'"),
    "a list": ("cases.yaml", "- {task: a}\n", "expected a mapping with 'cases'"),
    "a key": ("cases.yaml", "cases: [{task: a, answr: b}]\n", "unknown key 'answr'"),
    "a key of the file": ("cases.yaml", "cases: [{task: a}]\nprompts: []\n", "unknown key 'prompts'"),
    "a column": ("cases.csv", "task,refrence\nHi,Hello\n", "row 1: unknown column 'refrence'; .*'reference'"),
    "two tasks": ("cases.csv", "input,prompt\na,b\n", "row 1: both 'input' and 'prompt' may be the task"),
    "two answers": ("cases.jsonl", '{"task": "a", "target": 1, "output": 2}', "both 'target' and 'output'"),
    "a sandbox": ("cases.jsonl", '{"input": "a", "sandbox": "docker"}', "unknown column 'sandbox'"),
    "a tool call": (
        "cases.jsonl",
        '{"input": [{"role": "user", "content": "a", "tool_calls": [1]}]}',
        "only text messages",
    ),
    "a column twice": ("cases.csv", "task,task\na,b\n", "the column 'task' is there twice"),
    "a key twice": ("cases.jsonl", '{"task": "a", "task": "b"}', "line 1: .*the key 'task' comes twice"),
    "a cell too many": ("cases.csv", "task,target\na,b\nc,d,e\n", "line 3: expected 2 cells"),
    "a cell too few": ("cases.csv", "task,target\na,b\nc\n", "line 3: expected 2 cells"),
    "an open quote": ("cases.csv", 'task,target\n"a,b\nc,d\n', "not readable as CSV"),
    "a long cell": ("cases.csv", f"task,target\na,{'b' * 140_000}\n", "not readable as CSV: field larger"),
    "no right answer": ("cases.yaml", "cases: [{task: a, match: exact, reference: []}]", "no reference to m"),
    "an empty text": ("cases.jsonl", '{"task": "a", "target": ["b", " "]}', "every answer includes an empty"),
}


@pytest.mark.parametrize(("name", "text", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_is_understood_or_refused(tmp_path, name, text, message):
    with pytest.raises(ConfigError, match=message):
        read_cases(written(tmp_path, text, name))


def test_the_caller_chooses_among_columns():
    row = {"problem": "1+1?", "level": 3, "answer": "2", "solution": "One more than one."}
    (case,) = cases_of_rows([row], columns={"task": "problem"})
    assert (case.task.description, case.reference) == ("1+1?", "2")
    with pytest.raises(ConfigError, match="unknown column 'problem'"):
        cases_of_rows([row | {"task": row["problem"]}])
    with pytest.raises(ConfigError, match="unknown part 'problem'"):
        cases_of_rows([row], columns={"problem": "task"})
    with pytest.raises(ConfigError, match="there is no column 'task'; expected one of 1"):
        cases_of_rows([{1: "1+1?"}], columns={"task": "task"})


@pytest.mark.parametrize("empty", [None, "", [], float("nan")])  # NaN: a data frame has no other empty cell
def test_empty_cells_hold_nothing(empty):
    row = {"task": "1+1?", "id": empty, "answer": empty, "context": empty, "level": empty, "choices": empty}
    assert cases_of_rows([row]) == [EvalCase("1", PlainTask("1+1?"))]
    with pytest.raises(ConfigError, match="row 1: there is no task; expected it in the column 'problem'"):
        cases_of_rows([{"problem": empty}], columns={"task": "problem"})


def test_a_line_of_json_may_hold_any_separator(tmp_path):
    (case,) = read_cases(written(tmp_path, '{"task": "a\u2028b"}\n', "CASES.JSONL"))
    assert case.task.description == "a\u2028b"


@pytest.mark.parametrize(
    "text", ["a\u2028b\nc", "a\u2028b", "a\x85b\nc", "a\x0cb\nc\n", "a\rb\nc", "a\n\nb\n"]
)
def test_a_case_is_read_as_it_was_added(text, tmp_path):
    path = tmp_path / "cases.yaml"
    add_cases(path, [EvalCase("a", PlainTask("a", context=text))])
    assert read_cases(path)[0].task.context == text


def test_cases_are_added_to_yaml_only(tmp_path):
    with pytest.raises(ConfigError, match="YAML files only"):
        add_cases(tmp_path / "cases.csv", [EvalCase("a", PlainTask("a"))])
    assert not (tmp_path / "cases.csv").exists()


def test_what_a_script_defines_is_not_imported(monkeypatch):
    """To import the script would be to run it again, which may cost money."""
    from redraft._calls import importable_name

    assert importable_name(is_fine) == f"{__name__}:is_fine"
    assert importable_name(writer, __name__) == f"{__name__}:writer"
    assert importable_name(lambda: None) == ""
    assert importable_name(object(), __name__) == ""
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(writer=writer))
    assert importable_name(writer, "__main__") == ""


@pytest.mark.parametrize("reference", [0, 0.0, False, True, {}, [], "no", 2**70, {"a": None}])
@pytest.mark.parametrize("threshold", [None, 0.0, 1.0])
def test_a_case_that_is_written_is_read_again(tmp_path, reference, threshold):
    case = EvalCase("a", PlainTask("a"), reference=reference, match="json", threshold=threshold)
    add_cases(tmp_path / "cases.yaml", [case])
    [again] = read_cases(tmp_path / "cases.yaml")
    assert again == case
    assert type(again.reference) is type(reference)


def test_a_message_without_content_is_a_mistake(tmp_path):
    with pytest.raises(ConfigError, match=r"line 2: the message has no 'content'"):
        read_cases(written(tmp_path, "cases:\n- {task: a, messages: [{role: user}]}\n"))
