"""A killed evaluation or optimization goes on without paying twice, in real processes."""

import subprocess
import sys
from collections import Counter
from pathlib import Path


def run(what, folder, calls):
    """Run `killed.py`; return its exit code, what it printed, and its errors."""
    argv = [sys.executable, Path(__file__).with_name("killed.py"), what, str(folder), str(calls)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_killed_again_and_again_it_pays_for_each_call_once(tmp_path):
    """Six cases of a draft, a revision and two gradings; each process is killed after seven calls."""
    ended = [run("evaluate", tmp_path, 7) for _ in range(4)]
    assert [code for code, _, _ in ended] == [-9, -9, -9, 0], ended[-1]
    assert ended[-1][1] == "6 1.0 24\n"
    lines = (tmp_path / "calls.log").read_text("utf-8").splitlines()
    calls = Counter(line.split()[0] for line in lines)
    assert calls == {"generation": 6, "revision": 6, "evaluation": 12}


def test_a_killed_optimization_goes_on_and_pays_for_each_call_once(tmp_path):
    """Two proposals are refused, the third is tested; it is killed in the search and in the test."""
    ended = [run("optimize", tmp_path, 11) for _ in range(5)]
    assert [code for code, _, _ in ended] == [-9, -9, -9, -9, 0], ended[-1]
    calls = (tmp_path / "calls.log").read_text("utf-8").splitlines()
    assert len(set(calls)) == len(calls)
    # The same as without an interruption: what is accepted, and what was paid for.
    whole = tmp_path / "whole"
    whole.mkdir()
    assert run("optimize", whole, 0) == (0, ended[-1][1], "")
    assert (whole / "calls.log").read_text("utf-8").splitlines() == calls
