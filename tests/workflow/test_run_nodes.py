"""How a node runs: in its time, again after failures, for each item of a list, and within a budget."""

import asyncio
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from redraft import MemoryStore, ModelError, ScriptedModel, TokenUsage
from redraft._codec import failure_from_json, failure_to_json
from redraft.errors import OutputError, ReflectionFailedError, UnfinishedError, WorkflowError
from redraft.protocols import ChatReply
from redraft.types import ConvergenceReason
from redraft.workflow import Workflow
from redraft.workflow.run import ItemFinished, NodeFinished
from support.workflows import making, under


def made(text, models=None, actions=None, head="", keep=False):
    file = f"name: t\n{head}nodes:\n{under(text, 2)}\n"
    return Workflow.from_text(file, models=models, actions=actions, keep=keep)


def ran(text, state=None, **options):
    return made(text, **options).run_sync(state)


class Model:
    """A model that answers so many calls, and then never."""

    def __init__(self, answers=0):
        self.left, self.calls = answers, 0

    async def __call__(self, request):
        self.calls += 1
        self.left -= 1
        if self.left < 0:
            await asyncio.sleep(600)
        return ChatReply("done", usage=TokenUsage(50, 10, requests=1))


class Streaming(Model):
    """A model that streams endlessly."""

    async def stream(self, request, on_text):
        while True:
            on_text("x")
            await asyncio.sleep(0.01)


class Numbering(Model):
    """A model that numbers its replies."""

    async def __call__(self, request):
        reply = await super().__call__(request)
        return replace(reply, text=f"reply {self.calls}")


class Judging(Model):
    """A model that finds everything bad."""

    async def __call__(self, request):
        self.calls += 1
        return ChatReply('{"score": 0.1}', usage=TokenUsage(50, 10, requests=1))


CALL = "- {name: ask, uses: llm.call, with: {model: m, prompt: x}%s}\n"
JUDGED = """
- name: write
  uses: reflection.loop
  with:
    max_iterations: 9
    generator: {action: llm.call, model: m, prompt: x}
    evaluator: {type: schema, schema: {type: string, minLength: 9}}
  %s
"""


def timed(text, **options):
    began = time.monotonic()
    with pytest.raises(UnfinishedError) as caught:
        ran(text, **options)
    assert time.monotonic() - began < 10
    return caught.value


def test_a_silent_model_is_cancelled_when_the_time_of_its_node_is_over():
    error = timed(CALL % ", timeout: 0.1", models={"m": Model()})
    assert str(error) == "0.1 seconds passed (timeout) while a model was answering; it was cancelled."
    assert error.reason is ConvergenceReason.TIME_BUDGET
    assert error.__notes__ == ["workflow, line 3, node 'ask'"]


def test_an_endless_stream_is_cancelled():
    workflow = made(JUDGED % "timeout: 1", models={"m": Streaming()})

    async def streamed():
        async for _event in workflow.stream():
            pass

    with pytest.raises(UnfinishedError, match=r"1 seconds? passed \(timeout\) while"):
        asyncio.run(asyncio.wait_for(streamed(), 60))


def test_a_reply_after_the_deadline_is_no_reply():
    async def late(request):
        await asyncio.sleep(0.3)
        return ChatReply("too late")

    text = CALL % ", timeout: 0.1, on_error: continue"
    state = ran(text, models={"m": late}).state
    assert "ask" not in state
    assert state["error"]["type"] == "UnfinishedError"


def test_a_hanging_custom_action_is_abandoned():
    hanging = threading.Event()

    def hang(state):
        hanging.wait(30)

    error = timed("- {name: n, uses: hang, timeout: 0.1}", actions={"hang": hang})
    hanging.set()
    message = "0.1 seconds passed (timeout) while the step 'node n' was under way; it was cancelled."
    assert str(error) == message


