"""Optimization: what it tunes, what it never sees, when it stops, and that it pays for nothing twice."""

import asyncio
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from redraft import (
    Agent,
    ConfigError,
    EvalCase,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    Task,
    TokenUsage,
)
from redraft.errors import MissingExtraError
from redraft.evals import Evaluations, Optimization
from redraft.evals.optimize import optimization, split_by_task
from redraft.notes import TaskIdentity, TaskReflection
from redraft.notes.store import project_notes
from redraft.protocols import ChatReply
from redraft.stores.location import close_project_store
from redraft.types import PlainTask
from support.commands import redraft

DIGITS = QualityCriterion(
    "digits", "Mentions the quantity.", evaluator="regex", evaluator_config={"pattern": r"\d"}
)
CALL = TokenUsage(90, 10, requests=1, cost_usd=0.01)
BETTER = "Here you are.\n```\nYou are a clerk. Use digits.\n```\n"


def cases(count=20, **fields):
    return [
        EvalCase(f"case-{n}", PlainTask(f"Order {'I' * n} teas."), (DIGITS,), **fields) for n in range(count)
    ]


class Clerk:
    """A model that obeys its prompts: it writes digits if they say so. `proposal` is what it proposes."""

    def __init__(self, proposal=BETTER, needle="Use digits"):
        self.requests, self.proposal, self.needle = [], proposal, needle

    async def __call__(self, request):
        await asyncio.sleep(0)
        self.requests.append(request)
        if request.role == "reflection":
            return ChatReply(self.proposal, usage=CALL)
        text = "\n".join(message.content for message in request.messages)
        return ChatReply("2 teas" if self.needle in text else "two teas", usage=CALL)

    def said(self, role):
        """Return what was sent in calls of a role."""
        return ["\n".join(m.content for m in one.messages) for one in self.requests if one.role == role]

    def agent(self, **options):
        pattern = options.pop("pattern", ReflectionPattern(0))
        return Agent(
            self, system_prompt="You are a clerk.", pattern=pattern, keep=False, name="clerk", **options
        )


def test_a_better_prompt_is_found_and_proved_on_cases_that_the_search_never_saw():
    clerk, store = Clerk(), MemoryStore()
    report = Optimization(cases(), clerk.agent(), store=store).run_sync()
    assert report.accepted
    assert report.sentence().startswith("Accepted: tuned against present: better, +100.0 points (95 %: ")
    assert report.stopped == "All validation cases pass."
    assert report.after["system_prompt"] == "You are a clerk. Use digits."
    assert report.diff() == (
        "--- a/system_prompt\n+++ b/system_prompt\n@@ -1 +1 @@\n"
        "-You are a clerk.\n+You are a clerk. Use digits.\n"
    )
    split = report.split
    assert [len(part) for part in (split.train, split.validation, split.test)] == [6, 6, 8]
    (proposal,) = clerk.said("reflection")
    seen = [case.id for case in cases() if f" {case.task.description.split()[1]} teas." in proposal]
    assert set(seen) <= {case.id for case in report.split.train}
    assert len(seen) == 3
    assert "It does not match" in proposal or "\\d" in proposal
    # Each text is tried at 6 validation cases and 3 of train, then at the 8 of the test part.
    assert (report.tries, report.proposals) == (6 + 3 + 3 + 6, 1)
    assert report.usage == TokenUsage(90 * 35, 350, requests=35, cost_usd=pytest.approx(0.35))
    found = asyncio.run(Evaluations(store).report(f"{report.run_id}-test"))
    assert found.differences[0].sentence() in report.sentence()
    document = json.loads(json.dumps(report.document()))
    assert document["accepted"]
    assert document["test"]["figures"][1]["mean_passed"] == 0
    assert asyncio.run(optimization(store)).accepted


def test_tasks_are_split_as_wholes_and_the_same_each_time():
    some = [*cases(), *(EvalCase(f"again-{n}", PlainTask(f"Order {'I' * n} teas.")) for n in range(20))]
    split = split_by_task(some)
    assert split == split_by_task(list(reversed(some))) or {one.id for one in split.test} == {
        one.id for one in split_by_task(list(reversed(some))).test
    }
    parts = [{case.task.description for case in part} for part in (split.train, split.validation, split.test)]
    assert [len(part) for part in parts] == [6, 6, 8]
    assert len(set.union(*parts)) == 20
    assert split_by_task(some, seed=1).test != split.test
    with pytest.raises(ConfigError, match="11 tasks; training, validation and test need at least 12"):
        split_by_task(cases(11))


