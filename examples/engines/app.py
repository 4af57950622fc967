"""The agent of these recipes; its runs are in a store that all machines share (`database_url`)."""

from redraft import Agent

clerk = Agent("openai:gpt-5-mini", name="clerk", criteria=["It is friendly and names no prices."])
LONGEST_RUN = 600
"""Seconds after which a broker considers a task lost."""


def answer_of(result):
    """Return the output of a run; raises the error that ended it, so that the engine tries again."""
    if result.error is not None:
        raise result.error
    return result.best_output
