"""Tables in narrow terminals."""

import pytest
from rich.console import Console
from rich.text import Text

from redraft.terminal.tables import NARROW, plain_table, width_of

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


def test_brackets_are_no_markup():
    assert lines_of(plain_table({"name": ["[bold]x[/bold]"]}))[1].strip() == "[bold]x[/bold]"
