import gzip
import json

from lessons_real import FILE, by_the_record, failed_trials, files_of, names, trials_table

from redraft._sync import run_sync
from redraft.models.testing import ScriptedModel

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


def test_naming_a_step_needs_its_number_and_tool(tmp_path):
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
