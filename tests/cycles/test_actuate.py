import asyncio
import json
import logging
from dataclasses import replace

import pytest

from redraft.cycles.actuate import evaluate, execute
from redraft.errors import OutputError
from redraft.stores.sqlite import MemoryStore
from support.cycles import ScriptedBus, begun, cycle_of, run, spec_of
from support.http_server import of_json, of_text, serving

DONE = {"name": "done", "require": "derivedData.execution.actions[0].status == 'succeeded'"}
COOL = {
    "name": "cool",
    "require": "environmentalData.payload.rate < 5",
    "message": "still {{ environmentalData.payload.rate }}",
}
GONE = {"name": "gone", "require": "environmentalData.payload.none.x"}
SCHEMA = {"type": "object", "properties": {"success": {"type": ["boolean", "null"]}}}
PASSED = {"name": "done", "passed": True, "message": ""}
FAILED = {"name": "cool", "passed": False, "message": "still 6"}


def evaluated(part, replies=(), statuses=("succeeded",), functions=None):
    spec = spec_of(actuate=[{"type": "evaluate", "name": "see", **part}])
    execution = {"actions": [{"status": status} for status in statuses]}
    cycle, _ = cycle_of(
        spec, payload={"rate": 6}, derived={"execution": execution}, replies=replies, functions=functions
    )
    run(evaluate(spec.stages.actuate.substages[0], cycle))
    return cycle.state.derived_data["evaluation"]


def checks(*entries):
    return {"config": {"checks": list(entries)}}


@pytest.mark.parametrize(
    ("part", "replies", "evaluation"),
    [
        (checks(DONE), (), {"success": True, "checks": [PASSED]}),
        (checks(DONE, COOL), (), {"success": False, "checks": [PASSED, FAILED]}),
        (
            {"prompt": "?", "outputSchema": SCHEMA},
            [{"success": True, "why": "x"}],
            {"success": True, "checks": [], "why": "x"},
        ),
        ({"prompt": "?", "outputSchema": SCHEMA}, [{"success": None}], {"success": None, "checks": []}),
        (
            {"prompt": "?", "outputSchema": SCHEMA},
            [{"why": "x"}],
            {"success": True, "checks": [], "why": "x"},
        ),
        (
            {"prompt": "?", **checks(COOL)},
            ["it went well"],
            {"success": False, "checks": [FAILED], "see": "it went well"},
        ),
        (
            {"prompt": "?", "outputSchema": SCHEMA, **checks(DONE)},
            [{"success": False}],
            {"success": False, "checks": [PASSED]},
        ),
        (
            {"prompt": "?", "outputSchema": SCHEMA, **checks(DONE)},
            [{"checks": [{"name": "mine"}]}],
            {"success": True, "checks": [{"name": "mine"}, PASSED]},
        ),
        (
            {"prompt": "?", "outputSchema": SCHEMA, **checks(DONE)},
            [{"checks": None}],
            {"success": True, "checks": [PASSED]},
        ),
        ({"config": {"function": "yes"}}, (), {"success": True, "checks": []}),
        ({"config": {"function": "unknown"}}, (), {"success": None, "checks": []}),
        ({"config": {"function": "scored"}}, (), {"success": True, "checks": [], "score": 1}),
    ],
)
def test_evaluate_combines_checks_functions_and_models(part, replies, evaluation):
    functions = {"yes": lambda: True, "unknown": lambda: None, "scored": lambda: {"score": 1}}
    assert evaluated(part, replies, functions=functions) == evaluation


def test_a_check_that_cannot_be_evaluated_is_unknown():
    report = evaluated(checks(DONE, GONE))
    assert report["success"] is None
    assert report["checks"][1]["passed"] is None
    assert "can't be evaluated" in report["checks"][1]["message"]
    assert evaluated(checks(GONE, COOL))["success"] is False


@pytest.mark.parametrize(
    ("statuses", "success"),
    [
        (["succeeded", "succeeded"], True),
        (["succeeded", "failed"], False),
        (["blocked", "succeeded", "skipped"], True),
        (["blocked"], None),
        ([], None),
    ],
)
def test_success_defaults_to_the_outcomes_of_actions(statuses, success):
    report = evaluated({"config": {"function": "scored"}}, (), statuses, {"scored": lambda: {"score": 1}})
    assert report["success"] is success


def test_rejects_a_success_that_is_not_a_boolean():
    with pytest.raises(OutputError, match="returned 'rather' as 'success'"):
        evaluated({"config": {"function": "odd"}}, functions={"odd": lambda: {"success": "rather"}})


LOG = {"type": "log", "name": "note", "message": "{{ params.text | default('-') }}"}
ALERT = {"type": "alert", "name": "tell", "message": "Rate {{ environmentalData.payload.rate }}"}
STOP = {"type": "function", "name": "stop", "function": "stop", "with": {"line": "{{ params.line }}"}}


def action(name, number=1, **params):
    return {"action": name, "params": params, "reason": "", "id": f"7-{number}"}


