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
    return gained([version(number, score, **fields) for number, score in enumerate(scores, 1)])


def gained(versions):
    """The same versions with their gains filled in, as a run does."""
    best = None
    for each in versions:
        score = each.evaluation.overall_score
        if score is None or each.repeats is not None:
            continue
        rank = score + each.evaluation.gates_passed
        each.gain = None if best is None else rank - best
        best = rank if best is None else max(best, rank)
    return versions
