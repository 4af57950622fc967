"""The examples of the specification's section 5, as printed but for the import line."""

import ast
import asyncio
import contextlib
import io
from functools import partial

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel

BASIC = """
criteria = [
    QualityCriterion(name="correctness", weight=2.0),
    QualityCriterion(name="efficiency", weight=1.0),
    QualityCriterion(name="readability", weight=1.0),
    QualityCriterion(name="edge_cases", weight=1.5),
]

pattern = ReflectionPattern(
    max_iterations=4,
    quality_criteria=criteria,
    quality_threshold=0.85,
    revision_strategy="targeted_edit"
)

agent = Agent(
    pattern=pattern,
    system_prompt="You are an expert Python developer."
)

result = await agent.run(
    "Write a function to find the longest palindromic substring"
)

# View the improvement journey
for version in result.history.versions:
    print(f"Iteration {version.iteration}: Score {version.evaluation.overall_score:.2f}")
    print(f"  Issues: {version.evaluation.issues}")
"""

VALIDATOR = '''
import ast

def syntax_validator(code: str) -> tuple[bool, str]:
    """Validate Python syntax."""
    try:
        ast.parse(code)
        return True, "Valid syntax"
    except SyntaxError as e:
        return False, f"Syntax error: {e}"

criteria = [
    QualityCriterion(
        name="syntax",
        evaluator="function",
        evaluator_config={"function": syntax_validator}
    ),
    QualityCriterion(name="correctness"),  # LLM evaluation
]

pattern = ReflectionPattern(quality_criteria=criteria)
'''

WRITING = """
pattern = ReflectionPattern(
    max_iterations=5,
    quality_criteria=[
        QualityCriterion(name="clarity", weight=1.5),
        QualityCriterion(name="engagement", weight=1.0),
        QualityCriterion(name="accuracy", weight=2.0),
        QualityCriterion(name="structure", weight=1.0),
    ],
    revision_strategy="incremental",
    best_version_selection="highest_score"
)

agent = Agent(
    pattern=pattern,
    system_prompt="You are a technical writer."
)

result = await agent.run(
    "Write a tutorial explaining how async/await works in Python"
)

print(f"Final draft after {result.iterations_used} iterations")
print(f"Best score achieved: {result.history.best_version.evaluation.overall_score:.2f}")
"""

SPECIFIED_FIELDS = {
    "ReflectionEvaluation": "overall_score criteria_scores satisfactory issues suggestions confidence",
    "ReflectionVersion": "iteration output evaluation improvements_applied timestamp token_usage",
    "ReflectionHistory": "versions best_version final_version convergence_reason total_iterations",
    "ReflectionResult": "success final_output best_output final_evaluation history iterations_used "
    "convergence_reason token_usage execution_time",
    "QualityCriterion": "name description weight threshold evaluator evaluator_config",
    "ReflectionPattern": "max_iterations reflection_prompt quality_criteria quality_threshold "
    "reflection_model structured_reflection preserve_all_versions reflection_triggers revision_strategy "
    "include_prior_versions include_reflection_history max_revision_tokens plateau_iterations "
    "improvement_threshold detect_oscillation best_version_selection",
}


SPECIFIED_DEFAULTS = {
    "max_iterations": 3,
    "reflection_prompt": None,
    "quality_criteria": None,
    "quality_threshold": 0.8,
    "reflection_model": None,
    "structured_reflection": True,
    "preserve_all_versions": True,
    "reflection_triggers": ["completion"],
    "revision_strategy": "hybrid",
    "include_prior_versions": False,
    "include_reflection_history": True,
    "max_revision_tokens": None,
    "plateau_iterations": 2,
    "improvement_threshold": 0.05,
    "detect_oscillation": True,
    "best_version_selection": "highest_score",
}


def answering(*scores, draft="def f(): ...", edit=None):
    """A model that drafts, edits or rewrites, and judges with these scores."""
    left = list(scores)

    def answer(request):
        if request.role == "generation":
            return draft
        if request.role == "revision":
            return edit(request) if edit else f"{draft} # {len(left)}"
        names = request.schema["properties"]["criteria"]["properties"]
        score = left.pop(0)
        issues = [] if score > 0.8 else [{"message": f"it scored {score}", "criterion": next(iter(names))}]
        return {
            "criteria": {name: {"reason": "so", "score": score} for name in names},
            "issues": issues,
            "suggestions": [],
            "confidence": 0.9,
        }

    return ScriptedModel(answer)


