from datetime import UTC, datetime, timedelta, timezone

import pytest

from redraft._clock import moment_after
from redraft.cycles.memory import moment_of, stamp_of


@pytest.mark.parametrize(
    ("moment", "stamp"),
    [
        (datetime(2026, 11, 22, 10, tzinfo=UTC), "2026-11-22T10:00:00.000Z"),
        (datetime(2026, 11, 22, 10, 0, 0, 999_999, tzinfo=UTC), "2026-11-22T10:00:00.999Z"),
        (datetime(2026, 11, 22, 1, tzinfo=timezone(timedelta(hours=2))), "2026-11-21T23:00:00.000Z"),
        (datetime(33, 1, 2, tzinfo=UTC), "0033-01-02T00:00:00.000Z"),
    ],
)
def test_stamps_are_in_utc_to_the_millisecond(moment, stamp):
    assert stamp_of(moment) == stamp
    assert stamp_of(moment_of(stamp)) == stamp


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-11-22T10:00:00+02:00", "2026-11-22T08:00:00.000Z"),
        ("2026-11-22T10:00:00", "2026-11-22T10:00:00.000Z"),
        ("2026-11-22", "2026-11-22T00:00:00.000Z"),
    ],
)
def test_parses_any_iso_time(text, stamp):
    assert stamp_of(moment_of(text)) == stamp


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+14:00"])
def test_an_invalid_time_is_none(text):
    assert moment_of(text) is None


@pytest.mark.parametrize(("seconds", "after"), [(1.5, timedelta(seconds=1.5)), (None, None), (1e12, None)])
def test_moment_after_is_none_beyond_the_calendar(seconds, after):
    now = datetime(2026, 11, 22, tzinfo=UTC)
    assert moment_after(now, seconds) == (None if after is None else now + after)
