"""Spec: the format of agent files as types, and the templates and memory keys of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from redraft.cycles.memory import STANDARD_KEYS
from redraft.errors import AgentFileError
from redraft.text.spec_file import (
    DRAFT,
    TEMPLATED,
    Condition,
    ModelName,
    SpecFile,
    Strict,
    Variable,
    parts_of,
    removed_error,
)
from redraft.text.templates import braced, templates_in, valid_template
from redraft.text.yaml import KeyPath, load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

Template = Annotated[str, Field(description=TEMPLATED)]
Expression = Annotated[
    str,
    Field(description="A condition such as `environmentalData.payload.rate > 5`, in braces or bare."),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Milliseconds = Annotated[int, Field(ge=1, le=10**15)]
"""A duration that a float in seconds and every timer can hold: at most 30,000 years."""
Severity: TypeAlias = Literal["info", "warning", "critical"]
Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

S = TypeVar("S", bound=BaseModel)


RECIPE = "write `type: function`, and copy the function from 'Databases and MQTT' in docs/cycles.md"
REPLACED_TYPES = {
    "sql": f"the type 'sql' no longer exists; {RECIPE}",
    "file": "the type 'file' no longer exists; use 'interval' and a function that lists the files, as under "
    "'Triggers' in docs/cycles.md",
    "mqtt": f"the type 'mqtt' no longer exists; {RECIPE}",
}
"""Advice for types that earlier versions had."""


def _check_type(part: Any) -> Any:
    kind = cast("dict[str, Any]", part).get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in REPLACED_TYPES:
        raise removed_error(REPLACED_TYPES[kind], "type")
    return cast("Any", part)


class CamelCase(Strict):
    """Keys are in camelCase in a file, and in snake_case in Python."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Named(CamelCase):
    """A part with a name that is unique in its stage."""

    name: Name


class Prompted(Named):
    """A substage that may ask a model, whose reply follows `outputSchema`."""

    prompt: Template | None = None
    output_schema: dict[str, Any] | None = Field(
        default=None, description="The JSON Schema that the reply must follow."
    )
    model: ModelName | None = Field(default=None, description="Default: the agent's.")
    timeout_ms: Milliseconds | None = Field(
        default=None,
        description="How long the model may take, in milliseconds, a second question included. "
        "Default: ten minutes.",
    )


def _conditions_of_prompted(kind: str, rules: str, *, with_schema: bool = True) -> Iterator[Condition]:
    """The conditions on a part that asks a model, follows `rules` or calls a function."""
    configs = [{"required": [rules], "properties": {rules: {"minItems": 1}}}, {"required": ["function"]}]
    configured = [{"required": ["config"], "properties": {"config": config}} for config in configs]
    yield Condition(
        {"anyOf": [{"required": ["prompt"]}, *configured]},
        f"{kind!r} needs a 'prompt', or in its config '{rules}' or a 'function'",
    )
    for key in ("outputSchema", "model", "timeoutMs"):
        needs = {"dependentRequired": {key: ["prompt"]}}
        yield Condition(needs, f"{key!r} needs a 'prompt', but none is given", key)
    if with_schema:
        needs = {"dependentRequired": {"prompt": ["outputSchema"]}}
        yield Condition(needs, "a 'prompt' needs an 'outputSchema', which the reply must follow")


class FunctionTimeout(CamelCase):
    """A call of one of the program's functions."""

    timeout_ms: Milliseconds | None = Field(
        default=None, description="How long the function may take, in milliseconds. Default: no limit."
    )


class FunctionOption(FunctionTimeout):
    """A part that may call one of the program's functions."""

    function: Name | None = None

    conditions = (
        Condition(
            {"dependentRequired": {"timeoutMs": ["function"]}},
            "it needs a 'function', but none is given",
            "timeoutMs",
        ),
    )


class AnomalyRule(CamelCase):
    """An anomaly, reported when its condition holds."""

    name: Name
    when: Expression
    severity: Severity = "warning"
    message: Template = ""


class Check(CamelCase):
    """A condition that must hold."""

    name: Name
    require: Expression
    message: Template = ""


