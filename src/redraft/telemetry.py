"""OpenTelemetry: spans, events and metrics of runs, ensembles, workflows, cycles and fleet jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from redraft import _telemetry
from redraft._steps import step_context
from redraft._texts import as_text
from redraft._validation import check_flag, check_kind
from redraft.errors import (
    ChangedRunError,
    MissingExtraError,
    ReflectionFailedError,
    StoreError,
    UnfinishedError,
)
from redraft.protocols import RunContext
from redraft.redact import redact
from redraft.text.characters import well_formed
from redraft.types import (
    ConvergenceReason,
    Draft,
    Reflection,
    ReflectionEvaluation,
    ReflectionHistory,
    ReflectionResult,
    TokenUsage,
)

try:
    from opentelemetry import metrics, trace
    from opentelemetry._logs import Logger, LoggerProvider, LogRecord, NoOpLogger, SeverityNumber, get_logger
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, NoOpTracer, Span, SpanContext, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtraError("Telemetry", "otel") from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from opentelemetry.util.types import AttributeValue

    from redraft._telemetry import Operation
    from redraft.protocols import Step

__all__ = ["instrument", "uninstrument"]

R = TypeVar("R")
V = TypeVar("V")

# The names of the GenAI conventions, as of this version; they are in development, and the names of the Python
# package move with them.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.40.0"
OPERATION_NAME = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
RESPONSE_MODEL = "gen_ai.response.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
EVALUATION_EVENT = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
SCORE_VALUE = "gen_ai.evaluation.score.value"
SCORE_LABEL = "gen_ai.evaluation.score.label"
EXPLANATION = "gen_ai.evaluation.explanation"
ERROR_TYPE = "error.type"

# Attributes that the conventions do not name.
STEP = "redraft.step"
VERSION = "redraft.version"
VERSIONS = "redraft.versions"
BEST = "redraft.best_version"
STRATEGY = "redraft.strategy"
REASON = "redraft.reason"
STATUS = "redraft.status"
CYCLE = "redraft.cycle"
NOTE = "redraft.note.version"
ARM = "redraft.note.arm"
EFFECT = "redraft.note.effect"
REPLAYED = "redraft.replayed"
INTERRUPTION = "redraft.interrupted_by"
COST = "redraft.cost_usd"
TOTAL_INPUT_TOKENS = "redraft.total.input_tokens"
TOTAL_OUTPUT_TOKENS = "redraft.total.output_tokens"
TOTAL_COST = "redraft.total.cost_usd"

NAMES: dict[Operation, tuple[str, str]] = {
    "run": ("invoke_agent", "invoke_agent"),
    "workflow": ("invoke_workflow", "invoke_workflow"),
    "cycle": ("invoke_agent", "cycle"),
    "job": ("job", "job"),
    "ensemble": ("invoke_workflow", "ensemble"),
    "choose_note": ("choose_note", "choose_note"),
    "learn_note": ("learn_note", "learn_note"),
    "settle_trial": ("settle_trial", "settle_trial"),
}
"""The `gen_ai.operation.name` of each operation, and the prefix of its span's name."""

ABOUT_NOTES: frozenset[Operation] = frozenset({"choose_note", "learn_note", "settle_trial"})

PROPAGATOR, PARENT = TraceContextTextMapPropagator(), "traceparent"

LONGEST = 20_000
"""The maximum length of a text in a span, in characters."""


class Metric(NamedTuple):
    """An instrument. The unit in braces is an annotation for people."""

    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    buckets: Sequence[float] = ()


RUN_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
WAIT_SECONDS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

