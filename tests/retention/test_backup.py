import asyncio
import gzip
import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
from contextlib import closing
from pathlib import Path
from shutil import rmtree

import pytest

from redraft import ConfigError, Runs
from redraft.errors import StoreError
from redraft.retention import back_up, cli, restore
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.stores.sqlite import SqliteStore
from support.commands import document, redraft
from support.filled_project import PERSON, fill
from support.processes import WITHOUT_PRIVILEGES

pytestmark = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def contents(folder):
    """The files of a project by name, the database as its records."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".index" not in path.parts and not path.name.startswith("redraft.db")
    }
    with closing(sqlite3.connect(folder / ".redraft" / "redraft.db")) as database:
        for table in ("records", "runs", "uses"):
            found[table] = sorted(map(repr, database.execute(f"SELECT * FROM {table}")))  # noqa: S608 (of ours)
    return found


def unpacked_database(file):
    """A file with the database in a backup."""
    database = file.with_suffix(".db")
    with tarfile.open(file) as archive:
        database.write_bytes(archive.extractfile("store/redraft.db").read())
    return database


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def elsewhere(tmp_path_factory, monkeypatch):
    """Another folder, to which the test goes when it calls this."""

    def go():
        folder = tmp_path_factory.mktemp("elsewhere")
        monkeypatch.chdir(folder)
        return folder

    return go


def test_a_project_comes_back_as_it_was(project, elsewhere, tmp_path_factory):
    asyncio.run(fill(project, PERSON))
    before = contents(project)
    file = tmp_path_factory.mktemp("backups") / "shop.tar.gz"
    made = back_up(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert made.remarks == ()
    new = elsewhere()
    assert restore(file, check=True).files == made.files
    assert list(new.iterdir()) == []
    restore(file)
    kept = ("redraft.toml", ".redraft", "memory")
    assert contents(new) == {
        name: what for name, what in before.items() if not name.endswith((".txt", ".jsonl"))
    }
    assert stat.S_IMODE((new / ".redraft" / "redraft.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((new / ".redraft").stat().st_mode) == 0o700
    assert sorted(path.name for path in new.iterdir()) == sorted(kept)
    assert [run.run_id for run in asyncio.run(Runs(SqliteStore(".redraft/redraft.db")).find(limit=1))] != []


def test_a_backup_is_of_one_moment_while_runs_go_on(project, tmp_path):
    async def put(number):
        store = SqliteStore(project / ".redraft" / "redraft.db")
        records = [Record("note", f"{number:04}/{part}", {"text": "x" * 20_000}) for part in range(5)]
        await store.put_all(records)
        await store.aclose()

    def write():
        number = 1
        while not done.is_set():
            asyncio.run(put(number))
            number += 1

    done = threading.Event()
    asyncio.run(put(0))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            back_up(tmp_path / f"{number}.backup")
    finally:
        done.set()
        writer.join()
    for number in range(5):
        with closing(sqlite3.connect(unpacked_database(tmp_path / f"{number}.backup"))) as copy:
            ((count,),) = copy.execute("SELECT count(*) FROM records").fetchall()
            assert (count % 5, count > 0) == (0, True)


def test_a_backup_holds_nothing_of_deleted_records(project):
    async def main():
        store = project_store()
        await store.put_all([Record("note", key, {"text": f"the secret of {key}"}) for key in "ab"])
        await store.delete("note", "a")

    asyncio.run(main())
    back_up("shop.backup")
    assert b"secret of b" in unpacked_database(Path("shop.backup")).read_bytes()
    assert b"secret of a" not in unpacked_database(Path("shop.backup")).read_bytes()


def test_a_backup_among_the_lessons_holds_neither_itself_nor_the_one_it_replaces(project):
    lessons = project / "memory" / "reflections" / "writer"
    lessons.mkdir(parents=True)
    (lessons / "rules.md").write_text("- Be brief.\n")
    (lessons / "loop.md").symlink_to("loop.md")
    first = back_up(project / "memory" / "all.tar.gz")
    assert set(first.files) == {"redraft.toml", "memory/reflections/writer/rules.md"}
    assert back_up(project / "memory" / "all.tar.gz", force=True).files == first.files


def test_a_folder_that_cannot_be_read_is_not_left_out_of_a_backup(project):
    for name in ("open", "closed"):
        (project / "memory" / "reflections" / name).mkdir(parents=True)
    (project / "memory" / "reflections" / "closed").chmod(0o000)
    command = [*WITHOUT_PRIVILEGES, sys.executable, "-m", "redraft", "backup", "shop.backup"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stderr == f"Error: {project}/memory/reflections/closed: Permission denied.\n"
    assert (done.returncode, left_in(project)) == (2, ["memory", "redraft.toml"])


@pytest.mark.parametrize(
    ("name", "says"),
    [("memory", "'memory' is a folder: name a file in it."), ("a" * 300, "File name too long")],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_name_that_no_backup_can_have_is_refused(project, name, says, force):
    (project / "memory").mkdir()
    refused = redraft("backup", name, *(["--force"] if force else []))
    assert (refused.exit_code, says in refused.stderr) == (2, True)
    assert left_in(project) == ["memory", "redraft.toml"]


def test_links_in_a_circle_are_replaced_by_a_backup_and_stop_a_restore(project):
    lessons = project / "memory" / "reflections"
    lessons.mkdir(parents=True)
    (lessons / "a.md").write_text("Be brief.")
    (project / "shop.backup").symlink_to("shop.backup")
    assert redraft("backup", "shop.backup").exit_code == 0
    (lessons / "a.md").unlink()
    lessons.rmdir()
    lessons.symlink_to("reflections")
    refused = redraft("restore", "shop.backup")
    assert (refused.exit_code, str(lessons) in refused.stderr) == (2, True)


@pytest.mark.parametrize("check", [True, False])
def test_a_file_in_place_of_a_folder_is_named_before_anything_is_replaced(project, check):
    asyncio.run(fill(project, PERSON))
    back_up(Path("shop.backup"))
    rmtree(project / "memory" / "reflections")
    (project / "memory" / "reflections").write_text("notes of mine")
    asyncio.run(project_store().put(Record("later", "a", {})))
    asyncio.run(project_store().aclose())
    before = contents(project)
    with pytest.raises(ConfigError, match=r"memory/reflections' is a file, and a folder in the backup"):
        restore(Path("shop.backup"), force=True, check=check)
    assert contents(project) == before


def test_nothing_is_replaced_without_force(project):
    asyncio.run(fill(project, PERSON))
    before = contents(project)
    back_up(Path("shop.backup"))
    with pytest.raises(ConfigError, match=r"already exists.*--force"):
        back_up(Path("shop.backup"))
    back_up(Path("shop.backup"), force=True)
    asyncio.run(project_store().put(Record("later", "a", {})))
    asyncio.run(project_store().aclose())
    [lesson] = (project / "memory" / "reflections" / "clerk").glob("2*.md")
    lesson.write_text("changed")
    (lesson.parent / "new.md").write_text("stays")
    with pytest.raises(
        ConfigError, match=r"would replace 2 files in .*: memory/.*\.md, \.redraft/redraft\.db\. .*--force"
    ):
        restore(Path("shop.backup"))
    assert "2 files" in restore(Path("shop.backup"), check=True).remarks[0]
    assert lesson.read_text() == "changed"
    restore(Path("shop.backup"), force=True)
    after = contents(project)
    assert after.pop("memory/reflections/clerk/new.md") == b"stays"
    assert after.pop("shop.backup") is not None
    assert after == before
    assert asyncio.run(project_store().get("later", "a")) is None


def test_a_program_with_an_open_database_goes_on_with_the_restored_data(project):
    async def main():
        store = project_store()
        await store.put(Record("note", "a", {"text": "before"}))
        back_up("shop.backup")
        await store.put(Record("note", "a", {"text": "after"}))
        await store.put(Record("note", "b", {}))
        restore("shop.backup", force=True)
        assert [(one.key, one.data["text"]) for one in await store.find("note")] == [("a", "before")]
        await store.put(Record("note", "c", {"text": "new"}))
        assert len(await store.find("note")) == 2
        assert await store.problems() == []
        await store.aclose()

    asyncio.run(main())


SAYS = {"created_at": "2026-11-24T00:00:00+00:00", "redraft": "0.1.0", "format": 1}
"""The manifest of a backup."""


def packed(path, members, manifest=None, *, made_by=None):
    """Write the file of a backup by hand; `members` are names and contents."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {
            "manifest.json": json.dumps(SAYS | (manifest or {})).encode(),
            **members,
        }.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            if made_by is not None and name != "manifest.json":
                made_by(header)
            archive.addfile(header, io.BytesIO(content))


