"""What an evaluator's configuration may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest

if TYPE_CHECKING:
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


def wrong(criterion: QualityCriterion, what: str) -> ConfigError:
    """Make the error that says what is wrong with a criterion."""
    return ConfigError(f"Criterion {criterion.name!r}: {what}")
