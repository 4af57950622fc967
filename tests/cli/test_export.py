import pytest

from cli_commands import document, redraft


def test_a_page_is_written_and_never_over_another(revised, project):
    revised("aaa")
    result = redraft("export", "last", "--html", "run.html")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "read it before you share it" in result.stderr
    page = (project / "run.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "Why it stopped" in page
    (project / "run.html").write_text("mine")
    assert redraft("export", "last", "--html", "run.html").exit_code == 2
    assert (project / "run.html").read_text() == "mine"
    assert redraft("export", "last", "--html", "run.html", "--force").exit_code == 0
    assert redraft("export", "last", "--html", "-").stdout == page


def test_json_is_all_of_it(revised):
    revised("aaa")
    found = document(redraft("export", "last", "--json"))
    assert [step["name"] for step in found["steps"] if "/" not in step["place"]] == [
        "evaluate",
        "revise",
        "evaluate",
    ]
    assert any(step["given"] for step in found["steps"])
    assert [version["output"] for version in found["versions"]] == ["ab", "aaa"]


@pytest.mark.parametrize("words", [[], ["--json", "--html", "x.html"]])
def test_one_form_has_to_be_chosen(project, words):
    result = redraft("export", "last", *words)
    assert result.exit_code == 2
    assert "one of --html FILE and --json" in result.stderr


@pytest.mark.parametrize("place", [".", "no/such/folder.html"])
def test_a_place_that_cannot_be_written_to_is_refused(revised, place):
    revised("aaa")
    result = redraft("export", "last", "--html", place)
    assert result.exit_code == 2
    assert "--html takes a file" in result.stderr or "cannot be written to" in result.stderr
