"""Tables in narrow terminals."""

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from redraft.terminal.console import CalmConsole, between_words
from redraft.terminal.tables import PlainTable

RUN = "20261128-184422-495a51c2-of-an-agent-with-a-long-name"
LONG = "a-name-that-is-longer-than-a-line-" * 4
PRICE = "価格" * 30


class Stream(StringIO):
    encoding = "utf-8"


class Ascii(StringIO):
    encoding = "ascii"


def lines_of(table, width=80, stream=Stream):
    console = Console(width=width, file=stream(), color_system=None)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def rows(*names, **cells):
    others = {"status": Text("finished", "green"), "cycle": "12", "spent": "$0.0100, 1,234 tokens", **cells}
    return [{"name": name, **others} for name in names]


@pytest.mark.parametrize("wrap", [(), ("name",)], ids=["cut", "broken"])
@pytest.mark.parametrize("longest", ["name", "spent"])
def test_one_long_cell_narrows_its_own_column_only(wrap, longest):
    cells = rows("short", "other", began="11-28 10:00:00")
    cells[1][longest] = LONG
    lines = lines_of(PlainTable(cells, right=("cycle",), wrap=wrap))
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split()[:2] == ["short", "finished"]
    assert lines[2].split()[2] == "12"
    assert "11-28 10:00:00" in lines[2]
    if wrap and longest == "name":
        assert "".join(line[: line.find("  ")] if "  " in line else line for line in lines[2:]) == LONG


TWO = rows("writer", "reader", trust="-", task="Say why the sky is blue, and why not in the evening.")


@pytest.mark.parametrize(
    ("width", "head", "below"),
    [
        (200, "name status cycle spent trust task", ""),
        (80, "name status cycle spent trust task", ""),
        (66, "name status cycle spent task", ""),
        (59, "name status cycle task", "spent"),
        (32, "name status task", "spent, cycle"),
        (28, "name status task", "spent, cycle"),
    ],
)
def test_empty_columns_are_dropped_first_then_optional_columns(width, head, below):
    lines = lines_of(PlainTable(TWO, drop=("spent", "cycle"), fill="task"), width)
    assert lines[0].split() == head.split()
    assert all(len(line) <= width for line in lines)
    said = f"Left out in {width} columns: {below}; --json has all." if below else ""
    assert " ".join(lines[3:]) == said


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("task", [TWO[0]["task"], PRICE, "two\nlines " * 20])
def test_one_column_takes_the_room_that_is_left(task, width):
    """Up to the last character of the line: a wide one may leave one unused."""
    [head, row] = lines_of(PlainTable([{"run": RUN[:24], "task": task}], fill="task"), width)
    assert head == f"run{' ' * 23}task"
    assert row.startswith(f"{RUN[:24]}  {task[:3].split()[0]}")
    assert row.endswith("…") is (width < 80 or task is not TWO[0]["task"])
    assert width - 1 <= cell_len(row) <= width or not row.endswith("…")


def test_a_column_that_takes_the_room_leaves_before_it_says_nothing():
    table = PlainTable(TWO, drop=("task",), fill="task", shortest=20)
    assert lines_of(table, 60)[0].split() == ["name", "status", "cycle", "spent"]


def test_a_terminal_without_utf_8_gets_ascii_only():
    [_, row] = lines_of(PlainTable([{"task": LONG}], fill="task"), 40, Ascii)
    assert row == LONG[:40]


@pytest.mark.parametrize("cell", ["[bold]x[/bold]", Text("[bold]x[/bold]")])
def test_brackets_are_no_markup(cell):
    assert lines_of(PlainTable([{"name": cell}]))[1].strip() == "[bold]x[/bold]"


def test_control_characters_are_visible():
    assert lines_of(PlainTable([{"name": "a\x1b[31mb"}]))[1] == "a\\x1b[31mb"


def test_no_rows_are_no_table():
    assert lines_of(PlainTable([])) == [""]


def shown(table, *, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    console = CalmConsole()
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def test_a_pipe_gets_every_column_whole(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    cells = rows(LONG, "b", task=PRICE)
    CalmConsole().show(PlainTable(cells, wrap=("name",), drop=("spent", "cycle"), fill="task"))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "status", "cycle", "spent", "task"]
    assert first == f"{LONG}  finished  12     $0.0100, 1,234 tokens  {PRICE}"
    assert (second[0], second.split()[-1]) == ("b", PRICE)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_only_the_longest_columns_are_cut(width, monkeypatch):
    """A mark of one character stays."""
    row = {"version": "* v10 =", "made": "12 min ago", "score": "0.75", "by run": RUN * 2}
    head, row = shown(PlainTable([row]), width=width, monkeypatch=monkeypatch)
    assert head.split() == ["version", "made", "score", "by", "run"]
    assert row.startswith("* v10 =  12 min ago  0.75   20261128")
    assert row.rstrip().endswith("…") is (width < 200)
    assert len(row) <= width


def test_two_long_columns_share_the_remaining_room(monkeypatch):
    table = PlainTable([{"state": "finished", "name": "n" * 50, "run": "r" * 60}])
    _, row = shown(table, width=80, monkeypatch=monkeypatch)
    state, name, run = row.split()
    assert (state, len(row.rstrip()) <= 80) == ("finished", True)
    assert abs(len(name) - len(run)) <= 2


def test_wide_characters_count_twice(monkeypatch):
    _, row = shown(PlainTable([{"name": PRICE, "mark": "*"}]), width=40, monkeypatch=monkeypatch)
    assert row.rstrip().endswith("*")


def test_columns_that_wrap_leave_short_ones_whole(monkeypatch):
    table = PlainTable([{"state": "finished", "why": "the reason is long " * 9}], wrap=("why",))
    assert shown(table, width=40, monkeypatch=monkeypatch)[1].startswith("finished  the reason")


def test_messages_break_between_words():
    text = "Written: /a/path/that/is/longer/than/the/terminal and then a few words more"
    assert between_words(text, 20).splitlines() == [
        "Written:",
        "/a/path/that/is/longer/than/the/terminal",
        "and then a few words",
        "more",
    ]
    assert between_words("  an indented line", 12) == "  an\n  indented\n  line"
