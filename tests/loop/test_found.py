"""What a review found, a row each, so that it stays found."""

import asyncio
import copy
import functools
import pickle
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest
from pydantic import BaseModel

from redraft import (
    Advice,
    Agent,
    ChatReply,
    ConfigError,
    Draft,
    Issue,
    OutputError,
    QualityCriterion,
    ReflectionCallbacks,
    ReflectionDecision,
    ReflectionEvaluation,
    ReflectionPattern,
    Retry,
    RunContext,
    RunFinished,
    ScriptedModel,
    Task,
    TokenUsage,
    reflect,
    reflect_sync,
    reflected,
)
from redraft._sync import run_sync
from redraft.loop.functions import Reflected

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


def used(tokens, cost=0.0):
    return TokenUsage(tokens, 0, requests=1, cost_usd=cost)


# --- functions of users ------------------------------------------------------------------------------------


def test_a_sync_function_that_runs_dry_is_an_error_and_no_hang():
    drafts = iter(["a"])
    result = reflect_sync("W.", generate=lambda p: next(drafts), evaluate=lambda o: 0.1)
    assert "StopIteration" in str(result.error)
    assert result.best_output == "a"


def test_a_reviser_that_changes_what_it_gets_does_not_rewrite_history():
    def revise(output, evaluation):
        output["text"] = "worse"
        return output

    def evaluate(output):
        score = 0.6 if output["text"] == "good" else 0.1
        output["text"] = "changed by the judge"
        return score

    result = reflect_sync("W.", generate=lambda p: {"text": "good"}, evaluate=evaluate, revise=revise)
    assert result.best_output == {"text": "good"}
    assert [version.output["text"] for version in result.history.versions[:2]] == ["good", "worse"]


def test_white_space_and_type_are_part_of_an_output():
    outputs = iter(["1", 1, "1\n"])
    result = reflect_sync("W.", generate=lambda p: next(outputs), evaluate=lambda o: o == "1\n")
    assert result.success
    assert [version.repeats for version in result.history.versions] == [None, None, None]


def test_an_output_that_is_no_json_is_kept_all_the_same():
    result = reflect_sync("W.", generate=lambda p: {(1, 2): 3}, evaluate=lambda o: 0.5)
    assert result.best_output == {(1, 2): 3}


class Model(BaseModel):
    name: str


@pytest.mark.parametrize("output", [Model, type])
def test_a_class_is_no_output(output):
    with pytest.raises(OutputError, match="returned"):
        reflect_sync("W.", generate=lambda p: output, evaluate=lambda o: True)


class Box:
    def __init__(self, prompt):
        self.prompt = prompt

    async def __call__(self, prompt):
        return prompt


def test_a_class_is_not_async_because_its_instances_are():
    with pytest.raises(OutputError, match="Box"):
        reflect_sync("W.", generate=Box, evaluate=lambda o: True)


def make(kind):
    def generate(prompt, context: kind = "mine"):
        return f"{type(context).__name__}"

    return generate


def optional(prompt, context: RunContext | None = None):
    return type(context).__name__


def named(prompt, context: "RunContext | None" = None):
    return type(context).__name__


@pytest.mark.parametrize(
    ("generate", "expected"),
    [
        (make(RunContext), "RunContext"),
        (make(str), "str"),
        (optional, "RunContext"),
        (named, "RunContext"),
        (functools.partial(lambda mark, prompt: mark + prompt, "!"), "!W."),
    ],
)
def test_parameters_are_filled_by_annotation(generate, expected):
    assert reflect_sync("W.", generate=generate, evaluate=lambda o: True).best_output == expected


def positional(prompt, other=1, run=None, /):
    return "x"


def test_a_positional_parameter_behind_another_can_not_be_filled():
    with pytest.raises(ConfigError, match="'run'"):
        reflect_sync("W.", generate=positional, evaluate=lambda o: True)


@pytest.mark.parametrize("score", [90, float("nan"), -1, "0.5"])
def test_an_evaluation_of_ones_own_is_checked_too(score):
    result = reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: ReflectionEvaluation(score, satisfactory=True)
    )
    assert result.convergence_reason == "unjudged"