def test_a_loop_out_of_time_ends_with_its_best_attempt():
    model = Model(2)
    result = ran(JUDGED % "timeout: 0.3", models={"m": model})
    assert (result.status, model.calls) == ("finished", 3)
    assert result.state["reflection_best"] == "done"
    assert len(result.state["reflection_history"]) == 2
    assert result.state["reflection_reason"].endswith("of 0.3 seconds passed (timeout).")
    assert "exhausted" not in result.state


@pytest.mark.parametrize("head", ["timeout: 0.2\n", "budget: {seconds: 0.2}\n"])
def test_a_workflow_out_of_time_ends_with_what_was_made(head):
    text = "- {name: first, uses: one}\n" + CALL % ", on_error: continue" + "- {name: then, uses: one}"
    result = ran(text, models={"m": Model()}, actions={"one": making(1)}, head=head)
    assert (result.status, result.nodes, result.state) == ("stopped", ("first",), {"first": 1})
    assert result.stop.reason is ConvergenceReason.TIME_BUDGET
    assert result.stop.detail.endswith("of 0.2 seconds passed (budget.seconds).")


def test_a_workflow_ends_when_its_tokens_are_used():
    text = "".join(f"- {{name: n{n}, uses: llm.call, with: {{model: m, prompt: x}}}}\n" for n in range(5))
    model = Model(9)
    result = ran(text, models={"m": model}, head="budget: {tokens: 100}\n")
    assert (result.nodes, model.calls, result.usage.total_tokens) == (("n0", "n1"), 2, 120)
    assert result.stop.detail == "120 of 100 tokens were used (budget.tokens)."
    assert result.stop.numbers == {"used": 120, "budget.tokens": 100}


def test_a_workflow_ends_when_its_dollars_are_spent():
    async def dear(request):
        return ChatReply("done", usage=TokenUsage(5, 5, requests=1, cost_usd=0.06))

    text = "".join(f"- {{name: n{n}, uses: llm.call, with: {{model: m, prompt: x}}}}\n" for n in range(5))
    result = ran(text, models={"m": dear}, head="budget: {usd: 0.1}\n")
    assert (result.nodes, result.stop.reason) == (("n0", "n1"), ConvergenceReason.COST_BUDGET)


@pytest.mark.parametrize("timeout", ["", "timeout: 60"])
@pytest.mark.parametrize(("tokens", "calls", "left"), [(100, 1, 40), (150, 2, 30)])
def test_the_budget_of_the_workflow_ends_its_loops_too(timeout, tokens, calls, left):
    model = Model(9)
    result = ran(JUDGED % timeout, models={"m": model}, head=f"budget: {{tokens: {tokens}}}\n")
    assert (result.status, model.calls, result.usage.total_tokens) == ("stopped", calls, 60 * calls)
    assert result.state["reflection_best"] == "done"
    assert re.fullmatch(
        rf"{60 * calls} of {tokens} tokens were used \(budget.tokens\). What was left was too little for the "
        rf"next call: it takes about \d+ tokens, and {left} are left.",
        result.stop.detail,
    )
    assert result.state["reflection_reason"] == result.stop.detail


def test_a_stopped_workflow_goes_on_with_a_larger_budget():
    store, model = MemoryStore(), Model(9)
    text = "".join(f"- {{name: n{n}, uses: llm.call, with: {{model: m, prompt: x}}}}\n" for n in range(4))
    results = [
        made(text, models={"m": model}, head=f"budget: {{tokens: {tokens}}}\n", keep=store).run_sync(
            run_id="r"
        )
        for tokens in (100, 100, 1000)
    ]
    assert [result.status for result in results] == ["stopped", "stopped", "finished"]
    assert (model.calls, results[2].usage.total_tokens) == (4, 240)


