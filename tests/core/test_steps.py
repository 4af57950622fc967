import asyncio

import pytest

from redraft import (
    ConfigError,
    ModelError,
    Retry,
    StepFailed,
    StepFinished,
    StepStarted,
    direct,
    observed,
    retried,
)


async def double(value):
    return value * 2


def test_direct_does_it():
    assert asyncio.run(direct("step", int, double, 2)) == 4


def test_observed_tells_before_and_after():
    events = []
    step = observed(direct, events.append, "run")
    assert asyncio.run(step("step", int, double, 2)) == 4
    assert [type(event) for event in events] == [StepStarted, StepFinished]
    assert events[1].result == 4
    assert events[1].seconds >= 0


def test_observed_tells_of_failures_and_lets_them_through():
    async def fail():
        raise ValueError("no")

    events = []
    with pytest.raises(ValueError, match="no"):
        asyncio.run(observed(direct, events.append, "run")("step", int, fail))
    assert isinstance(events[-1], StepFailed)


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (ModelError("x", retryable=True), [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (2.5, 5.0)]),
        (ModelError("x", retryable=True, retry_after=3.5), [(3.5, 3.5), (3.5, 3.5), (3.5, 4.0), (3.5, 5.0)]),
        (ModelError("x", retryable=True, retry_after=6), [None]),
        (ModelError("x"), [None]),
        (ValueError("x"), [None]),
        (TimeoutError(), [(0.5, 1.0)]),
    ],
)
def test_waits_double_with_jitter_and_honour_retry_after(error, waits):
    retry = Retry(attempts=9, first_wait=1.0, longest_wait=5.0)
    for attempt, bounds in enumerate(waits, 1):
        wait = retry.wait_before(attempt, error)
        if bounds is None:
            assert wait is None
        else:
            assert bounds[0] <= wait <= bounds[1]


def test_jitter_spreads():
    waits = {Retry().wait_before(1, TimeoutError()) for _ in range(20)}
    assert len(waits) > 10


def test_the_last_attempt_gives_up():
    assert Retry(attempts=2).wait_before(2, TimeoutError()) is None


def test_retried_hears_of_each_failure():
    heard = []
    results = [TimeoutError(), ModelError("busy", retryable=True), 5]

    async def flaky():
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    step = retried(direct, Retry(first_wait=0), lambda name, error, wait: heard.append((name, wait)) or wait)
    assert asyncio.run(step("step", int, flaky)) == 5
    assert heard == [("step", 0.0), ("step", 0.0)]


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": "3"},
        {"first_wait": -1},
        {"first_wait": None},
        {"longest_wait": -1},
        {"longest_wait": float("nan")},
    ],
)
def test_retry_refuses_what_makes_no_sense(options):
    with pytest.raises(ConfigError):
        Retry(**options)
