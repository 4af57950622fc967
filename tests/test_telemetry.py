"""OpenTelemetry: the tree of each kind of run, its events and metrics; and nothing of it by default."""

import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel

from redraft import (
    Agent,
    ConfigError,
    Ensemble,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    Task,
    TokenUsage,
    Workflow,
    reflect,
    reflect_sync,
)
from redraft import _telemetry as hook
from redraft import telemetry as names
from redraft.cycles.agent import CycleAgent
from redraft.errors import OutputError, ReflectionFailedError
from redraft.fleet import Fleet, FleetWorker, StoreQueue
from redraft.fleet.queue import WorkerCard
from redraft.loop import Journalled, Retry
from redraft.models.provider import ProviderModel
from redraft.notes import InMemoryReflectionStore, ReflectionConfig, TaskIdentity, TaskReflection, Trial
from redraft.telemetry import instrument, uninstrument
from redraft.text.characters import is_well_formed
from support.http_server import serving
from support.pages import Page
from support.tool_agents import Actor, call

SHORT = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 3})
POLITE = QualityCriterion("polite", "It is polite.")


class Killed(BaseException):
    """What a process that is killed looks like from inside."""


class Collected:
    """What was exported: spans, the events of evaluations, metrics."""

    def __init__(self):
        self._spans, self._logs, self._metrics = (
            InMemorySpanExporter(),
            InMemoryLogRecordExporter(),
            InMemoryMetricReader(),
        )
        self.tracer_provider, self.logger_provider = TracerProvider(), LoggerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self.meter_provider = MeterProvider([self._metrics])

    def instrument(self, **options):
        instrument(
            tracer_provider=self.tracer_provider,
            logger_provider=self.logger_provider,
            meter_provider=self.meter_provider,
            **options,
        )

    @property
    def spans(self):
        return sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time)

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def span(self, name):
        (span,) = self.named(name)
        return span

    def tree(self):
        """The names of the spans, each as deep as it is nested."""
        by_id = {span.context.span_id: span for span in self.spans}

        def depth(span):
            return 0 if span.parent is None else 1 + depth(by_id[span.parent.span_id])

        return ["  " * depth(span) + span.name for span in self.spans]

    def events(self):
        """The name of the span, that of the evaluation, and the attributes of each event."""
        by_id = {span.context.span_id: span for span in self.spans}
        records = [one.log_record for one in self._logs.get_finished_logs()]
        assert {record.event_name for record in records} <= {"gen_ai.evaluation.result"}
        return [
            (by_id[record.span_id].name, record.attributes["gen_ai.evaluation.name"], dict(record.attributes))
            for record in records
        ]

    def points(self):
        """The data points of each metric."""
        data = self._metrics.get_metrics_data()
        (scope,) = data.resource_metrics[0].scope_metrics
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}

    def everything(self):
        return " ".join(span.to_json() for span in self.spans) + repr(self.events())


@pytest.fixture
def collected():
    collected = Collected()
    collected.instrument()
    yield collected
    uninstrument()
    collected.tracer_provider.shutdown()
    collected.logger_provider.shutdown()
    collected.meter_provider.shutdown()


def answer(request):
    if request.role == "evaluation":
        return {"criteria": {"polite": {"reason": "so", "score": 0.9}}, "issues": [], "confidence": 1.0}
    return "Dear me." if request.role == "revision" else "This is far too long, secret-plan."


def writer(**options):
    pattern = ReflectionPattern(quality_criteria=[SHORT, POLITE], revision_strategy="full_rewrite")
    return Agent(ScriptedModel(answer), pattern=pattern, name="clerk", **options)


# --- runs --------------------------------------------------------------------------------------------------


