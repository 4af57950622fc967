"""The examples of `examples/frameworks`, each run with its framework and a fake in place of the model.

`make test-integrations` makes an environment for each of them, from the pinned requirements in this folder.
"""

import pytest

from support.pages import ROOT
from support.recipes import DONE, play

ENVIRONMENTS = ROOT / "build" / "frameworks"


@pytest.mark.parametrize(
    ("recipe", "environment", "differences"),
    [
        ("openai_client", "clients", {}),
        ("anthropic_client", "clients", {}),
        # Tools are the command's own, so that the fake has none; it says what a turn costs.
        (
            "claude_agent",
            "claude_agent_sdk",
            {"looked_up": [], "tokens": [30, 9], "requests": 3, "cost": 0.03},
        ),
        ("google_adk_agent", "google_adk", {}),
        ("haystack_agent", "haystack", {}),
        ("smolagents_agent", "smolagents", {}),
        ("crewai_agent", "crewai", {}),
        # Each answer takes a call that says that the steps are done, and one for the answer itself.
        ("dspy_module", "dspy", {"tokens": [70, 21], "requests": 7}),
    ],
)
def test_a_recipe_continues_the_conversation_and_knows_its_usage(recipe, environment, differences, tmp_path):
    python = ENVIRONMENTS / environment / "bin" / "python"
    told = play(recipe, python, tmp_path)
    assert told == DONE | differences
