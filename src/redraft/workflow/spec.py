"""The format of workflow files: its types, the places of mistakes, and its JSON Schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

from redraft._steps import Retry
from redraft.errors import WorkflowError
from redraft.evaluate.judge import MARGIN
from redraft.execution import ScriptLimits
from redraft.text.spec_file import (
    DRAFT,
    TEMPLATED,
    UNKNOWN_KEY,
    Condition,
    Mistake,
    ModelName,
    SpecFile,
    Strict,
    Variable,
    exactly_one,
    parts_of,
)
from redraft.workflow.ported import STOP, advice, mapping, without_ignored_keys

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from redraft.text.yaml import KeyPath

Template = Annotated[str, Field(description=TEMPLATED)]
JsonSchema = Annotated[Any, WithJsonSchema({"type": ["object", "boolean"]})]
Language = Literal["python", "lua", "prolog"]
Sandbox = Literal["inline", "process"]
Apply = Literal["auto", "replace", "feedback"]

LLM_CALL = "llm.call"
LOOP = "reflection.loop"
EVALUATE = "reflection.evaluate"
CORRECT = "reflection.correct"
HTTP = "http.request"
APPROVE = "human.approve"
ACTIONS = (LLM_CALL, LOOP, EVALUATE, CORRECT, HTTP, APPROVE)
"""The names of the built-in actions."""

END = "end"
"""The target of a goto that ends the workflow."""
RAISE, CONTINUE = "raise", "continue"
"""The values of `on_error` besides the names of nodes."""

# The second spelling comes from files written for the_edge_agent.
_SPELLINGS = {
    spelling: name
    for name in ACTIONS
    for spelling in (name.replace(".", "_"), f"actions.{name.replace('.', '_')}")
}


def plain_name(name: str) -> str:
    """The name of a built-in action, written with a dot; any other name unchanged."""
    return _SPELLINGS.get(name, name)


def spellings(*names: str) -> list[str]:
    """The names of built-in actions, written with a dot and with an underscore."""
    return [*names, *(name.replace(".", "_") for name in names)]


RENDERED = "rendered"
"""The validation context after templates have been rendered: no value may be a template any more."""


class OrTemplate:
    """Marks a type whose value may be a template until it is rendered."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        template = core_schema.with_info_plain_validator_function(self._validate)
        return core_schema.union_schema([handler(source), template], mode="left_to_right")

    def __get_pydantic_json_schema__(
        self, schema: core_schema.UnionSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        value = handler(cast("core_schema.CoreSchema", schema["choices"][0]))
        return {"anyOf": [value, {"type": "string", "pattern": r"\{\{"}]}

    @staticmethod
    def _validate(value: object, info: core_schema.ValidationInfo) -> object:
        if is_template(value) and info.context != RENDERED:
            return value
        raise PydanticCustomError("template_type", "Input should be a template")


def is_template(value: object) -> bool:
    """Whether a value is a string that contains a template."""
    return isinstance(value, str) and "{{" in value


class Limits(Strict):
    """Bounds on the code and templates of the file; a file can only lower the defaults."""

    seconds: float = Field(2.0, gt=0, le=2.0, description="Running time of a piece of code.")
    memory_mb: int = Field(64, ge=32, le=64, description="Memory of a piece of code.")
    output_chars: int = Field(
        65_536, ge=1, le=65_536, description="Characters that a piece of code may print."
    )
    result_chars: int = Field(1_048_576, ge=1, le=1_048_576, description="Characters of its result, as JSON.")

    @cached_property
    def of_scripts(self) -> ScriptLimits:
        """The limits of each piece of code."""
        return ScriptLimits(self.seconds, self.memory_mb, self.output_chars, self.result_chars)


class Code(Strict):
    """A piece of code, and how to run it; without `run`, there is none."""

    run: str | None = Field(None, description="Code; its value is what it returns, or `result`.")
    language: Language = "python"
    sandbox: Sandbox = "inline"

    conditions = tuple(
        Condition(
            {
                "not": {
                    "required": ["language", "sandbox"],
                    "properties": {"language": {"const": language}, "sandbox": {"const": "process"}},
                }
            },
            f"`sandbox: process` is for Python; {language.title()} runs inline only",
            "sandbox",
        )
        for language in ("lua", "prolog")
    )


Uses = Annotated[
    str, WithJsonSchema({"type": "string", "anyOf": [{"enum": spellings(*ACTIONS)}, {"type": "string"}]})
]
"""The name of an action; an editor suggests the built-in ones."""
InnerAction = Annotated[
    str,
    WithJsonSchema(
        {"type": "string", "not": {"enum": spellings(*(name for name in ACTIONS if name != LLM_CALL))}}
    ),
]
"""The name of an action that another action calls: `llm.call`, or an action of the user's own."""


class Call(Code):
    """Calls an action, with its parameters on the same level, or runs code."""

    model_config = ConfigDict(extra="allow")

    action: InnerAction | None = Field(None, description="`llm.call`, or an action of your own.")

    conditions = (
        *Code.conditions,
        Condition(
            {
                "anyOf": [{"required": [key]} for key in ("action", "run", "uses")],
                "not": {"required": ["action", "run"]},
            },
            "give either 'action' or 'run'",
        ),
        Condition(
            {"anyOf": [{"required": ["action"]}, {"properties": {"uses": False}}]},
            "inside an action, name another action under 'action'",
            "uses",
        ),
    )

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the action."""
        return dict(self.model_extra or {})


class CodeCorrector(Code):
    """Corrects an output by code."""

    apply: Apply = "auto"


class Corrector(Call):
    """Corrects an output that is not valid, or says what to improve.

    With `apply: replace` its value, unchanged, is the next candidate; with `feedback` it is merged into the
    loop's state and the generator runs again. `auto` treats any object as feedback, and other values as the
    candidate.
    """

    apply: Apply = "auto"


class Example(Strict):
    """An example judgement for the judge."""

    input: Any
    output: Any


NEEDED_BY_EVALUATOR = {"schema": "schema", "llm": "prompt", "custom": "run"}
"""The key that an evaluator of each type needs."""


def _conditions_of_evaluator(key: str, default: str | None = None) -> Iterator[Condition]:
    """Yield, for each type of evaluator, the keys that it needs and the keys that it can't have."""
    for kind, needed in NEEDED_BY_EVALUATOR.items():
        forbidden = [other for other in NEEDED_BY_EVALUATOR.values() if other != needed]
        if kind != "llm":
            forbidden += ["examples", "judge_samples", "judge_margin"]
        if kind == "schema":  # it is valid or not, whatever its score
            forbidden += ["threshold", "score_max"]
        is_kind = {"properties": {key: {"const": kind}}, "required": [] if kind == default else [key]}
        with_needed = {"if": is_kind, "then": {"required": [needed]}}
        yield Condition(with_needed, f"an evaluator of the type {kind!r} needs {needed!r}")
        without_forbidden = {"if": is_kind, "then": {"properties": dict.fromkeys(forbidden, False)}}
        yield Condition(without_forbidden, f"{{key!r}} is not for an evaluator of the type {kind!r}")


class EvaluatorKeys(Code):
    """The keys of an evaluator, besides its type."""

    schema_: JsonSchema = Field(None, alias="schema", description="JSON Schema, for the type `schema`.")
    prompt: Template | None = Field(
        None, description="For the type `llm`; the output is appended unless the prompt shows it."
    )
    model: ModelName | None = None
    examples: list[Example] = Field(default_factory=list[Example])
    threshold: float = Field(0.8, ge=0, le=1)
    score_max: float | None = Field(None, gt=0, allow_inf_nan=False)
    judge_samples: int = Field(1, ge=1)


class EvaluatorSpec(EvaluatorKeys):
    """Decides whether an output is valid, and how good it is."""

    type: Literal["schema", "llm", "custom"]
    judge_margin: float = Field(MARGIN, ge=0, allow_inf_nan=False)

    conditions = (*Code.conditions, *_conditions_of_evaluator("type"))


class LoopParams(Strict):
    """Parameters of `reflection.loop`; `max_iterations` counts attempts."""

    generator: Call
    evaluator: EvaluatorSpec
    corrector: Corrector | None = None
    max_iterations: Annotated[int, Field(ge=1), OrTemplate()] = 3
    candidates: int = Field(1, ge=1)
    accept: Literal["score", "pairwise"] = "score"
    on_failure: Literal["return_best", "return_last", "raise"] = "return_best"


class EvaluateParams(EvaluatorKeys):
    """Parameters of `reflection.evaluate`."""

    data: Any = Field(None, description="Default: state.reflection_output.")
    evaluator_type: Literal["schema", "llm", "custom"] = "schema"

    conditions = (*Code.conditions, *_conditions_of_evaluator("evaluator_type", "schema"))

    def evaluator(self) -> EvaluatorSpec:
        """The evaluator that these parameters describe."""
        keys = self.model_dump(by_alias=True, exclude_unset=True, include=set(EvaluatorKeys.model_fields))
        return EvaluatorSpec.model_validate({"type": self.evaluator_type, **keys})


class CorrectParams(Code):
    """Parameters of `reflection.correct`."""

    data: Any = Field(None, description="Default: state.reflection_output.")
    errors: Any = Field(None, description="Default: state.reflection_errors.")
    corrector_action: InnerAction | None = None
    prompt: Template | None = Field(None, description="Uses llm.call.")
    model: ModelName | None = None

    conditions = (
        *Code.conditions,
        Condition(
            {
                "anyOf": [{"required": [key]} for key in ("prompt", "corrector_action", "run")],
                "properties": {"prompt": {"minLength": 1}},
                "dependentSchemas": {"run": {"properties": {"prompt": False, "corrector_action": False}}},
            },
            f"{CORRECT}: give one of 'prompt', 'corrector_action' and 'run'",
        ),
    )

    def call(self) -> Call:
        """The call of the corrector; with `corrector_action`, `prompt` and `model` are its parameters."""
        if self.run is not None:
            return Call.model_validate(self.model_dump(include={"run", "language", "sandbox"}))
        params = {"prompt": self.prompt, "model": self.model}
        params = {key: value for key, value in params.items() if value is not None}
        return Call.model_validate({"action": self.corrector_action or LLM_CALL, **params})


class LlmMessage(Strict):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Template


class LlmParams(Strict):
    """Parameters of `llm.call`, which returns the text of the reply, or with `schema` its value."""

    prompt: Template | None = None
    messages: Annotated[list[LlmMessage], Field(min_length=1), OrTemplate()] | None = None
    system: Template | None = None
    model: ModelName | None = None
    schema_: JsonSchema = Field(None, alias="schema", description="JSON Schema that the reply must follow.")
    temperature: Annotated[float, Field(ge=0, le=2), OrTemplate()] | None = None
    max_tokens: Annotated[int, Field(ge=1), OrTemplate()] | None = None
    tools: Annotated[list[str], Field(min_length=1), OrTemplate()] | None = Field(
        None,
        description="Tools of the model: functions of functions.py next to the file, and names of `mcp` "
        "or SERVER.TOOL.",
    )
    max_steps: Annotated[int, Field(ge=1), OrTemplate()] = Field(
        10, description="With tools, the most replies of the model."
    )

    conditions = (
        Condition(exactly_one("prompt", "messages"), "llm.call: give either 'prompt' or 'messages'"),
        Condition(
            {"dependentRequired": {"max_steps": ["tools"]}}, "has no effect without 'tools'", "max_steps"
        ),
        Condition(
            {"not": {"required": ["tools", "max_tokens"]}},
            "has no effect with 'tools'; 'max_steps' bounds the replies",
            "max_tokens",
        ),
    )


class LlmCall(LlmParams, Call):
    """Calls `llm.call`, with its parameters on the same level."""

    model_config = ConfigDict(extra="forbid")


class LlmCorrector(LlmParams, Corrector):
    """Corrects an output by `llm.call`, with its parameters on the same level."""

    model_config = ConfigDict(extra="forbid")


class HttpParams(Strict):
    """Parameters of `http.request`, which returns the reply's data if it is JSON, else its text."""

    url: Template
    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"], OrTemplate()] = "GET"
    headers: Annotated[dict[str, Template], OrTemplate()] = Field(
        default_factory=dict[str, str], description="Secrets in them come from `env`."
    )
    body: Any = Field(None, description="Data to send as JSON.")
    timeout: Annotated[float, Field(gt=0, le=3600), OrTemplate()] = Field(
        30.0, description="Seconds for the complete reply."
    )


class ToolServer(Strict):
    """An MCP server whose tools models may call: a program (`command`), or an address (`url`)."""

    command: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="A program and its arguments, which speaks over stdin and stdout."
    )
    url: str | None = Field(None, description="Where a server is reached by HTTP.")
    env: list[str] = Field(
        default_factory=list[str], description="The variables, of those under `env`, that the program sees."
    )
    headers: dict[str, Template] = Field(
        default_factory=dict[str, str], description="With `url`; secrets in them come from `env`."
    )
    timeout: float = Field(30.0, gt=0, le=3600, description="Seconds for each of its answers.")

    conditions = (
        Condition(exactly_one("command", "url"), "give an MCP server either 'command' (a program) or 'url'"),
    )


