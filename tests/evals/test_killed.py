"""A killed evaluation goes on without paying twice, in real processes."""

import subprocess
import sys
from collections import Counter
from pathlib import Path


def run(folder, calls):
    """Run `killed.py`; return its exit code, what it printed, and its errors."""
    argv = [sys.executable, Path(__file__).with_name("killed.py"), str(folder), str(calls)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_killed_again_and_again_it_pays_for_each_call_once(tmp_path):
    """Six cases of a draft, a revision and two gradings; each process is killed after seven calls."""
    ended = [run(tmp_path, 7) for _ in range(4)]
    assert [code for code, _, _ in ended] == [-9, -9, -9, 0], ended[-1]
    assert ended[-1][1] == "6 1.0 24\n"
    lines = (tmp_path / "calls.log").read_text("utf-8").splitlines()
    calls = Counter(line.split()[0] for line in lines)
    assert calls == {"generation": 6, "revision": 6, "evaluation": 12}
