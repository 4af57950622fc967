import json
import os
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).with_name("killing.py")


def killed(folder, kills, database=""):
    command = [sys.executable, str(DRIVER), str(folder), str(kills), "1"]
    environment = {**os.environ, "KILLING_DATABASE": database}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["killed"] > kills + 40
    assert report["runs"] == report["expected_runs"]
    assert report["statuses"] == ["finished"]
    assert report["lengths"] == {"warm": 2, "point": 2, "random": 4, "shared": 3}


def test_runs_that_are_killed_anywhere_repeat_nothing_and_lose_nothing(tmp_path):
    killed(tmp_path, 160)


def test_killed_runs_in_postgresql_repeat_nothing_and_lose_nothing(tmp_path, postgres):
    killed(tmp_path, 20, postgres.url)
