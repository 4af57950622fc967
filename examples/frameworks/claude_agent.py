"""A function around the Claude Agent SDK, which reports its price, so that `budget_usd` holds.

The memo is the id of Claude Code's own session; `fork_session` leaves it unchanged, so that a revision can
start from the best version even if a later one was worse. Sessions are files on this machine: a run that is
resumed elsewhere can't continue them. What the agent changes in its folder stays changed; to judge the files
instead of the answer, use the hooks of docs/coding-agents.md.
"""

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from shop import base_version, number

from redraft import Draft, ModelError, TokenUsage, reflected

options = {"allowed_tools": ["Read", "Grep"], "setting_sources": []}


@reflected(criteria=[number])
async def answer(question, feedback, run):
    base = base_version(run)
    earlier = {} if base is None else {"resume": base.memo, "fork_session": True}
    prompt = question if base is None else feedback
    result = None
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(**options, **earlier)):
        if isinstance(message, ResultMessage):
            result = message
    tokens = result.usage or {}
    usage = TokenUsage(
        tokens.get("input_tokens", 0),
        tokens.get("output_tokens", 0),
        requests=result.num_turns,
        cost_usd=result.total_cost_usd,
    )
    if result.is_error or result.result is None:
        raise ModelError(f"Claude came to no answer: {result.subtype}.", usage=usage)
    return Draft(result.result, usage, memo=result.session_id)