class ApproveParams(Strict):
    """Parameters of `human.approve`, which returns the decision and the name of the person."""

    message: Template = Field(min_length=1, description="The question for the person.")
    data: Any = Field(None, description="What the person sees, and may change: the `value` of the answer.")
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False), OrTemplate()] | None = Field(
        None, description="Seconds to wait for an answer, counted from the question. Default: no limit."
    )
    default: Annotated[Literal["approve", "reject"], OrTemplate()] | None = Field(
        None, description="The answer at the deadline. Default: the node fails."
    )

    conditions = (
        Condition(
            {"dependentRequired": {"default": ["deadline"]}},
            "'default' is the answer at the 'deadline'; give a 'deadline', too",
            "default",
        ),
    )


class Jump(Strict):
    """A goto, with an optional condition."""

    if_: Template | bool | None = Field(None, alias="if")
    to: str


class Retries(Strict):
    """How often to run a node again after a failure, and how long to wait before each retry."""

    times: int = Field(ge=1, le=100, description="How often to run it again.")
    wait: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds before the first retry; each further wait is twice as long.",
    )
    longest_wait: float = Field(60.0, ge=0, allow_inf_nan=False, description="The longest wait, in seconds.")


class WorkflowBudget(Strict):
    """Limits on all model calls of a run together; None: no limit."""

    tokens: int | None = Field(None, ge=1, description="Tokens of all model calls.")
    usd: float | None = Field(None, gt=0, allow_inf_nan=False, description="US dollars of all model calls.")
    seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds of work, not counting interruptions and the time spent waiting for a person.",
    )


