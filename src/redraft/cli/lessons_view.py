"""A lesson as a person reads it: what it says, whether it is in force, where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft.cli.lessons_rows import STATES
from redraft.cli.show import BAD, GOOD, QUIET
from redraft.core.texts import shortened
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.cli.kept_lessons import KeptLesson
    from redraft.cli.lessons_index import Reindexed
    from redraft.lessons.duties import Duty
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.query import Found
    from redraft.lessons.upkeep import Problem

INDENT = (0, 0, 0, 2)
LONGEST_SUMMARY = 90
WAITS = "it comes from what nobody vouched for, and waits for an attempt that does better, or a person"
PROBLEMS = {
    "broken": ("Broken: not read until somebody mends them", BAD),
    "duplicate": ("Nearly the same: `redraft lessons merge` makes one of them", ""),
    "hidden": ("Hidden: put before nobody", QUIET),
}


def lesson_view(kept: KeptLesson) -> RenderableType:
    """Render a lesson: how it stands, and its file as it is."""
    lesson, counters = kept.lesson, kept.counters
    lines = [Text(visible(lesson.id), "bold"), standing_of(lesson, archived=kept.archived)]
    if counters == type(counters)():
        lines.append(Text("Used in no run yet"))
    else:
        runs = "1 run" if counters.uses == 1 else f"{counters.uses} runs"
        lines.append(Text(f"Used in {runs}: helped {counters.helped}, hurt {counters.hurt}"))
    if lesson.source:
        source = visible(lesson.source)
        lines.append(Text(f"From the run {source} (redraft show {source})"))
    lines.append(Text(visible(kept.file), QUIET))
    return Group(*lines, "", Padding(Text(visible(kept.text).rstrip()), INDENT))


def standing_of(lesson: Lesson, *, archived: bool = False) -> Text:
    """Say whether a lesson is put before an agent, and if not, why."""
    line = Text(lesson.status.capitalize(), STATES[lesson.status])
    why = visible(lesson.why)
    if lesson.status == "quarantined":
        line.append(f": {why or WAITS}", "")
    elif lesson.status == "superseded":
        line.append(f" by {visible(lesson.superseded_by)}" + (f": {why}" if why else ""), "")
    elif why:
        line.append(f": {why}", "")
    return line.append(" (in the archive)" if archived else "", QUIET)


def changed_line(lesson: Lesson) -> Text:
    """Say in a line how a lesson stands now."""
    line = Text.assemble((visible(lesson.id), "bold"), "  ")
    return line.append_text(standing_of(lesson)).append(
        f"  {shortened(visible(lesson.summary), LONGEST_SUMMARY)}", QUIET
    )


def found_view(found: Sequence[Found]) -> RenderableType:
    """Render what a search found, the best first, each with the reason."""
    parts: list[RenderableType] = []
    for one in found:
        head = Text.assemble(f"{one.score:5.2f}  ", (visible(one.lesson.id), "bold"))
        parts.append(head)
        parts.append(Padding(Text(shortened(visible(one.lesson.summary), LONGEST_SUMMARY)), (0, 0, 0, 7)))
        parts.append(Padding(Text(visible(one.reason), QUIET), (0, 0, 0, 7)))
    return Group(*parts)


def problems_view(problems: Sequence[Problem]) -> RenderableType:
    """Render what a person should look at, the broken files first."""
    if not problems:
        return Text("Nothing is broken, doubled or hidden.", GOOD)
    parts: list[RenderableType] = []
    for what, (title, style) in PROBLEMS.items():
        these = [one for one in problems if one.what == what]
        if not these:
            continue
        parts += ["", Text(f"{title} ({len(these)})", f"bold {style}".strip())]
        for one in these:
            named = one.why if one.why.startswith(one.id) else f"{one.id}: {one.why}"
            parts.append(Padding(Text(visible(named)), INDENT))
    return Group(*parts[1:])


def due_view(due: Sequence[Duty]) -> RenderableType:
    """Render what is due, the oldest first: the run, whose it is, what was asked and what went wrong."""
    if not due:
        return Text("Nothing is due.", GOOD)
    parts: list[RenderableType] = []
    for duty in due:
        how = "done in part" if duty.kind == "partial" else "failed"
        parts.append(Text.assemble((visible(duty.run_id), "bold"), f"  {visible(duty.agent)}  ", (how, BAD)))
        if duty.outcome is not None:
            for said, style in ((duty.outcome.task.description, ""), (duty.outcome.error, QUIET)):
                line = shortened(visible(" ".join(said.split())), LONGEST_SUMMARY)
                parts += [Padding(Text(line, style), INDENT)] if line else []
    return Group(*parts)


def rated_line(kept: KeptLesson) -> Text:
    """Say in a line how often a lesson helped and hurt by now."""
    counters = kept.counters
    said = f"  helped {counters.helped}, hurt {counters.hurt}"
    return Text.assemble((visible(kept.lesson.id), "bold"), said)


def added_line(lesson: Lesson, *, is_new: bool) -> Text:
    """Say in a line which lesson was added, or which one says so already."""
    if is_new:
        return changed_line(lesson)
    sure = f"{lesson.confidence:.2f}"
    return Text.assemble((visible(lesson.id), "bold"), f"  says nearly the same; it is surer now: {sure}.")


def reindexed_line(made: Reindexed) -> Text:
    """Say in a line what the index is made of now."""
    line = f"{made.found.added:,} lessons are in the index"
    line += f", {made.embedded:,} embedded anew by {visible(made.embedder)}." if made.embedder else "."
    if broken := len(made.found.broken):
        line += f" Broken: {broken}; see `redraft lessons doctor`."
    return Text(line)
