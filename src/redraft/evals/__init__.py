"""Evaluations: whether reflecting pays off, on your own cases."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.evals.cases import EvalCase as EvalCase
    from redraft.evals.cases import cases_of_rows as cases_of_rows
    from redraft.evals.cases import read_cases as read_cases
    from redraft.evals.evaluation import Evaluation as Evaluation
    from redraft.evals.pytest_case import eval_case as eval_case
    from redraft.evals.report import EvaluationReport as EvaluationReport
    from redraft.evals.report import Evaluations as Evaluations
    from redraft.evals.success import SuccessCriteria as SuccessCriteria
    from redraft.evals.success import success_criteria as success_criteria

_PLACES = {
    "cases": ("EvalCase", "cases_of_rows", "read_cases"),
    "evaluation": ("Evaluation",),
    "pytest_case": ("eval_case",),
    "report": ("EvaluationReport", "Evaluations"),
    "success": ("SuccessCriteria", "success_criteria"),
}

_GEPA = "tune texts with GEPA over an Evaluation, as examples/tune_with_gepa.py does"
__all__, __getattr__, __dir__ = lazily(  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
    __name__, _PLACES, removed={"Optimization": _GEPA, "OptimizationReport": _GEPA}
)
