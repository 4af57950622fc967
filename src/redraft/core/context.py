"""RunContext and Attempt: what a step may know about the run that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.task import Advice, Task
from redraft.core.version import Output, ReflectionVersion


@dataclass(frozen=True, slots=True)
class Attempt:
    """Tell a generator or reviser what this attempt is for.

    `number` is the 1-based version that it will become. `mode` is `draft` (the first one), `revise` (improve
    `previous` by `evaluation`) or `fresh` (start anew; `evaluation` lists what went wrong before, and
    `previous` is shown, if at all, only as what not to repeat). `strategy` is the revision strategy to use.
    `temperature` is a wish for sampling that a model may ignore. `failed` is the last version that made
    things worse; what it changed should not be tried again. `max_tokens` bounds what this attempt may
    generate. `base` is the iteration that `previous` comes from.
    """

    number: int = 1
    mode: Literal["draft", "revise", "fresh"] = "draft"
    previous: Output = None
    evaluation: ReflectionEvaluation | None = None
    strategy: str = "hybrid"
    temperature: float | None = None
    failed: ReflectionVersion | None = None
    max_tokens: int | None = None
    base: int | None = None


FIRST_ATTEMPT = Attempt()


@dataclass(frozen=True, slots=True)
class RunContext:
    """Show a run, read-only: its task, the advice given, the versions so far, and the attempt under way.

    `iteration` is the 1-based number of the version that is being made or judged; `versions` are those
    before it. With `free_only` an evaluator must not call a model: the budget is spent.
    """

    task: Task
    run_id: str
    iteration: int = 1
    versions: tuple[ReflectionVersion, ...] = ()
    advice: tuple[Advice, ...] = ()
    attempt: Attempt = FIRST_ATTEMPT
    free_only: bool = False
