from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from redraft.errors import ConfigError, ModelError
from redraft.evaluate.criteria import NOT_APPLICABLE
from redraft.evaluate.judge import SAMPLE_TEMPERATURE, JudgeOptions
from redraft.evaluate.panel import panel
from redraft.execution import CommandOutcome
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatReply
from redraft.types import Issue, QualityCriterion, ReflectionEvaluation, TokenUsage
from support.evaluation import RUN, after, criterion, evaluate

USED = TokenUsage(10, 5, requests=1, cost_usd=0.01)


def checked(name, verdict, **fields):
    """A criterion that a function with a fixed verdict decides; None is an unknown score."""
    given = ReflectionEvaluation(None) if verdict is None else verdict
    return QualityCriterion(
        name, evaluator="function", evaluator_config={"function": lambda _: given}, **fields
    )


def judging(scores, usage=USED, issues=(), suggestions=(), confidence=0.9):
    """A model that gives these scores to every output."""
    reply = {
        "criteria": {name: {"reason": "so", "score": score} for name, score in scores.items()},
        "issues": [{"message": text, "criterion": name} for text, name in issues],
        "suggestions": list(suggestions),
        "confidence": confidence,
    }
    return ScriptedModel(lambda _: ChatReply(json.dumps(reply), usage=usage))


@pytest.mark.parametrize(
    ("criteria", "overall", "satisfactory"),
    [
        ([checked("a", 1.0)], 1.0, True),
        ([checked("a", 1.0), checked("b", 0.7)], 0.85, True),
        ([checked("a", 1.0), checked("b", 0.6)], 0.8, False),  # b is below its own threshold
        ([checked("a", 1.0), checked("b", 0.6, threshold=0.6)], 0.8, True),
        ([checked("a", 1.0), checked("b", ReflectionEvaluation(0.6, satisfactory=True))], 0.8, False),
        ([checked("a", 0.7), checked("b", 0.7)], 0.7, False),  # overall is below
        ([checked("a", 1.0, weight=3), checked("b", 0.5, weight=1, threshold=0)], 0.875, True),
        ([checked("a", 1.0), checked("b", 0.0, weight=0, threshold=0)], 1.0, True),
        ([checked("a", 1.0), checked("b", 0.0, weight=0)], 1.0, False),
        ([checked("a", 1.0, weight=4), checked("b", False, threshold=0)], 0.8, True),  # a wish
        ([checked("a", 1.0), checked("b", None)], 1.0, False),
        ([checked("a", None)], None, False),
        ([checked("a", None), checked("b", 1.0, weight=0)], None, False),
        ([checked("a", 1.0), checked("b", NOT_APPLICABLE)], 1.0, True),
        ([checked("a", NOT_APPLICABLE)], None, False),
        ([checked("a", {"valid": False, "score": 0.9})], 0.9, False),  # it says so itself
        ([checked(name, 0.8) for name in "abc"], 0.8, True),  # no rounding error makes it miss 0.8
    ],
)
def test_overall_is_the_weighted_mean(criteria, overall, satisfactory):
    evaluation = evaluate(panel(criteria), "x")
    assert (evaluation.overall_score, evaluation.satisfactory) == (overall, satisfactory)


@pytest.mark.parametrize(
    ("criteria", "unmet"),
    [
        ([checked("a", 1.0), checked("b", None)], ()),
        ([checked("a", 1.0), checked("b", 0.6)], ("b",)),
        ([checked("a", 0.4), checked("b", None), checked("c", 0.9)], ("a",)),
        ([checked("a", {"valid": False, "score": 0.9})], ("a",)),  # it says so itself
        ([checked("a", 0.75), checked("b", 0.78), checked("c", 0.8)], ("a", "b")),  # the mean falls short
        ([checked("a", 0.0, weight=0), checked("b", None)], ("a",)),
        ([checked("a", 1.0), checked("b", False, threshold=0, weight=0)], ()),  # a wish
    ],
)
def test_unmet_names_the_criteria_that_fell_short(criteria, unmet):
    assert evaluate(panel(criteria), "x").unmet == unmet


@pytest.mark.parametrize(
    ("criteria", "overall", "satisfactory", "meets_given"),
    [
        ([checked("a", 1.0), checked("t", 0.6, origin="generated")], 1.0, True, True),
        ([checked("a", 1.0), checked("t", 0.4, origin="generated")], 1.0, False, True),
        ([checked("a", 0.6), checked("t", 1.0, origin="generated")], 0.6, False, False),
        ([checked("a", 1.0), checked("t", None, origin="generated")], 1.0, False, True),
        ([checked("a", None), checked("t", 1.0, origin="generated")], None, False, False),
        ([checked("t", 0.6, origin="generated")], 0.6, True, True),  # without an overall score to reach
        ([checked("t", 0.4, origin="generated")], 0.4, False, True),
        ([checked("t", None, origin="generated")], None, False, True),
        ([checked("a", 0.0, weight=0), checked("t", 1.0, origin="generated")], 1.0, False, False),
    ],
)
def test_generated_criteria_are_met_from_half_on_and_do_not_count(
    criteria, overall, satisfactory, meets_given
):
    evaluation = evaluate(panel(criteria), "x")
    assert (evaluation.overall_score, evaluation.satisfactory, evaluation.meets_given) == (
        overall,
        satisfactory,
        meets_given,
    )
    assert evaluation.generated == ("t",)