METRICS = {
    "redraft.runs": Metric("counter", "{run}", "Runs that ended, by reason."),
    "redraft.run.versions": Metric(
        "histogram", "{version}", "Versions of a run.", (1, 2, 3, 4, 5, 7, 10, 20, 50)
    ),
    "redraft.run.cost": Metric(
        "histogram",
        "{USD}",
        "Cost of a run in US dollars, if known.",
        (0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 100),
    ),
    "redraft.evaluation.duration": Metric("histogram", "s", "Time that a judgement took.", RUN_SECONDS),
    "redraft.ended_jobs": Metric("counter", "{job}", "Jobs that ended here, by program, state and reason."),
    "redraft.run_seconds": Metric("histogram", "s", "Time from the claim of a job to its end.", RUN_SECONDS),
    "redraft.retries": Metric("counter", "{job}", "Jobs handed back to be tried again."),
    "redraft.pickups": Metric("counter", "{job}", "Jobs of dead workers made available again by this one."),
    "redraft.model_calls": Metric("counter", "{call}", "Model calls: answered, rate_limited or failed."),
    "redraft.tokens": Metric("counter", "{token}", "Tokens of model calls: input or output."),
    "redraft.cost_usd": Metric("counter", "{USD}", "US dollars of model calls that have a price."),
    "redraft.unpriced_calls": Metric("counter", "{call}", "Answered calls whose cost is unknown."),
    "redraft.limit_wait_seconds": Metric(
        "histogram", "s", "Time that calls waited for a limit of the fleet.", WAIT_SECONDS
    ),
    "redraft.worker_running": Metric("gauge", "{job}", "Jobs under way in this worker."),
    "redraft.worker_concurrency": Metric("gauge", "{job}", "Most jobs that this worker runs at once."),
    "redraft.queue_up": Metric("gauge", "", "Whether the queue answers: 1 or 0."),
    "redraft.jobs": Metric("gauge", "{job}", "Jobs in the queue, by state."),
    "redraft.oldest_job_seconds": Metric("gauge", "s", "Wait of the oldest due job; 0 if none is due."),
    "redraft.stranded_jobs": Metric("gauge", "{job}", "Jobs that wait for a version that no worker has."),
    "redraft.workers": Metric("gauge", "{worker}", "Workers heard from recently."),
    "redraft.limit_next_call_seconds": Metric("gauge", "s", "Time until a limit lets a call begin."),
    "redraft.limit_blocked_seconds": Metric("gauge", "s", "Time that a Retry-After still blocks calls."),
    "redraft.budget_usd": Metric("gauge", "{USD}", "The daily budget in US dollars."),
    "redraft.budget_spent_usd": Metric("gauge", "{USD}", "US dollars spent today."),
    "redraft.budget_left_usd": Metric("gauge", "{USD}", "US dollars that new calls may still cost today."),
}
"""All metrics by name; the workers of a fleet report those from `redraft.ended_jobs` on."""


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
    content: bool = False,
) -> None:
    """Report what this process runs to OpenTelemetry, from now on: runs, ensembles, workflows, cycles, jobs.

    Spans go to `tracer_provider`, metrics to `meter_provider`, and the `gen_ai.evaluation.result` events to
    `logger_provider`; the defaults are the global providers. With `content`, spans also hold prompts,
    outputs, arguments of tools and issues, each redacted and cut after 20,000 characters; without, no text of
    a task or a model. A second call replaces the settings of the first. Raises `MissingExtraError` on import
    if the API of OpenTelemetry is not installed.
    """
    check_flag("instrument: content", content)
    for provider, kind in (
        (tracer_provider, TracerProvider),
        (meter_provider, MeterProvider),
        (logger_provider, LoggerProvider),
    ):
        if provider is not None:
            check_kind("instrument: a provider", provider, kind, f"a {kind.__name__}")
    _telemetry.current = _OpenTelemetry(
        content,
        trace.get_tracer("redraft", tracer_provider=tracer_provider, schema_url=SCHEMA_URL),
        get_logger("redraft", logger_provider=logger_provider, schema_url=SCHEMA_URL),
        (_recorders(meter_provider),),
    )


def uninstrument() -> None:
    """Stop reporting; operations under way are still reported to their end."""
    _telemetry.current = None


@contextmanager
def reporting_metrics(meter_provider: MeterProvider) -> Generator[None]:
    """Report metrics to this provider, too, within the block; nothing else if `instrument` was not called."""
    outside = _telemetry.current
    current = outside
    if not isinstance(current, _OpenTelemetry):
        current = _OpenTelemetry(
            content=False, tracer=NoOpTracer(), logger=NoOpLogger("redraft"), recorders=()
        )
    _telemetry.current = replace(current, recorders=(*current.recorders, _recorders(meter_provider)))
    try:
        yield
    finally:
        _telemetry.current = outside


def _recorders(provider: MeterProvider | None) -> dict[str, Callable[..., None]]:
    """Create all instruments; return the functions that record values, of counters and histograms."""
    meter = metrics.get_meter("redraft", meter_provider=provider, schema_url=SCHEMA_URL)
    recorders: dict[str, Callable[..., None]] = {}
    for name, (kind, unit, description, buckets) in METRICS.items():
        if kind == "counter":
            recorders[name] = meter.create_counter(name, unit, description).add
        elif kind == "histogram":
            recorders[name] = meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=buckets
            ).record
        else:
            meter.create_observable_gauge(name, [partial(_observed, name)], unit, description)
    return recorders


def _observed(name: str, _options: metrics.CallbackOptions) -> list[metrics.Observation]:
    return [metrics.Observation(value, labels) for value, labels in _telemetry.gauges.get(name, ())]


