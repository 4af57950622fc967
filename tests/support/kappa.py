"""Cohen's kappa by its definition, as a reference."""

from collections import Counter


def kappa(judge, person):
    """Agreement of two lists of verdicts beyond chance."""
    pairs = Counter((bool(one), bool(other)) for one, other in zip(judge, person, strict=True))
    count = pairs.total()
    observed = (pairs[True, True] + pairs[False, False]) / count
    yes = (pairs[True, True] + pairs[True, False]) / count, (pairs[True, True] + pairs[False, True]) / count
    expected = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    return (observed - expected) / (1 - expected)
