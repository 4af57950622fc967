"""Questions to people: how a run waits for an answer, and goes on with it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redraft import ConfigError, MemoryStore, SqliteStore
from redraft._codec import to_record
from redraft.approvals import ANSWER, APPROVAL, Approval
from redraft.errors import OutputError, WorkflowError
from redraft.loop.record import Process
from redraft.stores.base import Record
from redraft.workflow import Approvals, HumanAnswer, Workflow, Workflows
from redraft.workflow.history import LAUNCH, Launch
from support.commands import document, redraft
from support.dashboards import Seen, pages
from support.memory_stores import damage
from support.workflows import making

TEXT = """
name: send
nodes:
  - {name: write, uses: work, output: text}
  - name: check
    uses: human.approve
    with: {message: "Send {{ state.text }}?", data: "{{ state.text }}"%s}
    output: decision
    on_error: %s
  - {name: send, when: state.decision.approved, uses: work, output: sent}
"""


def made(store, work=None, more="", on_error="raise", approver=None):
    actions = {"work": work or making("a letter", "done")}
    return Workflow.from_text(TEXT % (more, on_error), actions=actions, keep=store, approver=approver)


async def answered(store, **answer):
    approvals = Approvals(store)
    return await approvals.answer(await approvals.get("last"), **answer)


async def overdue(store, approval):
    """Store a question again as if its deadline had passed."""
    approval = replace(approval, deadline=approval.asked_at)
    await store.put(approval.stored())
    return approval


def test_a_damaged_question_or_answer_hides_no_other():
    store = MemoryStore()
    approval = Approval("r.1", "r", "send", "check", "Send?", datetime.now(UTC))

    async def main():
        await store.put(Record(APPROVAL, "r.0", {"status": "waiting"}))
        await store.put(Record(ANSWER, "r.2", {"approved": "perhaps"}))
        asked = await Approvals(store).ask(approval)
        assert await Approvals(store).waiting() == [asked]
        assert await Approvals(store).answers("r") == {}
        answer = await Approvals(store).answer(asked, approved=True)
        assert await Approvals(store).answers("r") == {"r.1": answer}
        assert await Approvals(store).waiting() == []

    asyncio.run(main())


def test_a_run_waits_and_the_answer_resumes_it():
    store, work, events = MemoryStore(), making("a letter", "done"), []
    workflow = made(store, work)
    result = workflow.run_sync(run_id="r", on_event=events.append)
    (approval,) = result.waiting
    assert (result.status, result.nodes, result.state) == ("waiting", ("write",), {"text": "a letter"})
    assert (approval.run_id, approval.workflow, approval.node) == ("r", "send", "check")
    assert (approval.message, approval.data) == ("Send a letter?", "a letter")
    assert events[-1].result.waiting == (approval,)

    again = workflow.run_sync(run_id="r")
    assert (again.waiting, len(work.seen)) == ((approval,), 1)

    asyncio.run(answered(store, approved=True, comment="Fine.", by="Ada"))
    done = workflow.run_sync(run_id="r")
    decision = done.state["decision"]
    assert datetime.fromisoformat(decision.pop("at")) <= datetime.now(UTC)
    assert decision == {
        "approved": True,
        "value": "a letter",
        "comment": "Fine.",
        "by": "Ada",
        "timed_out": False,
        "proof": "",
    }
    assert (done.status, done.state["sent"], len(work.seen)) == ("finished", "done", 2)
    assert asyncio.run(Approvals(store).waiting()) == []


def test_a_rejected_question():
    store = MemoryStore()
    made(store).run_sync(run_id="r")
    asyncio.run(answered(store, approved=False))
    result = made(store).run_sync(run_id="r")
    assert (result.state["decision"]["approved"], "sent" in result.state) == (False, False)


def test_another_value_is_approved():
    store = MemoryStore()
    made(store).run_sync(run_id="r")
    asyncio.run(answered(store, approved=True, value={"b": [1]}))
    assert made(store).run_sync(run_id="r").state["decision"]["value"] == {"b": [1]}


def test_the_first_answer_counts():
    store = MemoryStore()
    (approval,) = made(store).run_sync(run_id="r").waiting

    async def twice():
        approvals = Approvals(store)
        await approvals.answer(approval, approved=True, by="Ada")
        await approvals.answer(approval, approved=False, by="Bob")

    with pytest.raises(ConfigError, match="has already been answered: approved by Ada"):
        asyncio.run(twice())
    assert made(store).run_sync(run_id="r").state["decision"]["by"] == "Ada"


@pytest.mark.parametrize(("default", "approved"), [("approve", True), ("reject", False)])
def test_after_the_deadline_the_default_is_the_answer(default, approved):
    store = MemoryStore()
    workflow = made(store, more=f", deadline: 0.05, default: {default}")
    assert workflow.run_sync(run_id="r").status == "waiting"
    result = workflow.run_sync(run_id="r", wait=True)
    decision = result.state["decision"]
    assert (decision["approved"], decision["timed_out"], decision["by"]) == (approved, True, "")


def test_the_deadline_of_a_question_from_the_future_counts_from_now():
    approvals, now = Approvals(MemoryStore()), datetime.now(UTC)
    minute = timedelta(minutes=1)

    async def main():
        new = Approval("r.1", "r", "w", "n", "Send?", now, deadline=now + minute, default="reject")
        later = now + timedelta(days=9_000)
        await approvals.ask(replace(new, asked_at=later, deadline=later + minute))
        assert await approvals.ask(new) == new
        assert await approvals.waiting() == [new]
        again = replace(new, asked_at=now + minute / 2, deadline=now + minute * 1.5)
        assert await approvals.ask(again) == new  # an ordinary difference: it goes on

    asyncio.run(main())


def test_a_deadline_beyond_the_calendar_is_none():
    (approval,) = made(MemoryStore(), more=", deadline: 1e300, default: reject").run_sync().waiting
    assert approval.deadline is None


def test_a_question_is_a_text_whatever_its_template_reads():
    text = "- {name: n, uses: human.approve, with: {message: '{{ state.x }}'}}"
    workflow = Workflow.from_text(text, keep=MemoryStore())
    (approval,) = workflow.run_sync({"x": {"price": 5}}).waiting
    assert approval.message == '{"price": 5}'


def test_without_a_default_the_node_fails_at_the_deadline():
    store = MemoryStore()
    with pytest.raises(OutputError, match=r"Nobody answered before the deadline: Send a letter\?"):
        made(store, more=", deadline: 0.05").run_sync(run_id="r", wait=True)
    result = made(MemoryStore(), more=", deadline: 0.05", on_error="end").run_sync(run_id="s", wait=True)
    assert result.state["error"]["node"] == "check"


def test_an_answer_after_the_deadline_is_too_late():
    store = MemoryStore()
    (approval,) = made(store, more=", deadline: 100, default: reject").run_sync(run_id="r").waiting
    assert approval.deadline - approval.asked_at == timedelta(seconds=100)

    async def late():
        await Approvals(store).answer(await overdue(store, approval), approved=True)

    with pytest.raises(ConfigError, match="has already been answered: rejected when its deadline passed"):
        asyncio.run(late())


@pytest.mark.parametrize("default", [", default: approve", ""])
def test_a_question_past_its_deadline_is_not_listed(default):
    store = MemoryStore()
    (approval,) = made(store, more=f", deadline: 100{default}").run_sync(run_id="r").waiting
    approval = asyncio.run(overdue(store, approval))
    assert asyncio.run(Approvals(store).waiting()) == []
    words = Seen(pages(store).get("/workflows/r").text).words
    assert "Nothing is left to answer" in words
    assert "Questions" not in words
    with pytest.raises(ConfigError, match="deadline"):
        asyncio.run(Approvals(store).answer(approval, approved=True))


def test_a_question_whose_answer_was_stored_before_a_crash_is_not_listed():
    store = MemoryStore()
    (approval,) = made(store).run_sync(run_id="r").waiting
    other = replace(approval, id="r.other")
    answer = HumanAnswer(approved=True, value="a letter", by="Ada")

    async def crash():
        await store.put(other.stored())
        await store.put(Record(ANSWER, approval.id, to_record(answer)))  # the status of the question is next
        return await Approvals(store).waiting("r")

    assert asyncio.run(crash()) == [other]
    assert made(store).run_sync(run_id="r").state["decision"]["by"] == "Ada"


def launched(store, *words):
    """Store the command that began the run `r`, and whose process is this one."""
    launch = Launch(("run", "w.yaml", *words), ".", Process.this())
    asyncio.run(store.put(Record(LAUNCH, "r", to_record(launch))))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "No process is waiting. Once all is answered, redraft resume r continues the workflow."),
        (("--wait",), "The process that is waiting for the answer continues the workflow by itself."),
    ],
)
def test_the_dashboard_says_what_goes_on_with_the_run(words, message):
    store = MemoryStore()
    (approval,) = made(store, more=", deadline: 999, default: reject").run_sync(run_id="r").waiting
    launched(store, *words)
    client = pages(store)
    shown = Seen(client.get("/workflows/r").text).words
    assert message in shown
    assert ", then rejected" in shown
    response = client.post(f"/approvals/{approval.id}", json={"verdict": "approve"}).json()
    assert response["message"] == f"Approved. {message}"


def test_a_run_that_waits_here_goes_on_with_the_answer(monkeypatch):
    monkeypatch.setattr("redraft.approvals.POLL", 0.01)
    store = MemoryStore()

    async def both():
        running = asyncio.create_task(made(store).run(run_id="r", wait=True))
        while not await Approvals(store).waiting("r"):  # noqa: ASYNC110 (what the store has is the point)
            await asyncio.sleep(0.01)
        await answered(store, approved=True, by="Ada")
        return await asyncio.wait_for(running, 60)

    assert asyncio.run(both()).state["sent"] == "done"


@pytest.mark.parametrize(
    ("answer", "by"), [(True, "program"), (HumanAnswer(approved=True, value="a letter", by="Ada"), "Ada")]
)
@pytest.mark.parametrize("keep", [True, False])
def test_a_function_of_the_program_answers(answer, by, keep):
    asked = []

    async def approver(approval):
        asked.append(approval.message)
        return answer

    result = made(MemoryStore() if keep else False, approver=approver).run_sync()
    assert (asked, result.state["decision"]["by"]) == (["Send a letter?"], by)
    assert result.state["sent"] == "done"


def test_a_function_may_leave_the_answer_to_a_person():
    assert made(MemoryStore(), approver=lambda approval: None).run_sync().status == "waiting"


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    "odd",
    [
        {"approved": "maybe"},
        {"approved": True, "value": float("nan")},
        {"approved": True, "comment": None},
        {"approved": True, "by": 5},
    ],
)
def test_an_answer_that_cannot_be_stored_is_refused_and_may_be_given_again(odd, keep):
    store, why = MemoryStore(), rf"{[*odd][-1]}\b.*(must be|is not JSON)"
    workflow = made(keep and store, approver=lambda approval: HumanAnswer(**odd))
    with pytest.raises(WorkflowError, match=why):
        workflow.run_sync(run_id="r" if keep else None)
    if keep:
        assert made(store).run_sync(run_id="r").status == "waiting"
        with pytest.raises(ConfigError, match=why):
            asyncio.run(answered(store, **odd))
        asyncio.run(answered(store, approved=True))
        assert made(store).run_sync(run_id="r").state["decision"]["approved"]


def test_a_run_that_is_not_stored_can_not_wait():
    with pytest.raises(WorkflowError, match="the run is not stored, so no answer could resume it"):
        made(False).run_sync()


def test_items_that_wait_hold_up_no_others():
    text = """
    name: t
    nodes:
      - name: n
        map: [1, 2, 3]
        concurrency: 1
        uses: human.approve
        with: {message: "{{ item }}?"}
    """
    store = MemoryStore()
    workflow = Workflow.from_text(text, keep=store)
    result = workflow.run_sync(run_id="r")
    assert [approval.message for approval in result.waiting] == ["1?", "2?", "3?"]

    async def answer_all():
        approvals = Approvals(store)
        for number, approval in enumerate(await approvals.waiting("r")):
            await approvals.answer(approval, approved=number != 1)

    asyncio.run(answer_all())
    assert [item["approved"] for item in workflow.run_sync(run_id="r").state["n"]] == [True, False, True]


@pytest.mark.parametrize(
    ("data", "asked"), [("1", 1), ("'{{ state.n }}'", 3)], ids=["the same question", "other data"]
)
def test_another_try_of_a_file_asks_no_question_again(tmp_path, data, asked):
    (tmp_path / "inner.yaml").write_text(
        "name: inner\nnodes:\n- {name: count, uses: count, output: n}\n"
        f"- {{name: ask, uses: human.approve, with: {{message: 'Go on?', data: {data}}}, output: d}}\n"
        "- {name: work, uses: work, with: {ask: '{{ state.d.value }}'}}\n"
    )
    outer = tmp_path / "outer.yaml"
    outer.write_text("name: outer\nnodes:\n- {name: n, uses: ./inner.yaml, retries: {times: 2, wait: 0}}\n")
    store, tries = MemoryStore(), []

    def work(state, ask):
        tries.append(ask)
        if len(tries) < 3:
            raise ValueError("not yet")

    def count(state):
        return len(tries)

    async def main():
        workflow = Workflow.from_file(outer, keep=store, actions={"work": work, "count": count})
        result, questions = await workflow.run(), 0
        while result.status == "waiting":
            [question] = result.waiting
            questions += 1
            await Approvals(store).answer(question, approved=True, value=f"answer {questions}")
            result = await workflow.resume(result.run_id)
        return result.status, questions

    assert asyncio.run(main()) == ("finished", asked)
    assert tries == [f"answer {min(number, asked)}" for number in (1, 2, 3)]


def test_a_failure_that_was_handled_is_not_tried_again_after_the_answer():
    text = TEXT.replace("uses: work, output: text}", "uses: work, output: text, on_error: continue}")
    text = text.replace("state.text", "state.error.message")
    store, work = MemoryStore(), making(ValueError("no"), "done")
    workflow = Workflow.from_text(text % ("", "raise"), actions={"work": work}, keep=store)
    assert workflow.run_sync(run_id="r").status == "waiting"
    asyncio.run(answered(store, approved=True))
    assert workflow.run_sync(run_id="r").state["sent"] == "done"
    assert len(work.seen) == 2


FILE = """
name: file
nodes:
  - {name: write, run: 'return {"text": "a letter"}'}
  - name: check
    uses: human.approve
    with: {message: "Send it?", data: "{{ state.text }}"}
    output: decision
  - {name: tell, run: 'return state["decision"]["value"] if state["decision"]["approved"] else "not sent"'}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.yaml").write_text(FILE)
    return "file.yaml"


