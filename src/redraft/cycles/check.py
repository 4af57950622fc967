"""Check an agent file before anything is spent."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redraft._validation import nearest
from redraft.cycles.reflect import INSIGHTS
from redraft.cycles.spec import (
    MEMORY,
    STAGES,
    Analyze,
    Authorize,
    CaptureMetrics,
    Evaluate,
    Execute,
    FunctionAction,
    FunctionSense,
    Govern,
    Learn,
    MessagesSense,
    MessageTrigger,
    Plan,
    UpdateState,
    memory_keys,
    place_in,
    substages,
    texts,
)
from redraft.cycles.state import DERIVED
from redraft.errors import AgentFileError, ConfigError
from redraft.text.schema import Schema
from redraft.text.templates import TemplateError, template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.cycles.spec import AgentFile, AgentSpec, Retention, Text
    from redraft.protocols import ChatModel
    from redraft.text.yaml import Way

SCOPES: Mapping[str, tuple[str, ...] | None] = {
    "environmentalData": ("payload", "errors", "at"),
    "derivedData": DERIVED,
    "memory": None,
    "agent": ("name", "description"),
    "cycle": (),
    "action": ("action", "params", "reason", "id", "name", "type"),
}
"""What templates see, and the keys that each has, where they are known: a cycle is its number."""

DERIVED_KEYS: Mapping[str, tuple[str, ...]] = {
    "governance": ("violations", "approved", "authority"),
    "execution": ("actions",),
}
"""The keys of what was derived, where nobody but Redraft writes them."""

TAKEN_UP = ("newPatterns", "reinforcedPatterns", "deprecatedPatterns", "confidenceAdjustment")
"""What `update-state` takes of what `learn` gives, wherever the file says nothing else."""

ENV = "env"
OUTWARD = frozenset({"url", "headers", "body", "with", "path"})
"""Keys of what goes out, or in to the program: there `env` is seen, so that no prompt or log shows a key."""

FILLED = ("state", "idempotency_key")
"""Parameters of a function that are filled by their names."""


def check(
    spec: AgentSpec,
    source: AgentFile | None,
    functions: Mapping[str, Callable[..., Any]],
    model_for: Callable[[str | None], ChatModel],
) -> None:
    """Raise `AgentFileError` for the first thing that could not work, where in `source` it stands, if known.

    `model_for` gives the model of a name, None for the agent's own; it raises `ConfigError` for none.
    """
    _Check(spec, source, functions, model_for).all()


class _Check:
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
        self.actions: dict[str, Way] = {}

    def fail(self, way: Way, what: str) -> NoReturn:
        if self.source is not None:
            self.source.fail(way, what)
        place = place_in(self.spec.model_dump(by_alias=True), way)
        where = ", ".join(part for part in (f"The agent {self.spec.name!r}", *place.shown) if part)
        message = f"{where}: {what.rstrip('.')}."
        raise AgentFileError(message, stage=place.stage, substage=place.substage, key=place.key)

    def all(self) -> None:
        if not self.parts:
            self.fail(("stages",), f"an agent has at least one of the stages {', '.join(STAGES)}")
        self.names()
        self.triggered()
        self.declared()
        for stage, substage, way in self.parts:
            for text in texts(substage, way):
                self.text(text, stage)
            self.prompted(substage, way)
            self.called(substage, way)
            if isinstance(substage, Plan):
                self.planned(substage, way)
            elif isinstance(substage, UpdateState):
                for key, retention in substage.config.retention.items():
                    self.retention(key, retention, (*way, "config", "retention", key))
        self.order()
        self.taken_up()

    def names(self) -> None:
        if not self.spec.name.isprintable() or not self.spec.name.strip():
            self.fail(("name",), f"expected a name in one line that can be seen, got {self.spec.name!r}")
        seen: set[tuple[str, str]] = set()
        for stage, substage, way in self.parts:
            if (stage, substage.name) in seen:
                self.fail((*way, "name"), f"there are two substages named {substage.name!r} in this stage")
            seen.add((stage, substage.name))

    def triggered(self) -> None:
        """Check that a cycle takes the messages that begin it: else one would begin cycle after cycle."""
        taken = {part.config.topic for _, part, _ in self.parts if isinstance(part, MessagesSense)}
        for at, trigger in enumerate(self.spec.triggers):
            if isinstance(trigger, MessageTrigger) and taken.isdisjoint({None, trigger.topic}):
                of = "of any topic" if trigger.topic is None else f"of the topic {trigger.topic!r}"
                self.fail(
                    ("triggers", at),
                    f"it begins a cycle for each message {of}, and nothing takes these; add a source of the "
                    "type 'agent-messages' to 'sense'",
                )

    def declared(self) -> None:
        """Check that actions have names of their own, by which a plan finds them."""
        for _, substage, way in self.parts:
            for at, action in enumerate(substage.config.actions if isinstance(substage, Execute) else ()):
                place = (*way, "config", "actions", at)
                if action.name in self.actions:
                    self.fail((*place, "name"), f"there are two actions named {action.name!r}")
                self.actions[action.name] = place

    def text(self, text: Text, stage: str) -> None:
        try:
            found = template(text.template)
        except TemplateError as error:
            what = "condition" if text.is_condition else "template"
            self.fail(text.way, f"the {what} is wrong: {error}")
        scopes = [*(name for name in SCOPES if name != "action"), *_further(text.way, stage)]
        for path in sorted(found.paths, key=str):
            name = str(path[0])
            if name not in scopes:
                hint = "only requests and calls read it" if name == ENV else nearest(name, scopes)
                self.fail(text.way, f"there is no {name!r} to read; {hint}")
            if name == ENV and len(path) > 1 and path[1] not in self.spec.env:
                self.fail(text.way, f"the variable {path[1]!r} is not listed under 'env'")
            self.path(text.way, name, SCOPES.get(name), path[1:])
            if name == "derivedData" and len(path) > 1:
                self.path(text.way, f"derivedData.{path[1]}", DERIVED_KEYS.get(str(path[1])), path[2:])

    def path(self, way: Way, name: str, keys: tuple[str, ...] | None, further: Sequence[str | int]) -> None:
        """Check that what has known keys, if it has, has the one that comes next."""
        if keys is None or not further or further[0] in keys:
            return
        if name == "cycle":
            self.fail(
                way, f"'cycle' is the number of the cycle; it has no {further[0]!r}: write {{{{cycle}}}}"
            )
        self.fail(way, f"{name!r} has no {further[0]!r}; {nearest(str(further[0]), keys)}")

    def prompted(self, substage: Any, way: Way) -> None:
        """Check what asks a model: its schema, its model, and that it is one way of several."""
        if not isinstance(substage, Analyze | Plan | Evaluate | Learn):
            return
        if not isinstance(substage, Learn):
            self.one_way(substage, way)
        if substage.output_schema is not None:
            self.schema(substage.output_schema, (*way, "outputSchema"))
        if substage.prompt is not None:
            try:
                self.model_for(substage.model)
            except ConfigError as error:
                place = (*way, "model") if substage.model else way
                self.fail(place, f"{error} What a name stands for is said under 'models'")

    def one_way(self, substage: Analyze | Plan | Evaluate, way: Way) -> None:
        if isinstance(substage, Evaluate):
            kind, rules = "checks", substage.config.checks
        else:
            kind, rules = "rules", substage.config.rules
        if substage.prompt is None and not rules and substage.config.function is None:
            self.fail(way, f"{substage.type!r} needs a 'prompt', or in its config '{kind}' or a 'function'")
        if substage.config.function is None and substage.config.timeout_ms is not None:
            self.fail((*way, "config", "timeoutMs"), "it is for a 'function', and there is none")
        if substage.prompt is None:
            for key, value in (("outputSchema", substage.output_schema), ("model", substage.model)):
                if value is not None:
                    self.fail((*way, key), f"{key!r} goes with a 'prompt', and there is none")
        elif substage.output_schema is None and not isinstance(substage, Plan):
            self.fail(way, "a 'prompt' needs an 'outputSchema', which its reply has to follow")

    def schema(self, given: dict[str, Any], way: Way) -> None:
        try:
            Schema(given)
        except ConfigError as error:
            self.fail(way, str(error))
        if given.get("type", "object") != "object":
            self.fail((*way, "type"), f"the reply is an object at the top, not {given['type']!r}")

    def called(self, substage: Any, way: Way) -> None:
        """Check that the functions which a substage names are there, and take what they are given."""
        if isinstance(substage, FunctionSense):
            self.function(substage.config.function, substage.config.with_, (*way, "config", "function"))
        elif isinstance(substage, Analyze | Plan | Evaluate):
            if substage.config.function is not None:
                self.function(substage.config.function, {}, (*way, "config", "function"))
        elif isinstance(substage, Execute):
            for at, action in enumerate(substage.config.actions):
                if isinstance(action, FunctionAction):
                    place = (*way, "config", "actions", at, "function")
                    self.function(action.function, action.with_, place)

    def function(self, name: str, given: Mapping[str, Any], way: Way) -> None:
        if name not in self.functions:
            self.fail(way, f"the program gave no function {name!r}; {nearest(name, self.functions)}")
        function = self.functions[name]
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # of some that are written in C nothing is known
            return
        filled = [key for key in FILLED if key in signature.parameters and key not in given]
        try:
            signature.bind(**dict.fromkeys([*given, *filled]))
        except TypeError as error:
            self.fail(way, f"the function {name!r} can't be called with {sorted(given)}: {error}")

    def planned(self, substage: Plan, way: Way) -> None:
        for at, rule in enumerate(substage.config.rules):
            if rule.action not in self.actions:
                self.fail(
                    (*way, "config", "rules", at, "action"),
                    f"no 'execute' has an action {rule.action!r}; {nearest(rule.action, self.actions)}",
                )

    def retention(self, key: str, retention: Retention, way: Way) -> None:
        name = key.removeprefix(MEMORY)
        if not key.startswith(MEMORY) or not name.isidentifier():
            self.fail(way, f"expected a key of the memory such as 'memory.patterns', got {key!r}")
        bounds = {"max_items": ("maxItems", retention.max_items), "ttl": ("ttlMs", retention.ttl_ms)}
        policy = retention.policy
        policies = list(bounds) if policy is None else [policy] if isinstance(policy, str) else policy
        if policy is None and all(value is None for _, value in bounds.values()):
            self.fail(way, "give 'maxItems', 'ttlMs', or both")
        for each, (number, value) in bounds.items():
            if policy is not None and each in policies and value is None:
                self.fail(way, f"the policy {each!r} needs {number!r}")
            if each not in policies and value is not None:
                self.fail((*way, number), f"{number!r} is for the policy {each!r}; list both policies")

    def order(self) -> None:
        """Check that what stands on another substage comes after it."""
        first: dict[str, int] = {}
        for number, (_, substage, _) in enumerate(self.parts):
            first.setdefault(substage.type, number)
        for number, (_, substage, way) in enumerate(self.parts):
            if isinstance(substage, Govern | Authorize) and first.get("plan", -1) > number:
                self.fail(way, f"{substage.type!r} is about the plan, so it stands after 'plan'")
            if isinstance(substage, Learn) and first.get("update-state", number) < number:
                self.fail(way, "'update-state' writes what was learned, so 'learn' stands before it")
            if isinstance(substage, UpdateState | CaptureMetrics) and first[substage.type] != number:
                self.fail(way, f"there are two of the type {substage.type!r}; one is enough")

    def taken_up(self) -> None:
        """Check that something takes up what is learnt: a later prompt or condition, or the memory."""
        writes = any(isinstance(substage, UpdateState) for _, substage, _ in self.parts)
        for number, (_, substage, way) in enumerate(self.parts):
            if not isinstance(substage, Learn) or self.is_read(number):
                continue
            if not writes:
                self.fail(
                    way,
                    "nothing takes up what is learnt here; put a substage of the type 'update-state' after "
                    "it, which writes it into the memory",
                )
            given = (substage.output_schema or {}).get("properties")
            takes = [*TAKEN_UP, *([INSIGHTS] if INSIGHTS in memory_keys(self.spec) else [])]
            if isinstance(given, dict) and given and not set(takes) & {*cast("dict[str, Any]", given)}:
                names = list(cast("dict[str, Any]", given))
                listed = ", ".join(map(repr, names))
                self.fail(
                    (*way, "outputSchema", "properties"),
                    f"'update-state' takes up none of {listed}; {nearest(names[0], takes)}",
                )

    def is_read(self, number: int) -> bool:
        """Say whether a substage after one reads what was learnt."""
        read = ("derivedData", "learnings")
        return any(
            path[:2] == read or path == read[:1]
            for _, substage, way in self.parts[number + 1 :]
            for text in texts(substage, way)
            for path in template(text.template).paths
        )


def _further(way: Way, stage: str) -> tuple[str, ...]:
    """Return the names that a place sees beside those of the cycle."""
    if stage == "reason" and "constraints" in way:
        return ("action",)
    outward = (ENV,) if OUTWARD.intersection(way) else ()
    return ("action", "params", *outward) if stage == "actuate" and "actions" in way else outward
