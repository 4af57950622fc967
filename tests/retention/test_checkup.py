import asyncio
import os
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from redraft._files import replace_file
from redraft.integrations.hook_sessions import CodingSession, Sessions
from redraft.models.local import PackagedWeights
from redraft.retention import checkup
from redraft.retention.checkup import check_data
from redraft.sandbox.prolog import compiled
from redraft.sandbox.scripts import private_cache
from redraft.stores import sqlite as sqlite_file
from redraft.stores.base import Record
from redraft.stores.location import project_store
from support.commands import document, redraft
from support.filled_project import OTHER, PERSON, fill

SQLITE = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def found(*, whole=False):
    return {one.name: one for one in asyncio.run(check_data(whole=whole))}


def problems():
    return {name: one.says for name, one in found().items() if not one.is_fine}


def change(project, sql):
    asyncio.run(project_store().aclose())
    with closing(sqlite3.connect(project / ".redraft" / "redraft.db", isolation_level=None)) as database:
        database.execute(sql)


def test_a_project_without_fault_has_none(project):
    assert found() == {} or found()["database"].is_fine
    asyncio.run(fill(project, PERSON, OTHER))
    assert problems() == {}
    assert "2 lessons" in found()["lessons"].says


def test_a_journal_without_its_run_and_a_damaged_record_are_named(project):
    asyncio.run(fill(project, PERSON))
    asyncio.run(project_store().put(Record("step", "lost/00001", {"name": "generate"})))
    assert "redraft forget --run lost" in problems()["journals"]
    done = redraft("doctor", "--json")
    assert done.exit_code == 1
    assert [one["name"] for one in document(done)["data"] if not one["is_fine"]] == ["journals"]
    assert redraft("forget", "--run", "lost", "--yes").exit_code == 0
    assert problems() == {}
    assert redraft("doctor").exit_code == 0


def test_records_with_other_fields_than_expected_are_named_too(project):
    async def put():
        store = project_store()
        await store.put(Record("run", "odd", {"status": "finished", "process": {"pid": 1}}))
        await store.put(Record("note", "odd", {}))
        await store.aclose()

    asyncio.run(put())
    assert problems()["records"].startswith("2 records damaged: ")
    left = redraft("forget", "--text", PERSON, "--yes", "--json")
    places = document(left)["forgotten"]["unreadable"]
    assert [place.partition(" is damaged: its fields can't be read")[0] for place in places] == [
        "The record 'note' 'odd'",
        "The record 'run' 'odd'",
    ]
    assert redraft("prune", "--older-than", "0h", "--yes").exit_code == 0


@SQLITE
def test_problems_of_a_database_file_come_with_advice(project):
    asyncio.run(fill(project, PERSON))
    change(project, "UPDATE records SET data = '{}' WHERE kind = 'run'")
    assert "2 records damaged: run letter-quokka" in problems()["records"]
    change(project, "UPDATE runs SET run_id = 'x' WHERE run_id = 'letter-quokka'")
    assert "redraft restore FILE --force" in problems()["database"]
    (project / ".redraft" / "redraft.db").write_bytes(b"no database" * 1000)
    done = redraft("doctor", "--json")
    assert (done.exit_code, document(done)["data"][0]["name"]) == (1, "database")


@SQLITE
def test_an_older_schema_is_not_migrated_before_it_can_be_backed_up(project, monkeypatch):
    asyncio.run(fill(project, PERSON))
    asyncio.run(project_store().aclose())
    monkeypatch.setattr(sqlite_file, "MIGRATIONS", (*sqlite_file.MIGRATIONS, "CREATE TABLE more (a);"))
    assert redraft("doctor").exit_code == 1
    assert "version 2 of 3: back up with `redraft backup FILE`" in problems()["schema"]
    assert redraft("backup", "before.backup").exit_code == 0
    assert sqlite_file.schema_version(project / ".redraft" / "redraft.db") == (2, 3)
    assert redraft("runs").exit_code == 0
    assert found()["schema"].says.startswith("version 3, the newest")
    assert redraft("restore", "before.backup", "--force").exit_code == 0
    assert sqlite_file.schema_version(project / ".redraft" / "redraft.db") == (2, 3)