def test_a_person_sees_the_whole_text_that_waits(file):
    letter = " ".join(f"word{number}" for number in range(200))
    Path(file).write_text(FILE.replace("a letter", letter))
    redraft("run", file)
    assert letter in " ".join(redraft("approve").stdout.split())


def test_the_command_ends_waiting_and_approve_goes_on(file):
    ran = redraft("run", file)
    assert (ran.exit_code, ran.stdout) == (5, "")
    assert "check  asks: Send it?\nredraft approve " in ran.stderr
    assert "Waiting for an answer after 1 node." in ran.stderr
    (question,) = document(redraft("approve", "--json"))["waiting"]
    assert document(redraft("resume", "last", "--json"))["waiting"] == [question]
    assert (question["workflow"], question["node"], question["data"]) == ("file", "check", "a letter")
    assert "Send it?" in redraft("approve").stdout
    shown = redraft("show", "last").stdout
    assert "State: waiting" in shown
    assert question["id"] in shown
    assert "waiting" in redraft("runs", "--status", "waiting").stdout

    assert redraft("resume", "last").exit_code == 5
    approved = redraft("approve", question["id"], "--value", '"another"', "-m", "better")
    assert (approved.exit_code, approved.stdout) == (0, "another\n")
    assert redraft("approve").stderr == "Nothing is waiting for an answer.\n"
    again = redraft("approve", question["id"])
    assert again.exit_code == 2
    assert "has already been answered: approved by " in again.stderr


