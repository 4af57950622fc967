"""The notebook of `examples/`, run in a real Jupyter kernel: what `watch` and a result display there."""

import json
import os
import subprocess

import pytest

from support.pages import ROOT

PYTHON = ROOT / "build" / "frameworks" / "jupyter" / "bin" / "python"
KERNEL = ROOT / "tests" / "frameworks" / "kernel.py"


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The cells of code, with what was displayed and what was left in the end."""
    folder = tmp_path_factory.mktemp("kernel")
    done = subprocess.run(
        [PYTHON, KERNEL, ROOT / "examples" / "notebook.ipynb"],
        env={**os.environ, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_watch_updates_one_display_until_the_result_is_there(cells):
    watched = cells[1]
    assert watched["pages"][0] == ""
    assert any("<pre" in page and "Light scatters in" in page for page in watched["pages"][1:-1])
    assert any("<td" in page and "(best)" not in page for page in watched["pages"])  # a judged version
    [output] = watched["outputs"]
    assert output["type"] == "display_data"
    assert output["html"] == watched["pages"][-1]


def test_a_result_that_ends_a_cell_shows_itself(cells):
    [output] = cells[2]["outputs"]
    assert output["type"] == "execute_result"
    assert "2 (best)" in output["html"]
    assert output["html"] == cells[1]["pages"][-1]
    assert output["text"] == "<ReflectionResult quality_met: version 2 of 2, score 1.00>"


def test_a_cell_reads_the_versions_as_data(cells):
    [output] = cells[3]["outputs"]
    assert "(2, 1.0, 'Air scatters blue light most.')" in output["text"]
