"""The command with its runs in PostgreSQL."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redraft import Agent, ScriptedModel
from redraft.stores import PostgresStore
from support import commands
from support.commands import THREE_A
from support.openai_server import completion, serving
from support.processes import TESTS

REVISE = ("revise", "d.txt", "-c", "c.yaml", "-m", "openai-chat:gpt-4o-mini")
HIDDEN = "hush"


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as found:
        yield found


@pytest.fixture
def environment(monkeypatch, server, postgres):
    monkeypatch.setenv("REDRAFT_DATABASE_URL", postgres.url.replace("postgres@", f"postgres:{HIDDEN}@"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("REDRAFT_HOME")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def enter(tmp_path, monkeypatch, environment):
    """Make a project, and go there."""

    def enter(name):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "redraft.toml").touch()
        (folder / "c.yaml").write_text(THREE_A)
        (folder / "d.txt").write_text("ab")
        monkeypatch.chdir(folder)

    return enter


@pytest.fixture
def redraft(enter, monkeypatch):
    def redraft(*words, project="one", **variables):
        enter(project)
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            done = commands.redraft(*words)
        assert HIDDEN not in done.output
        assert not Path(".redraft", "redraft.db").exists()
        return done

    return redraft


def test_a_run_is_stored_shown_and_exported(redraft, server, postgres):
    assert "No runs are stored in postgresql://postgres@" in redraft("runs").stdout
    server.answers = [(200, {}, completion("aaa"))]
    done = redraft(*REVISE)
    assert (done.exit_code, done.stdout) == (0, "aaa\n"), done.stderr
    listed = json.loads(redraft("runs", "--json").stdout)
    assert listed["database"].startswith("postgresql://postgres@")
    (row,) = listed["runs"]
    assert (row["status"], row["scores"]) == ("finished", [0.0, 1.0])
    assert "quality" in redraft("why", "last").stdout
    assert "aaa" in redraft("diff", "last").stdout
    assert json.loads(redraft("show", row["run_id"][:-2], "--json").stdout)["run_id"] == row["run_id"]
    assert [
        each["output"] for each in json.loads(redraft("export", "last", "--json").stdout)["versions"]
    ] == [
        "ab",
        "aaa",
    ]
    assert redraft("resume", "last").stdout == "aaa\n"
    store = json.loads(redraft("doctor", "--json").stdout)["store"]
    assert (store["place"], store["answers"]) == (listed["database"], True)
    assert len(server.asked) == 1
    assert postgres.ask("SELECT count(*) FROM redraft_records WHERE kind = 'run'") == [(1,)]


def test_projects_are_separate_unless_they_share_a_name(redraft):
    check = ("check", "d.txt", "-c", "c.yaml")
    assert redraft(*check, project="one").exit_code == 1
    rows = json.loads(redraft("runs", "--json", project="one").stdout)["runs"]
    assert len(rows) == 1
    assert json.loads(redraft("runs", "--json", project="two").stdout)["runs"] == []
    assert "There is no run" in redraft("show", rows[0]["run_id"], project="two").stderr
    redraft(*check, project="one", REDRAFT_PROJECT="shared")
    redraft(*check, project="two", REDRAFT_PROJECT="shared")
    shared = json.loads(redraft("runs", "--json", project="three", REDRAFT_PROJECT="shared").stdout)
    assert len(shared["runs"]) == 2
    assert shared["database"].endswith("(project 'shared')")


def test_a_postgres_store_of_the_users_own_is_read_with_database(redraft, enter, postgres):
    enter("one")
    Agent(ScriptedModel(["tea"]), keep=PostgresStore(postgres.url)).run_sync("Name a drink.", run_id="mine")
    url = postgres.url.replace("postgres@", f"postgres:{HIDDEN}@")
    assert "No run" in redraft("runs").stdout
    listed = json.loads(redraft("runs", "--json", "--database", url).stdout)
    assert [run["run_id"] for run in listed["runs"]] == ["mine"]
    assert listed["database"].startswith("postgresql://postgres@")
    assert "(project" not in listed["database"]


def test_a_killed_run_is_resumed(redraft, enter, server):
    enter("one")
    words = [sys.executable, "-m", "support.scripted_command", *REVISE]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "REPLIES": json.dumps(["aab b", None])}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not Path("asked").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    (row,) = json.loads(redraft("runs", "--json").stdout)["runs"]
    assert (row["status"], row["scores"]) == ("killed", [0.0, 0.0])
    server.answers = [(200, {}, completion("aaa"))]
    done = redraft("resume", "last")
    assert (done.exit_code, done.stdout) == (0, "aaa\n"), done.stderr
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("", 2, "The setting `database_url` (REDRAFT_DATABASE_URL): The URL"),
        (f"mysql://me:{HIDDEN}@host/db", 2, "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
        (f"postgresql://me:{HIDDEN}@localhost:1/db", 2, "'db' on localhost:1 can't be reached"),
    ],
)
def test_an_unusable_database_is_reported(redraft, url, code, says):
    done = redraft("runs", REDRAFT_DATABASE_URL=url)
    assert done.exit_code == code
    assert says in done.stderr
    store = json.loads(redraft("doctor", "--json", REDRAFT_DATABASE_URL=url).stdout)["store"]
    assert not store["answers"]
    assert says in store["why"]


def test_a_run_continues_while_the_server_is_unreachable(redraft, server):
    server.answers = [(200, {}, completion("aaa"))]
    done = redraft(*REVISE, REDRAFT_DATABASE_URL=f"postgresql://me:{HIDDEN}@localhost:1/db")
    assert (done.exit_code, done.stdout) == (0, "aaa\n")
    assert (
        "The run is not stored: The PostgreSQL database 'db' on localhost:1 can't be reached" in done.stderr
    )