class Node(Code):
    """A step of the workflow: an action (`uses`, `with`), or code (`run`)."""

    name: str = Field(min_length=1)
    description: str = ""
    uses: Uses | None = None
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")
    output: str | None = Field(None, min_length=1, description="The key of the state for the result.")
    when: Template | bool | None = Field(None, description="The node is skipped unless this is true.")
    goto: str | list[Jump] | None = Field(None, description="The next node, instead of the one below.")
    max_visits: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="How often the node may be visited; no goto leads to it after that. Bounds a cycle.",
    )
    map: list[Any] | Template | None = Field(
        None,
        description="A list: the node runs for each `item` of it, and its result is the list of the results.",
    )
    concurrency: int = Field(8, ge=1, le=1_000, description="How many items of `map` run at the same time.")
    timeout: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that a try of the node, or of an item, may take. "
        "Default: an hour for built-in actions, no limit for your own.",
    )
    retries: Annotated[int, Field(ge=0, le=100)] | Retries = Field(
        0, description="How often to run the node, or an item, again after a failure."
    )
    on_error: str = Field(
        "raise", description="`raise`, `continue` (with state.error), or the name of the node to go to."
    )

    conditions = (
        *Code.conditions,
        Condition(exactly_one("uses", "run"), "give a node either 'uses' (an action) or 'run' (code)"),
        Condition(
            {"dependentSchemas": {"run": {"properties": {"with": False}}}},
            "'with' holds the parameters of 'uses'; code reads its values from the state",
            "with",
        ),
        Condition(
            {"properties": {"name": {"not": {"const": END}}}},
            f"the name {END!r} is reserved for the end of a workflow; rename the node",
            "name",
        ),
        Condition(
            {"dependentRequired": {"concurrency": ["map"]}},
            "'concurrency' has no effect without 'map'",
            "concurrency",
        ),
    )

    @property
    def action(self) -> str | None:
        """The name of its action (of a built-in action, with a dot); None for code."""
        return None if self.uses is None else plain_name(self.uses)

    @property
    def file(self) -> str | None:
        """The workflow file that it runs; None if `uses` names an action."""
        return self.uses if self.uses is not None and self.uses.startswith(("./", "../")) else None

    @property
    def retry(self) -> Retry:
        """Its retries, as the policy of a step."""
        retries = self.retries
        if isinstance(retries, int):
            return Retry(retries + 1, first_wait=1.0)
        return Retry(retries.times + 1, retries.wait, retries.longest_wait)

    @property
    def jumps(self) -> list[Jump]:
        """The gotos, in order; a plain name becomes a goto without a condition."""
        jumps = [Jump.model_validate({"to": self.goto})] if isinstance(self.goto, str) else self.goto or []
        return [jump.model_copy(update={"to": END}) if jump.to == STOP else jump for jump in jumps]


