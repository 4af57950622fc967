from datetime import UTC, datetime, timedelta

import pytest

from cli_commands import document, redraft
from kept import GONE, record
from redraft.cli.run_rows import row_of, run_rows, when
from redraft.cli.sparkline import sparkline
from versions import history

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def test_where_nothing_is_kept_it_says_where_it_looked_and_what_to_run(project):
    result = redraft("runs")
    assert result.exit_code == 0
    told = " ".join(result.stdout.split())
    assert f"No run is kept in {project}/.redraft/redraft.db yet." in told.replace("/ ", "/")
    assert "try `redraft demo`" in told
    assert not (project / ".redraft").exists()
    assert document(redraft("runs", "--json")) == {
        "schema_version": 1,
        "database": f"{project}/.redraft/redraft.db",
        "runs": [],
    }
    assert "No run that is kept in" in redraft("runs", "--status", "failed").stdout


def test_nothing_is_kept_where_the_settings_say_so(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "")
    result = redraft("runs")
    assert result.exit_code == 2
    assert "REDRAFT_HOME" in result.stderr


def test_the_newest_comes_first(revised):
    revised("aab", "aaa")
    revised("b", "bb", "bbb")
    result = redraft("runs")
    assert result.exit_code == 0
    head, second, first = result.stdout.splitlines()
    assert head.split() == ["run", "task", "stopped", "n", "score"]
    assert first.split()[1:] == [
        "Write",
        "three",
        "letters",
        "a.",
        "quality_met",
        "3",
        "0.00",
        ">",
        "1.00",
        "▁▁█",
    ]
    assert second.split()[5:7] == ["plateau", "3"]
    found = document(redraft("runs", "--json"))["runs"]
    assert [row["reason"] for row in found] == ["plateau", "quality_met"]
    assert (found[1]["first_score"], found[1]["best_score"], found[1]["satisfactory"]) == (0.0, 1.0, True)
    assert found[1]["name"] == "redraft revise"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--status", "finished"], 2),
        (["--status", "killed"], 0),
        (["--reason", "quality_met"], 1),
        (["--name", "redraft revise"], 1),
        (["--name", "redraft check"], 1),
        (["--name", "me"], 0),
        (["--limit", "1"], 1),
        (["--inner"], 2),
    ],
)
def test_filters(revised, words, count):
    revised("aaa")
    redraft("check", "d.txt", "-c", "c.yaml")
    assert len(document(redraft("runs", "--json", *words))["runs"]) == count


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--status", "done"], "--status 'done' is none; "),
        (["--reason", "plateu"], "did you mean 'plateau'?"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_a_filter_that_fits_nothing_is_an_error(project, words, says):
    result = redraft("runs", *words)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_database_that_is_none_is_named(project):
    (project / ".redraft").mkdir()
    (project / ".redraft" / "redraft.db").write_text("this is no database " * 100)
    result = redraft("runs")
    assert result.exit_code == 2
    assert "redraft.db" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("width", "columns"),
    [(80, ["run", "task", "stopped", "n", "score", ""]),
     (120, ["run", "when", "who", "task", "stopped", "n", "score", "", "cost", "s"])],
)  # fmt: skip
def test_a_wide_terminal_has_room_for_more(width, columns):
    long = record(history(0.1, 0.5), "semantic_stability", process=GONE)
    table = run_rows([row_of(long)], width)
    assert [column.header for column in table.columns] == columns
    widths = [max(len(str(cell)) for cell in (column.header, *column.cells)) for column in table.columns]
    assert sum(widths) + 2 * (len(columns) - 1) <= width


@pytest.mark.parametrize(
    ("name", "columns"),
    [("w" * 10, ["run", "task", "stopped", "n", "score"]), ("w" * 13, ["run", "task", "stopped", "score"])],
)
def test_what_a_narrow_terminal_has_no_room_for_is_left_out(name, columns):
    inner = record(history(0.1, 0.5), "semantic_stability", run_id=f"20261122-1200-{name}.12345")
    table = run_rows([row_of(inner)], 80)
    assert [column.header for column in table.columns] == columns


@pytest.mark.parametrize(
    ("fields", "shown"),
    [({}, "running"), ({"process": GONE}, "killed"), ({"status": "cancelled"}, "cancelled")],
)
def test_a_run_without_a_reason_shows_how_it_stands(fields, shown):
    table = run_rows([row_of(record(history(0.1), **fields))], 80)
    assert [str(cell) for cell in table.columns[2].cells] == [shown]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3, "just now"), (61, "1 min ago"), (7200, "2 h ago"), (90_000, "1 d ago"), (9 * 86400, "2026-11-13")],
)
def test_times_are_told_as_people_do(monkeypatch, seconds, shown):
    monkeypatch.setenv("TZ", "UTC")
    assert when(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("scores", "longest", "line"),
    [
        ([0, 0.5, 1], None, "▁▅█"),
        ([None, 0.99], None, "·█"),
        ([-1, 2], None, "▁█"),
        ([0, 0.2, 0.4, 1], 3, "▁▄█"),
        ([], None, ""),
    ],
)
def test_scores_become_bars(scores, longest, line):
    assert sparkline(scores, longest) == line
