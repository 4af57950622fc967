"""The site of the documentation: what its build makes, and what it refuses."""

import re
import tomllib
from itertools import chain

import docs_site
import pytest
from markdown_it import MarkdownIt
from site_links import external_links, faults

from support.dashboards import chromium
from support.pages import FENCE, ROOT

BLOCKS = ("li", "table", "tr", "pre", "h2", "h3", "img", "em", "strong")


def counts(html):
    return {tag: len(re.findall(f"<{tag}[ >]", html)) for tag in BLOCKS}


def results_of_search(page, text):
    """Type into the search of a page from the file system; return how many places it finds."""
    with chromium() as browser:
        tab = browser.new_page()
        tab.goto(page.as_uri())
        tab.keyboard.press("Control+k")
        field = tab.get_by_placeholder("Search")
        field.wait_for()
        field.press_sequentially(text)
        tab.get_by_text(re.compile(r"^[0-9]+ results$")).wait_for()
        assert field.input_value() == text
        return int(tab.get_by_text(re.compile(r"^[0-9]+ results$")).inner_text().split()[0])


def test_the_site_is_built_without_a_fault(tmp_path, capfd):
    assert docs_site.main(tmp_path) == 0, capfd.readouterr()
    site = tmp_path / "site"

    reader = MarkdownIt("commonmark").enable("table")
    for page in docs_site.places_in_site().values():
        html = (site / page).with_suffix(".html").read_text("utf-8")
        article = html[html.index("<article") : html.index("</article>")]
        expected = counts(reader.render((tmp_path / "pages" / page).read_text("utf-8")))
        assert (page, counts(article)) == (page, expected), "code hosts and the site read it differently"
        assert 'class="mermaid"' not in html, "drawn by a program from another host"
        assert (site / page).is_file(), "its Markdown twin"

    for twin in [*site.glob("*.md"), *site.glob("reference/*.md")]:
        linked = re.findall(r"\]\(<?([^<)>#\s:]+)[#>)]", FENCE.sub("", twin.read_text("utf-8")))
        assert (twin.name, [link for link in linked if not (twin.parent / link).is_file()]) == (twin.name, [])
    assert "](criteria.md" in (site / "start.md").read_text("utf-8")
    listed = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text("utf-8"))
    assert {"agents.md", "reference/redraft.lessons.md", "changelog.md"} <= set(listed)
    assert [link for link in listed if not (site / link).is_file()] == []
    assert "def write(prompt" in (site / "llms-full.txt").read_text("utf-8")
    assert (site / "search.js").is_file(), "the index for pages from the file system"
    assert not any(docs_site.NOWHERE in path.read_text("utf-8") for path in site.rglob("*.*ml"))
    external = (tmp_path / "external-links.txt").read_text("utf-8").splitlines()
    assert [line for line in external if not line.startswith("https://")] == []
    assert results_of_search(site / "index.html", "budget_usd") > 3


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="b.html#there">b</a>')
    (tmp_path / "b.html").write_text(
        '<h2 id="there"></h2><a href="a.html">a</a> <a href="https://example.org/x">x</a>'
    )
    return tmp_path


def test_a_site_with_valid_links_has_no_faults(site):
    assert faults(site) == []
    assert external_links(site) == {"https://example.org/x": ["b.html"]}


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="c.html">c</a>', "a.html links to c.html, which doesn't exist"),
        ('<a href="..">up</a>', "a.html links to .., which doesn't exist"),
        ('<a href="b.html#nowhere">b</a>', "a.html links to b.html#nowhere, a page without that heading"),
        ('<a href="#nowhere">here</a>', "a.html links to #nowhere, a page without that heading"),
        ('<img src="gone.png">', "a.html links to gone.png, which doesn't exist"),
        (
            '<script src="https://cdn.example.org/x.js"></script>',
            "a.html loads https://cdn.example.org/x.js from another host",
        ),
        (
            '<link rel="stylesheet" href="//fonts.example.org/x.css">',
            "a.html loads //fonts.example.org/x.css from another host",
        ),
    ],
)
def test_a_fault_of_a_site_is_named(site, html, fault):
    (site / "a.html").write_text(html)
    assert faults(site) == [fault]


def test_links_of_the_repository_lead_to_places_of_the_site():
    text = "[a](../README.md#why) [b](runs.md) [c](../examples/order.yaml) ![d](pictures/x.png) [e](https://e.org)"
    placed, files = docs_site.with_site_links(text, "docs/README.md", docs_site.places_in_site())
    assert placed == (
        "[a](index.md#why) [b](runs.md) [c](files/examples/order.yaml) ![d](pictures/x.png) [e](https://e.org)"
    )
    assert files == ["examples/order.yaml"]


def test_links_in_code_are_ignored():
    text = "`f[0](x.md)` and\n\n```python\nrun[1](x.md)\n```\n"
    assert docs_site.with_site_links(text, "README.md", docs_site.places_in_site()) == (text, [])


def test_the_navigation_lists_every_page_on_one_of_two_shelves():
    config = tomllib.loads((ROOT / "website" / "zensical.toml").read_text("utf-8"))
    sections = [part for section in config["project"]["nav"] for part in section.items()]
    assert [title for title, _ in sections] == ["Start", "Guide", "Platform", "API", "Project"]
    listed = [
        [page for entry in shelf for page in entry.values()] for title, shelf in sections if title != "API"
    ]
    _, guide, platform, _ = listed
    assert guide == ["start.md", "criteria.md", "runs.md", "memory.md", "evaluate.md"]
    contents = re.findall(r"\]\((\w[\w-]*\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8"))
    assert guide + platform == list(dict.fromkeys(contents)), "the contents and the site have one order"
    assert sorted(chain(*listed)) == sorted(docs_site.places_in_site().values())


def test_a_page_that_the_navigation_leaves_out_stops_the_build(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(docs_site.RENAMED, "LICENSE", "new.md")
    assert docs_site.main(tmp_path) == 1
    assert "new.md" in capsys.readouterr().out
