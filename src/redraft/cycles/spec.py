"""The agent file format, typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from redraft.cycles.memory import STANDARD_KEYS
from redraft.errors import AgentFileError
from redraft.text.spec_file import DRAFT, TEMPLATED, SpecFile, parts_of
from redraft.text.templates import TemplateError, braced, template
from redraft.text.yaml import Way, load_yaml

Template = Annotated[str, Field(description=TEMPLATED)]
Expression = Annotated[
    str,
    Field(description="What has to hold, such as `environmentalData.payload.rate > 5`, in braces or bare."),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Milliseconds = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Refuse keys that are not known; a file writes them in camelCase, Python as they are."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )


class Named(Strict):
    """Have a name of one's own within the stage."""

    name: Name


class Prompted(Named):
    """Ask a model, whose reply follows `outputSchema`; a substage that does not, leaves both out."""

    prompt: Template | None = None
    output_schema: dict[str, Any] | None = Field(
        None, description="JSON Schema that the reply has to follow."
    )
    model: str | None = Field(None, description="Default: the agent's.")


class Call(Strict):
    """Call a function of the program."""

    timeout_ms: Milliseconds | None = Field(
        None, description="How long the function may take, in milliseconds. Default: as long as it does."
    )


class MayCall(Call):
    """Call a function of the program, if one is named."""

    function: Name | None = None


class Rule(Strict):
    """Name something that is to be found where a condition holds."""

    name: Name
    when: Expression
    severity: Literal["info", "warning", "critical"] = "warning"
    message: Template = ""


class Check(Strict):
    """Name something that has to hold."""

    name: Name
    require: Expression
    message: Template = ""


class Request(Strict):
    """Say what is sent over HTTP."""

    url: Template
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, Template] = Field(default_factory=dict[str, str])
    body: Any = Field(None, description="Sent as JSON; texts in it may hold templates.")
    timeout_ms: Milliseconds = 10_000


class Source(Strict):
    """Say where in the payload what was sensed goes, and whether the cycle can do without."""

    into: str | None = Field(
        None, description="The key of the payload. Without one an object is merged, all else goes by name."
    )
    required: bool = Field(
        default=False, description="Whether the cycle fails with it; else its error is noted in the data."
    )


class ApiSource(Source, Request):
    """Configure a source over HTTP."""


class CsvSource(Source):
    """Configure a CSV file; its path is seen from the agent's file."""

    path: Template
    delimiter: str = Field(",", min_length=1, max_length=1)
    last: int | None = Field(None, ge=1, description="Only so many rows, from the end.")


class MessagesSource(Source):
    """Configure what other agents and programs sent to this one since the last cycle."""

    topic: Name | None = None
    most: int = Field(100, ge=1, description="The newest so many.")


class FunctionSource(Source, Call):
    """Configure a function of the program as a source."""

    function: Name
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")


class ApiSense(Named):
    """Ask an HTTP source."""

    type: Literal["api"]
    config: ApiSource


class CsvSense(Named):
    """Read a CSV file."""

    type: Literal["csv"]
    config: CsvSource


class MessagesSense(Named):
    """Take the messages that came."""

    type: Literal["agent-messages"]
    config: MessagesSource = MessagesSource()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class FunctionSense(Named):
    """Call a function of the program."""

    type: Literal["function"]
    config: FunctionSource


SenseSubstage: TypeAlias = Annotated[
    ApiSense | CsvSense | MessagesSense | FunctionSense, Field(discriminator="type")
]


class Sense(Strict):
    """Look at the world."""

    substages: list[SenseSubstage] = Field(min_length=1)


class AnalyzeConfig(MayCall):
    """Configure an analysis without a model: by rules, or by a function of the program."""

    rules: list[Rule] = Field(default_factory=list[Rule], description="Those that hold are anomalies.")


class PlanRule(Strict):
    """Plan an action where a condition holds."""

    when: Expression | None = None
    action: Name = Field(description="The name of an action of `execute`.")
    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    reason: Template = ""


class PlanConfig(MayCall):
    """Configure a plan without a model."""

    rules: list[PlanRule] = Field(default_factory=list[PlanRule])


