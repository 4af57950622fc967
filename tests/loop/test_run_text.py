"""Issues as lines."""

import pytest

from redraft import Issue
from redraft.loop.run_text import issue_line


@pytest.mark.parametrize(
    ("issue", "shown"),
    [
        (Issue("It is missing."), "It is missing."),
        (Issue("expected a number", path="age"), "age: expected a number"),
        (Issue("age: expected a number", path="age"), "age: expected a number"),
        (Issue("ages are missing", path="age"), "age: ages are missing"),
        (Issue("found\n'b'", line=3), "line 3: found 'b'"),
        (Issue("line 3: found 'b'", line=3), "line 3: found 'b'"),
    ],
)
def test_the_place_of_an_issue_is_said_once(issue, shown):
    assert issue_line(issue).plain == shown
