from datetime import datetime, timedelta

import pytest

from cycles_made import at, ids, item
from cycling import NOON
from properties import given, some
from redraft.cycles.retention import MOST_ITEMS, retained
from redraft.cycles.spec_reflect import Retention

DAY = 86_400_000
OLD, OLDER, NOW, LATER = item("old", -10), item("older", -11), item("now"), item("later", 1)
TWIN = item("twin", -10)


@pytest.mark.parametrize(
    ("items", "retention", "kept"),
    [
        pytest.param([], {"max_items": 1, "ttl_ms": 1}, [], id="nothing"),
        pytest.param([OLDER, OLD], {}, ["older", "old"], id="no bound"),
        pytest.param([OLDER, OLD, NOW], {"max_items": 2}, ["old", "now"], id="the most recent"),
        pytest.param([NOW, OLDER, OLD], {"max_items": 2}, ["now", "old"], id="by timestamp, not by place"),
        pytest.param([OLD, TWIN, OLDER], {"max_items": 1}, ["twin"], id="of twins the later is younger"),
        pytest.param([OLDER, OLD], {"max_items": 0}, [], id="none"),
        pytest.param([OLDER, OLD, NOW], {"ttl_ms": 10}, ["old", "now"], id="exactly that old stays"),
        pytest.param([OLDER, OLD, LATER], {"ttl_ms": 0}, ["later"], id="of the future is not old"),
        pytest.param([LATER, OLDER, OLD], {"ttl_ms": 10, "max_items": 1}, ["later"], id="both"),
        pytest.param([OLDER, OLD, NOW], {"ttl_ms": 10, "max_items": 3}, ["old", "now"], id="both, by age"),
        pytest.param([OLDER, NOW], {"ttl_ms": 10**18}, ["older", "now"], id="longer than there are years"),
        pytest.param([OLD, NOW], {"policy": "ttl", "ttl_ms": 5, "max_items": 0}, ["now"], id="ttl alone"),
        pytest.param(
            [OLD, NOW], {"policy": "max_items", "ttl_ms": 5, "max_items": 9}, ["old", "now"], id="max"
        ),
        pytest.param(
            [OLD, NOW], {"policy": ["max_items", "ttl"], "ttl_ms": 5, "max_items": 9}, ["now"], id="a list"
        ),
    ],
)
def test_what_is_kept(items, retention, kept):
    assert ids(retained(items, Retention(**retention), NOON)) == kept


@pytest.mark.parametrize("retention", [None, Retention(), Retention(ttl_ms=10**9)])
def test_a_key_without_a_number_is_bounded_all_the_same(retention):
    items = [item(str(number), number) for number in range(MOST_ITEMS + 5)]
    assert retained(items, retention, at(MOST_ITEMS)) == items[5:]


def test_what_is_kept_whole_is_the_same_list():
    items = [OLD, NOW]
    assert retained(items, Retention(max_items=2, ttl_ms=10), NOON) is items


MOMENTS = some.integers(-3 * DAY, 3 * DAY)
ITEMS = some.lists(MOMENTS, max_size=40).map(
    lambda moments: [item(f"i{place}", moment) for place, moment in enumerate(moments)]
)
RETENTIONS = some.builds(
    Retention,
    max_items=some.none() | some.integers(0, 30),
    ttl_ms=some.none() | some.integers(0, 2 * DAY),
)
MICROSECONDS = some.integers(0, 999).map(lambda count: timedelta(microseconds=count))
CLOCKS = some.builds(lambda moment, more: at(moment) + more, some.integers(-2 * DAY, 2 * DAY), MICROSECONDS)


def age(one, place):
    return datetime.fromisoformat(one["timestamp"]), place


@given(ITEMS, RETENTIONS, CLOCKS)
def test_never_more_than_the_bound_and_in_order(items, retention, now):
    kept = retained(items, retention, now)
    places = [items.index(one) for one in kept]
    assert places == sorted(set(places))
    if retention.max_items is not None:
        assert len(kept) <= retention.max_items


@given(ITEMS, RETENTIONS, CLOCKS)
def test_no_younger_item_is_dropped_for_an_older_one(items, retention, now):
    kept = ids(retained(items, retention, now))
    ages = [(age(one, place), one["id"] in kept) for place, one in enumerate(items)]
    oldest_kept = min((when for when, stays in ages if stays), default=None)
    for when, stays in ages:
        if not stays and oldest_kept is not None:
            assert when < oldest_kept


@given(ITEMS, some.integers(0, 2 * DAY), CLOCKS)
def test_a_ttl_is_exact_to_the_millisecond(items, ttl, now):
    kept = ids(retained(items, Retention(ttl_ms=ttl), now))
    told = now.replace(microsecond=now.microsecond // 1000 * 1000)
    for one in items:
        is_old = told - datetime.fromisoformat(one["timestamp"]) > timedelta(milliseconds=ttl)
        assert (one["id"] in kept) is not is_old


@given(ITEMS, RETENTIONS, CLOCKS)
def test_what_is_kept_is_kept_again(items, retention, now):
    kept = retained(items, retention, now)
    assert retained(kept, retention, now) is kept


@given(ITEMS, some.lists(CLOCKS, min_size=1, max_size=8), some.integers(0, 2 * DAY))
def test_a_clock_that_goes_back_drops_no_more(items, clocks, ttl):
    """However the clock jumps, what is left is what the latest time that it told leaves."""
    left = items
    for now in clocks:
        left = retained(left, Retention(ttl_ms=ttl), now)
    assert list(left) == list(retained(items, Retention(ttl_ms=ttl), max(clocks)))