@pytest.mark.parametrize(("threshold", "reason"), [(0.5, "quality_met"), (0.9, "max_iterations")])
def test_the_quality_threshold_decides(threshold, reason):
    pattern = ReflectionPattern(quality_threshold=threshold, max_iterations=0)
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.6, pattern=pattern)
    assert result.convergence_reason == reason


@pytest.mark.parametrize(("threshold", "met"), [(0.5, True), (0.6, False)])
def test_the_quality_threshold_decides_over_criteria_too(threshold, met):
    wish = QualityCriterion("milk", threshold=0, evaluator="regex", evaluator_config={"pattern": "milk"})
    pattern = ReflectionPattern(quality_criteria=[TEA, wish], quality_threshold=threshold, max_iterations=0)
    result = reflect_sync("W.", generate=lambda p: "tea", pattern=pattern)
    assert (result.final_evaluation.overall_score, result.success) == (0.5, met)


@pytest.mark.parametrize("task", ["W.", Task("W.", task_type="writing")])
def test_the_task_type_chooses_the_criteria_of_plain_functions(task):
    judge = judging(0.9)
    of_pattern = "writing" if isinstance(task, str) else "analysis"
    pattern = ReflectionPattern(reflection_model=judge, task_type=of_pattern)
    result = reflect_sync(task, generate=lambda p: "x", pattern=pattern)
    assert list(result.final_evaluation.criteria_scores) == ["clarity", "coherence", "completeness", "tone"]


# --- rules, callbacks, listeners, advisors -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(True, "user_stopped"), ("plateau", "plateau"), (False, "max_iterations"), (3, "error")],
)
def test_what_a_rule_of_ones_own_may_answer(answer, reason):
    pattern = ReflectionPattern(max_iterations=1)
    drafts = iter("ab")
    result = reflect_sync(
        "W.", generate=lambda p: next(drafts), evaluate=lambda o: 0.5, pattern=pattern, until=lambda v: answer
    )
    assert result.convergence_reason == reason
    assert result.summary()


async def never(versions):
    return None


@pytest.mark.parametrize(
    "options",
    [
        {"until": "plateau"},
        {"until": never},
        {"until": 3},
        {"on_event": never},
        {"on_event": "x"},
        {"budget_usd": "5"},
        {"quality_threshold": "0.8"},
        {"quality_threshold": None},
        {"plateau_iterations": None},
        {"plateau_iterations": 1.5},
        {"reflection_triggers": "completion"},
        {"advisors": None},
        {"quality_criteria": "Under 80 words"},
        {"quality_criteria": TEA},
        {"reflection_prompt": "{ouput}"},
        {"reflection_prompt": 3},
        {"judge": "probability", "judge_samples": 3},
        {"structured_reflection": "no"},
        {"include_prior_versions": 1},
        {"include_reflection_history": None},
        {"diversify": "no"},
        {"detect_oscillation": 0},
        {"preserve_all_versions": "all"},
        {"retry": 3},
        {"callbacks": print},
        {"callbacks": ReflectionCallbacks},
        {"advisors": [3]},
    ],
)
def test_options_of_the_wrong_kind_are_refused_at_once(options):
    with pytest.raises(ConfigError):
        ReflectionPattern(**options)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": None},
        {"description": None},
        {"weight": "2"},
        {"threshold": None},
        {"threshold": True},
        {"evaluator": 3},
        {"evaluator_config": None},
        {"evaluator_config": ["pattern"]},
        {"gate": "yes"},
    ],
)
def test_criteria_of_the_wrong_kind_are_refused_at_once(fields):
    with pytest.raises(ConfigError):
        QualityCriterion(**{"name": "x", **fields})


@pytest.mark.parametrize(
    "call",
    [
        lambda: reflect(None, generate=str, evaluate=bool),
        lambda: reflect({"task": 1}, generate=str, evaluate=bool),
        lambda: reflect("W.", generate=str, evaluate=bool, draft=object()),
        lambda: reflect("W.", generate=str, evaluate=bool, draft=Draft(None)),
        lambda: reflect("W.", generate=str, evaluate=bool, pattern=ReflectionPattern),
        lambda: Agent(ScriptedModel([]), pattern={"max_iterations": 1}),
        lambda: Agent(ScriptedModel([]), system_prompt=3),
    ],
)
def test_wrong_calls_are_refused_at_once(call):
    with pytest.raises(ConfigError):
        asyncio.run(call())


