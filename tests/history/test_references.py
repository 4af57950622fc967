"""What an id may name: `last`, and the id of something else."""

import asyncio

import pytest

from redraft.errors import ConfigError
from redraft.evals import success_criteria
from redraft.loop.runs import STATES, Runs
from redraft.retention import ProjectData
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.types import ConvergenceReason
from redraft.workflow.history import Workflows
from support.commands import redraft
from support.dashboards import described, pages
from support.kept_workflows import kept
from support.mcp_clients import in_process

WITHOUT_A_LOOP = "name: plain\nnodes: [{name: use, uses: work}]\n"


def store_these(*parts):
    """Store a run (a text beginning with `run`), workflows, or a workflow without a loop, in this order."""
    store = project_store()
    for part in parts:
        if part.startswith("run"):
            asyncio.run(store.put(described(part).stored()))
        elif part.startswith("plain"):
            kept(part, store=store, text=WITHOUT_A_LOOP, failing=0)
        else:
            kept(part, store=store)
    asyncio.run(store.aclose())


@pytest.mark.parametrize(
    ("parts", "last", "with_versions"),
    [
        (("run-1", "flow"), "flow", "flow."),
        (("flow", "run-1"), "run-1", "run-1"),
        (("flow", "other"), "other", "other."),
        (("run-1", "plain"), "plain", None),
    ],
)
def test_last_means_the_same_everywhere(project, parts, last, with_versions):
    store_these(*parts)
    assert asyncio.run(Workflows().last_id()) == last
    assert f'"{last}"' in redraft("show", "last", "--json").stdout
    assert f'"run_id": "{with_versions or last}' in redraft("why", "last", "--json").stdout
    says = f'"{with_versions}' if with_versions else f"No loop of the workflow {last!r} has run"
    for command in (("diff",), ("export",), ("eval", "add")):
        done = redraft(*command, "last", "--json")
        assert done.exit_code == (0 if with_versions else 2), command
        if command != ("eval", "add") or with_versions is None:  # it names the case, not the run
            assert says in done.stdout + done.stderr, command

    async def over_mcp():
        async with in_process() as session:
            if with_versions is None:
                return await session.refused("get_run")
            return (await session.call("get_run"))["run_id"]

    assert says.strip('"') in asyncio.run(over_mcp())
    forgotten = redraft("forget", "--run", "last", "--yes", "--json")
    assert (forgotten.exit_code, last in forgotten.stdout) == (0, True), forgotten.stderr
    assert asyncio.run(Workflows().last_id()) != last


def test_an_inner_run_is_not_the_last_run(project):
    """The loop of a long workflow may begin after a run that began later."""
    store_these("run-1")
    store = project_store()
    asyncio.run(store.put(described("inside", parent="somewhere").stored()))
    asyncio.run(store.aclose())
    assert asyncio.run(Workflows().last_id()) == "run-1"


def test_an_empty_project_has_no_last_run(project):
    with pytest.raises(ConfigError, match="Nothing is stored here yet"):
        asyncio.run(ProjectData().forget(run="last"))


@pytest.mark.parametrize("command", ["show", "why", "diff", "resume"])
def test_the_id_of_an_evaluation_leads_to_it(project, command):
    store = project_store()
    asyncio.run(store.put(Record("evaluation", "eval-1", {})))
    asyncio.run(store.aclose())
    done = redraft(command, "eval-1")
    assert done.exit_code == 2
    assert "'eval-1' is an evaluation: `redraft eval show eval-1` shows" in done.stderr


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/runs/flow", "/workflows/flow"),
        ("/runs/flow.json", "/workflows/flow.json"),
        ("/runs/eval-1", "/evaluations/eval-1"),
        ("/workflows/eval-1", None),
        ("/evaluations/flow", None),
        ("/runs/nothing", None),
    ],
)
def test_the_page_of_a_run_redirects_ids_of_another_kind(path, leads_to):
    store = kept("flow")
    asyncio.run(store.put(Record("evaluation", "eval-1", {})))
    answer = pages(store).get(path)
    expected = (303, leads_to) if leads_to else (404, None)
    assert (answer.status_code, answer.headers.get("location")) == expected


@pytest.mark.parametrize(
    ("find", "choices"),
    [
        (lambda: Runs().find(reason="quality_mett"), "did you mean 'quality_met'"),
        (lambda: Runs().find(status="finishd"), "did you mean 'finished'"),
        (lambda: Runs().rows(reason="x"), "expected one of"),
        (lambda: success_criteria(status="x"), "expected one of"),
        (lambda: Workflows().find(status="finishd"), "did you mean 'finished'"),
    ],
)
def test_a_filter_refuses_impossible_values(project, find, choices):
    with pytest.raises(ConfigError, match=r"(status|reason): unknown value") as raised:
        asyncio.run(find())
    assert choices in str(raised.value)


def test_each_reason_and_status_is_a_filter(project):
    async def main():
        for reason in ConvergenceReason:
            assert await Runs().find(reason=reason) == []
        for status in (*STATES, "damaged"):
            assert await Runs().find(status=status) == []
            assert await Workflows().find(status=status) == []

    asyncio.run(main())