def test_panel_threshold():
    criteria = [checked("a", 0.8)]
    assert evaluate(panel(criteria, threshold=0.8), "x").satisfactory
    assert not evaluate(panel(criteria, threshold=0.81), "x").satisfactory


def test_inapplicable_is_absent_and_unknown_is_none():
    criteria = [checked("a", 1.0), checked("b", NOT_APPLICABLE), checked("c", None)]
    evaluation = evaluate(panel(criteria), "x")
    assert evaluation.criteria_scores == {"a": 1.0, "c": None}
    assert evaluation.unjudged == ("c",)


def test_criteria_below_their_threshold_leave_an_issue():
    criteria = [checked("silent", 0.4), checked("said", (0.4, "too long")), checked("good", 0.9)]
    evaluation = evaluate(panel(criteria), "x")
    assert evaluation.issues == (Issue("too long", "said"), Issue("silent scored 0.40, needs 0.70", "silent"))


def test_rejection_despite_a_good_score_leaves_an_issue():
    evaluation = evaluate(panel([checked("a", {"valid": False, "score": 0.9})]), "x")
    assert evaluation.issues == (Issue("a was refused by its own evaluator", "a"),)


def test_issues_and_suggestions_are_deduplicated():
    verdict = {"score": 0.1, "errors": ["Too long.", "too  long", "dull"], "suggestions": ["cut", "cut"]}
    evaluation = evaluate(panel([checked("a", verdict), checked("b", verdict)]), "x")
    assert [(issue.message, issue.criterion) for issue in evaluation.issues] == [
        ("Too long.", "a"),
        ("dull", "a"),
        ("Too long.", "b"),
        ("dull", "b"),
    ]
    assert evaluation.suggestions == ("cut",)


def test_least_confidence_and_total_usage():
    parts = [
        checked("a", ReflectionEvaluation(1.0, satisfactory=True, confidence=0.9, usage=USED)),
        checked("b", ReflectionEvaluation(1.0, satisfactory=True, confidence=0.4, usage=USED)),
        QualityCriterion("clarity"),
    ]
    evaluation = evaluate(panel(parts, model=judging({"clarity": 0.9})), "x")
    assert evaluation.confidence == 0.4
    assert evaluation.usage == TokenUsage(30, 15, requests=3, cost_usd=0.03)


def test_names_of_checks_and_judged_criteria():
    criteria = [
        "clarity",
        criterion("compare", "better", against="best"),
        criterion("compare", "alike", reference="x", method="similarity"),
        criterion("regex", "cites", pattern="x"),
        checked("f", True),
    ]
    made = panel(criteria, model=judging({}))
    assert made.judged == ("clarity", "better")
    assert made.checks == ("alike", "cites", "f")
    assert [c.name for c in made.criteria] == ["clarity", "better", "alike", "cites", "f"]


@pytest.mark.parametrize(
    ("gate_score", "gate", "asked", "passed"),
    [(0.0, True, 0, False), (0.0, False, 1, True), (0.7, True, 1, True), (None, True, 0, None)],
)
def test_failed_gate_skips_the_model(gate_score, gate, asked, passed):
    model = judging({"clarity": 1.0})
    criteria = [QualityCriterion("clarity"), checked("tests", gate_score, gate=gate)]
    made = panel(criteria, model=model, threshold=0.5)
    evaluation = evaluate(made, "x")
    assert len(model.requests) == asked
    assert evaluation.gates_passed is passed
    assert evaluation.criteria_scores == {"clarity": 1.0 if asked else None, "tests": gate_score}
    assert evaluation.usage.requests == asked


def test_failed_gate_outweighs_an_unknown_one():
    gates = [checked("a", None, gate=True), checked("b", 0.0, gate=True)]
    assert evaluate(panel(gates), "x").gates_passed is False


def test_inapplicable_gate_is_passed():
    against = criterion("compare", "new", against="previous", method="similarity")
    made = panel([QualityCriterion("clarity"), replace(against, gate=True)], model=judging({"clarity": 0.9}))
    assert evaluate(made, "x").gates_passed is True


