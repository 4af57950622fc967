"""Outcome: how a task ended, the subject of a reflection."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from redraft._hints import keyword_hints
from redraft._texts import as_text
from redraft._validation import check_choice, named_error, readable
from redraft.errors import ConfigError, ReflectionDueError, UnfinishedError
from redraft.evaluate.evidence import tool_results
from redraft.evaluate.requirements import missed_requirements
from redraft.lessons.lesson import Content, Decision, Failure, Partial, Procedure
from redraft.types import ConvergenceReason, PlainTask, in_one_line, in_prose, render_score, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redraft.lessons.lesson import Trust
    from redraft.types import (
        Advice,
        Conversation,
        Issue,
        ReflectionEvaluation,
        ReflectionResult,
        ReflectionVersion,
    )

OutcomeStatus = Literal["failed", "partial", "success", "decision"]

CONTENT_TYPES: dict[OutcomeStatus, type[Content]] = {
    "failed": Failure,
    "partial": Partial,
    "success": Procedure,
    "decision": Decision,
}
"""The type of lesson content for each status."""


@dataclass(frozen=True, slots=True)
class OutputReport:
    """A message of a check or the program about an output, verbatim."""

    message: str
    output: str = ""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended.

    Raises `ConfigError` if the task is not a `Task`, or the status is unknown.
    """

    task: PlainTask
    status: OutcomeStatus
    """`failed` and `partial` require a reflection, `success` allows one; `decision` records a choice."""
    output: str = ""
    error: str = ""
    """What went wrong, in the program's words."""
    transcript: str = ""
    """What was done, step by step."""
    tools: tuple[str, ...] = ()
    run_id: str = ""
    trusted: bool = False
    """Whether nothing in it comes from outside (web pages, tool results, users)."""
    doubt: str | None = None
    """Why it may be wrong or come from outside; empty if checks or the program showed it, None if unknown.

    The lesson of an outcome that is neither trusted nor free of doubt is quarantined.
    """
    issues: tuple[str, ...] = ()
    """The problems of `failed_output` if a success took a revision, else of `output`; also in `error`."""
    failed_output: str = ""
    """The output before the revision that led to success."""
    requirements: tuple[str, ...] = ()
    """What the failed criteria ask for, without data of the run."""
    told: tuple[str, ...] = ()
    """The sources of the advice that the run received, such as the ids of lessons."""
    heard: str = ""
    """Tool answers that are too long for the transcript; they are not in the prompt of a reflection."""
    steps: tuple[str, ...] = ()
    """The successful tool calls of the output, if a revision made it a success."""
    reports: tuple[OutputReport, ...] = ()
    """The words of checks and the program on all outputs: the source of facts, else `issues` and `error`."""

    def __post_init__(self) -> None:
        if not isinstance(self.task, PlainTask):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may pass anything)
            raise ConfigError(f"The task of an Outcome must be a Task, got {self.task!r}.")
        check_choice("status", self.status, get_args(OutcomeStatus))

    @property
    def content_type(self) -> type[Content]:
        """The type of content of its lesson."""
        return CONTENT_TYPES[self.status]

    @property
    def trust(self) -> Trust:
        """The trust of its lesson (see `Lesson`)."""
        if self.trusted:
            return "vouched"
        return "untrusted" if self.doubt is None or self.doubt else "checked"

    @property
    def is_only_judged(self) -> bool:
        """Whether only a model judged how it ended."""
        return self.doubt == ONLY_JUDGED

    @property
    def is_mandatory(self) -> bool:
        """Whether it must be reflected on: a task that failed, or succeeded only in part."""
        return self.status in ("failed", "partial")

    @property
    def is_fixed(self) -> bool:
        """Whether an earlier output failed for known reasons, and this one passed."""
        return bool(self.status == "success" and self.failed_output and self.issues)


PARTLY = 0.5
"""Minimum score of a partial success."""
_SHOWN = 600
_ISSUES = 5