class WorkflowSpec(Strict):
    """A workflow file."""

    name: str = Field("", min_length=1, description="Default: the name of the file, without its ending.")
    description: str = ""
    model: ModelName | None = Field(None, description="The model of nodes that do not name a model.")
    models: dict[str, ModelName] = Field(
        default_factory=dict[str, str], description="Short names of models, and the models they mean."
    )
    variables: dict[str, Any] = Field(default_factory=dict[str, Any])
    inputs: dict[str, str | dict[str, Any]] = Field(
        default_factory=dict[str, str | dict[str, Any]],
        description="The values that a run takes: a short type, such as `string?` or `integer[]`, or a JSON "
        "Schema. Other values are refused.",
    )
    outputs: dict[str, str | dict[str, Any]] = Field(
        default_factory=dict[str, str | dict[str, Any]],
        description="The values that a run returns, from the state or the template `value`; types as above.",
    )
    env: list[Variable] = Field(
        default_factory=list[str], description="The environment variables that templates and code may read."
    )
    timeout: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="The same as `seconds` under `budget`."
    )
    budget: WorkflowBudget = WorkflowBudget()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    hosts: list[str] = Field(
        default_factory=list[str],
        description="Where `http.request` may send to: `HOST`, `HOST:PORT`, or `*.DOMAIN`.",
    )
    mcp: dict[str, ToolServer] = Field(
        default_factory=dict[str, ToolServer], description="MCP servers, by the names that `tools` uses."
    )
    limits: Limits = Limits()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    nodes: list[Node] = Field(min_length=1)

    conditions = (
        Condition(
            {"not": {"required": ["timeout", "budget"], "properties": {"budget": {"required": ["seconds"]}}}},
            "'timeout' is a short form of 'seconds' under 'budget'; give only one",
            "timeout",
        ),
    )


