"""Tables in narrow terminals."""

import pytest
from rich.console import Console
from rich.text import Text

from redraft.terminal.console import CalmConsole, between_words
from redraft.terminal.tables import NARROW, plain_table, width_of

RUN = "20261128-184422-495a51c2-of-an-agent-with-a-long-name"
LONG = "a-name-that-is-longer-than-a-line-" * 4


def lines_of(table, width=80):
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def columns(*names):
    return {
        "name": list(names),
        "status": [Text("finished", "green") for _ in names],
        "cycle": ["12" for _ in names],
        "began": ["11-28 10:00:00" for _ in names],
        "spent": ["$0.0100, 1,234 tokens" for _ in names],
    }


@pytest.mark.parametrize("wrap", [(), ("name",)], ids=["cut", "broken"])
@pytest.mark.parametrize("longest", ["name", "spent"])
def test_one_long_cell_narrows_its_own_column_only(wrap, longest):
    cells = columns("short", "other")
    cells[longest][1] = LONG
    found = lines_of(plain_table(cells, right=("cycle",), wrap=wrap))
    assert all(len(line) <= 80 for line in found)
    assert found[1].split()[:2] == ["short", "finished"]
    assert found[2].split()[2:5] == ["12", "11-28", "10:00:00"]
    if wrap and longest == "name":
        assert "".join(line[: line.find("  ")] if "  " in line else line for line in found[2:]) == LONG


def test_the_width_of_named_columns_is_what_they_can_do_with():
    assert width_of({"name": [LONG], "n": ["1"]}) == len(LONG) + 2 + 3
    assert width_of({"name": [LONG], "n": ["1"]}, "name") == NARROW + 2 + 3


@pytest.mark.parametrize("cell", ["日本語", Text("日本語")])
def test_a_wide_character_takes_two(cell):
    assert width_of({"n": [cell]}) == 6 + 2


def test_brackets_are_no_markup():
    assert lines_of(plain_table({"name": ["[bold]x[/bold]"]}))[1].strip() == "[bold]x[/bold]"


def shown(columns, *, width, wrap=(), monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    console = CalmConsole()
    with console.capture() as captured:
        console.print(plain_table(columns, wrap=wrap))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_only_the_longest_columns_are_cut(width, monkeypatch):
    """A mark of one character stays."""
    columns = {"version": ["* v10 ="], "made": ["12 min ago"], "score": ["0.75"], "by run": [RUN * 2]}
    head, row = shown(columns, width=width, monkeypatch=monkeypatch)
    assert head.split() == ["version", "made", "score", "by", "run"]
    assert row.startswith("* v10 =  12 min ago  0.75   20261128")
    assert row.rstrip().endswith("…") is (width < 200)
    assert len(row) <= width


def test_two_long_columns_share_what_is_left(monkeypatch):
    columns = {"state": ["finished"], "name": ["n" * 50], "run": ["r" * 60]}
    _, row = shown(columns, width=80, monkeypatch=monkeypatch)
    state, name, run = row.split()
    assert (state, len(row.rstrip()) <= 80) == ("finished", True)
    assert abs(len(name) - len(run)) <= 2


def test_wide_characters_count_twice(monkeypatch):
    _, row = shown({"name": ["価格" * 30], "mark": ["*"]}, width=40, monkeypatch=monkeypatch)
    assert row.rstrip().endswith("*")


def test_columns_that_wrap_leave_short_ones_whole(monkeypatch):
    columns = {"state": ["finished"], "why": ["the reason is long " * 9]}
    lines = shown(columns, width=40, wrap=("why",), monkeypatch=monkeypatch)
    assert lines[1].startswith("finished  the reason")


def test_messages_break_between_words():
    text = "Written: /a/path/that/is/longer/than/the/terminal and then a few words more"
    assert between_words(text, 20).splitlines() == [
        "Written:",
        "/a/path/that/is/longer/than/the/terminal",
        "and then a few words",
        "more",
    ]
    assert between_words("  an indented line", 12) == "  an\n  indented\n  line"