class Constraint(Check):
    """Name something that has to hold, of each planned `action` where it speaks of one.

    What can't be judged, since a parameter that it reads is not there, does not hold: say `| default(0)`.
    """

    enforce: Literal["block", "record"] = "block"


class GovernConfig(Strict):
    """Configure what a plan must keep to."""

    constraints: list[Constraint] = Field(default_factory=list[Constraint])


class AuthorizeConfig(Strict):
    """Configure who decides on the plan.

    Autonomous: the agent. Supervised: a person within `timeoutMs`, else the default. Controlled: a person.
    """

    mode: Literal["autonomous", "supervised", "controlled"] = "autonomous"
    timeout_ms: Milliseconds = 60_000
    default: Literal["approve", "reject"] = "reject"
    when: Expression | None = Field(None, description="Only then a person is asked.")


class Analyze(Prompted):
    """Say what the data mean."""

    type: Literal["analyze"]
    config: AnalyzeConfig = AnalyzeConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class Plan(Prompted):
    """Say what to do: actions by their names."""

    type: Literal["plan"]
    config: PlanConfig = PlanConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class Govern(Named):
    """Hold the plan against constraints; violations are recorded."""

    type: Literal["govern"]
    config: GovernConfig


class Authorize(Named):
    """Have the plan decided on."""

    type: Literal["authorize"]
    config: AuthorizeConfig = AuthorizeConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


ReasonSubstage: TypeAlias = Annotated[Analyze | Plan | Govern | Authorize, Field(discriminator="type")]


class Reason(Strict):
    """Say what it means and what to do."""

    substages: list[ReasonSubstage] = Field(min_length=1)


class Action(Strict):
    """Declare an action; a plan can only name what is declared, and give it `params`."""

    name: Name
    when: Expression | None = Field(
        None,
        description="It is done where this holds, planned or not. Without a "
        "`plan` in the file, an action that has none is done in every cycle.",
    )


class ApiCallAction(Action, Request):
    """Send something over HTTP, with an `Idempotency-Key`."""

    type: Literal["api_call"]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"


class FunctionAction(Action, Call):
    """Call a function of the program."""

    type: Literal["function"]
    function: Name
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")


class LogAction(Action):
    """Write a line into the log."""

    type: Literal["log"]
    message: Template
    severity: Literal["info", "warning", "critical"] = "info"


class AlertAction(Action):
    """Publish an alert on the bus, and in the log."""

    type: Literal["alert"]
    message: Template
    severity: Literal["info", "warning", "critical"] = "warning"


AnyAction: TypeAlias = Annotated[
    ApiCallAction | FunctionAction | LogAction | AlertAction, Field(discriminator="type")
]


class ExecuteConfig(Strict):
    """Configure what an agent can do."""

    actions: list[AnyAction] = Field(min_length=1)


class EvaluateConfig(MayCall):
    """Configure without a model how it is seen whether the actions worked."""

    checks: list[Check] = Field(default_factory=list[Check])


class Execute(Named):
    """Do what was planned and allowed."""

    type: Literal["execute"]
    config: ExecuteConfig


class Evaluate(Prompted):
    """Say whether it worked."""

    type: Literal["evaluate"]
    config: EvaluateConfig = EvaluateConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


ActuateSubstage: TypeAlias = Annotated[Execute | Evaluate, Field(discriminator="type")]


class Actuate(Strict):
    """Do it, and see whether it worked."""

    substages: list[ActuateSubstage] = Field(min_length=1)


class LearnConfig(Strict):
    """Configure where new patterns go."""

    target: str | None = Field(
        None,
        pattern=r"^memory\.[A-Za-z_][A-Za-z0-9_]*$",
        description="Default: the one key of your own that the prompt names, else `memory.patterns`.",
    )


class Retention(Strict):
    """Bound an array of the memory: by number, by age, or by both."""

    policy: Literal["max_items", "ttl"] | list[Literal["max_items", "ttl"]] | None = Field(
        None, description="May be left out: what is given applies."
    )
    max_items: int | None = Field(None, ge=0, description="Keep the most recent so many.")
    ttl_ms: int | None = Field(None, ge=0, description="Discard what is older, in milliseconds.")


class UpdateStateConfig(Strict):
    """Configure how long the memory keeps what; a key is written `memory.patterns`."""

    retention: dict[str, Retention] = Field(default_factory=dict[str, Retention])