@dataclass(eq=False)
class _Scope:
    """An operation under way."""

    span: Span
    name: str
    drafts: dict[str, Span] = field(default_factory=dict[str, Span])
    """The spans of its drafts, by candidate."""
    reported: ReflectionEvaluation | None = None
    """The evaluation by which a draft was chosen among candidates."""
    linked: set[int] = field(default_factory=set[int])
    """The traces to which it is linked."""


_scope: ContextVar[_Scope | None] = ContextVar("redraft_telemetry_scope", default=None)


@dataclass(frozen=True, eq=False)
class _OpenTelemetry:
    content: bool
    tracer: trace.Tracer
    logger: Logger
    recorders: tuple[Mapping[str, Callable[..., None]], ...]

    def count(self, metric: str, amount: float, attributes: Mapping[str, str], /) -> None:
        encodable = _encodable(attributes)
        for recorders in self.recorders:
            recorders[metric](amount, encodable)

    async def operation(
        self,
        kind: Operation,
        name: str,
        operation_id: str,
        work: Callable[[], Awaitable[R]],
        /,
        parent: str = "",
    ) -> R:
        operation, prefix = NAMES[kind]
        attributes: dict[str, AttributeValue] = {OPERATION_NAME: operation}
        if name:
            attributes[AGENT_NAME] = name
        if operation_id:
            attributes[CONVERSATION_ID] = operation_id
        context = _span_context(parent)
        links = [Link(context)] if context.is_valid else []
        with self._span(f"{prefix} {name}".rstrip(), attributes, links) as span:
            outside = _scope.set(_Scope(span, name))
            try:
                result = await work()
            except BaseException as error:
                _fail(span, error)
                if kind == "run" and isinstance(error, Exception):
                    self._describe_failure(span, name, error)
                raise
            finally:
                _scope.reset(outside)
            if kind in ABOUT_NOTES:
                _describe_note(span, result)
            else:
                self._describe(span, name, result)
            return result

    async def step(
        self, step: Step, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> R:
        if name.startswith("model "):  # the library that calls the model has a span of its own
            return await step(name, returns, fn, *args)
        is_replayed = True

        async def carried_out(*args: Any) -> R:
            nonlocal is_replayed
            is_replayed = False
            return await fn(*args)

        title, attributes = _described(name)
        run = next((argument for argument in args if isinstance(argument, RunContext)), None)
        if run is not None:
            attributes[VERSION] = run.attempt.number
        with self._step_span(title, attributes) as span:
            began = perf_counter()
            try:
                result = await step(name, returns, carried_out, *args)
            except BaseException as error:
                # An error of the store says nothing about the effect, nor does a cancellation.
                if is_replayed and isinstance(error, Exception) and not isinstance(error, StoreError):
                    span.set_attributes({REPLAYED: True})
                _fail(span, error)
                used = getattr(error, "usage", None)
                if isinstance(used, TokenUsage) and not is_replayed and not _candidate(name):
                    _add_usage(span, used)
                raise
            if is_replayed:
                span.set_attributes({REPLAYED: True})
            self._report(span, name, args, result, None if is_replayed else perf_counter() - began)
            if run is not None and isinstance(result, Draft):
                strategy = cast("Draft[Any]", result).strategy
                span.set_attribute(STRATEGY, run.attempt.mode if strategy == "draft" else strategy)
            return cast("R", result)

    def position(self) -> str:
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier)
        return carrier.get(PARENT, "")

    def replayed(self, position: str, /) -> None:
        recorded = _span_context(position)
        if not recorded.is_valid:
            return
        trace.get_current_span().add_link(recorded)
        scope = _scope.get()
        if scope is not None and recorded.trace_id not in scope.linked:
            scope.linked.add(recorded.trace_id)
            scope.span.add_link(recorded)

    def _step_span(self, name: str, attributes: dict[str, AttributeValue]) -> AbstractContextManager[Span]:
        """Open the span of a step; for a tool call, use that of Pydantic AI, if it is instrumented."""
        outer = trace.get_current_span()
        outer_attributes: Mapping[str, object] = getattr(outer, "attributes", None) or {}
        if TOOL_CALL_ID in attributes and outer_attributes.get(TOOL_CALL_ID) == attributes[TOOL_CALL_ID]:
            return nullcontext(outer)
        return self._span(name, attributes)

    def _span(
        self, name: str, attributes: dict[str, AttributeValue], links: Sequence[Link] = ()
    ) -> AbstractContextManager[Span]:
        return self.tracer.start_as_current_span(
            well_formed(name),
            kind=SpanKind.INTERNAL,
            attributes=_encodable(attributes),
            links=links,
            record_exception=False,  # its message may quote an output
            set_status_on_exception=False,
        )

    def _describe(self, span: Span, name: str, result: object) -> None:
        """Add how an operation ended, and its total usage, earlier processes included."""
        usage = getattr(result, "usage", None)
        if isinstance(result, ReflectionResult):
            result = cast("ReflectionResult[Any]", result)
            usage = result.token_usage
            self._describe_run(span, name, result.convergence_reason, result.history, usage)
            if result.error is not None:
                _fail(span, result.error)
        else:
            if isinstance(status := getattr(result, "status", None), str):
                span.set_attribute(STATUS, status)
            if isinstance(number := getattr(result, "number", None), int):
                span.set_attribute(CYCLE, number)
            if getattr(result, "error", ""):
                span.set_status(StatusCode.ERROR)
        if isinstance(usage, TokenUsage):
            span.set_attributes(
                {TOTAL_INPUT_TOKENS: usage.input_tokens, TOTAL_OUTPUT_TOKENS: usage.output_tokens}
            )
            if usage.cost_usd is not None:
                span.set_attribute(TOTAL_COST, usage.cost_usd)

    def _describe_failure(self, span: Span, name: str, error: Exception) -> None:
        """Count a run that raises an error; a run that goes on within a larger budget has not ended."""
        if isinstance(error, ReflectionFailedError) and isinstance(error.history, ReflectionHistory):
            self._describe_run(span, name, ConvergenceReason.ERROR, error.history, error.usage)
        elif not isinstance(error, ChangedRunError):
            reason = error.reason if isinstance(error, UnfinishedError) else None
            if reason is None or step_context.get().budget is None:
                self._describe_run(span, name, reason or ConvergenceReason.ERROR)

    def _describe_run(
        self,
        span: Span,
        name: str,
        reason: ConvergenceReason,
        history: ReflectionHistory | None = None,
        usage: TokenUsage | None = None,
    ) -> None:
        """Add how a run ended, and count it; a run without a version has no history."""
        by_reason = {REASON: str(reason), **({AGENT_NAME: name} if name else {})}
        self.count("redraft.runs", 1, by_reason)
        span.set_attribute(REASON, str(reason))
        if history is not None:
            versions = history.total_iterations + 1
            self.count("redraft.run.versions", versions, by_reason)
            span.set_attributes({VERSIONS: versions, BEST: history.best_version.iteration})
        if usage is not None and usage.cost_usd is not None:
            self.count("redraft.run.cost", usage.cost_usd, by_reason)

    def _report(
        self, span: Span, name: str, args: tuple[Any, ...], result: Any, seconds: float | None
    ) -> None:
        """Add the result of a step; `seconds` is None if it was replayed."""
        if self.content:
            self._add_content(span, name, args, result)
        if isinstance(result, Draft):
            self._report_draft(span, name, cast("Draft[Any]", result), is_replayed=seconds is None)
        elif isinstance(result, ReflectionEvaluation):
            self._report_judgement(span, name, result, seconds)
        elif isinstance(result, Reflection) and seconds is not None:
            _add_usage(span, result.usage)

    def _report_draft(self, span: Span, name: str, draft: Draft[Any], *, is_replayed: bool) -> None:
        if draft.model:
            span.set_attribute(RESPONSE_MODEL, well_formed(draft.model))
        if (scope := _scope.get()) is not None:
            scope.drafts[_candidate(name)], scope.reported = span, draft.evaluation
        if not is_replayed and not _candidate(name):  # the usage of candidates is in that of their choice
            chosen = () if draft.choice is None else draft.choice.usage.values()
            _add_usage(span, sum(chosen, start=draft.usage))

    def _report_judgement(
        self, span: Span, name: str, evaluation: ReflectionEvaluation, seconds: float | None
    ) -> None:
        """Add the overall score to the judgement's span, and each score as an event to its draft's span."""
        overall: dict[str, AttributeValue] = {
            EVALUATION_NAME: "overall",
            SCORE_LABEL: "pass" if evaluation.satisfactory else "fail",
            **_score(evaluation.overall_score),
        }
        span.set_attributes(overall)
        scope = _scope.get()
        if seconds is None or scope is None or evaluation is scope.reported:
            return
        if not _candidate(name):
            _add_usage(span, evaluation.usage)
        self.count("redraft.evaluation.duration", seconds, {AGENT_NAME: scope.name} if scope.name else {})
        draft = trace.set_span_in_context(scope.drafts.get(_candidate(name), scope.span))
        self._emit(draft, overall, evaluation, None)
        for criterion, score in evaluation.criteria_scores.items():
            self._emit(draft, {EVALUATION_NAME: criterion, **_score(score)}, evaluation, criterion)

    def _emit(
        self,
        draft: Any,
        attributes: dict[str, AttributeValue],
        evaluation: ReflectionEvaluation,
        criterion: str | None,
    ) -> None:
        if SCORE_VALUE not in attributes:
            attributes[ERROR_TYPE] = "not_judged"
        issues = [
            str(issue) for issue in evaluation.issues if criterion is None or issue.criterion == criterion
        ]
        if self.content and issues:
            attributes[EXPLANATION] = _redacted("\n".join(issues))
        record = LogRecord(
            context=draft,
            event_name=EVALUATION_EVENT,
            attributes=_encodable(attributes),
            severity_number=SeverityNumber.INFO,
        )
        self.logger.emit(record)

    def _add_content(self, span: Span, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Add the input and the output of a step."""
        if isinstance(result, Draft):
            if name == "generate" and args:
                span.set_attribute(INPUT_MESSAGES, _message("user", args[0]))
            span.set_attribute(OUTPUT_MESSAGES, _message("assistant", cast("Draft[Any]", result).output))
        elif name.startswith("tool "):
            span.set_attribute(TOOL_ARGUMENTS, _redacted(as_text(args[0] if args else {})))
            if (value := getattr(result, "value", None)) is not None:
                span.set_attribute(TOOL_RESULT, _redacted(as_text(value)))


def _describe_note(span: Span, result: object) -> None:
    """Add the note that was chosen, written or rolled back, and the usage of writing it."""
    if isinstance(usage := getattr(result, "usage", None), TokenUsage):
        _add_usage(span, usage)
    if getattr(result, "problem", ""):
        span.set_status(StatusCode.ERROR)
        return
    names = {NOTE: "version", ARM: "arm", EFFECT: "effect"}
    values = {name: getattr(result, attribute, None) for name, attribute in names.items()}
    span.set_attributes({name: value for name, value in values.items() if value is not None})


def _span_context(position: str) -> SpanContext:
    """The span of a recorded position; invalid if the text is not a position."""
    return trace.get_current_span(PROPAGATOR.extract({PARENT: position}, Context())).get_span_context()


def _described(name: str) -> tuple[str, dict[str, AttributeValue]]:
    """The name of a step's span, and its first attributes."""
    kind, _, rest = name.partition(" ")
    if kind != "tool":
        return name, {STEP: name}
    tool, _, call_id = rest.rpartition(" ")
    return f"execute_tool {tool}", {
        OPERATION_NAME: "execute_tool",
        TOOL_NAME: tool,
        TOOL_CALL_ID: call_id,
        TOOL_TYPE: "function",
        STEP: "tool",
    }


def _candidate(name: str) -> str:
    """The number of the candidate that a step drafts or judges; "" without candidates."""
    return name.partition(" ")[2]


def _fail(span: Span, error: BaseException) -> None:
    """Report a failure by its class; a cancellation, or a question to a person, is an interruption."""
    if isinstance(error, Exception):
        span.set_status(StatusCode.ERROR)
        span.set_attribute(ERROR_TYPE, type(error).__qualname__)
    else:
        span.set_attribute(INTERRUPTION, type(error).__qualname__)


def _add_usage(span: Span, usage: TokenUsage) -> None:
    if usage.requests or usage.total_tokens:
        span.set_attributes({INPUT_TOKENS: usage.input_tokens, OUTPUT_TOKENS: usage.output_tokens})
        if usage.cached_tokens:
            span.set_attribute(CACHED_TOKENS, usage.cached_tokens)
    if usage.cost_usd is not None:
        span.set_attribute(COST, usage.cost_usd)


def _score(score: float | None) -> dict[str, AttributeValue]:
    return {} if score is None else {SCORE_VALUE: score}


def _message(role: str, value: object) -> str:
    """Render a text as the messages of the conventions."""
    text = _redacted(value if isinstance(value, str) else as_text(value))
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _redacted(text: str) -> str:
    # A secret at the cut is found whole.
    return redact(well_formed(text[: 2 * LONGEST])).text[:LONGEST]


def _encodable(attributes: Mapping[str, V]) -> dict[str, V]:
    """Attributes without lone surrogates: an exporter would drop the whole span, event or metric."""
    return {
        name: cast("V", well_formed(value)) if isinstance(value, str) else value
        for name, value in attributes.items()
    }
