"""Every example of the documentation runs."""

import asyncio
import contextlib
import inspect
import io
import re
import tomllib
from pathlib import Path

import pytest

from redraft import CycleAgent, ScriptedModel
from redraft.settings import settings_table
from redraft.workflow import Workflow
from support.commands import redraft

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2]) for match in FENCE.finditer(README)]
PYTHON = [code for language, code in BLOCKS if language == "python"]
MEDIAN = '''
```python
def median(numbers):
    """Return the median: median([3, 1, 2]) is 2."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
```
'''


def answer(request):
    """Answer as a model that writes a good median, and likes it."""
    if request.role != "evaluation":
        return MEDIAN
    names = request.schema["properties"]["criteria"]["properties"]
    scores = {name: {"reason": "so", "score": 0.9} for name in names}
    return {"criteria": scores, "issues": [], "suggestions": [], "confidence": 0.9}


@pytest.fixture
def _every_model_is_scripted(monkeypatch):
    for module in ("redraft.loop.agent", "redraft.loop.pattern"):
        monkeypatch.setattr(f"{module}.model_of", lambda model, _settings=None, **_missing: model_of(model))


def model_of(model):
    return ScriptedModel(answer) if isinstance(model, str) or model is None else model


def run(code):
    """Run a block of the documentation; return its names and what it printed."""
    names = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102 (our own documentation)
    return names, printed.getvalue()


def test_the_notes_are_listed_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    run(next(code for code in PYTHON if "Ensemble(" in code))
    promised = next(text for _, text in BLOCKS if text.startswith("$ redraft notes"))
    assert redraft("notes").stdout.splitlines() == promised.splitlines()[1:]


@pytest.mark.usefixtures("_every_model_is_scripted")
@pytest.mark.parametrize("code", PYTHON, ids=[code.strip().splitlines()[-1][:40] for code in PYTHON])
def test_examples_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some keep their runs
    names, _ = run(code)
    if "agent" in names:
        assert names["result"].success
    if inspect.iscoroutinefunction(getattr(names.get("answer"), "__call__", None)):  # noqa: B004 (an instance's)
        assert "[1]" in asyncio.run(names["answer"]("Why is the sky blue?"))


def test_the_first_example_prints_what_the_page_says():
    _, printed = run(PYTHON[0])
    promised = next(text for language, text in BLOCKS if language == "text")
    assert printed == promised


def test_the_workflow_runs():
    file = next(text for language, text in BLOCKS if language == "yaml" and text.startswith("name: person"))
    model = ScriptedModel(['{"name": "Ada"}', '{"name": "Ada", "age": "36"}'])
    workflow = Workflow.from_text(f"model: any\n{file}", models={"any": model}, keep=False)
    assert workflow.run_sync({"text": "Ada, 36"}).state["message"] == "Hello Ada"


def test_the_agent_in_cycles_runs(tmp_path):
    file = next(
        text for language, text in BLOCKS if language == "yaml" and text.startswith("name: thermostat")
    )
    (tmp_path / "readings.csv").write_text("degrees\n22\n19\n")
    (tmp_path / "thermostat.yaml").write_text(file)
    model = ScriptedModel([{"newPatterns": [{"description": "It is cold at night.", "confidence": 0.6}]}])
    levels = []

    def heat(level):
        levels.append(level)

    path = tmp_path / "thermostat.yaml"
    agent = CycleAgent.from_file(path, functions={"heat": heat}, models={"fast": model})
    result = agent.run_cycle_sync()
    assert (result.status, levels) == ("finished", [2])
    assert [one["description"] for one in agent.memory.of("patterns")] == ["It is cold at night."]


def test_the_settings_table_is_the_one_of_the_code():
    shown = README.split("<!-- settings -->\n")[1].split("<!-- /settings -->")[0]
    assert shown.strip() == settings_table()


def test_the_floors_are_those_that_the_linter_holds():
    rows = re.findall(r"^\| \d \| (.+?) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    layers = [layer.split(" | ") for layer in contract["layers"][1:]]  # the first is `python -m redraft`
    *above, last = [re.findall(r"`(\w+)`", row) for row in rows]
    assert above == layers[: len(above)]
    assert [[name] for name in last] == layers[len(above) : len(above) + len(last)]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target
