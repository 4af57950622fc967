"""What an evaluator's configuration may hold, and the nearest name to a misspelt one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.core.criterion import QualityCriterion


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and which there are."""
    names = list(known)
    close = get_close_matches(name.lower(), names, 1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}Known are {', '.join(map(repr, names))}." if names else "None is known."


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
