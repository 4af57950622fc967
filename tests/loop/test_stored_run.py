import asyncio
import logging
import stat

import pytest

from redraft import (
    Agent,
    ConfigError,
    Draft,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    TokenUsage,
    reflect,
    reflected,
)
from redraft.errors import ChangedRunError, ReflectionFailedError, StoreError, UnfinishedError
from redraft.events import RunFinished, VersionEvaluated
from redraft.loop.cli import outcome
from redraft.loop.journal import STEP, Journalled
from redraft.loop.runs import Runs
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.stores.sqlite import MemoryStore
from redraft.types import Advice

LENGTH = QualityCriterion(
    "long", evaluator="function", evaluator_config={"function": lambda text: len(text) / 10}
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of its own, with the default home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    yield tmp_path
    store = project_store()
    asyncio.run(store.aclose())


def writer(keep=True, **options):
    @reflected(criteria=[LENGTH], max_iterations=2, keep=keep, **options)
    async def write(topic: str, feedback: str = "") -> str:
        return f"{topic}{topic}" if feedback else topic

    return write


@pytest.mark.parametrize("keep", ["redraft.db", None, {}])
def test_keep_must_be_a_store(keep):
    with pytest.raises(ConfigError, match="keep must be True, False or a Store"):
        asyncio.run(writer(keep).run("sky"))


def test_a_run_is_stored_in_the_project(project):
    result = asyncio.run(writer().run("sky"))
    run = asyncio.run(Runs().get())
    assert run.run_id == result.run_id
    assert (run.status, run.origin.surface) == ("finished", "reflected")
    assert run.origin.name.endswith("write")
    assert [version.output for version in run.versions] == ["sky", "skysky", "skysky"]
    assert (run.best, run.final, run.revisions, run.reason) == (2, 3, 2, result.convergence_reason)
    assert run.result().history.versions == result.history.versions
    assert run.options["criteria"][0]["name"] == "long"
    assert run.options["max_iterations"] == 2
    assert run.diagnostics == result.diagnostics


def test_the_database_is_private_and_ignored_by_git(project):
    asyncio.run(writer().run("sky"))
    home = project / ".redraft"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir() if file.name != ".gitignore"} == {
        0o600
    }
    assert "*" in (home / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("way", ["keep", "home"])
def test_keeping_can_be_switched_off(project, monkeypatch, way):
    if way == "home":
        monkeypatch.setenv("REDRAFT_HOME", "")
    asyncio.run(writer(keep=way != "keep").run("sky"))
    assert not (project / ".redraft").exists()
    monkeypatch.delenv("REDRAFT_HOME", raising=False)


@pytest.mark.parametrize(("keep", "why"), [(False, "leave keep=True"), (True, "REDRAFT_HOME. is empty")])
def test_an_id_without_a_store_is_an_error(project, monkeypatch, keep, why):
    with monkeypatch.context() as changed:
        changed.setenv("REDRAFT_HOME", "")
        with pytest.raises(ConfigError, match=f"'x' is not stored, so it can't be resumed: .*{why}"):
            asyncio.run(writer(keep).run_as("x", "sky"))


def test_projects_are_separate(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / "home"))
    stores = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        asyncio.run(writer().run_as("nightly", name))
        stores.append(project_store())
        runs = asyncio.run(Runs().find())
        assert [run.task.description.rpartition(" ")[2] for run in runs] == [name]
    for store in stores:
        asyncio.run(store.aclose())


def test_a_reflected_function_is_replayed():
    async def main():
        store, calls = MemoryStore(), []

        @reflected(criteria=[LENGTH], max_iterations=1, keep=store)
        async def write(topic: str, feedback: str = "") -> str:
            calls.append(topic)
            return topic

        first = await write.run_as("x", "sky")
        again = await write.run_as("x", "sky")
        assert calls == ["sky", "sky"]
        assert again.history.versions == first.history.versions
        assert write.run_as_sync("x", "sky").history.versions == first.history.versions
        with pytest.raises(ChangedRunError, match="another task"):
            await write.run_as("x", "sea")

    asyncio.run(main())


def test_a_replayed_run_emits_its_events_again():
    async def main():
        store, heard = MemoryStore(), []
        pattern = ReflectionPattern(max_iterations=0, on_event=heard.append)
        for _ in range(2):
            heard.clear()
            await reflect("T", generate=lambda p: "x", evaluate=lambda o: 0.5, pattern=pattern,
                          step=Journalled(store, "r"))  # fmt: skip
        assert [type(event).__name__ for event in heard] == ["RunStarted", "VersionEvaluated", "RunFinished"]
        assert isinstance(heard[1], VersionEvaluated)
        assert heard[1].is_best
        assert isinstance(heard[2], RunFinished)

    asyncio.run(main())


