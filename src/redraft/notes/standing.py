"""Which note is in force: what a new revision, a rollback and a switch change about that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from redraft.notes.note import Note, NotedTask, Rollback


def with_revision(noted: NotedTask, note: Note, *, held: bool = False) -> NotedTask:
    """Count a new revision, and put it in force unless something speaks against it.

    `held` says that a trial keeps the present one. What is based on a note that was rolled back meanwhile is
    kept and no more.
    """
    if note.version <= noted.run_count:  # counted already, or a newer one was faster
        return noted
    counted = replace(noted, run_count=note.version)
    if held or noted.off or not _is_in_line(noted, note):
        return counted
    return replace(counted, in_force=note.version, why_off="")


def _is_in_line(noted: NotedTask, note: Note) -> bool:
    if noted.since == 1 or note.based_on == noted.in_force:
        return True
    return note.based_on is not None and note.based_on >= noted.since


def rolled_back(noted: NotedTask, version: int | None, why: str = "") -> NotedTask:
    """Put an older version in force, or none: a new line of notes begins."""
    why = why or f"rolled back from version {noted.in_force}"
    since = noted.run_count + 1
    return replace(noted, in_force=version, off=version is None, why_off=why, since=since)


def switched(noted: NotedTask, *, off: bool, why: str = "") -> NotedTask:
    """Switch notes off, or on again with what was in force, else with the newest."""
    if off:
        return replace(noted, off=True, why_off=why or "switched off")
    return replace(noted, off=False, why_off="", in_force=noted.in_force or noted.run_count or None)


def checked_version(noted: NotedTask, version: int) -> int:
    """Return a version that there is; raises `ConfigError` for any other."""
    if not 1 <= version <= noted.run_count:
        there = "version 1" if noted.run_count == 1 else f"versions 1 to {noted.run_count}"
        raise ConfigError(f"There is no version {version} of the notes on this task; there is {there}.")
    return version


def why_of(rollback: Rollback) -> str:
    """Say why a note was rolled back by itself, with the figures."""
    other = "without notes" if rollback.to is None else f"with version {rollback.to}"
    return (
        f"version {rollback.version} was rolled back by itself: runs with it scored "
        f"{-rollback.effect:.2f} lower than runs {other} (95 % interval {rollback.low:+.2f} to "
        f"{rollback.high:+.2f}, {rollback.with_runs} and {rollback.without_runs} runs)"
    )