@pytest.mark.parametrize("words", [(), ("--reject",), ("--json",)])
def test_the_answer_to_a_program_is_stored_and_its_call_printed(file, words):
    asked = Workflow.from_file(file).run_sync(run_id="r")
    assert asked.waiting
    result = redraft("approve", "last", *words)
    assert (result.exit_code, "run_id='r')" in result.stdout) == (0, True), result.stderr
    assert "belongs to a program of yours" in result.stderr or words == ("--json",)
    sent = "not sent" if "--reject" in words else "a letter"
    assert Workflow.from_file(file).run_sync(run_id="r").state["tell"] == sent
    assert redraft("resume", "r").exit_code == 0


def test_the_list_says_until_when_an_answer_counts_and_what_comes_then(file, tmp_path):
    (tmp_path / file).write_text(FILE.replace('"Send it?",', '"Send it?", deadline: 86400, default: reject,'))
    redraft("run", file)
    (question,) = document(redraft("approve", "--json"))["waiting"]
    until = datetime.fromisoformat(question["deadline"]).astimezone()
    assert f", until {until:%Y-%m-%d %H:%M}, then rejected" in " ".join(redraft("approve").stdout.split())


def test_reject_and_leave_it_waiting(file):
    redraft("run", file)
    result = redraft("approve", "last", "--reject", "--no-resume")
    goes_on = "No process is waiting. Once all is answered, redraft resume "
    assert result.stderr.startswith(f"Rejected.\n{goes_on}")
    shown = " ".join(redraft("show", "last").stdout.split())
    assert "Nothing is left to answer" in shown
    assert goes_on in shown
    assert redraft("resume", "last").stdout == "not sent\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "There is no open question 'nothing'"),
        (("last", "--reject", "--value", "1"), "can't be combined with --reject"),
        (("last", "--value", "{"), "--value takes JSON, got '{': Expecting property name"),
        (("last", "--value", "hello"), "For text, write --value '\"hello\"'."),
        (("last", "--value", "it's"), "For text, write --value '\"it'\"'\"'s\"'."),
    ],
)
def test_answers_that_are_none(file, words, message):
    redraft("run", file)
    result = redraft("approve", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(document(redraft("approve", "--json"))["waiting"]) == 1


def test_a_run_that_is_not_stored_cannot_ask(file):
    result = redraft("run", file, "--no-keep")
    assert result.exit_code == 2
    assert "the run is not stored" in result.stderr


def test_the_dashboard_answers():
    store = MemoryStore()
    made(store).run_sync(run_id="r")
    client = pages(store)
    seen = Seen(client.get("/workflows/r").text)
    assert "Send a letter?" in seen.words
    (question,) = client.get("/workflows/r.json").json()["waiting"]
    place = f"/approvals/{question['id']}"
    values = ("{", "NaN", "[" * 100_000)
    wrongs = [{"verdict": "maybe"}, *({"verdict": "approve", "value": value} for value in values)]
    assert [client.post(place, json=wrong).status_code for wrong in wrongs] == [400] * len(wrongs)
    assert client.post("/approvals/none", json={"verdict": "approve"}).status_code == 404
    response = client.post(place, json={"verdict": "approve", "value": "[1]", "comment": "so"}).json()
    goes_on = "The program that started the workflow continues if it is waiting; if not, use"
    assert response["message"] == f"Approved. {goes_on} workflow.resume('r')."
    late = client.post(place, json={"verdict": "reject"})
    assert (late.status_code, "has already been answered: approved by dashboard" in late.text) == (400, True)
    assert "Nothing is left to answer" in Seen(client.get("/workflows/r").text).words
    assert goes_on in Seen(client.get("/workflows/r").text).words
    result = made(store).run_sync(run_id="r")
    assert (result.state["decision"]["value"], result.state["decision"]["by"]) == ([1], "dashboard")
    assert asyncio.run(Workflows(store).get("r")).record.status == "finished"


def test_a_question_in_a_store_of_the_users_own_is_answered_with_database(project):
    workflow = made(SqliteStore("own.db"))
    workflow.run_sync(run_id="r")
    assert redraft("approve", "last").exit_code == 2
    assert "Send a letter?" in redraft("approve", "--database", "own.db").stdout
    done = redraft("approve", "last", "--no-resume", "--database", "own.db")
    assert (done.exit_code, "Approved." in done.stderr) == (0, True), done.output
    assert workflow.run_sync(run_id="r").state["sent"] == "done"


def test_a_damaged_question_keeps_no_other_from_being_asked():
    store = MemoryStore()
    assert made(store).run_sync(run_id="a").status == "waiting"
    damage(store, APPROVAL)
    assert made(store).run_sync(run_id="b").status == "waiting"
