"""The blocks of docs/runs.md run in order; tests/test_start_page.py follows its commands."""

from support.pages import Page


def test_the_examples_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    page, names, printed = Page("docs/runs.md"), {}, ""
    for code in page.blocks("python"):
        printed += page.run(code, names)[1]
    assert printed == "I would really like some tea.\nbegins: generate\nbegins: evaluate\n"