STDIN = "-"
"""The file name for standard input."""
UNNAMED = "workflow"
"""The file name of a workflow that was read from text."""


@dataclass(frozen=True, slots=True)
class WorkflowFile(SpecFile[WorkflowError]):
    """The text and the name of a workflow file; its errors name the line, the node and the key.

    A file may also consist of nothing but the list of nodes.
    """

    file: str = UNNAMED

    expected: ClassVar[str] = "a workflow must be a mapping with 'nodes'"
    error_type: ClassVar[type[WorkflowError]] = WorkflowError

    def document(self) -> dict[str, Any]:
        """The document as plain data; a list of nodes is put under `nodes`."""
        nodes = self.loaded()
        if isinstance(nodes, list) and all(isinstance(node, dict) for node in cast("list[Any]", nodes)):
            return {"nodes": nodes}
        return super(WorkflowFile, self).document()

    def path_in_text(self, path: KeyPath, /) -> KeyPath:
        """The path in the text, which has no `nodes` if the file is a list."""
        return path[1:] if isinstance(self.loaded(), list) else path

    def location(self, path: KeyPath, /) -> dict[str, str | None]:
        """The node and the key that a path leads to."""
        node = self._node(path)
        return {"node": node, "key": ".".join(map(str, path[2:] if node else path)) or None}

    def _node(self, path: KeyPath) -> str | None:
        if len(path) < 2 or path[0] != "nodes" or not isinstance(path[1], int):  # noqa: PLR2004 (`nodes`, a number)
            return None
        nodes: Any = self.document().get("nodes")
        node: Any = cast("list[Any]", nodes)[path[1]] if isinstance(nodes, list) else None
        name = cast("dict[str, Any]", node).get("name") if isinstance(node, dict) else None
        return str(name) if name else f"number {path[1] + 1}"


