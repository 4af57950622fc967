"""What callers' code receives cannot rewrite the history of a run."""

import asyncio

import pytest

from redraft import ReflectionCallbacks, ReflectionEvaluation, ReflectionPattern, reflect


def spoil(value):
    """Change everything in an evaluation, a version, a result or an output that can be changed."""
    if isinstance(value, ReflectionEvaluation):
        value.overall_score, value.satisfactory, value.issues = 1.0, True, ("spoiled",)
        value.criteria_scores["a"] = 1.0
    elif isinstance(value, dict):
        value["text"] = "spoiled"
    elif hasattr(value, "evaluation"):
        spoil(value.evaluation)
        spoil(value.output)
    elif hasattr(value, "history"):
        for version in value.history.versions:
            spoil(version)


class Spoiling(ReflectionCallbacks):
    async def on_generation(self, output, iteration):
        spoil(output)

    async def on_reflection(self, evaluation, iteration):
        spoil(evaluation)

    async def on_revision(self, old_output, new_output, iteration):
        spoil(old_output)
        spoil(new_output)


def listen(event):
    spoil(getattr(event, "version", None))
    spoil(getattr(event, "result", None))


def generate(prompt, run):
    for version in run.versions:
        spoil(version)
    return {"text": f"draft {run.iteration}"}


def evaluate(output, run):
    for version in run.versions:
        spoil(version)
    if run.attempt.evaluation is not None:
        spoil(run.attempt.evaluation)
    spoil(output)
    return ReflectionEvaluation(0.2, {"a": 0.2}, issues=(f"issue {run.iteration}",))


def revise(output, evaluation, run):
    spoil(evaluation)
    spoil(output)
    return {"text": f"draft {run.iteration}"}


def until(versions):
    for version in versions:
        spoil(version)


@pytest.mark.parametrize("stored", [True, False])
def test_code_of_the_caller_cannot_rewrite_the_history(stored):
    from redraft import MemoryStore
    from redraft.loop import Journalled

    pattern = ReflectionPattern(2, callbacks=Spoiling(), on_event=listen, until=until)
    step = Journalled(MemoryStore(), "mine") if stored else None
    work = reflect("Task.", generate=generate, evaluate=evaluate, revise=revise, pattern=pattern, step=step)
    result = asyncio.run(work)
    assert [version.output["text"] for version in result.history.versions] == [
        "draft 1",
        "draft 2",
        "draft 3",
    ]
    for number, version in enumerate(result.history.versions, 1):
        evaluation = version.evaluation
        assert (evaluation.overall_score, evaluation.satisfactory) == (0.2, False)
        assert (evaluation.criteria_scores, evaluation.issues) == ({"a": 0.2}, (f"issue {number}",))
    assert result.best_output == {"text": "draft 1"}
    assert not result.success


def test_an_evaluator_may_use_one_object_for_all_versions():
    evaluation = ReflectionEvaluation(0.0)
    scores = iter([0.2, 0.6, 0.4])

    def reuse(_output):
        evaluation.overall_score = next(scores)
        evaluation.criteria_scores["a"] = evaluation.overall_score
        return evaluation

    drafts = iter("abc")
    work = reflect(
        "Task.",
        generate=lambda _: next(drafts),
        evaluate=reuse,
        pattern=ReflectionPattern(2, until=lambda _: None),
    )
    result = asyncio.run(work)
    assert [version.evaluation.overall_score for version in result.history.versions] == [0.2, 0.6, 0.4]
    assert [version.evaluation.criteria_scores for version in result.history.versions] == [
        {"a": 0.2},
        {"a": 0.6},
        {"a": 0.4},
    ]
    assert result.best_output == "b"
