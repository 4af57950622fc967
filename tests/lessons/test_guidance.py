"""Guidance: rules and playbooks follow the status of their lesson."""

import asyncio

import pytest

from redraft import MemoryStore
from redraft.lessons.outcome import Outcome
from support.learning_agents import OTHER, SYSTEMIC, TASK, learning, run, writer
from support.lessons import DECISION

SUCCEEDED = Outcome(TASK, "success", "made", run_id="r1")
REPLY = SYSTEMIC | {"strategy": "Ask for the cursor.", "why_it_worked": "The API pages so."}


def test_rule_and_playbook_follow_an_edit_of_the_file(tmp_path):
    async def main():
        async with learning(tmp_path, model=writer(REPLY)) as lessons:
            waiting = await lessons.reflect_on(SUCCEEDED)
            path = tmp_path / "reflections" / f"{waiting.id}.md"
            path.write_text(path.read_text().replace("status: quarantined", "status: active"))
            await lessons.recall(OTHER)
            assert not (tmp_path / "reflections/agent/rules.md").exists()
            sources = [item.source for item in await lessons.recall(TASK)]
            assert sources == [
                waiting.id,
                "agent/rules.md",
                f"agent/playbooks/{waiting.id.partition('/')[2]}",
            ]
            before = path.read_text()
            retired = before.replace("status: active", "status: retired")
            await lessons.edit_file(waiting.id, retired, before=before)
            assert await lessons.recall(TASK) == []

    asyncio.run(main())


@pytest.mark.parametrize("edit", ["retired", "superseded", "deleted"])
def test_rule_and_playbook_are_not_used_without_their_lesson(tmp_path, edit):
    async def main():
        async with learning(tmp_path, model=writer(REPLY), trusted=True) as lessons:
            lesson = await lessons.reflect_on(SUCCEEDED)
            assert len(await lessons.recall(TASK)) == 3
            path = tmp_path / "reflections" / f"{lesson.id}.md"
            active = path.read_text()
            if edit == "deleted":
                path.unlink()
            else:
                path.write_text(active.replace("status: active", f"status: {edit}"))
            assert await lessons.recall(TASK) == []
            path.write_text(active)
            assert len(await lessons.recall(TASK)) == 3

    asyncio.run(main())


@pytest.mark.parametrize("stop", ["retire", "supersede"])
def test_a_lesson_that_is_approved_again_brings_its_rule_and_playbook_back(tmp_path, stop):
    async def main():
        async with learning(tmp_path, model=writer(REPLY), trusted=True) as lessons:
            other = await lessons.record(DECISION, OTHER)
            lesson = await lessons.reflect_on(SUCCEEDED)

            async def given():
                return {item.text for item in await lessons.recall(TASK) if item.source != other.id}

            before = await given()
            assert len(before) == 3
            for _ in range(2):  # stopping it again loses nothing
                if stop == "retire":
                    await lessons.retire(lesson.id, "no")
                else:
                    await lessons.supersede(lesson.id, other.id)
                assert await given() == set()
            await lessons.approve(lesson.id)
            assert await given() == before

    asyncio.run(main())


def test_rules_and_playbooks_of_another_agents_lessons_come_back_to_that_agent(tmp_path):
    async def main():
        store = MemoryStore()
        taught = []
        for agent in ("one", "two"):
            async with learning(
                tmp_path, agent=agent, store=store, model=writer(REPLY), trusted=True
            ) as lessons:
                taught.append((await lessons.reflect_on(SUCCEEDED)).id)
        assert len({one.partition("/")[2] for one in taught}) == 1  # of one name in two folders

        def files():
            rules = {path.parent.name: path.read_text().split() for path in tmp_path.rglob("rules.md")}
            return rules, {path.parts[-3] for path in tmp_path.rglob("playbooks/*.md")}

        before = files()
        assert before[0].keys() == before[1] == {"one", "two"}
        async with learning(tmp_path, agent="three", store=store) as lessons:
            kept = await lessons.record(DECISION, OTHER)
            for one in taught:
                await lessons.supersede(one, kept.id)
            for one in taught:
                await lessons.approve(one)
        assert files() == before

    asyncio.run(main())


def test_a_run_goes_on_without_unreadable_rules(tmp_path, caplog):
    async def main():
        async with learning(tmp_path, model=writer(SYSTEMIC), trusted=True) as lessons:
            await run(lessons, 0.1)
            rules = tmp_path / "reflections" / "agent" / "rules.md"
            rules.unlink()
            rules.symlink_to("/etc/passwd")
            result = await run(lessons, 1.0)
            assert [item.source.partition("/")[2] for item in result.advice] == [
                "2026-03-01-fetch-price-list-of-shop"
            ]
            assert result.diagnostics == {}
            assert "a link" in caplog.text
            assert [problem.id for problem in await lessons.problems()] == ["agent/rules.md"]

    asyncio.run(main())
