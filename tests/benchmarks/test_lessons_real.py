import gzip
import json
from datetime import date

from _retries import Pair, pair_of
from _task import BenchTask
from _trials import FILE, failed_trials
from lessons_real import by_the_record, files_of, names, pairs_table, spread, trials_table

from redraft import QualityCriterion
from redraft.core.sync import run_sync
from redraft.models.scripted import ScriptedModel

CALL = {"role": "assistant", "tool_calls": [{"name": "book", "arguments": '{"price": 255}'}]}
FAILED = {"role": "tool", "name": "book", "content": "Error: paid 255", "error": True}
BOOKED = {"role": "tool", "name": "book", "content": "booked", "error": False}
ASKED = {"role": "user", "content": "Book it."}


def trial(task_id, *messages, reward=0.0):
    row = {"kind": "trajectory", "task_id": task_id, "trial": 0, "reward": reward}
    return row | {"instruction": "You want a flight.", "messages": [ASKED, *messages]}


def data_in(path):
    rows = [
        {"kind": "policy", "text": "Be kind."},
        trial(1, CALL, FAILED, CALL, FAILED),
        trial(2, CALL, BOOKED),
        trial(3, CALL, FAILED, reward=1.0),
    ]
    with gzip.open(path / FILE, "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    return path


def test_failed_trials_know_their_first_error(tmp_path):
    first, second = failed_trials(data_in(tmp_path))
    assert (first.name, first.step, first.tool) == ("airline-1-0", 3, "book")
    assert first.outcome.transcript.split("\n")[2] == "3. book failed: Error: paid 255"
    assert (second.step, second.tool) == (0, "")
    assert first.outcome.tools == ("book",)


def test_a_text_names_the_step_and_the_tool_or_does_not(tmp_path):
    first, _ = failed_trials(data_in(tmp_path))
    rows = {
        "Step 3: book failed": True,
        "In step #3, book was refused": True,
        "The first step with an error was 3. book failed": True,
        "Step 5: book failed": False,
        "Step 3 failed": False,
        "book failed 3 times": False,
    }
    assert {text: names(text, first) for text in rows} == rows


def test_each_failed_trial_becomes_a_file(tmp_path):
    trials = failed_trials(data_in(tmp_path))
    assert run_sync(files_of(trials, ScriptedModel(by_the_record))) == (1, 2)
    text = run_sync(trials_table(data_in(tmp_path), None, None))
    assert "| by the record | 2 of 2 | 1 of 1 (100%) |" in text
    assert "| without a model | 2 of 2 | 1 of 1 (100%) |" in text


REFLECTION = {
    "what_happened": "A word was to be said.",
    "what_went_wrong": "The wrong one was.",
    "why": "It was a guess.",
    "do_differently": "Say yes.",
    "rule": "Say yes.",
    "systemic": False,
    "principle": "",
    "strategy_to_replay": "",
    "steps_to_replay": [],
}


def test_both_ways_get_the_same_calls():
    says_yes = QualityCriterion("yes", evaluator="regex", evaluator_config={"pattern": "yes"})
    task = BenchTask("word", "Say a word.", (says_yes,))

    def answer(request):
        if request.schema is not None:
            return REFLECTION
        return "yes" if "What should I do differently? Say yes." in request.messages[-1].content else "no"

    pair = run_sync(pair_of(task, ScriptedModel(answer), date(2026, 3, 1)))
    assert pair == Pair(
        "word",
        calls=3,
        reflections=1,
        plain=0,
        first_met=False,
        with_met=True,
        without_met=False,
        with_solved=True,
        without_solved=False,
        with_outputs=["no", "yes"],
        without_outputs=["no", "no", "no"],
    )
    table = pairs_table([pair])
    assert "| passes them in the end | 1 | 0 |" in table
    assert "| calls at most | 3 | 3 |" in table


def test_few_tasks_are_of_all_kinds():
    assert spread("aaabbbccc", 3) == ["a", "b", "c"]
    assert spread("abc", 9) == ["a", "b", "c"]