def read(source: WorkflowFile, own: Container[str] = ()) -> tuple[WorkflowSpec, list[Mistake]]:
    """Read a workflow file; returns its content, and notes on keys that are ignored.

    Raises `WorkflowError` with all mistakes of form: unknown keys, and values of the wrong type. `own` are
    the names of the user's own actions, whose parameters have no form.
    """
    document, notes, mistakes = without_ignored_keys(source.document())
    mistakes += [
        (path, _advise(path, what))
        for kind, part, part_path in _parts(document, own)
        for path, what in source.mistakes_in(kind, part, part_path)
    ]
    if mistakes:
        raise WorkflowError.of([source.error(path, what) for path, what in mistakes])
    spec = WorkflowSpec.model_validate(document)
    if not spec.name:
        name = "workflow" if source.file == STDIN else Path(source.file).stem
        spec = spec.model_copy(update={"name": name})
    return spec, notes


def _parts(
    document: Mapping[str, Any], own: Container[str]
) -> Iterator[tuple[type[BaseModel], dict[str, Any], KeyPath]]:
    """Yield the parts with a form of their own: the file, the parameters of actions, the calls in loops."""
    yield WorkflowSpec, dict(document), ()
    nodes = document.get("nodes")
    for at, node in enumerate(cast("list[Any]", nodes) if isinstance(nodes, list) else ()):
        keys = mapping(node)
        name = plain_name(str(keys.get("uses")))
        if name not in PARAMS or name in own or ("with" not in keys and keys.keys() - NODE_KEYS):
            continue  # parameters may be in the wrong place, or under a misspelled key
        params, path = keys.get("with", {}), ("nodes", at, "with")
        if isinstance(params, dict):
            yield PARAMS[name], cast("dict[str, Any]", params), path
        for key, (by_model, by_code) in CALLS.items() if name == LOOP else ():
            call = mapping(mapping(params).get(key))
            if plain_name(str(call.get("action"))) == LLM_CALL and LLM_CALL not in own:
                yield by_model, call, (*path, key)
            elif "run" in call and "action" not in call:
                yield by_code, call, (*path, key)


def _advise(path: KeyPath, what: str) -> str:
    """Extend the general message of a mistake with advice for workflow files, where there is any."""
    if what.startswith(UNKNOWN_KEY):
        names = {field.alias or name for kind in PARAMS.values() for name, field in kind.model_fields.items()}
        is_param = len(path) == 3 and path[0] == "nodes" and path[2] in names  # noqa: PLR2004 (`nodes`, a number, the key)
        hint = advice(path) or ("the parameters of an action go under 'with'" if is_param else None)
        if hint:
            return f"{UNKNOWN_KEY} {path[-1]!r}; {hint}"
    is_time = path[-1] in ("timeout", "deadline", "seconds", "wait", "longest_wait")
    return re.sub(r"expected a number\b", "expected a number of seconds", what) if is_time else what


ID = "urn:redraft:workflow:1"

