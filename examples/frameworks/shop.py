"""What the agents of this folder share: a tool, a criterion, and the version that a revision starts from."""

import re

looked_up = []


def number(answer):
    """Says how many."""
    return bool(re.search(r"\d", answer))


def stock(item: str) -> int:
    """Say how many of an item are in stock.

    Args:
        item: What is sold.
    """
    looked_up.append(item)
    return {"tea": 7}[item]


def base_version(run):
    """The version to revise; None for a first draft."""
    return next((version for version in run.versions if version.iteration == run.attempt.base), None)