def test_a_run_is_a_tree_of_steps(collected):
    result = writer(keep=False).run_sync("Answer the letter.")
    assert result.success
    assert collected.tree() == [
        "invoke_agent clerk",
        "  generate",
        "  evaluate",
        "  revise",
        "  evaluate",
    ]
    run = collected.span("invoke_agent clerk")
    assert run.instrumentation_scope.schema_url == names.SCHEMA_URL
    assert dict(run.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "gen_ai.conversation.id": result.run_id,
        "redraft.reason": "quality_met",
        "redraft.versions": 2,
        "redraft.best_version": 2,
        "redraft.total.input_tokens": result.token_usage.input_tokens,
        "redraft.total.output_tokens": result.token_usage.output_tokens,
        "redraft.total.cost_usd": 0.0,
    }
    drafts = [collected.span("generate"), collected.span("revise")]
    assert [span.attributes["redraft.version"] for span in drafts] == [1, 2]
    assert [span.attributes["redraft.strategy"] for span in drafts] == ["draft", "full_rewrite"]
    steps = [span for span in collected.spans if span is not run]
    used = [span.attributes.get("gen_ai.usage.output_tokens", 0) for span in steps]
    assert sum(used) == result.token_usage.output_tokens > 0


def test_scores_are_events_of_the_draft(collected):
    result = writer(keep=False).run_sync("Answer the letter.")
    first, second = (version.evaluation for version in result.history.versions)
    assert [(span, name) for span, name, _ in collected.events()] == [
        (span, name) for span in ("generate", "revise") for name in ("overall", "short", "polite")
    ]
    overall, short, polite = (attributes for _, _, attributes in collected.events()[:3])
    assert overall["gen_ai.evaluation.score.label"] == "fail"
    assert overall["gen_ai.evaluation.score.value"] == first.overall_score
    assert short["gen_ai.evaluation.score.value"] == first.criteria_scores["short"]
    assert polite["gen_ai.evaluation.score.value"] == 0.9
    judgement = collected.named("evaluate")[1]
    assert judgement.attributes["gen_ai.evaluation.score.value"] == second.overall_score
    assert judgement.attributes["gen_ai.evaluation.score.label"] == "pass"


def test_what_could_not_be_judged_has_no_score(collected):
    reflect_sync("Why?", generate=lambda prompt: "So.", evaluate=lambda output: "prose")
    (_, _, overall), *_ = collected.events()
    assert "gen_ai.evaluation.score.value" not in overall
    assert overall["error.type"] == "not_judged"


def test_content_is_reported_only_on_request_and_redacted(collected):
    key = "sk-" + "proj-" + "a1B2c3D4" * 5
    drafts = iter([f"The plan is {key}.", "Short."])

    def run():
        return reflect_sync(
            "The task of Ada.",
            generate=lambda prompt: next(drafts),
            evaluate=lambda output: (output == "Short.", f"Leave out {key}."),
        )

    run()
    shown = collected.everything()
    assert "Ada" not in shown
    assert "plan" not in shown
    assert "Leave out" not in shown
    collected.instrument(content=True)
    drafts = iter([f"The plan is {key}.", "Short."])
    run()
    shown = collected.everything()
    assert "The task of Ada." in shown
    assert "The plan is" in shown
    assert "Leave out" in shown
    assert key not in shown


def test_what_is_reported_can_be_encoded(collected):
    collected.instrument(content=True)
    reflect_sync(
        "Why?",
        generate=lambda prompt: "So.",
        evaluate=lambda output: (False, "No \ud83d here."),
        max_iterations=0,
    )
    (_, _, overall), *_ = collected.events()
    assert "No \ufffd here." in overall["gen_ai.evaluation.explanation"]


def test_every_name_is_reported_without_lone_surrogates(collected):
    actor = Actor([call("population", "id-\ud83d", city="Paris"), "2100000."])
    counting(actor.model, keep=False, name="Ann\ud83d", criterion="right \ud83d").run_sync("How many people?")
    assert "invoke_agent Ann\ufffd" in collected.tree()
    reported = [
        *((span.name, span.attributes) for span in collected.spans),
        *((name, attributes) for _, name, attributes in collected.events()),
        *((name, point.attributes) for name, points in collected.points().items() for point in points),
    ]
    texts = [text for name, attributes in reported for text in (name, *attributes.values())]
    assert {"Ann\ufffd", "id-\ufffd", "right \ufffd"} <= {*texts}
    assert [text for text in texts if isinstance(text, str) and not is_well_formed(text)] == []


