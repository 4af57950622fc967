"""Stored workflows: how they resume, also after their process was killed."""

import asyncio
from contextlib import suppress

import pytest

from redraft import ConfigError, MemoryStore, ScriptedModel
from redraft.errors import ChangedRunError, ModelError, ReflectionFailedError, WorkflowError
from redraft.loop.record import RUN
from redraft.loop.runs import Runs
from redraft.workflow import Approvals, Workflow, Workflows
from redraft.workflow.history import ItemRun
from support.memory_stores import damage
from support.workflows import making

TEXT = """
name: kept
nodes:
  - name: one
    uses: work
    with: {name: one}
    output: first
  - name: loop
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, prompt: Draft.}
      evaluator: {type: schema, schema: {required: [a]}}
  - name: two
    uses: work
    with: {name: two}
    output: second
"""


def working(fails=()):
    done, failing = [], list(fails)

    async def work(state, name):
        done.append(name)
        if name in failing:
            failing.remove(name)
            raise RuntimeError(f"{name} failed")
        return name.upper()

    return work, done


def kept(store, fails=(), replies=("{}", '{"a": 1}'), text=TEXT):
    work, done = working(fails)
    model = ScriptedModel(list(replies))
    return Workflow.from_text(text, actions={"work": work}, models={"gpt-4": model}, keep=store), done, model


def test_failed_workflows_resume_after_the_last_finished_node():
    store = MemoryStore()
    made, done, model = kept(store, ["two"])
    with pytest.raises(RuntimeError, match="two failed"):
        made.run_sync({"x": 1}, run_id="w")
    result = made.run_sync({"x": 1}, run_id="w")
    assert done == ["one", "two", "two"]
    assert len(model.requests) == 2
    assert result.state["second"] == "TWO"
    again = made.run_sync({"x": 1}, run_id="w")
    assert (again.state, again.nodes, again.run_id) == (result.state, result.nodes, "w")
    assert done == ["one", "two", "two"]


def test_resume_takes_a_prefix_and_uses_the_original_values():
    store = MemoryStore()
    with pytest.raises(RuntimeError):
        kept(store, ["two"])[0].run_sync({"x": 1}, run_id="w-1")
    made, done, _ = kept(store)
    result = asyncio.run(made.resume("w-"))
    assert (result.run_id, result.state["x"], done) == ("w-1", 1, ["two"])
    with pytest.raises(ConfigError, match="no workflow 'v'"):
        asyncio.run(made.resume("v"))


def test_loops_are_stored_as_runs_of_their_workflow():
    store = MemoryStore()
    result = kept(store)[0].run_sync()
    [run] = asyncio.run(Runs(store).find())
    assert (run.origin.surface, run.origin.name, run.parent) == ("workflow", "kept", result.run_id)
    assert (run.status, len(run.versions), run.task.description) == ("finished", 2, "Draft.")
    assert not run.is_inner
    assert [version.strategy for version in run.versions] == ["draft", "regenerated"]


@pytest.mark.parametrize(
    ("inputs", "name"), [({"x": 2}, "kept"), ({"x": 1}, "other")], ids=["other values", "another workflow"]
)
def test_an_id_can_not_be_used_for_another_workflow_or_other_values(inputs, name):
    store = MemoryStore()
    kept(store)[0].run_sync({"x": 1}, run_id="w")
    with pytest.raises(ChangedRunError, match="'w'"):
        kept(store, text=TEXT.replace("name: kept", f"name: {name}"))[0].run_sync(inputs, run_id="w")


def test_a_finished_node_can_not_be_renamed_before_resuming():
    store = MemoryStore()
    with pytest.raises(RuntimeError):
        kept(store, ["two"])[0].run_sync(run_id="w")
    with pytest.raises(ChangedRunError, match="node one"):
        kept(store, text=TEXT.replace("- name: one", "- name: uno"))[0].run_sync(run_id="w")


