import io
import json
import logging
from datetime import UTC, datetime

import pytest

from redraft import ConfigError, ReflectionPattern, Task, reflect_sync
from redraft.events import RunStarted, StepFailed
from redraft.loop import Retry
from redraft.loop.event_log import EventLog, event_line
from redraft.redact.redactor import Redactor
from support.redact_corpus import Maker, person

AT = datetime(2026, 11, 22, 3, 45, tzinfo=UTC)


def test_every_event_is_a_line(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        pattern = ReflectionPattern(on_event=log, retry=Retry(attempts=1))
        reflect_sync("t", generate=lambda _: "a", evaluate=lambda _: True, pattern=pattern)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["event"] for line in lines] == [
        "run_started", "step_started", "step_finished", "step_started", "step_finished",
        "version_evaluated", "run_finished",
    ]  # fmt: skip
    assert {line["schema_version"] for line in lines} == {1}
    assert all(datetime.fromisoformat(line["at"]).tzinfo for line in lines)
    assert lines[-1]["result"]["convergence_reason"] == "quality_met"


def test_a_line_is_written_at_once(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("mine\n")
    with EventLog(path) as log:
        log(RunStarted("r", Task("t")))
        assert len(path.read_text("utf-8").splitlines()) == 2


def test_personal_data_is_redacted(tmp_path):
    path = tmp_path / "events.jsonl"
    text, personal = person(Maker())
    with EventLog(path) as log:
        log(RunStarted("r", Task(text)))
    line = path.read_text("utf-8")
    assert "[withheld: card number]" in line
    assert not any(value in line for value in personal)


def test_a_name_in_one_event_is_withheld_in_later_events(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log(RunStarted("r", Task("Approved by Thandeka Mbeki.")))
        log(RunStarted("r", Task("Put the plans of Mbeki in a folder.")))
    assert "Mbeki" not in path.read_text("utf-8")


@pytest.mark.parametrize("text", ["a\nb", "\ud800", "a\u2028b", "</script>", "\x1b[31m"])
def test_line_breaks_are_escaped(tmp_path, text):
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log(RunStarted("r", Task(text)))
    (line,) = path.read_bytes().decode("utf-8").split("\n")[:-1]
    assert json.loads(line)["task"]["description"] == text


def test_an_error_has_its_type_and_message():
    line = json.loads(event_line(StepFailed("r", "revise", OSError("away"), 0.5), AT, Redactor()))
    assert line == {
        "schema_version": 1, "event": "step_failed", "at": "2026-11-22T03:45:00+00:00", "run_id": "r",
        "name": "revise", "error": {"type": "OSError", "message": "away"}, "retry_in": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("place", [".", "no/such/folder.jsonl"])
def test_a_file_that_cannot_be_written_raises(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="can't be written to"):
        EventLog(place)


def test_a_given_stream_stays_open():
    stream = io.StringIO()
    with EventLog(stream) as log:
        log(RunStarted("r", Task("t")))
    assert json.loads(stream.getvalue())["event"] == "run_started"
    assert not stream.closed


def test_a_later_write_error_is_logged_once(tmp_path, caplog):
    log = EventLog(tmp_path / "events.jsonl")
    log.close()
    with caplog.at_level(logging.WARNING):
        log(RunStarted("r", Task("t")))
        log(RunStarted("r", Task("t")))
    assert [record.message.rpartition(": ")[0] for record in caplog.records] == [
        f"Events can no longer be written to {tmp_path / 'events.jsonl'}"
    ]


def test_no_secret_is_written(tmp_path, monkeypatch):
    secret = "-".join(f"w{number}rd" for number in range(5))
    monkeypatch.setenv("SHOP_PASSWORD", secret)
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        pattern = ReflectionPattern(on_event=log, max_iterations=0)
        reflect_sync(f"log in with {secret}", generate=lambda prompt: prompt, evaluate=bool, pattern=pattern)
    lines = path.read_text("utf-8")
    assert secret not in lines
    finished = json.loads(lines.splitlines()[-1])
    assert finished["result"]["token_usage"]["requests"] is not None
    assert finished["run_id"] == finished["result"]["run_id"]