def agent(*actions, plans=True, reason=()):
    plan = [{"type": "plan", "name": "p", "config": {"rules": []}}] if plans else []
    reason = [*plan, *reason]
    stages = {"reason": reason} if reason else {}
    return spec_of(
        **stages, actuate=[{"type": "execute", "name": "act", "config": {"actions": list(actions)}}]
    )


async def executed(spec, *planned, governance=None, **options):
    derived = {"plan": {"actions": [dict(one) for one in planned]}, "governance": governance or {}}
    cycle, _ = cycle_of(spec, derived=derived, **{"payload": {"rate": 6}, **options})
    await execute(spec.stages.actuate.substages[0], cycle)
    return cycle


def outcomes(cycle, *fields):
    actions = cycle.state.derived_data["execution"]["actions"]
    return [tuple(action[field] for field in fields) for action in actions]


def test_all_action_types(caplog, monkeypatch):
    monkeypatch.setenv("STOP_KEY", "k-1")
    caplog.set_level(logging.INFO, "redraft")
    with serving({"/stop": of_json({"stopped": True})}) as server:
        call = {
            "type": "api_call",
            "name": "call",
            "url": server.url + "/{{ params.place }}",
            "headers": {"X-Key": "{{ env.STOP_KEY }}", "idempotency-key": "mine"},
            "body": {"line": "{{ params.line }}", "by": "{{ agent.name }} {{ cycle }}"},
        }
        spec = agent(LOG, ALERT, STOP, call).model_copy(update={"env": ["STOP_KEY"]})
        bus, calls = ScriptedBus(), []

        def stop(line, idempotency_key, state):
            calls.append((line, idempotency_key, state["environmentalData"]["payload"]))
            return {"ok": line}

        plan = [
            action("note", 1, text="hello"),
            action("tell", 2),
            action("stop", 3, line=4),
            action("call", 4, place="stop", line=4),
        ]
        cycle = run(executed(spec, *plan, bus=bus, functions={"stop": stop}))
        [request] = server.requests
    assert outcomes(cycle, "id", "action", "type", "status", "result", "error") == [
        ("7-1", "note", "log", "succeeded", {"severity": "info", "message": "hello"}, None),
        ("7-2", "tell", "alert", "succeeded", {"severity": "warning", "message": "Rate 6"}, None),
        ("7-3", "stop", "function", "succeeded", {"ok": 4}, None),
        ("7-4", "call", "api_call", "succeeded", {"stopped": True}, None),
    ]
    keys = [key for (key,) in outcomes(cycle, "idempotencyKey")]
    assert len(set(keys)) == 4
    alert = {"agent": "monitor", "cycle": 7, "alert": "tell", "severity": "warning", "message": "Rate 6"}
    assert bus.published == [("alerts", alert, keys[1])]
    assert calls == [(4, keys[2], {"rate": 6})]
    assert (request.command, request.headers.get_all("idempotency-key")) == ("POST", [keys[3]])
    assert request.headers["x-key"] == "k-1"
    assert json.loads(request.body) == {"line": 4, "by": "monitor 7"}
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert cycle.failures == []
    assert cycle.skipped == []


def fails(line):
    raise RuntimeError(f"{line} is stuck")