class Notes:
    """An advisor that has one thing to say."""

    async def recall(self, task):
        return [Advice("Be brief.", "lesson 7", "same task type", 3)]

    async def observe(self, result):
        pass


def test_the_record_has_prompts_replies_advice_and_usage():
    async def main():
        store = MemoryStore()
        model = ScriptedModel(["no", "yes"])
        pattern = ReflectionPattern(
            max_iterations=1,
            quality_criteria=[
                QualityCriterion("yes", evaluator="regex", evaluator_config={"pattern": "yes"}),
            ],
            advisors=[Notes()],
        )
        await run_agent(model, pattern, store)
        run = await Runs(store).get()
        assert run.advice == (Advice("Be brief.", "lesson 7", "same task type", 3),)
        assert run.result().task == run.task
        assert set(run.usage_by_role) == {"generation", "revision", "evaluation"}
        calls = [step for step in await Runs(store).steps(run.run_id) if step.is_inner]
        assert [call.result["text"] for call in calls] == ["no", "yes"]
        assert "Be brief." in calls[0].given[0]["messages"][-1]["content"]
        assert calls[0].seconds >= 0

    asyncio.run(main())


async def run_agent(model, pattern, store):
    from redraft.loop.agent import Agent

    return await Agent(model, pattern=pattern).run("Say yes.", step=Journalled(store, "agent run"))


def test_only_the_first_best_and_last_version_are_stored_on_request():
    async def main():
        store, scores = MemoryStore(), iter([0.1, 0.5, 0.2, 0.3])
        drafts = iter(range(1, 9))
        pattern = ReflectionPattern(
            max_iterations=3, preserve_all_versions=False, until=lambda _: None, diversify=False
        )
        await reflect(
            "T",
            generate=lambda p: f"draft {next(drafts)}",
            evaluate=lambda o: next(scores),
            pattern=pattern,
            step=Journalled(store, "r"),
        )
        run = await Runs(store).get("r")
        assert [version.iteration for version in run.versions] == [1, 2, 4]
        texts = [step.result["output"] for step in await Runs(store).steps("r") if step.name != "evaluate"]
        assert texts == ["draft 1", "draft 2", "draft 4"]

    asyncio.run(main())


def test_a_run_that_raises_is_stored_with_its_versions():
    async def main():
        store = MemoryStore()

        def revise(output, evaluation):
            raise ModelError("gone")

        pattern = ReflectionPattern(on_failure="raise")
        with pytest.raises(ReflectionFailedError):
            await reflect("T", generate=lambda p: "x", evaluate=lambda o: 0.1, revise=revise, pattern=pattern,
                          step=Journalled(store, "r"))  # fmt: skip
        run = await Runs(store).get()
        assert (run.status, run.error) == ("failed", "ModelError: gone")
        assert len(run.versions) == 1

    asyncio.run(main())


def test_a_run_without_any_version_is_stored_with_its_error():
    async def main():
        store = MemoryStore()

        def generate(prompt):
            raise KeyError(prompt)

        with pytest.raises(KeyError):
            await reflect("T", generate=generate, evaluate=lambda o: 0.1, step=Journalled(store, "r"))
        run = await Runs(store).get()
        assert (run.status, run.error, run.versions) == ("failed", "KeyError: 'T'", ())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "reason", "detail"),
    [
        (
            {"budget_tokens": 1},
            "token_budget",
            (
                "0 of 1 tokens were used (budget_tokens). What was left was too little for the next call: it "
                "takes about 26 tokens, and 1 are left. No version was made."
            ),
        ),
        ({"budget_seconds": 1e-6}, "time_budget", None),
    ],
)
def test_a_budget_spent_before_the_first_version_is_the_reason(options, reason, detail):
    store = MemoryStore()
    pattern = ReflectionPattern(quality_criteria=[LENGTH], **options)
    agent = Agent(ScriptedModel(["a draft"]), pattern=pattern, keep=store)
    with pytest.raises(UnfinishedError):
        agent.run_sync("Write.")
    run = asyncio.run(Runs(store).get())
    assert (run.status, run.reason, run.versions) == ("failed", reason, ())
    assert str(outcome(run)) == reason
    stored = asyncio.run(Runs(store).stored(run.run_id))
    assert stored.why.rule == reason
    assert detail is None or stored.why.detail == detail
    assert [one.run_id for one in asyncio.run(Runs(store).find(reason=reason))] == [run.run_id]


