"""A finished run in a few lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.result import ReflectionResult
    from redraft.core.usage import TokenUsage
    from redraft.core.version import ReflectionVersion

LEAST_USD = 0.0001

REASONS = {
    "quality_met": "the quality threshold was met",
    "max_iterations": "the maximum of revisions was reached",
    "plateau": "the best version was not beaten any more",
    "oscillation": "scores went up and down without getting better",
    "diminishing": "the last gain was below the improvement threshold",
    "semantic_stability": "revisions no longer changed the output",
    "repeated_issues": "the same issues came back again and again",
    "user_accepted": "the user accepted a version",
    "user_stopped": "the user stopped the run",
    "token_budget": "the token budget was spent",
    "cost_budget": "the cost budget was spent",
    "time_budget": "the time budget was spent",
    "unjudged": "nothing could be judged",
    "error": "a step failed for good",
    "cancelled": "the run was cancelled",
}


def summarize(result: ReflectionResult) -> str:
    """Tell a run: its versions with score and what failed, which is returned, why it stopped, the cost."""
    history = result.history
    lines = [_version_line(version, version is history.best_version) for version in history.versions]
    reason = result.convergence_reason.value
    lines.append(f"Stopped: {REASONS[reason]} ({reason}).")
    met = "satisfactory" if result.success else "not satisfactory"
    lines.append(f"Returned: version {history.best_version.iteration}, {met}.")
    lines.append(f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s.")
    lines += [f"Note ({name}): {text}" for name, text in result.diagnostics.items()]
    if result.error is not None:
        lines.append(f"Error: {type(result.error).__name__}: {result.error}")
    return "\n".join(lines)


def render_score(score: float | None) -> str:
    """Render a score with two digits; one that is not known as a dash."""
    return "  - " if score is None else f"{score:.2f}"


def render_usage(usage: TokenUsage) -> str:
    """Render tokens, calls and cost; what is not known is said to be so."""
    cost = "cost unknown" if usage.cost_usd is None else render_usd(usage.cost_usd)
    failed = f" ({usage.failed_requests} failed)" if usage.failed_requests else ""
    calls = "1 call" if usage.requests == 1 else f"{usage.requests} calls"
    return f"{usage.total_tokens:,} tokens in {calls}{failed}, {cost}"


def render_usd(dollars: float) -> str:
    """Render US dollars with four decimals; what is less than the last of them, but not free, says so."""
    return f"${dollars:.4f}" if dollars == 0 or dollars >= LEAST_USD else f"<${LEAST_USD}"


def _version_line(version: ReflectionVersion, is_best: bool) -> str:
    mark = "*" if is_best else " "
    same = f", same as version {version.repeats}" if version.repeats else ""
    missing = version.evaluation.unjudged
    blind = f", not judged: {', '.join(missing)}" if missing else ""
    score = render_score(version.evaluation.overall_score)
    failed = failures(version.evaluation)
    return f"{mark} version {version.iteration}  {score}  {version.strategy}{same}{blind}{failed}"


def failures(evaluation: ReflectionEvaluation, limit: int = 3) -> str:
    """Say what failed, in a clause that follows a version's score; empty when it is satisfactory."""
    if evaluation.satisfactory:
        return ""
    first = [" ".join(str(issue).split())[:100] for issue in evaluation.issues[:limit]]
    more = len(evaluation.issues) - limit
    if more > 0:
        first.append(f"and {more} more")
    return "  failed: " + "; ".join(first) if first else ""
