import fcntl
import os
import stat
import threading
import time

import pytest

from redraft._locks import FileLock, flock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.lock"


def test_a_lock_excludes_until_released(path):
    one, other = FileLock(path, 0.1), FileLock(path, 5)
    with one, one:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        entered = threading.Event()

        def enter():
            with other:
                entered.set()

        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.1)
    thread.join()
    assert entered.is_set()
    one.close()
    other.close()


def test_giving_up_leaves_no_lock_behind(path):
    one, other = FileLock(path, 0.1), FileLock(path, 0.1)
    with one:
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(TimeoutError), other:
                pass
            assert 0.05 < time.monotonic() - started < 30
    with other:  # those that gave up are before it in the queue, and give the lock back
        pass
    with one:
        pass
    one.close()
    other.close()
    deadline = time.monotonic() + 60
    while any(thread.name == "redraft-lock" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_closing_while_held_releases_the_lock(path):
    one, other = FileLock(path, 0.1), FileLock(path, 0.1)
    with one:
        one.close()
        with other:
            pass
    other.close()


def test_a_child_does_not_hold_the_lock_of_its_parent(path):
    lock = FileLock(path, 1)
    child_hears, parent_says = os.pipe()
    parent_hears, child_says = os.pipe()
    with lock:
        child = os.fork()
        if child == 0:
            os.close(parent_says)
            os.write(child_says, b"!")
            os.read(child_hears, 1)
            os._exit(0)
        os.read(parent_hears, 1)
        lock.close()  # as if the parent had died
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(parent_says)
        assert os.waitpid(child, 0)[1] == 0
    for file in (child_hears, parent_hears, child_says):
        os.close(file)


@pytest.mark.parametrize("wait", [0, 0.05])
def test_an_open_folder_is_locked_until_it_is_closed(tmp_path, wait):
    one, other, third = (os.open(tmp_path, os.O_RDONLY) for _ in range(3))
    flock(one)
    with pytest.raises(TimeoutError):
        flock(other, wait)
    os.close(other)
    os.close(one)
    flock(third, 5)
    os.close(third)