class Request(CamelCase):
    """An HTTP request."""

    url: Template
    method: Method = "GET"
    headers: dict[str, Template] = Field(default_factory=dict[str, str])
    body: Any = Field(default=None, description="Sent as JSON; strings in it may be templates.")
    timeout_ms: Milliseconds = 10_000


class Source(CamelCase):
    """Where the data of a source goes in the payload, and whether the cycle needs it."""

    into: str | None = Field(
        default=None,
        description="The key in the payload. Default: an object is merged into the payload, "
        "anything else goes under the source's name.",
    )
    required: bool = Field(
        default=False,
        description="Whether the cycle fails if the source does; otherwise the data has its error.",
    )


class ActionLimit(CamelCase):
    """A rate limit over a sliding period; failed attempts count, too."""

    max_runs: int = Field(ge=0, description="The maximum number of runs in the period; 0: never.")
    per_ms: Milliseconds = Field(description="The length of the period, in milliseconds.")


class ApiSource(Source, Request):
    """A source over HTTP; every request but a `GET` has an `Idempotency-Key`."""

    limit: ActionLimit | None = Field(
        default=None,
        description="How often the source may be asked; beyond that, it fails. Default: no limit.",
    )

    @property
    def is_reading(self) -> bool:
        """Whether its request has no side effect and no limit."""
        return self.method == "GET" and self.limit is None


class CsvSource(Source):
    """A CSV file; its path is relative to the agent file."""

    path: Template
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    last: int | None = Field(default=None, ge=1, description="Read only this many rows, from the end.")


class MessagesSource(Source):
    """Messages from other agents and programs since the last cycle."""

    topic: Name | None = None
    most: int = Field(default=100, ge=1, description="Take only this many, the newest.")


class FunctionSource(Source, FunctionTimeout):
    """A function of the program as a source."""

    function: Name
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")


class ApiSense(Named):
    """Fetch data over HTTP."""

    type: Literal["api"]
    config: ApiSource


class CsvSense(Named):
    """Read a CSV file."""

    type: Literal["csv"]
    config: CsvSource


class MessagesSense(Named):
    """Take messages."""

    type: Literal["agent-messages"]
    config: MessagesSource = MessagesSource()


class FunctionSense(Named):
    """Call a function of the program."""

    type: Literal["function"]
    config: FunctionSource


SenseSubstage: TypeAlias = Annotated[
    ApiSense | CsvSense | MessagesSense | FunctionSense,
    Field(discriminator="type"),
    BeforeValidator(_check_type),
]


class Sense(CamelCase):
    """Observe the world."""

    substages: list[SenseSubstage] = Field(min_length=1)


class AnalyzeConfig(FunctionOption):
    """An analysis without a model: by rules, or by a function of the program."""

    rules: list[AnomalyRule] = Field(
        default_factory=list[AnomalyRule], description="A rule that holds is an anomaly."
    )


class PlanRule(CamelCase):
    """An action that is planned when a condition holds."""

    when: Expression | None = None
    action: Name = Field(description="The name of an action of `execute`.")
    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    reason: Template = ""


class PlanConfig(FunctionOption):
    """A plan without a model: by rules, or by a function of the program."""

    rules: list[PlanRule] = Field(default_factory=list[PlanRule])


class Constraint(Check):
    """A condition that must hold: for each planned `action` if it mentions one, else for the plan.

    A condition that can't be evaluated, because a parameter that it reads is missing, does not hold; write
    `| default(0)` to allow that.
    """

    enforce: Literal["block", "record"] = "block"


class GovernConfig(CamelCase):
    """The constraints on a plan."""

    constraints: list[Constraint] = Field(default_factory=list[Constraint])


class AuthorizeConfig(CamelCase):
    """Who decides on the plan.

    Autonomous: the agent. Supervised: a person within `timeoutMs`, after that the default. Controlled: a
    person, without a time limit.
    """

    mode: Literal["autonomous", "supervised", "controlled"] = "autonomous"
    timeout_ms: Milliseconds = 60_000
    default: Literal["approve", "reject"] = "reject"
    when: Expression | None = Field(default=None, description="Ask a person only when this holds.")


