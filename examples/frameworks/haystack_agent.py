"""A function around an agent of Haystack.

A pipeline keeps no conversation: run it again, with the critique as one of its inputs.
"""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from shop import base_version, number, stock

from redraft import Draft, TokenUsage, reflected

shop = Agent(
    chat_generator=OpenAIChatGenerator(model="gpt-5-mini"),
    tools=[create_tool_from_function(stock)],
    system_prompt="You answer customers.",
)


@reflected(criteria=[number])
async def answer(question, feedback, run):
    base = base_version(run)
    messages = [ChatMessage.from_user(question)]
    if base is not None:
        messages = [*map(ChatMessage.from_dict, base.memo), ChatMessage.from_user(feedback)]
    result = await shop.run_async(messages=messages)
    tokens = result["token_usage"]
    usage = TokenUsage(
        tokens.get("prompt_tokens", 0), tokens.get("completion_tokens", 0), requests=result["step_count"]
    )
    conversation = [message for message in result["messages"] if not message.is_from("system")]
    return Draft(conversation[-1].text, usage, memo=[message.to_dict() for message in conversation])
