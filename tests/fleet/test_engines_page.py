"""The page on other engines, as far as it goes without them; `tests/engines` runs the recipes."""

import asyncio

import pytest

from redraft import ModelError, ScriptedModel
from support.pages import Page

RECIPES = Page("docs/engines.md").files("python")
JUDGEMENT = {
    "criteria": {"polite": {"reason": "It is.", "score": 0.9}},
    "issues": [],
    "suggestions": [],
    "confidence": 0.9,
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_python(name):
    compile(RECIPES[name], name, "exec")


@pytest.mark.usefixtures("project")
def test_an_attempt_that_failed_is_continued_by_the_next(monkeypatch):
    replies = iter(["Thank you.", ModelError("down", status=503), JUDGEMENT])

    async def answer(_request):
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    model = ScriptedModel(answer)
    for module in ("redraft.loop.agent", "redraft.loop.pattern"):
        monkeypatch.setattr(f"{module}.model_of", lambda *_, **__: model)
    names, _ = Page("docs/engines.md").run(RECIPES["app.py"])
    clerk, answer_of = names["clerk"], names["answer_of"]

    async def attempt():
        return answer_of(await clerk.run("Thank the customer of order 17.", run_id="order-17"))

    with pytest.raises(ModelError, match="down"):
        asyncio.run(attempt())
    assert asyncio.run(attempt()) == "Thank you."
    assert len(model.requests) == 3
    assert asyncio.run(attempt()) == "Thank you."
    assert len(model.requests) == 3
