"""Budgets against a server that counts what is spent."""

import asyncio
import random
from dataclasses import replace

import pytest

from redraft import Agent, ConfigError, QualityCriterion, ReflectionPattern, reflect_sync
from redraft.errors import UnfinishedError, WorkflowError
from redraft.models import ProviderModel
from redraft.workflow import Workflow
from support.counting_server import INPUT_USD, OUTPUT_USD, provider


@pytest.fixture
def server(monkeypatch):
    with provider(monkeypatch) as server:
        yield server


def run(prompt="Write.", model="openai-chat:gpt-4o-mini", **options):
    pattern = ReflectionPattern(**{"quality_criteria": ["clarity"], "max_iterations": 3, **options})
    return asyncio.run(Agent(model, pattern=pattern, keep=False).run(prompt))


def check_random_budget(server, seed):
    """Run an agent with a random prompt, random replies and a random budget."""
    dice = random.Random(seed)  # noqa: S311
    server.usage.clear()
    server.error.clear()
    server.wanted = lambda: dice.choice([5, 60, 300, 2_000, 9_000])
    prompt = "Write about tea. " + "word " * dice.choice([0, 10, 400, 3_000])
    samples, candidates = dice.choice([1, 1, 2, 5]), dice.choice([1, 1, 3])
    tokens = round(10 ** dice.uniform(1.5, 4.7))
    budget = {"budget_tokens": tokens} if dice.random() < 0.5 else {"budget_usd": tokens * OUTPUT_USD}
    try:
        result = run(prompt, judge_samples=samples, candidates=candidates, **budget)
    except UnfinishedError:
        assert server.usage == [], "a draft that is paid for is returned"
    else:
        assert result.token_usage.total_tokens == server.tokens
        assert result.token_usage.cost_usd == pytest.approx(server.usd)
    error = sum(server.error[-max(samples, candidates) :])
    if "budget_tokens" in budget:
        assert server.tokens <= tokens + error
    else:
        assert server.usd <= budget["budget_usd"] + (error + 1) * INPUT_USD


@pytest.mark.parametrize("seed", range(12))
def test_a_run_exceeds_its_budget_by_the_error_of_its_input_estimates_at_most(seed, server):
    check_random_budget(server, seed)


@pytest.mark.parametrize("revision_tokens", [120, 700, 1_500])
def test_the_tokens_of_revisions_count_their_prompts(revision_tokens, server):
    server.wanted = lambda: 300
    result = run(max_revision_tokens=revision_tokens, max_iterations=9, plateau_iterations=9)
    revisions = result.usage_by_role.get("revision")
    assert result.convergence_reason == "token_budget"
    assert (revisions.total_tokens if revisions else 0) <= revision_tokens + max(server.error)
    assert "(max_revision_tokens)" in result.stop.detail
    assert "What was left was too little for the next call: it takes about" in result.stop.detail
    assert result.diagnostics["budget"].startswith(f"max_revision_tokens={revision_tokens} left no room")


def test_a_server_that_ignores_the_limit_exceeds_the_budget_once(server):
    server.ignores, server.wanted = True, lambda: 9_000
    result = run(budget_tokens=2_000)
    assert len(server.usage) == 1
    assert result.convergence_reason == "token_budget"


def test_replies_without_usage_are_estimated(server):
    server.silent, server.wanted = True, lambda: 300
    result = run(budget_tokens=3_000, max_iterations=30, plateau_iterations=30)
    assert result.convergence_reason == "token_budget"
    assert result.token_usage.total_tokens <= 3_000
    assert "usage_estimated" in result.diagnostics


@pytest.mark.parametrize(("budget", "calls"), [(900, 0), (4_000, 1)])
def test_a_model_that_reasons_needs_room_for_its_thoughts(budget, calls, server):
    server.wanted = lambda: 3_900
    if calls:
        run(model="openai-chat:o3-mini", budget_tokens=budget)
    else:
        with pytest.raises(UnfinishedError, match="for a reply of 1,024 tokens"):
            run(model="openai-chat:o3-mini", budget_tokens=budget)
    assert len(server.usage) == calls
    assert all(limit < budget for limit in server.limits)


@pytest.mark.parametrize("most", [4_096, 8_192])
def test_a_limit_that_the_model_refuses_is_lowered(most, server):
    server.most = most
    result = run(budget_tokens=1_000_000, max_iterations=1)
    assert len(result.history.versions) == 2
    assert len(server.limits) - len(server.usage) <= 2, "the refusals are remembered"


def test_a_paid_reply_is_used_and_reported_as_cut_off(server):
    server.wanted = lambda: 5_000
    result = run(budget_tokens=1_000)
    assert result.best_output.startswith("draft 1 word")
    assert result.diagnostics["cut_off"] == "One reply was cut off at the limit that the budget allowed."


def test_work_that_a_budget_prevented_is_reported_with_numbers(server):
    server.wanted = lambda: 500
    result = run(budget_tokens=1_000)
    assert "not started. The last one: it takes about" in result.diagnostics["budget"]
    assert "are left" in result.stop.detail


def test_a_budget_is_used_up_as_far_as_earlier_replies_fit(server):
    server.wanted = lambda: 120
    result = run(budget_tokens=4_000, max_iterations=30, plateau_iterations=30)
    assert result.token_usage.total_tokens > 3_000


@pytest.mark.parametrize(
    "models",
    [
        {"model": "openai-chat:my-own"},
        {"reflection_model": "openai-chat:my-own"},
        {"model": ["openai-chat:gpt-4o-mini", "openai-chat:my-own"]},
    ],
)
def test_an_unknown_price_is_refused_before_the_first_call(models, server):
    with pytest.raises(
        ConfigError, match=r"'openai-chat:my-own' is not known.*\[prices\].*price=\(0.5, 1.5\)"
    ):
        run(budget_usd=1.0, **models)
    assert server.limits == []


