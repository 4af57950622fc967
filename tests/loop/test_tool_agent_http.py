"""An agent that acts, over the loopback, through a provider's real client."""

import asyncio
from dataclasses import replace

import pydantic_ai
import pytest
from pydantic import BaseModel

from redraft import Agent, ModelError, QualityCriterion, ReflectionPattern
from redraft.loop import Retry
from support.openai_server import asking, completion, serving

NAME = "openai-chat:gpt-4o-mini"


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        yield server


def looking_for(word):
    check = QualityCriterion(
        "found", evaluator="function", evaluator_config={"function": lambda output: word in str(output)}
    )
    return ReflectionPattern(
        quality_criteria=[check], retry=Retry(attempts=3, first_wait=0), reflect_on_tools=["stock"]
    )


def stock(item: str) -> int:
    """Say how many are in stock."""
    return {"tea": 7}[item]


def test_a_named_model_calls_tools_reflects_and_revises(server):
    server.answers = [
        (200, {}, asking("stock", item="tea")),
        (200, {}, completion("Ask for the coffee, too.")),
        (429, {"Retry-After": "0"}, {"error": {"message": "slow down"}}),
        (200, {}, completion("There is some.")),
        (200, {}, completion("There are 7.")),
    ]
    agent = Agent(NAME, tools=[stock], pattern=looking_for("7"), system_prompt="You count.")
    result = agent.run_sync("How much tea is there?")
    assert result.best_output == "There are 7."
    bodies = [body for _, body in server.asked]
    assert [tool["function"]["name"] for tool in bodies[0]["tools"]] == ["stock"]
    assert "tools" not in bodies[1]
    assert bodies[2] == bodies[3]  # tried again where it stood
    assert [message["role"] for message in bodies[3]["messages"]] == [
        "system", "user", "assistant", "tool", "user",
    ]  # fmt: skip
    assert bodies[3]["messages"][3]["content"] == "7"
    assert bodies[3]["messages"][4]["content"].endswith("Ask for the coffee, too.")
    # What went out before goes out again as it was, which is what a provider's prompt cache lives on.
    assert bodies[4]["messages"][:5] == bodies[3]["messages"]
    usage = result.usage_by_role
    assert {role: used.requests for role, used in usage.items()} == {
        "generation": 2, "evaluation": 0, "reflection": 1, "revision": 1,
    }  # fmt: skip
    assert usage["generation"].failed_requests == 1
    assert result.token_usage.cost_usd > 0


def files(folder: str) -> dict[str, list[str]]:
    """List files."""
    return {"names": ["one \udcff"]}


def test_lone_surrogates_are_sent_as_replacement_characters(server):
    server.answers = [
        (200, {}, asking("files", folder="x")),
        (200, {}, completion("one \ud83d")),
        (200, {}, completion("two")),
    ]
    pattern = replace(looking_for("two"), reflect_on_tools=[])
    agent = Agent(NAME, tools=[files], pattern=pattern, system_prompt="List \udcfe.")
    result = agent.run_sync("Which \udcfd?")
    assert [version.output for version in result.history.versions] == ["one \ufffd", "two"]
    system, task, _, names, reply, _ = [message["content"] for message in server.asked[-1][1]["messages"]]
    assert system.startswith("List \ufffd.")
    assert task.startswith("Which \ufffd?")
    assert (names, reply) == ('{"names":["one \ufffd"]}', "one \ufffd")


@pytest.mark.parametrize(
    "odd",
    [
        {"id": None},
        {"id": "1"},
        {"function": {"name": "stock", "arguments": {"item": "tea"}}},
        {"function": {"name": "every", "arguments": None}},
    ],
)
def test_a_tool_call_in_an_odd_form_is_carried_out(server, odd):
    def every() -> int:
        """Say how many are in stock in all."""
        return 7

    reply = asking("stock", item="tea")
    usual = reply["choices"][0]["message"]["tool_calls"][0]
    reply["choices"][0]["message"]["tool_calls"] = [{**usual, **odd}, {**usual, **odd}]
    server.answers = [(200, {}, reply), (200, {}, completion("7"))]
    pattern = replace(looking_for("7"), reflect_on_tools=[])
    result = Agent(NAME, tools=[stock, every], pattern=pattern).run_sync("How much tea is there?")
    assert (result.best_output, result.token_usage.failed_requests) == ("7", 0)
    _, asked, *returned = [
        message for message in server.asked[-1][1]["messages"] if message["role"] != "system"
    ]
    ids = [call["id"] for call in asked["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(message["tool_call_id"], message["content"]) for message in returned] == [
        (call_id, "7") for call_id in ids
    ]


def test_a_refusal_is_not_retried(server):
    server.answers = [(401, {}, {"error": {"message": "who are you?"}})]
    with pytest.raises(ModelError, match="who are you"):
        Agent(NAME, tools=[stock], pattern=looking_for("7")).run_sync("Q?")
    assert len(server.asked) == 1


class Count(BaseModel):
    item: str
    number: int


def test_a_wrapped_agent_keeps_its_type(server):
    server.answers = [
        (200, {}, asking("stock", item="tea")),
        (200, {}, completion("Fine.")),
        (200, {}, asking("final_result", "call-2", item="tea", number=0)),
        (200, {}, asking("final_result", "call-3", item="tea", number=7)),
    ]
    inner = pydantic_ai.Agent(NAME, output_type=Count, tools=[stock])

    async def main():
        async with inner:  # the test closes the client that it made
            return await Agent.from_pydantic_ai(inner, pattern=looking_for("7")).run("How much tea?")

    result = asyncio.run(main())
    assert [version.output for version in result.history.versions] == [
        Count(item="tea", number=0),
        Count(item="tea", number=7),
    ]
    assert result.token_usage.requests == 4
