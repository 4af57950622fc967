"""Stamps: the times of what is remembered, as texts that sort as they follow each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def stamp_of(moment: datetime) -> str:
    """Return a time as memory has it: `2026-11-22T10:00:00.000Z`, in UTC, cut to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def moment_of(stamp: str) -> datetime | None:
    """Return the time that an ISO 8601 text tells, in UTC where it names no zone; else None."""
    try:
        moment = datetime.fromisoformat(stamp)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no time, or one that UTC has no year for
        return None


def moment_after(moment: datetime, seconds: float | None) -> datetime | None:
    """Return a time so many seconds later; None where they are None, or more than the calendar has."""
    try:
        return None if seconds is None else moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
