import asyncio
import errno
import gc
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from redraft.stores.doorbell import Doorbell, doorbell_of


class Blind(asyncio.SelectorEventLoop):
    """A loop that can't watch files, as some of other systems can't."""

    def add_reader(self, fd, callback, *args):
        if fd == self._ssock.fileno():  # its own, which `call_soon_threadsafe` writes to
            return super().add_reader(fd, callback, *args)
        raise NotImplementedError


def no_file(*_):
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.fixture(params=["counter", "blind loop", "no file is left", "another system"])
def loop(request, monkeypatch):
    if request.param == "no file is left":
        monkeypatch.setattr(os, "eventfd", no_file)
    if request.param == "another system":
        monkeypatch.delattr(os, "eventfd")
    loop = Blind() if request.param == "blind loop" else asyncio.SelectorEventLoop()
    yield loop
    loop.close()


def test_what_threads_ring_for_is_called_in_the_loop_and_in_order(loop):
    calls = []
    everything = asyncio.Event()

    def called(thread, number):
        assert threading.current_thread() is threading.main_thread()
        calls.append((thread, number))
        if len(calls) == 4000:
            everything.set()

    async def main():
        bell = doorbell_of(loop)
        assert bell is doorbell_of(loop)

        def ring(thread):
            for number in range(1000):
                bell.ring(partial(called, thread, number))

        threads = [threading.Thread(target=ring, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(everything.wait(), 10)
        for thread in threads:
            thread.join()

    loop.run_until_complete(main())
    for thread in range(4):
        assert [number for one, number in calls if one == thread] == list(range(1000))


def test_who_rings_when_the_loop_is_closed_or_gone_is_not_heard(loop):
    bell = Doorbell(loop)
    calls = []
    loop.close()
    bell.ring(lambda: calls.append("closed"))
    assert calls == []


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "closed before it hears"])
def test_a_loop_that_is_gone_leaves_no_file_open(heard):
    def open_files():
        gc.collect()
        return len([*Path("/proc/self/fd").iterdir()])

    async def main():
        asked = asyncio.get_running_loop().create_future()
        bell = doorbell_of(asyncio.get_running_loop())
        thread = threading.Thread(target=bell.ring, args=(lambda: asked.set_result("heard"),))
        thread.start()
        assert await asked == "heard"
        thread.join()
        return bell, asked

    def run():
        bell, asked = asyncio.run(main())
        if not heard:
            bell.ring(asked.get_loop)

    run()
    before = open_files()
    for _ in range(20):
        run()
    assert open_files() <= before


FORK = """
import asyncio, os
from redraft.stores.doorbell import doorbell_of

loop = asyncio.new_event_loop()
bell = doorbell_of(loop)
calls = []
if os.fork() == 0:
    os._exit(doorbell_of(loop) is bell)
_, status = os.wait()
bell.ring(lambda: calls.append("parent"))
loop.run_until_complete(asyncio.sleep(0.01))
assert calls == ["parent"], calls
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_does_not_ring_at_its_parents_door():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)