FAILING = {
    "stop": (STOP, "RuntimeError: 4 is stuck"),
    "unrendered": ({**LOG, "name": "unrendered", "message": "{{ params.gone.x }}"}, "gone"),
    "refused": (
        {"type": "api_call", "name": "refused", "url": "{{ params.url }}"},
        "A URL must begin with 'http://'",
    ),
    "undecidable": ({**LOG, "name": "undecidable", "when": "memory.gone.x > 1"}, "can't be evaluated"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_action_does_not_stop_the_others(name):
    failing, message = FAILING[name]
    plan = [action(name, 1, line=4, url="file:///etc/passwd"), action("note", 2)]
    cycle = run(executed(agent(failing, LOG), *plan, functions={"stop": fails}))
    assert outcomes(cycle, "action", "status") == [(name, "failed"), ("note", "succeeded")]
    assert message in cycle.state.derived_data["execution"]["actions"][0]["error"]
    [failure] = cycle.failures
    assert failure.startswith(f"actuate/act/{name}: ")


def test_an_error_status_is_a_failed_action():
    with serving({"/": of_text("no", status=500)}) as server:
        call = {"type": "api_call", "name": "call", "url": server.url, "method": "DELETE"}
        cycle = run(executed(agent(call), action("call")))
    assert "status 500, no" in cycle.state.derived_data["execution"]["actions"][0]["error"]


@pytest.mark.parametrize(
    ("actions", "planned", "plans", "done"),
    [
        ([LOG], [], True, []),
        ([LOG], [], False, [("note", "succeeded")]),
        ([{**LOG, "when": "environmentalData.payload.rate > 5"}], [], True, [("note", "succeeded")]),
        ([{**LOG, "when": "environmentalData.payload.rate > 6"}], [], True, []),
        ([{**LOG, "when": "environmentalData.payload.rate > 6"}], ["note"], True, [("note", "skipped")]),
        (
            [{**LOG, "when": "derivedData.execution.actions[0].status == 'failed'"}, STOP],
            ["stop"],
            True,
            [("stop", "failed"), ("note", "succeeded")],
        ),
        (
            [
                {**LOG, "name": "b", "when": "derivedData.execution.actions | length == 1"},
                {**LOG, "name": "a", "when": "derivedData.execution.actions | length == 0"},
            ],
            [],
            True,
            [("a", "succeeded"), ("b", "succeeded")],
        ),
        ([LOG], ["note", "note"], True, [("note", "succeeded")] * 2),
    ],
)
def test_which_actions_run(actions, planned, plans, done):
    plan = [action(name, at + 1) for at, name in enumerate(planned)]
    cycle = run(executed(agent(*actions, plans=plans), *plan))
    assert outcomes(cycle, "action", "status") == done
    assert cycle.skipped == (
        [] if any(status in ("succeeded", "failed") for _, status in done) else ["actuate/act"]
    )


def test_a_condition_that_cannot_be_evaluated_is_a_failure():
    cycle = run(executed(agent({**LOG, "when": "memory.gone.x"}), action("other")))
    assert "its condition can't be evaluated" in cycle.failures[0]


def test_unapproved_actions_are_blocked():
    spec = agent(LOG, ALERT, reason=[{"type": "authorize", "name": "ask", "config": {"mode": "controlled"}}])
    authorization = {"mode": "controlled", "decision": "rejected", "by": "Ada", "message": "not now"}
    governance = {"violations": [], "approved": ["7-2"], "authority": authorization}
    cycle = run(executed(spec, action("note"), action("tell", 2), governance=governance))
    assert outcomes(cycle, "action", "status", "error") == [
        ("note", "blocked", "Not approved (Ada: not now)."),
        ("tell", "succeeded", None),
    ]
    assert cycle.failures == []


def test_log_messages_are_one_line_without_control_characters(caplog):
    hostile = "a\n2026 ERROR all is lost\x1b[2J\u202e {{ env.KEY }} %s"
    with caplog.at_level(logging.INFO, "redraft"):
        cycle = run(executed(agent(LOG), action("note", text=hostile + "x" * 9_000)))
    [record] = caplog.records
    line = record.getMessage()
    assert line.startswith(
        "The agent 'monitor', cycle 7: a 2026 ERROR all is lost\\x1b[2J\\u202e {{ env.KEY }} %s"
    )
    assert len(line) < 2_100
    assert cycle.failures == []


def test_failures_are_redacted():
    def withheld(data):
        return data.replace("4", "[withheld]")

    plan = action("stop", 1, line=4)
    cycle = run(executed(agent(STOP), plan, functions={"stop": fails}, redact=withheld))
    assert outcomes(cycle, "error") == [("RuntimeError: [withheld] is stuck",)]


def test_a_long_result_is_truncated():
    stop = {**STOP, "with": {}}
    cycle = run(executed(agent(stop), action("stop"), functions={"stop": lambda: "x" * 50_000}))
    [(status, result)] = outcomes(cycle, "status", "result")
    assert status == "succeeded"
    assert result["length"] == 50_002
    assert len(result["cut"]) == 20_000


async def test_a_killed_cycle_resumes_at_the_unfinished_action():
    store, done, keys = MemoryStore(), [], []

    class Killed(BaseException):
        pass

    def stop(line, idempotency_key):
        done.append(line)
        keys.append(idempotency_key)
        if len(done) == 2:
            raise Killed
        return line

    async def stopping(line, idempotency_key):
        return stop(line, idempotency_key)

    plan = [action("stop", line, line=line) for line in (1, 2, 3)]
    for attempt in range(2):
        step = begun(store, "monitor-7")
        running = executed(agent(STOP), *plan, functions={"stop": stopping}, step=step)
        if attempt == 0:
            with pytest.raises(Killed):
                await running
        else:
            cycle = await running
    assert done == [1, 2, 2, 3]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3
    assert outcomes(cycle, "status", "result") == [("succeeded", 1), ("succeeded", 2), ("succeeded", 3)]


async def test_a_cancelled_cycle_stops():
    started, done = asyncio.Event(), []

    async def stop(line):
        started.set()
        await asyncio.sleep(30)
        done.append(line)

    work = asyncio.create_task(
        executed(agent(STOP), action("stop", line=1), action("stop", 2, line=2), functions={"stop": stop})
    )
    await started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert done == []


def test_idempotency_keys_differ_between_cycles():
    cycle, _ = cycle_of(agent(LOG))
    others = [
        replace(cycle, id="8"),
        replace(cycle, spec=cycle.spec.model_copy(update={"name": "other"})),
    ]
    keys = [one.idempotency_key("act", 0, "note") for one in (cycle, *others)]
    keys += [
        cycle.idempotency_key(*place) for place in (("b", 0, "note"), ("act", 1, "note"), ("act", 0, "c"))
    ]
    assert len(set(keys)) == 6
    assert replace(cycle, number=8).idempotency_key("act", 0, "note") == keys[0]