def test_corrected_files_resume_where_they_failed():
    store = MemoryStore()
    text = TEXT.replace("{name: two}", "{name: '{{ state.nothing }}'}")
    with pytest.raises(WorkflowError, match="nothing"):
        kept(store, text=text)[0].run_sync(run_id="w")
    made, done, model = kept(store)
    assert made.run_sync(run_id="w").state["second"] == "TWO"
    assert (done, model.requests) == (["two"], [])


def test_a_handled_error_is_replayed():
    store = MemoryStore()
    text = TEXT.replace("    uses: reflection.loop\n", "    uses: reflection.loop\n    on_error: continue\n")
    text = text.replace("      generator:", "      on_failure: raise\n      generator:")
    made, _, model = kept(store, ["two"], ["{}", '{"b": 1}', '{"c": 1}'], text)
    with pytest.raises(RuntimeError, match="two failed"):
        made.run_sync(run_id="w")
    error = made.run_sync(run_id="w").state["error"]
    assert error == {
        "node": "loop", "type": "ReflectionFailedError", "message": "No valid output in 3 attempts.",
    }  # fmt: skip
    assert len(model.requests) == 3


RAISING = """
- {name: before, uses: llm.call, with: {model: gpt-4, prompt: Before.}}
- name: loop%s
  uses: reflection.loop
  with:
    generator: {action: llm.call, model: gpt-4, prompt: Draft.}
    evaluator: {type: custom, run: 'return output == "good"'}
    on_failure: raise
    max_iterations: 2
"""
RAISING_LOOPS = {
    "plain": (RAISING % "", ["before", "bad", "bad"]),
    "in a map": (RAISING % "\n  map: [1, 2]\n  concurrency: 1", ["before", "good", "bad", "bad"]),
    "with retries": (RAISING % "\n  retries: {times: 1, wait: 0}", ["before", *["bad"] * 4]),
    "in a file": ("- {name: file, uses: ./inner.yaml}", ["before", "bad", "bad"]),
    "in a map of files": (
        "- {name: file, uses: ./inner.yaml, map: [1, 2], concurrency: 1}",
        ["before", "good", "before", "bad", "bad"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "replies"), RAISING_LOOPS.values(), ids=RAISING_LOOPS)
def test_a_loop_that_raised_runs_again_in_a_resumed_workflow(tmp_path, nodes, replies):
    (tmp_path / "inner.yaml").write_text(f"nodes:{RAISING % ''}")
    (tmp_path / "outer.yaml").write_text(f"nodes:\n{nodes}")
    left, store = list(replies), MemoryStore()
    made = Workflow.from_file(
        tmp_path / "outer.yaml", models={"gpt-4": ScriptedModel(lambda _: left.pop(0))}, keep=store
    )
    for left in (left, ["bad"] * (4 if "retries" in nodes else 2)):  # noqa: B020 (the replies of each run)
        with pytest.raises(ReflectionFailedError):
            made.run_sync(run_id="w")
        assert left == []
    left = ["bad", "good"]
    assert made.run_sync(run_id="w").status == "finished"
    assert left == []


@pytest.mark.parametrize("deleted", range(3))
def test_a_resumed_workflow_that_was_killed_while_it_reopened_its_node_reopens_it_again(deleted):
    class Store(MemoryStore):
        left = 99

        async def delete(self, kind, key, /):
            self.left -= 1
            if self.left < 0:
                raise asyncio.CancelledError
            return await super().delete(kind, key)

    replies, store = ["before", "good", "bad", "bad", "good"], Store()
    nodes = RAISING % "\n  map: [1, 2]\n  concurrency: 1"
    made, _, model = kept(store, replies=replies, text=f"nodes:{nodes}")
    with pytest.raises(ReflectionFailedError):
        made.run_sync(run_id="w")
    store.left = deleted
    with suppress(asyncio.CancelledError):
        made.run_sync(run_id="w")
    store.left = 99
    assert made.run_sync(run_id="w").status == "finished"
    assert len(model.requests) == len(replies)


def test_a_loop_whose_judge_failed_goes_on_with_its_drafts_in_a_resumed_workflow():
    text = RAISING % ""
    text = text.replace(
        "type: custom, run: 'return output == \"good\"'", "type: llm, model: gpt-4, prompt: Judge."
    )
    replies = ["before", "draft", '{"valid": false}', "better", ModelError("away"), '{"valid": true}']
    made, _, model = kept(MemoryStore(), replies=replies, text=f"nodes:{text}")
    with pytest.raises(ReflectionFailedError, match="away"):
        made.run_sync(run_id="w")
    assert made.run_sync(run_id="w").state["result"] == "better"
    assert len(model.requests) == len(replies)


def test_unstored_workflows_leave_nothing_and_can_not_be_resumed():
    made, _, _ = kept(False)
    assert made.run_sync().state["second"] == "TWO"
    with pytest.raises(ConfigError, match="is not stored"):
        made.run_sync(run_id="w")


def test_a_failed_workflow_stores_its_error():
    store = MemoryStore()
    with pytest.raises(RuntimeError):
        kept(store, ["one"])[0].run_sync(run_id="w")
    record = asyncio.run(store.get("workflow", "w"))
    assert record.data["status"] == "failed"
    assert record.data["error"] == "RuntimeError: one failed"


ITEMS = """
name: items
nodes:
  - {name: first, uses: work}
  - name: each
    map: [1, 2, 3, 4]
    concurrency: 1
    uses: work
    with: {x: "{{ item }}"}
    on_error: continue
    output: made
"""


class Gone(BaseException):
    """Ends a program as a kill does: nothing of the step under way is recorded."""


def history_of_items(work):
    store = MemoryStore()
    with suppress(Gone):
        Workflow.from_text(ITEMS, actions={"work": work}, keep=store).run_sync(run_id="w")
    workflows = Workflows(store)
    return asyncio.run(workflows.history(asyncio.run(workflows.get("w"))))


def work_on_items(state, x=0):
    if x == 2:
        raise ValueError("two is odd")
    return x


def test_items_that_failed_are_in_the_history_of_a_workflow_that_continued():
    [_, each] = history_of_items(work_on_items).nodes
    assert each.value == [1, None, 3, 4]
    assert each.items == (ItemRun(1, error="ValueError: two is odd"),)


def test_the_items_that_ended_are_in_the_history_of_a_workflow_that_was_killed():
    def killed_at_four(state, x=0):
        if x == 4:
            raise Gone
        return work_on_items(state, x)

    history = history_of_items(killed_at_four)
    assert [(node.node, node.seconds is None) for node in history.nodes] == [("first", False), ("each", True)]
    assert (history.row.nodes, history.why.numbers["nodes"]) == (1, 1)
    assert history.nodes[1].items == (
        ItemRun(0, 1),
        ItemRun(1, error="ValueError: two is odd"),
        ItemRun(2, 3),
    )


PAYMENTS = """
name: payments
nodes:
  - {name: once, uses: pay, with: {what: once}}
  - {name: each, map: [1, 1], uses: pay, with: {what: each}, concurrency: 1}
  - {name: again, uses: pay, retries: {times: 1, wait: 0.001}, with: {what: again}}
  - {name: last, uses: pay, with: {what: last}}
"""


def test_a_repeated_call_of_an_action_has_the_same_idempotency_key():
    store, keys, broken = MemoryStore(), [], {"again": ValueError, "last": Gone}

    def pay(state, what, idempotency_key):
        keys.append((what, idempotency_key))
        if what in broken:
            raise broken.pop(what)

    workflow = Workflow.from_text(PAYMENTS, actions={"pay": pay}, keep=store)
    with suppress(Gone):
        workflow.run_sync(run_id="w")
    assert workflow.run_sync(run_id="w").nodes == ("once", "each", "again", "last")
    assert [what for what, _ in keys] == ["once", "each", "each", "again", "again", "last", "last"]
    assert len(set(keys)) == 5  # one for each call that was to be made
    assert len({key for _, key in keys}) == 5


def test_a_call_within_a_run_that_is_tried_again_has_the_same_idempotency_key(tmp_path):
    keys, failing = [], making(ValueError("no"), ValueError("no"), 1, ValueError("no"), 1)

    def pay(state, what, idempotency_key):
        keys.append((what, idempotency_key))

    (tmp_path / "inner.yaml").write_text(
        "nodes:\n- {name: pay, uses: pay, with: {what: '{{ state.what }}'}}\n- {name: fail, uses: fail}\n"
    )
    (tmp_path / "outer.yaml").write_text(
        "nodes:\n- {name: each, map: [a, b], concurrency: 1, uses: ./inner.yaml, with: {what: '{{ item }}'}, "
        "retries: {times: 2, wait: 0}}\n"
    )
    actions = {"pay": pay, "fail": failing}
    Workflow.from_file(tmp_path / "outer.yaml", actions=actions, keep=MemoryStore()).run_sync()
    assert [what for what, _ in keys] == ["a", "a", "a", "b", "b"]
    assert len(set(keys)) == len({key for _, key in keys}) == 2


def test_the_call_that_resumes_a_workflow_names_the_options_it_was_made_with():
    store = MemoryStore()
    options = {"actions": {"work": work_on_items}, "models": {}, "model": ScriptedModel([]), "strict": True}
    Workflow.from_text(ITEMS, keep=store, **options).run_sync(run_id="w")
    kept = asyncio.run(Workflows(store).get("w"))
    assert "# In place of each ..., what the program gave before" in kept.resuming_call
    assert kept.resuming_call.endswith(
        "Workflow.from_text(..., keep=..., actions=..., model=...).run(run_id='w')  # or run_sync"
    )


THREE = """
name: three
nodes:
  - {name: one, uses: work, output: first}
  - {name: two, uses: two, output: second%s}
  - {name: three, uses: work, output: third}
"""


async def why_of(store):
    history = await Workflows(store).why("r")
    return None if history is None else (history.why.rule, history.why.headline, history.why.detail)


def why_after(text, **actions):
    """Run a workflow whose node `two` does something; return what explains its state then."""
    store = MemoryStore()
    actions = {"work": lambda state: 1, "two": lambda state: 2} | actions
    made = Workflow.from_text(
        text, actions=actions, models={"gpt-4": ScriptedModel(['{"a": 1}'] * 3)}, keep=store
    )
    with suppress(Exception, KeyboardInterrupt):
        made.run_sync(run_id="r")
    return asyncio.run(why_of(store))


def test_a_finished_workflow_without_a_loop_says_that_it_has_finished():
    rule, headline, detail = why_after(THREE % "")
    assert (rule, headline) == ("finished", "it has run to its end")
    assert detail == "3 nodes ran, the last one 'three'; none of them was a loop."
    skipped = "nodes: [{name: one, when: false, uses: work}]"
    assert why_after(skipped)[2] == "No node ran."


def test_a_failed_workflow_names_the_node_and_the_error():
    def fail(state):
        raise RuntimeError("the disk is full")

    rule, headline, detail = why_after(THREE % "", two=fail)
    assert (rule, headline) == ("failed", "a node failed for good")
    assert detail.startswith("The node 'two' failed after 1 finished node: RuntimeError: the disk is full")
    wrong = "outputs: {x: string}\nnodes: [{name: one, uses: work, output: first}]"
    rule, headline, detail = why_after(wrong)
    assert (rule, headline) == ("failed", "it ended with an error")
    assert detail.startswith("The error came after 1 finished node: OutputError: ")


def test_a_workflow_reports_that_its_budget_was_spent():
    call = "{name: n, uses: llm.call, with: {prompt: x, model: gpt-4, max_tokens: 9}}"
    text = f"budget: {{tokens: 1}}\nnodes: [{call}]"
    rule, headline, detail = why_after(text)
    assert (rule, headline) == ("token_budget", "the token budget was spent")
    assert detail.startswith("It stopped after 0 finished nodes: ")


def test_the_usage_of_a_node_whose_budget_was_spent_is_shown():
    call = "uses: llm.call, with: {prompt: x, model: gpt-4, max_tokens: 9}"
    text = f"budget: {{tokens: 60}}\nnodes: [{{name: n, map: {[1] * 30}, concurrency: 1, {call}}}]"
    store = MemoryStore()
    made = Workflow.from_text(text, models={"gpt-4": ScriptedModel(["Some tea."] * 30)}, keep=store)
    result = made.run_sync(run_id="r")
    row = asyncio.run(making_row(store))
    assert (result.status, row.usage) == ("stopped", result.usage)
    assert row.usage.requests > 0


async def making_row(store):
    workflows = Workflows(store)
    return await workflows.row(await workflows.get("r"))


def test_a_waiting_workflow_says_what_it_waits_for_and_how_to_answer():
    ask = THREE.replace("uses: two", "uses: human.approve, with: {message: Really?}") % ""
    rule, headline, detail = why_after(ask)
    assert (rule, headline) == ("waiting", "it waits for a person")
    question, command, more = detail.split("\n")
    assert question == "The node 'two' asks: Really?"
    assert command.startswith("To answer: redraft approve r.")
    assert "workflow.resume('r')" in more


def test_a_workflow_whose_question_is_answered_waits_to_be_resumed():
    store, ask = (
        MemoryStore(),
        THREE.replace("uses: two", "uses: human.approve, with: {message: Really?}") % "",
    )
    Workflow.from_text(ask, actions={"work": lambda state: 1}, keep=store).run_sync(run_id="r")

    async def answered():
        approvals = Approvals(store)
        await approvals.answer(await approvals.get("last"), approved=True)
        return await why_of(store)

    rule, headline, detail = asyncio.run(answered())
    assert (rule, headline) == ("waiting", "it waits to be resumed")
    assert "has its answer" in detail
    assert "workflow.resume('r')" in detail


@pytest.mark.parametrize(
    ("more", "at"), [("", "at the node 'two'."), (", when: state.first", "after 1 finished node.")]
)
def test_a_running_workflow_says_where_it_is(more, at):
    store, found = MemoryStore(), []

    async def two(state):
        found.append(await why_of(store))

    actions = {"work": lambda state: 1, "two": two}
    Workflow.from_text(THREE % more, actions=actions, keep=store).run_sync(run_id="r")
    ((rule, headline, detail),) = found
    assert (rule, headline) == ("running", "it is still running")
    assert detail.endswith(at)


def test_a_cancelled_workflow_says_where_it_was():
    store = MemoryStore()

    async def cancelled():
        async def two(state):
            running.cancel()
            await asyncio.sleep(60)

        actions = {"work": lambda state: 1, "two": two}
        made = Workflow.from_text(THREE % "", actions=actions, keep=store)
        running = asyncio.create_task(made.run(run_id="r"))
        await asyncio.wait([running])

    asyncio.run(cancelled())
    rule, _, detail = asyncio.run(why_of(store))
    assert (rule, detail) == ("cancelled", "It was cancelled after 1 finished node, at the node 'two'.")


LOOP = """
  - name: loop
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, prompt: Draft.}
      evaluator: {type: schema, schema: {required: [%s]}}
      on_failure: raise
"""


def test_a_loop_explains_the_end_of_its_workflow_unless_another_node_failed_after_it():
    def fail(state):
        raise RuntimeError("the disk is full")

    assert why_after("nodes:" + LOOP % "a") is None
    assert why_after("nodes:" + LOOP % "b") is None
    after = why_after("nodes:" + LOOP % "a" + "  - {name: two, uses: two}\n", two=fail)
    assert after[2].startswith("The node 'two' failed after 1 finished node: RuntimeError")


def test_a_damaged_run_is_no_loop_of_another_workflow():
    store = MemoryStore()
    for run_id in ("a", "b"):
        workflow, _, _ = kept(store)
        workflow.run_sync(run_id=run_id)
    loop = asyncio.run(Workflows(store).run_of("b"))
    damage(store, RUN, asyncio.run(Workflows(store).run_of("a")))
    assert asyncio.run(Workflows(store).run_of("b")) == loop
