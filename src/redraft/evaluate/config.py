"""What an evaluator's configuration may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.text.code import unfenced

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.core.criterion import QualityCriterion


def check_keys(criterion: QualityCriterion, *known: str) -> None:
    """Refuse keys that the criterion's evaluator does not know; raises `ConfigError`."""
    for key in criterion.evaluator_config:
        if key not in known:
            raise wrong(criterion, f"{criterion.evaluator} has no {key!r}; {nearest(str(key), known)}")


def required(criterion: QualityCriterion, key: str) -> Any:
    """Return what the configuration must hold; raises `ConfigError` where it does not."""
    try:
        return criterion.evaluator_config[key]
    except KeyError:
        raise wrong(criterion, f"{criterion.evaluator} needs {key!r} in evaluator_config.") from None


def raw_of(criterion: QualityCriterion) -> bool:
    """Say whether a criterion wants an output as it came, its Markdown fence included."""
    raw = criterion.evaluator_config.get("raw", False)
    if not isinstance(raw, bool):
        raise wrong(criterion, f"raw must be true or false, got {raw!r}.")
    return raw


def answer_in(criterion: QualityCriterion) -> Callable[[Any], tuple[Any, int]]:
    """Return what takes the answer out of an output, with the 1-based line on which it begins.

    Chat models wrap answers into a Markdown fence: a text that is one fenced block is checked without the
    fence, unless the criterion's configuration says `raw: true`.
    """
    raw = raw_of(criterion)

    def answer(output: Any) -> tuple[Any, int]:
        return unfenced(output) if isinstance(output, str) and not raw else (output, 1)

    return answer


def wrong(criterion: QualityCriterion, what: str) -> ConfigError:
    """Make the error that says what is wrong with a criterion."""
    return ConfigError(f"Criterion {criterion.name!r}: {what}")