class Analyze(Prompted):
    """Interpret the data."""

    type: Literal["analyze"]
    config: AnalyzeConfig = AnalyzeConfig()

    conditions = tuple(_conditions_of_prompted("analyze", "rules"))


class Plan(Prompted):
    """Choose actions by name."""

    type: Literal["plan"]
    config: PlanConfig = PlanConfig()

    conditions = tuple(_conditions_of_prompted("plan", "rules", with_schema=False))


class Govern(Named):
    """Check the plan against constraints, and record violations."""

    type: Literal["govern"]
    config: GovernConfig


class Authorize(Named):
    """Decide on the plan."""

    type: Literal["authorize"]
    config: AuthorizeConfig = AuthorizeConfig()


ReasonSubstage: TypeAlias = Annotated[Analyze | Plan | Govern | Authorize, Field(discriminator="type")]


class Reason(CamelCase):
    """Interpret the data and choose what to do."""

    substages: list[ReasonSubstage] = Field(min_length=1)


NoticeEvent: TypeAlias = Literal["waiting", "alert", "failure", "recovery"]

NOTIFICATIONS = "see 'Notifications' in docs/cycles.md"
REPLACED_NOTIFY_KEYS = {
    "type": f"'notify' is one webhook, so 'type' no longer exists; delete it, and {NOTIFICATIONS}",
    "limit": "a notification has no 'limit' any more: a failure is sent when it begins and when it ends. For "
    f"alerts, set the 'limit' of their action, and {NOTIFICATIONS}",
    "method": f"'method' no longer exists: a notification is a POST request; {NOTIFICATIONS}",
}


class Notify(CamelCase):
    """The webhook through which people are notified; templates see `notice`."""

    url: Template
    secret: Template | None = Field(
        default=None, description="Signs the requests, as standardwebhooks.com describes: `{{env.NAME}}`."
    )
    events: list[NoticeEvent] = Field(
        default=["waiting", "alert", "failure", "recovery"],
        min_length=1,
        description="Which events to send: a plan waits for a person, an alert, something began to fail, it "
        "no longer fails. Default: all.",
    )
    headers: dict[str, Template] = Field(default_factory=dict[str, str])
    body: Any = Field(
        default=None, description="Sent as JSON; strings in it may be templates. Default: all of `notice`."
    )
    timeout_ms: Milliseconds = 10_000

    @model_validator(mode="before")
    @classmethod
    def _check_form(cls, value: Any) -> Any:
        """Reject the forms of earlier versions, with what replaces them."""
        if isinstance(value, list):
            items = cast("list[Any]", value)
            mappings = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
            is_email = any(item.get("type") == "email" for item in mappings)
            email = "the type 'email' no longer exists, and " if is_email else ""
            raise removed_error(
                f"{email}'notify' is one webhook: write its keys under 'notify', without a list; "
                f"{NOTIFICATIONS}"
            )
        for key, advice in REPLACED_NOTIFY_KEYS.items() if isinstance(value, dict) else ():
            if key in value:
                raise removed_error(advice, key)
        return cast("Any", value)


class Action(CamelCase):
    """An action; a plan may name only declared actions, and gives them `params`."""

    name: Name
    limit: ActionLimit | None = Field(
        default=None,
        description="How often the action may run; beyond that, it is blocked. Default: no limit.",
    )
    when: Expression | None = Field(
        default=None,
        description="Run the action when this holds, planned or not. Without a `plan` in the file, an action "
        "that has no condition runs in every cycle.",
    )


class ApiCallAction(Action, Request):
    """Send an HTTP request with an `Idempotency-Key`."""

    type: Literal["api_call"]
    method: Method = "POST"


class FunctionAction(Action, FunctionTimeout):
    """Call a function of the program."""

    type: Literal["function"]
    function: Name
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")


class LogAction(Action):
    """Write a log line."""

    type: Literal["log"]
    message: Template
    severity: Severity = "info"


