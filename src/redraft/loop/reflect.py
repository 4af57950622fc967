"""The front door for plain functions: `reflect` and `reflect_sync`; the first call loads the rest."""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from redraft.loop.pattern import ReflectionPattern
    from redraft.protocols import Step, Stopper
    from redraft.types import Draft, Output, ReflectionResult, Task


async def reflect(
    task: str | Task,
    *,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    pattern: ReflectionPattern | None = None,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
    step: Step | None = None,
) -> ReflectionResult:
    """Draft, judge and revise with any functions until a rule says stop; return the best version and why.

    `generate(prompt)`, `evaluate(output)` and `revise(output, evaluation)` may be sync or async, and may take
    the `RunContext` as one more parameter `run`. `evaluate` returns a bool, a number in 0..1, a pair of one
    of these and a reason, a dict or a `ReflectionEvaluation`; without it the pattern's criteria judge.
    Without `revise`, `generate` is called again with the critique: in its parameter `feedback` (a text) or
    `attempt` (an `Attempt`), else appended to the prompt. `draft` starts from an output that is there.
    `until` replaces the convergence rules. `step` carries out every effect: with a `Journalled` the run is
    kept, and the same call with the same run id goes on where the last one stopped.

    Raises `ConfigError` before anything is called, what `generate` raised where there is no version yet, and
    a mistake in `evaluate` (`TypeError`, `AttributeError`, `NameError`, a forgotten `return`) that shows on
    the first one. A later error ends the run with the best version, the `error` and a warning in the log.
    """
    from redraft.loop.pattern import run_functions  # noqa: PLC0415 (importing redraft stays quick)

    return await run_functions(
        task, generate, evaluate, revise, pattern=pattern, draft=draft, until=until, step=step
    )


def reflect_sync(
    task: str | Task,
    *,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    pattern: ReflectionPattern | None = None,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
) -> ReflectionResult:
    """Do what `reflect` does, from code that is not async; also inside a running event loop."""
    from redraft._sync import run_sync  # noqa: PLC0415 (likewise)

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
