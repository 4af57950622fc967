import asyncio
import pickle
import re
from copy import copy, deepcopy
from pathlib import Path
from pkgutil import resolve_name

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models import infer_model
from pydantic_ai.models.test import TestModel

from redraft import (
    Agent,
    ConfigError,
    Ensemble,
    Lessons,
    QualityCriterion,
    RedraftError,
    ReflectionPattern,
    ScriptedModel,
    SqliteStore,
    Task,
    Workflow,
    reflect_sync,
    reflected,
)
from redraft._validation import _hint_for
from redraft.errors import SandboxForbiddenError
from redraft.execution import CommandOutcome
from redraft.models.provider import ProviderModel
from redraft.protocols import ChatReply
from redraft.sandbox.jail import ProcessJail
from redraft.types import Advice
from redraft.workflow.spec import WorkflowFile
from support.judges import judge_scoring, verdict
from support.openai_server import completion, serving

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


class Writer:
    """Numbered drafts, and a judge that gives them these scores."""

    def __init__(self, *scores):
        self.scores = list(scores)
        self.drafts = 0

    def __call__(self, request):
        if request.role == "evaluation":
            return verdict(request, self.scores.pop(0))
        self.drafts += 1
        return f"draft {self.drafts}"


def test_a_model_drafts_judges_itself_and_revises():
    model = ScriptedModel(Writer(0.5, 0.9))
    agent = Agent(model, pattern=ReflectionPattern(quality_criteria=["clarity"]), system_prompt="You write.")
    result = agent.run_sync("Write about tea.")
    assert result.best_output == "draft 2"
    assert [request.role for request in model.requests] == [
        "generation",
        "evaluation",
        "revision",
        "evaluation",
    ]
    assert set(result.usage_by_role) == {"generation", "evaluation", "revision"}
    assert result.token_usage.cost_usd == 0.0
    assert "self_judged_only" in result.diagnostics


def test_another_model_may_judge():
    writer = ScriptedModel(["a", "b"])
    judge = ScriptedModel(Writer(0.5, 0.9))
    pattern = ReflectionPattern(quality_criteria=["clarity"], reflection_model=judge)
    result = Agent(writer, pattern=pattern).run_sync("Write.")
    assert result.success
    assert {request.role for request in judge.requests} == {"evaluation"}
    assert "self_judged_only" not in result.diagnostics


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({"judge_samples": 3}, lambda model: sum(r.role == "evaluation" for r in model.requests) == 3),
        (
            {"reflection_prompt": "My own: {output}"},
            lambda model: "My own:" in model.requests[1].messages[-1].content,
        ),
        ({"structured_reflection": False}, lambda model: model.requests[1].schema is None),
        ({}, lambda model: model.requests[1].schema is not None),
    ],
)
def test_options_of_the_judge(options, check):
    def answer(request):
        if request.role == "generation":
            return "draft"
        return verdict(request, 0.9) if request.schema else "clarity: 0.9"

    model = ScriptedModel(answer)
    pattern = ReflectionPattern(quality_criteria=["clarity"], max_iterations=0, **options)
    assert Agent(model, pattern=pattern).run_sync("Write.").success
    assert check(model)


@pytest.mark.parametrize(
    ("options", "issues", "texts"),
    [
        ({}, True, False),
        ({"include_prior_versions": True}, True, True),
        ({"include_reflection_history": False}, False, False),
    ],
)
def test_the_reviser_sees_earlier_issues_and_texts_as_the_pattern_says(options, issues, texts):
    def judge(text):
        return (text.startswith("third"), f"{text.split()[0]} is wrong")

    model = ScriptedModel(["first x", "second y", "third z"])
    pattern = ReflectionPattern(quality_criteria=[judge], revision_strategy="full_rewrite", **options)
    Agent(model, pattern=pattern).run_sync("Write.")
    asked = model.requests[2].messages[-1].content
    assert ("first is wrong" in asked, "first x" in asked) == (issues, texts)


def test_revision_tokens_limit_a_revision():
    model = ScriptedModel(["coffee", "tea"])
    pattern = ReflectionPattern(quality_criteria=[TEA], max_revision_tokens=500)
    Agent(model, pattern=pattern).run_sync("Write.")
    assert model.requests[0].max_tokens is None
    assert 0 < model.requests[1].max_tokens < 500, "the prompt counts"


def test_one_agent_serves_many_runs():
    agent = Agent(ScriptedModel(lambda request: "tea"), pattern=ReflectionPattern(quality_criteria=[TEA]))

    async def main():
        return await asyncio.gather(*(agent.run(f"Write {n}.") for n in range(100)))

    results = asyncio.run(main())
    assert len({result.run_id for result in results}) == 100