class AlertAction(Action):
    """Publish an alert on the bus and in the log."""

    type: Literal["alert"]
    message: Template
    severity: Severity = "warning"


AnyAction: TypeAlias = Annotated[
    ApiCallAction | FunctionAction | LogAction | AlertAction,
    Field(discriminator="type"),
    BeforeValidator(_check_type),
]


class ExecuteConfig(CamelCase):
    """What the agent can do."""

    actions: list[AnyAction] = Field(min_length=1)
    limit: ActionLimit | None = Field(
        default=None,
        description="How often actions may run, all of this substage together. Default: no limit.",
    )


class EvaluateConfig(FunctionOption):
    """How to decide without a model whether the actions worked."""

    checks: list[Check] = Field(default_factory=list[Check])


class Execute(Named):
    """Run the actions that were planned and approved."""

    type: Literal["execute"]
    config: ExecuteConfig


class Evaluate(Prompted):
    """Judge whether the actions worked."""

    type: Literal["evaluate"]
    config: EvaluateConfig = EvaluateConfig()

    conditions = tuple(_conditions_of_prompted("evaluate", "checks"))


ActuateSubstage: TypeAlias = Annotated[Execute | Evaluate, Field(discriminator="type")]


class Actuate(CamelCase):
    """Act, and judge whether it worked."""

    substages: list[ActuateSubstage] = Field(min_length=1)


MEMORY_KEY = r"^memory\.[A-Za-z_][A-Za-z0-9_]*$"
"""The pattern of a memory key in a file."""


class LearnConfig(CamelCase):
    """Where new patterns go."""

    target: str | None = Field(
        default=None,
        pattern=MEMORY_KEY,
        description="Default: the only custom memory key that the prompt names, else `memory.patterns`.",
    )


def _conditions_of_policies() -> Iterator[Condition]:
    """The conditions on the policies of a retention and the numbers that they need."""
    numbers = [{"required": [key]} for key in ("policy", "maxItems", "ttlMs")]
    yield Condition({"anyOf": numbers}, "expected 'maxItems', 'ttlMs', or both")
    for policy, number in (("max_items", "maxItems"), ("ttl", "ttlMs")):
        listed = {"anyOf": [{"const": policy}, {"type": "array", "contains": {"const": policy}}]}
        with_it = {"required": ["policy"], "properties": {"policy": listed}}
        without = {"required": ["policy"], "properties": {"policy": {"not": listed}}}
        needs = {"if": with_it, "then": {"required": [number]}}
        excludes = {"if": without, "then": {"properties": {number: False}}}
        yield Condition(needs, f"the policy {policy!r} needs {number!r}")
        yield Condition(excludes, f"{number!r} belongs to the policy {policy!r}; list both policies", number)


class Retention(CamelCase):
    """A bound on a memory key: by number of items, by age, or both."""

    policy: Literal["max_items", "ttl"] | list[Literal["max_items", "ttl"]] | None = Field(
        default=None, description="May be omitted: `maxItems` and `ttlMs` apply if they are set."
    )
    max_items: int | None = Field(
        default=None, ge=0, description="Keep only this many items, the most recent."
    )
    ttl_ms: int | None = Field(
        default=None, ge=0, description="Discard items older than this, in milliseconds."
    )

    conditions = tuple(_conditions_of_policies())


class UpdateStateConfig(CamelCase):
    """How long each memory key keeps its items; keys are written as `memory.patterns`."""

    retention: dict[str, Retention] = Field(
        default_factory=dict[str, Retention], json_schema_extra={"propertyNames": {"pattern": MEMORY_KEY}}
    )


class MetricsConfig(CamelCase):
    """The metrics that are recorded for each cycle; all are off by default."""

    track_cycle_duration: bool = False
    track_llm_tokens: bool = Field(default=False, alias="trackLLMTokens")
    track_cost: bool = False
    track_anomaly_count: bool = False
    track_alert_count: bool = False


class Learn(Prompted):
    """Ask a model what can be learned from the cycle."""

    type: Literal["learn"]
    prompt: Template  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues] (required here)
    config: LearnConfig = LearnConfig()