def test_an_explicit_price_counts(server):
    model = ProviderModel("openai-chat:my-own", price=(0.15, 0.6))
    result = run(model=model, budget_usd=1_000 * OUTPUT_USD)
    assert result.token_usage.cost_usd == pytest.approx(server.usd)
    assert result.convergence_reason == "cost_budget"
    assert server.usd <= 1_000 * OUTPUT_USD + server.error[-1] * INPUT_USD


@pytest.fixture
def priced(tmp_path, monkeypatch):
    (tmp_path / "redraft.toml").write_text(
        # Pydantic AI calls its own object of this model "openai:my-own".
        '[prices]\n"openai-chat:my-own" = [0.15, 0.6]\n"openai:my-own" = [0.15, 0.6]\n'
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("priced")
def test_a_price_in_the_settings_counts_wherever_a_model_is_named(server, tmp_path):
    budget = 1_000 * OUTPUT_USD
    result = run(model="openai-chat:my-own", budget_usd=budget)
    assert result.token_usage.cost_usd == pytest.approx(server.usd)
    assert 0 < server.usd <= budget + server.error[-1] * INPUT_USD
    server.usage.clear()
    path = tmp_path / "teas.yaml"
    path.write_text(WORKFLOW.format(model="openai-chat:my-own", budget=f"{{usd: {budget}}}"))
    stopped = Workflow.from_file(path, keep=False).run_sync({"teas": ["oolong", "assam"] * 20})
    assert stopped.status == "stopped"
    assert 0 < server.usd <= budget + sum(server.error) * INPUT_USD


@pytest.mark.usefixtures("priced")
def test_a_price_in_the_settings_counts_for_an_agent_of_pydantic_ai(server):
    from pydantic_ai import Agent as Wrapped

    pattern = ReflectionPattern(quality_criteria=["clarity"], budget_usd=1_000 * OUTPUT_USD)
    wrapped = Agent.from_pydantic_ai(Wrapped("openai-chat:my-own"), pattern=pattern, keep=False)
    name = "openai-chat:my-own"
    judged = replace(pattern, reflection_model=name)
    result = wrapped.run_sync("Write.", pattern=judged)
    assert result.token_usage.cost_usd == pytest.approx(server.usd)
    assert 0 < server.usd <= 1_000 * OUTPUT_USD + sum(server.error) * INPUT_USD


@pytest.mark.parametrize("price", [0.5, (1,), (-1, 2), ("1", "2"), (float("nan"), 1)])
def test_a_price_is_two_amounts(price):
    with pytest.raises(ConfigError, match="price must be"):
        ProviderModel("openai-chat:my-own", price=price)


def test_an_unknown_price_does_not_matter_if_no_model_is_called(server):
    exact = QualityCriterion("short", evaluator="characters", evaluator_config={"at_most": 10**6})
    assert run(quality_criteria=[exact], reflection_model="openai-chat:my-own", budget_usd=1.0).success


def test_the_requests_of_an_agent_with_tools_have_a_limit(server):
    def stock(item: str) -> int:
        """Say how many are in stock."""
        return 7

    server.wanted = lambda: 5_000
    agent = Agent(
        "openai-chat:gpt-4o-mini",
        tools=[stock],
        pattern=ReflectionPattern(quality_criteria=["clarity"], budget_tokens=2_000),
        keep=False,
    )
    result = agent.run_sync("How much tea is there?")
    assert server.limits[0] < 2_000
    assert server.tokens <= 2_000 + server.error[-1]
    assert result.token_usage.total_tokens == server.tokens
    assert "cut_off" in result.diagnostics


def test_an_unknown_price_of_a_judge_is_refused_before_a_function_is_called(server):
    pattern = ReflectionPattern(
        quality_criteria=["clarity"], reflection_model="openai-chat:my-own", budget_usd=1.0
    )
    with pytest.raises(ConfigError, match="'openai-chat:my-own' is not known"):
        reflect_sync("Write.", generate=lambda prompt: pytest.fail("was called"), pattern=pattern)


WORKFLOW = """
name: teas
model: {model}
budget: {budget}
nodes:
  - name: sum_up
    map: state.teas
    uses: llm.call
    with: {{prompt: "Sum up: {{{{ item }}}}"}}
    output: summaries
"""


@pytest.mark.parametrize("limits", ["tokens: 1500", "usd: 0.0006"])
def test_the_items_of_a_workflow_share_its_budget(limits, server, tmp_path):
    path = tmp_path / "teas.yaml"
    path.write_text(WORKFLOW.format(model="openai-chat:gpt-4o-mini", budget=f"{{{limits}}}"))
    server.wanted = lambda: 700
    result = Workflow.from_file(path, keep=False).run_sync({"teas": ["oolong", "assam", "sencha"] * 4})
    assert result.status == "stopped"
    assert "What was left was too little for the next call" in result.stop.detail
    assert 0 < server.tokens <= 1500 + sum(server.error)
    assert server.usd <= 0.0006 + sum(server.error) * INPUT_USD or limits.startswith("tokens")


def test_a_workflow_refuses_a_model_without_a_price_before_it_runs(server, tmp_path):
    path = tmp_path / "teas.yaml"
    path.write_text(WORKFLOW.format(model="openai-chat:my-own", budget="{usd: 1}"))
    with pytest.raises(WorkflowError, match="'openai-chat:my-own' is not known"):
        Workflow.from_file(path, keep=False).run_sync({"teas": ["oolong"]})
    assert server.limits == []
