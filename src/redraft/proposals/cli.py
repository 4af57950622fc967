"""`redraft criteria`: draft criteria from a task and from good and bad examples, and render proposals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.text import Text

from redraft._texts import as_text, counted, short_repr
from redraft.errors import ConfigError
from redraft.loop.criteria_file import add_criteria
from redraft.models.names import model_of
from redraft.proposals.drafts import ModelDrafts, drafts_of_model, drafts_of_task, unchecked_sentences
from redraft.proposals.proposals import Proposal, RecurringFailure, as_python, proposals_for, trial_of
from redraft.proposals.separation import Sample
from redraft.redact.redactor import withheld
from redraft.settings import load_settings, project_folder
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit, emit_json
from redraft.terminal.input import confirm, read_text
from redraft.terminal.tables import PlainTable, bare_table
from redraft.text.characters import visible
from redraft.text.json import load_json
from redraft.text.rows import ROW_FILES, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from redraft.proposals.proposals import Drafter
    from redraft.protocols import ChatModel
    from redraft.stats import Effect
    from redraft.types import QualityCriterion

OUTPUTS = ("output", "answer", "text", "reference", "expected", "target")
TASKS = ("task", "input", "prompt", "question", "query")
"""The columns of a row with an output, and with the task that it answers."""
LONGEST_EXAMPLE = 100

criteria = command_group(default="propose", help="Draft criteria from a task and from examples.")


@criteria.callback()
def _group() -> None:
    """Draft criteria from a task and from examples, checks before judges."""
    # Without a callback, Typer would replace the group by its only command.


@criteria.command()
@handles_errors
async def propose(
    task: Annotated[str, typer.Option("--task", metavar="TEXT", help="The task that outputs answer.")] = "",
    good: Annotated[
        list[str] | None,
        typer.Option(
            "--good", metavar="FILE", help="A good output, or a CSV or JSON-lines file of them; repeatable."
        ),
    ] = None,
    bad: Annotated[
        list[str] | None, typer.Option("--bad", metavar="FILE", help="As --good, for outputs to be refused.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="Have this model draft, too. Default: rules alone."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="YAML", help="Append them to this criteria file, after a question."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    python: Annotated[bool, typer.Option("--python", help="Print them as Python.")] = False,
    as_json: options.Json = False,
) -> None:
    """Draft criteria (the default): checks that the bad outputs do not pass and all good ones do.

    Nothing is written without --write.
    """
    if not task.strip() and not bad:
        raise ConfigError("Give --task, what outputs answer, or --bad and --good, files with outputs.")
    if bad and not good:
        raise ConfigError(
            "Give --good, too: a check must not refuse good outputs, so some are needed to try it on."
        )
    if python and as_json:
        raise ConfigError("Give either --python or --json, not both.")
    drafter = None if model is None else model_of(model, load_settings())
    failure = RecurringFailure(
        "",
        samples_in(bad or (), task),
        samples_in(good or (), task),
        (task,) if task else (),
    )
    proposals = await proposals_of_examples(failure, task, drafter)
    unchecked = unchecked_sentences(task) if drafter is None else []
    if as_json:
        documents = [withheld(proposal.document()) for proposal in proposals]
        emit_json({"criteria": documents, "without_check": withheld(unchecked)})
    elif python:
        emit(as_python([proposal.criterion for proposal in proposals]))
    else:
        CalmConsole().show(proposals_view(proposals) if proposals else Text(nothing_found(failure, drafter)))
        if unchecked:
            CalmConsole(stderr=True).show(unchecked_view(unchecked))
    if write is not None and proposals:
        if yes or confirm(
            f"Append {'it' if len(proposals) == 1 else 'all of them'} to {visible(str(write))}?"
        ):
            added = add_criteria(write, [proposal.criterion for proposal in proposals])
            CalmConsole(stderr=True).say(written(write, [criterion.name for criterion in added]))
        else:
            CalmConsole(stderr=True).say("Nothing was written.")


def nothing_found(failure: RecurringFailure, drafter: ChatModel | None) -> str:
    """A message that nothing is proposed, and what may help."""
    tried_on = "" if not failure.bad else " No check refuses bad outputs and passes all good ones."
    hint = "" if drafter else " --model has a model draft, too, also questions for a judge."
    return f"No criterion is proposed.{tried_on}{hint}"


def unchecked_view(sentences: Sequence[str]) -> Text:
    """Render the sentences of a task that no rule turns into a check."""
    lines = [f"  {visible(withheld(sentence))}" for sentence in sentences]
    hint = (
        "Quote words that must stand in the text as they are, or give --model, which has a model draft, too."
    )
    return Text("\n".join(["No check was made of:", *lines, hint]), QUIET)


def written(path: Path, names: Sequence[str]) -> str:
    """A message on the criteria written into a file."""
    if not names:
        return f"{visible(str(path))} checks that already; nothing was written."
    listed = "; ".join(visible(name) for name in names)
    return f"Written into {visible(str(path))}: {listed}."


async def proposals_of_examples(
    failure: RecurringFailure, task: str, model: ChatModel | None = None
) -> list[Proposal]:
    """Criteria from a task and from examples: checks first, then questions for a judge.

    Criteria that refuse a good example are left out.
    """
    drafts = ModelDrafts()
    if model is not None:
        drafts = await drafts_of_model(model, failure, task=task, questions=True)
    plain: list[tuple[QualityCriterion, Drafter]] = [(check, "task") for check in drafts_of_task(task)]
    if not failure.bad:
        plain.extend((check, "model") for check in drafts.checks)
    proposals: list[Proposal] = []
    for criterion, drafter in plain:
        trial = await trial_of(criterion, failure.bad, failure.good)
        if not trial.refused and not trial.unknown:
            proposals.append(Proposal(criterion, trial, drafter=drafter))
    if failure.bad:
        proposals += await proposals_for(failure, drafts.checks, few=True)
    for criterion in drafts.questions:
        trial = await trial_of(criterion, failure.bad[:JUDGED], failure.good[:JUDGED], model=model)
        if not trial.refused:
            proposals.append(Proposal(criterion, trial, drafter="model"))
    distinct: dict[str, Proposal] = {}
    for proposal in proposals:
        distinct.setdefault(proposal.id, proposal)
    return list(distinct.values())


JUDGED = 5
"""Maximum outputs of each side on which a question for a judge is tried; each takes a call."""


def project_criteria() -> Path:
    """The criteria file of the project: that of `[hook]` in its settings, else criteria.yaml."""
    path = project_folder() / str(load_settings().hook.get("criteria", "criteria.yaml"))
    return Path(os.path.relpath(path))


# --- examples ----------------------------------------------------------------------------------------------


def samples_in(files: Sequence[str], task: str = "") -> list[Sample]:
    """The outputs in files: each row of a CSV or JSON-lines file, and any other file as a whole.

    Raises `ConfigError` with the place of a row without an output.
    """
    samples: list[Sample] = []
    for file in files:
        text = read_text(file)
        if not file.casefold().endswith(ROW_FILES):
            samples.append(Sample(_output(text) if file.casefold().endswith(".json") else text, file, task))
            continue
        for number, row in enumerate(rows_of(text, file), 1):
            place = f"{file}, row {number}"
            output, row_task = (
                _parts(cast("Mapping[str, Any]", row), place) if isinstance(row, dict) else (row, "")
            )
            samples.append(Sample(output, place, row_task or task))
    return samples


def _output(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:  # a bad example may not be JSON
        return text


def _parts(row: Mapping[str, Any], place: str) -> tuple[Any, str]:
    """The output in a row and its task, which may be missing."""
    outputs = [name for name in OUTPUTS if row.get(name) not in (None, "")]
    if len(outputs) != 1:
        which = (
            f"both {outputs[0]!r} and {outputs[1]!r} may be the output" if outputs else "there is no output"
        )
        raise ConfigError(f"{place}: {which}; expected one of the columns {', '.join(OUTPUTS)}.")
    task = next((as_text(row[name]) for name in TASKS if row.get(name)), "")
    return row[outputs[0]], task


# --- output ------------------------------------------------------------------------------------------------


def proposals_view(proposals: Sequence[Proposal]) -> RenderableType:
    """Render proposals: a table of their results, then reasons and examples, if there are any."""
    rows = [
        {
            "id": proposal.id,
            "check": visible(proposal.says),
            "caught": _counted(proposal.trial.caught, proposal.trial.bad, proposal.trial.caught_share),
            "wrongly refused": _counted(
                proposal.trial.refused, proposal.trial.good, proposal.trial.refused_share
            ),
        }
        for proposal in proposals
    ]
    parts: list[RenderableType] = [PlainTable(rows, wrap=("id", "check"))]
    for proposal in proposals:
        if (details := _details(proposal)).row_count:
            parts += ["", Text(proposal.id, "bold"), details]
    return Group(*parts)


def _counted(count: int, of: int, share: Effect | None) -> str:
    if not of:
        return "-"
    figures = "" if share is None else f" ({share.low:.0%} to {share.high:.0%})"
    return f"{count} of {of}{figures}"


def _details(proposal: Proposal) -> Table:
    """Render the reasons for a check, and examples; texts of runs are quoted."""
    trial, held_out = proposal.trial, proposal.trial.held_out
    table = bare_table()
    table.show_header = False
    table.add_column(no_wrap=True, style=QUIET)
    table.add_column(overflow="fold")

    def quoted(text: str) -> str:
        return visible(short_repr(withheld(text), LONGEST_EXAMPLE))

    lines: list[tuple[str, str, str]] = []
    if proposal.failure:
        lines.append(
            ("failed", f"in {counted(trial.bad_runs, 'run')}, such as {quoted(proposal.failure)}", "")
        )
    if proposal.lessons:
        in_vain = (
            f"; told in vain in {counted(proposal.advised_runs, 'run')}" if proposal.advised_runs else ""
        )
        lines.append(("lessons", visible(f"{', '.join(proposal.lessons)}{in_vain}"), ""))
    if held_out is not None:
        caught = f"caught {held_out.caught} of {held_out.bad}"
        refused = f"wrongly refused {held_out.refused} of {held_out.good}"
        how = "drafted from one half of the runs and tried on the other"
        lines.append(("held out", f"{caught}, {refused}, {how}", ""))
    for label, text, style in (
        ("refuses", trial.caught_output, BAD),
        ("passes", trial.passed_output, GOOD),
        ("wrongly", trial.refused_output, BAD),
    ):
        if text:
            lines.append((label, quoted(text), style))
    if (trial.bad or trial.good) and trial.weakness:
        lines.append(("weak", trial.weakness, BAD))
    for label, text, style in lines:
        table.add_row(f"  {label}", Text(text, style))
    return table
