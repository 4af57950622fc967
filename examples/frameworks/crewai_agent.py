"""A function around an agent of CrewAI.

A `Crew` keeps no conversation: put `{critique}` into the description of a task, and call
`kickoff(inputs={"question": question, "critique": feedback})`. All tasks then run again, with their tools.
"""

from crewai import LLM, Agent
from crewai.tools import tool
from shop import base_version, number, stock

from redraft import Draft, TokenUsage, reflected

shop = Agent(
    role="Shop assistant",
    goal="Answer customers.",
    backstory="You know the stock.",
    tools=[tool("stock")(stock)],
    llm=LLM(model="openai/gpt-5-mini"),
)


@reflected(criteria=[number])
async def answer(question, feedback, run):
    base = base_version(run)
    messages = [{"role": "user", "content": question}]
    if base is not None:
        messages = [*base.memo, {"role": "user", "content": feedback}]
    result = await shop.kickoff_async(messages)
    tokens = result.usage_metrics or {}
    usage = TokenUsage(
        tokens.get("prompt_tokens", 0),
        tokens.get("completion_tokens", 0),
        requests=tokens.get("successful_requests", 0),
    )
    conversation = [message for message in result.messages if message["role"] != "system"]
    return Draft(result.raw, usage, memo=conversation)
