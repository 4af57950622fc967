import sqlite3
from pathlib import Path

import pytest

import redraft.stores
from redraft.stores.base import scripts

FOLDER = Path(redraft.stores.__file__).parent / "migrations"


@pytest.mark.parametrize("backend", [path.name for path in FOLDER.iterdir()])
def test_scripts_are_read_in_their_order(backend):
    assert len(scripts(backend)) == len(list((FOLDER / backend).iterdir())) > 0
    assert scripts(backend)[0] == next(iter((FOLDER / backend).glob("0001_*"))).read_text("utf-8")


def test_sqlite_understands_its_scripts_one_after_the_other():
    connection = sqlite3.connect(":memory:")
    for script in scripts("sqlite"):
        assert sqlite3.complete_statement(script)
        connection.executescript(script)
    connection.close()


@pytest.mark.parametrize("names", [["0002_b.sql"], ["0001_a.sql", "0001_b.sql"], ["1_a.sql"]])
def test_a_wrong_number_is_found(tmp_path, monkeypatch, names):
    monkeypatch.setattr("redraft.stores.base.__file__", str(tmp_path / "migrate.py"))
    folder = tmp_path / "migrations" / "test"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("SELECT 1;")
    with pytest.raises(AssertionError, match="numbered"):
        scripts.__wrapped__("test")