@pytest.mark.parametrize("on_error", ["raise", "continue"])
def test_a_loop_that_raises_is_cut_off_by_the_budget_and_goes_on_with_a_larger_one(on_error):
    store, model = MemoryStore(), Model(9)
    text = JUDGED.replace("max_iterations: 9", "on_failure: raise") % f"on_error: {on_error}"
    results = [
        made(text, models={"m": model}, head=f"budget: {{tokens: {tokens}}}\n", keep=store).run_sync(
            run_id="r"
        )
        for tokens in (100, 65)
    ]
    assert [(result.status, result.usage.total_tokens) for result in results] == [("stopped", 60)] * 2
    assert model.calls == 1
    with pytest.raises(ReflectionFailedError, match="3 attempts") as caught:
        made(text.replace("continue", "raise"), models={"m": model}, keep=store).run_sync(run_id="r")
    assert model.calls == 3
    assert caught.value.usage.total_tokens == 60 * 3


LONG = JUDGED.replace("minLength: 9", "minLength: 99")
JUDGED_BY_MODEL = JUDGED.replace(
    "{type: schema, schema: {type: string, minLength: 9}}", "{type: llm, model: judge, prompt: Is it good?}"
)
CUT_OFF_LOOPS = {
    "too little is left": (LONG % "", 170, (2, 0), (9, 0)),
    "it is spent": (LONG % "", 60, (1, 0), (9, 0)),
    "in a map": (LONG % "map: [1, 2]\n  concurrency: 1", 170, (2, 0), (18, 0)),
    "in a map that survives errors": (LONG % "map: [1]\n  on_error: continue", 170, (2, 0), (9, 0)),
    "with retries": (LONG % "retries: 2", 170, (2, 0), (9, 0)),
    "of several candidates": (
        (LONG % "").replace("max_iterations: 9", "max_iterations: 3\n    candidates: 2"),
        40,
        (1, 0),
        (3, 0),
    ),
    "before it is judged": (JUDGED_BY_MODEL % "", 60, (1, 0), (9, 9)),
    "in the last judgement": (JUDGED_BY_MODEL % "", 200, (2, 1), (9, 9)),
}


@pytest.mark.parametrize(("loop", "tokens", "before", "after"), CUT_OFF_LOOPS.values(), ids=CUT_OFF_LOOPS)
def test_a_loop_goes_on_where_the_budget_of_the_workflow_cut_it_off(loop, tokens, before, after):
    model, judge, store = Numbering(99), Judging(), MemoryStore()

    def run(tokens):
        models = {"m": model, "judge": judge}
        head = f"budget: {{tokens: {tokens}}}\n"
        return made(loop, models=models, head=head, keep=store).run_sync(run_id="r")

    first, again = run(tokens), run(tokens)
    assert (model.calls, judge.calls, first.nodes) == (*before, ())
    for result in (first, again):
        assert (result.status, result.usage.total_tokens) == ("stopped", 60 * sum(before))
        assert result.state.get("write", [result.state])[0]["reflection_best"] == "reply 1"
    result = run(100_000)
    assert (result.status, model.calls, judge.calls) == ("finished", *after)
    assert result.usage.total_tokens == 60 * sum(after)
    for value in result.state.get("write", [result.state]):
        assert value["exhausted"] is True
        assert (
            len({entry["output"] for entry in value["reflection_history"]}) == value["reflection_iteration"]
        )


@pytest.mark.parametrize("retries", ["", ", retries: {times: 1, wait: 0}"])
def test_the_usage_of_a_failed_node_counts_in_a_resumed_run(retries):
    model = Model(99)
    text = CALL.replace("prompt: x", "prompt: x, schema: {type: object}") % retries
    workflow = made(text, models={"m": model}, head="budget: {tokens: 300}\n", keep=MemoryStore())
    for _ in range(6):
        with suppress(OutputError):
            result = workflow.run_sync(run_id="r")
    assert (model.calls, result.status, result.usage.total_tokens) == (5, "stopped", 300)


RESUMED = {
    "a loop": JUDGED % "",
    "candidates": (JUDGED % "").replace("max_iterations: 9", "max_iterations: 9\n    candidates: 2"),
    "a map": CALL % ", map: [1, 2, 3, 4, 5, 6], concurrency: 1",
    "retries": (JUDGED % "retries: {times: 1, wait: 0}").replace(
        "max_iterations: 9", "max_iterations: 2\n    on_failure: raise"
    ),
}


