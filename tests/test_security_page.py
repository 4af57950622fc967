"""docs/security.md: the fence that it shows, and the default that it warns of."""

from redraft._prompts import framed
from redraft.settings import Settings
from support.pages import Page

PAGE = Page("docs/security.md")


def test_the_fence_is_that_of_the_prompts():
    [shown] = PAGE.blocks("text")
    _, text, _ = shown.splitlines()
    assert framed(text, "output")[1] == shown.rstrip()


def test_private_addresses_are_reached_by_default():
    """The page warns of that; tests/test_http.py has the addresses that the setting refuses."""
    assert ("By default, a request may reach any address" in PAGE.text) == (
        Settings().http_addresses == "any"
    )