def test_a_failed_step_is_reported_without_its_message(collected):
    failures = [ModelError("the plan", retryable=True)]

    def generate(prompt):
        if failures:
            raise failures.pop()
        return "So."

    pattern = ReflectionPattern(retry=Retry(first_wait=0))
    reflect_sync("Why?", generate=generate, evaluate=lambda output: True, pattern=pattern)
    failed, worked = collected.named("generate")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "ModelError"
    assert worked.status.status_code is StatusCode.UNSET
    assert "the plan" not in collected.everything()


def test_a_run_that_raises_is_an_error(collected):
    def generate(prompt):
        raise ValueError("the plan")

    with pytest.raises(ValueError, match="the plan"):
        reflect_sync("Why?", generate=generate, evaluate=lambda output: True)
    run = collected.span("invoke_agent reflect")
    assert run.status.status_code is StatusCode.ERROR
    assert run.attributes["error.type"] == "ValueError"


def test_candidates_are_drafts_and_judgements_inside_the_first_draft(collected):
    texts = iter(["This is far too long.", "Dear me."])
    pattern = ReflectionPattern(quality_criteria=[SHORT], candidates=2)
    agent = Agent(ScriptedModel(lambda request: next(texts)), pattern=pattern, name="clerk", keep=False)
    result = agent.run_sync("Answer the letter.")
    tree = collected.tree()
    assert [name.strip() for name in tree if name.startswith("    ")] != []
    assert {"    draft 1", "    draft 2"} < set(tree)
    used = sum(span.attributes.get("gen_ai.usage.output_tokens", 0) for span in collected.spans)
    assert used == result.token_usage.output_tokens  # that of a candidate counts once
    assert {span for span, _, _ in collected.events()} == {"draft 1", "draft 2"}


# --- resumed runs ------------------------------------------------------------------------------------------


def test_a_resumed_run_marks_what_it_replays_and_links_to_it(collected):
    store = MemoryStore()
    dies = [True]

    def score(output):
        if dies and output == "second":
            raise Killed
        return output == "second"

    def run():
        drafts = iter(["first", "second"])
        return reflect(
            "Why?",
            generate=lambda prompt: next(drafts),
            evaluate=score,
            revise=lambda output, evaluation: "second",
            step=Journalled(store, "a run"),
        )

    with pytest.raises(Killed):
        asyncio.run(run())
    before = collected.spans
    dies.clear()
    result = asyncio.run(run())
    assert result.success
    after = collected.spans[len(before) :]
    replayed = [span.name for span in after if span.attributes.get("redraft.replayed")]
    assert replayed == ["generate", "evaluate", "revise"]
    original, again = (span for span in collected.spans if span.name == "generate")
    assert [link.context.span_id for link in again.links] == [original.context.span_id]
    first, second = collected.named("invoke_agent reflect")
    assert first.context.trace_id != second.context.trace_id
    assert [link.context.trace_id for link in second.links] == [first.context.trace_id]
    assert (
        first.attributes["gen_ai.conversation.id"] == second.attributes["gen_ai.conversation.id"] == "a run"
    )
    # No score is reported twice, and nothing that was paid before counts again.
    assert [
        (span, attributes["gen_ai.evaluation.score.value"]) for span, _, attributes in collected.events()
    ] == [
        ("generate", 0.0),
        ("revise", 1.0),
    ]
    assert all(
        not any(key.startswith("gen_ai.usage") or key == "redraft.cost_usd" for key in span.attributes)
        for span in after
        if span.attributes.get("redraft.replayed")
    )


def test_a_run_that_began_without_telemetry_is_resumed_with_it(collected):
    store, dies = MemoryStore(), [True]

    def score(output):
        if dies:
            raise Killed
        return True

    def run():
        return reflect("Why?", generate=lambda prompt: "So.", evaluate=score, step=Journalled(store, "a run"))

    uninstrument()
    with pytest.raises(Killed):
        asyncio.run(run())
    dies.clear()
    collected.instrument()
    assert asyncio.run(run()).success
    assert collected.span("generate").attributes["redraft.replayed"] is True
    assert collected.span("generate").links == ()


