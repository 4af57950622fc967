"""What `redraft check` prints: the verdict, then each criterion with what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from redraft.cli.show import BAD, GOOD, QUIET, SHOWN_ISSUES, error_line, issue_lines
from redraft.cli.withheld import withheld
from redraft.core.summary import render_score, render_usage
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.cli.criteria_file import CriteriaFile
    from redraft.core.criterion import QualityCriterion
    from redraft.core.evaluation import Issue, ReflectionEvaluation
    from redraft.core.result import ReflectionResult

LONGEST_NAME = 30


def verdict(given: CriteriaFile, result: ReflectionResult) -> RenderableType:
    """Render the judgement of a draft."""
    evaluation = withheld(result.final_evaluation)
    parts: list[RenderableType] = [
        _headline(given, evaluation),
        "",
        _criteria(given.criteria, evaluation, "does not apply" if result.error is None else "not judged"),
    ]
    if evaluation.suggestions:
        parts += [
            "",
            Text("Suggestions:"),
            Text("\n".join(f"- {visible(text)}" for text in evaluation.suggestions)),
        ]
    if result.token_usage.requests:
        parts += ["", Text(f"Used: {render_usage(result.token_usage)}.", QUIET)]
    if isinstance(result.error, Exception):
        parts.append(error_line(result))
    return Group(*parts)


def _headline(given: CriteriaFile, evaluation: ReflectionEvaluation) -> Text:
    if evaluation.satisfactory:
        return Text(f"{render_score(evaluation.overall_score)}  met", f"bold {GOOD}")
    if evaluation.overall_score is None:
        return Text("not judged", f"bold {BAD}")
    needs = f", needs {given.threshold:.2f}" if evaluation.overall_score < given.threshold else ""
    return Text(f"{render_score(evaluation.overall_score)}  not met{needs}", f"bold {BAD}")


def _criteria(criteria: Sequence[QualityCriterion], evaluation: ReflectionEvaluation, without: str) -> Table:
    """Render each criterion; `without` says why one has no score."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=4)
    table.add_column(max_width=LONGEST_NAME)
    table.add_column()
    for criterion in criteria:
        issues = [issue for issue in evaluation.issues if issue.criterion == criterion.name]
        table.add_row(*_row(criterion, evaluation, issues, without))
    named = {criterion.name for criterion in criteria}
    if others := [issue for issue in evaluation.issues if issue.criterion not in named]:
        table.add_row("", "", issue_lines(others, SHOWN_ISSUES))
    return table


def _row(
    criterion: QualityCriterion, evaluation: ReflectionEvaluation, issues: Sequence[Issue], without: str
) -> tuple[Text, Text, Text]:
    name = Text(criterion.name)
    if criterion.name not in evaluation.criteria_scores:
        return Text("  - ", QUIET), name, Text(without, QUIET)
    score = evaluation.criteria_scores[criterion.name]
    if score is None:
        return Text("  - ", BAD), name, issue_lines(issues) if issues else Text("not judged")
    met = score >= criterion.threshold
    return Text(render_score(score), GOOD if met else BAD), name, issue_lines(issues)