def test_without_a_model_the_error_names_redraft_model(monkeypatch, tmp_path):
    monkeypatch.delenv("REDRAFT_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="REDRAFT_MODEL"):
        Agent()


@pytest.mark.parametrize("method", ["run", "run_sync", "stream"])
@pytest.mark.parametrize("pattern", ["reflexion", {"max_iterations": 2}, ReflectionPattern], ids=repr)
def test_run_and_stream_require_a_pattern(method, pattern):
    async def main():
        await getattr(Agent(ScriptedModel([]), keep=False), method)("Write.", pattern=pattern)

    with pytest.raises(ConfigError, match="pattern must be a ReflectionPattern, got"):
        asyncio.run(main())


def test_a_model_need_not_be_hashable():
    from dataclasses import dataclass

    @dataclass
    class Mutable:
        reply: str

        async def __call__(self, request):
            return ChatReply(self.reply)

    assert Agent(Mutable("tea"), pattern=ReflectionPattern(quality_criteria=[TEA])).run_sync("Write.").success


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lessons": "memory"},
            r"lessons: an advisor .* got 'memory'. Did you mean Lessons\(agent='memory'\)\?",
        ),
        ({"lessons": Lessons}, "lessons: an advisor has recall"),
        ({"keep": "runs.db"}, r"got 'runs.db'. Did you mean SqliteStore\('runs.db'\)\?"),
        ({"keep": Path("runs.db")}, "Did you mean SqliteStore"),
        ({"keep": SqliteStore}, "keep must be True, False or a Store"),
        ({"keep": None}, "keep must be True, False or a Store"),
        ({"name": ""}, "name must be a non-empty string, got ''"),
        ({"name": 3}, "name must be a non-empty string"),
        ({"model": ""}, "model must be the name of a model.*got ''"),
        ({"model": ScriptedModel}, "model must be the name of a model.*ScriptedModel"),
        ({"model": 3}, "model must be .*ChatModel"),
        ({"model": ReflectionPattern()}, "model must be .*ChatModel"),
        ({"pattern": "reflection"}, "pattern must be a ReflectionPattern"),
        ({"pattern": {"max_iterations": 1}}, "pattern must be a ReflectionPattern"),
        ({"system_prompt": 3}, "system_prompt must be a string"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(ConfigError, match=message):
        Agent(**{"model": ScriptedModel([]), **options})


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("pydantic_ai.agent", r"\. For an agent of Pydantic AI: Agent\.from_pydantic_ai\(agent\)\.$"),
        ("pydantic_ai.models.function", r"ProviderModel\(model\), from redraft\.models\.$"),
        ("agents.agent", r"reflecting\(agent\), from redraft\.integrations\.openai_agents\.$"),
        ("langgraph.graph.state", r"reflecting\(graph\), from redraft\.integrations\.langgraph\.$"),
        ("openai", "For a client of a provider: the name of the model; "),
        ("agents_of_mine", r"Theirs object at 0x\w+>\.$"),
    ],
)
@pytest.mark.parametrize("option", ["model", "judge"])
def test_an_object_of_another_library_gets_a_hint(option, module, message):
    theirs = type("OfAUser", (type("Theirs", (), {"__module__": module}),), {})()
    with pytest.raises(ConfigError, match=message.replace("Theirs", "OfAUser")):
        Agent(**{"model": ScriptedModel([]), option: theirs})


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("pydantic_ai:Agent", "from_pydantic_ai"),
        ("pydantic_ai.models.test:TestModel", "ProviderModel"),
        ("agents:Agent", "openai_agents"),
        ("langgraph.graph.state:CompiledStateGraph", "langgraph"),
        ("openai:AsyncOpenAI", "client"),
    ],
)
def test_the_classes_of_other_libraries_are_where_the_hints_expect_them(name, word):
    assert word in _hint_for(object.__new__(resolve_name(name)))


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: Ensemble(ScriptedModel([]), [Task("W.")], keep="runs.db"), "SqliteStore"),
        (lambda: Workflow(WorkflowFile("name: w\nnodes: []"), keep="runs.db"), "SqliteStore"),
        (lambda: reflected(evaluate=bool, keep="runs.db")(lambda feedback="": "x"), "SqliteStore"),
        (lambda: ReflectionPattern(advisors=["memory"]), "advisors: .*Lessons"),
    ],
)
def test_bad_keep_and_advisors_raise_elsewhere(refused, message):
    with pytest.raises(RedraftError, match=message):
        refused()