class MetricsConfig(Strict):
    """Configure what is recorded of each cycle; a flag that is absent is off."""

    track_cycle_duration: bool = False
    track_llm_tokens: bool = Field(default=False, alias="trackLLMTokens")
    track_cost: bool = False
    track_anomaly_count: bool = False
    track_alert_count: bool = False


class Learn(Named):
    """Ask the model what can be learned of the cycle."""

    type: Literal["learn"]
    prompt: Template
    output_schema: dict[str, Any] | None = Field(
        None, description="JSON Schema that the reply has to follow."
    )
    model: str | None = Field(None, description="Default: the agent's.")
    config: LearnConfig = LearnConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class UpdateState(Named):
    """Write the memory: the one place where it changes."""

    type: Literal["update-state"]
    config: UpdateStateConfig = UpdateStateConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class CaptureMetrics(Named):
    """Record how the cycle went."""

    type: Literal["capture-metrics"]
    config: MetricsConfig = MetricsConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


ReflectSubstage: TypeAlias = Annotated[Learn | UpdateState | CaptureMetrics, Field(discriminator="type")]


class Reflect(Strict):
    """Learn from it, within bounds."""

    substages: list[ReflectSubstage] = Field(min_length=1)


class IntervalTrigger(Strict):
    """Begin a cycle at fixed times; those that pass while a cycle runs, or nothing does, count as one."""

    type: Literal["interval"]
    interval_ms: Milliseconds = Field(description="From one begin to the next.")


class ManualTrigger(Strict):
    """Begin a cycle when somebody asks for one."""

    type: Literal["manual"]


class MessageTrigger(Strict):
    """Begin a cycle when a message comes over the bus."""

    type: Literal["message"]
    topic: Name | None = Field(None, description="Of which topic; without one, of any.")


Trigger: TypeAlias = Annotated[IntervalTrigger | ManualTrigger | MessageTrigger, Field(discriminator="type")]


class Stages(Strict):
    """The stages of a cycle; any may be left out."""

    sense: Sense | None = None
    reason: Reason | None = None
    actuate: Actuate | None = None
    reflect: Reflect | None = None


class MemoryLimits(Strict):
    """Bound what prompts show of the memory, and for how long cycles can be looked back at."""

    prompt_tokens: int = Field(2_000, ge=0, description="Of all memory keys of one prompt together.")
    cycles: int = Field(1_000, ge=1, description="Of so many the records and memory changes are kept.")


class AgentSpec(Strict):
    """An agent that goes round: Sense, Reason, Actuate, Reflect."""

    name: Name
    description: str = ""
    model: str | None = Field(None, description="The model where a substage names none.")
    models: dict[str, str] = Field(
        default_factory=dict[str, str], description="What a model's name stands for."
    )
    env: list[Variable] = Field(
        default_factory=list[str],
        description="The environment variables that requests and calls may read, as `env.NAME`: no key has "
        "to stand in the file, and no prompt can show one.",
    )
    triggers: list[Trigger] = Field(default_factory=lambda: [ManualTrigger(type="manual")])
    memory: MemoryLimits = MemoryLimits()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    stages: Stages


ID = "urn:redraft:agent:1"

SAYS = {
    "action": "The name of an action of `execute`.",
    "actions": "What the agent can do; a plan names one of them.",
    "actuate": "Do it, and see whether it worked.",
    "body": "Sent as JSON.",
    "checks": "What has to hold if it worked.",
    "config": "How it does so.",
    "constraints": "What a plan must keep to.",
    "default": "What is decided when nobody did in time.",
    "delimiter": "What stands between two values.",
    "description": "For readers.",
    "enforce": "`block`: an action that breaks it is not done; `record`: it is, and that is noted.",
    "function": "The name of a function that the program gives to the agent.",
    "headers": "Sent with it.",
    "memory": "Bounds of what is remembered.",
    "message": "What it says.",
    "method": "How it is sent.",
    "mode": "Who decides on the plan: the agent, a person in time, or a person.",
    "model": "`provider:model`, `local:NAME`, or a name of `models`.",
    "name": "Its name.",
    "params": "What the action sees as `params`.",
    "path": "The file, as seen from this one.",
    "prompt": "What the model is asked.",
    "reason": "Why.",
    "reflect": "Learn from it, within bounds.",
    "retention": "How long what is kept, by keys such as `memory.patterns`.",
    "rules": "What is found or planned without a model.",
    "sense": "Look at the world.",
    "severity": "How much it matters.",
    "stages": "What the agent does in each cycle.",
    "substages": "Its parts, in the order in which they run; sources run all at once.",
    "timeoutMs": "How long is waited, in milliseconds.",
    "topic": "What the message is about.",
    "trackAlertCount": "The alerts that were published.",
    "trackAnomalyCount": "The anomalies that were found.",
    "trackCost": "What the model calls cost, in US dollars.",
    "trackCycleDuration": "The time from the begin of Sense to the end of Reflect.",
    "trackLLMTokens": "The tokens of all model calls.",
    "triggers": "What begins a cycle.",
    "type": "Its kind.",
    "url": "Where it is sent.",
    "with": "What the function is called with; texts in it may hold templates.",
}
"""What a key says, wherever it stands, unless the spec says more of it there."""