# --- tools, workflows, cycles, jobs ------------------------------------------------------------------------


def population(city: str) -> int:
    """Look up how many people live in a city."""
    return 2_100_000


def counting(actor_model, name="counter", criterion="right", **options):
    criterion = QualityCriterion(criterion, evaluator="regex", evaluator_config={"pattern": "2100000"})
    pattern = ReflectionPattern(quality_criteria=[criterion])
    return Agent(ProviderModel(actor_model), tools=[population], pattern=pattern, name=name, **options)


@pytest.mark.parametrize("keep", [False, True])
def test_a_tool_call_is_a_span_of_the_draft(collected, keep):
    actor = Actor([call("population", "id-1", city="Paris"), "2100000."])
    counting(actor.model, keep=MemoryStore() if keep else False).run_sync("How many people?")
    assert collected.tree() == [
        "invoke_agent counter",
        "  generate",
        "    execute_tool population",
        "  evaluate",
    ]
    assert dict(collected.span("execute_tool population").attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "population",
        "gen_ai.tool.call.id": "id-1",
        "gen_ai.tool.type": "function",
        "redraft.step": "tool",
    }


def test_the_usage_of_the_steps_is_that_of_the_run(collected):
    mentor = ScriptedModel(lambda request: "Think of the suburbs.")
    pattern = ReflectionPattern(
        quality_criteria=[SHORT], reflection_triggers=["tool_result"], reflection_model=mentor
    )
    actor = Actor([call("population", "id-1", city="Paris"), "About 2,100,000."])
    agent = Agent(actor.provider, tools=[population], pattern=pattern, keep=False)
    result = agent.run_sync("How many people?")
    assert len(mentor.requests) == 1
    assert any(name.strip().startswith("reflect tool_result") for name in collected.tree())
    used = sum(span.attributes.get("gen_ai.usage.output_tokens", 0) for span in collected.spans)
    assert used == result.token_usage.output_tokens


def test_content_of_a_tool_call(collected):
    collected.instrument(content=True)
    actor = Actor([call("population", "id-1", city="Paris"), "2100000."])
    counting(actor.model, keep=False).run_sync("How many people?")
    tool = collected.span("execute_tool population")
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"city": "Paris"}
    assert tool.attributes["gen_ai.tool.call.result"] == "2100000"


def test_a_replayed_tool_call_is_marked(collected):
    store, dies = MemoryStore(), [True]

    def act(messages, info):
        if len(actor.requests) == 1 and dies:
            raise Killed
        return actor(messages, info)

    actor = Actor([call("population", "id-1", city="Paris"), "2100000."])
    agent = counting(FunctionModel(act), keep=store)
    with pytest.raises(Killed):
        agent.run_sync("How many people?", run_id="a run")
    dies.clear()
    assert agent.run_sync("How many people?", run_id="a run").success
    first, again = collected.named("execute_tool population")
    assert "redraft.replayed" not in first.attributes
    assert again.attributes["redraft.replayed"] is True
    assert [link.context.span_id for link in again.links] == [first.context.span_id]
    assert "redraft.replayed" not in collected.named("generate")[1].attributes  # it was gone on with


def test_the_spans_of_pydantic_ai_nest_in_the_draft(collected):
    settings = InstrumentationSettings(tracer_provider=collected.tracer_provider, include_content=False)
    actor = Actor([call("population", "id-1", city="Paris"), "2100000."])
    counting(InstrumentedModel(actor.model, settings), keep=False).run_sync("How many people?")
    by_id = {span.context.span_id: span for span in collected.spans}
    chats = [span for span in collected.spans if span.name.startswith("chat ")]
    assert len(chats) == 2
    for inner in (*chats, collected.span("execute_tool population")):  # one span a tool call, not two
        span = inner
        while span.name != "generate":
            span = by_id[span.parent.span_id]


