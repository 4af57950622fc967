"""A function around a module of DSPy, which DSPy can optimize like any other.

A module keeps no conversation, so the steps of earlier versions go into an input, where the model reads what
its tools returned. Calls that DSPy answers from its cache use no tokens.
"""

import json

import dspy
from shop import base_version, number, stock

from redraft import Draft, TokenUsage, reflected

lm = dspy.LM("openai/gpt-5-mini")
shop = dspy.ReAct(
    dspy.Signature(
        "question, earlier_steps, critique -> answer",
        "Answer the customer. Results of earlier steps still hold.",
    ),
    tools=[stock],
)


@reflected(criteria=[number])
async def answer(question, feedback, run):
    base = base_version(run)
    steps = [] if base is None else base.memo
    with dspy.context(lm=lm), dspy.track_usage() as tracker:
        prediction = await shop.acall(question=question, earlier_steps=json.dumps(steps), critique=feedback)
    usage = TokenUsage()
    for calls in tracker.usage_data.values():
        for call in calls:
            usage += TokenUsage(call["prompt_tokens"], call["completion_tokens"], requests=1)
    memo = [*steps, {**prediction.trajectory, "answer": prediction.answer}]
    return Draft(prediction.answer, usage, memo=memo)
