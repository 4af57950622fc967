"""ReflectionHistory and ReflectionResult: a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.reflection import Reflection
from redraft.core.task import Advice, Task
from redraft.core.usage import TokenUsage
from redraft.core.version import Output, ReflectionVersion


class ConvergenceReason(StrEnum):
    """Say why a run stopped. Specification 3.3, and what its tables leave without a value."""

    QUALITY_MET = "quality_met"
    MAX_ITERATIONS = "max_iterations"
    PLATEAU = "plateau"
    OSCILLATION = "oscillation"
    DIMINISHING_RETURNS = "diminishing"
    SEMANTIC_STABILITY = "semantic_stability"
    REPEATED_ISSUES = "repeated_issues"
    USER_ACCEPTED = "user_accepted"
    USER_STOPPED = "user_stopped"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 (the specification's value, no secret)
    COST_BUDGET = "cost_budget"
    TIME_BUDGET = "time_budget"
    UNJUDGED = "unjudged"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class ReflectionHistory:
    """Hold the versions of a finished run; `total_iterations` counts revisions. Specification 2.7.1."""

    versions: tuple[ReflectionVersion, ...]
    best_version: ReflectionVersion
    final_version: ReflectionVersion
    convergence_reason: ConvergenceReason
    total_iterations: int


@dataclass(slots=True)
class ReflectionResult:
    """Hold a finished run: what to use, why it stopped, what it cost. Specification 3.2.

    `best_output` is the one to use; `final_output` is the last one made. `success` says whether the returned
    version is satisfactory. `final_evaluation` is the last version's. `iterations_used` counts revisions.
    `usage_by_role` splits `token_usage` into `generation`, `evaluation`, `revision` and `reflection`.
    `diagnostics` maps the name of each thing that a person should know about this run to a sentence. `error`
    is the exception that ended the run, if one did. `reflections` are the looks back in the middle of the
    run. `execution_time` is in seconds. `task` is what was asked; None in a result that no run made.
    """

    success: bool
    final_output: Output
    best_output: Output
    final_evaluation: ReflectionEvaluation
    history: ReflectionHistory
    iterations_used: int
    convergence_reason: ConvergenceReason
    token_usage: TokenUsage
    execution_time: float
    run_id: str = ""
    usage_by_role: Mapping[str, TokenUsage] = field(default_factory=dict[str, "TokenUsage"])
    diagnostics: Mapping[str, str] = field(default_factory=dict[str, str])
    advice: tuple[Advice, ...] = ()
    error: BaseException | None = None
    reflections: tuple[Reflection, ...] = ()
    task: Task | None = None

    def summary(self) -> str:
        """Tell the run in a few lines: versions with scores, what failed, cost, and why it stopped."""
        from redraft.core.summary import summarize  # noqa: PLC0415 (only who prints it pays for it)

        return summarize(self)
