"""Tests of a workflow: cases in YAML, each with scripted replies and expectations, without a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from unittest.mock import patch

from pydantic import Field

from redraft._codec import describe_error
from redraft._texts import as_text, counted, short_repr
from redraft._validation import nearest
from redraft.approvals import Approval, HumanAnswer
from redraft.errors import ConfigError, InvalidSchemaError, ModelError, WorkflowError
from redraft.models.provider import ProviderModel
from redraft.models.testing import ScriptedModel
from redraft.text.schema import Schema
from redraft.text.spec_file import Strict
from redraft.workflow.run import NodeFinished
from redraft.workflow.spec import APPROVE, HTTP, WorkflowFile, plain_name
from redraft.workflow.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redraft.protocols import ChatModel, ChatRequest
    from redraft.text.yaml import KeyPath
    from redraft.workflow.run import WorkflowEvent, WorkflowResult

TOOL, ERROR = "$tool", "$error"
"""The keys of a reply that calls a tool, and of a reply that fails."""


class SpecialReply(Strict):
    """A scripted reply that calls a tool, or that fails."""

    tool: str = Field("", alias=TOOL)
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    error: str = Field("", alias=ERROR)


class Expected(Strict):
    """What a case expects of a run."""

    state: dict[str, Any] = Field(default_factory=dict[str, Any])
    outputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    nodes: list[str] | None = None
    prompts: list[str] | None = None
    error: str | None = None


class WorkflowCase(Strict):
    """One run of a workflow: its inputs, scripted results of models, actions and tools, and expectations."""

    name: str = Field(min_length=1)
    inputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    env: dict[str, str] = Field(default_factory=dict[str, str])
    replies: list[Any] | dict[str, list[Any]] = Field(default_factory=list[Any])
    actions: dict[str, Any] = Field(default_factory=dict[str, Any])
    tools: dict[str, Any] = Field(default_factory=dict[str, Any])
    expect: Expected


class ScriptedAnswer(Strict):
    """The scripted answer of a person; without a `value`, the answer has the data of the question."""

    approved: bool
    value: Any = None
    comment: str = ""
    by: str = "case"
    timed_out: bool = False


class CasesSpec(Strict):
    """A file of cases."""

    cases: list[WorkflowCase] = Field(min_length=1)


class CasesFile(WorkflowFile):
    """The text and the name of a file of cases."""

    expected: ClassVar[str] = "a file of cases must be a mapping with 'cases'"


def default_cases_path(file: str) -> Path:
    """Path of the cases of a workflow file: `NAME.test.yaml` next to `NAME.yaml`."""
    path = Path(file)
    return path.with_name(f"{path.stem}.test.yaml")


def read_cases(path: Path) -> list[WorkflowCase]:
    """Read a file of cases; raises `WorkflowError` with all its mistakes."""
    source = CasesFile.read(path)
    document = source.document()
    mistakes = source.mistakes_in(CasesSpec, document)
    if not mistakes:
        cases = CasesSpec.model_validate(document).cases
        names = [case.name for case in cases]
        mistakes = [
            (("cases", index, "name"), f"there are two cases named {name!r}; give each a name of its own")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
        mistakes += [
            mistake for index, case in enumerate(cases) for mistake in _mistakes_in_case(case, index, source)
        ]
        if not mistakes:
            return cases
    raise WorkflowError.of([source.error(path, what) for path, what in mistakes])


def _mistakes_in_case(case: WorkflowCase, at: int, source: CasesFile) -> Iterator[tuple[KeyPath, str]]:
    """Yield mistakes in the replies of models, the answer of a person, and the expectations."""
    path: KeyPath = ("cases", at, "replies")
    lists = [(path, case.replies)] if isinstance(case.replies, list) else []
    if isinstance(case.replies, dict):
        lists = [((*path, name), replies) for name, replies in case.replies.items()]
    for path_of_list, replies in lists:
        for index, reply in enumerate(replies):
            keys = cast("dict[Any, Any]", reply) if isinstance(reply, dict) else dict[Any, Any]()
            if any(str(key).startswith("$") for key in keys):
                yield from source.mistakes_in(SpecialReply, keys, (*path_of_list, index))
                clashing = [key for key in (TOOL, "arguments") if key in keys and ERROR in keys]
                yield from (
                    ((*path_of_list, index, key), f"{key!r} can't be combined with {ERROR!r}")
                    for key in clashing
                )
    if case.expect.error is not None:
        for key in sorted(case.expect.model_fields_set & {"state", "outputs", "schema_", "nodes"}):
            name = key.rstrip("_")
            yield (
                ("cases", at, "expect", name),
                f"{name!r} can't be combined with 'error': a run that ends with an error has no final state",
            )
    if case.expect.schema_ is not None:
        path = ("cases", at, "expect", "schema")
        try:
            problems = Schema(case.expect.schema_).ineffective_keywords()
        except InvalidSchemaError as error:
            problems = error.problems
        except ConfigError as error:
            problems = [((), str(error))]
        yield from (((*path, *inside), what) for inside, what in problems)
    for name, answer in case.actions.items():
        if plain_name(name) == APPROVE and not isinstance(answer, bool):
            yield from source.mistakes_in(ScriptedAnswer, answer, ("cases", at, "actions", name))


@dataclass(slots=True)
class WorkflowCaseResult:
    """The result of a case."""

    name: str
    problems: list[str]
    """Everything that was not as expected."""

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.problems


async def run_case(file: str, case: WorkflowCase) -> WorkflowCaseResult:
    """Run a case. No model and no server is called, and nothing is stored.

    Raises `WorkflowError` for an invalid workflow file.
    """
    scripts = case.replies if isinstance(case.replies, dict) else {"": case.replies}
    prompts: list[str] = []
    models = {name: Replies(replies, prompts) for name, replies in scripts.items()}
    source = WorkflowFile.read(file)
    # Without Pydantic AI, the check of the file says what to install.
    calls_tools = "tools" in source.text and find_spec("pydantic_ai") is not None
    chats = {name: script.model(calls_tools=calls_tools) for name, script in models.items()}
    actions = {plain_name(name): value for name, value in case.actions.items()}
    missing: list[str] = []
    workflow = Workflow(
        source,
        actions={
            HTTP: partial(_no_result, missing),
            **{name: _returning(value) for name, value in actions.items() if name != APPROVE},
        },
        models={name: model for name, model in chats.items() if name},
        model=chats.get(""),
        keep=False,
        approver=partial(_answer, actions.get(APPROVE), missing),
        tool_results=case.tools,
    )
    if unknown := list(_unknown_names(case, workflow)):
        return WorkflowCaseResult(case.name, unknown)
    expect, problems, failures = case.expect, list[str](), list[str]()
    with patch.dict(os.environ, case.env):
        try:
            result = await workflow.run(case.inputs, on_event=lambda event: failures.extend(_failures(event)))
        except Exception as error:  # noqa: BLE001 (any error is the result of the case)
            if expect.error is None:
                problems.append(describe_error(error))
            elif expect.error not in str(error):
                problems.append(f"error: expected {expect.error!r} in {str(error)!r}")
        else:
            if expect.error is not None:
                problems.append(f"error: expected {expect.error!r}, but the workflow finished")
            problems += _unexpected_result(expect, result)
    # A workflow may end well without a reply or an answer, and the case would not say why.
    unscripted = [*missing, *(problem for script in models.values() for problem in script.unanswered)]
    if unscripted:
        return WorkflowCaseResult(case.name, list(dict.fromkeys(unscripted)))
    if not problems:
        problems += _unexpected_calls(expect.prompts, prompts, models)
    return WorkflowCaseResult(case.name, [*problems, *failures] if problems else [])


def _unexpected_result(expect: Expected, result: WorkflowResult) -> Iterator[str]:
    """Yield the differences between a result and the expectations."""
    yield from differences(expect.state, result.state)
    for name in expect.state:
        if name in result.outputs and name not in result.state:
            yield f"state.{name}: this is an output and not in the state; expect it under 'outputs'"
    yield from differences(expect.outputs, result.outputs, "outputs")
    if expect.nodes is not None and list(result.nodes) != expect.nodes:
        yield f"nodes: expected {expect.nodes}, got {list(result.nodes)}"
    if expect.schema_ is not None:
        checked = Schema(expect.schema_).check(result.state, coerce=False)
        yield from (f"schema: {problem.message}" for problem in checked.errors)


def _failures(event: WorkflowEvent) -> Iterator[str]:
    """Yield the failures of a node that did not end the workflow."""
    if not isinstance(event, NodeFinished):
        return
    if event.error:
        yield f"The node {event.node!r} failed: {event.error}"
    value: Any = event.result
    if isinstance(value, Mapping):
        reason = cast("Mapping[str, Any]", value).get("reflection_reason")
        if reason:
            yield f"The loop {event.node!r} ended early: {reason}"


def _unknown_names(case: WorkflowCase, workflow: Workflow) -> Iterator[str]:
    """Yield problems with names in a case that neither the workflow nor the files it runs have."""
    files = [workflow, *workflow.files]
    nodes = [node.name for node in workflow.spec.nodes]
    variables = {name for file in files for name in file.spec.env}
    used_actions = {name for file in files for name in file.actions}
    names: dict[str, tuple[Iterable[str], Iterable[str]]] = {
        "expect.nodes": (case.expect.nodes or (), nodes),
        "expect.outputs": (case.expect.outputs, workflow.spec.outputs),
        "env": (case.env, variables),
        "actions": (map(plain_name, case.actions), used_actions),
    }
    for key, (used, defined) in names.items():
        for name in used:
            if name not in defined:
                yield f"{key}: the workflow has no {name!r}; {nearest(name, sorted(defined))}"
    if not any(file.spec.mcp for file in files):  # a server may have any tools
        texts = "".join(file.source.text for file in files)
        yield from (
            f"tools: no workflow file uses a tool {name!r}" for name in case.tools if name not in texts
        )


def _answer(answer: Any, missing: list[str], approval: Approval) -> HumanAnswer:
    """Answer a question with the case's scripted answer."""
    if answer is None:
        missing.append(
            f"There is no answer to {approval.message!r}; add one under 'actions', such as "
            f"'{APPROVE}: {{approved: true}}'."
        )
        raise ConfigError(missing[-1])
    scripted = (
        ScriptedAnswer(approved=answer) if isinstance(answer, bool) else ScriptedAnswer.model_validate(answer)
    )
    return HumanAnswer(
        scripted.approved,
        scripted.value if "value" in scripted.model_fields_set else approval.data,
        scripted.comment,
        scripted.by,
        datetime.now(UTC),
        scripted.timed_out,
    )


