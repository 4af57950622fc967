"""For the tests of stores: records, other processes, and a process without privileges."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

TESTS = Path(__file__).parents[1]
_BEGIN = "import asyncio, os, sys; sys.path.insert(0, sys.argv[1]); from redraft.stores.base import Record; "
_BEGIN += "from redraft.stores.sqlite import SqliteStore; from redraft.errors import StoreError\n"


def note(key: str = "a", **data: object) -> Record:
    """A record of the kind `note`."""
    return Record("note", key, data)


@contextmanager
def child(script: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    """Run a script in another process, with `sys.argv[2:]`; a warning is an error. Kills it in the end."""
    argv = [sys.executable, "-W", "error", "-c", _BEGIN + script, str(TESTS)]
    pipe = subprocess.PIPE
    argv += map(str, arguments)
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # also one that is stopped, which would be waited for without end


def run(script: str, *arguments: object) -> str:
    """Run a script to its end; return what it printed. It must end well, and have nothing to complain of."""
    with child(script, *arguments) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert not err, err
    return out


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Fork so many processes that begin their work in the same moment; all must come to a good end."""
    waits, starts = os.pipe()
    children = []
    for number in range(count):
        if (child := os.fork()) == 0:
            os.close(starts)
            os.read(waits, 1)
            try:
                work(number)
                sys.stdout.flush()
                os._exit(0)
            except BaseException:  # noqa: BLE001 (the end of this process, whatever it was)
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    os.close(starts)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * count


def without_privileges() -> None:
    """Give up what root may do beyond others, for good: from here on, the modes of files hold."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing):
        raise OSError(ctypes.get_errno(), "capset")