def test_a_run_whose_budget_was_too_small_is_resumed_with_a_larger_one():
    store = MemoryStore()

    def run(tokens):
        pattern = ReflectionPattern(quality_criteria=[LENGTH], budget_tokens=tokens)
        return Agent(ScriptedModel(["long draft"]), pattern=pattern, keep=store).run_sync(
            "Write.", run_id="r"
        )

    with pytest.raises(UnfinishedError):
        run(1)
    assert run(100_000).success
    assert asyncio.run(Runs(store).get("r")).reason == "quality_met"


def stopped_by_its_budget(store, tokens, **options):
    """Make the call of a run whose second draft no longer fits into the budget."""
    pattern = ReflectionPattern(quality_criteria=[LENGTH], budget_tokens=tokens, **options)
    return Agent(ScriptedModel(["a draft"] * 9), pattern=pattern, keep=store).run_sync("Write.", run_id="r")


def test_a_run_stopped_by_its_budget_has_the_same_summary_when_replayed():
    store = MemoryStore()
    first = stopped_by_its_budget(store, 75)
    assert first.convergence_reason == "token_budget"
    assert first.error is not None
    again = stopped_by_its_budget(store, 75)
    assert again.summary() == first.summary()
    assert again._repr_html_() == first._repr_html_()


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ({"budget_tokens": 5_000}, "budget_tokens=5000 has no effect"),
        ({"max_iterations": 5}, "max_iterations=5 has no effect"),
        ({"quality_threshold": 0.5, "judge_samples": 3}, "=0.5 and judge_samples=3 have no effect"),
        ({"reflection_prompt": "Judge {output}."}, "reflection_prompt='Judge {output}.' has no effect"),
    ],
)
@pytest.mark.parametrize("budget", [75, None])
def test_other_options_for_a_run_that_has_ended_are_not_ignored_silently(options, ignored, budget, caplog):
    store = MemoryStore()

    def call(budget_tokens=budget, **options):
        pattern = ReflectionPattern(quality_criteria=[LENGTH], budget_tokens=budget_tokens, **options)
        agent = Agent(ScriptedModel(["a draft"] * 9), pattern=pattern, keep=store)
        return agent.run_sync("Write.", run_id="r")

    first = call()
    caplog.clear()
    call()
    assert not caplog.records
    again = call(**options)
    assert again.convergence_reason == first.convergence_reason
    [warning] = caplog.messages
    assert ignored in warning
    assert "use a new run_id" in warning


def words(number):
    return QualityCriterion("length", evaluator="words", evaluator_config={"at_most": number})


def local_function():
    return QualityCriterion("own", evaluator="function", evaluator_config={"function": lambda output: True})


@pytest.mark.parametrize(
    ("before", "now", "warns"),
    [
        ([words(5)], [words(5)], False),
        ([words(5)], [words(2)], True),
        ([words(5)], [words(5), LENGTH], True),
        ([local_function()], [local_function()], False),
    ],
)
def test_other_criteria_for_a_stored_run_are_not_ignored_silently(before, now, warns, caplog):
    store = MemoryStore()
    for criteria in (before, now):
        pattern = ReflectionPattern(quality_criteria=criteria, max_iterations=0)
        agent = Agent(ScriptedModel(["one two three"]), pattern=pattern, keep=store)
        result = agent.run_sync("T", run_id="r")
    assert result.success, "the stored result is returned"
    assert ["judged by other criteria" in message for message in caplog.messages] == [True] * warns


def test_a_cancelled_run_is_stored_and_resumes():
    async def main():
        store, calls = MemoryStore(), []

        async def generate(prompt):
            calls.append("generate")
            return "x"

        async def evaluate(output):
            calls.append("evaluate")
            await asyncio.sleep(30 if len(calls) == 2 else 0)
            return True

        def start():
            return asyncio.ensure_future(
                reflect("T", generate=generate, evaluate=evaluate, step=Journalled(store, "r"))
            )

        run = start()
        await asyncio.sleep(0.05)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        kept = await Runs(store).get()
        assert (kept.status, [version.output for version in kept.versions]) == ("cancelled", ["x"])
        assert (await start()).success
        assert calls == ["generate", "evaluate", "evaluate"]

    asyncio.run(main())


def test_a_run_inside_a_step_is_found_again_by_its_parent():
    async def main():
        store, calls = MemoryStore(), []
        inner = writer()

        async def generate(prompt):
            calls.append((await inner.run(prompt)).run_id)
            if len(calls) == 1:
                raise BaseException("killed")  # noqa: TRY002 (what no one catches)
            return "x"

        def start():
            return reflect("sky", generate=generate, evaluate=lambda o: True, step=Journalled(store, "outer"))

        with pytest.raises(BaseException, match="killed"):
            await start()
        await start()
        assert calls[0] == calls[1]
        assert calls[0].startswith("outer.")
        runs = Runs(store)
        assert [run.run_id for run in await runs.find()] == ["outer"]
        assert {run.parent for run in await runs.find(inner=True)} == {"", "outer"}

    asyncio.run(main())