def agent_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of agent files.

    It refuses less than `CycleAgent` does, which also compiles schemas and templates, and looks for what is
    named; and one thing more: a key that holds nothing, which can be left out.
    """
    parts = parts_of([AgentSpec], SAYS)
    for name, by in (("Analyze", "rules"), ("Plan", "rules"), ("Evaluate", "checks")):
        parts[name]["anyOf"] = [{"required": ["prompt"]}, *_configured(by, "function")]
    parts["Retention"]["anyOf"] = [{"required": ["maxItems"]}, {"required": ["ttlMs"]}]
    config = parts["UpdateStateConfig"]["properties"]["retention"]
    config["propertyNames"] = {"pattern": r"^memory\.[A-Za-z_][A-Za-z0-9_]*$"}
    parts["Stages"]["minProperties"] = 1
    return {"$schema": DRAFT, "$id": ID, **parts.pop("AgentSpec"), "title": "Agent", "$defs": parts}


def _configured(*keys: str) -> list[dict[str, Any]]:
    """Return the ways in which a configuration may have one of these keys."""
    return [{"required": ["config"], "properties": {"config": {"required": [key]}}} for key in keys]


STAGES = ("sense", "reason", "actuate", "reflect")
MEMORY = "memory."

CONDITIONS = frozenset({"when", "require"})
TEMPLATES = frozenset({"prompt", "url", "headers", "body", "message", "reason", "with", "params", "path"})
"""The keys whose texts are rendered; where one holds data of any shape, so are the texts in it."""


class Text(NamedTuple):
    """Hold a text of the file that is rendered, the way to it, and whether it is a condition."""

    text: str
    way: Way
    is_condition: bool

    @property
    def template(self) -> str:
        """The text as a template."""
        return braced(self.text) if self.is_condition else self.text


def substages(spec: AgentSpec) -> Iterator[tuple[str, Any, Way]]:
    """Yield each substage with its stage and the way to it, in the order in which they run."""
    stages = dict(spec.stages)
    for stage in STAGES:
        part: Any = stages[stage]
        for at, substage in enumerate(part.substages if part is not None else ()):
            yield stage, substage, ("stages", stage, "substages", at)


def texts(part: BaseModel, way: Way) -> Iterator[Text]:
    """Yield every template and condition in a part of the file."""
    for name, value in part:
        key = type(part).model_fields[name].alias or name
        if key in CONDITIONS and isinstance(value, str):
            yield Text(value, (*way, key), is_condition=True)
        elif key in TEMPLATES:
            yield from _in_data(value, (*way, key))
        else:
            yield from _inside(value, (*way, key))


def memory_keys(spec: AgentSpec) -> tuple[str, ...]:
    """Return the keys of an agent's memory: the standard ones, and those that its file names.

    A prompt, a condition, a target or a retention policy names one. Specification 004, Memory Keys.
    """
    found: dict[str, None] = dict.fromkeys(STANDARD_KEYS)
    for _, substage, way in substages(spec):
        for text in texts(substage, way):
            found |= dict.fromkeys(keys_read(text.template))
        if isinstance(substage, UpdateState):
            found |= dict.fromkeys(key.removeprefix(MEMORY) for key in substage.config.retention)
        if isinstance(substage, Learn) and substage.config.target is not None:
            found[substage.config.target.removeprefix(MEMORY)] = None
    return tuple(found)


ANY = "*"
"""Stands for every name."""


def parameters_of(action: BaseModel) -> tuple[str, ...]:
    """Return the parameters of a plan that an action reads, sorted; `*` where it reads them as a whole."""
    found: set[str] = set()
    for text in texts(action, ()):
        try:
            paths = template(text.template).paths
        except TemplateError:
            continue
        for path in paths:
            inside = path[1:] if path[0] == "action" and path[1:2] == ("params",) else path
            if path == ("action",):
                found.add(ANY)
            elif inside[0] == "params":
                found.add(str(inside[1]) if len(inside) > 1 else ANY)
    return tuple(sorted(found))


def keys_read(text: str) -> list[str]:
    """Return the memory keys that a template names, sorted; none for one that does not parse."""
    try:
        paths = template(text).paths
    except TemplateError:
        return []
    return sorted({str(path[1]) for path in paths if path[0] == "memory" and len(path) > 1})


def _inside(value: Any, way: Way) -> Iterator[Text]:
    if isinstance(value, BaseModel):
        yield from texts(value, way)
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from _inside(item, (*way, at))


def _in_data(value: Any, way: Way) -> Iterator[Text]:
    if isinstance(value, str):
        yield Text(value, way, is_condition=False)
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _in_data(item, (*way, key))
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from _in_data(item, (*way, at))


@dataclass(frozen=True, slots=True)
class AgentFile(SpecFile):
    """Hold the text of an agent file and its name, and say where in it something is wrong."""

    file: str = "agent"

    expected: ClassVar[str] = "an agent is a mapping with 'name' and 'stages'"

    def error(self, way: Way, what: str, *, within: int | None = None) -> AgentFileError:
        """Return the `AgentFileError` that says what is wrong, and where."""
        line = self.line(way, within)
        place = place_in(load_yaml(self.text, self.file), way)
        message = self.said(line, place.shown, what)
        return AgentFileError(
            message, file=self.file, line=line, stage=place.stage, substage=place.substage, key=place.key
        )

    def broken(self, message: str, line: int | None) -> AgentFileError:
        """Return the `AgentFileError` of a text that is no YAML."""
        return AgentFileError(message, file=self.file, line=line)


class Place(NamedTuple):
    """Name the stage, the substage and the key of what is wrong, each None where it is none."""

    stage: str | None = None
    substage: str | None = None
    key: str | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The place as a message says it."""
        stage = f"stage {self.stage!r}" if self.stage else ""
        return (stage, f"substage {self.substage!r}" if self.substage else "", self.key or "")