WORKFLOW = """
name: letters
nodes:
  - name: hello
    uses: greet
    with: {name: "{{ state.person }}"}
    output: greeting
"""


def test_a_workflow_is_a_span_with_its_nodes(collected):
    async def greet(state, name):
        await reflect("Greet.", generate=lambda prompt: f"Hello {name}", evaluate=lambda output: True)
        return f"Hello {name}"

    workflow = Workflow.from_text(WORKFLOW, actions={"greet": greet}, keep=False)
    assert workflow.run_sync({"person": "Ada"}).state["greeting"] == "Hello Ada"
    assert collected.tree() == [
        "invoke_workflow letters",
        "  node hello",
        "    invoke_agent reflect",
        "      generate",
        "      evaluate",
    ]
    assert collected.span("invoke_workflow letters").attributes["redraft.status"] == "finished"


def test_a_workflow_that_waits_for_a_person_has_not_failed(collected):
    text = "name: letters\nnodes:\n  - {name: ask, uses: human.approve, with: {message: 'Send?'}}\n"
    result = Workflow.from_text(text, keep=MemoryStore()).run_sync({})
    assert result.status == "waiting"
    assert collected.span("invoke_workflow letters").attributes["redraft.status"] == "waiting"
    assert collected.span("node ask").attributes["redraft.interrupted_by"] == "WaitingForAnswer"
    assert {span.status.status_code for span in collected.spans} == {StatusCode.UNSET}


CYCLE = """
name: warden
stages:
  sense:
    substages:
      - {type: csv, name: batches, config: {path: batches.csv}}
"""


def test_a_cycle_is_a_span_with_its_steps(collected, tmp_path):
    (tmp_path / "batches.csv").write_text("id\n1\n")
    (tmp_path / "warden.yaml").write_text(CYCLE)
    agent = CycleAgent.from_file(tmp_path / "warden.yaml", storage=MemoryStore())
    assert agent.run_cycle_sync().success
    assert collected.tree()[:2] == ["cycle warden", "  sense"]
    span = collected.span("cycle warden")
    assert span.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert span.attributes["redraft.status"] == "finished"
    assert span.attributes["redraft.cycle"] == 1


def test_a_job_of_a_fleet_is_a_span_around_its_run(collected):
    async def main():
        store = MemoryStore()
        clerk = writer(keep=store)
        fleet = Fleet([clerk], store=store, queue=StoreQueue(store))
        await fleet.submit(clerk, "Answer the letter.", run_id="order-1")
        await FleetWorker(fleet).run(1)

    asyncio.run(main())
    assert collected.tree()[:3] == ["job clerk", "  invoke_agent clerk", "    generate"]
    assert collected.span("job clerk").attributes["gen_ai.conversation.id"] == "order-1"


# --- metrics -----------------------------------------------------------------------------------------------


async def use_three_words(subject):
    """Write a note."""
    return TaskReflection.of_first_run(subject.task.description, "Three words.")


def test_an_ensemble_is_a_span_with_its_tasks_and_notes(collected):
    config = ReflectionConfig(strategy=use_three_words)
    order = Task("Order {item}.", name="order", criteria=[SHORT], reflect=config)
    answers = iter(["One two three four.", "One two three."])
    ensemble = Ensemble(
        ScriptedModel(lambda request: next(answers)),
        [order],
        InMemoryReflectionStore(),
        keep=False,
        name="shop",
    )
    results = [ensemble.run_sync({"item": item}) for item in ("tea", "milk")]
    assert collected.tree() == 2 * [
        "ensemble shop",
        "  choose_note order",
        "  invoke_agent order",
        "    generate",
        "    evaluate",
        "  learn_note order",
        "    settle_trial order",
    ]
    first, second = collected.named("ensemble shop")
    assert [span.attributes["gen_ai.conversation.id"] for span in (first, second)] == [
        result.run_id for result in results
    ]
    assert first.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert first.attributes["redraft.total.output_tokens"] == results[0].usage.output_tokens > 0
    chosen = [dict(span.attributes) for span in collected.named("choose_note order")]
    assert [(one["redraft.note.arm"], one.get("redraft.note.version")) for one in chosen] == [
        ("none", None),
        ("note", 1),
    ]
    learned = collected.named("learn_note order")
    assert [span.attributes["redraft.note.version"] for span in learned] == [1, 2]
    assert {span.attributes["gen_ai.conversation.id"] for span in learned} == {
        result[order].run_id for result in results
    }
    assert "tea" not in collected.everything()


