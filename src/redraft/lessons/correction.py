"""Learn from a person's correction of an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.lessons.lesson import CorrectedAnswer
from redraft.lessons.lessons import Lessons
from redraft.loop.record import quoted
from redraft.memory.safety import Cleaner
from redraft.text.characters import without_middle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.lessons.lesson import Lesson
    from redraft.loop.record import Amendment, Correction, RunRecord
    from redraft.protocols import Advisor
    from redraft.stores.base import Store

LONGEST_EXAMPLE = 1_200
"""Characters of the corrected answer in the lesson; the middle of a longer answer is left out."""


async def learn_correction(
    record: RunRecord,
    correction: Correction,
    store: Store,
    why: str = "",
    lessons: Advisor | None = None,
) -> Lesson:
    """Store the lesson of a correction with full trust; another correction of the run replaces it.

    The corrected output is an example, the changes are derived from the two texts, and `why` is the person's
    reason. Secrets and anything that no lesson may contain are withheld. Raises `ConfigError` if `lessons`
    are not a `Lessons`, otherwise the errors of `Lessons.record`.
    """
    if lessons is not None and not isinstance(lessons, Lessons):
        raise ConfigError(f"lessons must be a Lessons, which can store the lesson, got {lessons!r}.")
    task, old = record.task.description, as_text(getattr(record.version(correction.version), "output", ""))
    cleaner = Cleaner.of(task, old, as_text(correction.output))
    more = [f"and {correction.more_changes} more changes"] if correction.more_changes else []
    changes = [_instruction(change, cleaner) for change in correction.changes]
    content = CorrectedAnswer(
        cleaner.clean(without_middle(as_text(correction.output), LONGEST_EXAMPLE)),
        _listed([*changes, *more]),
        cleaner.clean(why) if why.strip() else "None: the person gave no reason.",
    )
    agent = record.origin.name.strip() or record.origin.surface
    library = Lessons(agent=agent, store=store) if lessons is None else lessons
    try:
        return await library.record(
            content, record.task, run_id=record.run_id, confidence=1.0, title=changes[0].rstrip(".")
        )
    finally:
        if lessons is None:
            await library.aclose()


def _instruction(change: Amendment, cleaner: Cleaner) -> str:
    old, new = (_quoted(text, cleaner) for text in (change.old, change.new))
    place = f" at {change.path}" if change.path else ""
    match change.kind:
        case "added":
            return f"Add {new}{place}."
        case "removed":
            return f"Leave out {old}{place}."
        case "replaced":
            return f"Write {new}{place}, not {old}."


def _quoted(text: str, cleaner: Cleaner) -> str:
    return quoted(cleaner.clean(text)) if text else ""


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in dict.fromkeys(lines))
