"""What may be stored of a reflection: within its bounds, without secrets, personal data or internal names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redraft.core.errors import OutputError
from redraft.notes.bounds import bounded
from redraft.notes.reflection import TaskReflection
from redraft.redact.environment import EVERY_CATEGORY, redactor_of_environment

if TYPE_CHECKING:
    from redraft.notes.strategy import ReflectionInput


def storable(reflection: TaskReflection, given: ReflectionInput) -> TaskReflection:
    """Return what may be stored of what any strategy answered to `given`.

    Secrets go first, so that no cut leaves half of one, and once more at the end: a text that became the
    task's own again has not been looked at yet. Raises `OutputError` for what is no `TaskReflection`, and
    where `bounded` or `redacted` does.
    """
    if not isinstance(reflection, TaskReflection):  # pyright: ignore[reportUnnecessaryIsInstance] (what strategies of others return)
        raise OutputError(f"A reflection strategy must return a TaskReflection, got {reflection!r:.200}.")
    return redacted(bounded(redacted(reflection), given))


def redacted(reflection: TaskReflection) -> TaskReflection:
    """Return a reflection with what must not be shown of its texts withheld, of every category.

    Known to be secret is what `redactor_of_environment` knows. Doing it again changes nothing. Raises
    `OutputError` if something would be left.
    """
    redactor = redactor_of_environment(also=EVERY_CATEGORY)

    def clean(text: str) -> str:
        kept = redactor.redact(text).text
        if not redactor.is_clean(kept):
            raise OutputError("A text of the reflection holds a secret that could not be withheld.")
        return kept

    return replace(
        reflection,
        refined_description=clean(reflection.refined_description),
        refined_expected_output=clean(reflection.refined_expected_output),
        observations=tuple(map(clean, reflection.observations)),
        suggestions=tuple(map(clean, reflection.suggestions)),
    )
