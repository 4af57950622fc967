"""No command shows or exports a secret of a kept run."""

import os
import socket

import pytest

from cli_commands import document, redraft

PASSWORD = "Sommer" + "4711x"
KNOWN = "plain-" + "words-of-mine"


@pytest.fixture
def leaky(revised, project, monkeypatch):
    """A run in which the draft, a reply and the task hold secrets."""
    monkeypatch.setenv("SERVICE_TOKEN", KNOWN)
    criteria = (project / "c.yaml").read_text()
    (project / "c.yaml").write_text(criteria.replace("three letters a", f"three a, password={PASSWORD}"))
    (project / "d.txt").write_text(f"b {KNOWN} b")
    assert revised(f"aaa {KNOWN}\npassword: {PASSWORD}").exit_code == 0
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


def test_what_is_withheld_is_marked_and_all_else_is_there(leaky):
    shown = redraft("show", "last", "--version", "best").stdout
    assert shown.strip() == "aaa [withheld: known secret]\npassword: [withheld: password]"


def test_an_export_names_no_machine(leaky, monkeypatch):
    host = f"{socket.gethostname()}"
    found = document(redraft("export", "last", "--json"))
    assert found["process"]["host"] != host or len(host) < 4
    assert found["process"]["pid"] == os.getpid()
    assert found["status"] == "finished"
