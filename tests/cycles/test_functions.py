"""Functions of the program: what they are given, and what they may give."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from cycling import cycle_of, run, spec_of
from redraft.core.errors import ConfigError, OutputError
from redraft.cycles.functions import call_function
from redraft.cycles.thread import in_thread

SPEC = spec_of(reason=[{"type": "analyze", "name": "look", "config": {"function": "look"}}])


@dataclass
class Reading:
    rate: int


class Service:
    async def __call__(self, rate):
        return rate


async def asynchronous(rate):
    await asyncio.sleep(0)
    return rate


def cyclic(rate):
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda rate: rate, 5),
        (asynchronous, 5),
        (Service(), 5),
        (lambda **rest: rest, {"rate": 5}),
        (lambda rate, idempotency_key: [rate, idempotency_key], [5, "k"]),
        (lambda rate, state: state["environmentalData"]["payload"], {"rate": 5}),
        (Reading, {"rate": 5}),
        (lambda rate: None, None),
        (lambda rate: {1: (rate,)}, {"1": [5]}),
        (lambda rate: "{{ env.KEY }}", "{{ env.KEY }}"),
    ],
)
def test_what_a_function_is_given_and_gives(function, given):
    cycle, _ = cycle_of(SPEC, functions={"look": function}, payload={"rate": 5})
    with_ = {"rate": "{{ environmentalData.payload.rate }}"}
    assert run(call_function(cycle, "look", with_, None, "k")) == given


def test_a_plain_function_does_not_hold_up_the_loop():
    cycle, _ = cycle_of(SPEC, functions={"look": lambda: threading.current_thread().name})
    assert run(call_function(cycle, "look", {})) != threading.main_thread().name


def test_what_a_function_does_to_its_state_stays_with_it():
    cycle, _ = cycle_of(
        SPEC, functions={"look": lambda state: state["memory"]["p"].clear()}, memory={"p": [1]}
    )
    run(call_function(cycle, "look", {}))
    assert cycle.state.memory == {"p": [1]}


def test_a_name_that_is_given_is_not_filled():
    cycle, _ = cycle_of(SPEC, functions={"look": lambda state: state})
    assert run(call_function(cycle, "look", {"state": "mine"})) == "mine"


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda rate: float("nan"), OutputError, "The function 'look' gave what is no plain JSON data: nan"),
        (cyclic, OutputError, "no plain JSON data"),
        (lambda: 1, TypeError, "rate"),
        (lambda rate: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_what_a_function_must_not_do(function, error, message):
    cycle, _ = cycle_of(SPEC, functions={"look": function})
    with pytest.raises(error, match=message):
        run(call_function(cycle, "look", {"rate": 1}))


def test_a_function_that_is_not_there_is_named():
    cycle, _ = cycle_of(SPEC, functions={"look": print})
    with pytest.raises(ConfigError, match=r"'lock'.*'look'"):
        run(call_function(cycle, "lock", {}))


async def slow():
    await asyncio.sleep(30)


async def gives_up():
    raise TimeoutError("the line is busy")


async def waits_for_what_is_cancelled():
    task = asyncio.ensure_future(asyncio.sleep(30))
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (waits_for_what_is_cancelled, "the function 'look' was cancelled, and the cycle was not"),
        (slow, r"the function 'look' has not ended within 20 ms"),
        (lambda: threading.Event().wait(5), r"the function 'look' has not ended within 20 ms"),
        (gives_up, "^the line is busy$"),
    ],
)
def test_a_function_has_its_time(function, message):
    cycle, _ = cycle_of(SPEC, functions={"look": function})
    with pytest.raises((TimeoutError, RuntimeError), match=message):
        run(call_function(cycle, "look", {}, timeout_ms=20))


def test_a_cycle_that_is_cancelled_stays_cancelled():
    cycle, _ = cycle_of(SPEC, functions={"look": slow})
    with pytest.raises(TimeoutError, match=r"^$"):
        asyncio.run(asyncio.wait_for(call_function(cycle, "look", {}), 0.02))


def raises_stop():
    raise StopIteration


def ends():
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("function", "error"),
    [(raises_stop, RuntimeError), (ends, SystemExit), (lambda: 1 / 0, ZeroDivisionError)],
)
def test_what_a_thread_raises_is_raised(function, error):
    with pytest.raises(error):
        asyncio.run(in_thread(function))


def test_neither_the_loop_nor_the_process_waits_for_a_function_that_hangs():
    program = """
import asyncio, time
from redraft.cycles.thread import in_thread

async def main():
    try:
        await asyncio.wait_for(in_thread(lambda: time.sleep(600)), 0.05)
    except TimeoutError:
        print("over")

asyncio.run(main())
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert (found.stdout, found.stderr) == ("over\n", "")
