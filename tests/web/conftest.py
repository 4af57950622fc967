"""What the tests in a browser share; each module says of which `project`."""

import pytest

from support.dashboards import chromium, served, windows


@pytest.fixture(scope="module")
def place(project):
    """The address of the dashboard of the project."""
    with served(project) as url:
        yield url


@pytest.fixture(scope="module")
def browser(place):  # when the project is made: inside, no other event loop can run
    """A browser of this machine."""
    with chromium() as found:
        yield found


@pytest.fixture
def expected():
    """What a browser may say: that a page is not there, that a change was refused, whether it is meant."""
    return "404", "400", "confirm: "


@pytest.fixture
def opened(browser, place, expected):
    """Open pages, with a key, in windows whose console must stay empty but for what is expected."""
    with windows(browser, place, expected) as found:
        yield found
