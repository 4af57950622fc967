"""Learn from a person's correction of an output."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.lessons.lesson import CorrectedAnswer
from redraft.lessons.lessons import Lessons
from redraft.loop.correction import is_same_output
from redraft.loop.record import quoted
from redraft.memory.safety import Cleaner
from redraft.redact.kinds import MARK
from redraft.redact.log import logger
from redraft.stores.run_index import RUN
from redraft.text.characters import without_middle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from redraft.lessons.lesson import Lesson
    from redraft.loop.record import Amendment, Correction, RunRecord
    from redraft.protocols import Advisor
    from redraft.stores.base import Store

LONGEST_EXAMPLE = 1_200
"""Characters of the corrected answer in the lesson; the middle of a longer answer is left out."""
ONLY_SPACE = "Set line breaks and spaces as in the corrected answer."
"""The change of a correction without other changes."""


async def learn_correction(
    record: RunRecord,
    correction: Correction,
    store: Store,
    why: str = "",
    lessons: Advisor | None = None,
) -> Lesson:
    """Store the lesson of a correction with full trust; another correction of the run replaces it.

    A lesson that the correction of another run taught, too, stays as it is, for that run.

    The corrected output is an example, the changes are derived from the two texts, and `why` is the person's
    reason. Secrets and anything that no lesson may contain are withheld. Raises `ConfigError` if `lessons`
    are not a `Lessons`, otherwise the errors of `Lessons.record`.
    """
    task, old = record.task.description, as_text(getattr(record.version(correction.version), "output", ""))
    cleaner = Cleaner.of(task, old, as_text(correction.output))
    more = [f"and {correction.more_changes} more changes"] if correction.more_changes else []
    changes = [_instruction(change, cleaner) for change in correction.changes] or [ONLY_SPACE]
    content = CorrectedAnswer(
        cleaner.clean(without_middle(as_text(correction.output), LONGEST_EXAMPLE)),
        "\n".join(f"- {line}" for line in dict.fromkeys([*changes, *more])),
        cleaner.clean(why) if why.strip() else "None: the person gave no reason.",
    )
    async with _lessons_of(record, store, lessons) as library:
        if not is_same_output(correction, record.correction):
            await _own_lessons(record, library, store)
        lesson = await library.record(
            content, record.task, run_id=record.run_id, confidence=1.0, title=changes[0].rstrip(".")
        )
        if MARK.search(content.changes):
            logger.warning(
                "The lesson %s withholds a part of the correction. To let it say this, list the text in "
                "redact_allow, and write it into the lesson: redraft lessons edit %s",
                lesson.id,
                lesson.id,
            )
        for earlier in await _own_lessons(record, library, store):
            if earlier.id != lesson.id:  # it is in the archive
                await library.supersede(earlier.id, by=lesson.id)
        return lesson


async def unlearn_correction(record: RunRecord, store: Store, lessons: Advisor | None = None) -> None:
    """Retire the lesson of a correction that a person took back, unless another run's correction taught it.

    Raises as `learn_correction` does.
    """
    async with _lessons_of(record, store, lessons) as library:
        for lesson in await _own_lessons(record, library, store):
            await library.retire(lesson.id, "The person took the correction back.")


async def _own_lessons(record: RunRecord, library: Lessons, store: Store) -> list[Lesson]:
    """The lessons in use that only the corrections of a run taught; others are passed on to another run."""
    own: list[Lesson] = []
    for lesson in await library.find(status="active", kind="correction", archived=True):
        if lesson.source == record.run_id:
            for other in await library.taught_by(lesson):
                if other != record.run_id and await _teaches(other, lesson, store):
                    await library.attribute(lesson.id, other)
                    break
            else:
                own.append(lesson)
    return own


async def _teaches(run_id: str, lesson: Lesson, store: Store) -> bool:
    """Whether the correction of a run is in force and taught a lesson."""
    stored = await store.get(RUN, run_id)
    correction: dict[str, Any] = {} if stored is None else stored.data.get("correction") or {}
    return correction.get("lesson") == lesson.id


@asynccontextmanager
async def _lessons_of(record: RunRecord, store: Store, lessons: Advisor | None) -> AsyncGenerator[Lessons]:
    """`lessons`, else the project's lessons of the agent that ran."""
    if lessons is not None and not isinstance(lessons, Lessons):
        raise ConfigError(f"lessons must be a Lessons, which can store the lesson, got {lessons!r}.")
    agent = record.origin.name.strip() or record.origin.surface
    library = Lessons(agent=agent, store=store) if lessons is None else lessons
    try:
        yield library
    finally:
        if lessons is None:
            await library.aclose()


def _instruction(change: Amendment, cleaner: Cleaner) -> str:
    old, new = (quoted(cleaner.clean(text)) if text else "" for text in (change.old, change.new))
    place = f" at {change.path}" if change.path else ""
    match change.kind:
        case "added":
            return f"Add {new}{place}."
        case "removed":
            return f"Leave out {old}{place}."
        case "replaced":
            return f"Write {new}{place}, not {old}."
