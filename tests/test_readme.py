"""README.md: its example runs as printed, also killed in the middle, and its figures are those measured."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT, Page, steady

# Stands in for the reader's function. The power fails during the second call if a file asks for that.
SHOP = """
import os
import signal


def write(prompt, feedback=""):
    print("asking the model", flush=True)
    if not feedback:
        return "Our new solar lamp is here, for everyone who likes to read in the tent until late at night!"
    if os.path.exists("fail"):
        os.remove("fail")
        os.kill(os.getpid(), signal.SIGKILL)
    return "A solar lamp for campers: 40 hours of light, 180 g, rainproof."
"""
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@pytest.mark.parametrize("place", [0, 1])
def test_the_example_prints_what_the_page_shows(place, tmp_path):
    page = Page("README.md")
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "offer.py").write_text(page.blocks("python")[0])
    shown = page.blocks("console")[place]
    if "Killed" in shown:
        (tmp_path / "fail").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRAFT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    for command, printed in COMMAND.findall(shown):
        ran = subprocess.run(
            ["bash", "-c", f"{command}; exit $?"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        killed = "Killed\n" if ran.returncode == 128 + 9 else ""
        assert steady(ran.stdout + killed) == steady(printed), ran.stderr


def test_the_readme_fits_on_two_screens():
    assert len(Page("README.md").text.splitlines()) <= 100
    assert len(Page("README.md").blocks("python")[0].replace("\n\n", "\n").splitlines()) <= 8


def cells(page, section, *words):
    """The cells of the only row of a benchmark's table that begins with some words."""
    text = page.text.split(f"<!-- {section}: begin -->")[1].split(f"<!-- {section}: end -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    [row] = [row for row in rows if row[: len(words)] == list(words)]
    return row


def test_the_figures_are_those_of_the_benchmarks():
    table = Page("README.md").text.split("<!-- measured -->")[1].split("<!-- /measured -->")[0]
    rows = [line.replace("**", "") for line in table.splitlines()[3:]]
    killed, questions, styled, drafts, drafts_15, solved, tokens, cpu = rows
    benchmarks, findings = Page("benchmarks/README.md"), Page("benchmarks/findings.md").text

    for row, model in ((drafts, "0.5b"), (drafts_15, "1.5b")):
        section = f"first-drafts-qwen2.5-coder-{model}"
        before, after = (cells(benchmarks, section, "all", arm)[2] for arm in ("withheld", "stated"))
        assert f"| not stated: {before} | {after} |" in row

    plain = benchmarks.text.replace("**", "")
    assert "\n| resampling, up to three times | 0 | 3.0 |\n" in plain
    assert "\n| the loop without lessons, up to three revisions | 13 | 2.4 |\n" in plain
    assert "\n| lessons, one draft | 18 | 1.1 |\n" in plain
    assert "| three samples: 0 of 20; revising until it runs: 13 | 18 of 20 |" in questions
    assert re.search(r"^\| replies of a shop[^|]*\| 0 \| 15 \|", plain, re.MULTILINE)
    assert "| no memory: 0 of 20 | 15 of 20 |" in styled

    arms = [
        cells(benchmarks, "offline-small-qwen2.5-coder-0.5b", arm) for arm in ("greedy", "best-of-3", "loop")
    ]
    one, best, loop = (arm[4].split()[0] for arm in arms)
    assert f"| one answer: {one}; best of three: {best} | {loop} |" in solved
    one, best, loop = (arm[7] for arm in arms)
    assert f"| one answer: {one}; best of three: {best} | {loop} |" in tokens

    measured = cells(benchmarks, "overhead", "A: JSON schema in `evaluate`")
    assert f"| agno: {measured[6]} | {measured[3]} |" in cpu
    assert "400 runs of six 50 ms calls, four workers, one SIGKILLed every 5 s; all 400 finished" in findings
    assert "| 400 of 400 |" in killed


def test_the_commands_exist():
    targets = re.findall(r"^\| `make (\w+)` \|", Page("README.md").text, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets == ["demo", "test"]
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