class UpdateState(Named):
    """Write the memory; nothing else changes it."""

    type: Literal["update-state"]
    config: UpdateStateConfig = UpdateStateConfig()


class CaptureMetrics(Named):
    """Record metrics of the cycle."""

    type: Literal["capture-metrics"]
    config: MetricsConfig = MetricsConfig()


ReflectSubstage: TypeAlias = Annotated[Learn | UpdateState | CaptureMetrics, Field(discriminator="type")]


class Reflect(CamelCase):
    """Learn from the cycle, within bounds."""

    substages: list[ReflectSubstage] = Field(min_length=1)


class IntervalTrigger(CamelCase):
    """Start a cycle at fixed intervals; missed times start a single cycle."""

    type: Literal["interval"]
    interval_ms: Milliseconds = Field(description="From one start to the next.")


class ManualTrigger(CamelCase):
    """Start a cycle on request only."""

    type: Literal["manual"]


class MessageTrigger(CamelCase):
    """Start a cycle when a message arrives."""

    type: Literal["message"]
    topic: Name | None = Field(default=None, description="The topic of the message. Default: any.")


class CronTrigger(CamelCase):
    """Start a cycle at times of day; missed times start a single cycle."""

    type: Literal["cron"]
    expression: str = Field(
        min_length=1,
        max_length=200,
        description="Minute, hour, day of month, month, day of week: `30 7 * * mon-fri`; or a name such as "
        "`@daily`. With six fields, the first is the second.",
    )
    timezone: str = Field(
        default="UTC", description="The time zone of the expression, such as `Europe/Vienna`."
    )


class WebhookTrigger(CamelCase):
    """Start a cycle when a signed request arrives at `redraft cycle run --listen`.

    Its body becomes a message under the topic, for an `agent-messages` source. The address ends in
    `/hooks/AGENT/TOPIC`.
    """

    type: Literal["webhook"]
    topic: Name = Field(description="The topic of the message, and the last part of the address.")
    secret: Variable = Field(
        description="The environment variable with the secret that requests are signed with."
    )


Trigger: TypeAlias = Annotated[
    IntervalTrigger | CronTrigger | MessageTrigger | WebhookTrigger | ManualTrigger,
    Field(discriminator="type"),
    BeforeValidator(_check_type),
]


class Stages(CamelCase):
    """The stages of a cycle; each is optional."""

    sense: Sense | None = None
    reason: Reason | None = None
    actuate: Actuate | None = None
    reflect: Reflect | None = None

    conditions = (
        Condition(
            {"minProperties": 1}, "expected at least one of the stages sense, reason, actuate, reflect"
        ),
    )


class MemoryLimits(CamelCase):
    """How much memory prompts show, and how many cycles are stored."""

    prompt_tokens: int = Field(default=2_000, ge=0, description="For all memory keys of one prompt together.")
    cycles: int = Field(
        default=1_000, ge=1, description="How many cycles are stored, with their memory changes."
    )


class AgentSpec(CamelCase):
    """An agent that runs in cycles: Sense, Reason, Actuate, Reflect."""

    name: Name
    description: str = ""
    model: ModelName | None = Field(default=None, description="The default model of substages.")
    models: dict[str, ModelName] = Field(
        default_factory=dict[str, str], description="Aliases: short names and the models they stand for."
    )
    env: list[Variable] = Field(
        default_factory=list[str],
        description="The environment variables that requests and calls may read as `env.NAME`, so that no "
        "key has to be written into the file; prompts can't read them.",
    )
    triggers: list[Trigger] = Field(default_factory=lambda: [ManualTrigger(type="manual")])
    notify: Notify | None = Field(default=None, description="How people are notified. Default: not at all.")
    memory: MemoryLimits = MemoryLimits()
    stages: Stages


ID = "urn:redraft:agent:1"