@SQLITE
def test_a_database_that_cannot_be_looked_for_is_named(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "a" * 300)
    done = redraft("doctor", "--json")
    assert done.exit_code == 1
    [finding] = document(done)["data"]
    assert (finding["name"], finding["says"][-20:]) == ("database", " File name too long.")


@SQLITE
def test_files_that_others_can_read_are_named(project):
    asyncio.run(fill(project, PERSON))
    (project / ".redraft").chmod(0o750)
    assert problems() == {}
    (project / ".redraft" / "redraft.db").chmod(0o640)
    assert "chmod go= " in problems()["permissions"]


@SQLITE
def test_lessons_and_rules_that_cannot_be_read_are_named(project):
    asyncio.run(fill(project, PERSON))
    folder = project / "memory" / "reflections" / "clerk"
    (folder / "2026-11-20-broken.md").write_text("no lesson")
    (folder / "rules.md").unlink()
    (folder / "rules.md").mkdir()
    assert problems().keys() == {"lessons"}
    assert "2 problems: clerk/2026-11-20-broken" in problems()["lessons"]
    assert "clerk/rules.md: This is not a file." in problems()["lessons"]
    (project / "memory" / "reflections").rename(project / "memory" / "moved")
    (project / "memory" / "reflections").write_text("no folder")
    assert problems().keys() == {"lessons"}
    assert "memory/reflections: Not a directory." in problems()["lessons"]


@SQLITE
def test_a_folder_of_lessons_that_cannot_be_read_is_named(project):
    asyncio.run(fill(project, PERSON))
    folder = project / "memory" / "reflections" / "closed"
    folder.mkdir()
    (folder / "archive").symlink_to("archive")  # leads to itself
    assert problems().keys() == {"lessons"}
    assert f"{folder / 'archive'}: Too many levels of symbolic links." in problems()["lessons"]


@SQLITE
def test_a_large_store_is_read_only_on_request(project, monkeypatch):
    monkeypatch.setattr(checkup, "LARGEST", 10_000)
    asyncio.run(fill(project, PERSON))
    assert "`redraft doctor --data` reads all" in found()["records"].says
    assert "can be read" in found(whole=True)["records"].says
    assert "can be read" in redraft("doctor", "--data").stdout


def test_leftovers_of_an_interrupted_backup_are_named(project):
    (project / ".redraft-x1").mkdir()
    assert "delete .redraft-x1" in problems()["leftovers"]


class KilledError(BaseException):
    """Ends a writer before its file gets its name."""


@pytest.fixture
def is_killed(monkeypatch):
    """Kill each process that has written a file, and before it can remove it."""

    def replace(*_):
        raise KilledError

    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)


def write_rules():
    replace_file(Path("AGENTS.md"), b"Be brief.")


def write_lesson():
    Path("memory/reflections/clerk").mkdir(parents=True)
    replace_file(Path("memory/reflections/clerk/2026-11-20-brief.md"), b"Be brief.")


def save_session():
    Sessions().save(CodingSession("claude-1"))


def compile_prolog():
    import wasmtime

    compiled(wasmtime.Engine(), wasmtime.wat2wasm("(module)"), private_cache())


def join_weights():
    weights = PackagedWeights("tiny", "tiny-part", 0, "1.0", 1, sha256().hexdigest(), "tiny.txt")
    weights.file()


WRITERS = [write_rules, write_lesson, save_session, compile_prolog, join_weights]


@SQLITE
@pytest.mark.parametrize("write", WRITERS, ids=[one.__name__ for one in WRITERS])
def test_a_file_that_a_killed_process_left_half_written_is_named(write, project, is_killed):
    with pytest.raises(KilledError):
        write()
    assert problems() == {}  # it may be written to yet
    cache = project.with_name(f"{project.name}-cache")
    (left,) = (
        path
        for path in [*project.rglob("*"), *cache.rglob("*")]
        if path.is_file() and path.name not in ("redraft.toml", ".gitignore") and path.suffix != ".lock"
    )
    os.utime(left, (0, 0))
    assert str(left) in problems()["half-written files"]
