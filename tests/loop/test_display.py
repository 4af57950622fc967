"""Results and runs on display, in notebooks and in terminals."""

import ast
import asyncio
import inspect
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel, reflect_sync, watch

NOTEBOOK = Path(__file__).parent.parent.parent / "examples" / "notebook.ipynb"
PASSWORD = "Sommer" + "4711x"
SHORT = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 3})


def run(*drafts, criterion=SHORT):
    texts = iter(drafts)
    return reflect_sync(
        "Say it.",
        generate=lambda prompt: next(texts),
        pattern=ReflectionPattern(quality_criteria=[criterion], max_iterations=len(drafts) - 1),
    )


class Tags(HTMLParser):
    """Collects the tags and the texts of a page, and requires that each tag is closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_result_is_short_in_a_terminal():
    assert repr(run("a b c d", "a b c")) == "<ReflectionResult quality_met: version 2 of 2, score 1.00>"


def test_a_result_in_a_notebook_shows_versions_stop_output_and_changes():
    page = Tags(run("one two three four", "one two three")._repr_html_())
    text = "|".join(page.texts)
    for part in (
        "2 (best)",
        "0.00",
        "1.00",
        "at most 3",
        "all criteria met",
        "(quality_met)",
        "tokens and cost not reported",
    ):
        assert part in text
    assert page.texts[page.texts.index("Output") + 1] == "one two three"
    assert (page.tags.count("del"), page.tags.count("ins")) == (1, 0)


def test_a_result_without_changes_has_no_diff():
    assert "Changes" not in run("one")._repr_html_()


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;\u202e\x1b[2J"


def test_everything_is_escaped_and_secrets_are_withheld():
    named = QualityCriterion(
        "x",
        "<i>hidden</i>",
        evaluator="function",
        evaluator_config={"function": lambda text: (False, HOSTILE)},
    )
    html = run(f"{HOSTILE} password={PASSWORD}", f"{HOSTILE} more", criterion=named)._repr_html_()
    known = {
        *("div", "table", "thead", "tbody", "tr", "th", "td"),
        *("p", "br", "details", "summary", "pre", "ins", "del"),
    }
    assert set(Tags(html).tags) <= known
    assert PASSWORD not in html
    assert not set("\u202e\x1b") & set(html)
    assert "&amp;lt;b" in html


def test_a_long_output_is_cut():
    html = run("x" * 50_000)._repr_html_()
    assert "and 30,000 characters more" in html
    assert len(html) < 30_000


def agent():
    model = ScriptedModel(["one two three <four>", "one two three"])
    return Agent(model, pattern=ReflectionPattern(quality_criteria=[SHORT]), keep=False)


def test_watch_prints_a_line_for_each_version(capsys):
    result = asyncio.run(watch(agent().stream("Say it.")))
    assert result.best_output == "one two three"
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "version 1  0.00  draft  failed: The text has 4 words; at most 3, 1 too many",
        "version 2  1.00  fresh",
    ]


def test_watch_withholds_secrets_and_invisible_characters(capsys):
    def check(text):
        return False, f"password={PASSWORD}\u202e\x1b[2J"

    criterion = QualityCriterion("x", evaluator="function", evaluator_config={"function": check})
    pattern = ReflectionPattern(quality_criteria=[criterion], max_iterations=0)
    asyncio.run(watch(Agent(ScriptedModel(["x"]), pattern=pattern, keep=False).stream("Say it.")))
    err = capsys.readouterr().err
    assert "password=" in err
    assert PASSWORD not in err
    assert not set("\u202e\x1b") & set(err)


def test_what_a_run_raises_is_raised():
    def fail(request):
        raise RuntimeError("It broke.")

    broken = Agent(ScriptedModel(fail), pattern=ReflectionPattern(quality_criteria=[SHORT]), keep=False)
    with pytest.raises(RuntimeError, match="It broke"):
        asyncio.run(watch(broken.stream("Say it.")))


def test_the_notebook_runs_from_top_to_bottom():
    """As a kernel runs it: each cell in the same names, with await at the top level."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names, values = {}, []

    async def cells_in_order():
        for cell in cells:
            if cell["cell_type"] == "code":
                assert (cell["outputs"], cell["execution_count"]) == ([], None)
                values.append(await run_cell("".join(cell["source"]), names))

    asyncio.run(cells_in_order())
    assert "2 (best)" in values[2]._repr_html_()
    assert [score for _, score, _ in values[3]] == [0.0, 1.0]


async def run_cell(source, names):
    """Run a cell; return the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    done = eval(compile(tree, "cell", "exec", flags=flags), names)  # noqa: S307 (our own notebook)
    if inspect.iscoroutine(done):
        await done
    return None if last is None else eval(compile(last, "cell", "eval", flags=flags), names)  # noqa: S307
