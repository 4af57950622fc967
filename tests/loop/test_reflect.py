import asyncio
import copy
import functools
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import asdict
from types import FunctionType

import pytest
from pydantic import BaseModel

from redraft import (
    ConfigError,
    Draft,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionPattern,
    ScriptedModel,
    Task,
    TokenUsage,
    reflect,
    reflect_sync,
)
from redraft.errors import OutputError
from redraft.protocols import Attempt, RunContext


def test_thirty_seconds():
    drafts = iter(["Too long by far, I am afraid.", "Short."])
    result = reflect_sync(
        "Say it in one word.",
        generate=lambda prompt: next(drafts),
        evaluate=lambda text: (len(text.split()) == 1, "More than one word."),
    )
    assert result.best_output == "Short."
    assert result.success


def test_without_revise_the_generator_gets_the_critique_appended():
    prompts = []

    def generate(prompt):
        prompts.append(prompt)
        return f"draft {len(prompts)}"

    reflect_sync("Write.", generate=generate, evaluate=lambda o: (o == "draft 2", "too dull"))
    assert prompts[0] == "Write."
    assert prompts[1].startswith("Write.\n\nYour previous answer:\ndraft 1")
    assert "- too dull" in prompts[1]


def test_feedback_and_attempt_are_filled_by_name():
    seen = []

    async def generate(prompt, *, feedback="", attempt: Attempt | None = None, temperature=0.3):
        seen.append((prompt, feedback, attempt.number, temperature))
        return f"draft {attempt.number}"

    reflect_sync("Write.", generate=generate, evaluate=lambda o: (o == "draft 2", "too dull"))
    assert seen[0] == ("Write.", "", 1, 0.3)
    assert seen[1][0] == "Write."
    assert "too dull" in seen[1][1]
    assert seen[1][2:] == (2, 0.3)


class Callable:
    async def __call__(self, prompt, context: RunContext):
        return f"{prompt} for run {context.run_id != ''}"


@pytest.mark.parametrize(
    "generate",
    [
        lambda prompt: "x",
        lambda prompt, run: f"{run.iteration}",
        Callable(),
        Callable().__call__,
        lambda prompt: Draft("x"),
        lambda prompt: {"a": 1},
        lambda prompt: 42,
    ],
)
def test_any_callable_generates(generate):
    assert reflect_sync("W.", generate=generate, evaluate=lambda o: True).success


def test_sync_functions_run_in_a_thread():
    main = threading.get_ident()
    threads = []
    reflect_sync(
        "W.", generate=lambda p: threads.append(threading.get_ident()) or "x", evaluate=lambda o: True
    )
    assert threads[0] != main


def test_works_inside_a_running_loop():
    async def main():
        return reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: True)

    assert asyncio.run(main()).success


def test_an_existing_draft_is_judged_first_and_costs_nothing():
    generated = []
    result = reflect_sync(
        "W.",
        draft="mine",
        generate=lambda p: generated.append(p) or "theirs",
        evaluate=lambda o: 0.9,
    )
    assert result.best_output == "mine"
    assert generated == []
    assert result.token_usage.cost_usd == 0.0


def test_a_draft_and_a_reviser_are_enough():
    result = reflect_sync("W.", draft="a", revise=lambda o, e: o + "b", evaluate=lambda o: len(o) / 4)
    assert result.best_output == "abbb"


def test_evaluate_may_take_the_run():
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o, run: run.iteration == 1)
    assert result.success


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reflect("", generate=str, evaluate=bool), "task is empty"),
        (
            lambda: reflect(None, generate=str, evaluate=bool),
            "must be a string, a Task, or a list of strings and images",
        ),
        (lambda: reflect("W.", generate=str, evaluate=bool, draft=object()), "draft to start from"),
        (lambda: reflect("W.", generate=str, evaluate=bool, draft=Draft(None)), "draft to start from"),
        (lambda: reflect("W.", generate=str, evaluate=bool, pattern=ReflectionPattern), "must be a Reflecti"),
        (lambda: reflect("W.", generate="no function", evaluate=bool), "must be a function"),
        (lambda: reflect("W.", generate=lambda: "x", evaluate=bool), "fewer arguments"),
        (lambda: reflect("W.", generate=lambda prompt, other: "x", evaluate=bool), "'other'"),
        (
            lambda: reflect(
                "W.",
                generate=lambda p: "x",
                evaluate=bool,
                pattern=ReflectionPattern(quality_criteria=["clear"]),
            ),
            "not both",
        ),
    ],
)
def test_bad_arguments_raise_before_anything_is_called(call, message, monkeypatch):
    monkeypatch.delenv("REDRAFT_MODEL", raising=False)
    with pytest.raises(ConfigError, match=message):
        asyncio.run(call())


def test_criteria_that_are_checks_need_no_model():
    pattern = ReflectionPattern(
        quality_criteria=[
            QualityCriterion(
                "short", evaluator="function", evaluator_config={"function": lambda o: len(o) < 9}
            )
        ]
    )
    assert reflect_sync(Task("W."), generate=lambda p: "short", pattern=pattern).success


HEAVY = {
    "pydantic",
    "pydantic_ai",
    "openai",
    "xllamacpp",
    "httpx",
    "jsonschema_rs",
    "re2",
    "yaml",
    "typer",
    "rich",
}


