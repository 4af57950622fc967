"""`redraft approve`: answer the questions of workflows and agents in cycles."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from getpass import getuser
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from rich.console import Group

from redraft._texts import counted
from redraft._validation import only
from redraft.approvals import LAST, Approval, Approvals
from redraft.cycles.cli import open_agents
from redraft.errors import ConfigError
from redraft.redact.redactor import redactor_of_environment
from redraft.stores.location import project_store
from redraft.terminal import options
from redraft.terminal.commands import at_database, run_async
from redraft.terminal.console import CalmConsole, deliver, emit_json
from redraft.terminal.exits import ExitCode
from redraft.terminal.input import answer, edited
from redraft.web.people import people_of
from redraft.workflow.cli import parse_json, question_view
from redraft.workflow.history import Workflows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.workflow.history import StoredWorkflow

CHOICES = "[y]es, [n]o, [e]dit, or [q]uit? "


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An unanswered question of a workflow or of an agent's cycle."""

    approval: Approval
    agent: str = ""
    """The name of the agent; empty for a workflow."""


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """A person's answer."""

    approved: bool
    value: Any = ...
    """The approved data; `...` for the data that the question shows."""


@at_database
def approve(
    context: typer.Context,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="A question's id or its beginning, the run or agent that asks it, or 'last'. Default: list "
            "all.",
            show_default=False,
        ),
    ] = None,
    reject: Annotated[bool, typer.Option("--reject", help="Reject instead of approving.")] = False,
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="JSON", help="Approve this value instead of the data shown."),
    ] = None,
    comment: Annotated[
        str, typer.Option("-m", "--message", metavar="TEXT", help="The reason for the answer.")
    ] = "",
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Only store the answer; don't resume the run.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Answer the questions of workflows and agents.

    A workflow asks with `human.approve`; an agent asks for approval of a cycle's plan.

    On a terminal, shows the question and asks, unless --reject or --value answers it. The workflow is
    continued; if a program started it, the Python call that continues it is printed. A cycle continues by
    itself.
    """
    if question is None:
        if reject or value is not None or comment or no_resume:
            raise ConfigError("Say which question to answer: ID; `redraft approve` lists them.")
        deliver_waiting([question.approval for question in run_async(open_questions())], as_json=as_json)
        return
    if reject and value is not None:
        raise ConfigError("--value is the value to approve, so it can't be combined with --reject.")
    choice = AnswerChoice(not reject, ... if value is None else _json_value(value))
    is_asking = sys.stdin.isatty() and not reject and value is None and not as_json
    console = CalmConsole(stderr=True)
    questions = run_async(_find(question))
    for open_question in questions:
        decision = _ask(open_question, console) if is_asking else choice
        if decision is None:
            console.say("Not answered.")
            return
        run_async(_answer(open_question, decision, comment))
        console.say("Approved." if decision.approved else "Rejected.")
    if agent := questions[0].agent:
        continuation = _after_answer(agent)
    else:
        run_id = questions[0].approval.run_id
        workflow = run_async(Workflows().get(run_id))
        if workflow is None or not (no_resume or workflow.is_awaited):
            _continue(context, run_id, workflow, as_json=as_json)
        continuation = workflow.continuation
    console.say(continuation)
    if as_json:
        answered = [open_question.approval.id for open_question in questions]
        emit_json({"answered": answered, "approved": choice.approved, "continuation": continuation})


async def open_questions() -> list[OpenQuestion]:
    """All open questions of workflows and cycles, oldest first."""
    questions = [OpenQuestion(approval) for approval in await Approvals().waiting()]
    async with open_agents() as agents:
        for handle in await agents.handles():
            async with handle:
                questions += [OpenQuestion(approval, handle.name) for approval in await handle.questions()]
    return sorted(questions, key=attrgetter("approval.asked_at"))


async def _find(name: str) -> list[OpenQuestion]:
    """The question with an id, a prefix of an id or a run; for the name of an agent, all its questions."""
    questions = await open_questions()
    if name == LAST:
        matches = questions[-1:]
    else:
        matches = [asked for asked in questions if name in (asked.approval.id, asked.approval.run_id)]
        matches = matches or [asked for asked in questions if name and asked.approval.id.startswith(name)]
    if not matches and (closed := await Approvals().get(name)) is not None:
        return [OpenQuestion(closed)]
    if not matches:
        raise ConfigError(f"There is no open question {name!r}; `redraft approve` lists all open questions.")
    if not (matches[0].agent and all(match.agent == name for match in matches)):
        only(matches, name, "approvals", lambda match: match.approval.id)
    return matches


def _ask(question: OpenQuestion, console: CalmConsole) -> AnswerChoice | None:
    """Show a question and ask for the answer; None leaves it open."""
    approval: Approval = redactor_of_environment().redact_object(question.approval)
    console.show(question_view(approval))
    while True:
        line = answer(CHOICES)
        match line.strip().lower()[:1] if line else "q":
            case "y" | "n" as key:
                return AnswerChoice(key == "y")
            case "e":
                text = json.dumps(question.approval.data, ensure_ascii=False, indent=2)
                return AnswerChoice(True, _json_value(edited(f"{text}\n", "answer.json")))  # noqa: FBT003 (approved)
            case "q":
                return None
            case _:
                continue


async def _answer(question: OpenQuestion, decision: AnswerChoice, comment: str) -> None:
    approval = question.approval
    async with people_of(project_store()) as people:
        by = await people.who("", os.environ.get("REDRAFT_TOKEN", "")) or getuser()
    if not question.agent:
        approved, value = decision.approved, decision.value
        await Approvals().answer(approval, approved=approved, value=value, comment=comment, by=by)
        return
    approval = question.approval
    value = approval.data if decision.value is ... else decision.value
    if not isinstance(value, dict):
        raise ConfigError(f"The parameters of an action are a JSON object, got {value!r}.")
    params = cast("dict[str, Any]", value)
    changes = {name: param for name, param in params.items() if approval.data.get(name, ...) != param}
    verdict = "reject" if not decision.approved else "modify" if changes else "approve"
    async with open_agents() as agents, await agents.get(question.agent) as handle:
        await handle.send_feedback(
            verdict,
            comment,
            action=approval.node,
            changes=changes or None,
            by=by,
        )


def _after_answer(agent: str) -> str:
    """The hint after an answer: the agent's other questions, or how its cycle continues if it needs help."""

    async def state() -> tuple[int, str]:
        async with open_agents() as agents, await agents.get(agent) as handle:
            return len(await handle.questions()), (await handle.summary()).status

    more, status = run_async(state())
    if more:
        return f"{counted(more, 'more question')} of {agent}: redraft approve {shlex.quote(agent)}"
    return f"The cycle continues when {agent} runs again." if status in ("killed", "abandoned") else ""


