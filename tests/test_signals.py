import asyncio
import os
import signal

import pytest

from redraft import Agent, MemoryStore, ScriptedModel
from redraft._signals import StopRequest
from redraft.fleet import Fleet, FleetWorker, StoreQueue


@pytest.fixture(autouse=True)
def handler():
    """A handler to restore, which also keeps a failing test alive."""

    def handle(*_):
        pass

    before = signal.signal(signal.SIGTERM, handle)
    yield handle
    signal.signal(signal.SIGTERM, before)


async def terminate(event):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(event.wait(), 60)


def test_a_signal_reaches_all_that_run_in_the_loop_and_then_its_handler_is_restored(handler):
    async def main():
        first, second = StopRequest(), StopRequest()
        with first.on_signals():
            with second.on_signals():
                await terminate(second.requested)
            await terminate(first.urgent)
        assert (first.requested.is_set(), first.urgent.is_set()) == (True, True)
        assert (second.requested.is_set(), second.urgent.is_set()) == (True, False)
        assert signal.getsignal(signal.SIGTERM) is handler

    asyncio.run(main())


def test_a_worker_that_ends_leaves_the_signals_of_others():
    async def main():
        store, other = MemoryStore(), StopRequest()
        clerk = Agent(ScriptedModel([]), keep=store, name="clerk")
        with other.on_signals():
            worker = FleetWorker(Fleet([clerk], store=store, queue=StoreQueue(store)))
            await asyncio.wait_for(worker.run(until_idle=True), 60)
            await terminate(other.requested)

    asyncio.run(main())


@pytest.mark.parametrize("own", [signal.SIG_DFL, signal.SIG_IGN, lambda *_: None])
def test_a_terminal_that_closes_asks_to_stop_unless_the_program_says_otherwise(own):
    async def main():
        request = StopRequest()
        with request.on_signals():
            taken = signal.getsignal(signal.SIGHUP) is not own
            if taken:
                for _ in range(2):  # the kernel and the shell
                    os.kill(os.getpid(), signal.SIGHUP)
                    await asyncio.wait_for(request.requested.wait(), 60)
                    await asyncio.sleep(0.01)
            return taken, request.requested.is_set(), request.urgent.is_set()

    before = signal.signal(signal.SIGHUP, own)
    try:
        assert asyncio.run(main()) == ((True, True, False) if own is signal.SIG_DFL else (False,) * 3)
        assert signal.getsignal(signal.SIGHUP) is own
    finally:
        signal.signal(signal.SIGHUP, before)
