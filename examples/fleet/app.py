"""A fleet of one agent, which answers customers."""

from redraft import Agent, QualityCriterion
from redraft.fleet import Fleet, Limit

clerk = Agent(
    "openai:gpt-5-mini",
    name="clerk",
    criteria=[
        "It is friendly and names no prices.",
        QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 120}),
    ],
)
fleet = Fleet(agents=[clerk], limits=[Limit("openai:*", requests_per_minute=500, concurrency=50)])
