"""A job that kills its workers, and the jobs in its company; with more of them in `tests/soak`."""

import json
import subprocess
import sys

import pytest

from support.processes import Processes

INNOCENT = ["a", "b", "c", "d"]


@pytest.fixture(params=["sqlite", "postgres"])
def project(request, tmp_path):
    more = {}
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
        more = {"REDRAFT_DATABASE_URL": url, "REDRAFT_PROJECT": "poison"}
    (tmp_path / "redraft.toml").touch()
    return Processes(tmp_path, REDRAFT_HOME=tmp_path / "home", **more)


def test_a_job_is_poison_only_if_it_kills_a_worker_alone(project):
    """Takes seconds: real workers are killed, and each death has to be noticed."""
    process = subprocess.run(
        [sys.executable, "-m", "support.poisoned", "killer", *INNOCENT],
        env=project.environment,
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(process.stdout) == {
        "killed": 3,
        "states": {"killer": "poisoned"} | dict.fromkeys(INNOCENT, "finished"),
    }, process.stderr
    assert "The job killer runs by itself: its worker died 2 times." in process.stderr
