"""Other processes for the tests of stores, and how to lack what a machine has."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
_BEGIN = "import asyncio, os, sys; sys.path.insert(0, sys.argv[1]); from redraft.stores.base import Record; "
_BEGIN += "from redraft.stores.sqlite import SqliteStore; from redraft.core.errors import StoreError\n"


def child(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a script in a process of its own, in which any warning is an error; `sys.argv[2:]` is given."""
    argv = [sys.executable, "-W", "error", "-X", "dev", "-c", _BEGIN + script, str(TESTS)]
    pipe = subprocess.PIPE
    return subprocess.Popen([*argv, *map(str, arguments)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def run(script: str, *arguments: object) -> str:
    """Run a script to its end; return what it printed. It must end well, and have nothing to complain of."""
    with child(script, *arguments) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert not err, err
    return out


def without_privileges() -> None:
    """Give up what root may do beyond others, for good: from here on, the modes of files hold."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing):
        raise OSError(ctypes.get_errno(), "capset")
