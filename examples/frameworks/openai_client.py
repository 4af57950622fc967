"""A function around OpenAI's client, with a tool.

With the Responses API, the memo is the id of the response, and a revision passes it as
`previous_response_id`.
"""

import json

from openai import AsyncOpenAI
from shop import base_version, number, stock

from redraft import Draft, TokenUsage, reflected

client = AsyncOpenAI()
PARAMETERS = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
FUNCTION = {"name": "stock", "description": stock.__doc__, "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]


@reflected(criteria=[number])
async def answer(question, feedback, run):
    base, usage = base_version(run), TokenUsage()
    messages = [{"role": "user", "content": question}]
    if base is not None:
        messages = [*base.memo, {"role": "user", "content": feedback}]
    while True:
        reply = await client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        usage += TokenUsage(reply.usage.prompt_tokens, reply.usage.completion_tokens, requests=1)
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return Draft(message.content, usage, memo=messages, model=reply.model)
        for call in message.tool_calls:
            left = stock(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(left)})