DESCRIPTIONS = {
    "actions": "What the agent can do; a plan names some of these.",
    "actuate": "Act, and judge whether it worked.",
    "checks": "What must hold if the actions worked.",
    "config": "Its settings.",
    "constraints": "What the plan must comply with.",
    "default": "The decision if no person makes one in time.",
    "delimiter": "The separator of values.",
    "description": "For readers.",
    "enforce": "`block`: an action that violates it is not run; `record`: it is run, and that is recorded.",
    "function": "The name of a function that the program gives to the agent.",
    "headers": "The HTTP headers.",
    "memory": "Bounds on the memory.",
    "message": "The text.",
    "method": "The HTTP method.",
    "mode": "Who decides on the plan: the agent, a person within a time limit, or a person.",
    "name": "Its name.",
    "params": "What the action sees as `params`.",
    "path": "The file, relative to this one.",
    "prompt": "The prompt for the model.",
    "reason": "Why.",
    "reflect": "Learn from the cycle, within bounds.",
    "retention": "How long items are kept, by keys such as `memory.patterns`.",
    "rules": "Rules that work without a model.",
    "sense": "Observe the world.",
    "severity": "How serious it is.",
    "stages": "What the agent does in each cycle.",
    "substages": "The parts of the stage, in order; sources of `sense` that only read are read in parallel.",
    "timeoutMs": "The time limit, in milliseconds.",
    "topic": "The topic of the message.",
    "trackAlertCount": "The number of alerts published.",
    "trackAnomalyCount": "The number of anomalies.",
    "trackCost": "The cost of the model calls, in US dollars.",
    "trackCycleDuration": "The time from the start of Sense to the end of Reflect.",
    "trackLLMTokens": "The tokens of all model calls.",
    "triggers": "What starts a cycle.",
    "type": "Its kind.",
    "url": "The address.",
    "with": "The arguments of the function; strings in them may be templates.",
}
"""The default descriptions of keys; a field's own description overrides it."""


def agent_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of agent files.

    It accepts some files that `CycleAgent` rejects, which also compiles schemas and templates and resolves
    names. Unlike `CycleAgent`, it rejects a key without a value, which can be omitted.
    """
    parts = parts_of([AgentSpec], DESCRIPTIONS)
    return {"$schema": DRAFT, "$id": ID, **parts.pop("AgentSpec"), "title": "Agent", "$defs": parts}


STAGES = ("sense", "reason", "actuate", "reflect")
MEMORY = "memory."

CONDITIONS = frozenset({"when", "require"})
TEMPLATES = frozenset(
    {"prompt", "url", "headers", "body", "message", "reason", "with", "params", "path", "secret"}
)
"""The keys whose strings are templates, at any depth."""


class Text(NamedTuple):
    """A template or condition in the file, and the path to it."""

    text: str
    path: KeyPath
    is_condition: bool

    @property
    def template(self) -> str:
        """The text as a template."""
        return braced(self.text) if self.is_condition else self.text


def substages(spec: AgentSpec) -> Iterator[tuple[str, Any, KeyPath]]:
    """Each substage with its stage and the path to it, in the order in which they run."""
    for stage in STAGES:
        part: Any = getattr(spec.stages, stage)
        for at, substage in enumerate(part.substages if part is not None else ()):
            yield stage, substage, ("stages", stage, "substages", at)


def substages_of(spec: AgentSpec, kind: type[S]) -> list[S]:
    """The substages of a type, in the order in which they run."""
    stages = (getattr(spec.stages, stage) for stage in STAGES)
    return [part for stage in stages if stage for part in stage.substages if isinstance(part, kind)]


def texts(part: object, path: KeyPath) -> Iterator[Text]:
    """Every template and condition in a part of the file."""
    if isinstance(part, list):
        for at, item in enumerate(cast("list[object]", part)):
            yield from texts(item, (*path, at))
    elif isinstance(part, BaseModel):
        for name, value in part:
            key = type(part).model_fields[name].alias or name
            if key in CONDITIONS and isinstance(value, str):
                yield Text(value, (*path, key), is_condition=True)
            elif key in TEMPLATES:
                for text, place in templates_in(value, (*path, key)):
                    yield Text(text, place, is_condition=False)
            else:
                yield from texts(value, (*path, key))


def memory_keys(spec: AgentSpec) -> tuple[str, ...]:
    """The keys of an agent's memory: the standard keys, and the keys that its file names.

    A file names keys in prompts, conditions, targets and retention policies.
    """
    keys: dict[str, None] = dict.fromkeys(STANDARD_KEYS)
    for _, substage, path in substages(spec):
        for text in texts(substage, path):
            keys |= dict.fromkeys(memory_keys_in(text.template))
        if isinstance(substage, UpdateState):
            keys |= dict.fromkeys(key.removeprefix(MEMORY) for key in substage.config.retention)
        if isinstance(substage, Learn) and substage.config.target is not None:
            keys[substage.config.target.removeprefix(MEMORY)] = None
    return tuple(keys)


def functions_in(part: object) -> Iterator[str]:
    """The names of the program's functions in a part of the file."""
    if isinstance(part, list):
        for item in cast("list[object]", part):
            yield from functions_in(item)
    elif isinstance(part, BaseModel):
        for name, value in part:
            if name == "function" and value is not None:
                yield value
            else:
                yield from functions_in(value)


