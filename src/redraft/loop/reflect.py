"""`reflect` and `reflect_sync`: the loop over plain functions, cheap to import."""

from __future__ import annotations

from redraft._hints import keyword_hints

TYPE_CHECKING = False  # type checkers read this as True; importing typing would cost more than the module
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from redraft.loop.pattern import ReflectionPattern
    from redraft.protocols import ModelChoice, Step, Stopper
    from redraft.types import Criterion, Draft, Output, PlainTask, ReflectionResult


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
async def reflect(
    task: str | PlainTask,
    *,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    criteria: Sequence[Criterion] | None = None,
    max_iterations: int | None = None,
    quality_threshold: float | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_seconds: float | None = None,
    judge: ModelChoice | None = None,
    pattern: ReflectionPattern | None = None,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
    step: Step | None = None,
) -> ReflectionResult:
    """Draft, judge and revise with any functions until a rule says stop; returns the best version and why.

    `criteria` judge: sentences, functions, compiled patterns, pydantic classes, data classes, JSON Schemas
    and `QualityCriterion`s. `judge` is the model for those that need one, `quality_threshold` (0..1) is the
    overall score to reach, and at most `max_iterations` revisions are made. The budgets bound the run.
    `pattern` holds all other options; an argument given here overrides the pattern's.

    `generate(prompt)`, `evaluate(output)` and `revise(output, evaluation)` may be sync or async, and may take
    the `RunContext` as one more parameter `run`. `evaluate` returns a bool, a number in 0..1, a pair of
    either and a reason, a dict or a `ReflectionEvaluation`; without it the criteria judge. Without
    `revise`, `generate` is called again with the critique in its parameter `feedback` (a text) or `attempt`
    (an `Attempt`), or appended to the prompt. Without `generate`, the model of the settings drafts.

    `draft` is an existing output to start from. `until` replaces the convergence rules. `step` carries out
    every effect: with a `Journalled` step the run is stored, and repeating the call with the same run id
    resumes it.

    Raises `ConfigError` before anything is called. Until there is a version to return, an error in `generate`
    is raised as it is, and so is a mistake in `evaluate` (`TypeError`, `AttributeError`, `NameError`, a
    forgotten `return`). A later error ends the run: the result has the best version and the `error`.
    """
    from redraft.loop.pattern import pattern_with, run_functions  # noqa: PLC0415 (importing redraft stays cheap)

    pattern = pattern_with(
        pattern,
        criteria=criteria,
        max_iterations=max_iterations,
        quality_threshold=quality_threshold,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        budget_seconds=budget_seconds,
        judge=judge,
    )
    return await run_functions(
        task, generate, evaluate, revise, pattern=pattern, draft=draft, until=until, step=step
    )


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
def reflect_sync(
    task: str | PlainTask,
    *,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    criteria: Sequence[Criterion] | None = None,
    max_iterations: int | None = None,
    quality_threshold: float | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_seconds: float | None = None,
    judge: ModelChoice | None = None,
    pattern: ReflectionPattern | None = None,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
    step: Step | None = None,
) -> ReflectionResult:
    """Like `reflect`, for code that is not async: the best version, and why the run stopped.

    The help of `reflect` describes the arguments, the result and the errors. It works inside a running event
    loop, too.
    """
    from redraft._sync import run_sync  # noqa: PLC0415 (importing redraft stays cheap)

    return run_sync(
        reflect(
            task,
            generate=generate,
            evaluate=evaluate,
            revise=revise,
            criteria=criteria,
            max_iterations=max_iterations,
            quality_threshold=quality_threshold,
            budget_usd=budget_usd,
            budget_tokens=budget_tokens,
            budget_seconds=budget_seconds,
            judge=judge,
            pattern=pattern,
            draft=draft,
            until=until,
            step=step,
        )
    )