def _continue(
    context: typer.Context, run_id: str, workflow: StoredWorkflow | None, *, as_json: bool
) -> NoReturn:
    words = ["resume", run_id, *(["--json"] if as_json else [])]
    command = context.find_root().command
    code = ExitCode(command.main(words, standalone_mode=False) or 0)
    # For a program's workflow, `resume` only prints the call; the answer is stored all the same.
    is_printed = workflow is not None and workflow.launch is None and workflow.record.status != "running"
    raise typer.Exit(ExitCode.MET if is_printed and code == ExitCode.USAGE else code)


def _json_value(text: str) -> Any:
    try:
        return parse_json(text)
    except ConfigError as error:
        quoted = shlex.quote(json.dumps(text, ensure_ascii=False))
        raise ConfigError(
            f"--value takes JSON, got {text!r}: {error}. For text, write --value {quoted}."
        ) from error


def deliver_waiting(approvals: Sequence[Approval], *, as_json: bool) -> None:
    """Print the open questions, as lines or as a JSON document."""
    redacted = redactor_of_environment().redact_object(list(approvals))
    if redacted or as_json:
        deliver(Group(*map(question_view, redacted)), {"waiting": redacted}, as_json=as_json)
    else:
        CalmConsole(stderr=True).say("Nothing is waiting for an answer.")
