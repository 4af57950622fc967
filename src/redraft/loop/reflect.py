"""The front door for plain functions: `reflect` and `reflect_sync`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.core.adapt import draft_of
from redraft.core.steps import direct
from redraft.core.sync import run_sync
from redraft.core.usage import NOTHING_USED
from redraft.core.version import Draft
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.run import run_loop
from redraft.loop.wire import parts_of_functions, task_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.core.protocols import Step, Stopper
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task
    from redraft.core.version import Output

DEFAULT_PATTERN = ReflectionPattern()


async def reflect(
    task: str | Task,
    *,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    pattern: ReflectionPattern = DEFAULT_PATTERN,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
    step: Step = direct,
) -> ReflectionResult:
    """Draft, judge and revise with any functions until a rule says stop; return the best version and why.

    `generate(prompt)`, `evaluate(output)` and `revise(output, evaluation)` may be sync or async, and may take
    the `RunContext` as one more parameter `run`. `evaluate` returns a bool, a number in 0..1, a pair of one
    of these and a reason, a dict or a `ReflectionEvaluation`; without it the pattern's criteria judge.
    Without `revise`, `generate` is called again with the critique: in its parameter `feedback` (a text) or
    `attempt` (an `Attempt`), else appended to the prompt. `draft` starts from an output that is there.
    `until` replaces the convergence rules. `step` carries out every effect.

    Raises `ConfigError` before anything is called, and what `generate` raised where there is no version yet.
    """
    if until is not None:
        pattern = replace(pattern, until=until)
    asked = task_of(task, pattern)
    parts = parts_of_functions(
        pattern, asked.task_type, generate, evaluate, revise, has_draft=draft is not None
    )
    return await run_loop(asked, parts, pattern, step, given_draft(draft))


def given_draft(draft: Output | Draft | None) -> Draft | None:
    """Return the draft that a run starts from; what was there already cost this run nothing."""
    if draft is None or isinstance(draft, Draft):
        return draft
    return replace(draft_of(draft, "draft"), usage=NOTHING_USED)


def reflect_sync(
    task: str | Task,
    *,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    pattern: ReflectionPattern = DEFAULT_PATTERN,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
) -> ReflectionResult:
    """Do what `reflect` does, from code that is not async; also inside a running event loop."""
    return run_sync(
        reflect(
            task,
            generate=generate,
            evaluate=evaluate,
            revise=revise,
            pattern=pattern,
            draft=draft,
            until=until,
        )
    )
