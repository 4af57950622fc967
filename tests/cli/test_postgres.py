"""The command as a process, with its runs in PostgreSQL."""

import json
import os
import subprocess
import sys
import threading

import pytest

from support.commands import THREE_A
from support.openai_server import Server, completion

REVISE = ("revise", "d.txt", "-c", "c.yaml", "-m", "openai-chat:gpt-4o-mini")
HIDDEN = "hush"


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environment(server, postgres):
    names = [name for name in os.environ if name not in ("COLUMNS", "FORCE_COLOR", "REDRAFT_HOME")]
    return {name: os.environ[name] for name in names} | {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}/v1",
        "OPENAI_API_KEY": "not" + "-a-" + "key",
        "REDRAFT_DATABASE_URL": postgres.url.replace("postgres@", f"postgres:{HIDDEN}@"),
        "COLUMNS": "300",
    }


@pytest.fixture
def redraft(tmp_path, environment):
    def folder(name):
        made = tmp_path / name
        made.mkdir(exist_ok=True)
        (made / "redraft.toml").touch()
        (made / "c.yaml").write_text(THREE_A)
        (made / "d.txt").write_text("ab")
        return made

    def redraft(*words, project="one", start=False, **variables):
        options = {"cwd": folder(project), "env": environment | variables, "text": True}
        argv = [sys.executable, "-m", "redraft", *words]
        if start:
            pipe = subprocess.PIPE
            return subprocess.Popen(argv, stdout=pipe, stderr=pipe, **options)
        done = subprocess.run(argv, capture_output=True, timeout=60, check=False, **options)
        assert HIDDEN not in done.stdout + done.stderr
        assert not (folder(project) / ".redraft" / "redraft.db").exists()
        return done

    return redraft


def test_a_run_is_stored_shown_and_exported(redraft, server, postgres):
    assert "No runs are stored in postgresql://postgres@" in redraft("runs").stdout
    server.answers = [(200, {}, completion("aaa"))]
    done = redraft(*REVISE)
    assert (done.returncode, done.stdout) == (0, "aaa\n"), done.stderr
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
    assert redraft(*check, project="one").returncode == 1
    rows = json.loads(redraft("runs", "--json", project="one").stdout)["runs"]
    assert len(rows) == 1
    assert json.loads(redraft("runs", "--json", project="two").stdout)["runs"] == []
    assert "There is no run" in redraft("show", rows[0]["run_id"], project="two").stderr
    redraft(*check, project="one", REDRAFT_PROJECT="shared")
    redraft(*check, project="two", REDRAFT_PROJECT="shared")
    shared = json.loads(redraft("runs", "--json", project="three", REDRAFT_PROJECT="shared").stdout)
    assert len(shared["runs"]) == 2
    assert shared["database"].endswith("(project 'shared')")


def test_a_killed_run_is_resumed(redraft, server):
    server.answers = [(200, {}, completion("aab b")), (None, {}, "")]
    process = redraft(*REVISE, start=True)
    while len(server.asked) < 2:
        assert process.poll() is None
        server.released.wait(0.05)
    process.kill()
    process.communicate()
    (row,) = json.loads(redraft("runs", "--json").stdout)["runs"]
    assert (row["status"], row["scores"]) == ("killed", [0.0, 0.0])
    server.answers = [(200, {}, completion("aaa"))]
    done = redraft("resume", "last")
    assert (done.returncode, done.stdout) == (0, "aaa\n"), done.stderr
    assert len(server.asked) == 3


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
    assert done.returncode == code
    assert says in done.stderr
    store = json.loads(redraft("doctor", "--json", REDRAFT_DATABASE_URL=url).stdout)["store"]
    assert not store["answers"]
    assert says in store["why"]


def test_a_run_continues_while_the_server_is_unreachable(redraft, server):
    server.answers = [(200, {}, completion("aaa"))]
    done = redraft(*REVISE, REDRAFT_DATABASE_URL=f"postgresql://me:{HIDDEN}@localhost:1/db")
    assert (done.returncode, done.stdout) == (0, "aaa\n")
    assert (
        "The run is not stored: The PostgreSQL database 'db' on localhost:1 can't be reached" in done.stderr
    )
