"""The state of a reflection.loop: what templates and code see during it, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.loop.select import Selection, highest
from redraft.workflow.made import FailedAttempt
from redraft.workflow.verdict import errors_of, is_candidate

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
    "reflection_reason",
)
"""The keys that a loop returns; an output's own keys of these names stay in `reflection_output`."""


def loop_state(versions: Sequence[ReflectionVersion], output: Output = None) -> dict[str, Any]:
    """Return the state variables during the attempt after `versions`.

    `output` is what is being judged. Before there is one, the last that was made is the current one, and the
    errors are its own; an attempt that made none is told of only while there is no other.
    """
    version = current(versions) or (versions[-1] if versions else None)
    shown = output if output is not None or version is None else version.output
    return {
        "reflection_iteration": len(versions) + 1,
        "reflection_output": plain(shown),
        "reflection_errors": [] if version is None else errors_of(version.evaluation),
        "reflection_history": history_of(versions),
        "reflection_best": None,
        "reflection_best_score": 0.0,
        **_shown_best(versions),
    }


def current(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    """Return the last attempt that made something."""
    return next((one for one in reversed(versions) if not isinstance(one.output, FailedAttempt)), None)


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


def outcome(result: ReflectionResult, selection: Selection, reason: str = "") -> dict[str, Any]:
    """Return the documented value of a loop that ended, with the keys of its output beside them.

    `reason` says why it ended before its attempts were used up, if it did. The best attempt is a candidate,
    whatever the others scored. What has no value is no key, so that `state.get("reflection_best", {})` works.
    """
    history = result.history
    versions = history.versions
    best = None if selection == "latest" else _best(versions) or current(versions)
    chosen = best or history.final_version
    output = plain(chosen.output)
    values: dict[str, Any] = {
        "success": result.success,
        "valid": result.success,
        "reflection_iteration": history.total_iterations + 1,
        "reflection_output": output,
        "reflection_errors": errors_of(chosen.evaluation),
        "reflection_history": history_of(versions),
        **_shown_best(versions),
    }
    if output is None:
        del values["reflection_output"]
    if reason:
        values["reflection_reason"] = reason
    elif not result.success:
        values["exhausted"] = True
    if not _is_candidate(chosen):
        return values
    if isinstance(output, Mapping):
        own = cast("Mapping[str, Any]", output)
        return {key: value for key, value in own.items() if key not in DOCUMENTED} | values
    return {"result": output} | values


def _is_candidate(version: ReflectionVersion) -> bool:
    return not isinstance(version.output, FailedAttempt) and is_candidate(version.evaluation)


def _best(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    candidates = [version for version in versions if _is_candidate(version)]
    return highest(candidates) if candidates else None


def _shown_best(versions: Sequence[ReflectionVersion]) -> dict[str, Any]:
    """Return the keys of the best attempt, and of its score, that have a value."""
    best = _best(versions)
    if best is None:
        return {}
    score = best.evaluation.overall_score
    known = {} if score is None else {"reflection_best_score": score}
    return {"reflection_best": plain(best.output), **known}


def plain(output: Output) -> Any:
    """Return an output as templates and code see it; an attempt that failed has none.

    All others are plain JSON data already, and nobody who sees them can change them: actions get a copy.
    """
    return None if isinstance(output, FailedAttempt) else output