def test_plain_functions_import_no_provider():
    code = (
        "import sys; from redraft import reflect_sync\n"
        "reflect_sync('W.', generate=lambda p: 'x', evaluate=lambda o: True)\n"
        f"assert not {HEAVY} & set(sys.modules), {HEAVY} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


CLARITY = ReflectionPattern(quality_criteria=["clarity"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"generate": lambda prompt: "x"},
            "nothing to judge with: pass evaluate=..., criteria=... that are checks, or judge=.*REDRAFT",
        ),
        ({"evaluate": bool}, "nothing to draft with: pass generate=..., or set REDRAFT_MODEL"),
        (
            {"evaluate": bool, "revise": lambda output, evaluation: "x"},
            "pass generate=... or draft=..., or set",
        ),
        (
            {"generate": lambda prompt: "x", "pattern": CLARITY},
            "no model to judge 'clarity': pass judge=..., or set",
        ),
    ],
)
def test_an_error_names_the_missing_function(given, message):
    with pytest.raises(ConfigError, match=message):
        reflect_sync("W.", **given)


async def generate(_prompt):
    return "draft"


async def evaluate(output):
    return output == "better", "It is a draft."


def revise(_output, _evaluation):
    return "better"


async def half(_output):
    return 0.5


async def by_the_run(_output, run):
    return 1.0 if run.run_id else 0.0


class Held:
    def closure(self):
        return lambda output: self is not None

    def default(self):
        return lambda output, held=self: held is not None


def anew(fn):
    """A copy of a function that shares its code, as reloading a module makes one."""
    return FunctionType(fn.__code__, {})


@pytest.mark.parametrize("judge", [Held.closure, Held.default])
def test_functions_are_garbage_collected(judge):
    held = Held()
    alive = weakref.ref(held)
    assert reflect_sync("Write.", generate=generate, evaluate=judge(held), revise=revise).success
    del held
    gc.collect()
    assert alive() is None


def test_a_function_with_new_code_is_inspected_again():
    judge = anew(half)

    def score():
        pattern = ReflectionPattern(max_iterations=0)
        result = reflect_sync("Write.", generate=generate, evaluate=judge, revise=revise, pattern=pattern)
        return result.final_evaluation.overall_score

    assert score() == 0.5
    judge.__code__ = by_the_run.__code__
    assert score() == 1.0


def test_a_stop_iteration_is_an_error_and_does_not_hang():
    drafts = iter(["a"])
    result = reflect_sync("W.", generate=lambda p: next(drafts), evaluate=lambda o: 0.1)
    assert "StopIteration" in str(result.error)
    assert result.best_output == "a"


def test_functions_that_mutate_an_output_do_not_change_the_history():
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


def test_outputs_that_differ_in_type_or_white_space_are_different():
    outputs = iter(["1", 1, "1\n"])
    result = reflect_sync("W.", generate=lambda p: next(outputs), evaluate=lambda o: o == "1\n")
    assert result.success
    assert [version.repeats for version in result.history.versions] == [None, None, None]


def test_an_output_without_a_json_form_is_returned():
    result = reflect_sync("W.", generate=lambda p: {(1, 2): 3}, evaluate=lambda o: 0.5)
    assert result.best_output == {(1, 2): 3}


class Model(BaseModel):
    name: str


@pytest.mark.parametrize("output", [Model, type])
def test_a_class_is_not_an_output(output):
    with pytest.raises(OutputError, match="returned"):
        reflect_sync("W.", generate=lambda p: output, evaluate=lambda o: True)


class Box:
    def __init__(self, prompt):
        self.prompt = prompt

    async def __call__(self, prompt):
        return prompt


def test_a_class_with_async_instances_is_called_as_sync():
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


def test_a_parameter_after_an_optional_positional_one_is_an_error():
    with pytest.raises(ConfigError, match="'run'"):
        reflect_sync("W.", generate=positional, evaluate=lambda o: True)


@pytest.mark.parametrize("score", [90, float("nan"), -1, "0.5"])
def test_the_score_of_a_returned_evaluation_is_checked(score):
    result = reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: ReflectionEvaluation(score, satisfactory=True)
    )
    assert result.convergence_reason == "unjudged"


def test_the_usage_of_a_starting_draft_counts():
    result = reflect_sync(
        "W.",
        draft=Draft("x", TokenUsage(70, requests=1, cost_usd=0.0)),
        generate=str,
        evaluate=lambda o: True,
    )
    assert result.token_usage.total_tokens == 70


def test_self_judging_is_diagnosed_without_an_agent(monkeypatch):
    def answer(request):
        if request.role != "evaluation":
            return "draft"
        names = request.schema["properties"]["criteria"]["properties"]
        scores = {name: {"reason": "so", "score": 0.9} for name in names}
        return {"criteria": scores, "issues": [], "suggestions": [], "confidence": 1}

    monkeypatch.setattr("redraft.loop.verbs.model_of", lambda model, settings, **_: ScriptedModel(answer))
    assert "self_judged_only" in reflect_sync("W.").diagnostics


def test_feedback_names_the_change_that_made_it_worse():
    seen = []

    def generate(prompt, other=None, feedback: str = ""):
        seen.append(feedback)
        return f"draft {len(seen)}"

    scores = {"draft 1": (0.5, "dull"), "draft 2": (0.3, "rude"), "draft 3": (0.9, "")}
    reflect_sync("W.", generate=generate, evaluate=scores.get)
    assert "made it worse" in seen[2]
    assert "rude" in seen[2]


@pytest.mark.parametrize("through", [pickle.dumps, copy.deepcopy, asdict])
def test_a_result_can_be_pickled_copied_and_converted(through):
    assert through(reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: (0.9, "fine")))


def test_the_prompt_shows_the_whole_task():
    prompts = []
    task = Task("Write.", expected_output="One line.", context="For children.")
    reflect_sync(task, generate=lambda p: prompts.append(p) or "x", evaluate=lambda o: True)
    assert prompts == ["Context:\nFor children.\n\nWrite.\n\nExpected output:\nOne line."]