@pytest.mark.parametrize("node", RESUMED.values(), ids=RESUMED)
def test_what_a_node_used_before_an_interruption_counts_in_the_budget(node):
    calls, head = [], "budget: {tokens: 200}\n"

    async def ask(request):
        calls.append(request)
        if len(calls) == 3:
            await interrupt()
        return ChatReply("done", usage=TokenUsage(50, 10, requests=1))

    expected = ran(node, models={"m": Model(9)}, head=head)
    workflow = made(node, models={"m": ask}, head=head, keep=MemoryStore())
    with pytest.raises(asyncio.CancelledError):
        workflow.run_sync(run_id="r")
    result = workflow.run_sync(run_id="r")
    assert (result.status, result.usage) == ("stopped", expected.usage)
    assert len(calls) == expected.usage.requests + 1


def test_a_node_is_run_again_after_failures(caplog):
    work = making(ValueError("boom"), OutputError("none"), 5)
    state = ran("- {name: n, uses: work, retries: {times: 2, wait: 0}}", actions={"work": work}).state
    assert state == {"n": 5}
    assert [record.message for record in caplog.records] == [
        "The node 'n' failed and will be retried in 0.0 s: ValueError: boom",
        "The node 'n' failed and will be retried in 0.0 s: none",
    ]


def test_the_last_error_of_a_node_is_raised():
    work = making(ValueError("one"), ValueError("two"), 5)
    with pytest.raises(ValueError, match="two"):
        ran("- {name: n, uses: work, retries: {times: 1, wait: 0}}", actions={"work": work})


def test_each_try_has_the_time_of_the_node():
    model = Model(0)

    async def at_last(request):
        if model.calls == 1:
            model.left = 1
        return await model(request)

    text = CALL % ", timeout: 0.1, retries: {times: 1, wait: 0}"
    assert ran(text, models={"m": at_last}).state == {"ask": "done"}


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (ModelError("overloaded", retryable=True), 3),
        (ModelError("no key", status=401), 1),
        (WorkflowError("a mistake"), 1),
    ],
)
def test_what_another_try_would_repeat_is_not_retried(error, tries):
    work = making(error)
    with pytest.raises(type(error)):
        ran("- {name: n, uses: work, retries: {times: 2, wait: 0}}", actions={"work": work})
    assert len(work.seen) == tries


def test_a_file_that_has_spent_its_budget_is_not_run_again(tmp_path):
    (tmp_path / "inner.yaml").write_text(
        "budget: {tokens: 60}\nnodes:\n"
        "- {name: a, uses: llm.call, with: {prompt: Why?}, output: a}\n"
        "- {name: b, uses: llm.call, with: {prompt: '{{ state.a }}'}}\n"
    )
    (tmp_path / "outer.yaml").write_text(
        "nodes:\n- {name: run, uses: ./inner.yaml, retries: {times: 2, wait: 0}}\n"
    )
    model = ScriptedModel(["It is long. " * 20] * 6)
    workflow = Workflow.from_file(tmp_path / "outer.yaml", model=model, keep=MemoryStore())
    with pytest.raises(UnfinishedError, match=r"60 of 60 tokens were used \(budget.tokens\)"):
        workflow.run_sync()
    assert len(model.requests) == 1


INNER_FAILURES = {
    "code": ("{name: use, run: 'return 1 / state[\"n\"]'}", 0, 1.0),
    "a template": ("{name: use, uses: own, with: {x: '{{ 1 / state.n }}'}}", 0, 1.0),
    "another action": ("{name: use, uses: own, with: {x: '{{ state.n }}'}}", ValueError("no"), 1),
}