def test_a_running_run_shows_its_versions_so_far():
    async def main():
        store, seen = MemoryStore(), []

        async def evaluate(output):
            seen.append(await Runs(store).get("last"))
            return len(seen) / 10

        async def generate(prompt):
            return Draft(f"draft {len(seen)}", TokenUsage(1, 1, requests=1))

        await reflect("T", generate=generate, evaluate=evaluate, step=Journalled(store, "r"),
                      pattern=ReflectionPattern(max_iterations=2, until=lambda _: None))  # fmt: skip
        assert [[v.output for v in run.versions] for run in seen] == [[], ["draft 0"], ["draft 0", "draft 1"]]
        assert [run.status for run in seen] == ["running"] * 3
        assert (seen[2].best, seen[2].final, seen[2].usage.requests) == (2, 2, 3)
        assert not seen[2].process.has_exited()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "found"),
    [("last", "b-2"), ("a-1", "a-1"), ("a-", "a-1"), ("b-", "Several runs match"), ("c", "no run 'c'")],
)
def test_a_run_is_found_by_its_id_or_a_prefix(name, found):
    async def main():
        store = MemoryStore()
        for run_id in ("a-1", "b-1", "b-2"):
            await reflect(
                "T", generate=lambda p: "x", evaluate=lambda o: True, step=Journalled(store, run_id)
            )
        return (await Runs(store).get(name)).run_id

    if " " in found:
        with pytest.raises(ConfigError, match=found):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == found


def test_runs_are_filtered_and_paged():
    async def main():
        store = MemoryStore()
        for number in range(120):
            score = 1.0 if number % 2 else 0.1
            step, pattern = Journalled(store, f"r{number}"), ReflectionPattern(max_iterations=0)
            await reflect(
                "T", generate=lambda p: "x", evaluate=lambda o, s=score: s, pattern=pattern, step=step
            )
        runs = Runs(store)
        assert len(await runs.find()) == 50
        assert len(await runs.find(reason="quality_met", limit=100)) == 60
        assert len(await runs.find(status="finished", name="reflect", limit=1000)) == 120
        assert await runs.find(name="another") == []
        assert [run.run_id for run in await runs.find(limit=2)] == ["r119", "r118"]

    asyncio.run(main())


class Broken(MemoryStore):
    async def put_if_absent(self, record):
        raise StoreError("the file is no database of Redraft's")


def test_a_new_run_that_can_not_be_stored_still_runs(caplog):
    with caplog.at_level(logging.WARNING, "redraft"):
        result = asyncio.run(writer(keep=Broken()).run("sky"))
    assert len(result.history.versions) == 3
    assert "no database of Redraft's" in result.diagnostics["not_kept"]
    assert "The run is not stored" in caplog.text


def test_resuming_from_an_unreadable_store_is_an_error():
    with pytest.raises(StoreError, match="no database"):
        asyncio.run(writer(keep=Broken()).run_as("x", "sky"))


def test_a_record_of_a_newer_version_is_rejected():
    async def main():
        store = MemoryStore()
        await store.put(Record("run", "r", {"run_id": "r"}))
        with pytest.raises(StoreError, match="be read as RunRecord"):
            await reflect("T", generate=lambda p: "x", evaluate=lambda o: True, step=Journalled(store, "r"))
        assert await store.find(STEP) == []

    asyncio.run(main())


def test_a_run_that_ended_in_an_error_goes_on_although_advisors_observed_it():
    class Observer:
        def __init__(self):
            self.observed = []

        async def recall(self, _task):
            return []

        async def observe(self, result):
            self.observed.append(result.convergence_reason.value)

    store, observer, provider = MemoryStore(), Observer(), {"is_down": True}

    def answer(request):
        if request.role == "generation":
            return "short"
        if provider["is_down"]:
            raise ModelError("The provider is down.")
        return "ten digits"

    pattern = ReflectionPattern(2, [LENGTH], advisors=[observer])
    model = ScriptedModel(answer)
    agent = Agent(model, pattern=pattern, keep=store)
    assert agent.run_sync("Write.", run_id="again").convergence_reason == "error"
    provider["is_down"] = False
    resumed = agent.run_sync("Write.", run_id="again")
    assert (resumed.convergence_reason, resumed.best_output) == ("quality_met", "ten digits")
    assert [request.role for request in model.requests] == ["generation", "revision", "revision"]
    assert observer.observed == ["error", "quality_met"]
    again = agent.run_sync("Write.", run_id="again")
    assert again.history == resumed.history
    assert len(model.requests) == 3
    assert len(observer.observed) == 2
