"""A function around an agent of smolagents.

An agent's memory is not JSON, so it stays in this process, in `memories`, until you delete it; another
process that resumes the run starts a new conversation. The `token_usage` of an agent's result covers its
whole memory, so the new steps are added up instead.
"""

from shop import base_version, number, stock
from smolagents import OpenAIModel, ToolCallingAgent, tool

from redraft import Draft, TokenUsage, reflected

model = OpenAIModel("gpt-5-mini")
memories = {}


@reflected(criteria=[number])
def answer(question, feedback, run):
    agent = ToolCallingAgent([tool(stock)], model, verbosity_level=0)
    base = base_version(run)
    steps = [] if base is None else memories.get(base.memo, [])
    agent.memory.steps = [*steps]
    prompt = question if base is None else feedback if steps else f"{question}\n\n{feedback}"
    output, name = agent.run(prompt, reset=not steps), f"{run.run_id} {run.iteration}"
    usage = TokenUsage()
    for step in agent.memory.steps[len(steps) :]:
        if tokens := getattr(step, "token_usage", None):
            usage += TokenUsage(tokens.input_tokens, tokens.output_tokens, requests=1)
    memories[name] = [*agent.memory.steps]
    return Draft(output, usage, memo=name)
