import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from redraft import Agent, ScriptedModel, SqliteStore
from support.commands import redraft
from support.dashboards import TOKEN, served


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (the dashboard of this test)
    return urllib.request.urlopen(request, timeout=10)  # noqa: S310 (likewise)


def test_it_serves_stored_runs_until_interrupted(project):
    with served(project) as url:
        answer = get(f"{url}runs.json", Authorization=f"Bearer {TOKEN}")
        assert json.load(answer)["runs"] == []


def test_an_open_event_stream_does_not_delay_the_end(project):
    with served(project) as url:
        listening = get(f"{url}runs.events", Authorization=f"Bearer {TOKEN}")
        assert listening.readline().startswith(b"event: change")
    listening.close()


def test_the_printed_address_works_once(project):
    command = [sys.executable, "-m", "redraft", "ui", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        address = next(line.strip() for line in process.stderr if "token=" in line)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert opener.open(address, timeout=10).status == 200
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            get(address)
        refused.value.close()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[1].count("Traceback") == 0
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--token", "short"), "must have at least 16"),
        (("--host", "no.such.host.invalid"), "Choose another host."),
        (("--port", "70000"), "less than or equal to 65535"),
    ],
)
def test_bad_options_are_refused(project, words, told):
    result = redraft("ui", "--no-open", *words)
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr


def test_a_port_in_use_is_reported(project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = redraft("ui", "--no-open", "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "Choose another port" in result.stderr


def test_without_a_store_there_is_no_dashboard(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "")
    result = redraft("ui", "--no-open")
    assert (result.exit_code, "no runs are stored here" in result.stderr) == (2, True)


def test_a_store_of_the_users_own_has_a_dashboard(project, monkeypatch):
    Agent(ScriptedModel(["tea"]), keep=SqliteStore("own.db")).run_sync("Name a drink.")
    monkeypatch.setattr("redraft.web.server.serve", lambda *words: words[-1](words[-2]))
    assert (
        f"The dashboard of {project}/own.db is at"
        in redraft("ui", "--no-open", "--database", "own.db").stderr
    )
    assert f"The dashboard of {project}/.redraft/redraft.db is at" in redraft("ui", "--no-open").stderr


def test_without_the_extra_it_says_what_to_install(project, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = redraft("ui", "--no-open")
    assert (result.exit_code, "pip install 'redraft[ui]'" in result.stderr) == (2, True)


def test_listening_beyond_this_machine_warns(project, monkeypatch):
    monkeypatch.setattr("redraft.web.server.serve", lambda *words: words[-1](words[-2]))
    assert "WARNING" in redraft("ui", "--no-open", "--host", "0.0.0.0").stderr  # noqa: S104 (nothing listens)
    assert "WARNING" not in redraft("ui", "--no-open").stderr
