"""The state of a reflection.loop: what templates and code see during it, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.codec import to_json
from redraft.loop.select import select
from redraft.workflow.judge import errors_of
from redraft.workflow.made import FailedAttempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.result import ReflectionResult
    from redraft.core.version import Output, ReflectionVersion

DOCUMENTED = (
    "success",
    "valid",
    "exhausted",
    "reflection_iteration",
    "reflection_output",
    "reflection_errors",
    "reflection_history",
    "reflection_best",
    "reflection_best_score",
)
"""The keys that a loop returns; an output's own keys of these names stay in `reflection_output`."""


def loop_state(versions: Sequence[ReflectionVersion], output: Output = None) -> dict[str, Any]:
    """Return the state variables during the attempt after `versions`.

    `output` is what is being judged; before there is one, output and errors are those of the last attempt.
    """
    last = versions[-1] if versions else None
    shown = plain(last.output) if output is None and last is not None else plain(output)
    return {
        "reflection_iteration": len(versions) + 1,
        "reflection_output": shown,
        "reflection_errors": errors_of(last.evaluation) if last is not None else [],
        "reflection_history": history_of(versions),
        **_best(versions),
    }


def history_of(versions: Sequence[ReflectionVersion]) -> list[dict[str, Any]]:
    """Return all attempts as the documented entries."""
    return [
        {
            "iteration": version.iteration,
            "output": plain(version.output),
            "score": version.evaluation.overall_score,
            "valid": version.evaluation.satisfactory,
            "errors": errors_of(version.evaluation),
            "suggestions": list(version.evaluation.suggestions),
        }
        for version in versions
    ]


def outcome(result: ReflectionResult) -> dict[str, Any]:
    """Return the documented value of a loop that ended, with the keys of its output beside them."""
    history = result.history
    chosen = history.best_version
    output = plain(chosen.output)
    values: dict[str, Any] = {
        "success": result.success,
        "valid": result.success,
        "reflection_iteration": history.total_iterations + 1,
        "reflection_output": output,
        "reflection_errors": errors_of(chosen.evaluation),
        "reflection_history": history_of(history.versions),
        **_best(history.versions),
    }
    if not result.success:
        values["exhausted"] = True
    if isinstance(output, Mapping):
        own = cast("Mapping[str, Any]", output)
        return {key: value for key, value in own.items() if key not in DOCUMENTED} | values
    return {"result": output} | values


def _best(versions: Sequence[ReflectionVersion]) -> dict[str, Any]:
    made = [version for version in versions if not isinstance(version.output, FailedAttempt)]
    best = select(made, "highest_score") if made else None
    return {
        "reflection_best": None if best is None else plain(best.output),
        "reflection_best_score": (best.evaluation.overall_score or 0.0) if best is not None else 0.0,
    }


def plain(output: Output) -> Any:
    """Return an output as plain JSON data; an attempt that failed has none."""
    return None if isinstance(output, FailedAttempt) else to_json(output)
