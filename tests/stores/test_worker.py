import asyncio
import threading
import time
from contextlib import contextmanager

import pytest

from redraft.stores.worker import LARGEST_BATCH, Worker
from redraft.terminal.commands import run_async


class Session:
    """A session that keeps a log, and waits for its turn until the gate is open."""

    def __init__(self, log, gate):
        self.log, self.gate = log, gate

    @contextmanager
    def turn(self):
        self.gate.wait()
        if self.log and self.log[-1] == "no turn":
            raise TimeoutError("no turn")
        yield

    def work(self, jobs):
        self.log.append(len(jobs))
        for job in jobs:
            job.run(None)
            if isinstance(job.error, MemoryError):
                raise job.error

    def close(self):
        self.log.append("closed")


@pytest.fixture
def log():
    return []


@pytest.fixture
def gate():
    return threading.Event()


@pytest.fixture
def worker(log, gate):
    worker = Worker("test", lambda: Session(log, gate))
    yield worker
    gate.set()
    asyncio.run(worker.stop())


def fail(error):
    def work(_):
        raise error

    return work


def test_waiting_requests_are_done_in_one_batch_and_in_order(worker, log, gate):
    async def main():
        done = []
        tasks = [asyncio.create_task(worker.do(lambda _, n=n: done.append(n) or n)) for n in range(50)]
        await asyncio.sleep(0.01)
        gate.set()
        assert await asyncio.gather(*tasks) == done == list(range(50))
        await worker.stop()
        assert log == [50, "closed"]

    asyncio.run(main())


def test_requests_of_one_loop_iteration_share_a_batch(worker, log, gate):
    async def ask(number):
        time.sleep(0.04)  # noqa: ASYNC251 (the round takes its time: the thread ends what it does before)
        return await worker.do(lambda _: number)

    async def main():
        gate.set()
        before = asyncio.create_task(worker.do(lambda _: time.sleep(0.06)))
        await asyncio.sleep(0.01)
        assert await asyncio.gather(*map(ask, range(3))) == [0, 1, 2]
        await before
        assert log == [1, 3]

    asyncio.run(main())


def test_a_batch_is_bounded(worker, log, gate):
    async def main():
        tasks = [asyncio.create_task(worker.do(lambda _: None)) for _ in range(2 * LARGEST_BATCH + 5)]
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*tasks)
        assert max(log) <= LARGEST_BATCH + 1
        assert sum(log) == len(tasks)

    asyncio.run(main())


def test_errors_reach_their_caller(worker, log, gate):
    async def main():
        jobs = [worker.do(lambda _: 1), worker.do(fail(ValueError("own"))), worker.do(lambda _: 2)]
        tasks = [asyncio.create_task(job) for job in jobs]
        await asyncio.sleep(0.01)
        gate.set()
        one, error, two = await asyncio.gather(*tasks, return_exceptions=True)
        assert (one, str(error), two) == (1, "own", 2)
        gate.clear()
        tasks = [asyncio.create_task(worker.do(work)) for work in (lambda _: 1, fail(MemoryError("all")))]
        await asyncio.sleep(0.01)
        gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in results] == ["all", "all"]
        log.append("no turn")
        for _ in range(2):
            with pytest.raises(TimeoutError, match="no turn"):
                await worker.do(lambda _: 1)
        log.clear()
        assert await worker.do(lambda _: 3) == 3

    asyncio.run(main())


def test_a_closed_loop_is_ignored(worker, log, gate):
    loop = asyncio.new_event_loop()
    task = loop.create_task(worker.do(lambda _: log.append("done")))
    loop.run_until_complete(asyncio.sleep(0.01))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    gate.set()
    assert asyncio.run(worker.do(lambda _: 1)) == 1
    assert "done" in log


def test_a_command_ends_though_its_store_does_not_answer(worker, gate, monkeypatch):
    monkeypatch.setattr("redraft.stores.worker.LAST_WAIT", 0.05)
    monkeypatch.setattr("redraft.stores.location.close_project_store", worker.stop)
    opening = threading.Timer(5, gate.set)  # so that a failing test ends, too
    opening.start()

    async def main():
        asyncio.create_task(worker.do(lambda _: None))  # noqa: RUF006 (nothing waits for it)
        await asyncio.sleep(0)
        return 7

    assert run_async(main()) == 7
    assert not gate.is_set()
    opening.cancel()


def test_stopping_finishes_pending_requests(worker, log, gate):
    async def main():
        tasks = [asyncio.create_task(worker.do(lambda _, n=n: n)) for n in range(5)]
        await asyncio.sleep(0.01)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.01)
        later = asyncio.create_task(worker.do(lambda _: "later"))  # in a thread of its own
        await asyncio.sleep(0.01)
        assert not stopping.done()
        gate.set()
        assert await asyncio.gather(*tasks) == list(range(5))
        await stopping
        assert await later == "later"

    asyncio.run(main())
