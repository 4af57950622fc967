import json
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).with_name("killing.py")
KILLS = 160


def test_runs_that_are_killed_anywhere_repeat_nothing_and_lose_nothing(tmp_path):
    command = [sys.executable, str(DRIVER), str(tmp_path), str(KILLS), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["killed"] > 200
    assert report["runs"] == report["expected_runs"]
    assert report["statuses"] == ["finished"]
    assert report["lengths"] == {"warm": 2, "point": 2, "random": 4, "shared": 3}
