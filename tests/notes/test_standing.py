"""Which note is in force after revisions, rollbacks and switches, in one table."""

import pytest

from redraft.core.errors import ConfigError
from redraft.notes.note import Note, NotedTask, Rollback
from redraft.notes.reflection import TaskReflection
from redraft.notes.standing import checked_version, rolled_back, switched, why_of, with_revision


def note(version, based_on=None):
    return Note(version, TaskReflection.of_first_run("So.", ""), based_on=based_on)


def stands(run_count, in_force, **fields):
    return NotedTask("id", "Write.", run_count=run_count, in_force=in_force, **fields)


@pytest.mark.parametrize(
    ("before", "made", "held", "count", "in_force"),
    [
        pytest.param(stands(0, None), note(1), False, 1, 1, id="the first"),
        pytest.param(stands(4, 4), note(5, 4), False, 5, 5, id="the next"),
        pytest.param(stands(4, 4), note(5, 1), False, 5, 5, id="of a run that began long before"),
        pytest.param(stands(6, 6), note(5, 4), False, 6, 6, id="one that comes late"),
        pytest.param(stands(4, 2), note(5, 2), True, 5, 2, id="while a trial holds another"),
        pytest.param(stands(4, 4, off=True), note(5), False, 5, 4, id="while notes are off"),
        pytest.param(stands(7, 2, since=8), note(8, 7), False, 8, 2, id="based on what was rolled back"),
        pytest.param(stands(8, 2, since=8), note(9, 2), False, 9, 9, id="based on what was chosen"),
        pytest.param(stands(9, 9, since=8), note(10, 8), False, 10, 10, id="of the present line"),
        pytest.param(stands(9, 9, since=8), note(10), False, 10, 9, id="of a run without, in a later line"),
    ],
)
def test_a_revision(before, made, held, count, in_force):
    after = with_revision(before, made, held=held)
    assert (after.run_count, after.in_force) == (count, in_force)


def test_a_rollback_begins_a_line_and_the_next_revision_ends_its_reason():
    after = rolled_back(stands(7, 7), 2)
    assert (after.in_force, after.off, after.since, after.why_off) == (
        2,
        False,
        8,
        "rolled back from version 7",
    )
    assert with_revision(after, note(8, 2)).why_off == ""
    nothing = rolled_back(stands(7, 7), None, "it hurt")
    assert (nothing.in_force, nothing.off, nothing.since, nothing.why_off) == (None, True, 8, "it hurt")


def test_switched_off_and_on_as_it_was():
    off = switched(stands(7, 3), off=True)
    assert (off.off, off.why_off) == (True, "switched off")
    assert switched(off, off=False) == stands(7, 3)
    assert switched(stands(7, None, off=True), off=False).in_force == 7
    assert switched(stands(0, None, off=True), off=False).in_force is None


def test_a_version_that_there_is_not():
    assert checked_version(stands(1, 1), 1) == 1
    with pytest.raises(ConfigError, match=r"no version 2 .* there is version 1\."):
        checked_version(stands(1, 1), 2)


def test_the_reason_of_a_rollback_has_its_figures():
    assert why_of(Rollback(7, None, -0.123, -0.2, -0.04, 40, 10)) == (
        "version 7 was rolled back by itself: runs with it scored 0.12 lower than runs without notes "
        "(95 % interval -0.20 to -0.04, 40 and 10 runs)"
    )
    assert "than runs with version 6" in why_of(Rollback(7, 6, -0.1, -0.2, -0.04, 40, 10))
