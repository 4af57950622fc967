"""`redraft approve`: answer what workflows and agents in cycles ask people."""

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

    from redraft.web.people import Person
    from redraft.workflow.history import StoredWorkflow

CHOICES = "[y]es, [n]o, [e]dit, or [q]uit? "


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for an answer, of an agent's cycle or of a workflow."""

    approval: Approval
    agent: str = ""
    """The name of the agent; empty for a workflow."""


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """How a person answers: `value` is the approved data, `...` for what the question shows."""

    approved: bool
    value: Any = ...


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
    """Answer what workflows and agents ask people.

    A workflow asks with `human.approve`, an agent about the plan of a cycle.

    On a terminal, shows the question and asks, unless --reject or --value answers it. The workflow is
    continued; if a program started it, the Python call that continues it is printed. A cycle continues by
    itself.
    """
    if question is None:
        if reject or value is not None or comment or no_resume:
            raise ConfigError("Say which question to answer: ID; `redraft approve` lists them.")
        deliver_waiting([one.approval for one in run_async(open_questions())], as_json=as_json)
        return
    if reject and value is not None:
        raise ConfigError("--value is the value to approve, so it can't be combined with --reject.")
    given = AnswerChoice(not reject, ... if value is None else _json_value(value))
    is_asking = sys.stdin.isatty() and not reject and value is None and not as_json
    console = CalmConsole(stderr=True)
    asked = run_async(_find(question))
    for one in asked:
        decision = _ask(one, console) if is_asking else given
        if decision is None:
            console.say("Not answered.")
            return
        run_async(_answer(one, decision, comment))
        console.say("Approved." if decision.approved else "Rejected.")
    if agent := asked[0].agent:
        after = _after_answer(agent)
    else:
        kept = run_async(Workflows().get(asked[0].approval.run_id))
        if kept is None or not (no_resume or kept.is_awaited):
            _continue(context, asked[0].approval.run_id, kept, as_json=as_json)
        after = kept.continuation
    console.say(after)
    if as_json:
        answered = [one.approval.id for one in asked]
        emit_json({"answered": answered, "approved": given.approved, "continuation": after})


async def open_questions() -> list[OpenQuestion]:
    """Return all questions that can be answered, of workflows and of cycles, the oldest first."""
    found = [OpenQuestion(one) for one in await Approvals().waiting()]
    async with open_agents() as agents:
        for handle in await agents.handles():
            async with handle:
                found += [OpenQuestion(one, handle.name) for one in await handle.questions()]
    return sorted(found, key=attrgetter("approval.asked_at"))


async def _find(name: str) -> list[OpenQuestion]:
    """Return the question of this name; all of an agent's plan for the agent's name."""
    waiting = await open_questions()
    if name == LAST:
        found = waiting[-1:]
    else:
        found = [one for one in waiting if name in (one.approval.id, one.approval.run_id)]
        found = found or [one for one in waiting if name and one.approval.id.startswith(name)]
    if not found and (closed := await Approvals().get(name)) is not None:
        return [OpenQuestion(closed)]
    if not found:
        raise ConfigError(f"There is no open question {name!r}; `redraft approve` lists those there are.")
    if not (found[0].agent and all(one.agent == name for one in found)):
        only(found, name, "approvals", lambda one: one.approval.id)
    return found


def _ask(question: OpenQuestion, console: CalmConsole) -> AnswerChoice | None:
    """Show a question, and ask for the answer; None to leave it open."""
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
    await _answer_agent(question, decision, comment, by)


async def _answer_agent(
    question: OpenQuestion, decision: AnswerChoice, comment: str, by: str | Person
) -> None:
    approval = question.approval
    value = approval.data if decision.value is ... else decision.value
    if not isinstance(value, dict):
        raise ConfigError(f"The parameters of an action are a JSON object, got {value!r}.")
    params = cast("dict[str, Any]", value)
    changes = {key: new for key, new in params.items() if approval.data.get(key, ...) != new}
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
    """What is left to decide on of an agent, else how its cycle continues if it does not by itself."""

    async def state() -> tuple[int, str]:
        async with open_agents() as agents, await agents.get(agent) as handle:
            return len(await handle.questions()), (await handle.summary()).status

    left, status = run_async(state())
    if left:
        return f"{counted(left, 'more question')} of {agent}: redraft approve {shlex.quote(agent)}"
    return f"The cycle continues when {agent} runs again." if status in ("killed", "abandoned") else ""


def _continue(context: typer.Context, run_id: str, kept: StoredWorkflow | None, *, as_json: bool) -> NoReturn:
    words = ["resume", run_id, *(["--json"] if as_json else [])]
    command = context.find_root().command
    code = ExitCode(command.main(words, standalone_mode=False) or 0)
    # A program's workflow: `resume` can only print the call, but what was asked of this command is done.
    is_printed = kept is not None and kept.launch is None and kept.record.status != "running"
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
    """Print the questions that wait for an answer, as lines or as a JSON document."""
    found = redactor_of_environment().redact_object(list(approvals))
    if found or as_json:
        deliver(Group(*map(question_view, found)), {"waiting": found}, as_json=as_json)
    else:
        CalmConsole(stderr=True).say("Nothing is waiting for an answer.")