PARAMS = {
    LLM_CALL: LlmParams,
    LOOP: LoopParams,
    EVALUATE: EvaluateParams,
    CORRECT: CorrectParams,
    HTTP: HttpParams,
    APPROVE: ApproveParams,
}
"""The parameters of each built-in action."""

CALLS: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "generator": (LlmCall, Code),
    "corrector": (LlmCorrector, CodeCorrector),
}
"""The calls in a `reflection.loop`: the form of a call of `llm.call`, and the form of code."""

NODE_KEYS = {field.alias or name for name, field in Node.model_fields.items()}


KEY_DESCRIPTIONS = {
    "method": "The method of the request.",
    "url": "The address, whose host is listed under `hosts`.",
    "accept": "How an attempt becomes the best attempt: by its score, or by a model's preference.",
    "apply": "Whether the corrector's value is the next candidate, or feedback for the generator.",
    "candidates": "How many first outputs to make in parallel; the loop continues with the best.",
    "content": "The text of the message.",
    "corrector": "Corrects an output that is not valid; without it, the generator runs again.",
    "corrector_action": "The action that corrects; it gets `prompt` and `model`.",
    "description": "For readers.",
    "evaluator": "Decides whether an output is valid, and how good it is.",
    "evaluator_type": "The kind of judge: a JSON Schema, a model, or code.",
    "examples": "Example judgements to show the judge.",
    "generator": "Makes an output.",
    "if": "The condition, such as `state.score < 0.5`.",
    "input": "The output that was judged.",
    "judge_margin": "The standard errors by which a gain must exceed zero, if there are several samples.",
    "judge_samples": "How often to ask the model for a judgement; the mean score counts.",
    "budget": "Limits on all model calls of a run together.",
    "language": "The language of `run`.",
    "limits": "Bounds on the code of this file.",
    "max_iterations": "The maximum number of attempts.",
    "max_tokens": "The maximum number of tokens in the reply.",
    "messages": "A conversation, each message with a `role` and a `content`.",
    "model": "`provider:model`, `local:NAME`, or a name of `models`; a list is tried in order.",
    "name": "Its name.",
    "nodes": "The steps, in the order in which they run.",
    "on_failure": "The result of a loop without a valid output; `raise` ends the workflow.",
    "output": "The judgement.",
    "prompt": "The prompt for the model.",
    "role": "The author of the message.",
    "sandbox": "`inline`: quick, a subset of Python; `process`: full Python in a jailed child.",
    "system": "The system prompt.",
    "temperature": "How random the reply is; 0 is the least.",
    "threshold": "The lowest valid score, for a verdict that has only a score.",
    "score_max": "The highest possible score, if it is not 1.",
    "to": "The node to go to, or `end`.",
    "type": "The kind of judge: a JSON Schema, a model, or code.",
    "uses": "The action.",
    "variables": "Values for templates and code; the inputs of a run override them.",
    "with": "The parameters of the action.",
}
"""Descriptions of keys whose field has no description."""


def workflow_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of workflow files.

    The keys of `with` depend on `uses`. The schema accepts some files that `Workflow` rejects, because
    `Workflow` also compiles schemas and templates and follows gotos. It rejects some empty keys that
    `Workflow` ignores.
    """
    parts = parts_of((WorkflowSpec, *PARAMS.values(), *sum(CALLS.values(), ())), KEY_DESCRIPTIONS)
    parts["Node"]["allOf"] += [
        _if_action("uses", name, {"required": ["with"], "properties": {"with": _ref(kind)}})
        for name, kind in PARAMS.items()
    ]
    for kind, (by_model, by_code) in zip((Call, Corrector), CALLS.values(), strict=True):
        parts[kind.__name__]["allOf"] += [
            _if_action("action", LLM_CALL, _ref(by_model)),
            {"if": {"required": ["run"]}, "then": _ref(by_code)},
        ]
    return {"$schema": DRAFT, "$id": ID, **parts.pop("WorkflowSpec"), "title": "Workflow", "$defs": parts}


def _if_action(key: str, name: str, then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"required": [key], "properties": {key: {"enum": spellings(name)}}}, "then": then}


def _ref(kind: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{kind.__name__}"}
