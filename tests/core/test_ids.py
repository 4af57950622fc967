"""Ids of runs that nobody keeps."""

import random
import subprocess
import sys

from redraft.core.ids import passing_id

FORKING = """
import os
from redraft.core.ids import passing_id
child = os.fork()
os.write(1, passing_id().encode() + b" ")
if child:
    os.waitpid(child, 0)
"""


def test_no_two_are_alike_whatever_a_user_seeds():
    ids = []
    for _ in range(2):
        random.seed(1)
        ids += [passing_id() for _ in range(100)]
    assert len(set(ids)) == 200
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in ids)


def test_a_fork_goes_its_own_way():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    one, other = done.stdout.split()
    assert one != other
