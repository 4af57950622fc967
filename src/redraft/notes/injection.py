"""The block of notes that stands before a task's definition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redraft.core.tokens import estimate_tokens
from redraft.notes.placeholders import fill_known
from redraft.notes.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redraft.core.task import Task
    from redraft.notes.reflection import TaskReflection

_LEAD = """\
## Task Improvement Notes (from prior executions)

The following refinements were identified by analyzing previous runs of this task.
Apply them to improve your approach while still fulfilling the original requirements below."""
_END = "---"

# What begins or ends a part of a text: a heading, a line of nothing but rules (which also makes a heading of
# the line above), a fence, and the HTML that does the same. Any white space may stand before it.
_SIGNS = r"\-=*_\u2010-\u2015\u2500-\u257f"
_STRUCTURE = re.compile(
    rf"^(?! {{4}})[^\S\n]*+(?=#|```|~~~|<!--|</?[hH][1-6rR]\b|[{_SIGNS}](?:[{_SIGNS}]|[^\S\n])*+$)",
    re.MULTILINE,
)
# Behind the dash of a list, more dashes are a rule however far away they stand.
_LEADING_RULES = re.compile(rf"\A[{_SIGNS}\s]*(?:\n|\Z)")
_INDENT = "    "


def note_block(reflection: TaskReflection, task: Task, inputs: Mapping[str, Any]) -> str:
    """Render a note as it stands before `task`, from its heading to the closing `---`.

    `task` is the definition as it was written; placeholders in the refined texts are filled from `inputs`.
    What would end the block or begin a part of its own (a heading, a rule, a fence) is indented by four
    spaces, in the values of inputs, too. Specification: What gets injected next run.
    """
    texts = (
        ("Refined Instructions", reflection.refined_description, task.description),
        ("Output Guidance", reflection.refined_expected_output, task.expected_output),
    )
    parts = [
        f"### {heading}\n{text}"
        for heading, refined, original in texts
        if (text := _contained(fill_known(refined if refined.strip() else original, inputs)))
    ]
    lists = (("Observations", reflection.observations), ("Suggestions", reflection.suggestions))
    parts += [f"### {heading}\n{listed}" for heading, items in lists if (listed := _listed(items))]
    return "\n\n".join([_LEAD, *parts, _END])


def tokens_of(block: str) -> int:
    """Estimate what a block costs in a prompt."""
    return estimate_tokens(block)


def _listed(items: Iterable[str]) -> str:
    texts = (_contained(_LEADING_RULES.sub("", plain(item))) for item in items)
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts if text)


def _contained(text: str) -> str:
    """Return a text that can't leave its place: nothing unseen in it, and no structure at a line's start."""
    return _STRUCTURE.sub(_INDENT, plain(text).strip()).rstrip()
