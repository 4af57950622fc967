"""The recipes for other engines, as far as they go without them; `tests/engines` runs them."""

import asyncio
import runpy

import pytest

from redraft import ModelError, ScriptedModel
from support.pages import ROOT, Page

RECIPES = {path.name: path for path in (ROOT / "examples" / "engines").glob("*.py")}
JUDGEMENT = {
    "criteria": {"It is friendly and names no prices.": {"reason": "It is.", "score": 0.9}},
    "issues": [],
    "suggestions": [],
    "confidence": 0.9,
}


def test_the_page_links_each_recipe():
    linked = {link.resolve() for link in Page("docs/fleet.md").links()}
    assert len(RECIPES) > 4
    assert [name for name, path in RECIPES.items() if path not in linked] == []


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_python(name):
    compile(RECIPES[name].read_text("utf-8"), name, "exec")


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
    names = runpy.run_path(RECIPES["app.py"])
    clerk, answer_of = names["clerk"], names["answer_of"]

    async def attempt():
        return answer_of(await clerk.run("Thank the customer of order 17.", run_id="order-17"))

    with pytest.raises(ModelError, match="down"):
        asyncio.run(attempt())
    assert asyncio.run(attempt()) == "Thank you."
    assert len(model.requests) == 3
    assert asyncio.run(attempt()) == "Thank you."
    assert len(model.requests) == 3
