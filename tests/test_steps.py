import asyncio

import pytest

from redraft import Agent, ConfigError, ModelError, QualityCriterion, ReflectionPattern, TokenUsage
from redraft.events import StepFailed, StepFinished, StepStarted
from redraft.loop import Retry, direct
from redraft.loop.budget import NO_BUDGET, Tally
from redraft.loop.steps import Steps
from redraft.protocols import ChatReply
from redraft.stores.sqlite import MemoryStore


async def double(value):
    return value * 2


def test_direct_carries_out_the_effect():
    assert asyncio.run(direct("step", int, double, 2)) == 4


def observed(listener):
    return Steps(direct, Tally(NO_BUDGET), run_id="run", emit=listener)


def test_a_step_emits_start_and_finish():
    events = []
    assert asyncio.run(observed(events.append).do("step", int, double, 2)) == 4
    assert [type(event) for event in events] == [StepStarted, StepFinished]
    assert events[1].result == 4
    assert events[1].seconds >= 0


def test_a_step_emits_its_failure_and_raises_it():
    async def fail():
        raise ValueError("no")

    events = []
    with pytest.raises(ValueError, match="no"):
        asyncio.run(observed(events.append).do("step", int, fail))
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


def test_the_wait_after_very_many_failures_is_the_longest():
    assert 30.0 <= Retry(attempts=9_999).wait_before(2_000, TimeoutError()) <= 60.0


def test_jitter_spreads():
    waits = {Retry().wait_before(1, TimeoutError()) for _ in range(20)}
    assert len(waits) > 10


def test_the_last_attempt_gives_up():
    assert Retry(attempts=2).wait_before(2, TimeoutError()) is None


class Storm:
    """A provider that refuses every call until so many seconds have passed, on a clock that waits move on."""

    def __init__(self, seconds, error):
        self.seconds, self.error, self.now, self.tries = seconds, error, 0.0, 0

    async def call(self):
        self.tries += 1
        if self.now < self.seconds:
            raise self.error
        return "answered"

    async def wait(self, seconds):
        self.now += seconds

    def run(self, **options):
        return asyncio.run(Retry(**options).run(self.call, sleep=self.wait))


BUSY = ModelError("down", status=503, retryable=True, retry_after=90)


def rate_limit(retry_after=None):
    return ModelError("too many requests", status=429, retryable=True, retry_after=retry_after)


@pytest.mark.parametrize("seconds", [5, 20, 40, 55])
@pytest.mark.parametrize("retry_after", [None, 3, 20])
def test_a_storm_of_rate_limits_is_waited_out_for_a_minute(seconds, retry_after):
    for _ in range(20):  # the waits are drawn
        storm = Storm(seconds, rate_limit(retry_after))
        assert storm.run() == "answered"
        assert storm.now <= 60.001


@pytest.mark.parametrize(
    ("error", "most", "tries"),
    [
        (rate_limit(), 60, None),
        (rate_limit(20), 60, 4),
        (rate_limit(60), 60, 2),
        (ModelError("down", status=503, retryable=True), 1.5, 3),
        (ModelError("down", retryable=True), 1.5, 3),
        (TimeoutError(), 1.5, 3),
    ],
)
def test_a_lasting_failure_ends_the_retries(error, most, tries):
    storm = Storm(1_000, error)
    with pytest.raises(type(error)):
        storm.run()
    assert storm.now <= most + 0.001
    assert tries is None or storm.tries == tries


def test_rate_limits_do_not_use_up_the_tries_of_other_failures():
    failures = [*[rate_limit()] * 5, ConnectionError("reset"), rate_limit(), ConnectionError("reset")]

    async def call():
        if failures:
            raise failures.pop(0)
        return "answered"

    assert asyncio.run(Retry().run(call, sleep=Storm(0, None).wait)) == "answered"


def test_one_attempt_means_no_retry():
    storm = Storm(1_000, rate_limit())
    with pytest.raises(ModelError):
        storm.run(attempts=1)
    assert storm.tries == 1


def test_patience_limits_the_waiting():
    storm = Storm(1_000, rate_limit())
    with pytest.raises(ModelError):
        storm.run(patience=5)
    assert storm.now == pytest.approx(5)


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (rate_limit(120), {}, "to wait 120 s (Retry-After), more than the 60 s of Retry(longest_wait=60)"),
        (rate_limit(45), {"patience": 30}, "to wait 45 s (Retry-After), more than the 30 s left of Retry("),
        (BUSY, {"longest_wait": 10}, "to wait 90 s (Retry-After), more than the 10 s of Retry("),
    ],
)
def test_the_error_names_a_retry_after_beyond_the_limit(error, options, said):
    storm = Storm(1_000, error)
    with pytest.raises(ModelError) as caught:
        storm.run(**options)
    assert str(error) in str(caught.value)
    assert said in str(caught.value)
    assert (caught.value.status, caught.value.retry_after) == (error.status, error.retry_after)
    assert caught.value.retryable == error.retryable
    assert storm.now == 0


def test_a_retry_reports_each_failure():
    heard = []
    results = [TimeoutError(), ModelError("busy", retryable=True), 5]

    async def flaky():
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def hear(error, wait):
        heard.append((str(error), wait))
        return wait

    assert asyncio.run(Retry(first_wait=0).run(flaky, on_failure=hear)) == 5
    assert heard == [("", 0.0), ("busy", 0.0)]


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": "3"},
        {"first_wait": -1},
        {"first_wait": None},
        {"longest_wait": -1},
        {"patience": -1},
        {"longest_wait": float("nan")},
    ],
)
def test_retry_refuses_bad_options(options):
    with pytest.raises(ConfigError):
        Retry(**options)


TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


def not_async(_request):
    return ChatReply("I like tea.")


async def only_a_text(_request):
    return "I like tea."


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (ChatReply(None), "returned the text None; expected a string"),
        (ChatReply(b"tea"), "returned the text b'tea'; expected a string"),
        (ChatReply("tea", usage=7), "returned the usage 7; expected a TokenUsage"),
        (ChatReply("tea", usage=TokenUsage(-5)), "whose input_tokens is a whole number"),
        (ChatReply("tea", usage=TokenUsage(5, cost_usd=float("nan"))), "expected a number of at least 0"),
    ],
)
def test_a_reply_that_cannot_be_used_is_refused(reply, message):
    async def model(_request):
        return reply

    with pytest.raises(ConfigError, match=message):
        asyncio.run(Agent(model, criteria=[TEA], keep=False, budget_tokens=10_000).run("Write."))


@pytest.mark.parametrize("usage", [{}, {"usage": None}], ids=["default", "None"])
def test_the_cost_of_a_reply_without_usage_is_unknown(usage):
    async def model(_request):
        return ChatReply("tea", **usage)

    result = asyncio.run(Agent(model, criteria=[TEA], keep=False).run("Write."))
    assert (result.success, result.token_usage.cost_usd) == (True, None)


@pytest.mark.parametrize("model", [not_async, only_a_text])
@pytest.mark.parametrize("kept", [False, True])
def test_a_function_that_is_no_model_is_refused_by_name(model, kept):
    agent = Agent(
        model,
        pattern=ReflectionPattern(quality_criteria=[TEA]),
        keep=MemoryStore() if kept else False,
    )
    with pytest.raises(ConfigError, match=rf"{model.__name__}.* returned .*I like tea.*async function"):
        asyncio.run(agent.run("Write."))
