"""What `--json` prints: runs as plain data, under the names that they have in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.cli.criteria_file import CriteriaFile
    from redraft.core.result import ReflectionResult


def check_document(file: str, given: CriteriaFile, result: ReflectionResult) -> dict[str, Any]:
    """Describe the judgement of a draft."""
    return {
        "file": file,
        "satisfactory": result.final_evaluation.satisfactory,
        "quality_threshold": given.threshold,
        "evaluation": result.final_evaluation,
        "token_usage": result.token_usage,
        "execution_time": result.execution_time,
        "diagnostics": result.diagnostics,
        "error": result.error,
    }


def run_document(result: ReflectionResult) -> dict[str, Any]:
    """Describe a run; `best_version` is the iteration that is returned."""
    return {
        "success": result.success,
        "best_output": result.best_output,
        "best_version": result.history.best_version.iteration,
        "convergence_reason": result.convergence_reason,
        "iterations_used": result.iterations_used,
        "versions": result.history.versions,
        "token_usage": result.token_usage,
        "usage_by_role": result.usage_by_role,
        "execution_time": result.execution_time,
        "run_id": result.run_id,
        "diagnostics": result.diagnostics,
        "error": result.error,
    }
