"""Workflows for GitHub Actions, ours and those that pages show, please their linter."""

import re
import subprocess
from importlib.metadata import files
from pathlib import Path

import pytest

from support.pages import ROOT, Page

ZIZMOR = """\
rules:
  unpinned-uses:
    config:
      policies:
        "*": ref-pin  # pages name versions; hashes are for a project's own tool to keep up to date
"""


def is_workflow(text):
    return all(re.search(rf"^{key}:", text, re.MULTILINE) for key in ("on", "jobs"))


def workflows():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, text in enumerate(filter(is_workflow, Page(page).blocks("yaml")), 1):
            yield f"{page.relative_to(ROOT)}-{number}", text
    for folder in (".github/workflows", "examples"):
        for file in sorted((ROOT / folder).rglob("*.y*ml")):
            if is_workflow(text := file.read_text("utf-8")):
                yield str(file.relative_to(ROOT)), text


WORKFLOWS = dict(workflows())


def lint(folder: Path, text: str):
    """The exit code and what zizmor finds: what GitHub would refuse, and what makes a build unsafe."""
    (folder / "zizmor.yml").write_text(ZIZMOR, "utf-8")
    (folder / "workflow.yaml").write_text(text, "utf-8")
    program = next(file.locate() for file in files("zizmor") if file.name == "zizmor")
    words = [program, "--offline", "--no-progress", "--color=never", "--config=zizmor.yml", "workflow.yaml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("text", WORKFLOWS.values(), ids=WORKFLOWS)
def test_a_workflow_pleases_its_linter(text, tmp_path):
    code, found = lint(tmp_path, text)
    assert code == 0, found


BROKEN = {
    "an unknown event": ("on: pull_request", "on: pul_request"),
    "an unknown key": ("runs-on:", "runs_on:"),
    "a step without an indent": ("      - run: redraft", "- run: redraft"),
    "more permissions than it needs": ("permissions:\n  contents: read\n", ""),
    "a program from the text of a pull request": (
        "redraft eval cases.yaml",
        "redraft eval ${{ github.event.pull_request.title }}",
    ),
}


@pytest.mark.parametrize(("right", "wrong"), BROKEN.values(), ids=BROKEN)
def test_the_linter_refuses(right, wrong, tmp_path):
    text = WORKFLOWS["docs/evaluate.md-1"]
    assert right in text
    code, found = lint(tmp_path, text.replace(right, wrong))
    assert code != 0, found
