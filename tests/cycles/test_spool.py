"""The spool: what could not be written yet outlives the process."""

import stat

import pytest

from redraft.cycles import keeper as module
from redraft.cycles.keeper import Spool
from redraft.errors import LeaseError, StoreError
from redraft.stores.base import Record


def note(key, **data):
    return Record("note", key, data, 3, [1.0, 0.5])


def by_key(*records):
    return {(record.kind, record.key): record for record in records}


@pytest.fixture
def opened(tmp_path):
    """Open spools of one path; close them in the end."""
    made = []

    def open_one():
        made.append(Spool(tmp_path / "kept" / "a.jsonl"))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


def test_what_is_added_is_read_by_the_next_the_last_of_each(opened):
    first = opened()
    assert first.read() == ({}, False, 0)
    first.add([note("a", x="\ud800"), note("b")], is_partial=False)
    first.add([note("a", x=2)], is_partial=False)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    first.close()
    assert opened().read() == (by_key(note("a", x=2), note("b")), False, 0)


def test_what_has_no_json_form_is_passed_over(opened):
    first = opened()
    first.read()
    first.add([note("a", x={1})], is_partial=False)
    first.add([note("b")], is_partial=False)
    first.close()
    assert opened().read() == (by_key(note("b")), False, 0)


def test_it_says_if_the_memory_was_begun_anew(opened):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=True)
    first.add([note("b")], is_partial=False)
    first.close()
    assert opened().read()[1]


def test_it_says_in_which_generation_of_the_lease_it_was_made(opened):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=False, generation=3)
    first.add([note("b")], is_partial=True)  # when nobody could know
    first.close()
    assert opened().read()[2] == 3


def test_what_was_cleared_is_gone(opened):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=False)
    first.clear()
    first.add([note("b")], is_partial=False)
    first.close()
    assert opened().read() == (by_key(note("b")), False, 0)


@pytest.mark.parametrize("torn", [b'\n{"is_partial": fal', b"\n{}", b'\n{"records": 1}', b"\n\xff"])
def test_a_torn_line_is_left_out_with_a_warning(opened, caplog, torn):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=False)
    first.close()
    with first.path.open("ab") as file:
        file.write(torn)
    second = opened()
    assert second.read() == (by_key(note("a")), False, 0)
    assert "line 3 can't be read" in caplog.text
    second.add([note("b")], is_partial=False)
    second.close()
    assert opened().read()[0] == by_key(note("a"), note("b"))


def test_it_serves_one_process_at_a_time(opened):
    first, second = opened(), opened()
    first.read()
    with pytest.raises(LeaseError, match="Another process on this machine runs the agent"):
        second.read()
    first.close()
    second.read()


def test_written_anew_it_holds_that_alone(opened, monkeypatch):
    monkeypatch.setattr(module, "MAX_SPOOL", 1000)
    first = opened()
    first.read()
    while not first.is_large():
        first.add([note("a", text="x" * 100)], is_partial=False)
    first.replace([note("a", x=1)], is_partial=True)
    assert not first.is_large()
    first.add([note("b")], is_partial=False)
    with pytest.raises(LeaseError):
        opened().read()
    first.close()
    assert opened().read() == (by_key(note("a", x=1), note("b")), True, 0)


def test_a_folder_that_can_not_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"The spool .*a\.jsonl can't be used"):
        Spool(tmp_path / "file" / "a.jsonl").read()
