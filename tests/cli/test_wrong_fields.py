"""Records with a right checksum, but with missing or wrong fields, are named errors and hide no others."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from redraft.errors import DamagedRecordError
from redraft.stores import MemoryStore
from redraft.stores.base import Record, checksum
from redraft.stores.location import project_store
from support.commands import redraft
from support.filled_project import OTHER, PERSON, fill
from support.kept_workflows import kept as kept_workflows

RUN = [("runs",), ("show", "{}"), ("why", "{}")]
NOTE = [("notes",), ("notes", "show", "{}")]
LESSONS = [("lessons",), ("lessons", "due"), ("lessons", "doctor")]
AGENT = [
    ("cycle", "status"),
    *(("cycle", name, "monitor") for name in ("status", "metrics", "memory", "trace")),
]
COMMANDS = {
    "run": [*RUN, ("doctor",)],
    "step": [*RUN, ("export", "{}", "--html", "o.html", "--force")],
    "workflow": RUN,
    "note": NOTE,
    "noted_task": NOTE,
    "lesson_use": LESSONS,
    "lesson_settled": LESSONS,
    "attempt": [("doctor",)],
    "agent": AGENT,
    "cycle": AGENT,
    "journal": AGENT,
    "trace": AGENT,
    "memory": AGENT,
}
"""The commands that read a kind of records; `{}` is the part of the key before a slash."""
LISTS = [("runs",), ("notes",), ("lessons",), ("cycle", "status")]


def changes(data):
    """Some ways in which a record's data may be wrong."""
    yield "no field", "{}"
    yield "no object", "[7]"
    yield "numbers", json.dumps(dict.fromkeys(data, 7))
    yield "lists", json.dumps({name: [1] for name in data})
    for name in ("origin", "name", "at"):
        if name in data:
            yield f"no {name}", json.dumps({key: value for key, value in data.items() if key != name})
            yield f"a number as {name}", json.dumps(data | {name: 7})


def listed(result):
    """Return what a list begins its lines with."""
    lines = result.stdout.splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith(" ")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("filled")
        patch.chdir(folder)
        patch.setenv("REDRAFT_HOME", ".redraft")
        (folder / "redraft.toml").touch()
        asyncio.run(fill(folder, PERSON, OTHER))
        kept_workflows("one", store=project_store())
        asyncio.run(project_store().aclose())
        yield folder


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_record_with_wrong_fields_is_a_named_error(filled, kind, monkeypatch):
    monkeypatch.chdir(filled)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.setattr("redraft.doctor.JAILED", {})
    with closing(sqlite3.connect(filled / ".redraft" / "redraft.db", isolation_level=None)) as connection:
        found = connection.execute(
            "SELECT space, key, data, schema_version FROM records WHERE kind = ? ORDER BY length(data) DESC",
            (kind,),
        )
        space, key, before, version = found.fetchone()

        def write(text):
            crc = checksum(kind.encode(), key.encode(), text.encode(), version)
            connection.execute(
                "UPDATE records SET data = ?, checksum = ? WHERE (space, kind, key) = (?, ?, ?)",
                (text, crc, space, kind, key),
            )

        def run(command):
            result = redraft(*(word.format(key.partition("/")[0]) for word in command))
            asyncio.run(project_store().aclose())
            return result

        faults = []
        assert {command: run(command).exit_code for command in COMMANDS[kind]} == dict.fromkeys(
            COMMANDS[kind], 0
        )
        expected = {command: listed(run(command)) for command in LISTS if command in COMMANDS[kind]}
        assert all(len(names) > 1 for names in expected.values())
        for what, text in changes(json.loads(before)):
            write(text)
            for command in COMMANDS[kind]:
                result = run(command)
                is_raw = result.exception is not None and not isinstance(result.exception, SystemExit)
                if int(result.exit_code) == 70 or is_raw:
                    faults.append((what, command, result.stderr[-300:]))
                hidden = expected.get(command, set()) - listed(result)
                if any(name.rstrip("…") not in key for name in hidden):
                    faults.append((what, command, f"hides {hidden}"))
        write(before)
    assert faults == []


def test_a_missing_field_names_the_record():
    async def main():
        store = MemoryStore()
        await store.put(Record("note", "a", {"b": 1}))
        return await store.get("note", "a")

    record = asyncio.run(main())
    with pytest.raises(
        DamagedRecordError, match=r"'note' 'a' is damaged: it has no field 'version'\. Restore"
    ):
        record.data["version"]
    assert record.data == {"b": 1}
    assert record.data.get("version") is None