def callers_in(spec: AgentSpec) -> dict[str, bool]:
    """The steps that call functions of the program, such as `actuate/act/order`; true for actions."""
    callers = {
        f"actuate/{part.name}/{action.name}": True
        for part in substages_of(spec, Execute)
        for action in part.config.actions
        if isinstance(action, FunctionAction)
    }
    for stage, part, _ in substages(spec):
        if not isinstance(part, Execute) and any(functions_in(part)):
            callers[stage if stage == "sense" else f"{stage}/{part.name}"] = False
    return callers


ANY = "*"
"""Matches every name."""


def parameters_of(action: BaseModel) -> tuple[str, ...]:
    """The parameters that an action reads, sorted; `*` if it reads all of `params`."""
    parameters: set[str] = set()
    for path in (path for text in texts(action, ()) for path in valid_template(text.template).paths):
        rest = path[1:] if path[0] == "action" and path[1:2] == ("params",) else path
        if path == ("action",):
            parameters.add(ANY)
        elif rest[0] == "params":
            parameters.add(str(rest[1]) if len(rest) > 1 else ANY)
    return tuple(sorted(parameters))


def memory_keys_in(text: str) -> list[str]:
    """The memory keys that a template reads, sorted."""
    paths = valid_template(text).paths
    return sorted({str(path[1]) for path in paths if path[0] == "memory" and len(path) > 1})


@dataclass(frozen=True, slots=True)
class AgentFile(SpecFile[AgentFileError]):
    """The text and name of an agent file; its errors name the line, the stage, the substage and the key."""

    file: str = "agent"

    expected: ClassVar[str] = "an agent must be a mapping with 'name' and 'stages'"
    error_type: ClassVar[type[AgentFileError]] = AgentFileError

    def location(self, path: KeyPath, /) -> dict[str, str | None]:
        """The stage, the substage and the key at a path."""
        return location_in(load_yaml(self.text, self.file), path)


def location_in(document: Any, path: KeyPath) -> dict[str, str | None]:
    """The stage, the substage and the key at a path in an agent's document."""
    match path:
        case ("stages", stage, "substages", int(at), *inside):
            substage: Any = document["stages"][stage]["substages"][at]
            name = cast("dict[str, Any]", substage).get("name") if isinstance(substage, dict) else None
            location = {"stage": str(stage), "substage": str(name) if name else f"number {at + 1}"}
        case ("stages", stage, *inside):
            location = {"stage": str(stage)}
        case _:
            location, inside = {}, path
    return {**location, "key": ".".join(map(str, inside)) or None}


def parse_agent_file(source: AgentFile) -> AgentSpec:
    """Parse an agent file; raises `AgentFileError` with all mistakes in its form."""
    document = source.document()
    if wrong := source.mistakes_in(AgentSpec, document):
        raise AgentFileError.of([source.error(path, what) for path, what in wrong])
    return AgentSpec.model_validate(document)
