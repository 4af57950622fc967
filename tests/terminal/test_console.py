"""No command shows or exports a secret of a kept run."""

import json
import os
import re
import socket
from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from redraft import ModelError
from redraft._texts import ago
from redraft.redact.log import logger
from redraft.terminal.console import CalmConsole, Warnings, emit, emit_json, sparkline
from redraft.terminal.tables import PlainTable
from support.commands import document, redraft, script
from support.redact_corpus import Maker, person

PASSWORD = "Sommer" + "4711x"
KNOWN = "plain-" + "words-of-mine"
TOLD, PERSONAL = person(Maker())


@pytest.fixture
def leaky(revised, project, monkeypatch):
    """A run in which the draft, a reply and the task hold secrets."""
    monkeypatch.setenv("SERVICE_TOKEN", KNOWN)
    criteria = (project / "c.yaml").read_text()
    (project / "c.yaml").write_text(
        criteria.replace("three letters a", f"three a, password={PASSWORD}, {TOLD}")
    )
    (project / "d.txt").write_text(f"b {KNOWN} {TOLD} b")
    assert revised(f"aaa {KNOWN}\npassword: {PASSWORD}\n{TOLD}").exit_code == 0
    return project


COMMANDS = {
    "show": ["show", "last"],
    "show the prompts": ["show", "last", "--prompts"],
    "show a version": ["show", "last", "--version", "best"],
    "show as JSON": ["show", "last", "--json", "--prompts"],
    "why": ["why", "last"],
    "why as JSON": ["why", "last", "--json"],
    "diff": ["diff", "last"],
    "diff as JSON": ["diff", "last", "--json"],
    "runs": ["runs"],
    "runs as JSON": ["runs", "--json"],
    "export to JSON": ["export", "last", "--json"],
    "export to HTML": ["export", "last", "--html", "-"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_shows_a_secret(leaky, words):
    result = redraft(*words)
    assert result.exit_code == 0, result.stderr
    assert PASSWORD not in result.stdout
    assert KNOWN not in result.stdout
    assert not any(value in result.stdout for value in PERSONAL)


def test_withheld_text_is_marked_and_the_rest_is_shown(leaky):
    output = redraft("show", "last", "--version", "best").stdout
    assert output.strip() == (
        "aaa [withheld: known secret]\npassword: [withheld: password]\n"
        "my name is [withheld: name], card [withheld: card number], mail [withheld: email address]"
    )


def test_an_export_omits_hosts_that_the_terminal_shows(revised):
    assert revised("aaa on kafka-7.prod.internal").exit_code == 0
    assert "kafka-7.prod.internal" in redraft("show", "last", "--version", "best").stdout
    assert "kafka-7" not in redraft("export", "last", "--json").stdout
    assert "kafka-7" not in redraft("export", "last", "--html", "-").stdout


def test_an_export_omits_machine_names(leaky, monkeypatch):
    host = f"{socket.gethostname()}"
    data = document(redraft("export", "last", "--json"))
    assert data["process"]["host"] != host or len(host) < 4
    assert data["process"]["pid"] == os.getpid()
    assert data["status"] == "finished"


REVISE = ["revise", "d.txt", "-c", "c.yaml", "-m", "any:model"]
WRONG = "wrong.yaml"
LIVE = {
    "revise": (REVISE, 4),
    "revise as JSON": ([*REVISE, "--json"], 4),
    "check": (["check", "d.txt", "-c", "c.yaml"], 1),
    "check as JSON": (["check", "d.txt", "-c", "c.yaml", "--json"], 1),
    "an error": (["check", "d.txt", "-c", WRONG], 2),
    "a traceback": (["check", "d.txt", "-c", WRONG, "--debug"], 2),
}


@pytest.mark.parametrize(("words", "code"), LIVE.values(), ids=LIVE)
def test_progress_shows_no_secret(project, monkeypatch, words, code):
    monkeypatch.setenv("SERVICE_TOKEN", KNOWN)
    (project / "c.yaml").write_text(
        "criteria:\n"
        "  - {name: password, evaluator: regex, config: {pattern: 'plain-\\S+', must_match: false}}\n"
        "  - {name: long, evaluator: regex, config: {pattern: 'x{9}'}}\n"
    )
    (project / "d.txt").write_text(f"b {KNOWN}")
    (project / WRONG).write_text(f"criteria: password={PASSWORD} {KNOWN}")
    script(monkeypatch, f"aa {KNOWN}", ModelError(f"The provider refused {KNOWN}, password={PASSWORD}"))
    result = redraft(*words)
    assert result.exit_code == code, result.stderr
    assert "withheld" in result.stdout + result.stderr
    told = result.stdout.replace(f'"best_output": "b {KNOWN}"', "")  # the answer itself is as it is
    for said in (told.removesuffix(f"b {KNOWN}\n"), result.stderr):
        assert PASSWORD not in said
        assert KNOWN not in said


NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3, "just now"), (61, "1 min ago"), (7200, "2 h ago"), (90_000, "1 d ago"), (9 * 86400, "2026-11-13")],
)
def test_times_are_relative_within_a_week(monkeypatch, seconds, shown):
    monkeypatch.setenv("TZ", "UTC")
    assert ago(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("scores", "longest", "line"),
    [
        ([0, 0.5, 1], None, "▁▅█"),
        ([None, 0.99], None, "·█"),
        ([-1, 2], None, "▁█"),
        ([0, 0.2, 0.4, 1], 3, "▁▄█"),
        ([], None, ""),
    ],
)
def test_sparkline(scores, longest, line):
    assert sparkline(scores, longest) == line


HOSTILE = "a\x1b[2Jb\x9b31mc\u202ed\r\ud800 \U0001f600"


def test_data_is_unchanged_in_a_pipe_and_escaped_on_a_terminal(capsys, monkeypatch):
    emit("a\x1b[2Jb\x9b31mc\u202ed")
    assert capsys.readouterr().out == "a\x1b[2Jb\x9b31mc\u202ed\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    emit(HOSTILE)
    assert capsys.readouterr().out == "a\\x1b[2Jb\\x9b31mc\\u202ed\n\\ud800 \U0001f600\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_json_has_no_control_characters_and_the_same_value(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    emit_json({"a": HOSTILE})
    output = capsys.readouterr().out
    assert not set(HOSTILE[:-1]) & set(output) - set("a[2Jb31mcd ")
    assert json.loads(output)["a"] == HOSTILE


@pytest.mark.parametrize("is_terminal", [False, True])
def test_nothing_that_is_shown_steers_the_terminal(capsys, monkeypatch, is_terminal):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    console = CalmConsole()
    console.say(HOSTILE)
    console.show(Text(HOSTILE, "red"))
    console.show(PlainTable([{"a": HOSTILE}]))
    with Warnings(console):
        logger.warning("%s", HOSTILE)
    output = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)  # the console's own colours
    assert output.count("\\x1b[2Jb") == 4
    assert not set("\x1b\x9b\u202e\r\ud800") & set(output)
