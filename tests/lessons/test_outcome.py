"""How a task ended is checked where it is said."""

import pytest

from redraft import ConfigError, Outcome, Task


@pytest.mark.parametrize(
    ("task", "status", "said"),
    [
        ("Order tea.", "failed", "must be a Task, got 'Order tea.'"),
        (Task("Order tea."), "broken", "status: there is no"),
        (Task("Order tea."), None, "status: there is no"),
    ],
)
def test_what_is_no_outcome_is_refused(task, status, said):
    with pytest.raises(ConfigError, match=said):
        Outcome(task, status)


@pytest.mark.parametrize("status", ["failed", "partial", "success", "decision"])
def test_each_end_is_one(status):
    assert Outcome(Task("Order tea."), status).status == status