def link(header):
    header.type, header.linkname, header.size = tarfile.SYMTYPE, "/etc", 0


HOSTILE = {
    "up": {"memory/../../../evil.md": b"x"},
    "absolute": {"/evil.md": b"x"},
    "elsewhere": {".git/hooks/pre-commit": b"x"},
    "index": {"memory/.index/lessons-3.db": b"x"},
    "git": {"memory/.git/hooks/post-commit": b"x"},
    "no folder": {"memory": b"x"},
    "twice": {"memory/./a.md": b"x"},
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_no_backup_writes_anywhere_else(project, members):
    packed(project / "evil", members)
    with pytest.raises(ConfigError, match="does not belong in a backup"):
        restore(Path("evil"), force=True)
    assert sorted(path.name for path in project.iterdir()) == ["evil", "redraft.toml"]


def test_links_are_rejected_and_not_followed(project, tmp_path_factory):
    packed(project / "evil", {"memory/a.md": b""}, made_by=link)
    with pytest.raises(ConfigError, match="does not belong in a backup"):
        restore(Path("evil"))
    outside = tmp_path_factory.mktemp("outside")
    (project / "memory").mkdir()
    (project / "memory" / "out").symlink_to(outside)
    packed(project / "evil", {"memory/out/a.md": b"x"})
    with pytest.raises(ConfigError, match="a link that leads out of"):
        restore(Path("evil"))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("value", ["../outside", "/outside"])
def test_settings_that_lead_elsewhere_are_not_restored(project, value):
    packed(project / "evil", {"redraft.toml": f'memory = "{value}"'.encode(), "memory/a.md": b"x"})
    with pytest.raises(ConfigError, match="store things outside of the project: memory"):
        restore(Path("evil"), force=True)


def test_a_newer_or_damaged_backup_is_refused(project):
    packed(project / "newer", {}, {"format": 2, "redraft": "9.0"})
    with pytest.raises(ConfigError, match=r"newer Redraft \(9\.0\): upgrade redraft"):
        restore(Path("newer"))
    packed(project / "short", {"memory/a.md": os.urandom(5_000)})
    whole = (project / "short").read_bytes()
    (project / "short").write_bytes(whole[: len(whole) // 2])
    (project / "last byte").write_bytes(whole[:-1])
    (project / "changed").write_bytes(whole[:2_000] + bytes([whole[2_000] ^ 1]) + whole[2_001:])
    with tarfile.open(project / "twice", "w:gz") as archive:
        for name, content in (
            ("manifest.json", json.dumps(SAYS).encode()),
            ("memory/a.md", b"x"),
            ("memory/a.md", b"y"),
        ):
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    for name, content in {"text": b"no archive", "other": gzip.compress(b"x" * 2_000), "empty": b""}.items():
        (project / name).write_bytes(content)
    with tarfile.open(project / "deep", "w:gz") as archive:
        header = tarfile.TarInfo("manifest.json")
        header.size = 100_000
        archive.addfile(header, io.BytesIO(b"[" * header.size))
    packed(project / "spliced", {"memory/a.md": bytes(1_000_000)})
    plain = gzip.decompress((project / "spliced").read_bytes())
    (project / "spliced").write_bytes(gzip.compress(plain[:500_000]) + b"no archive")
    there = left_in(project)
    for name in ("short", "last byte", "changed", "twice", "text", "other", "empty", "deep", "spliced"):
        with pytest.raises(ConfigError, match="is not a backup"):
            restore(Path(name), force=True)
    assert left_in(project) == there
    with pytest.raises(StoreError, match="No such file"):
        restore(Path("missing"))


FILLS_ITS_DISK = """\
import resource
from pathlib import Path
from shutil import rmtree
from redraft.retention import restore

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
restore(Path("large"))
"""


def test_unpacked_files_are_deleted_if_the_disk_is_full(project):
    packed(project / "large", {"memory/a.md": bytes(5_000_000)})
    done = subprocess.run([sys.executable, "-c", FILLS_ITS_DISK], check=False, capture_output=True, text=True)
    assert "StoreError" in done.stderr
    assert f"{project}: File too large." in done.stderr
    assert left_in(project) == ["large", "redraft.toml"]


def test_a_database_of_a_newer_redraft_or_a_broken_one_is_refused(project):
    asyncio.run(fill(project, PERSON))
    back_up(Path("shop.backup"))
    newer, broken = unpacked_database(Path("shop.backup")), Path("broken.db")
    data = bytearray(newer.read_bytes())
    data[8192:12_288] = b"\xff" * 4096
    broken.write_bytes(data)
    with closing(sqlite3.connect(newer)) as database:
        database.execute("PRAGMA user_version = 99")
    before = contents(project)
    for file, says in ((newer, "has version 99 .* upgrade redraft"), (broken, "is damaged: ")):
        packed(project / "evil", {"store/redraft.db": file.read_bytes()})
        with pytest.raises(StoreError, match=f"^The database in 'evil' {says}"):
            restore(Path("evil"), force=True)
    assert contents(project)["records"] == before["records"]


def test_a_damaged_database_is_not_backed_up_over_a_backup_that_can_be_restored(project):
    asyncio.run(fill(project, PERSON))
    asyncio.run(project_store().aclose())
    back_up(Path("shop.backup"))
    before = Path("shop.backup").read_bytes()
    data = bytearray((project / ".redraft" / "redraft.db").read_bytes())
    data[8192:12_288] = b"\xff" * 4096
    (project / ".redraft" / "redraft.db").write_bytes(data)
    refused = redraft("backup", "shop.backup", "--force")
    assert refused.exit_code == 2
    assert f"Error: {project}/.redraft/redraft.db is damaged: " in refused.stderr
    assert "back up everything else with --files-only" in refused.stderr
    assert Path("shop.backup").read_bytes() == before
    assert redraft("backup", "shop.backup", "--force", "--files-only").exit_code == 0


def cut_off(path):
    os.truncate(path, path.stat().st_size // 2 + 123)


def overwrite(path):
    path.write_bytes(b"no database " * 1_000)


def scribble(path):
    data = bytearray(path.read_bytes())
    data[100:12_288] = b"\xff" * 12_188
    path.write_bytes(data)


def make_newer(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("damage", "is_set_aside"),
    [(cut_off, True), (overwrite, True), (scribble, False), (make_newer, False)],
)
def test_a_backup_replaces_a_database_that_can_no_longer_be_used(project, damage, is_set_aside):
    asyncio.run(fill(project, PERSON))
    back_up("shop.backup")
    before = contents(project)
    database = project / ".redraft" / "redraft.db"
    damage(database)
    assert redraft("doctor").exit_code == 1
    assert redraft("restore", "shop.backup").exit_code == 2
    done = redraft("restore", "shop.backup", "--force")
    assert done.exit_code == 0, done.stderr
    assert ("renamed to .redraft/redraft.db.damaged." in done.stdout) is is_set_aside
    assert (database.parent / "redraft.db.damaged").exists() is is_set_aside
    after = contents(project)
    assert {name: after[name] for name in before} == before
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert redraft("doctor").exit_code == 0


HOLDS_IT_OPEN = """\
import sqlite3, sys
database = sqlite3.connect(".redraft/redraft.db")
print(database.execute("SELECT count(*) FROM records").fetchone(), flush=True)
sys.stdin.read()
"""


def test_a_damaged_database_stays_while_a_program_has_it_open(project):
    asyncio.run(fill(project, PERSON))
    back_up("shop.backup")
    [lesson] = (project / "memory" / "reflections" / "clerk").glob("2*.md")
    lesson.write_text("changed")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_IT_OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout.readline()
        overwrite(project / ".redraft" / "redraft.db")
        with pytest.raises(StoreError, match="another program has it open: end that program"):
            restore("shop.backup", force=True)
        program.stdin.close()
    assert lesson.read_text() == "changed"
    restore("shop.backup", force=True)
    assert lesson.read_text() != "changed"


def test_a_database_of_another_program_is_not_replaced(project):
    asyncio.run(fill(project, PERSON))
    back_up("shop.backup")
    database = project / ".redraft" / "redraft.db"
    database.unlink()
    with closing(sqlite3.connect(database)) as theirs:
        theirs.execute("CREATE TABLE theirs (a)")
    with pytest.raises(StoreError, match="a database of another program"):
        restore("shop.backup", force=True)
    with closing(sqlite3.connect(database)) as theirs:
        assert theirs.execute("SELECT count(*) FROM theirs").fetchall() == [(0,)]


def test_a_backup_of_another_kind_of_store_and_a_missing_folder_are_refused_with_advice(project, monkeypatch):
    with pytest.raises(ConfigError, match=r"There is no folder 'missing': create it first"):
        back_up("missing/shop.backup")
    (project / "redraft.toml").unlink()
    with pytest.raises(ConfigError, match=r"There is nothing to back up in .*folder of the project"):
        back_up("shop.backup")
    asyncio.run(fill(project, PERSON))
    back_up("shop.backup")
    monkeypatch.setenv("REDRAFT_DATABASE_URL", "postgresql://nobody@localhost/none")
    monkeypatch.setenv("REDRAFT_PROJECT", "shop")
    with pytest.raises(ConfigError, match=r"store runs in postgresql.*: unset `database_url`"):
        restore("shop.backup")
    monkeypatch.delenv("REDRAFT_DATABASE_URL")
    monkeypatch.setenv("REDRAFT_HOME", "")
    with pytest.raises(ConfigError, match="store no runs: set `home`"):
        restore("shop.backup")
    packed(project / "sessions", {"hooks/claude.json": b"{}"})
    with pytest.raises(ConfigError, match="sessions of coding agents, but REDRAFT_HOME is empty"):
        restore("sessions")


def test_a_command_that_takes_long_says_what_it_does(project, monkeypatch):
    said, lines = threading.Event(), []

    def say(_console, line):
        lines.append(line)
        said.set()

    def slow(file, **options):
        assert said.wait(60)
        return back_up(file, **options)

    monkeypatch.setattr(cli, "PATIENCE", 0.01)
    monkeypatch.setattr(cli, "back_up", slow)
    monkeypatch.setattr(cli.CalmConsole, "say", say)
    assert redraft("backup", "shop.backup").exit_code == 0
    assert lines == ["Copying and compressing..."]


def test_the_commands_say_what_they_did(project, monkeypatch):
    asyncio.run(fill(project, PERSON))
    made = document(redraft("backup", "shop.backup", "--json"))["backup"]
    assert "store/redraft.db" in made["files"]
    assert redraft("backup", "shop.backup").exit_code == 2
    checked = redraft("restore", "shop.backup", "--check")
    assert (checked.exit_code, checked.stdout.startswith("Would restore ")) == (0, True)
    assert redraft("restore", "shop.backup").exit_code == 2
    assert redraft("restore", "shop.backup", "--force").stdout.startswith("Restored ")
    monkeypatch.setenv("REDRAFT_DATABASE_URL", "postgresql://nobody@localhost/none")
    refused = redraft("backup", "other.backup")
    assert (refused.exit_code, "pg_dump" in refused.stderr) == (2, True)
    files = redraft("backup", "other.backup", "--files-only")
    assert "The database with the runs is not in it." in files.stdout
    assert "The lessons are in that database, too." in files.stdout
