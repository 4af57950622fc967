"""The page on fleets: its code runs, in the order of the page."""

import asyncio
import sys

from redraft import ScriptedModel
from redraft.fleet import FleetWorker
from support.commands import redraft
from support.pages import Page

JUDGEMENT = {
    "criteria": {"It is friendly and names no prices.": {"reason": "It is.", "score": 0.9}},
    "issues": [],
    "suggestions": [],
    "confidence": 0.9,
}


def answer(request):
    return JUDGEMENT if request.role == "evaluation" else "Thank you very much for your order."


def test_the_page_runs(project, monkeypatch):
    for module in ("redraft.loop.agent", "redraft.loop.pattern"):
        monkeypatch.setattr(
            f"{module}.model_of",
            lambda given, *_, **__: ScriptedModel(answer) if isinstance(given, str | None) else given,
        )
    page = Page("docs/fleet.md")
    app, submitting, limits, budget, schedules, working, testing = page.blocks("python")
    (project / "app.py").write_text(app)
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    try:
        commands = page.commands()
        assert (
            redraft(
                "submit", "app:fleet", "clerk", "Thank the customer of order 17.", "--id", "order-17"
            ).exit_code
            == 0
        )
        assert 'redraft submit app:fleet clerk "Thank the customer of order 17." --id order-17' in commands
        assert "order-17" in redraft("fleet").stdout
        assert redraft("cancel", "order-17").exit_code == 0
        assert "--any-program" in redraft("worker", "--help").stdout
    finally:
        sys.modules.pop("app")
    names, _ = page.run(app)
    page.run(submitting, names)
    page.run(limits, names)
    page.run(budget, names)
    page.run(schedules, names)
    page.run(working, names)

    async def both():
        worker = FleetWorker(names["fleet"])
        running = asyncio.create_task(worker.run(jobs=1))
        await asyncio.wait_for(names["main"](), 60)
        await running
        await names["work"]()

    asyncio.run(both())
    page.run(testing, names)

    async def tested():
        handle = await names["test_fleet"].submit("tester", "Thank them.")
        await FleetWorker(names["test_fleet"]).run(until_idle=True)
        return await handle.result()

    assert asyncio.run(tested()).best_output == "Thank you."
