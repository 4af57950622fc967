"""Runs as text for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._codec import describe_error
from redraft._texts import as_text, counted, has_no_criteria, scored, shortened
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.loop.runs import STATES, after_best, exchange, timeline, why
from redraft.loop.version_diff import field_text
from redraft.terminal.console import BAD, GAP, GOOD, QUIET, sparkline, withheld
from redraft.terminal.word_diff import changes, marked
from redraft.text.characters import visible
from redraft.text.diff import ABSENT
from redraft.types import REASONS, ConvergenceReason, render_score, render_usage, render_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from redraft.loop.criteria_file import CriteriaFile
    from redraft.loop.record import RunRecord
    from redraft.loop.runs import AfterBest, Exchange, KeptRun, TimelineStep
    from redraft.loop.version_diff import VersionDiff
    from redraft.text.diff import FieldChange
    from redraft.types import Issue, ReflectionEvaluation, ReflectionResult, ReflectionVersion, TokenUsage


SHOWN_ISSUES = 4
WIDE = 110
"""The terminal width from which a table of runs has room for all its columns."""
LONGEST_CURVE = 8
LONGEST_WHO = 18
LEAST_TASK = 10
NUMBERS = ("n", "cost", "s")
MINUTE, HOUR, DAY = 60, 3600, 86400
LONGEST_TASK = 400
LONGEST_NAME = 30
VERSION_WIDTH = 9
INDENT = (0, 0, 0, 2)
BELOW = "<"
MARKS = {
    True: ("addressed    ", GOOD),
    False: ("not addressed", BAD),
    None: ("not known    ", QUIET),
}


def version_row(
    version: ReflectionVersion, *, best: int | None = None, label: str = "", indent: int = 0
) -> RenderableType:
    """Render a version as a row: number, score, strategy, what failed. `best` is the iteration to mark."""
    evaluation = withheld(version.evaluation)
    row = Table.grid(padding=(0, 2, 0, 0))
    cells: list[str | Text] = []
    if label:
        row.add_column(no_wrap=True)
        cells.append(label)
    row.add_column(width=9 if best is None else 3, no_wrap=True)
    row.add_column(width=4)
    row.add_column(width=13, no_wrap=True)
    row.add_column()
    mark = "*" if version.iteration == best else " "
    number = f"version {version.iteration}" if best is None else f"{mark} {version.iteration}"
    cells += [
        number,
        score_text(evaluation),
        version.strategy.replace("_", " "),
        _verdict(version, evaluation),
    ]
    row.add_row(*cells)
    return Padding(row, (0, 0, 0, indent))


def score_text(evaluation: ReflectionEvaluation) -> Text:
    """Render the overall score, coloured by the verdict."""
    style = GOOD if evaluation.satisfactory else "" if evaluation.overall_score is None else BAD
    return Text(render_score(evaluation.overall_score), style)


def _verdict(version: ReflectionVersion, evaluation: ReflectionEvaluation) -> Text:
    if version.repeats is not None:
        return Text(f"the same as version {version.repeats}", QUIET)
    if evaluation.satisfactory:
        return Text("all criteria met", GOOD)
    return issue_lines(evaluation.issues) if evaluation.issues else Text("not good enough")


def issue_lines(issues: Sequence[Issue], limit: int = SHOWN_ISSUES) -> Text:
    """Render up to `limit` issues, one a line, each with its location."""
    lines = [issue_line(issue) for issue in issues[:limit]]
    if len(issues) > limit:
        lines.append(Text(f"and {len(issues) - limit} more", QUIET))
    return Text("\n").join(lines)


def issue_line(issue: Issue) -> Text:
    """Render an issue in one line, with its location."""
    message = " ".join(issue.message.split())
    place = issue.path or (f"line {issue.line}" if issue.line is not None else "")
    if place and not message.startswith(f"{place}: "):
        return Text.assemble((f"{visible(place)}: ", QUIET), visible(message))
    return Text(visible(message))


def ending(result: ReflectionResult) -> Text:
    """Render why a run stopped, what it returned, what it used, and its notes."""
    best = result.history.best_version
    reason = result.convergence_reason.value
    met = "meets the criteria" if result.success else "does not meet the criteria"
    lines = [
        f"Stopped: {REASONS[reason]}.",
        f"Returned: version {best.iteration}, which {met}.",
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s.",
        *(f"Note: {visible(withheld(text))}" for text in result.diagnostics.values()),
    ]
    return Text("\n".join(lines)).append_text(error_line(result))


def error_line(result: ReflectionResult) -> Text:
    """Render the error that ended a run on its own line; empty for a cancelled run."""
    if not isinstance(result.error, Exception):
        return Text()
    return Text(f"\nError: {visible(withheld(describe_error(result.error)))}", BAD)


def check_document(file: str, given: CriteriaFile, result: ReflectionResult) -> dict[str, Any]:
    """Return the evaluation of a draft as plain data."""
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
    """Return a result as plain data; `best_version` is the iteration that was returned."""
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


def check_filters(status: str | None, reason: str | None) -> None:
    """Raise `ConfigError` for an unknown status or reason."""
    reasons = [one.value for one in ConvergenceReason]
    for option, given, known in (("--status", status, STATES), ("--reason", reason, reasons)):
        if given is not None and given not in known:
            raise ConfigError(f"Unknown {option} {given!r}; {nearest(given, known)}")


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row; `n` is the number of versions, or of nodes in a workflow."""

    run_id: str
    started_at: datetime
    who: str
    task: str
    stopped: Text
    n: int
    score: str
    curve: str
    cost: str
    seconds: float