def test_a_judge_without_a_key_raises_before_any_call(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = ScriptedModel([])
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Agent(model, pattern=ReflectionPattern(reflection_model="openai:gpt-5-mini"))
    with pytest.raises(ConfigError, match="Did you mean 'openai:gpt-5-mini'"):
        Agent(model, pattern=ReflectionPattern(reflection_model="opanai:gpt-5-mini"))


COMMAND = QualityCriterion("lint", evaluator="command", evaluator_config={"command": ["python", "{file}"]})
CALLS = QualityCriterion("works", evaluator="command", evaluator_config={"calls": [("f(1)", 1)]})


@pytest.mark.parametrize(
    ("works", "criterion"),
    [(None, COMMAND), (None, CALLS), ("python", COMMAND), ("python", CALLS)],
)
def test_commands_without_a_sandbox_raise_before_any_call(works, criterion, monkeypatch):
    async def jail(_jail, command):
        if works == "python" and command.python:
            return CommandOutcome(0, completed=True)
        raise SandboxForbiddenError("This machine has no jail; it lacks Landlock.")

    monkeypatch.setattr(ProcessJail, "__call__", jail)
    monkeypatch.setattr("redraft.sandbox.jail._working_jails", set())
    paid = []
    pattern = ReflectionPattern(quality_criteria=[criterion])
    doors = [
        lambda: Agent(ScriptedModel(lambda request: paid.append(request) or "x"), pattern=pattern),
        lambda: reflected([criterion])(lambda feedback="": paid.append(feedback)),
        lambda: reflect_sync("W.", generate=paid.append, pattern=pattern),
        lambda: Ensemble(ScriptedModel([]), [Task("W.", criteria=[criterion])]),
    ]
    if works == "python" and criterion is CALLS:
        doors[0]()
        return
    for door in doors:
        with pytest.raises(ConfigError, match=f"Criterion '{criterion.name}': This machine has no jail"):
            door()
    assert paid == []


def test_a_working_sandbox_is_tried_once(monkeypatch):
    tried, ask = [], ProcessJail.__call__

    async def jail(self, command):
        tried.append(bool(command.argv))
        return await ask(self, command)

    monkeypatch.setattr(ProcessJail, "__call__", jail)
    monkeypatch.setattr("redraft.sandbox.jail._working_jails", set())
    for _ in range(3):
        Agent(ScriptedModel([]), pattern=ReflectionPattern(quality_criteria=[CALLS]))
    assert tried == [False]


def test_a_judge_without_log_probabilities_raises_before_any_call():
    judge = ProviderModel(TestModel())
    pattern = ReflectionPattern(reflection_model=judge, judge_method="probability")
    with pytest.raises(ConfigError, match="'test:test' returns no log probabilities"):
        Agent(ScriptedModel([]), pattern=pattern)


def test_a_failed_rewrite_is_not_described_by_its_instructions():
    model = ScriptedModel(["tea x", "coffee", "tea y"])
    criterion = QualityCriterion(
        "y", evaluator="function", evaluator_config={"function": lambda o: ("y" in o, "y is missing")}
    )
    pattern = ReflectionPattern(quality_criteria=[TEA, criterion], revision_strategy="full_rewrite")
    Agent(model, pattern=pattern).run_sync("W.")
    asked = model.requests[2].messages[-1].content
    assert "made it worse" in asked
    assert "asked to mend" not in asked


def test_the_judge_of_the_settings(monkeypatch):
    asked = []
    monkeypatch.setenv("REDRAFT_REFLECTION_MODEL", "openai:judge")
    monkeypatch.setattr(
        "redraft.loop.verbs.model_of",
        lambda model, settings, **_: asked.append(model) or judge_scoring(0.9),
    )
    Agent(ScriptedModel(["draft"]), pattern=ReflectionPattern(quality_criteria=["clarity"])).run_sync("W.")
    assert asked == ["openai:judge"]


@pytest.mark.parametrize(
    ("options", "issues", "scores"),
    [
        ({}, True, False),
        ({"include_reflection_history": False}, False, False),
        ({"include_prior_scores": True}, True, True),
        ({"include_prior_scores": True, "include_reflection_history": False}, False, False),
    ],
)
def test_the_judge_sees_earlier_issues_and_scores_only_if_asked(options, issues, scores):
    model = judge_scoring(0.5)
    pattern = ReflectionPattern(quality_criteria=["clarity"], max_iterations=1, diversify=False, **options)
    Agent(model, pattern=pattern).run_sync("W.", draft="another")
    judged = [request for request in model.requests if request.role == "evaluation"]
    asked = judged[-1].messages[-1].content
    assert ("1. too dull (clarity)" in asked) is issues
    assert ("0.50" in asked) is scores


def test_an_agents_attributes_are_read_only():
    agent = Agent(ScriptedModel([]), pattern=ReflectionPattern(quality_criteria=[TEA]), system_prompt="You.")
    for name in ("model", "pattern", "system_prompt"):
        with pytest.raises(AttributeError):
            setattr(agent, name, None)


# Copies.


class Order(BaseModel):
    total: int


def look(place: str) -> str:
    """Look at a place."""
    return place


def named_agents():
    yield Agent("openai:gpt-4o", name="plain", system_prompt="Be brief.")
    yield Agent("anthropic:claude-haiku-4-5", output_type=Order)
    yield Agent(
        "google:gemini-2.5-flash", output_type={"type": "object", "properties": {"a": {"type": "integer"}}}
    )
    yield Agent(["openai:gpt-4o", "openai-chat:gpt-4o"])
    yield Agent("openai:gpt-4o", tools=[look])
    yield Agent(ProviderModel("openai:gpt-4o", price=(1, 2)))
    pattern = ReflectionPattern(quality_criteria=["clear"], reflection_model=ProviderModel("openai:gpt-4o"))
    yield Agent("openai:gpt-4o", pattern=pattern).variant(system_prompt="Be long.")


@pytest.fixture
def keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "not" + "-a-" + "key")


def pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (made here)


@pytest.mark.parametrize("copied", [copy, deepcopy, pickled])
def test_agents_of_providers_are_copied_and_pickled(copied, keys):
    for agent in named_agents():
        again = copied(agent)
        assert type(again) is Agent
        assert again.pattern.max_iterations == agent.pattern.max_iterations
        for name in ("name", "model", "system_prompt", "tools", "output_type", "criteria"):
            assert again.definition[name] == agent.definition[name], name
        assert again.model.name == agent.model.name
        assert getattr(again.model, "_price", None) == getattr(agent.model, "_price", None)


def test_a_pickled_agent_answers_with_a_client_of_its_own(monkeypatch):
    with serving(monkeypatch) as server:
        server.answers = [(200, {}, completion("one")), (200, {}, completion("two"))]
        pattern = ReflectionPattern(quality_criteria=[TEA], max_iterations=0)
        agent = Agent("openai-chat:gpt-4o-mini", pattern=pattern, keep=False)
        assert agent.run_sync("Count.").best_output == "one"
        assert pickled(agent).run_sync("Count.").best_output == "two"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (
            lambda: Agent(ScriptedModel(["a"]), name="clerk"),
            "The agent 'clerk' can't be pickled: its model, <",
        ),
        (lambda: Agent("openai:gpt-4o", tools=[lambda: 1]), "its tools, (<function "),
        (lambda: Agent(ProviderModel(infer_model("openai:gpt-4o"))), "its model, <"),
        (lambda: Agent.from_pydantic_ai(PydanticAgent("openai:gpt-4o")), "since it is that of a framework"),
    ],
)
def test_an_agent_that_can_not_be_pickled_says_why(agent, message, keys):
    made = agent()
    with pytest.raises(ConfigError, match=re.escape(message)):
        pickle.dumps(made)
    assert deepcopy(made).definition["name"] == made.name


@pytest.mark.parametrize("name", ["run", "run_sync", "stream"])
def test_a_subclass_that_overrides_a_way_to_run_is_refused(name):
    with pytest.raises(ConfigError, match=rf"Mine overrides {name}\(\), which evaluations, fleets and other"):
        type("Mine", (Agent,), {name: lambda self, query: None})


def test_a_subclass_with_methods_of_its_own_works():
    class Mine(Agent):
        async def ask(self, query):
            return (await self.run(query)).best_output

    assert asyncio.run(deepcopy(Mine(ScriptedModel(["tea"]), keep=False)).ask("Which?")) == "tea"


class Librarian:
    """Advice that names the criteria of the run."""

    def __init__(self, criteria=()):
        self.criteria = criteria

    def with_criteria(self, criteria, *, in_prompt=True):
        return Librarian([criterion.name for criterion in criteria])

    async def recall(self, task):
        return [Advice(f"The criteria are {self.criteria}.", "librarian")]

    async def observe(self, result):
        pass


def test_an_agent_under_evaluation_gets_the_advice_that_it_gets_elsewhere():
    agent = Agent(ScriptedModel(["tea"] * 2), criteria=[TEA], lessons=Librarian(), keep=False)
    results = [each.run_sync("Name a drink.") for each in (agent, agent.for_evaluation())]
    assert [result.advice[0].text for result in results] == ["The criteria are ['tea']."] * 2
