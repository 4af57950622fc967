"""What a model is told when it looks back on a run in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.chat import Message
from redraft.core.feedback import render_critique
from redraft.core.texts import as_text
from redraft.loop.compared import scored
from redraft.text.fence import fenced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.task import Task
    from redraft.core.version import ReflectionVersion

MOST_SHOWN = 12_000
"""Characters of a record that are shown, the latest ones."""
MOST_SAID = 1_200
"""Characters of a reflection that go into the conversation."""
SHOWN_VERSIONS = 3

ROLE = (
    "You look over the shoulder of someone at work on a task, and say what would help most from here. "
    "You do not do the task yourself."
)
WHY = {
    "step_interval": "A few more steps have been taken; this is a regular look back.",
    "error": "Something has just gone wrong.",
    "tool_result": "A tool has just answered.",
    "quality_drop": "The last version was judged clearly worse than the best one before it.",
    "manual": "Someone who watches the work asked for this look back.",
}
FORM = """\
Reply with at most six short sentences, addressed to the one at work, in this order:
1. What was tried so far, and what came of it.
2. What the results say that was overlooked or misread, if anything.
3. What to do differently from here, or to go on with.
Say nothing that the record does not support, and give no answer to the task."""

LEAD = "A look back at the work so far (advice for the same task, no new one):"


def reflection_turns(task: Task, trigger: str, shown: str) -> tuple[Message, ...]:
    """Return the turns that ask for a look back; what is `shown` is fenced as data."""
    asked = f"The task:\n{task.description}"
    record = fenced(_tail(shown), "record of the work")
    return (
        Message("system", ROLE),
        Message("user", f"{asked}\n\n{WHY[trigger]}\n\n{record}\n\n{FORM}"),
    )


def versions_shown(versions: Sequence[ReflectionVersion]) -> str:
    """Render the last versions with what was said about them, for a look back between two of them."""
    return "\n\n".join(
        f"Version {version.iteration}, score {scored(version)}:\n"
        f"{as_text(version.output)}\n\n{render_critique(version.evaluation)}".rstrip()
        for version in versions
    )


def note(text: str) -> str:
    """Render a reflection as it goes into a conversation."""
    return f"{LEAD}\n{text}"


def shortened(text: str) -> str:
    """Return what a model said, cut at the last word that still has room."""
    text = text.strip()
    if len(text) <= MOST_SAID:
        return text
    return f"{text[:MOST_SAID].rsplit(maxsplit=1)[0]} ..."


def _tail(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"(what came before is left out) ...{text[-MOST_SHOWN:]}"
