"""Run a program of the tests that kills its own processes, and read its report."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent


def report_of(program, *arguments, timeout=120):
    """Run `tests/PROGRAM`; return the JSON document that it prints."""
    command = [sys.executable, str(TESTS / program), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
