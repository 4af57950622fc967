"""Check: validate an agent file before money is spent."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft._texts import listed
from redraft._validation import is_web_address, nearest
from redraft.cycles.cycle import DERIVED
from redraft.cycles.memory import PATTERNS, STANDARD_KEYS
from redraft.cycles.notices import Notice, Webhook
from redraft.cycles.records import as_object
from redraft.cycles.reflect import INSIGHTS, custom_keys
from redraft.cycles.spec import (
    MEMORY,
    Analyze,
    ApiCallAction,
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
    Prompted,
    UpdateState,
    WebhookTrigger,
    location_in,
    memory_keys,
    memory_keys_in,
    substages,
    substages_of,
    texts,
)
from redraft.cycles.triggers import next_time
from redraft.errors import AgentFileError, ConfigError, MissingExtraError
from redraft.evaluate.checks import warn_of_ineffective_keywords
from redraft.http import require_http
from redraft.redact.log import logger
from redraft.text.schema import Schema
from redraft.text.spec_file import located, unmet_conditions
from redraft.text.templates import TemplateError, template, valid_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.cycles.spec import AgentFile, AgentSpec, AnyAction, Notify, Text
    from redraft.protocols import ChatModel
    from redraft.text.yaml import KeyPath

SCOPES: Mapping[str, tuple[str, ...] | None] = {
    "environmentalData": ("payload", "errors", "at"),
    "derivedData": DERIVED,
    "memory": None,
    "agent": ("name", "description"),
    "cycle": (),
    "action": ("action", "params", "reason", "id", "name", "type"),
    "notice": tuple(field.name for field in fields(Notice)),
}
"""The names that templates see, each with its keys (None: any key); `cycle` is a number."""
NOTICE = "notice"
"""A scope of notifications only."""

DERIVED_KEYS: Mapping[str, tuple[str, ...]] = {
    "governance": ("violations", "approved", "authority"),
    "execution": ("actions",),
}
"""Parts of `derivedData` that only Redraft writes, with their keys."""

LEARNED_KEYS = ("newPatterns", "reinforcedPatterns", "deprecatedPatterns", "confidenceAdjustment")
"""The keys that `update-state` reads in the answer of a `learn`."""

WRITTEN_KEYS = tuple(f"{MEMORY}{key}" for key in STANDARD_KEYS if key != PATTERNS)
"""Memory keys that hold no learnings: what a model says is no feedback of a person."""

ENV = "env"
OUTWARD = frozenset({"url", "headers", "body", "with", "path"})
"""Only requests and calls see `env`, so that no prompt or log shows a key."""

PROVIDED = ("state", "idempotency_key")
"""Parameters of a function that Redraft fills in, by name."""


def check(
    spec: AgentSpec,
    source: AgentFile | None,
    functions: Mapping[str, Callable[..., Any]],
    model_for: Callable[[str | None], ChatModel],
) -> None:
    """Raise `AgentFileError` with all mistakes, each with its line if there is a `source`.

    `model_for` returns the model of a name (None: the agent's own) or raises `ConfigError`.
    """
    checked = _Check(spec, source, functions, model_for)
    checked.all()
    if checked.problems:
        raise AgentFileError.of(checked.problems)


class _Check:
    """Checks every part of an agent, and collects the problems."""

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
        executes = substages_of(spec, Execute)
        self.actions = [action.name for execute in executes for action in execute.config.actions]
        self.seen_actions = set[str]()
        self.problems = list[AgentFileError]()

    def fail(self, path: KeyPath, what: str) -> None:
        if self.source is not None:
            self.problems.append(self.source.error(path, what))
            return
        location = location_in(self.spec.model_dump(by_alias=True), path)
        message = located(f"The agent {self.spec.name!r}", location, what)
        self.problems.append(AgentFileError(message, file=None, line=None, **location))

    def all(self) -> None:
        if not self.spec.name.isprintable() or not self.spec.name.strip():
            self.fail(("name",), f"expected a visible name on one line, got {self.spec.name!r}")
        self.triggers()
        if self.spec.notify is not None:
            self.notify(self.spec.notify)
        for path, what in unmet_conditions(self.spec):
            self.fail(path, what)
        seen: set[tuple[str, str]] = set()
        for stage, substage, path in self.parts:
            if (stage, substage.name) in seen:
                what = f"there are two substages named {substage.name!r} in this stage; rename one"
                self.fail((*path, "name"), what)
            seen.add((stage, substage.name))
            names = [name for name in SCOPES if name not in ("action", NOTICE)]
            for text in texts(substage, path):
                self.template(text, [*names, *_extra_scopes(text.path, stage)])
            self.substage(substage, path)
        self.order()
        self.learnings_used()

    def triggers(self) -> None:
        read_topics = {part.config.topic for part in substages_of(self.spec, MessagesSense)}
        webhook_topics: set[str] = set()
        for at, trigger in enumerate(self.spec.triggers):
            path: KeyPath = ("triggers", at)
            if isinstance(trigger, MessageTrigger | WebhookTrigger) and read_topics.isdisjoint(
                {None, trigger.topic}
            ):  # the message would start cycles without end
                of = "of any topic" if trigger.topic is None else f"of the topic {trigger.topic!r}"
                self.fail(
                    path,
                    f"it starts a cycle for each message {of}, but nothing reads these messages; add a "
                    "source of the type 'agent-messages' to 'sense'",
                )
            if isinstance(trigger, WebhookTrigger):
                if trigger.topic in webhook_topics:
                    what = (
                        f"there are two webhooks of the topic {trigger.topic!r}; give each a topic of its own"
                    )
                    self.fail((*path, "topic"), what)
                webhook_topics.add(trigger.topic)
            if isinstance(trigger, CronTrigger):
                try:
                    next_time(trigger.expression, trigger.timezone, datetime.now(UTC))
                except ConfigError as error:
                    self.fail(path, str(error))

    def notify(self, notify: Notify) -> None:
        """Check the templates, the address and the secret of the webhook."""
        for text in texts(notify, ("notify",)):
            self.template(text, [NOTICE, ENV])
        try:
            Webhook(notify, self.spec.env)
        except ConfigError as error:
            self.fail(("notify",), str(error))

    def template(self, text: Text, scopes: Sequence[str]) -> None:
        """Check that a template or condition parses, and reads only names in its scopes."""
        try:
            compiled = template(text.template)
        except TemplateError as error:
            self.fail(text.path, f"invalid {'condition' if text.is_condition else 'template'}: {error}")
            return
        for path in sorted(compiled.paths, key=str):
            name = str(path[0])
            if name not in scopes:
                hint = "only requests and calls can read it" if name == ENV else nearest(name, scopes)
                self.fail(text.path, f"unknown name {name!r}; {hint}")
                continue
            if name == ENV and len(path) > 1 and path[1] not in self.spec.env:
                self.fail(text.path, f"the variable {path[1]!r} is not listed under 'env'")
            self.keys(text.path, name, SCOPES.get(name), path[1:])
            if name == "derivedData" and len(path) > 1:
                self.keys(text.path, f"derivedData.{path[1]}", DERIVED_KEYS.get(str(path[1])), path[2:])

    def keys(self, path: KeyPath, name: str, keys: tuple[str, ...] | None, rest: Sequence[str | int]) -> None:
        """Reject unknown keys of a name whose `keys` are defined."""
        if keys is None or not rest or rest[0] in keys:
            return
        hint = f"{name!r} has no {rest[0]!r}; {nearest(str(rest[0]), keys)}"
        if name == "cycle":
            hint = f"'cycle' is the number of the cycle and has no {rest[0]!r}; write {{{{cycle}}}}"
        self.fail(path, hint)

    def substage(self, substage: Any, path: KeyPath) -> None:
        """Check the models, schemas, functions, URLs, actions and memory keys that a substage uses."""
        config = (*path, "config")
        if isinstance(substage, Prompted):
            self.prompt(substage, path)
        match substage:
            case ApiSense():
                self.url(substage.config.url, config)
            case FunctionSense():
                self.function(substage.config.function, substage.config.with_, (*config, "function"))
            case Analyze() | Plan() | Evaluate() if substage.config.function is not None:
                self.function(substage.config.function, {}, (*config, "function"))
            case Execute():
                for at, action in enumerate(substage.config.actions):
                    self.action(action, (*config, "actions", at))
            case Learn() if substage.config.target in WRITTEN_KEYS:
                what = f"'update-state' itself writes {substage.config.target!r}; expected another memory key"
                self.fail((*config, "target"), what)
            case UpdateState():
                for key in substage.config.retention:
                    if not key.startswith(MEMORY) or not key.removeprefix(MEMORY).isidentifier():
                        what = f"expected a memory key such as 'memory.patterns', got {key!r}"
                        self.fail((*config, "retention", key), what)
            case _:
                pass
        for at, rule in enumerate(substage.config.rules if isinstance(substage, Plan) else ()):
            if rule.action not in self.actions:
                what = (
                    f"no 'execute' declares an action {rule.action!r}; {nearest(rule.action, self.actions)}"
                )
                self.fail((*config, "rules", at, "action"), what)

    def prompt(self, substage: Prompted, path: KeyPath) -> None:
        """Check the schema and the model of a substage with a prompt."""
        if (schema := substage.output_schema) is not None:
            schema_path = (*path, "outputSchema")
            try:
                compiled = Schema(schema)
            except ConfigError as error:
                self.fail(schema_path, str(error))
            else:
                warn_of_ineffective_keywords(compiled, ".".join(map(str, schema_path)))
                if schema.get("type", "object") != "object":
                    self.fail((*schema_path, "type"), f"the reply must be an object, not {schema['type']!r}")
        if substage.prompt is not None:
            try:
                self.model_for(substage.model)
            except ConfigError as error:
                model_path = (*path, "model") if substage.model else path
                self.fail(model_path, f"{error} Aliases are defined under 'models'")

    def action(self, action: AnyAction, path: KeyPath) -> None:
        if action.name in self.seen_actions:
            self.fail((*path, "name"), f"there are two actions named {action.name!r}; rename one")
        self.seen_actions.add(action.name)
        if isinstance(action, FunctionAction):
            self.function(action.function, action.with_, (*path, "function"))
        elif isinstance(action, ApiCallAction):
            self.url(action.url, path)

    def function(self, name: str, arguments: Mapping[str, Any], path: KeyPath) -> None:
        """Check that a function exists and accepts its arguments."""
        if (function := self.functions.get(name)) is None:
            hint = nearest(name, self.functions)
            if not self.functions:
                file = "the agent file" if self.source is None else Path(self.source.file).name
                hint += (
                    f" Write it in functions.py next to {file}, or name a file with --functions PATH.py; in "
                    "Python, pass functions=."
                )
            self.fail(path, f"the program provides no function {name!r}; {hint}")
            return
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions written in C have no signature
            return
        provided = [key for key in PROVIDED if key in signature.parameters and key not in arguments]
        try:
            signature.bind(**dict.fromkeys([*arguments, *provided]))
        except TypeError as error:
            self.fail(path, f"the function {name!r} can't be called with {sorted(arguments)}: {error}")

    def url(self, url: str, path: KeyPath) -> None:
        """Check the URL of a request, unless it depends on a variable."""
        try:
            require_http("HTTP in an agent file")
        except MissingExtraError as error:
            self.fail(path, str(error))
            return
        if not valid_template(url).scopes and not is_web_address(url):
            self.fail((*path, "url"), f"expected a URL that begins with http:// or https://, got {url!r}")

    def order(self) -> None:
        """Check that each substage comes after the substages that it depends on."""
        first: dict[str, int] = {}
        for number, (_, substage, _) in enumerate(self.parts):
            first.setdefault(substage.type, number)
        for number, (_, substage, path) in enumerate(self.parts):
            if isinstance(substage, Govern | Authorize) and first.get("plan", -1) > number:
                self.fail(path, f"{substage.type!r} is about the plan, so it must come after 'plan'")
            if isinstance(substage, Learn) and first.get("update-state", number) < number:
                self.fail(path, "'update-state' writes what was learned, so 'learn' must come before it")
            if isinstance(substage, UpdateState | CaptureMetrics) and first[substage.type] != number:
                self.fail(path, f"there are two substages of the type {substage.type!r}; expected one")

    def learnings_used(self) -> None:
        """Check that learnings are used: by a later prompt or condition, or by the memory."""
        has_update_state = bool(substages_of(self.spec, UpdateState))
        for number, (_, substage, path) in enumerate(self.parts):
            if not isinstance(substage, Learn):
                continue
            properties = as_object((substage.output_schema or {}).get("properties"))
            if has_update_state and not (properties and properties.keys().isdisjoint(LEARNED_KEYS)):
                self.target(substage, path)
            if self.is_read_after(number):
                continue
            if not has_update_state:  # only a warning: an agent may just report its learnings
                logger.warning(
                    "The agent %r forgets what its substage %r learns; add a substage of the type "
                    "'update-state' after it, which writes that into the memory.",
                    self.spec.name,
                    substage.name,
                )
                continue
            used_keys = [*LEARNED_KEYS, *([INSIGHTS] if INSIGHTS in memory_keys(self.spec) else [])]
            if properties and properties.keys().isdisjoint(used_keys):
                names = list(properties)
                what = f"'update-state' ignores {', '.join(map(repr, names))}; {nearest(names[0], used_keys)}"
                self.fail((*path, "outputSchema", "properties"), what)

    def target(self, substage: Learn, path: KeyPath) -> None:
        """Reject a prompt from which the memory key for its patterns can't be told."""
        custom = custom_keys(substage)
        is_clear = substage.config.target is not None or PATTERNS in memory_keys_in(substage.prompt)
        if len(custom) > 1 and not is_clear:
            named = listed([repr(f"{MEMORY}{key}") for key in custom])
            what = (
                f"it reads {named}, and new patterns go to one key only; write which, such as "
                f"'target: {MEMORY}{custom[0]}', under 'config'"
            )
            self.fail((*path, "prompt"), what)

    def is_read_after(self, number: int) -> bool:
        """Whether a later substage reads the learnings."""
        learnings = ("derivedData", "learnings")
        return any(
            path[:2] == learnings or path == learnings[:1]
            for _, substage, substage_path in self.parts[number + 1 :]
            for text in texts(substage, substage_path)
            for path in valid_template(text.template).paths
        )


def _extra_scopes(path: KeyPath, stage: str) -> tuple[str, ...]:
    """The names that a template sees in addition to the names of the cycle."""
    if stage == "reason" and "constraints" in path:
        return ("action",)
    outward = (ENV,) if OUTWARD.intersection(path) else ()
    return ("action", "params", *outward) if stage == "actuate" and "actions" in path else outward