@pytest.mark.parametrize(("node", "first", "value"), INNER_FAILURES.values(), ids=INNER_FAILURES)
def test_a_file_that_fails_on_what_it_made_is_run_again(tmp_path, node, first, value):
    (tmp_path / "inner.yaml").write_text(f"nodes:\n- {{name: n, uses: make}}\n- {node}\n")
    (tmp_path / "outer.yaml").write_text(
        "nodes:\n- {name: run, uses: ./inner.yaml, output: o, retries: {times: 2, wait: 0}}\n"
    )
    make, store = making(first, 1), MemoryStore()
    workflow = Workflow.from_file(
        tmp_path / "outer.yaml", actions={"make": make, "own": lambda state, x: x}, keep=store
    )
    state = workflow.run_sync().state
    assert (state["o"]["use"], len(make.seen)) == (value, 2)


def test_a_failure_of_a_file_is_recognised_after_a_restart():
    recorded = failure_from_json(failure_to_json(WorkflowError("a place: failed", retryable=True)))
    assert (type(recorded), recorded.retryable) == (WorkflowError, True)
    assert not failure_from_json({"type": "WorkflowError", "message": "of an earlier version"}).retryable


def test_a_file_with_wrong_inputs_is_not_run_again(tmp_path):
    (tmp_path / "inner.yaml").write_text("inputs: {n: integer}\nnodes:\n- {name: n, run: return 1}\n")
    (tmp_path / "outer.yaml").write_text(
        "nodes:\n- {name: run, uses: ./inner.yaml, with: {n: '{{ state.x }}'}, retries: {times: 1, wait: 60}}"
    )
    with pytest.raises(WorkflowError, match="the input 'n' is invalid"):
        Workflow.from_file(tmp_path / "outer.yaml", keep=False).run_sync({"x": "many"})