def outcome_of(result: ReflectionResult, *, trusted: bool = False) -> Outcome | None:
    """The outcome of a run; None if it has no task, was cancelled, or has no known problem.

    Problems that only hidden criteria report count as unknown, since writers read lessons: a failure would
    disclose the criterion, and its cause would be a guess.

    A run with a satisfactory or accepted version is a success. Otherwise, it is a partial success if its best
    version passed the gates and scored at least 0.5, and a failure if not.
    """
    if result.task is None or (status := _status(result)) is None:
        return None
    failed = _version_before(result) if status == "success" else None
    if failed is not None and _misses_only_hidden(failed.evaluation):
        failed = None
    judged = (failed or result.history.best_version).evaluation.for_writer()
    error = "" if result.error is None else named_error(result.error)
    return Outcome(
        result.task.plain(),
        status,
        output=as_text(result.best_output),
        error=error or "; ".join(map(str, judged.issues[:_ISSUES])),
        transcript="\n".join(_transcript(result)),
        tools=result.task.tools,
        run_id=result.run_id,
        trusted=trusted,
        doubt=doubt_about(result),
        issues=issue_lines(judged),
        failed_output="" if failed is None else as_text(failed.output),
        requirements=tuple(missed_requirements(result.criteria, judged.issues)),
        told=_sources_of(result.advice),
        heard="\n".join(_long_answers(result)),
        steps=() if failed is None else tuple(_steps_of(result.history.best_version)),
        reports=tuple(_reports(result)),
    )


def _reports(result: ReflectionResult) -> Iterator[OutputReport]:
    """The words of checks and the program on each version, as far as the writer may know them."""
    for version in result.history.versions:
        evaluation = version.evaluation
        if not evaluation.criteria_scores and evaluation.usage.requests:
            continue  # a model's opinion
        opinions = {*evaluation.opinions, *evaluation.generated}
        for issue in evaluation.for_writer().issues:
            if issue.criterion not in opinions:
                place = f"{issue.path.rpartition('/')[2]}: " if issue.path else ""
                yield OutputReport(f"{place}{issue}", as_text(version.output))
    if result.error is not None:
        yield OutputReport(str(result.error))


def _version_before(result: ReflectionResult) -> ReflectionVersion | None:
    """The version that failed before the best version passed; the base of the revision, if known."""
    best = result.history.best_version
    if not best.evaluation.satisfactory:
        return None
    failed = [
        version
        for version in result.history.versions
        if version.iteration < best.iteration and not version.evaluation.satisfactory
    ]
    return next(
        (version for version in failed if version.iteration == best.base), failed[-1] if failed else None
    )


def _misses_only_hidden(evaluation: ReflectionEvaluation) -> bool:
    """Whether all missed criteria are hidden from the writer."""
    visible = evaluation.for_writer()
    missed = (
        {issue.criterion for issue in evaluation.issues} if evaluation.unmet is None else evaluation.unmet
    )
    return not visible.issues and not visible.unmet and not _hidden_in(evaluation).isdisjoint(missed)


def _hidden_in(evaluation: ReflectionEvaluation) -> frozenset[str | None]:
    return frozenset(name for name, shown in (evaluation.shown or {}).items() if shown is False)


def issue_lines(evaluation: ReflectionEvaluation) -> tuple[str, ...]:
    """The first issues of an evaluation, each with its criterion and place."""
    return tuple(map(_issue_line, evaluation.issues[:_ISSUES]))


def _issue_line(issue: Issue) -> str:
    place = f" at {issue.path}" if issue.path else f" in line {issue.line}" if issue.line else ""
    if not issue.criterion or (
        not place and issue.startswith((f"{issue.criterion} ", f"{in_prose(issue.criterion)} "))
    ):
        return str(issue)  # it names its criterion
    return f"{issue.criterion.rstrip('.')}{place}: {issue}"


# Matches a choice with its alternative: "I read the pages by their cursor instead of http_get".
_CHOICE = re.compile(
    r"\b(?:I|we)(?:['\u2019](?:ll|ve)|\s+will|\s+have)?\s+(?:\w+ly\s+)?(?:choose|chose|chosen|decided?"
    r"|opt(?:ed)?|pick(?:ed)?|select(?:ed)?|prefer(?:red)?|used?|go|went)\b[^.\n]{0,200}?\b(?:over"
    r"|instead of|rather than)\b[^.\n]{0,200}|^\W*decision\W*:\s*\S[^\n]{0,400}",
    re.IGNORECASE | re.MULTILINE,
)
_WAYS = re.compile(r"\b(?:tool|plan|approach|strategy|method|option|route|algorithm|way)s?\b", re.IGNORECASE)


def decision_of(outcome: Outcome, result: ReflectionResult) -> Outcome | None:
    """The outcome of a run as a decision; None unless the model says that it chose a tool or plan."""
    choice = next(_choices_in(result), "")
    return as_decision(outcome, choice) if choice else None


