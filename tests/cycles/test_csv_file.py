"""CSV files: numbers are numbers, and what is broken is named by file and line."""

import os

import pytest

from redraft.core.errors import OutputError
from redraft.cycles.csv_file import rows_of


def read(folder, content, **options):
    path = folder / "rates.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return rows_of(path, **options)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("2.50", 2.5),
        ("1e3", 1000.0),
        (" 7 ", 7),
        ("", None),
        ("  ", None),
        ("007", "007"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("NaN", "NaN"),
        ("inf", "inf"),
        ("1e999", "1e999"),
        ("٣", "٣"),
        ("1234567890123456789012", "1234567890123456789012"),
        ("true", "true"),
        ("=cmd()", "=cmd()"),
        ("{{ env.KEY }}", "{{ env.KEY }}"),
        ('"a, ""b""\nc"', 'a, "b"\nc'),
    ],
)
def test_a_cell(tmp_path, cell, value):
    [row] = read(tmp_path, f"name,rate\nx,{cell}\n")
    assert row == {"name": "x", "rate": value}
    assert type(row["rate"]) is type(value)


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ("a,b\r\n1,2\r\n\r\n3,4", {}, [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
        ("\ufeffa;b\n1;2\n", {"delimiter": ";"}, [{"a": 1, "b": 2}]),
        ("a\n1\n2\n3\n", {"last": 2}, [{"a": 2}, {"a": 3}]),
        ("a\n", {}, []),
        (" a , b \n1,2\n", {}, [{"a": 1, "b": 2}]),
    ],
)
def test_rows(tmp_path, content, options, rows):
    assert read(tmp_path, content, **options) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 0: expected a header line"),
        ("\n", "line 1: expected a header line"),
        ("a,,c\n", "line 1: column 2 has no name"),
        ("a,b,a\n", "line 1: two columns are named 'a'"),
        ("a,b\n1,2\n3\n", "line 3: expected 2 cells, got 1"),
        ("a,b\n1,2,3\n", "line 2: expected 2 cells, got 3"),
        ('a,b\n1,"2\n3\n', "line 3: unexpected end of data"),
        ('a,b\n"1"x,2\n', "line 2: ',' expected after '\"'"),
        (b"a,b\n1,\xff\n", "line 2: 'utf-8' codec"),
        ("a\n1\n".encode("utf-16"), "line 1: 'utf-8' codec"),
        ("a,b\n1," + "x" * 200_000 + "\n", "line 2: field larger than field limit"),
        ("a\n" + "1\n" * 100_001, "line 100002: there are more than 100,000 rows"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, content, message):
    with pytest.raises(OutputError, match="^'rates.csv', " + message):
        read(tmp_path, content)


def test_the_last_rows_of_a_long_file(tmp_path):
    assert len(read(tmp_path, "a\n" + "1\n" * 150_000, last=10)) == 10


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing.csv", "pipe", "."):
        with pytest.raises(OutputError, match="There is no file"):
            rows_of(tmp_path / name)
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(200_000_001)
    with pytest.raises(OutputError, match="200,000,001 bytes"):
        rows_of(tmp_path / "huge.csv")