def run_row(record: RunRecord) -> Row:
    """Return the row of a run."""
    return Row(
        record.run_id,
        record.started_at,
        record.origin.name,
        record.task.description,
        outcome(record),
        record.revisions + 1 if record.versions else 0,
        first_to_best(record),
        curve(record, LONGEST_CURVE),
        cost(record.usage),
        record.execution_time,
    )


def run_table(found: Sequence[Row], width: int, *, is_utf8: bool = True) -> Table:
    """Render runs as a table; a narrow terminal gets fewer columns."""
    columns = {"run": [row.run_id for row in found]}
    if width >= WIDE:
        columns["when"] = [when(row.started_at) for row in found]
        columns["who"] = [shortened(visible(row.who), LONGEST_WHO) for row in found]
    after: dict[str, Sequence[str | Text]] = {
        "stopped": [row.stopped for row in found],
        "n": [str(row.n) for row in found],
        "score": [row.score for row in found],
    }
    if is_utf8:
        after[""] = [row.curve for row in found]
    if width >= WIDE:
        after |= {"cost": [row.cost for row in found]}
        after |= {"s": [f"{row.seconds:.1f}" for row in found]}
    for least in ("", "n"):
        if _room(width, columns, after) < LEAST_TASK:
            after.pop(least, None)
    room = max(LEAST_TASK, _room(width, columns, after))
    columns["task"] = [shortened(visible(row.task), room) for row in found]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in (*columns, *after):
        table.add_column(name, no_wrap=True, justify="right" if name in NUMBERS else "left")
    for cells in zip(*columns.values(), *after.values(), strict=True):
        table.add_row(*cells)
    return table


def _room(width: int, *columns: Mapping[str, Sequence[str | Text]]) -> int:
    """Return the width that these columns leave for another one."""
    widths = [max(map(len, (name, *cells))) + GAP for each in columns for name, cells in each.items()]
    return width - sum(widths)


def curve(record: RunRecord, longest: int | None = None) -> str:
    """Render the scores of a run's versions as a sparkline."""
    return sparkline([version.evaluation.overall_score for version in record.versions], longest)


def no_runs(place: str, *, filtered: bool) -> Text:
    """Render that no runs were found, where, and how to get some."""
    if filtered:
        return Text(f"No run in {place} matches.")
    return Text(
        f"No runs are kept in {place} yet.\n"
        "Every run of an Agent and of check, revise and demo is kept: try `redraft demo`."
    )


def outcome(record: RunRecord) -> Text:
    """Render the reason a run stopped, or its state if no rule stopped it."""
    best = record.version(record.best)
    if record.state != "finished" or record.reason is None:
        return state_text(record.state)
    return Text(record.reason.value, GOOD if best is not None and best.evaluation.satisfactory else "")


