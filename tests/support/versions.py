"""Histories for tests, written as short as their scores."""

from redraft.loop.select import BestScores
from redraft.types import ReflectionEvaluation, ReflectionVersion


def version(number, score, output=None, **fields):
    """One version; fields of the evaluation are taken out by name."""
    names = (
        *("satisfactory", "issues", "suggestions", "confidence", "gates_passed", "criteria_scores"),
        *(
            "spread",
            "samples",
            "agreement",
            "repeats_itself",
            "generated",
            "meets_given",
            "preferred",
            "unmet",
        ),
    )
    evaluation = {name: fields.pop(name) for name in names if name in fields}
    text = f"output {number}" if output is None else output
    return ReflectionVersion(number, text, ReflectionEvaluation(score, **evaluation), **fields)


def history(*scores, **fields):
    """Versions with these scores and distinct outputs."""
    return gained([version(number, score, **fields) for number, score in enumerate(scores, 1)])


def gained(versions):
    """The same versions with their gains filled in, as a run does."""
    best_scores = BestScores()
    for each in versions:
        if each.repeats is None:
            each.gain, each.margin = best_scores.gain(each.evaluation)
    return versions


def judged(number, scores, **fields):
    """One version by the scores of its criteria, all of one weight; None for one that could not be judged."""
    known = [score for score in scores.values() if score is not None]
    overall = sum(known) / len(known) if known else None
    return version(number, overall, criteria_scores=scores, **fields)