async def interrupt():
    """Interrupt the run, as Ctrl-C does."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)


def test_a_resumed_run_goes_on_with_the_next_try():
    store, tries = MemoryStore(), []

    async def work(state):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("one")
        if len(tries) == 2:
            await interrupt()
        return 5

    workflow = made(
        "- {name: n, uses: work, retries: {times: 2, wait: 0}}", actions={"work": work}, keep=store
    )
    with pytest.raises(asyncio.CancelledError):
        workflow.run_sync(run_id="r")
    assert workflow.run_sync(run_id="r").state == {"n": 5}
    assert len(tries) == 3


MAP = "- {name: n, map: state.them, concurrency: 2, uses: work, with: {x: '{{ item }}', at: '{{ index }}'}%s}"


def test_a_map_gives_the_results_in_the_order_of_the_list():
    under_way, most, is_last = set(), [], asyncio.Event()

    async def work(state, x, at):
        under_way.add(x)
        most.append(len(under_way))
        await (is_last.wait() if x == "a" else asyncio.sleep(0))
        if x == "d":
            is_last.set()
        under_way.remove(x)
        return f"{x}{at}"

    events = []
    workflow = made(MAP % "", actions={"work": work})
    result = workflow.run_sync({"them": ["a", "b", "c", "d"]}, on_event=events.append)
    assert result.state["n"] == ["a0", "b1", "c2", "d3"]
    assert max(most) == 2
    items = [event.index for event in events if isinstance(event, ItemFinished)]
    assert (sorted(items), items[-1]) == ([0, 1, 2, 3], 0)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("- {name: n, map: [1, 2], run: 'return [item, index]'}", {"n": [[1, 0], [2, 1]]}),
        ("- {name: n, map: ['{{ state.a }}', 2], run: 'return item', output: o}", {"o": [9, 2]}),
        ("- {name: n, map: '{{ state.them[1:] }}', run: return item}", {"n": ["b"]}),
        ("- {name: n, map: [], run: return item}", {"n": []}),
        ("- {name: n, map: [1], run: 'return {\"k\": item}'}", {"n": [{"k": 1}]}),
        ("- {name: n, map: [1], language: lua, run: return item + index}", {"n": [1]}),
        ("- {name: n, map: [1], when: false, run: return item}", {}),
    ],
)
def test_lists_of_a_map(text, state):
    given = {"a": 9, "them": ["a", "b"]}
    assert ran(text, given).state == given | state


def test_a_map_of_loops_returns_the_value_of_each():
    text = """
    - name: n
      map: [1, 2]
      uses: reflection.loop
      with:
        generator: {run: 'return {"number": item * reflection_iteration}'}
        evaluator: {type: custom, run: 'return output["number"] == 2'}
        max_iterations: 2
    """
    result = ran(text, keep=MemoryStore())
    assert [item["number"] for item in result.state["n"]] == [2, 2]
    assert [item["reflection_iteration"] for item in result.state["n"]] == [2, 1]
    assert "success" not in result.state


def failing(*wrong):
    seen = []

    async def work(state, x, at):
        seen.append(x)
        await asyncio.sleep(0)
        if x in wrong:
            raise ValueError(f"no {x}")
        return x

    work.seen = seen
    return work


def test_failed_items_are_null_if_the_map_goes_on():
    work, events = failing("b", "d"), []
    workflow = made(MAP % ", on_error: continue", actions={"work": work}, keep=MemoryStore())
    expected = {
        "node": "n",
        "type": "ValueError",
        "message": "no b",
        "items": [
            {"index": 1, "type": "ValueError", "message": "no b"},
            {"index": 3, "type": "ValueError", "message": "no d"},
        ],
    }
    state = workflow.run_sync({"them": list("abcd")}, on_event=events.append).state
    assert (state["n"], state["error"]) == (["a", None, "c", None], expected)
    assert [event.error for event in events if isinstance(event, NodeFinished)] == [""]


def test_a_mistake_that_one_item_shows_fails_that_item():
    text = "- {name: n, map: state.them, uses: work, with: {x: '{{ item.a }}', at: 0}, on_error: continue}"
    state = ran(text, {"them": [{"a": 1}, {}, {"a": 3}]}, actions={"work": failing()}).state
    assert state["n"] == [1, None, 3]
    assert [item["index"] for item in state["error"]["items"]] == [1]


def test_a_failed_item_ends_the_map_after_those_under_way():
    work = failing("b")
    with pytest.raises(ValueError, match="no b") as caught:
        ran(MAP % "", {"them": list("abcdef")}, actions={"work": work})
    assert len(work.seen) < 6
    assert caught.value.__notes__ == ["item 2 of 6", "workflow, line 3, node 'n'"]


def test_a_failed_item_leads_to_the_node_that_on_error_names():
    text = MAP % ", on_error: last" + "\n- {name: other, run: return 1}\n- {name: last, run: 'return 2'}"
    state = ran(text, {"them": ["a"]}, actions={"work": failing("a")}).state
    assert (state["last"], "other" in state, state["error"]["message"]) == (2, False, "no a")


def test_each_item_has_retries_of_its_own():
    tries = {}

    def work(state, x, at):
        tries[x] = tries.get(x, 0) + 1
        if tries[x] == 1:
            raise ValueError(x)
        return x

    state = ran(MAP % ", retries: {times: 1, wait: 0}", {"them": list("abc")}, actions={"work": work}).state
    assert (state["n"], tries) == (["a", "b", "c"], {"a": 2, "b": 2, "c": 2})


def test_a_resumed_map_repeats_only_the_items_that_failed():
    store, wrong = MemoryStore(), {"b"}
    work = failing()

    async def sometimes(state, x, at):
        if x in wrong:
            raise ValueError(x)
        return await work(state, x, at)

    workflow = made(MAP % "", actions={"work": sometimes}, keep=store)
    with pytest.raises(ValueError, match="b"):
        workflow.run_sync({"them": list("abcd")}, run_id="r")
    wrong.clear()
    assert workflow.run_sync({"them": list("abcd")}, run_id="r").state["n"] == list("abcd")
    assert sorted(work.seen) == list("abcd")


def test_a_run_interrupted_after_a_handled_failure_resumes_where_it_was():
    text = """
