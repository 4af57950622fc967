"""The dashboard's pages of evaluations."""

import asyncio
import json
from itertools import count

from redraft import (
    Agent,
    EvalCase,
    Evaluation,
    MemoryStore,
    ReflectionPattern,
    ScriptedModel,
)
from redraft.types import PlainTask
from support.dashboards import HOSTILE, Seen, pages
from support.eval_cases import GOOD

LIST = "/evaluations"


def evaluated(store, first="It is bad, all of it.", revised="It is good, all of it.", count=6, **fields):
    def answer(request):
        return first if request.role == "generation" else revised

    cases = [EvalCase(f"case-{n}", PlainTask(f"Task {n}."), (GOOD,)) for n in range(count)]
    agent = Agent(
        ScriptedModel(answer), pattern=ReflectionPattern(1), keep=False, name=fields.pop("name", "w")
    )
    return asyncio.run(Evaluation(cases, agent, store=store, **fields).run())


def read(store, path):
    answer = pages(store).get(path)
    assert answer.status_code == 200, answer.text
    return answer


def test_the_list_shows_the_result_of_each_evaluation():
    store = MemoryStore()
    assert "Nothing has been evaluated yet" in read(store, LIST).text
    report = evaluated(store)
    words = Seen(read(store, LIST).text).words
    assert "w against w (first draft): better, +100.0 points" in words
    assert "✓ finished 6 1 just now" in words
    (row,) = read(store, f"{LIST}.json").json()["evaluations"]
    assert (row["run_id"], row["state"]) == (report.run_id, "finished")
    assert 'href="/judges"' in read(store, LIST).text


def test_repeated_tries_show_how_often_all_pass_and_how_often_two_differ():
    drafts = count()
    store = MemoryStore()
    cases = [EvalCase(f"case-{n}", PlainTask(f"Task {n}."), (GOOD,)) for n in range(6)]
    answer = Evaluation(
        cases, lambda _: "bad" if next(drafts) % 5 == 0 else "good", n=2, concurrency=1, store=store
    )
    report = asyncio.run(answer.run())
    page = Seen(read(store, f"{LIST}/{report.run_id}").text).words
    assert "all 2 tries (95 %)" in page
    assert "flips" in page
    share = f"{100 * report.figures[0].flips:.0f} %"
    assert f"Two tries of a case by <lambda> end differently in {share}." in page
    assert read(store, f"{LIST}/{report.run_id}.json").json()["figures"][0]["flips"] > 0


def test_an_evaluation_shows_arms_and_what_flipped():
    store = MemoryStore()
    report = evaluated(store, count=12)
    seen = Seen(read(store, f"{LIST}/{report.run_id}").text)
    assert "w against w (first draft): better, +100.0 points" in seen.words
    assert "12100 % (" in seen.words  # cells of one row
    assert (
        "▲ gained case-0 w (first draft): ✗ not passed, 0.00, its run Found no match of 'good' "
        "w: ✓ passed, 1.00, its run" in seen.words
    )
    assert "It is badgood, all of it." in seen.words  # the words that differ
    assert "2 more cases flipped." in seen.words
    assert f"/runs/{report.tries[0].run_id}" in seen.links
    document = read(store, f"{LIST}/{report.run_id}.json").json()
    assert [flip["case"] for flip in document["flips"][0]["cases"]][:2] == ["case-0", "case-1"]
    assert pages(store).get(f"{LIST}/eval-unknown").status_code == 404


def test_a_regression_and_a_spent_budget_are_marked():
    store = MemoryStore()
    same = evaluated(store, first="good", revised="good", name="same")
    assert "No case flipped." in Seen(read(store, f"{LIST}/{same.run_id}").text).words
    part = evaluated(store, concurrency=1, budget_tokens=140)
    seen = Seen(read(store, f"{LIST}/{part.run_id}").text)
    assert "unknown, 1 case to compare; at least 6 are needed." in seen.words
    assert "The budget was spent after 1 of 6 tries." in seen.words
    assert "budget spent 6 1 just now" in Seen(read(store, LIST).text).words


def test_hostile_texts_stay_texts():
    store = MemoryStore()
    for text in HOSTILE:
        answer = text.replace("\ud83d", "")
        report = evaluated(
            store, first=answer or "x", revised=f"good {answer}", count=1, name=answer.strip() or "x"
        )
        for path in (LIST, f"{LIST}/{report.run_id}"):
            seen = Seen(read(store, path).text)
            assert not {"script", "img", "style"} & (seen.tags - {"script", "style"})
            assert "onerror" not in dict(seen.attributes)
            assert "onmouseover" not in dict(seen.attributes)
        json.loads(read(store, f"{LIST}/{report.run_id}.json").text)