def test_gate_timeout_is_not_a_pass():
    slow = replace(criterion("regex", "slow", pattern="(?=a)(a+)+$"), gate=True)
    model = judging({"clarity": 0.9})
    evaluation = evaluate(panel([QualityCriterion("clarity"), slow], model=model), "a" * 5_000 + "!")
    assert (model.requests, evaluation.gates_passed, evaluation.satisfactory) == ([], None, False)


def test_no_budget_runs_only_free_checks():
    model = judging({"clarity": 0.9})
    criteria = ["clarity", checked("a", 1.0), criterion("compare", "better", against="first")]
    evaluation = evaluate(panel(criteria, model=model), "x", replace(after("y"), free_only=True))
    assert model.requests == []
    assert evaluation.criteria_scores == {"clarity": None, "a": 1.0, "better": None}
    assert (evaluation.overall_score, evaluation.satisfactory, evaluation.issues) == (1.0, False, ())
    assert evaluation.gates_passed


def test_spread_is_weighted():
    scores = iter([0.6, 1.0])
    replies = ScriptedModel(lambda _: {"criteria": {"clarity": {"reason": "", "score": next(scores)}}})
    criteria = [QualityCriterion("clarity", weight=1), checked("a", 1.0, weight=3)]
    options = JudgeOptions(samples=2, margin=1.5)
    evaluation = evaluate(panel(criteria, model=replies, judge_options=options), "x")
    assert evaluation.spread == pytest.approx(1.5 * 0.2 / 4)
    assert evaluation.criteria_scores["clarity"] == 0.8


def scoring(*scores):
    """A judge of clarity with these scores, one a call; an exception is raised."""
    left = iter(scores)

    def answer(request):
        score = next(left)
        if isinstance(score, Exception):
            raise score
        return {"criteria": {"clarity": {"reason": "", "score": score}}, "confidence": 0.9}

    return ScriptedModel(answer)


@pytest.mark.parametrize(
    ("scores", "final", "satisfactory"),
    [
        ((0.95,), 0.95, True),  # far above the threshold of 0.8
        ((0.75,), 0.75, False),  # refused: the run goes on anyway
        ((0.85, 0.83), 0.84, True),
        ((0.85, 0.65), 0.75, False),
        ((0.89, ModelError("overloaded")), 0.89, True),  # the first one stands
    ],
)
def test_a_verdict_near_the_threshold_is_confirmed(scores, final, satisfactory):
    model = scoring(*scores)
    evaluation = evaluate(panel(["clarity"], model=model), "x")
    assert len(model.requests) == len(scores)
    assert evaluation.overall_score == pytest.approx(final)
    assert evaluation.satisfactory is satisfactory
    assert [request.temperature for request in model.requests] == [None, SAMPLE_TEMPERATURE][: len(scores)]


@pytest.mark.parametrize(
    ("criteria", "options", "calls"),
    [
        ([QualityCriterion("clarity", threshold=0.0)], {"threshold": 0.3}, 1),
        ([QualityCriterion("clarity", threshold=0.8)], {"threshold": 0.3}, 2),
        ([QualityCriterion("clarity"), checked("fails", 0.0)], {"threshold": 0.3}, 1),
        (["clarity"], {"judge_options": JudgeOptions(samples=2), "threshold": 0.84}, 2),
        (["clarity"], {"judge_options": JudgeOptions(samples=5)}, 5),
    ],
)
def test_only_a_verdict_that_hangs_on_one_judgement_is_confirmed(criteria, options, calls):
    model = scoring(*[0.85] * 6)
    evaluate(panel(criteria, model=model, **options), "x")
    assert len(model.requests) == calls


def test_both_judges_confirm_a_verdict():
    def answer(request):
        name = next(iter(request.schema["properties"]["criteria"]["properties"]))
        score = 0.85 if request.temperature is None else 0.95
        reply = {"criteria": {name: {"reason": "", "score": score}}, "suggestions": [f"More {name}."]}
        return reply | {"issues": [f"Not all {name}."], "confidence": 0.9}

    model = ScriptedModel(answer)
    criteria = [QualityCriterion("clarity"), QualityCriterion("tone", shown=False)]
    evaluation = evaluate(panel(criteria, model=model), "x")
    assert evaluation.criteria_scores == pytest.approx({"clarity": 0.9, "tone": 0.9})
    assert evaluation.samples == ({"clarity": 0.85, "tone": 0.85}, {"clarity": 0.95, "tone": 0.95})
    assert (evaluation.usage.requests, evaluation.agreement) == (4, 1.0)
    assert evaluation.suggestions == ("More clarity.",)
    assert [issue.criterion for issue in evaluation.issues] == [None, "tone"]


