"""docs/comparison.md quotes the tables of the benchmarks, which are made from recordings."""

from support.pages import Page

SMALL = "offline-small-qwen2.5-coder-0.5b"
ARMS = {
    "a single answer": "greedy",
    "a chat that is told what failed": "chat",
    "the best of three samples": "best-of-3",
    "Redraft": "loop",
}


def measured(name):
    """The row of each arm in a table of the benchmarks: solved after three calls, calls, tokens."""
    text = Page("benchmarks/README.md").text
    table = text.split(f"<!-- {name}: begin -->")[1].split("<!-- ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "x 5" in line]
    return {row[0]: (row[4].split()[0], row[6], row[7]) for row in rows}


def test_the_comparison_quotes_the_benchmark():
    shown = Page("docs/comparison.md").text.split("<!-- measured -->")[1].split("<!-- /measured -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines()[3:]]
    assert len(rows) == len(ARMS)
    for name, *figures in rows:
        assert tuple(figures) == measured(SMALL)[ARMS[name]]
