"""docs/how-it-works.md: the journal that it shows is that of the run."""

from support.pages import Page


def test_the_journal_of_a_run_is_printed_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Page("docs/how-it-works.md")
    [code] = page.blocks("python")
    _, printed = page.run(code)
    assert printed == page.blocks("text")[1]
