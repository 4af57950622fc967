"""The examples of docs/frameworks.md run."""

import pytest

from support.pages import Page

PAGE = Page("docs/frameworks.md")


@pytest.mark.parametrize("name", PAGE.files("python"))
def test_the_example_runs(name):
    PAGE.run(PAGE.files("python")[name])