async def run(source, model):
    """Run an example with our names in place of its import line; return its names and what it printed."""
    names = {
        "Agent": partial(Agent, model),
        "QualityCriterion": QualityCriterion,
        "ReflectionPattern": ReflectionPattern,
    }
    code = compile(source, "specification", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        awaitable = eval(code, names)  # noqa: S307 (the specification's own examples)
        if awaitable is not None:
            await awaitable
    return names, printed.getvalue()


def test_basic_reflection_for_code_generation():
    def edit(request):
        old = request.messages[-2].content
        return f"<<<<<<< SEARCH\n{old}\n=======\n{old} # better\n>>>>>>> REPLACE"

    names, printed = asyncio.run(run(BASIC, answering(0.5, 0.7, 0.96, edit=edit)))
    assert printed.splitlines()[::2] == [
        "Iteration 1: Score 0.50",
        "Iteration 2: Score 0.70",
        "Iteration 3: Score 0.96",
    ]
    first = names["result"].history.versions[0].evaluation.issues
    assert printed.splitlines()[1] == f"  Issues: {tuple(str(issue) for issue in first)}"
    assert first[0] == "it scored 0.5"
    assert "efficiency scored 0.50, needs 0.70: so" in first
    assert names["result"].history.versions[1].strategy == "targeted_edit"


def test_reflection_with_a_custom_validator():
    names, _ = asyncio.run(run(VALIDATOR, answering()))
    chatty = Agent(answering(0.9, draft="```python\ndef f(): ...\n```"), pattern=names["pattern"])
    assert asyncio.run(chatty.run("Write f")).final_evaluation.criteria_scores["syntax"] == 1.0
    model = answering(0.9, 0.9, draft="def f(:")
    agent = Agent(model, pattern=names["pattern"])
    result = asyncio.run(agent.run("Write f"))
    assert result.history.versions[0].evaluation.criteria_scores["syntax"] == 0.0
    assert any("Syntax error" in str(issue) for issue in result.history.versions[0].evaluation.issues)


def test_writing_with_multiple_drafts():
    _, printed = asyncio.run(run(WRITING, answering(0.5, 0.6, 0.95)))
    assert printed.splitlines() == ["Final draft after 2 iterations", "Best score achieved: 0.95"]


def test_the_names_and_fields_of_the_specification():
    from dataclasses import fields

    import redraft

    for noun, names in SPECIFIED_FIELDS.items():
        have = {field.name for field in fields(getattr(redraft, noun))}
        assert set(names.split()) <= have


def test_the_defaults_of_the_specification():
    pattern = ReflectionPattern()
    assert {name: getattr(pattern, name) for name in SPECIFIED_DEFAULTS} == SPECIFIED_DEFAULTS
    criterion = QualityCriterion("clarity", "Easy to follow.")
    assert (criterion.weight, criterion.threshold) == (1.0, 0.7)
    assert (criterion.evaluator, criterion.evaluator_config) == ("llm", {})


def test_lists_that_are_given_equal_the_lists_of_the_pattern():
    criteria = [QualityCriterion("clarity", "Easy to follow.")]
    pattern = ReflectionPattern(quality_criteria=criteria, reflection_triggers=["completion", "manual"])
    assert (pattern.quality_criteria, pattern.reflection_triggers) == (criteria, ["completion", "manual"])


def test_the_convergence_reasons_of_the_specification():
    from redraft import ConvergenceReason

    assert {
        "QUALITY_MET": "quality_met",
        "MAX_ITERATIONS": "max_iterations",
        "PLATEAU": "plateau",
        "OSCILLATION": "oscillation",
        "DIMINISHING_RETURNS": "diminishing",
        "USER_ACCEPTED": "user_accepted",
        "TOKEN_BUDGET": "token_budget",
    }.items() <= {reason.name: reason.value for reason in ConvergenceReason}.items()