@pytest.mark.parametrize("model", [3, ReflectionPattern()])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ConfigError, match="ChatModel"):
        Agent(model)


def test_the_patterns_of_the_specification_may_be_given_by_position():
    pattern = ReflectionPattern(4, ["clarity"], 0.9, None, "incremental")
    assert (pattern.max_iterations, pattern.revision_strategy) == (4, "incremental")


class OnlyOne:
    def on_reflection(self, evaluation, iteration):  # not async, and the others are missing
        return ReflectionDecision.ACCEPT


def test_callbacks_may_be_sync_and_few():
    pattern = ReflectionPattern(callbacks=OnlyOne())
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.1, pattern=pattern)
    assert result.convergence_reason == "user_accepted"


def test_callbacks_are_not_tried_again():
    calls = []

    class Slow(ReflectionCallbacks):
        async def on_generation(self, output, iteration):
            calls.append(output)
            raise TimeoutError

    reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: True, pattern=ReflectionPattern(callbacks=Slow())
    )
    assert calls == ["x"]


class Adviser:
    def __init__(self, advice):
        self.advice = advice
        self.events = []

    async def recall(self, task):
        return self.advice

    async def observe(self, result):
        self.events.append(result.convergence_reason)


def test_an_advisor_without_advice_to_give_costs_nothing():
    result = reflect_sync(
        "W.",
        generate=lambda p: "x",
        evaluate=lambda o: True,
        pattern=ReflectionPattern(advisors=[Adviser(None)]),
    )
    assert result.success
    assert "advisor_failed" in result.diagnostics


def test_advisors_hear_also_of_a_run_that_failed_and_before_the_last_event():
    adviser = Adviser([Advice("Be brief.", "test")])
    order = adviser.events

    async def revise(output, evaluation, run: RunContext):
        assert [advice.text for advice in run.advice] == ["Be brief."]
        raise ValueError("no")

    pattern = ReflectionPattern(
        advisors=[adviser],
        on_event=lambda event: order.append("end") if isinstance(event, RunFinished) else None,
    )
    reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.1, revise=revise, pattern=pattern)
    assert order == ["error", "end"]


# --- money -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("callback", ["on_generation", "on_revision"])
def test_what_was_paid_is_kept_when_a_callback_is_cancelled(callback):
    async def main():
        reached = asyncio.Event()

        async def wait(*_):
            reached.set()
            await asyncio.sleep(60)

        callbacks = type("Slow", (), {callback: staticmethod(wait)})()
        pattern = ReflectionPattern(callbacks=callbacks, on_event=events.append)
        drafts = {"generate": lambda p: "one", "revise": lambda o, e: "two", "evaluate": lambda o: 0.1}
        run = asyncio.create_task(reflect("W.", pattern=pattern, **drafts))
        await reached.wait()
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()

    events = []
    run_sync(main())
    outputs = [version.output for version in events[-1].result.history.versions]
    assert outputs == (["one"] if callback == "on_generation" else ["one", "two"])


def test_a_budget_that_left_nothing_to_judge_with_is_the_reason():
    judge = ScriptedModel([])
    pattern = ReflectionPattern(quality_criteria=["clarity"], reflection_model=judge, budget_tokens=100)
    result = reflect_sync("W.", generate=lambda p: Draft("x", used(200)), pattern=pattern)
    assert result.convergence_reason == "token_budget"
    assert judge.requests == []


def test_fresh_starts_are_revisions_to_the_budget():
    outputs = iter(["a", "a", *"bcdefgh"])

    def generate(prompt):
        return Draft(next(outputs), used(100))

    pattern = ReflectionPattern(max_iterations=9, plateau_iterations=9, max_revision_tokens=250)
    result = reflect_sync("W.", generate=generate, evaluate=lambda o: 0.5, pattern=pattern)
    assert result.convergence_reason == "token_budget"
    assert len(result.history.versions) == 4