def state_text(state: str) -> Text:
    """Render the state of a run or workflow."""
    return Text(state, BAD if state in ("failed", "killed", "damaged") else "")


def first_to_best(record: RunRecord) -> str:
    """Render the scores of the first and the best version; a single score if they are the same version."""
    best = record.version(record.best)
    if best is None:
        return ""
    first = render_score(record.versions[0].evaluation.overall_score)
    if best.iteration == record.versions[0].iteration:
        return first
    return f"{first} > {render_score(best.evaluation.overall_score)}"


def cost(usage: TokenUsage) -> str:
    """Render a cost; `?` if it is unknown."""
    known = usage.cost_usd
    return "?" if known is None else render_usd(known)


def when(at: datetime, now: datetime | None = None) -> str:
    """Render how long ago a time was; by its date after a week."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if seconds < MINUTE:
        return "just now"
    for unit, length, most in (("min", MINUTE, HOUR), ("h", HOUR, DAY), ("d", DAY, 7 * DAY)):
        if seconds < most:
            return f"{int(seconds / length)} {unit} ago"
    return f"{at.astimezone():%Y-%m-%d}"


def run_view(run: KeptRun, width: int, *, is_utf8: bool = True) -> RenderableType:
    """Render a run."""
    parts: list[RenderableType] = [*_head(run, is_utf8=is_utf8)]
    if run.record.versions:
        parts += ["", *score_tables(run, width)]
    parts += [*_failed(run), *_advice(run), *_reflections(run), *_usage(run), *_notes(run)]
    return Group(*parts)


def title(run: KeptRun) -> Text:
    """Render the id, the agent and the start of a run in one line."""
    record = run.record
    who = visible(record.origin.name) or record.origin.surface
    model = f" with {visible(record.origin.model)}" if record.origin.model else ""
    line = Text.assemble((record.run_id, "bold"), f"  {who}{model}, {when(record.started_at)}")
    if record.parent:
        line.append(f", inside {record.parent}", QUIET)
    return line


def task_text(run: KeptRun) -> Text:
    """Render the task, shortened."""
    text = visible(run.record.task.description.strip())
    short = text if len(text) <= LONGEST_TASK else f"{text[:LONGEST_TASK].rstrip()} ..."
    return Text(short, QUIET)


def _head(run: KeptRun, *, is_utf8: bool) -> list[RenderableType]:
    record, reason = run.record, why(run)
    best = record.version(record.best)
    lines: list[RenderableType] = [title(run), Padding(task_text(run), INDENT), ""]
    if best is not None and has_no_criteria(best):
        lines.append(Text.assemble("Best: ", (f"version {best.iteration}", "bold"), ", which nothing judged"))
    elif best is not None:
        met = "meets the criteria" if best.evaluation.satisfactory else "does not meet the criteria"
        line = Text.assemble(
            "Best: ",
            (
                f"version {best.iteration}, {render_score(best.evaluation.overall_score).strip()}",
                f"bold {GOOD}" if best.evaluation.satisfactory else "bold",
            ),
            f", which {met}",
        )
        lines.append(line.append(f"   {curve(record)}") if is_utf8 else line)
    lines.append(
        Text.assemble(
            "Stopped: " if record.reason else "State: ", f"{reason.headline}. ", visible(reason.detail)
        )
    )
    return lines


def score_tables(run: KeptRun, width: int) -> list[RenderableType]:
    """Render a table of criteria by versions, split into several if there are too many versions."""
    versions = run.record.versions
    names = max((len(name) for name in (*run.criteria, "how it was made")), default=0)
    fits = max(1, (width - min(names, LONGEST_NAME) - 8) // VERSION_WIDTH)
    parts: list[RenderableType] = []
    for at in range(0, len(versions), fits):
        parts += [_score_table(run, versions[at : at + fits])]
    legend = "* the best version"
    if not all(map(has_no_criteria, versions)):
        legend += f"   {BELOW} below its threshold   - could not be judged"
    return [*parts, Text(legend, QUIET)]


def _score_table(run: KeptRun, versions: Sequence[ReflectionVersion]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
    table.add_column("", max_width=LONGEST_NAME, overflow="fold")
    table.add_column("needs", justify="right", no_wrap=True, style=QUIET)
    for version in versions:
        mark = "*" if version.iteration == run.record.best else " "
        header = Text(f"{mark}{version.iteration}", "bold" if mark == "*" else QUIET)
        table.add_column(header, justify="left", no_wrap=True, min_width=6)
    overall = run.record.options.get("quality_threshold")
    table.add_row(
        Text("score", "bold"),
        render_score(overall),
        *(_score(version.evaluation.overall_score, overall, bold=True) for version in versions),
    )
    for name in run.criteria:
        least = run.thresholds.get(name)
        table.add_row(
            visible(name),
            render_score(least),
            *(
                _score(version.evaluation.criteria_scores[name], least)
                if name in version.evaluation.criteria_scores
                else Text("", QUIET)
                for version in versions
            ),
        )
    table.add_row(
        Text("how it was made", QUIET),
        "",
        *(Text(_how(version), QUIET, overflow="fold") for version in versions),
    )
    return table


def _score(score: float | None, least: float | None, *, bold: bool = False) -> Text:
    if score is None:
        return Text("-", BAD)
    below = least is not None and score < least
    style = (BAD if below else GOOD) + (" bold" if bold else "")
    return Text(f"{score:.2f} {BELOW}" if below else f"{score:.2f}", style)


def _how(version: ReflectionVersion) -> str:
    if version.repeats is not None:
        return f"as {version.repeats}"
    return version.strategy.replace("_", "\n", 1)


def _failed(run: KeptRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for version in run.record.versions:
        if version.evaluation.issues and version.repeats is None:
            lines = issue_lines(version.evaluation.issues)
            parts += [Text(f"version {version.iteration}"), Padding(lines, INDENT)]
    return ["", Text("What failed", "bold"), *parts] if parts else []


def _advice(run: KeptRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for advice in run.record.advice:
        why_chosen = f", {visible(advice.reason)}" if advice.reason else ""
        source = Text(f"{visible(advice.source)}{why_chosen}, {advice.tokens} tokens", QUIET)
        parts += [source, Padding(Text(visible(advice.text)), INDENT)]
    return ["", Text("Advice it was given", "bold"), *parts] if parts else []


def _reflections(run: KeptRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for one in run.record.reflections:
        at = f"version {one.iteration}, step {one.step}" if one.step else f"version {one.iteration}"
        parts.append(Text(f"{one.trigger}, {at}", QUIET))
        parts.append(Padding(Text(visible(one.text or one.problem), "" if one.text else BAD), INDENT))
    return ["", Text("Looks back", "bold"), *parts] if parts else []


def _usage(run: KeptRun) -> list[RenderableType]:
    record = run.record
    table = Table.grid(padding=(0, 2, 0, 0))
    for role, usage in record.usage_by_role.items():
        table.add_row(role, render_usage(usage))
    table.add_row("together", f"{render_usage(record.usage)}, {record.execution_time:.1f} s")
    if spent := after_best(run):
        table.add_row("after the best", after_text(spent))
    return ["", Text("Used", "bold"), table]


def after_text(spent: AfterBest) -> str:
    """Render what was spent after the best version."""
    if not spent.versions and not (spent.usage and spent.usage.requests):
        return "nothing"
    used = "usage not known" if spent.usage is None else render_usage(spent.usage)
    return f"{used}, {spent.seconds:.1f} s"


def _notes(run: KeptRun) -> list[RenderableType]:
    notes = [Text(f"Note: {visible(text)}") for text in run.record.diagnostics.values()]
    return ["", *notes] if notes else []


def diff_view(diff: VersionDiff, *, coloured: bool) -> RenderableType:
    """Render two versions' scores, what changed, and which issues were addressed."""
    older, newer = diff.older, diff.newer
    parts: list[RenderableType] = [
        Text(
            f"version {older.iteration} ({scored(older)}) > version {newer.iteration} ({scored(newer)})",
            "bold",
        ),
        Text(_made(newer), QUIET),
        "",
    ]
    if older is newer:
        return Group(
            *parts, Text("Both are the same version; `redraft diff RUN first last` compares others.")
        )
    if diff.is_same:
        parts.append(Text("The outputs are the same."))
    elif diff.fields is not None:
        parts += [_field(change, coloured=coloured) for change in diff.fields]
    else:
        parts.append(changes(as_text(older.output), as_text(newer.output), coloured=coloured, longest=None))
    return Group(*parts, *_points(diff))


