"""A function around Anthropic's client, with a tool.

If you cache prompts, add `reply.usage.cache_read_input_tokens`, which `input_tokens` does not include.
"""

from anthropic import AsyncAnthropic
from shop import base_version, number, stock

from redraft import Draft, TokenUsage, reflected

client = AsyncAnthropic()
SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
TOOLS = [{"name": "stock", "description": stock.__doc__, "input_schema": SCHEMA}]


@reflected(criteria=[number])
async def answer(question, feedback, run):
    base, usage = base_version(run), TokenUsage()
    messages = [{"role": "user", "content": question}]
    if base is not None:
        messages = [*base.memo, {"role": "user", "content": feedback}]
    while True:
        reply = await client.messages.create(
            model="claude-haiku-4-5", max_tokens=1024, messages=messages, tools=TOOLS
        )
        usage += TokenUsage(reply.usage.input_tokens, reply.usage.output_tokens, requests=1)
        content = [part.model_dump(exclude_none=True) for part in reply.content]
        messages.append({"role": "assistant", "content": content})
        calls = [part for part in reply.content if part.type == "tool_use"]
        if not calls:
            text = "".join(part.text for part in reply.content if part.type == "text")
            return Draft(text, usage, memo=messages, model=reply.model)
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": str(stock(**call.input))}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