def test_at_the_ceiling_nothing_is_proposed_and_nothing_tested():
    clerk = Clerk(needle="clerk")
    report = Optimization(cases(), clerk.agent(), store=MemoryStore()).run_sync()
    assert (report.accepted, report.test, report.proposals, report.diff()) == (False, None, 0, "")
    assert report.sentence() == (
        "Nothing better than the current texts was found. All validation cases pass."
    )
    assert len(clerk.requests) == 6


def test_a_text_that_helps_only_in_the_search_is_not_accepted():
    clerk = Clerk()
    agent, some = clerk.agent(), cases()
    hidden = {case.task.description for case in split_by_task(some).test}

    async def model(request):
        reply = await clerk(request)
        if request.role != "reflection" and any(one in request.messages[-1].content for one in hidden):
            return ChatReply("two teas", usage=CALL)
        return reply

    agent = Agent(model, system_prompt="You are a clerk.", pattern=ReflectionPattern(0), keep=False)
    report = Optimization(some, agent, store=MemoryStore()).run_sync()
    assert not report.accepted
    assert report.sentence().startswith(
        "Not accepted: tuned against present: not distinguishable, +0.0 points"
    )
    assert report.diff()


def test_descriptions_of_criteria_are_tuned_and_never_grade():
    """The agent reflects by criteria of the cases; what grades is hidden, and stays as it is."""
    clerk = Clerk("```\nUse digits.\n```")
    some = cases(hidden=(DIGITS,))
    report = Optimization(
        some, clerk.agent(), parts=["criteria"], store=MemoryStore(), writer=clerk
    ).run_sync()
    assert report.before == {"criterion: digits": "Mentions the quantity."}
    assert report.after == {"criterion: digits": "Use digits."}
    assert report.accepted
    own = clerk.agent(pattern=ReflectionPattern(0, [DIGITS]))
    plain = [EvalCase(case.id, case.task) for case in some]
    assert Optimization(plain, own, parts=["criteria"], store=MemoryStore()).run_sync().accepted
    assert own.pattern.quality_criteria == [DIGITS]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    yield tmp_path
    asyncio.run(close_project_store())


@pytest.mark.parametrize("is_noted", [False, True])
def test_the_note_on_a_task_is_tuned(project, is_noted):
    clerk = Clerk("```\nUse digits. {order}\n```")
    task = Task("Note this order: {order}", "One line.", model=clerk)
    if is_noted:
        note = TaskReflection("Note the order {order} well.", "A line.", suggestions=("Be brief.",))
        asyncio.run(project_notes().store(TaskIdentity.of(task), note))
    some = [
        EvalCase(f"case-{n}", PlainTask(f"Order {n}"), hidden=(DIGITS_ONLY,), inputs={"order": "I" * (n + 1)})
        for n in range(20)
    ]
    report = Optimization(some, task).run_sync()
    assert report.accepted, report.sentence()
    first = "Note the order {order} well." if is_noted else "Note this order: {order}"
    assert report.before["note: instructions"] == first
    assert "Use digits. {order}" in report.after.values()
    assert any("Use digits. III" in said for said in clerk.said("generation"))
    assert any("Be brief." in said for said in clerk.said("generation")) == is_noted


DIGITS_ONLY = QualityCriterion("right", evaluator="regex", evaluator_config={"pattern": r"^2"})


def test_interrupted_anywhere_it_pays_for_nothing_twice():
    whole = Clerk()
    expected = Optimization(cases(), whole.agent(), store=MemoryStore()).run_sync()
    store, calls = MemoryStore(), []

    class Interrupted(Clerk):
        async def __call__(self, request):
            if len(self.requests) == 8:
                running.cancel()
                await asyncio.sleep(10)
            calls.append(request)
            return await super().__call__(request)

    async def run():
        nonlocal running
        running = asyncio.ensure_future(
            Optimization(cases(), Interrupted().agent(), store=store, run_id="optimize-1", at_once=1).run()
        )
        return await running

    running = None
    for _ in range(10):
        try:
            report = asyncio.run(run())
            break
        except asyncio.CancelledError:
            continue
    assert report.after == expected.after
    assert report.usage == expected.usage
    assert len(calls) == len(whole.requests)
    with pytest.raises(ConfigError, match="'optimize-1' was of other cases, texts or options"):
        Optimization(cases(21), whole.agent(), store=store, run_id="optimize-1").run_sync()


