"""Histories for tests, written as short as their scores."""

from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.version import ReflectionVersion


def version(number, score, output=None, **fields):
    """One version; fields of the evaluation are taken out by name."""
    names = ("satisfactory", "issues", "spread", "gates_passed", "criteria_scores")
    evaluation = {name: fields.pop(name) for name in names if name in fields}
    text = f"output {number}" if output is None else output
    return ReflectionVersion(number, text, ReflectionEvaluation(score, **evaluation), **fields)


def history(*scores, **fields):
    """Versions with these scores and distinct outputs."""
    return [version(number, score, **fields) for number, score in enumerate(scores, 1)]