- {name: first, uses: fail_once, on_error: other}
- {name: good, map: [1, 2], concurrency: 1, uses: name_of, with: {name: good, item: "{{ item }}"}, goto: end}
- {name: other, map: [1, 2], concurrency: 1, uses: name_of, with: {name: other, item: "{{ item }}"}}
"""
    failures = [RuntimeError("down")]
    interruptions = [interrupt]

    def fail_once(state):
        if failures:
            raise failures.pop()

    async def name_of(state, name, item):
        if item == 2 and interruptions:
            await interruptions.pop()()
        return name

    workflow = made(text, actions={"fail_once": fail_once, "name_of": name_of}, keep=MemoryStore())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(workflow.run(run_id="r"))
    result = workflow.run_sync(run_id="r")
    assert (result.nodes, result.state["other"]) == (("first", "other"), ["other", "other"])


def test_a_resumed_item_asks_again_after_a_reply_that_could_not_be_used():
    store = MemoryStore()
    replies = iter(["no JSON", '{"a": 1}'])

    async def model(request):
        return ChatReply(next(replies))

    text = "- {name: n, map: [1], uses: llm.call, with: {model: m, prompt: x, schema: {type: object}}}"
    workflow = made(text, models={"m": model}, keep=store)
    with pytest.raises(OutputError):
        workflow.run_sync(run_id="r")
    assert workflow.run_sync(run_id="r").state["n"] == [{"a": 1}]


def test_an_item_that_has_changed_is_run_again():
    store, work = MemoryStore(), failing("c")
    text = "- {name: n, map: [a, %s, %s], uses: work, with: {x: '{{ item }}', at: 0}}"
    with pytest.raises(ValueError, match="no c"):
        made(text % ("b", "c"), actions={"work": work}, keep=store).run_sync(run_id="r")
    changed = made(text % ("B", "d"), actions={"work": work}, keep=store)
    assert changed.run_sync(run_id="r").state["n"] == ["a", "B", "d"]
    assert work.seen == ["a", "b", "c", "B", "d"]


@pytest.mark.parametrize(("on_error", "calls"), [("raise", 4), ("continue", 4)])
def test_the_budget_of_the_workflow_ends_a_map(on_error, calls):
    store, model = MemoryStore(), Model(99)
    text = f"- {{name: n, map: state.them, concurrency: 2, on_error: {on_error}, uses: llm.call, "
    text += "with: {model: m, prompt: '{{ item }}'}}"
    given = {"them": list(range(9))}
    result = made(text, models={"m": model}, head="budget: {tokens: 200}\n", keep=store).run_sync(
        given, run_id="r"
    )
    assert (result.status, result.nodes, model.calls) == ("stopped", (), calls)
    assert result.state == given | {"n": ["done"] * calls + [None] * (9 - calls)}
    again = made(text, models={"m": model}, head="budget: {tokens: 9000}\n", keep=store).run_sync(
        given, run_id="r"
    )
    assert (again.state["n"], model.calls) == (["done"] * 9, 9)


def test_the_budget_of_the_workflow_keeps_what_the_nodes_of_another_file_have_set(tmp_path):
    (tmp_path / "inner.yaml").write_text(
        "nodes: [{name: a, uses: llm.call, with: {prompt: p}}, {name: b, uses: llm.call, with: {prompt: q}}]"
    )
    stopped = []
    for tokens in (70, 9000):
        outer = f"budget: {{tokens: {tokens}}}\nnodes: [{{name: n, uses: ./inner.yaml, output: o}}]"
        (tmp_path / "outer.yaml").write_text(outer)
        result = Workflow.from_file(tmp_path / "outer.yaml", model=Model(99), keep=False).run_sync()
        stopped.append((result.status, result.state))
    assert stopped == [("stopped", {"o": {"a": "done"}}), ("finished", {"o": {"a": "done", "b": "done"}})]


def test_a_list_that_is_none():
    with pytest.raises(WorkflowError, match="map: expected a list, got 5") as caught:
        ran("- {name: n, map: state.x, run: return item}", {"x": 5})
    assert caught.value.line == 3