def test_one_unknown_cost_does_not_set_the_others_free():
    outputs = iter("bcdef")
    pattern = ReflectionPattern(max_iterations=9, plateau_iterations=9, budget_usd=1.5)
    result = reflect_sync(
        "W.",
        generate=lambda p: "a",
        revise=lambda o, e: Draft(next(outputs), used(1, 1.0)),
        evaluate=lambda o: 0.5,
        pattern=pattern,
    )
    assert result.convergence_reason == "cost_budget"
    assert len(result.history.versions) == 3
    assert "cost_unknown" in result.diagnostics


def test_waiting_for_a_retry_stays_within_the_time_budget():
    async def revise(output, evaluation):
        raise ConnectionError("down")

    pattern = ReflectionPattern(budget_seconds=0.3, retry=Retry(attempts=9, first_wait=60))
    result = reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: 0.1, revise=revise, pattern=pattern
    )
    assert result.convergence_reason == "error"
    assert result.execution_time < 30


def test_a_draft_that_says_what_it_used_is_counted():
    result = reflect_sync("W.", draft=Draft("x", used(70)), generate=str, evaluate=lambda o: True)
    assert result.token_usage.total_tokens == 70


# --- what is said ------------------------------------------------------------------------------------------


def test_a_passed_gate_outranks_a_higher_score():
    gates = iter([(0.5, False), (0.45, True), (0.48, True), (0.9, True)])

    def evaluate(output):
        score, passed = next(gates)
        return ReflectionEvaluation(score, satisfactory=score > 0.8, gates_passed=passed)

    drafts = iter("abcd")
    pattern = ReflectionPattern(improvement_threshold=0.01)
    result = reflect_sync("W.", generate=lambda p: next(drafts), evaluate=evaluate, pattern=pattern)
    assert "quality_regression" not in result.diagnostics
    assert result.success


def test_a_model_that_judges_itself_is_named_also_without_an_agent(monkeypatch):
    def answer(request):
        if request.role != "evaluation":
            return "draft"
        names = request.schema["properties"]["criteria"]["properties"]
        scores = {name: {"reason": "so", "score": 0.9} for name in names}
        return {"criteria": scores, "issues": [], "suggestions": [], "confidence": 1}

    monkeypatch.setattr("redraft.loop.pattern.model_of", lambda model, settings, **_: ScriptedModel(answer))
    assert "self_judged_only" in reflect_sync("W.").diagnostics


def test_the_failed_change_reaches_a_function_too():
    feedback = []

    def generate(prompt, feedback_seen=None, feedback: str = ""):
        return told(feedback)

    def told(text):
        feedback.append(text)
        return f"draft {len(feedback)}"

    scores = {"draft 1": (0.5, "dull"), "draft 2": (0.3, "rude"), "draft 3": (0.9, "")}
    reflect_sync("W.", generate=generate, evaluate=scores.get)
    assert "made it worse" in feedback[2]
    assert "rude" in feedback[2]


def test_a_failed_rewrite_is_not_named_by_what_it_was_asked():
    model = ScriptedModel(["tea x", "coffee", "tea y"])
    wanted = QualityCriterion(
        "y", evaluator="function", evaluator_config={"function": lambda o: ("y" in o, "y is missing")}
    )
    pattern = ReflectionPattern(quality_criteria=[TEA, wanted], revision_strategy="full_rewrite")
    Agent(model, pattern=pattern).run_sync("W.")
    asked = model.requests[2].messages[-1].content
    assert "made it worse" in asked
    assert "asked to mend" not in asked


def test_after_a_failure_each_strategy_gives_way_to_another():
    seen = []

    async def revise(output, evaluation, run: RunContext):
        seen.append(run.attempt.strategy)
        return f"{len(seen)}"

    scores = iter([0.6, 0.3, 0.3, 0.3])
    pattern = ReflectionPattern(revision_strategy="full_rewrite", plateau_iterations=9)
    reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: next(scores), revise=revise, pattern=pattern
    )
    assert seen == ["full_rewrite", "incremental", "targeted_edit"]