def as_decision(outcome: Outcome, choice: str = "") -> Outcome:
    """An outcome as a decision to record, with the model's words on it, if there are any."""
    if outcome.status == "decision":
        return outcome
    decided = f"\ndecided: {_short(choice)}" if choice else ""
    return replace(
        outcome,
        status="decision",
        error=outcome.error if outcome.is_mandatory else "",
        issues=outcome.issues if outcome.is_mandatory else (),
        failed_output="",
        transcript=f"{outcome.transcript}{decided}".strip(),
    )


def _choices_in(result: ReflectionResult) -> Iterator[str]:
    """Yield the sentences in which the model says that it chose between tools or plans."""
    for version in result.history.versions:
        parts = list(_parts_of(version.conversation))
        called = {str(part["tool_name"]) for part in parts if part.get("tool_name")}
        tools = called.union(result.task.tools if result.task is not None else ())
        for part in parts:
            if part.get("part_kind") == "text":
                for choice in _CHOICE.finditer(as_text(part.get("content"))):
                    if _WAYS.search(choice[0]) or any(tool in choice[0] for tool in tools):
                        yield choice[0].strip()


def failure_of(
    task: PlainTask, run_id: str, error: Exception, advice: Sequence[Advice] = (), *, trusted: bool = False
) -> Outcome | None:
    """The outcome of a run that raised an error before it had any output.

    Returns None for errors that no lesson can prevent: a wrong configuration, and a due reflection.
    """
    if isinstance(error, ConfigError | ReflectionDueError):
        return None
    talk = error.conversation if isinstance(error, UnfinishedError) else None
    return Outcome(
        task.plain(),
        "failed",
        error=named_error(error),
        transcript="\n".join(_conversation_lines(talk)),
        tools=task.tools,
        run_id=run_id,
        trusted=trusted,
        doubt=TOOLS_ANSWERED if _may_hold_tool_output(task, [talk]) else "",
        told=_sources_of(advice),
    )


def _sources_of(advice: Sequence[Advice]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(piece.source for piece in advice if not piece.is_note))


TOOLS_ANSWERED = "its run had tools, whose results may come from anywhere"
ONLY_JUDGED = "no check showed how its run ended, only the opinion of a model"


def doubt_about(result: ReflectionResult) -> str:
    """Why the outcome of a run may be wrong or come from outside; empty if checks showed it."""
    versions = [each for version in result.history.versions for each in (version, *version.rejected)]
    if result.task is None or _may_hold_tool_output(
        result.task, [version.conversation for version in versions]
    ):
        return TOOLS_ANSWERED
    return (
        "" if result.error is not None or _has_proof(result.history.best_version.evaluation) else ONLY_JUDGED
    )


def _may_hold_tool_output(task: PlainTask, conversations: Sequence[Conversation | None]) -> bool:
    """Whether a tool answered in a conversation, or may have answered in an unknown one."""
    return any(
        bool(task.tools)
        if talk is None
        else any(map(_is_tool_output, _parts_of(talk))) or bool(tool_results(talk))
        for talk in conversations
    )


def _is_tool_output(part: Mapping[str, Any]) -> bool:
    return part.get("part_kind") == "tool-return" or bool(
        part.get("part_kind") == "retry-prompt" and part.get("tool_name")
    )


def _has_proof(evaluation: ReflectionEvaluation) -> bool:
    """Whether checks or the program reached this verdict; tests that a model wrote prove nothing.

    A hidden check does not prove other problems either, and the lesson is about those.
    """
    if not evaluation.criteria_scores:
        return not evaluation.usage.requests
    proven = evaluation.judged.difference(evaluation.generated, evaluation.opinions)
    failed = {issue.criterion for issue in evaluation.for_writer().issues}
    return bool(proven if evaluation.satisfactory else proven & failed)


def score_of(result: ReflectionResult) -> float | None:
    """The score (0..1) of the version that a run returned; None unless it was fully judged."""
    return result.history.best_version.evaluation.comparable_score


def _status(result: ReflectionResult) -> Literal["failed", "partial", "success"] | None:
    reason = result.convergence_reason
    if result.success or reason is ConvergenceReason.USER_ACCEPTED:
        return "success"
    best = result.history.best_version.evaluation
    score = best.overall_score
    is_unknown = best.leaves_nothing_to_revise or _misses_only_hidden(best)
    if reason is ConvergenceReason.CANCELLED or (is_unknown and result.error is None):
        return None
    return "partial" if score is not None and score >= PARTLY and best.gates_passed else "failed"