def _unexpected_calls(
    expected: list[str] | None, prompts: list[str], scripts: Mapping[str, Replies]
) -> Iterator[str]:
    """Yield problems with prompts that lack their expected text, and with unused replies."""
    for number, (text, prompt) in enumerate(zip(expected or (), prompts, strict=False), 1):
        if text not in prompt:
            yield f"prompts: expected {text!r} in call {number}, got {short_repr(prompt, 300)}"
    if expected is not None and len(expected) != len(prompts):
        yield f"prompts: expected {counted(len(expected), 'call')}, got {len(prompts)}"
    if unused := sum(len(script.left) for script in scripts.values()):
        yield f"replies: {unused} of {unused + len(prompts)} were not used"


def _no_result(missing: list[str], **_params: Any) -> Any:
    missing.append(f"There is no result for the action {HTTP!r}; add it under 'actions'.")
    raise ConfigError(missing[-1])


def _returning(value: Any) -> Callable[..., Any]:
    def action(**_params: Any) -> Any:
        return value

    return action


def differences(expected: Any, got: Any, place: str = "state") -> list[str]:
    """Differences between two values. Objects need the expected keys, lists all the expected items."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        expected_items, actual = cast("Mapping[str, Any]", expected), cast("Mapping[str, Any]", got)
        return [
            problem
            for key, value in expected_items.items()
            for problem in (
                differences(value, actual[key], f"{place}.{key}")
                if key in actual
                else [f"{place}.{key}: expected {short_repr(value)}, but it is missing"]
            )
        ]
    if isinstance(expected, list) and isinstance(got, list):
        items, values = cast("list[Any]", expected), cast("list[Any]", got)
        if len(items) == len(values):
            pairs = enumerate(zip(items, values, strict=True))
            return [
                problem
                for index, (item, value) in pairs
                for problem in differences(item, value, f"{place}.{index}")
            ]
    if expected == got and isinstance(expected, bool) is isinstance(got, bool):
        return []
    return [f"{place}: expected {short_repr(expected)}, got {short_repr(got)}"]


@dataclass(slots=True)
class Replies:
    """The scripted replies of a model."""

    left: list[Any]
    """Replies that have not been used, in order."""
    prompts: list[str] = field(default_factory=list[str])
    """Prompts of all calls so far; the models of a case share this list."""
    unanswered: list[str] = field(default_factory=list[str])
    """Problems with calls for which no reply was left."""

    def model(self, *, calls_tools: bool) -> ChatModel:
        """A model that replies by the script; a model that calls tools needs Pydantic AI."""
        if not calls_tools:
            return ScriptedModel(self._answer)
        from pydantic_ai.models.function import FunctionModel  # noqa: PLC0415 (0.3 s, on first use)

        return ProviderModel(FunctionModel(self._respond), price=(0, 0))

    def _next(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        if not self.left:
            call = len(self.prompts)
            problem = f"replies: none is left for call {call}, which asks {short_repr(prompt, 300)}"
            self.unanswered.append(problem)
            # The error leaves out the prompt: a loop puts the error into its next prompt.
            raise ModelError(f"replies: none is left for call {call}")
        reply = self.left.pop(0)
        if isinstance(reply, dict) and ERROR in reply:
            raise ModelError(str(cast("dict[str, Any]", reply)[ERROR]))
        return cast("Any", reply)

    def _answer(self, request: ChatRequest) -> str:
        return as_text(self._next("\n\n".join(message.content for message in request.messages)), None)

    def _respond(self, messages: list[Any], info: Any) -> Any:
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart  # noqa: PLC0415 (loaded by now)

        parts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
        reply = self._next("\n\n".join(parts))
        if isinstance(reply, dict) and TOOL in reply:
            call = cast("dict[str, Any]", reply)
            names = [tool.name for tool in info.function_tools]
            if (name := call[TOOL]) not in names:
                problem = f"replies: call {len(self.prompts)} has no tool {name!r}; {nearest(name, names)}"
                self.unanswered.append(problem)
                raise ModelError(problem)
            return ModelResponse([ToolCallPart(str(call[TOOL]), call.get("arguments", {}))])
        if isinstance(reply, dict) and info.output_tools:
            return ModelResponse([ToolCallPart(info.output_tools[0].name, cast("dict[str, Any]", reply))])
        return ModelResponse([TextPart(as_text(reply, None))])