@pytest.mark.parametrize("through", [pickle.dumps, copy.deepcopy, asdict])
def test_a_result_can_be_taken_apart(through):
    assert through(reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: (0.9, "fine")))


# --- agents, patterns, settings ----------------------------------------------------------------------------


def judging(score):
    def answer(request):
        if request.role != "evaluation":
            return "draft"
        if request.logprobs:
            return ChatReply("yes", logprobs=({"yes": -0.05, "no": -3.0},))
        names = request.schema["properties"]["criteria"]["properties"]
        scores = {name: {"reason": "so", "score": score} for name in names}
        return {"criteria": scores, "issues": [], "suggestions": [], "confidence": 1}

    return ScriptedModel(answer)


def test_the_judge_by_probability():
    model = judging(0.1)
    pattern = ReflectionPattern(quality_criteria=["clarity"], judge="probability")
    assert Agent(model, pattern=pattern).run_sync("W.").success
    assert model.requests[1].logprobs > 0


def test_the_task_type_of_a_pattern():
    result = Agent(judging(0.9), pattern=ReflectionPattern(task_type="writing")).run_sync("W.")
    assert list(result.final_evaluation.criteria_scores) == ["clarity", "coherence", "completeness", "tone"]


def test_the_judge_of_the_settings(monkeypatch):
    asked = []
    monkeypatch.setenv("REDRAFT_REFLECTION_MODEL", "openai:judge")
    monkeypatch.setattr(
        "redraft.loop.pattern.model_of", lambda model, settings, **_: asked.append(model) or judging(0.9)
    )
    Agent(ScriptedModel(["draft"]), pattern=ReflectionPattern(quality_criteria=["clarity"])).run_sync("W.")
    assert asked == ["openai:judge"]


@pytest.mark.parametrize("included", [True, False])
def test_the_judge_sees_earlier_judgements_unless_not_wanted(included):
    model = judging(0.5)
    pattern = ReflectionPattern(
        quality_criteria=["clarity"], include_reflection_history=included, max_iterations=1, diversify=False
    )
    Agent(model, pattern=pattern).run_sync("W.", draft="another")
    judged = [request for request in model.requests if request.role == "evaluation"]
    assert ("Version 1: 0.50" in judged[-1].messages[-1].content) is included


def test_a_pattern_revises_on_its_own(monkeypatch):
    model = ScriptedModel(["<<<<<<< SEARCH\nbad\n=======\ngood\n>>>>>>> REPLACE"])
    monkeypatch.setattr("redraft.loop.pattern.model_of", lambda given, settings, **_: model)
    pattern = ReflectionPattern(revision_strategy="targeted_edit", max_revision_tokens=99)
    evaluation = ReflectionEvaluation(0.5, issues=(Issue("it is bad"),))
    assert run_sync(pattern.revise("a bad text", evaluation)) == "a good text"
    assert model.requests[0].max_tokens == 99


def test_a_pattern_that_revises_on_its_own_shows_the_text_however_bad_it_is(monkeypatch):
    model = ScriptedModel(["a good text"])
    monkeypatch.setattr("redraft.loop.pattern.model_of", lambda given, settings, **_: model)
    evaluation = ReflectionEvaluation(0.0, issues=(Issue("it is bad"),))
    assert run_sync(ReflectionPattern().revise("a bad text", evaluation)) == "a good text"
    assert "a bad text" in [message.content for message in model.requests[0].messages]


def test_an_agent_is_what_it_was_made_of():
    agent = Agent(ScriptedModel([]), pattern=ReflectionPattern(quality_criteria=[TEA]), system_prompt="You.")
    for name in ("model", "pattern", "system_prompt"):
        with pytest.raises(AttributeError):
            setattr(agent, name, None)


def test_the_history_after_a_stream_is_that_of_the_stream():
    agent = Agent(ScriptedModel(lambda request: "tea"), pattern=ReflectionPattern(quality_criteria=[TEA]))

    async def main():
        async for event in agent.stream("W."):
            if isinstance(event, RunFinished):
                break
        return agent.pattern.get_history()

    assert asyncio.run(main()).best_version.output == "tea"


