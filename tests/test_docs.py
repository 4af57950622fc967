"""The pages of `docs/` that have no test file of their own, and CONTRIBUTING's map."""

import asyncio
import inspect
import re
import tomllib
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from typing import get_args

import pytest

from redraft import ScriptedModel
from redraft.main import COMMANDS
from redraft.protocols import ModelRole
from redraft.settings import TABLES, Settings
from redraft.terminal.exits import ExitCode
from support.pages import ROOT, Page, steady

PAGES = [
    "CONTRIBUTING.md",
    "docs/agents.md",
    "docs/typed-outputs.md",
    "docs/data.md",
    "docs/testing.md",
    "docs/versions.md",
]
EVERY_PAGE = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "examples/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
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
    def model_of(model, _settings=None, **_missing):
        return ScriptedModel(answer) if isinstance(model, str | list) or model is None else model

    for module in ("redraft.loop.agent", "redraft.loop.pattern", "redraft.loop.verbs"):
        monkeypatch.setattr(f"{module}.model_of", model_of)


@pytest.mark.usefixtures("_every_model_is_scripted")
@pytest.mark.parametrize("path", PAGES)
def test_the_examples_of_a_page_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some store their runs
    page, names = Page(path), {}
    for code in page.blocks("python"):
        page.run(code, names)
        if "agent" in names:
            assert names["result"].success
        if inspect.iscoroutinefunction(getattr(names.get("answer"), "__call__", None)):  # noqa: B004 (an instance's)
            assert "[1]" in asyncio.run(names["answer"]("Why is the sky blue?"))


def test_the_model_of_an_agent_takes_the_settings_that_its_page_shows(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    page = Page("docs/agents.md")
    code, _ = page.blocks("python")[0].split("result = ")
    page.run(code.replace("anthropic:claude-haiku-4-5", "openai:gpt-5"))  # whose client is not installed here


def test_the_page_on_typed_outputs_prints_the_text_below_its_first_example():
    page = Page("docs/typed-outputs.md")
    _, printed = page.run(page.blocks("python")[0])
    assert printed == page.blocks("text")[0]


@pytest.mark.parametrize("time", ["0.0 s", "12.3 s", "0.0 s ago", "950 ms", "3 min ago", "just now"])
def test_no_time_is_compared(time):
    """A machine under load takes longer."""
    assert steady(f"Used: 0 tokens, {time}.") == "Used: 0 tokens, TIME."


def settings_table() -> str:
    """The table of all settings as Markdown."""
    rows = ["| setting | default | |", "|---|---|---|"]
    for setting in fields(Settings):
        name = f"`[{setting.name}]`" if setting.name in TABLES else f"`{setting.name}`"
        default = f"`{setting.default}`" if isinstance(setting.default, str) else ""
        rows.append(f"| {name} | {default} | {setting.metadata['description']} |")
    return "\n".join(rows)


def test_the_settings_table_is_complete():
    shown = Page("docs/commands.md").text.split("<!-- settings -->\n")[1].split("<!-- /settings -->")[0]
    assert shown.strip() == settings_table()


def test_the_variable_of_a_setting_is_its_name_as_the_page_says():
    variables = {setting.name: setting.metadata["variable"] for setting in fields(Settings)}
    assert variables == {name: None if name in TABLES else f"REDRAFT_{name.upper()}" for name in variables}


def test_the_commands_page_names_every_command():
    text = Page("docs/commands.md").text
    assert [name for name in COMMANDS if not re.search(rf"\b{name}\b", text)] == []


def test_the_testing_page_lists_every_role_of_a_request():
    listed = Page("docs/testing.md").text.split("## What a request is for")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == sorted(get_args(ModelRole))


def test_the_commands_page_lists_every_exit_code():
    rows = re.findall(r"^\| (\d+) \|", Page("docs/commands.md").text, re.MULTILINE)
    assert [int(row) for row in rows] == sorted(ExitCode)


def test_the_map_in_contributing_matches_the_import_contract():
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", Page("CONTRIBUTING.md").text, re.MULTILINE)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = config["tool"]["importlinter"]["contracts"][0]
    layers = [layer.split(" | ") for layer in contract["layers"][1:]]  # the first is `python -m redraft`
    floors = [[name for _, name in group] for _, group in groupby(rows, key=itemgetter(0))]
    assert len(floors) > 10
    assert floors == layers[: len(floors)]


def test_the_map_in_contributing_names_modules_that_exist():
    rows = re.findall(
        r"^\|.*?\| (?:`(\w+)`|the kernel) \|.*\|(.*)\|$", Page("CONTRIBUTING.md").text, re.MULTILINE
    )
    named = [
        ROOT / "src" / "redraft" / folder / module
        for folder, cell in rows
        for module in re.findall(r"`(\w+\.py)`", cell)
    ]
    assert len(named) > 20
    assert [str(path) for path in named if not path.exists()] == []


def test_changelog_entries_are_short():
    entries = re.findall(r"^- (.*(?:\n  .*)*)", Page("CHANGELOG.md").text, re.MULTILINE)
    assert [entry for entry in entries if len(entry.split()) > 25] == []


def test_the_walk_in_contributing_names_modules_that_exist():
    walk = Page("CONTRIBUTING.md").text.split("## Follow one call")[1].split("## The map")[0]
    modules = re.findall(r"`([\w/]+\.py)`", walk)
    assert len(modules) > 8
    assert [name for name in modules if not (ROOT / "src" / "redraft" / name).exists()] == []


def test_contributing_names_what_the_source_has():
    text = Page("CONTRIBUTING.md").text.split("## Follow one call")[1].split("## Conventions")[0]
    names = {name for name in re.findall(r"`([\w.]+)(?:\([^`]*\))?`", text) if not name.endswith(".py")}
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "redraft").rglob("*.py"))
    words = {"breakpoint", *re.findall(r"\w+", source)}
    assert len(names) > 40
    assert [name for name in names if not words.issuperset(re.findall(r"\w+", name))] == []


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_links_lead_to_files(path):
    assert [link for link in Page(path).links() if not link.exists()] == []


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_links_lead_to_headings(path):
    assert Page(path).broken_anchors() == []


def test_a_link_to_a_heading_that_does_not_exist_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Why `a.b`?\n\n[here](#why-ab) and [there](other.md#gone)\n")
    (tmp_path / "other.md").write_text("# Here\n\n```sh\n# gone\n```\n")
    assert Page(page).broken_anchors() == ["gone"]


def test_the_contents_list_every_page():
    linked = {link.resolve() for link in Page("docs/README.md").links()}
    assert {path.resolve() for path in ROOT.glob("docs/*.md")} - linked == {ROOT / "docs" / "README.md"}


@pytest.mark.parametrize("path", [path for path in EVERY_PAGE if path.startswith("docs/")])
def test_pages_end_with_a_link(path):
    last = Page(path).text.rstrip().rpartition("\n\n")[2]
    assert "](" in last
