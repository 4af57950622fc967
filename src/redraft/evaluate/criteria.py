"""The criteria of a run: the default sets, and what a name or a sentence stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from redraft.core.criterion import QualityCriterion
from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.evaluate.default_criteria import DEFAULTS, GENERAL, OTHERS

LONGEST_NAME = 80
MODEL_JUDGED = frozenset({"llm", "compare"})
MISSPELT = 0.8
"""How alike (0..1) a type of one's own and a known one are for the first to be the second, misspelt."""


def criteria_of(
    given: Sequence[QualityCriterion | str] | None, task_type: str = ""
) -> tuple[QualityCriterion, ...]:
    """Return the criteria that were given, or the default set of the task type.

    A name, and a criterion without description that a model judges, get the description of the default
    criterion of that name, of this task type if it has one. A sentence is a criterion of its own. A task type
    of one's own has the general set. Raises `ConfigError` for none at all, a name that comes twice, weights
    that are all 0, what is no criterion, and where there are no criteria, a misspelt task type.
    """
    kind = _kind(task_type)
    if given is None:
        if kind not in DEFAULTS and _is_misspelt(kind):
            check_task_type(task_type)
        return _defaults(kind if kind in DEFAULTS else "")
    if isinstance(given, str) or not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
        raise ConfigError(f"Criteria must be a list of names, sentences or QualityCriterion, got {given!r}.")
    criteria = tuple(_criterion(item, kind) for item in given)
    if not criteria:
        raise ConfigError("The list of criteria is empty; give at least one, or None for the defaults.")
    names = [criterion.name for criterion in criteria]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"The criterion {name!r} comes twice; give each a name of its own.")
    if not any(criterion.weight for criterion in criteria):
        raise ConfigError("All criteria have a weight of 0; at least one must count.")
    return criteria


def check_task_type(task_type: str) -> None:
    """Refuse a task type without default criteria, where it is to choose these; raises `ConfigError`."""
    if task_type and _kind(task_type) not in DEFAULTS:
        meant = nearest(_kind(task_type), DEFAULTS)
        raise ConfigError(
            f"task_type: there are no default criteria for {task_type!r}; {meant} "
            "With a type of your own, give quality_criteria."
        )


def check_comparable(criteria: Sequence[QualityCriterion]) -> None:
    """Refuse criteria none of which can judge the first version of a run; raises `ConfigError`."""
    counting = [criterion for criterion in criteria if criterion.weight]
    if all(_needs_earlier(criterion) for criterion in counting):
        raise ConfigError(
            f"Criterion {counting[0].name!r}: compare with 'against' judges a version by an earlier one, and "
            "nothing judges the first: add another criterion, or compare with a 'reference'."
        )


def _needs_earlier(criterion: QualityCriterion) -> bool:
    return criterion.evaluator == "compare" and "against" in criterion.evaluator_config


def _kind(task_type: str) -> str:
    return "_".join(task_type.lower().replace("-", " ").replace("_", " ").split())


def _is_misspelt(kind: str) -> bool:
    from difflib import get_close_matches  # noqa: PLC0415 (few types are nobody's)

    return bool(get_close_matches(kind, DEFAULTS, 1, MISSPELT))


@cache  # each pattern asks, and a pattern is made for many a run
def _defaults(kind: str) -> tuple[QualityCriterion, ...]:
    return tuple(QualityCriterion(name, text) for name, text in DEFAULTS.get(kind, GENERAL).items())


def _criterion(given: QualityCriterion | str, kind: str) -> QualityCriterion:
    if isinstance(given, QualityCriterion):
        if given.description or given.evaluator not in MODEL_JUDGED:
            return given
        return replace(given, description=_description(given.name, kind))
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
        raise ConfigError(f"A criterion must be a name, a sentence or a QualityCriterion, got {given!r}.")
    return QualityCriterion(_shorten(given.strip()), _description(given.strip(), kind))


def _description(name: str, kind: str) -> str:
    """Return what a judge should look at for a name; a sentence says it itself."""
    key = "_".join(name.lower().replace("-", " ").split())
    for known in (DEFAULTS.get(kind, GENERAL), *DEFAULTS.values(), GENERAL, OTHERS):
        if key in known:
            return known[key]
    if " " in name:
        return name
    plain = name.replace("_", " ").replace("-", " ")
    return (
        f"The quality of the output as far as its {plain} goes. Good: somebody who cares about {plain} would "
        f"change nothing. Bad: {plain} is missing or gets in the reader's way."
    )


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3].rsplit(' ', 1)[0]}..."