def _made(newer: ReflectionVersion) -> str:
    base = "" if newer.base is None else f", from version {newer.base}"
    return f"how version {newer.iteration} was made: {newer.strategy.replace('_', ' ')}{base}"


def _field(change: FieldChange, *, coloured: bool) -> Text:
    line = Text.assemble((visible(change.path) or "(the whole)", "bold"), ": ")
    if change.old is not ABSENT:
        line.append_text(marked("-", visible(field_text(change.old)), coloured=coloured))
    if change.old is not ABSENT and change.new is not ABSENT:
        line.append(" ")
    if change.new is not ABSENT:
        line.append_text(marked("+", visible(field_text(change.new)), coloured=coloured))
    return line


def _points(diff: VersionDiff) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if diff.critique.points:
        parts += ["", Text(f"What was said about version {diff.older.iteration}")]
        for point in diff.critique.points:
            mark, style = MARKS[point.addressed]
            line = Text.assemble((mark, style), "  ", issue_line(point.issue))
            parts.append(Padding(line, INDENT))
    if diff.critique.new:
        parts += ["", Text(f"What only version {diff.newer.iteration} has")]
        parts += [Padding(issue_line(issue), INDENT) for issue in diff.critique.new]
    return parts


def why_view(run: KeptRun) -> RenderableType:
    """Render the rule, its numbers, what the best version misses, and what was spent after it."""
    record, reason = run.record, why(run)
    best = record.version(record.best)
    parts: list[RenderableType] = [
        title(run),
        "",
        Text.assemble((reason.rule, "bold"), f": {reason.headline}."),
        Padding(Text(visible(reason.detail)), INDENT),
    ]
    if best is not None:
        parts += ["", _returned(run)]
        parts += [Padding(Text(f"- {visible(lack)}", BAD), INDENT) for lack in reason.short_of]
    if spent := after_best(run):
        later = f" ({counted(spent.versions, 'version')})" if spent.versions else ""
        parts.append(Text(f"Spent after it{later}: {after_text(spent)}."))
    if record.state in ("killed", "failed", "cancelled"):
        parts += ["", Text(f"redraft resume {record.run_id} goes on with it.", QUIET)]
    if record.state == "unknown":
        parts += ["", Text(f"redraft resume {record.run_id} --force goes on with it.", QUIET)]
    return Group(*parts)