def test_a_stream_left_early_cancels_before_the_loop_ends():
    async def main():
        cancelled = asyncio.Event()

        async def slow(request):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        stream = Agent(ScriptedModel(slow), pattern=ReflectionPattern(quality_criteria=[TEA])).stream("W.")
        async for _ in stream:
            await asyncio.sleep(0.01)
            break
        await stream.aclose()
        await asyncio.wait_for(cancelled.wait(), 5)

    asyncio.run(main())


def test_a_failed_gate_by_veto_spares_the_judge():
    gate = QualityCriterion(
        "gate",
        evaluator="function",
        evaluator_config={"function": lambda o: {"valid": False, "score": 0.9}},
        gate=True,
    )
    judge = ScriptedModel([])
    pattern = ReflectionPattern(quality_criteria=[gate, "clarity"], reflection_model=judge, max_iterations=0)
    assert not reflect_sync("W.", generate=lambda p: "x", pattern=pattern).final_evaluation.gates_passed
    assert judge.requests == []


# --- the decorator -----------------------------------------------------------------------------------------


def good(text):
    return ("again" in text, "say it again")


class Service:
    mark = "!"

    @reflected(evaluate=good)
    async def answer(self, question, feedback=""):
        return f"{self.mark}{question} {'again' if feedback else ''}"


@reflected(evaluate=good)
def required(question, feedback):
    return "again" if feedback else question


@reflected(evaluate=good)
def annotated(question, *, context: RunContext):
    return "again" if context.iteration > 1 else question


@reflected(evaluate=good)
def by_position(question, style="x", feedback="", /):
    return "again" if feedback else question


@reflected(evaluate=good)
def many(*questions, feedback=""):
    return "again" if feedback else " ".join(questions)


@pytest.mark.parametrize("fn", [Service().answer, required, annotated, by_position, many])
def test_functions_of_all_shapes_are_told(fn):
    assert fn.run_sync("Why?").success


def test_partials_and_objects_are_told():
    class Callable:
        def __call__(self, question, feedback=""):
            return "again" if feedback else question

    for fn in (Callable(), functools.partial(required._fn, feedback="")):
        assert Reflected(fn, ReflectionPattern(), good).run_sync("Why?").success


def test_an_argument_that_is_no_json_is_shown_as_it_is():
    assert required.run_sync({(1, 2): 3}).final_output == "again"


def test_advice_reaches_a_reflected_function():
    seen = []

    @reflected(evaluate=bool, pattern=ReflectionPattern(advisors=[Adviser([Advice("Be brief.", "test")])]))
    def answer(question, feedback=""):
        seen.append(feedback)
        return "x"

    answer.run_sync("Why?")
    assert "- Be brief." in seen[0]


def test_without_parentheses_it_says_so():
    with pytest.raises(ConfigError, match="parentheses"):

        @reflected
        def answer(question, feedback=""):
            return "x"


# --- Ctrl-C ------------------------------------------------------------------------------------------------

NESTED = """
import asyncio
from redraft import reflect_sync

async def generate(prompt):
    try:
        print("started", flush=True)
        await asyncio.sleep(60)
    finally:
        print("stopped", flush=True)

async def cell():  # what a notebook does: sync code inside a loop that runs
    reflect_sync("W.", generate=generate, evaluate=bool)

"""


@pytest.mark.parametrize(
    "begin", ["asyncio.new_event_loop().run_until_complete(cell())", "asyncio.run(cell())"]
)
def test_an_interrupt_reaches_the_run_in_the_other_thread(begin):
    with subprocess.Popen(
        [sys.executable, "-c", NESTED + begin], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"started\n"
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=20)
    assert output == b"stopped\n"
    assert b"KeyboardInterrupt" in errors


def test_a_task_shows_everything_that_was_asked():
    prompts = []
    task = Task("Write.", expected_output="One line.", context="For children.")
    reflect_sync(task, generate=lambda p: prompts.append(p) or "x", evaluate=lambda o: True)
    assert prompts == ["Context:\nFor children.\n\nWrite.\n\nExpected output:\nOne line."]
