"""The walls around a worker that turns into another program."""

import json
import subprocess
import sys

import pytest

from redraft.sandbox import walls

TRIES = """
import json, os, sys
from redraft.sandbox.worker import shut_in

shut_in(os.getppid(), becomes="/bin/echo")
tries = {
    "fork": os.fork,
    "kill": lambda: os.kill(os.getppid(), 0),
    "read": lambda: open("/etc/passwd"),
    "another program": lambda: os.execv("/bin/cat", ["cat", "/etc/passwd"]),
}
refused = []
for name, attempt in tries.items():
    try:
        attempt()
    except PermissionError:
        refused.append(name)
os.execv("/bin/echo", ["echo", json.dumps(refused)])
"""


def walled():
    try:
        walls.check()
    except walls.MissingWallError:
        return False
    return True


@pytest.mark.skipif(not walled(), reason="no walls on this machine")
def test_a_process_that_may_become_a_program_can_do_nothing_else():
    refused = subprocess.check_output([sys.executable, "-c", TRIES], text=True, timeout=30)
    assert json.loads(refused) == ["fork", "kill", "read", "another program"]
