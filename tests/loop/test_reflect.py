import asyncio

import pytest

from redraft import (
    Attempt,
    ConfigError,
    Draft,
    QualityCriterion,
    ReflectionPattern,
    RunContext,
    Task,
    reflect,
    reflect_sync,
)


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
    import threading

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


def test_a_draft_that_is_there_is_judged_first_and_costs_nothing():
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


def test_a_draft_and_a_reviser_need_no_generator():
    result = reflect_sync("W.", draft="a", revise=lambda o, e: o + "b", evaluate=lambda o: len(o) / 4)
    assert result.best_output == "abbb"


def test_evaluate_may_see_the_run():
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o, run: run.iteration == 1)
    assert result.success


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reflect("", generate=str, evaluate=bool), "task is empty"),
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
        (lambda: reflect("W.", generate=lambda p: "x"), "REDRAFT_MODEL"),
        (lambda: reflect("W.", evaluate=bool), "REDRAFT_MODEL"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_called(call, message, monkeypatch):
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
    import subprocess
    import sys

    code = (
        "import sys; from redraft import reflect_sync\n"
        "reflect_sync('W.', generate=lambda p: 'x', evaluate=lambda o: True)\n"
        f"assert not {HEAVY} & set(sys.modules), {HEAVY} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


CLARITY = ReflectionPattern(quality_criteria=["clarity"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"generate": lambda prompt: "x"},
            "nothing to judge with: pass evaluate=..., or a pattern=.*REDRAFT_MODEL",
        ),
        ({"evaluate": bool}, "nothing to draft with: pass generate=..., or set REDRAFT_MODEL"),
        (
            {"evaluate": bool, "revise": lambda output, evaluation: "x"},
            "pass generate=... or draft=..., or set",
        ),
        (
            {"generate": lambda prompt: "x", "pattern": CLARITY},
            "no model to judge 'clarity': pass a pattern=... that has a reflection_model, or set",
        ),
    ],
)
def test_a_function_that_was_forgotten_is_named(given, says):
    with pytest.raises(ConfigError, match=says):
        reflect_sync("W.", **given)
