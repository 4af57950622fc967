"""Check: find what is wrong with an agent file before anything is spent."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from redraft._validation import nearest
from redraft.cycles.cycle import DERIVED
from redraft.cycles.notices import Notice, Webhook
from redraft.cycles.records import as_object
from redraft.cycles.reflect import INSIGHTS
from redraft.cycles.spec import (
    MEMORY,
    Analyze,
    ApiSense,
    Authorize,
    CaptureMetrics,
    CronTrigger,
    Evaluate,
    Execute,
    FunctionAction,
    FunctionSense,
    Govern,
    Learn,
    MessagesSense,
    MessageTrigger,
    Plan,
    Request,
    UpdateState,
    WebhookTrigger,
    error_location,
    memory_keys,
    substages,
    texts,
)
from redraft.cycles.triggers import next_time
from redraft.errors import AgentFileError, ConfigError, MissingExtraError
from redraft.http import is_web_address, require_http
from redraft.redact.log import logger
from redraft.text.schema import Schema
from redraft.text.spec_file import unmet_conditions
from redraft.text.templates import TemplateError, template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.cycles.spec import AgentFile, AgentSpec, Text
    from redraft.protocols import ChatModel
    from redraft.text.yaml import KeyPath

SCOPES: Mapping[str, tuple[str, ...] | None] = {
    "environmentalData": ("payload", "errors", "at"),
    "derivedData": DERIVED,
    "memory": None,
    "agent": ("name", "description"),
    "cycle": (),
    "action": ("action", "params", "reason", "id", "name", "type"),
    "notice": tuple(one.name for one in fields(Notice)),
}
"""The names that templates see, and the keys of each if they are known; `cycle` is a number."""
NOTICE = "notice"
"""Only notifications see it."""

DERIVED_KEYS: Mapping[str, tuple[str, ...]] = {
    "governance": ("violations", "approved", "authority"),
    "execution": ("actions",),
}
"""The keys of `derivedData` that only Redraft writes."""

LEARNED_KEYS = ("newPatterns", "reinforcedPatterns", "deprecatedPatterns", "confidenceAdjustment")
"""What `update-state` takes from the answer of a `learn`."""

ENV = "env"
OUTWARD = frozenset({"url", "headers", "body", "with", "path"})
"""Only requests and calls see `env`, so that no prompt or log shows a key."""

PROVIDED = ("state", "idempotency_key")
"""Parameters of a function that are filled in by their names."""


def check(
    spec: AgentSpec,
    source: AgentFile | None,
    functions: Mapping[str, Callable[..., Any]],
    model_for: Callable[[str | None], ChatModel],
) -> None:
    """Raise `AgentFileError` for the first thing that can't work, with its line if there is a `source`.

    `model_for` returns the model of a name (None: the agent's own) or raises `ConfigError`.
    """
    _Checker(spec, source, functions, model_for).check()


class _Checker:
    def __init__(
        self,
        spec: AgentSpec,
        source: AgentFile | None,
        functions: Mapping[str, Callable[..., Any]],
        model_for: Callable[[str | None], ChatModel],
    ) -> None:
        self.spec = spec
        self.source = source
        self.functions = functions
        self.model_for = model_for
        self.parts = list(substages(spec))
        self.actions: dict[str, KeyPath] = {}

    def fail(self, way: KeyPath, problem: str) -> NoReturn:
        if self.source is not None:
            self.source.fail(way, problem)
        where = error_location(self.spec.model_dump(by_alias=True), way)
        shown = ", ".join(part for part in (f"The agent {self.spec.name!r}", *where.shown) if part)
        message = f"{shown}: {problem.rstrip('.')}."
        raise AgentFileError(message, stage=where.stage, substage=where.substage, key=where.key)

    def check(self) -> None:
        self.check_names()
        self.check_triggers()
        self.check_notify()
        self.check_actions()
        for way, problem in unmet_conditions(self.spec):
            self.fail(way, problem)
        for stage, substage, way in self.parts:
            for text in texts(substage, way):
                self.check_text(text, stage)
            self.check_prompt(substage, way)
            self.check_functions(substage, way)
            self.check_requests(substage, way)
            if isinstance(substage, Plan):
                self.check_plan(substage, way)
            elif isinstance(substage, UpdateState):
                for key in substage.config.retention:
                    if not key.startswith(MEMORY) or not key.removeprefix(MEMORY).isidentifier():
                        place = (*way, "config", "retention", key)
                        self.fail(place, f"expected a memory key such as 'memory.patterns', got {key!r}")
        self.check_order()
        self.check_learnings_used()

    def check_names(self) -> None:
        if not self.spec.name.isprintable() or not self.spec.name.strip():
            self.fail(("name",), f"expected a visible name on one line, got {self.spec.name!r}")
        seen: set[tuple[str, str]] = set()
        for stage, substage, way in self.parts:
            if (stage, substage.name) in seen:
                self.fail(
                    (*way, "name"),
                    f"there are two substages named {substage.name!r} in this stage; rename one",
                )
            seen.add((stage, substage.name))

    def check_triggers(self) -> None:
        taken = {part.config.topic for _, part, _ in self.parts if isinstance(part, MessagesSense)}
        hooks: set[str] = set()
        for at, trigger in enumerate(self.spec.triggers):
            way: KeyPath = ("triggers", at)
            if isinstance(trigger, MessageTrigger | WebhookTrigger) and taken.isdisjoint(
                {None, trigger.topic}
            ):  # the message would start one cycle after another
                of = "of any topic" if trigger.topic is None else f"of the topic {trigger.topic!r}"
                self.fail(
                    way,
                    f"it starts a cycle for each message {of}, but nothing reads these messages; add a "
                    "source of the type 'agent-messages' to 'sense'",
                )
            if isinstance(trigger, WebhookTrigger):
                if trigger.topic in hooks:
                    self.fail(
                        (*way, "topic"),
                        f"there are two webhooks of the topic {trigger.topic!r}; give each a topic of its "
                        "own",
                    )
                hooks.add(trigger.topic)
            if isinstance(trigger, CronTrigger):
                try:
                    next_time(trigger.expression, trigger.timezone, datetime.now(UTC))
                except MissingExtraError:
                    raise
                except ConfigError as error:
                    self.fail(way, str(error))

    def check_notify(self) -> None:
        """Check the templates, the address and the secret of the webhook."""
        if self.spec.notify is None:
            return
        for text in texts(self.spec.notify, ("notify",)):
            self.check_template(text, [NOTICE, ENV])
        try:
            Webhook(self.spec.notify, self.spec.env)
        except ConfigError as error:
            self.fail(("notify",), str(error))

    def check_actions(self) -> None:
        """Check that the names of actions are unique, since a plan refers to them."""
        for _, substage, way in self.parts:
            for at, action in enumerate(substage.config.actions if isinstance(substage, Execute) else ()):
                place = (*way, "config", "actions", at)
                if action.name in self.actions:
                    self.fail((*place, "name"), f"there are two actions named {action.name!r}; rename one")
                self.actions[action.name] = place

    def check_text(self, text: Text, stage: str) -> None:
        self.check_template(
            text,
            [*(name for name in SCOPES if name not in ("action", NOTICE)), *_extra_scopes(text.way, stage)],
        )

    def check_template(self, text: Text, scopes: Sequence[str]) -> None:
        """Check that a template or condition parses, and reads only names that are in its scopes."""
        try:
            found = template(text.template)
        except TemplateError as error:
            what = "condition" if text.is_condition else "template"
            self.fail(text.way, f"invalid {what}: {error}")
        for path in sorted(found.paths, key=str):
            name = str(path[0])
            if name not in scopes:
                hint = "only requests and calls can read it" if name == ENV else nearest(name, scopes)
                self.fail(text.way, f"unknown name {name!r}; {hint}")
            if name == ENV and len(path) > 1 and path[1] not in self.spec.env:
                self.fail(text.way, f"the variable {path[1]!r} is not listed under 'env'")
            self.check_path(text.way, name, SCOPES.get(name), path[1:])
            if name == "derivedData" and len(path) > 1:
                self.check_path(text.way, f"derivedData.{path[1]}", DERIVED_KEYS.get(str(path[1])), path[2:])

    def check_path(
        self, way: KeyPath, name: str, keys: tuple[str, ...] | None, further: Sequence[str | int]
    ) -> None:
        """Check that a name whose keys are known has the key that the path goes on with."""
        if keys is None or not further or further[0] in keys:
            return
        if name == "cycle":
            self.fail(
                way, f"'cycle' is the number of the cycle and has no {further[0]!r}; write {{{{cycle}}}}"
            )
        self.fail(way, f"{name!r} has no {further[0]!r}; {nearest(str(further[0]), keys)}")

    def check_prompt(self, substage: Any, way: KeyPath) -> None:
        """Check a substage that may ask a model: its schema and its model."""
        if not isinstance(substage, Analyze | Plan | Evaluate | Learn):
            return
        if substage.output_schema is not None:
            self.check_schema(substage.output_schema, (*way, "outputSchema"))
        if substage.prompt is not None:
            try:
                self.model_for(substage.model)
            except ConfigError as error:
                place = (*way, "model") if substage.model else way
                self.fail(place, f"{error} Aliases are defined under 'models'")

    def check_schema(self, schema: dict[str, Any], way: KeyPath) -> None:
        try:
            Schema(schema)
        except ConfigError as error:
            self.fail(way, str(error))
        if schema.get("type", "object") != "object":
            self.fail((*way, "type"), f"the reply must be an object, not {schema['type']!r}")

    def check_functions(self, substage: Any, way: KeyPath) -> None:
        """Check that the functions a substage names exist and accept their arguments."""
        if isinstance(substage, FunctionSense):
            self.check_function(substage.config.function, substage.config.with_, (*way, "config", "function"))
        elif isinstance(substage, Analyze | Plan | Evaluate):
            if substage.config.function is not None:
                self.check_function(substage.config.function, {}, (*way, "config", "function"))
        elif isinstance(substage, Execute):
            for at, action in enumerate(substage.config.actions):
                if isinstance(action, FunctionAction):
                    place = (*way, "config", "actions", at, "function")
                    self.check_function(action.function, action.with_, place)

    def check_function(self, name: str, arguments: Mapping[str, Any], way: KeyPath) -> None:
        if name not in self.functions:
            self.fail(way, f"the program provides no function {name!r}; {nearest(name, self.functions)}")
        function = self.functions[name]
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions written in C have no signature
            return
        filled = [key for key in PROVIDED if key in signature.parameters and key not in arguments]
        try:
            signature.bind(**dict.fromkeys([*arguments, *filled]))
        except TypeError as error:
            self.fail(way, f"the function {name!r} can't be called with {sorted(arguments)}: {error}")

    def check_requests(self, substage: Any, way: KeyPath) -> None:
        """Check the URLs of requests, unless a variable holds them."""
        parts: list[tuple[Any, KeyPath]] = []
        if isinstance(substage, ApiSense):
            parts = [(substage.config, (*way, "config"))]
        elif isinstance(substage, Execute):
            actions = enumerate(substage.config.actions)
            parts = [(action, (*way, "config", "actions", at)) for at, action in actions]
        for part, place in parts:
            if not isinstance(part, Request):
                continue
            require_http("HTTP in an agent file")
            if not template(part.url).scopes and not is_web_address(part.url):
                self.fail(
                    (*place, "url"),
                    f"expected a URL that begins with http:// or https://, got {part.url!r}",
                )

    def check_plan(self, substage: Plan, way: KeyPath) -> None:
        for at, rule in enumerate(substage.config.rules):
            if rule.action not in self.actions:
                self.fail(
                    (*way, "config", "rules", at, "action"),
                    f"no 'execute' declares an action {rule.action!r}; {nearest(rule.action, self.actions)}",
                )

    def check_order(self) -> None:
        """Check that a substage comes after those it depends on."""
        first: dict[str, int] = {}
        for number, (_, substage, _) in enumerate(self.parts):
            first.setdefault(substage.type, number)
        for number, (_, substage, way) in enumerate(self.parts):
            if isinstance(substage, Govern | Authorize) and first.get("plan", -1) > number:
                self.fail(way, f"{substage.type!r} is about the plan, so it must come after 'plan'")
            if isinstance(substage, Learn) and first.get("update-state", number) < number:
                self.fail(way, "'update-state' writes what was learned, so 'learn' must come before it")
            if isinstance(substage, UpdateState | CaptureMetrics) and first[substage.type] != number:
                self.fail(way, f"there are two substages of the type {substage.type!r}; expected one")

    def check_learnings_used(self) -> None:
        """Check that something uses what is learned: a later prompt or condition, or the memory."""
        writes = any(isinstance(substage, UpdateState) for _, substage, _ in self.parts)
        for number, (_, substage, way) in enumerate(self.parts):
            if not isinstance(substage, Learn) or self.is_read(number):
                continue
            if not writes:  # only a warning: an agent may just report what it learns
                logger.warning(
                    "The agent %r forgets what its substage %r learns; add a substage of the type "
                    "'update-state' after it, which writes that into the memory.",
                    self.spec.name,
                    substage.name,
                )
                continue
            properties = as_object((substage.output_schema or {}).get("properties"))
            takes = [*LEARNED_KEYS, *([INSIGHTS] if INSIGHTS in memory_keys(self.spec) else [])]
            if properties and properties.keys().isdisjoint(takes):
                names = list(properties)
                listed = ", ".join(map(repr, names))
                self.fail(
                    (*way, "outputSchema", "properties"),
                    f"'update-state' ignores {listed}; {nearest(names[0], takes)}",
                )

    def is_read(self, number: int) -> bool:
        """Return whether a later substage reads what was learned."""
        read = ("derivedData", "learnings")
        return any(
            path[:2] == read or path == read[:1]
            for _, substage, way in self.parts[number + 1 :]
            for text in texts(substage, way)
            for path in template(text.template).paths
        )


def _extra_scopes(way: KeyPath, stage: str) -> tuple[str, ...]:
    """Return the names that a template sees beside those of the cycle."""
    if stage == "reason" and "constraints" in way:
        return ("action",)
    outward = (ENV,) if OUTWARD.intersection(way) else ()
    return ("action", "params", *outward) if stage == "actuate" and "actions" in way else outward