def test_the_span_of_a_reflection_says_what_it_used_and_that_it_failed(collected, caplog):
    def answer(request):
        if request.role == "reflection":
            raise ModelError("no, not with tea", usage=TokenUsage(3, 4, requests=1))
        return "Yes."

    order = Task("Order {item}.", name="order", reflect=True)
    ensemble = Ensemble(ScriptedModel(answer), [order], InMemoryReflectionStore(), keep=False)
    ensemble.run_sync({"item": "tea"})
    failed = collected.span("learn_note order")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["gen_ai.usage.output_tokens"] == 4
    assert "redraft.note.version" not in failed.attributes
    assert "tea" not in collected.everything()


def test_the_span_of_a_trial_says_which_note_was_rolled_back(collected):
    calls = 0

    def answer(request):
        nonlocal calls
        calls += 1
        return (
            "One two three four."
            if calls == 1 or "Task Improvement Notes" in request.messages[-1].content
            else "One."
        )

    order = Task(
        "Order {item}.",
        name="order",
        criteria=[SHORT],
        reflect=ReflectionConfig(strategy=use_three_words, trial=Trial(share=0.5, min_runs=1)),
    )
    ensemble = Ensemble(ScriptedModel(answer), [order], InMemoryReflectionStore(), keep=False)
    for _ in range(40):
        ensemble.run_sync({"item": "tea"})
        if rolled := [
            s for s in collected.named("settle_trial order") if "redraft.note.effect" in s.attributes
        ]:
            break
    assert rolled[0].attributes["redraft.note.effect"] < 0
    assert rolled[0].attributes["redraft.note.version"] >= 1
    assert "control" in {span.attributes["redraft.note.arm"] for span in collected.named("choose_note order")}


def test_the_text_of_an_unnamed_task_is_in_no_span_and_no_metric(collected):
    order = Task(
        "Ask Ada Lovelace about {item}.", criteria=[SHORT], reflect=ReflectionConfig(strategy=use_three_words)
    )
    ensemble = Ensemble(ScriptedModel(["One."]), [order], InMemoryReflectionStore(), keep=False)
    ensemble.run_sync({"item": "tea"})
    assert collected.named(f"choose_note {TaskIdentity.of(order)[:8]}")
    assert "Lovelace" not in "".join(span.to_json() for span in collected.spans)
    assert "Lovelace" not in collected._metrics.get_metrics_data().to_json()


def test_a_job_is_linked_to_the_span_that_submitted_it_whichever_worker_has_it(collected):
    async def main():
        store = MemoryStore()
        clerk = Agent(ScriptedModel(["Done."]), name="clerk", keep=store, pattern=ReflectionPattern(0))
        fleet = Fleet([clerk], store=store, queue=StoreQueue(store))
        with collected.tracer_provider.get_tracer("web").start_as_current_span("POST /orders") as request:
            await fleet.submit(clerk, "Do it.", run_id="order-1")
        await fleet.submit(clerk, "Do it.", run_id="order-2")
        dead = StoreQueue(store)
        await dead.register(WorkerCard("dead", "here", 1, fleet.version, ("clerk",), 1))
        assert (await dead.claim()).run_id == "order-1"
        await dead.leave()
        await fleet.queue.reap(1)
        await FleetWorker(fleet).run(until_idle=True)
        return request.get_span_context()

    there = asyncio.run(main())
    jobs = {span.attributes["gen_ai.conversation.id"]: span for span in collected.named("job clerk")}
    (link,) = jobs["order-1"].links
    assert (link.context.trace_id, link.context.span_id) == (there.trace_id, there.span_id)
    assert jobs["order-1"].context.trace_id != there.trace_id  # a trace of its own, hours later maybe
    assert jobs["order-2"].links == ()