def _transcript(result: ReflectionResult) -> Iterator[str]:
    """Yield what was done, line by line: the last conversation, the verdicts, and the error."""
    conversations = [version.conversation for version in result.history.versions if version.conversation]
    yield from _conversation_lines(conversations[-1] if conversations else None)
    for version in result.history.versions:
        evaluation = version.evaluation.for_writer()  # a lesson ends up in the prompts of later runs
        issues = "; ".join(map(in_one_line, evaluation.issues[:_ISSUES]))
        # A score that includes a hidden criterion would disclose that the criterion was missed.
        has_hidden = bool(_hidden_in(version.evaluation))
        scored = "" if has_hidden else f" scored {render_score(evaluation.overall_score).strip()}"
        yield f"version {version.iteration} ({version.strategy}){scored}: {_short(issues or 'no issue')}"
    if result.error is not None:
        yield f"The run ended in an error: {type(result.error).__name__}: {_short(readable(result.error))}"


def _conversation_lines(conversation: Conversation | None) -> Iterator[str]:
    """Yield the steps of a conversation, whose messages are JSON data from the agent's framework."""
    for part in _parts_of(conversation):
        content, tool = part.get("content"), part.get("tool_name")
        match part.get("part_kind"):
            case "tool-call":
                yield f"called {tool} with {_short(part.get('args'))}"
            case "tool-return":
                yield f"{tool} {part.get('outcome', 'answered')}: {_short(content)}"
            case "retry-prompt":
                yield f"{tool or 'the answer'} was refused: {_short(content)}"
            case "text":
                yield f"said: {_short(content)}"
            case _:  # the prompt is in the task, and thoughts are not steps
                continue


_ERROR = re.compile(r"\W*(?:\w*(?:Error|Exception)|error|Traceback)\b")


def tool_errors(result: ReflectionResult) -> Iterator[tuple[str, str]]:
    """Yield the errors that tools answered with in a run, each with the name of the tool."""
    for version in result.history.versions:
        for part in _parts_of(version.conversation):
            tool = part.get("tool_name")
            if tool and _is_tool_output(part) and _has_failed(part):
                yield str(tool), _short(part.get("content"))


def _steps_of(version: ReflectionVersion) -> Iterator[str]:
    """Yield the calls of tools by which a version was made, without those that failed."""
    parts = list(_parts_of(version.conversation))
    failed = {part.get("tool_call_id") for part in parts if _is_tool_output(part) and _has_failed(part)}
    for part in parts:
        if part.get("part_kind") == "tool-call" and part.get("tool_call_id") not in failed - {None}:
            yield f"Call {part.get('tool_name')} with {_short(part.get('args'))}"


def _has_failed(part: Mapping[str, Any]) -> bool:
    is_failure = part.get("part_kind") == "retry-prompt" or part.get("outcome") in ("failed", "denied")
    return is_failure or _ERROR.match(as_text(part.get("content"))) is not None


def _long_answers(result: ReflectionResult) -> Iterator[str]:
    """The tools' answers that a transcript cuts."""
    for version in result.history.versions:
        for part in _parts_of(version.conversation):
            text = as_text(part.get("content")) if _is_tool_output(part) else ""
            if len(text) > _SHOWN:
                yield text


def _parts_of(conversation: Conversation | None) -> Iterator[dict[str, Any]]:
    for message in conversation.messages if conversation is not None else ():
        yield from cast("list[dict[str, Any]]", message.get("parts", ()))


def _short(value: object) -> str:
    text = unwrapped(as_text(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


_REMEMBERED = 64


class _Run(NamedTuple):
    run_id: str
    task: str
    error: str


class RaisedErrors:
    """The latest errors that runs raised, to identify the run of an error that a caller has caught.

    Safe to share between tasks and threads.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque(maxlen=_REMEMBERED)

    def add(self, outcome: Outcome) -> None:
        """Remember the outcome of a run that raised an error."""
        self._runs.append(_Run(outcome.run_id, outcome.task.description, outcome.error))

    def run_of(self, outcome: Outcome) -> str:
        """The id of the run with an outcome: its `run_id`, else the last matching run, else "".

        The task of the run may contain more than the task of the outcome, such as earlier attempts.
        """
        if outcome.run_id or not outcome.error:
            return outcome.run_id
        for run in reversed(tuple(self._runs)):
            if run.error == outcome.error and outcome.task.description in run.task:
                return run.run_id
        return ""
