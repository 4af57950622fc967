"""What a model is told when it drafts and revises; what never changes comes first, for prompt caching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.chat import Message
from redraft.core.feedback import render_critique, render_failure, render_issue
from redraft.core.texts import as_text
from redraft.loop.edits import EDIT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.version import Output, ReflectionVersion

SHOWN_VERSIONS = 3
"""How many earlier versions or reflections a prompt shows at most, the latest ones."""

REWRITE = "Write the whole thing anew so that none of these problems remains."
EXTEND = (
    "Build on your answer: keep every part that is right as it is, fix the parts that are wrong, "
    "and add what is missing."
)
ONLY = "Reply with only the answer: no introduction, no comment on it."
WHOLE = "Reply with the complete new version and nothing else: no introduction, no comment on the changes."
EDIT = (
    "Fix exactly these problems with the fewest edits, and leave everything else alone. Reply with nothing "
    f"but edits in this form, as many as it takes:\n\n{EDIT_FORMAT}"
)
ADVISED = "This was advised then:"
AVOID = "An earlier answer to this had the following problems. Yours must have none of them:"


@dataclass(frozen=True, slots=True)
class Memory:
    """Say what a revision prompt shows of the past: earlier reflections, earlier versions."""

    reflections: bool = True
    versions: bool = False


def opening(system_prompt: str, prompt: str) -> tuple[Message, ...]:
    """Return the turns that every call of a run begins with: the system prompt and what is asked."""
    return Message("system", answering(system_prompt)), Message("user", prompt)


def answering(system_prompt: str) -> str:
    """Return a system prompt that asks for only the answer: chatter fails checks that the answer passes."""
    return f"{system_prompt}\n\n{ONLY}" if system_prompt else ONLY


def fresh_prompt(prompt: str, evaluation: ReflectionEvaluation | None) -> str:
    """Render a prompt for a fresh start: what went wrong before as constraints, the failed text hidden.

    A model that sees its failed draft tends to repeat it; one that sees only what to avoid does not.
    """
    parts = [prompt]
    if evaluation is not None and evaluation.issues:
        constraints = "\n".join(f"- {render_issue(issue)}" for issue in evaluation.issues)
        parts.append(f"{AVOID}\n{constraints}")
    if evaluation is not None and evaluation.suggestions:
        advice = "\n".join(f"- {text}" for text in evaluation.suggestions)
        parts.append(f"{ADVISED}\n{advice}")
    return "\n\n".join(parts)


def revision_turns(
    output: Output, evaluation: ReflectionEvaluation, run: RunContext, strategy: str, memory: Memory
) -> tuple[Message, ...]:
    """Return the turns that ask for a revision: the output as the model's own, then the critique."""
    parts = [render_critique(evaluation)]
    failed = run.attempt.failed
    if failed is not None:
        parts.append(render_failure(failed))
    if memory.reflections and (earlier := _reflections(run.versions, output)):
        parts.append(f"What was said about earlier versions:\n{earlier}")
    if memory.versions and (shown := _versions(run.versions, output)):
        parts.append(f"Earlier versions, for reference only:\n\n{shown}")
    parts.append(instruction(strategy))
    return (Message("assistant", as_text(output)), Message("user", "\n\n".join(parts)))


def instruction(strategy: str) -> str:
    """Return what a revision strategy asks for."""
    if strategy == "targeted_edit":
        return EDIT
    return f"{EXTEND if strategy == 'incremental' else REWRITE} {WHOLE}"


def _reflections(versions: Sequence[ReflectionVersion], output: Output) -> str:
    lines = [
        f"- version {version.iteration}: {issue}"
        for version in _others(versions, output)
        for issue in version.evaluation.issues[:3]
    ]
    return "\n".join(dict.fromkeys(lines))


def _versions(versions: Sequence[ReflectionVersion], output: Output) -> str:
    return "\n\n".join(
        f"--- version {version.iteration} ---\n{as_text(version.output)}"
        for version in _others(versions, output)
    )


def _others(versions: Sequence[ReflectionVersion], output: Output) -> list[ReflectionVersion]:
    others = [version for version in versions if version.output != output and version.repeats is None]
    return others[-SHOWN_VERSIONS:]
