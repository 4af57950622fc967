"""The sets of the README on a provider's model: priced first, within a limit, and never paid for twice."""

import sys
from dataclasses import replace

import first_drafts
import offline_model
import pytest
from _measure import _with_section
from _rows import rows_in

from support.counting_server import provider

MODEL = "openai-chat:gpt-4o-mini"


@pytest.fixture
def server(monkeypatch):
    with provider(monkeypatch) as server:
        yield server


@pytest.fixture
def measure(monkeypatch, tmp_path, capsys):
    """Call the script as on the command line; return why it ended, and what it printed."""

    for module in (offline_model, first_drafts):  # hashing the sources takes seconds
        monkeypatch.setattr(module, "code_version", lambda *_: "1")

    def call(*words, model=MODEL):
        command = ["offline_model.py", "--model", model, "--out", str(tmp_path / "rows.jsonl"), *words]
        monkeypatch.setattr(sys, "argv", command)
        try:
            offline_model.main()
        except SystemExit as ended:
            return str(ended), capsys.readouterr().out
        return "", capsys.readouterr().out

    return call


FEW = ("--tasks", "small", "--limit", "1", "--seeds", "1")


def test_the_price_comes_first_and_nothing_is_spent_without_leave(server, measure, tmp_path):
    why, printed = measure("--data", str(tmp_path))
    assert "Repeat the command with --yes, or with a limit such as --budget-usd 2." in why
    assert "SKIPPED HumanEval" in printed
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["| set", "| ---", "| small", "| first-drafts", "| all"]
    # By the tokens of the recording, at 0.15 and 0.60 dollars for a million.
    assert rows[2][1:5] == ["279", "37,805", "18,948", "$0.0170"]
    assert "as recorded with local:qwen2.5-coder-0.5b" in printed
    assert (server.usage, list(tmp_path.iterdir())) == ([], [])


def test_what_was_measured_is_not_paid_for_twice(server, measure, tmp_path):
    server.wanted = lambda: 5
    why, printed = measure(*FEW, "--yes")
    assert why == ""
    assert "| loop | 1 x 1 |" in printed
    calls = len(server.usage)
    rows = rows_in(tmp_path / "rows.jsonl")
    assert {(row["arm"], row["model"]) for row in rows} == {
        (arm, MODEL) for arm in ("loop", "greedy", "best-of-3", "chat")
    }
    (tmp_path / "rows.jsonl").unlink()  # the replies are enough
    assert measure(*FEW, "--yes")[0] == ""
    assert len(server.usage) == calls
    assert len(rows_in(tmp_path / "rows.jsonl")) == len(rows)


def test_a_limit_holds_over_several_calls(server, measure, tmp_path):
    server.wanted = lambda: 5
    usd = 0.0003  # a call reserves the price of 400 output tokens, $0.00024
    why, _ = measure(*FEW, "--budget-usd", str(usd))
    assert "of $0.0003 were spent (--budget-usd)" in why
    assert 0 < server.usd <= usd
    calls = len(server.usage)
    again, _ = measure(*FEW, "--budget-usd", str(usd))
    assert "were spent (--budget-usd)" in again
    assert len(server.usage) == calls, "what is stored counts"
    assert measure(*FEW, "--budget-usd", "1")[0] == ""
    assert len({row["key"] for row in rows_in(tmp_path / "rows.replies.jsonl")}) == len(server.usage)


def test_an_unknown_price_is_unknown_and_has_no_limit(server, measure):
    own = "openai-chat:my-own"
    why, printed = measure(*FEW, model=own)
    assert "No model was asked" in why
    assert "| unknown |" in printed
    why, _ = measure(*FEW, "--budget-usd", "1", model=own)
    assert "The price of 'openai-chat:my-own' is not known" in why
    assert server.usage == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [(("--budget-usd", "0"), 2), (("--tuning",), 2)],
)
def test_options_that_cannot_work_are_refused(server, measure, words, expected):
    assert measure(*FEW, *words)[0] == str(expected)
    assert server.usage == []


def test_first_drafts_are_measured_too(server, measure, monkeypatch, tmp_path):
    errands = first_drafts.FAMILIES["errands"]
    monkeypatch.setitem(first_drafts.FAMILIES, "errands", replace(errands, inputs=errands.inputs[:2]))
    few = replace(first_drafts.BENCHMARK, families=("errands",), arms=("withheld", "stated"))
    monkeypatch.setattr(first_drafts, "BENCHMARK", few)
    server.wanted = lambda: 5
    why, printed = measure("--tasks", "first-drafts", "--yes")
    assert why == ""
    assert "| errands | stated |" in printed
    assert len(server.usage) == 4
    assert len(rows_in(tmp_path / "rows.first-drafts.jsonl")) == 4
    assert measure("--tasks", "first-drafts", "--yes")[0] == ""
    assert len(server.usage) == 4


def test_a_new_model_gets_a_section_after_the_last_of_its_set():
    one, two = (f"<!-- x-{name}: begin -->\n1\n<!-- x-{name}: end -->\n" for name in ("one", "two"))
    readme = f"a\n{one}b\n"
    added = _with_section(readme, "x-two", "1", "x-")
    assert added == f"a\n{one}\n{two}b\n"
    assert _with_section(added, "x-two", "3", "x-") == f"a\n{one}\n{two.replace('1', '3')}b\n"
    with pytest.raises(SystemExit, match="has no section 'y-one'"):
        _with_section(readme, "y-one", "1", "y-")