def _returned(run: KeptRun) -> Text:
    best = run.record.version(run.record.best)
    if best is None:
        return Text()
    verb = "Returned" if run.record.reason else "Best so far"
    if has_no_criteria(best):
        return Text(f"{verb}: version {best.iteration}, which nothing judged.")
    line = Text(f"{verb}: version {best.iteration} ({scored(best)}), which ")
    if best.evaluation.satisfactory:
        return line.append("meets the criteria.", GOOD)
    return line.append("falls short:" if why(run).short_of else "does not meet the criteria.")


def prompts_view(run: KeptRun) -> RenderableType:
    """Render the prompts and replies of all calls, in order."""
    parts: list[RenderableType] = []
    for entry in timeline(run):
        for step in entry.inner:
            parts += _exchange(entry, exchange(step))
    if not parts:
        parts = [
            "",
            Text("No model was called in this run, or its prompts and replies were not kept.", QUIET),
        ]
    return Group(*parts)


def _exchange(entry: TimelineStep, said: Exchange) -> list[RenderableType]:
    version = "" if entry.version is None else f"version {entry.version}, "
    used = "" if said.usage is None else f", {render_usage(said.usage)}"
    head = Text(f"{version}{entry.step.name}: {said.name}, {said.seconds:.1f} s{used}", "bold")
    parts: list[RenderableType] = ["", head]
    for turn in said.asked:
        parts += [Text(f"--- {turn.role}", QUIET), Text(visible(turn.text))]
    for turn in said.answered:
        role = "reply" if turn.role == "assistant" else turn.role
        parts += [Text(f"=== {role}", BAD if turn.role == "error" else GOOD), Text(visible(turn.text))]
    return parts
