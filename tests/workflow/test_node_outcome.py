"""How a node ended, in words."""

import pytest

from redraft.workflow.node_outcome import NodeOutcome


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, ("done", "")),
        ("a text", ("done", "")),
        ({"count": 3}, ("done", "")),
        ({"valid": True}, ("valid", "")),
        ({"valid": "yes"}, ("not valid", "")),
        (
            {"valid": True, "reflection_iteration": 1, "reflection_best_score": 0.9},
            ("valid", "after 1 attempt, best score 0.90"),
        ),
        ({"valid": False, "reflection_iteration": 3}, ("not valid", "after 3 attempts, best score -")),
    ],
)
def test_what_a_node_gave_is_said_in_words(result, words):
    outcome = NodeOutcome.of(result)
    assert (outcome.verdict, outcome.detail) == words
