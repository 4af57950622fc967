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


def test_watch_prints_a_line_for_each_version(cells):
    outputs = cells[1]["outputs"]
    assert {output["type"] for output in outputs} == {"stream"}
    lines = "".join(output["text"] for output in outputs).splitlines()
    assert [line.split()[:3] for line in lines] == [["version", "1", "0.00"], ["version", "2", "1.00"]]


def test_a_result_that_ends_a_cell_shows_itself(cells):
    [output] = cells[2]["outputs"]
    assert output["type"] == "execute_result"
    assert "2 (best)" in output["html"]
    assert output["text"] == "<ReflectionResult quality_met: version 2 of 2, score 1.00>"


def test_a_cell_reads_the_versions_as_data(cells):
    [output] = cells[3]["outputs"]
    assert "(2, 1.0, 'Air scatters blue light most.')" in output["text"]