def test_budgets_keep_what_the_test_takes():
    useless = Clerk("```\nBe kind.\n```")
    report = Optimization(cases(), useless.agent(), store=MemoryStore(), budget_tokens=4000).run_sync()
    assert report.stopped == "The rest of a budget is reserved for the test."
    assert report.usage.total_tokens <= 4000 - 1600
    assert not report.is_out_of_budget
    report = Optimization(cases(), useless.agent(), store=MemoryStore(), budget_tries=30).run_sync()
    assert report.stopped == "The search ended after 30 evaluations."
    assert report.tries <= 36
    report = Optimization(cases(), Clerk().agent(), store=MemoryStore(), budget_tokens=300).run_sync()
    assert report.is_out_of_budget
    assert report.sentence().endswith("A budget is too small for a search and a test.")
    calls = Clerk().agent()
    report = Optimization(cases(), calls, store=MemoryStore(), budget_tokens=300, at_once=1).run_sync()
    assert report.is_out_of_budget
    assert report.sentence().endswith("A budget was spent before the search ended.")
    assert report.usage.total_tokens == 300


def test_a_provider_that_fails_ends_the_search_and_it_goes_on_later():
    store, clerk = MemoryStore(), Clerk()

    async def failing(request):
        raise ModelError("The provider is down.", status=400)

    for agent in (failing, clerk):
        optimization = Optimization(
            cases(), Agent(agent, system_prompt="You are a clerk.", pattern=ReflectionPattern(0), keep=False),
            store=store, run_id="optimize-2", writer=failing,
        )  # fmt: skip
        with pytest.raises(ModelError, match="The provider is down"):
            optimization.run_sync()
    assert len(clerk.requests) == 9
    report = Optimization(cases(), clerk.agent(), store=store, run_id="optimize-2").run_sync()
    assert report.accepted
    assert len(clerk.said("generation")) == 34


WRONG = {
    "function": ((cases(), lambda prompt: prompt), {}, "Only an Agent or a Task has texts"),
    "part": ((cases(), Clerk().agent()), {"parts": ["prompt"]}, "Unknown part 'prompt' to tune"),
    "note": ((cases(), Clerk().agent()), {"parts": ["note"]}, "has no note that can be tuned"),
    "few": ((cases(5), Clerk().agent()), {}, "only 5 tasks"),
    "ungraded": (([replace(one, criteria=()) for one in cases()], Clerk().agent()), {}, "Nothing grades"),
    "twice": (([*cases(), *cases()], Clerk().agent()), {}, "the same id"),
    "budget": ((cases(), Clerk().agent()), {"budget_tries": 0}, "budget_tries"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "options", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused_before_a_call(given, options, message):
    with pytest.raises(ConfigError, match=message):
        Optimization(*given, **options, store=MemoryStore())


def test_without_the_library_the_command_to_install_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gepa", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'redraft\[optimize\]'"):
        Optimization(cases(), Clerk().agent(), store=MemoryStore())


def test_the_command_prints_a_diff_to_review(project, monkeypatch):
    clerk = Clerk()
    app = SimpleNamespace(clerk=clerk.agent(), right=Clerk(needle="clerk").agent(), function=str.upper)
    monkeypatch.setitem(sys.modules, "an_app", app)
    (project / "cases.yaml").write_text(
        "criteria:\n  - {name: digits, evaluator: regex, config: {pattern: '[0-9]'}}\ncases:\n"
        + "".join(f"  - task: Order {'I' * n} teas.\n    id: case-{n}\n" for n in range(20)),
        "utf-8",
    )
    done = redraft("optimize", "cases.yaml", "-a", "an_app:clerk", "--parts", "system_prompt")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("-You are a clerk.\n+You are a clerk. Use digits.\n")
    assert "Accepted: tuned against present: better" in done.stderr
    assert app.clerk.system_prompt == "You are a clerk."
    paid = len(clerk.requests)
    again = redraft(
        "optimize", "cases.yaml", "-a", "an_app:clerk", "--parts", "system_prompt", "--resume", "last",
        "-o", "out/clerk.diff", "--json",
    )  # fmt: skip
    assert again.exit_code == 0, again.stderr
    assert len(clerk.requests) == paid
    assert (project / "out" / "clerk.diff").read_text("utf-8") == done.stdout
    assert json.loads(again.stdout)["accepted"]
    assert redraft("eval", "show").exit_code == 0
    nothing = redraft("optimize", "cases.yaml", "-a", "an_app:right")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert "Nothing better than the current texts was found." in nothing.stderr
    spent = redraft("optimize", "cases.yaml", "-a", "an_app:clerk", "--budget-tokens", "300")
    assert spent.exit_code == 3
    assert redraft("optimize", "cases.yaml", "-a", "an_app:function").exit_code == 2