def test_a_refused_confirmation_says_what_is_wrong():
    def answer(request):
        score, issue = (0.85, "fine, really") if request.temperature is None else (0.65, "far too vague")
        reply = {"criteria": {"clarity": {"reason": "", "score": score}}, "issues": [issue]}
        return reply | {"suggestions": [], "confidence": 0.9}

    evaluation = evaluate(panel(["clarity"], model=ScriptedModel(answer)), "x")
    assert not evaluation.satisfactory
    assert evaluation.issues == ("far too vague",)


def test_a_check_near_its_threshold_is_not_repeated():
    asked = []
    near = QualityCriterion(
        "share", evaluator="function", evaluator_config={"function": lambda _: asked.append(1) or 0.81}
    )
    assert evaluate(panel([near]), "x").satisfactory
    assert asked == [1]


def test_agreement_of_samples_with_the_verdict():
    model = scoring(0.95, 0.85, 0.65)
    criteria = [QualityCriterion("clarity"), checked("a", 0.9)]
    made = panel(criteria, model=model, judge_options=JudgeOptions(samples=3))
    evaluation = evaluate(made, "x")
    assert evaluation.satisfactory
    assert evaluation.agreement == pytest.approx(2 / 3)
    assert [sample["clarity"] for sample in evaluation.samples] == [0.95, 0.85, 0.65]


def test_waiting_checks_run_concurrently():
    meeting = asyncio.Event()

    async def first(_):
        await asyncio.wait_for(meeting.wait(), 60)
        return True

    async def second(_):
        meeting.set()
        return True

    criteria = [criterion("function", "a", function=first), criterion("function", "b", function=second)]
    assert evaluate(panel(criteria), "x").criteria_scores == {"a": 1.0, "b": 1.0}


def test_provider_error_carries_the_total_usage():
    def answer(request):
        if "compare" in request.messages[0].content:
            raise ModelError("overloaded", usage=TokenUsage(1, 0, failed_requests=1, cost_usd=0.0))
        return ChatReply('{"criteria": {"clarity": {"reason": "", "score": 1}}}', usage=USED)

    criteria = ["clarity", criterion("compare", "better", against="first")]
    with pytest.raises(ModelError, match="overloaded") as caught:
        evaluate(panel(criteria, model=ScriptedModel(answer)), "x", after("y"))
    assert caught.value.usage == TokenUsage(12, 5, requests=1, failed_requests=2, cost_usd=0.01)


def test_command_runner():
    asked = []

    async def run_command(command, /):
        asked.append(command.argv)
        return CommandOutcome(1, completed=True, stderr="broken")

    model = judging({"clarity": 1.0})
    tests = replace(criterion("command", "tests", command=["true", "{file}"]), gate=True)
    made = panel(["clarity", tests], model=model, run_command=run_command)
    evaluation = evaluate(made, "x")
    assert (made.checks, asked) == (("tests",), [("true", "draft.py")])
    assert evaluation.criteria_scores == {"clarity": None, "tests": 0.0}
    assert model.requests == []


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ([criterion("llm", prompt="x")], "llm has no option 'prompt'; expected 'evidence'"),
        ([QualityCriterion("it", gate=True)], "gate=True works only for criteria that need no model"),
        (["clarity"], "'clarity': llm needs a model; give one, or set REDRAFT_MODEL"),
        ([criterion("compare", against="best")], "compare needs a model"),
        ([criterion("command", command=["pytest"])], "needs a runner of commands"),
        ([criterion("schema", schema={"type": "nope"})], "not valid"),
        ([], "empty"),
    ],
)
def test_invalid_panel(criteria, message):
    model = None if "needs a model" in message else judging({})
    with pytest.raises(ConfigError, match=message):
        panel(criteria, model=model)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_threshold_out_of_range(threshold):
    with pytest.raises(ConfigError, match="quality threshold"):
        panel([checked("a", 1.0)], threshold=threshold)


def test_panel_is_shared_by_concurrent_runs():
    made = panel([checked("a", 1.0), "clarity"], model=judging({"clarity": 0.5}))

    async def many():
        return await asyncio.gather(*(made(f"x{i}", RUN) for i in range(50)))

    assert {evaluation.overall_score for evaluation in asyncio.run(many())} == {0.75}


@pytest.mark.parametrize(
    ("criteria", "output_alone"),
    [
        (["clarity", criterion("regex", pattern="x")], True),
        ([criterion("compare", reference="x", method="similarity")], True),
        ([criterion("compare", against="first", method="similarity")], False),
        ([criterion("function", function=lambda output: True)], True),
        ([criterion("function", function=lambda output, run: True)], False),
        ([criterion("function", function=lambda output, *, feedback: True)], False),
    ],
)
def test_comparisons_and_functions_that_take_the_run_judge_more_than_the_output(criteria, output_alone):
    assert panel(criteria, model=ScriptedModel([])).output_alone is output_alone