def place_in(document: Any, way: Way) -> Place:
    """Return the place that `way` leads to in the document of an agent."""
    if len(way) < 2 or way[0] != "stages":  # noqa: PLR2004 (`stages`, its name)
        return Place(key=".".join(map(str, way)) or None)
    stage, inside = str(way[1]), way[2:]
    if len(inside) < 2 or inside[0] != "substages" or not isinstance(inside[1], int):  # noqa: PLR2004 (`substages`, a number)
        return Place(stage, key=".".join(map(str, inside)) or None)
    substage: Any = document["stages"][stage]["substages"][inside[1]]
    name = cast("dict[str, Any]", substage).get("name") if isinstance(substage, dict) else None
    key = ".".join(map(str, inside[2:])) or None
    return Place(stage, str(name) if name else f"number {inside[1] + 1}", key)


def agent_file(path: str | Path) -> AgentFile:
    """Return the text of an agent file; raises `AgentFileError` where it can't be read."""
    try:
        return AgentFile(Path(path).read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{str(path)!r} is not UTF-8 text.", file=str(path)) from error
    except OSError as error:
        raise AgentFileError(f"{str(path)!r} cannot be read: {error.strerror}.", file=str(path)) from error


def read(source: AgentFile) -> AgentSpec:
    """Return the spec of an agent file; raises `AgentFileError` for what does not follow the format."""
    document = source.document()
    for stage in STAGES:
        if stage in document:
            source.fail(
                (stage,), f"the stage {stage!r} stands under 'stages:'; put that line above it, and indent it"
            )
    return source.parse(AgentSpec, document)
