"""Pipes, sockets and devices are refused by name: never opened, locked, replaced or given another mode."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from redraft import Agent, ConfigError, ScriptedModel, SqliteStore
from redraft._files import replace_file
from redraft._locks import FileLock, make_file
from redraft.errors import StoreError
from redraft.evals.cases import EvalCase, add_cases, place_of
from redraft.evals.cli import _prepare
from redraft.integrations.hook_install import _read
from redraft.integrations.hook_sessions import Sessions
from redraft.lessons.exchange import ExportFile
from redraft.loop import EventLog
from redraft.loop.cli import write_output
from redraft.retention import back_up, restore
from redraft.stores.base import Record
from redraft.stores.sqlite import check_database, copy_database, restore_database
from redraft.testing import Cassette
from redraft.types import Image, PlainTask


def pipe(path):
    os.mkfifo(path, 0o640)


def link_to_pipe(path):
    pipe(path.with_name("pipe"))
    path.symlink_to("pipe")


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    path.chmod(0o640)


def put(path):
    async def main():
        store = SqliteStore(path)
        try:
            await store.put(Record("note", "a", {}))
        finally:
            await store.aclose()

    asyncio.run(main())


def get(path):
    asyncio.run(SqliteStore(path).get("note", "a"))


def save_session(path):
    sessions = Sessions()
    session = sessions.open("claude", "1")
    sessions.save(session)
    place = sessions._path(session.key)
    place.unlink()
    place.symlink_to(path)
    assert sessions.open("claude", "1") == session  # it is not read either
    sessions.save(session)


def add_image(path):
    image = Image("image/png", "0" * 64, data=b"\x89PNG")
    cases = path.with_name("cases.yaml")
    folder = cases.with_suffix(".images")
    folder.mkdir()
    (cases.parent / place_of(image, folder.name)).symlink_to(path)
    add_cases(cases, [EvalCase("a", PlainTask("Look.", images=(image,)))])


def restore_lesson(path):
    lesson = Path("memory", "lesson.md")
    lesson.parent.mkdir()
    lesson.write_text("text")
    back_up("backup")
    lesson.unlink()
    lesson.symlink_to(path)
    restore("backup", force=True)


def weights(path):
    path.with_name("it.gguf").symlink_to(path)
    Agent(f"local:{path.with_name('it.gguf')}")


def whole_database(path):
    put(path)
    return path


USES = {
    "a store that writes": put,
    "a store that reads": get,
    "the size of a store": lambda path: asyncio.run(SqliteStore(path).size()),
    "a lock of a store": lambda path: (path.rename(path.with_name("x.lock")), put(path.with_name("x"))),
    "a log of a store": lambda path: (path.rename(path.with_name("x-wal")), put(path.with_name("x"))),
    "a backup": lambda path: copy_database(path, path.with_name("copy")),
    "a check": check_database,
    "a restored database": lambda path: restore_database(path, whole_database(path.with_name("copy"))),
    "a restored lesson": restore_lesson,
    "events": EventLog,
    "a cassette": lambda path: Cassette(path, record=ScriptedModel(["x"])),
    "an output": lambda path: write_output(path, "text", force=True),
    "an option for an output": lambda path: _prepare("--csv", path),
    "cases": lambda path: add_cases(path, [EvalCase("a", PlainTask("Write."))]),
    "a lesson": lambda path: replace_file(path, b"text"),
    "an empty file": make_file,
    "a lock": lambda path: FileLock(path, 1).__enter__(),
    "weights": weights,
    "settings of a coding agent": _read,
    "exported lessons": lambda path: ExportFile.read("agents-md", str(path)),
    "a session of a coding agent": save_session,
    "an image of a case": add_image,
}


@pytest.mark.parametrize("make", [pipe, link_to_pipe, unix_socket])
@pytest.mark.parametrize("use", USES)
def test_irregular_files_are_refused_and_unchanged(tmp_path, make, use, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    path = tmp_path / "it.yaml"
    make(path)
    before = path.stat()
    with pytest.raises((StoreError, ConfigError, OSError), match="not a regular file"):
        USES[use](path)
    files = {found.stat().st_ino: found.stat().st_mode for found in tmp_path.iterdir()}
    assert files[before.st_ino] == before.st_mode
    assert not (tmp_path / "it.yaml.lock").exists()


def test_a_store_on_a_pipe_is_named(tmp_path):
    pipe(tmp_path / "it.db")
    with pytest.raises(
        StoreError, match=r"it\.db can't be used: it is not a regular file\. Give the store another path"
    ):
        put(tmp_path / "it.db")


def test_a_device_keeps_its_mode(tmp_path, monkeypatch):
    """A device is played by a pipe, since a test that fails would change that of the machine."""
    changed = []
    monkeypatch.setattr(Path, "chmod", lambda path, mode: changed.append(path))
    monkeypatch.setattr(os, "fchmod", lambda file, mode: changed.append(file))
    pipe(tmp_path / "null")
    with pytest.raises(StoreError, match="not a regular file"):
        put(tmp_path / "null")
    assert changed == []
