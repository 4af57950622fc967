"""The examples of docs/frameworks.md that need no adapter's package; the adapters' tests run the others."""

import pytest

from support.pages import Page

PAGE = Page("docs/frameworks.md")


@pytest.mark.parametrize("name", ["pydantic_shop.py", "any_agent.py"])
def test_the_example_runs(name):
    PAGE.run(PAGE.files("python")[name])


def test_every_example_of_the_page_is_run():
    assert set(PAGE.files("python")) == {"pydantic_shop.py", "any_agent.py", "shop.py", "graph.py"}
