import asyncio

import pytest

from redraft import Agent, ChatReply, ConfigError, QualityCriterion, ReflectionPattern
from redraft.stores.memory import MemoryStore

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


def not_async(_request):
    return ChatReply("I like tea.")


async def only_a_text(_request):
    return "I like tea."


@pytest.mark.parametrize("model", [not_async, only_a_text])
@pytest.mark.parametrize("kept", [False, True])
def test_what_is_no_model_is_refused_by_name(model, kept):
    agent = Agent(
        model,
        pattern=ReflectionPattern(quality_criteria=[TEA]),
        keep=MemoryStore() if kept else False,
    )
    with pytest.raises(ConfigError, match=rf"{model.__name__}.* returned .*I like tea.*async function"):
        asyncio.run(agent.run("Write."))