def test_metrics_count_runs_by_reason(collected):
    agent = writer(keep=False)
    agent.run_sync("Answer the letter.")
    agent.run_sync("Answer the letter.")
    points = collected.points()
    (runs,) = points["redraft.runs"]
    assert runs.value == 2
    assert dict(runs.attributes) == {"redraft.reason": "quality_met", "gen_ai.agent.name": "clerk"}
    (versions,) = points["redraft.run.versions"]
    assert (versions.count, versions.sum) == (2, 4)
    (cost,) = points["redraft.run.cost"]
    assert (cost.count, cost.sum) == (2, 0.0)
    (judging,) = points["redraft.evaluation.duration"]
    assert judging.count == 4


def ending(*replies, **options):
    return Agent(
        ScriptedModel(list(replies), price=(5, 15)),
        pattern=ReflectionPattern(quality_criteria=[SHORT], retry=Retry(1), **options),
        name="clerk",
        keep=False,
    )


@pytest.mark.parametrize(
    ("agent", "reason", "versions"),
    [
        pytest.param(ending(ModelError("down")), "error", (), id="before the first version"),
        pytest.param(
            ending("This is too long.", ModelError("down"), on_failure="raise"), "error", (1,), id="raised"
        ),
        pytest.param(ending("Dear me.", budget_tokens=1), "token_budget", (), id="no budget for a version"),
    ],
)
def test_metrics_count_runs_that_raise(collected, agent, reason, versions):
    with pytest.raises((OutputError, ModelError, ReflectionFailedError)):
        agent.run_sync("Answer the letter.")
    points = collected.points()
    (runs,) = points["redraft.runs"]
    assert dict(runs.attributes) == {"redraft.reason": reason, "gen_ai.agent.name": "clerk"}
    assert tuple(point.sum for point in points.get("redraft.run.versions", ())) == versions
    assert ("redraft.run.cost" in points) == bool(versions)
    assert collected.span("invoke_agent clerk").attributes["redraft.reason"] == reason


def test_an_unknown_cost_is_not_counted_as_none(collected):
    reflect_sync("Why?", generate=lambda prompt: "So.", evaluate=lambda output: True)
    assert "redraft.run.cost" not in collected.points()
    assert "redraft.total.cost_usd" not in collected.span("invoke_agent reflect").attributes


# --- without telemetry -------------------------------------------------------------------------------------


def test_the_loop_does_not_import_opentelemetry():
    code = "import redraft.loop.run, sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_extra_is_named_if_it_is_missing():
    code = "import sys; sys.modules['opentelemetry'] = None; import redraft.telemetry"
    failed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'redraft[otel]'" in failed.stderr


def test_content_is_a_boolean():
    with pytest.raises(ConfigError, match="content must be True or False"):
        instrument(content="yes")
    assert hook.current is None


def test_the_examples_of_the_page_run(monkeypatch):
    """With the real exporter, which sends to a server here."""
    page, scope, configured = Page("docs/telemetry.md"), {}, []
    logfire = SimpleNamespace(
        configure=lambda: configured.append("logfire"),
        instrument_pydantic_ai=lambda: configured.append("pydantic_ai"),
    )
    monkeypatch.setitem(sys.modules, "logfire", logfire)
    monkeypatch.setattr(
        "opentelemetry.trace.set_tracer_provider", lambda provider: None
    )  # it can be set once
    try:
        with serving({"/v1/traces": (200, {}, b"")}) as server:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
            first, *others = page.blocks("python")
            page.run(first.replace("instrument()", "instrument(tracer_provider=provider)"), scope)
            scope["provider"].shutdown()
        (sent,) = server.requests
        assert b"invoke_agent reflect" in sent.body
        for code in others:
            page.run(code, scope)
    finally:
        uninstrument()
    assert configured == ["logfire", "pydantic_ai"]
