"""The features that `support.killing` kills: a run, workflows, a cycle and an evaluation."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from hashlib import sha256

from redraft import (
    Agent,
    Draft,
    Ensemble,
    EvalCase,
    Evaluation,
    Lessons,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    TokenUsage,
    reflect,
)
from redraft import _files as files
from redraft._codec import to_json
from redraft._steps import answer
from redraft._tasks import end_tasks
from redraft.cycles import CycleAgent, LongTermStorage, outbox, write_behind
from redraft.cycles.agents import AgentHandle
from redraft.cycles.mail import AgentMessage, pending_mail
from redraft.cycles.spec import AgentSpec
from redraft.errors import StoreError
from redraft.lessons.due import DUE
from redraft.loop.journal import Journalled
from redraft.loop.runs import Runs
from redraft.models.embed import ScriptedEmbedder
from redraft.notes.store import SqliteReflectionStore
from redraft.notes.task import Task, TaskIdentity
from redraft.protocols import ChatReply, ChatRequest, ReflectionCallbacks
from redraft.protocols import ReflectionDecision as Decision
from redraft.stores.postgres import PostgresStore
from redraft.stores.sqlite import SqliteStore
from redraft.types import Message, PlainTask
from redraft.workflow import Approvals, Workflow
from support.ensembles import REPLY
from support.killed_agent import AGENT
from support.killing import effects, watched
from support.learning_agents import SYSTEMIC

USAGE = TokenUsage(3, 2, requests=1)


class Feature:
    """Something with effects that a journal records.

    `run` returns what came of it, as JSON; it is the same for each process that comes to its end.
    """

    at_once = 0
    """How many effects may overlap, so that their order says nothing: `recorded` says which are finished."""
    free = frozenset()
    """Effects that may be repeated although they are finished."""
    leaves_threads = False
    """Whether threads are left when it has ended, such as those of a project's store."""
    is_shared = False
    """Whether two processes may work on the same at once."""
    kinds = r"after "
    """The beginning of the names of points that differ from those of other features."""

    def __init__(self, database=""):
        self.database = database

    def prepare(self, folder):
        """Write the files of the feature."""

    def stage(self, name):
        """The name of the stage that an effect belongs to; a stage's effects overlap."""
        return name

    def recorded(self, folder):
        """The effects that the journal has as finished."""
        return set()

    async def run(self, folder, killer):
        raise NotImplementedError

    def store(self, folder, killer):
        if self.database:
            return watched(PostgresStore, killer, self.database, folder.name)
        return watched(SqliteStore, killer, folder / "redraft.db")


class Loop(Feature):
    """A run with model calls inside steps, a judge asked twice at once, and a person who is asked."""

    is_shared = True

    def stage(self, name):
        return name.removesuffix(" a").removesuffix(" b")

    async def run(self, folder, killer):
        async def model(request):
            await killer.effect(request.messages[0].content, 0.0005)
            return ChatReply(f"reply to {request.messages[0].content}", usage=USAGE)

        async def ask(what):
            return await answer(model, ChatRequest((Message("user", what),)))

        async def generate(prompt):
            return Draft("draft 1", (await ask("generate 1")).usage)

        async def evaluate(output):
            number = int(output.split()[-1])
            await asyncio.gather(ask(f"judge {number} a"), ask(f"judge {number} b"))
            return number / 10, f"number {number}"

        async def revise(output, evaluation):
            number = int(output.split()[-1]) + 1
            outline = await ask(f"outline {number}")
            text = await ask(f"revise {number}")
            return Draft(f"draft {number}", outline.usage + text.usage)

        class Person(ReflectionCallbacks):
            async def on_reflection(self, evaluation, iteration):
                await killer.effect(f"person {iteration}")
                return Decision.CONTINUE

        store = self.store(folder, killer)
        result = await reflect(
            "Count.",
            generate=generate,
            evaluate=evaluate,
            revise=revise,
            pattern=ReflectionPattern(max_iterations=2, callbacks=Person()),
            step=Journalled(store, "killed"),
        )
        stored = [[run.status, len(run.versions)] for run in await Runs(store).find()]
        await store.aclose()
        outputs = [[version.output, to_json(version.token_usage)] for version in result.history.versions]
        return [outputs, str(result.convergence_reason), to_json(result.token_usage), stored]


WORKFLOW = """
name: killed
nodes:
  - name: begin
    uses: effect
    with: {name: begin}
    output: begun
  - name: profile
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: m, prompt: "Draft for {{ state.begun }}"}
      evaluator: {type: schema, schema: {type: object, required: [a, b, c]}}
      corrector: {action: correct, apply: replace}
  - name: again
    uses: effect
    with: {name: "again {{ state.rounds | default(0) }}"}
    max_visits: 2
  - name: count
    uses: count
    output: rounds
    goto: [{if: state.rounds < 2, to: again}]
"""


class Steps(Feature):
    """A workflow with a loop inside, a correction in code, and nodes that are visited twice."""

    async def run(self, folder, killer):
        async def effect(state, name):
            await killer.effect(name)
            return name

        async def model(request):
            await killer.effect(request.messages[0].content.partition("\n")[0])
            return ChatReply('{"a": 1}', usage=USAGE)

        async def correct(state):
            await killer.effect(f"correct {state['reflection_iteration']}")
            return state["reflection_output"] | {"abc"[state["reflection_iteration"] - 1]: 1}

        async def count(state):
            await killer.effect(f"count {state.get('rounds', 0)}")
            return state.get("rounds", 0) + 1

        store = self.store(folder, killer)
        actions = {"effect": effect, "correct": correct, "count": count}
        workflow = Workflow.from_text(WORKFLOW, actions=actions, models={"m": model}, keep=store)
        result = await workflow.run({"asked": 1}, run_id="killed")
        runs = [[run.status, len(run.versions), run.parent] for run in await Runs(store).find()]
        stored = [record.data["status"] for record in await store.find("workflow")]
        await store.aclose()
        return [result.state, list(result.nodes), result.usage.total_tokens, runs, stored]


ITEMS = """
name: items
nodes:
  - name: ask
    map: state.them
    concurrency: 4
    uses: llm.call
    retries: {times: 1, wait: 0}
    with: {model: m, prompt: "Say {{ item }}"}
    output: said
  - name: judge
    map: state.them
    concurrency: 4
    uses: reflection.loop
    with:
      generator:
        action: llm.call
        model: m
        prompt: "Write {{ item }}, try {{ state.reflection_iteration }}"
      evaluator: {type: schema, schema: {minLength: 99}}
      max_iterations: 2
    output: judged
"""
OUTER = """
name: outer
outputs: {letters: array}
nodes:
  - name: letters
    map: state.them
    concurrency: 3
    uses: ./inner.yaml
    with: {x: "{{ item }}"}
"""
INNER = """
inputs: {x: string}
outputs: {sent: {type: string}, by: {value: "{{ state.decision.by }}"}}
nodes:
  - {name: write, uses: llm.call, with: {model: m, prompt: "Write {{ state.x }}"}, output: text}
  - {name: check, uses: human.approve, with: {message: "Send {{ state.x }}?"}, output: decision}
  - name: send
    when: state.decision.approved
    uses: llm.call
    with: {model: m, prompt: "Send {{ state.x }}"}
    output: sent
"""


def records_in(folder, kind, name="redraft.db"):
    """The data of the records of a kind, read from the file of a store."""
    if not (folder / name).exists():
        return []
    with closing(sqlite3.connect(folder / name)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchall():
            return []
        rows = database.execute("SELECT data FROM records WHERE kind = ?", [kind]).fetchall()
    return [json.loads(data) for (data,) in rows]


def calls_in(folder):
    """The requests of the model calls whose replies are in a store."""
    steps = records_in(folder, "step")
    return [step["given"][0] for step in steps if step["name"].startswith("model ") and "result" in step]


class Items(Feature):
    """A workflow whose items call models at once, in a node and in a loop."""

    at_once = 4
    file = "items.yaml"
    count = 6

    def prepare(self, folder):
        for name, text in (("items.yaml", ITEMS), ("outer.yaml", OUTER), ("inner.yaml", INNER)):
            (folder / name).write_text(text)

    def recorded(self, folder):
        return {call["messages"][0]["content"].partition("\n")[0] for call in calls_in(folder)}

    async def run(self, folder, killer):
        async def model(request):
            name = request.messages[0].content.partition("\n")[0]
            await killer.effect(name, int(sha256(name.encode()).hexdigest()[:2], 16) / 64_000)
            return ChatReply("said", usage=USAGE)

        store = self.store(folder, killer)
        approvals = Approvals(store)
        workflow = Workflow.from_file(folder / self.file, models={"m": model}, keep=store)
        them = [f"item {at}" for at in range(self.count)]
        while True:
            result = await workflow.run({"them": them}, run_id="killed")
            if result.status != "waiting":
                break
            waiting = await approvals.waiting()
            await approvals.answer(waiting[0], approved=True, by="Ada")
        asked = len(await store.find("approval"))
        await store.aclose()
        found = result.outputs.get("letters") or [result.state["said"], result.state["judged"]]
        return [result.status, found, result.usage.total_tokens, asked]


class Inside(Items):
    """Workflows in another file, at once, each of which asks a person."""

    file = "outer.yaml"
    count = 4


class Cycle(Feature):
    """An agent whose second cycle builds on its first; in PostgreSQL, if there is a `database`."""

    leaves_threads = True
    free = frozenset({"1 look", "2 look"})
    """A source that is read quickly is stored with the next step."""

    def prepare(self, folder):
        (folder / "redraft.toml").touch()
        (folder / "agent.yaml").write_text(AGENT.replace("name: killed", f"name: {folder.name}", 1))

    async def run(self, folder, killer):
        def number():
            return len(agent.memory.of("recentActions")) // 2 + 1

        def look():
            killer.note(f"{number()} look")
            return {"rate": 9}

        def act(what, key):
            keys = folder / f"{number()} {what}.keys"
            with keys.open("a") as file:
                file.write(f"{key}\n")
            killer.note(f"{number()} {what}")

        def first(idempotency_key):
            act("first", idempotency_key)

        def second(idempotency_key):
            act("second", idempotency_key)

        async def reply(request):
            what = "plan" if request.messages[-1].content.startswith("Plan") else "learn"
            await killer.effect(f"{number()} {what}")
            if what == "plan":
                return '{"actions": ["first", "second"]}'
            return '{"newPatterns": [{"description": "rates are high", "confidence": 0.5}]}'

        agent = CycleAgent.from_file(
            folder / "agent.yaml",
            functions={"look": look, "first": first, "second": second},
            models={"scripted": ScriptedModel(reply)},
            storage=LongTermStorage(self.database) if self.database else "project",
        )
        async with agent:
            while number() < 3:
                await agent.run_cycle()
            memory = agent.memory
            actions = [one["action"] for one in memory.of("recentActions")]
        # As it is stored: a process that was killed after the last cycle began none.
        [last] = await AgentHandle(agent._location).cycles(limit=1)
        keys = [{*path.read_text().split()} for path in folder.glob("*.keys")]
        return [
            last.number,
            last.status,
            actions,
            len(memory.of("patterns")),
            [len(of_one) for of_one in keys],
            len(set.union(*keys)),
        ]


ORDER = {
    "type": "function",
    "name": "order",
    "function": "order",
    "with": {"packs": "{{action.params.packs}}"},
}
ASKS = {
    "name": "killed",
    "stages": {
        "reason": [
            {
                "type": "plan",
                "name": "plan",
                "config": {"rules": [{"action": "order", "params": {"packs": 1}}]},
            },
            {"type": "authorize", "name": "ask", "config": {"mode": "controlled"}},
        ],
        "actuate": [
            {
                "type": "execute",
                "name": "act",
                "config": {"actions": [ORDER]},
            }
        ],
        "reflect": [{"type": "update-state", "name": "keep"}],
    },
}


def agent_spec(document, **more):
    """The spec of an agent whose stages are lists of substages."""
    stages = {stage: {"substages": parts} for stage, parts in document["stages"].items()}
    return AgentSpec.model_validate(document | {"stages": stages} | more)


class Question(Feature):
    """Two cycles whose plans a person decides on: while the process waits, or after it was killed."""

    async def run(self, folder, killer):
        def order(packs, idempotency_key):
            with (folder / "keys").open("a") as file:
                file.write(f"{packs} {idempotency_key}\n")
            killer.note(f"orders {packs}")

        store = self.store(folder, killer)
        agent = CycleAgent(agent_spec(ASKS), functions={"order": order}, storage=store)
        person = AgentHandle(agent._location)

        async def decide():
            for _ in await person.questions():
                [cycle] = await person.cycles(limit=1)
                killer.note(f"decides on {cycle.number}")
                if cycle.number == 1:
                    await person.send_feedback("modify", "two", changes={"packs": 2})
                else:
                    await person.send_feedback("reject", "no more")

        async def sits():
            while True:
                await decide()
                await asyncio.sleep(0.005)

        await decide()  # what an earlier process has asked
        sitting = asyncio.create_task(sits())
        async with agent:
            while (await agent.open()).number < 2:
                await agent.run_cycle()
            history = {item["message"]: item["verdict"] for item in agent.memory.of("feedbackHistory")}
        await end_tasks([sitting])
        authorities = [
            cycle.derived_data["governance"]["authority"]["decision"] for cycle in await person.cycles()
        ]
        await store.aclose()
        keys = {*(folder / "keys").read_text().splitlines()}
        return [history, authorities, [key.split()[0] for key in keys]]


ALERTS = {
    "name": "killed",
    "stages": {
        "actuate": [
            {
                "type": "execute",
                "name": "act",
                "config": {"actions": [{"name": "warn", "type": "alert", "message": "cycle {{ cycle }}"}]},
            }
        ],
        "reflect": [{"type": "update-state", "name": "keep"}],
    },
}
HEARS = {
    "name": "listener",
    "triggers": [{"type": "message", "topic": "alerts"}],
    "stages": {"sense": [{"type": "agent-messages", "name": "heard", "config": {"topic": "alerts"}}]},
}


class Deliveries(Feature):
    """Two cycles whose alerts people and another agent get at the third attempt."""

    at_once = 2
    leaves_threads = True

    def recorded(self, folder):
        notices, messages = (
            [record["data"] for record in records_in(folder, kind) if record.get("is_over")]
            for kind in ("notice", "outbox")
        )
        of_messages = {f"message {message['data']['cycle']}" for message in messages}
        return of_messages | {f"notice {one['cycle']}" for one in notices}

    async def run(self, folder, killer):
        outbox.MIN_RETRY = 0.02

        def refuses(name):
            refused = sum(one.startswith(f"{name} refused") for one in effects(folder))
            killer.note(f"{name} refused {refused}" if refused < 2 else name)
            return refused < 2

        class Mailbox(SqliteStore):
            async def put_if_absent(self, record):
                if record.kind == "message" and refuses(f"message {record.data['data']['cycle']}"):
                    raise StoreError("the disk is full")
                return await super().put_if_absent(record)

        async def answer(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
            body = json.loads(await reader.readexactly(length))
            status = b"503 Busy" if refuses(f"notice {body['data']['cycle']}") else b"200 OK"
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
            writer.close()

        hook = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{hook.sockets[0].getsockname()[1]}/"
        store, mailbox = self.store(folder, killer), Mailbox(folder / "listener.db")
        listener = CycleAgent(agent_spec(HEARS), storage=mailbox)
        async with listener:
            pass
        agent = CycleAgent(agent_spec(ALERTS, notify={"url": url}), storage=store)
        async with agent:
            while (await agent.open()).number < 2:
                await agent.run_cycle()
            while left := await AgentHandle(agent._location).undelivered():  # noqa: ASYNC110 (a poll)
                await asyncio.sleep(0.005)
        messages = [one.data["message"] for one in await pending_mail(mailbox, AgentMessage, 100)]
        hook.close()
        await store.aclose()
        await mailbox.aclose()
        return [messages, len(left)]


CLEAR = QualityCriterion("clear", "Is it clear?")
SHORT = QualityCriterion("short", evaluator="regex", evaluator_config={"pattern": "revised"})
VERDICT = (
    '{"criteria": {"clear": {"reason": "so", "score": 1}}, "issues": [], "suggestions": [], "confidence": 1}'
)


class Cases(Feature):
    """An evaluation of three cases; a judge grades, so that grading is paid for, too."""

    async def run(self, folder, killer):
        async def model(request):
            asked = "\n".join(message.content for message in request.messages)
            await killer.effect(f"{request.role} {sha256(asked.encode()).hexdigest()[:8]}")
            replies = {"generation": "draft", "revision": "revised", "evaluation": VERDICT}
            return ChatReply(replies[request.role], usage=TokenUsage(5, 5, requests=1))

        store = self.store(folder, killer)
        cases = [EvalCase(f"c{n}", PlainTask(f"Task {n}."), (SHORT,), (CLEAR,)) for n in range(3)]
        agent = Agent(model, pattern=ReflectionPattern(2), keep=False, name="w")
        report = await Evaluation(cases, agent, concurrency=1, model=model, store=store, run_id="e").run()
        await store.aclose()
        return [len(report.tries), report.figures[0].mean_passed, report.usage.requests]


TEA, LAMP = PlainTask("Order tea.", task_type="orders"), PlainTask("Order a lamp.", task_type="orders")
IN_DIGITS = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": r": \d+$"})


class Reflection(Feature):
    """A run that fails and has to be reflected on, then another one; both are resumed in this order."""

    at_once = 1
    is_resumed = True

    def recorded(self, folder):
        return {
            f"{call.get('role', 'generation')} {'lamp' in call['messages'][-1]['content']}"
            for call in calls_in(folder)
        }

    async def run(self, folder, killer):
        async def model(request):
            is_lamp = "lamp" in request.messages[-1].content
            await killer.effect(f"{request.role} {is_lamp}")
            replies = {"generation": "lamp: 1" if is_lamp else "tea: two", "reflection": json.dumps(SYSTEMIC)}
            return ChatReply(replies[request.role], usage=USAGE)

        def write(path, data):
            killer.passes(f"before {path.suffix} file")
            write_file(path, data)
            killer.passes(f"after {path.suffix} file")

        write_file, files._write = files._write, write
        store, again = self.store(folder, killer), bool(effects(folder))
        owed = len(records_in(folder, DUE))
        lessons = Lessons(
            folder / "memory", agent="clerk", store=store, embedder=ScriptedEmbedder(), trusted=True
        )
        hidden = owed - len(await lessons.due())
        # A run that recalled lessons before this one was due stays without it when it is resumed.
        has_begun = bool(await store.find("step", prefix="lamp/"))
        pattern = ReflectionPattern(max_iterations=0, quality_criteria=[IN_DIGITS])
        agent = Agent(model, pattern=pattern, lessons=lessons, keep=store, name="clerk")
        runs = [(TEA, "tea"), (LAMP, "lamp")]
        if again and not self.is_resumed:
            runs.reverse()
        results = [await agent.run(task, run_id=run_id) for task, run_id in runs]
        is_told = bool(results[0].advice) or not owed or self.is_resumed or has_begun
        filed, due, rules = (
            await lessons.find(),
            await lessons.due(),
            folder / "memory/reflections/clerk/rules.md",
        )
        steps = [record for record in records_in(folder, "step") if record["name"].startswith("lesson ")]
        await lessons.aclose()
        await store.aclose()
        files._write = write_file
        return [hidden, is_told, len(filed), len(due), rules.read_text().count("next_cursor"), len(steps)]


class LaterReflection(Reflection):
    """The same, but it is a later run that goes on from there."""

    is_resumed = False
    kinds = r"after .*(lesson|reflection|file)"


class TwoTasks(Feature):
    """An ensemble: a task whose output a person refuses once, and one that builds on it and leaves a note."""

    at_once = 1

    def recorded(self, folder):
        calls = {
            f"{call.get('role', 'generation')} {_task_of(call['messages'])}" for call in calls_in(folder)
        }
        steps = [record["name"] for record in records_in(folder, "step")]
        verdicts = sum(name.startswith("acceptance ") for name in steps)
        return calls | {*["review outline", "review better outline"][:verdicts]}

    async def run(self, folder, killer):
        async def model(request):
            task = _task_of(to_json(request)["messages"])
            await killer.effect(f"{request.role} {task}")
            note = REPLY.format(description="Report the sum of the table")
            outline = "better outline" if request.role == "revision" else "outline"
            replies = {"outline": outline, "report": "The sum is 4.", "note": note}
            return ChatReply(replies[task], usage=USAGE)

        async def review(output):
            await killer.effect(f"review {output}")
            return output == "better outline"

        store = self.store(folder, killer)
        notes = SqliteReflectionStore(folder / "notes.db")
        outline = Task("Outline the table.", review=review)
        report = Task("Report the sum.", expected_output="One sentence.", context=[outline], reflect=True)
        ensemble = Ensemble(model, [outline, report], notes, keep=store)
        result = await ensemble.run(run_id="killed")
        written = len(await notes.revisions(TaskIdentity.of(report)))
        await store.aclose()
        await notes.aclose()
        outputs = [[one.output, one.attempts, one.run_id] for one in result.results]
        return [outputs, written, result[report].reflection.run_count, to_json(result.usage)]


def _task_of(messages):
    """Return which of the two tasks a request is about, or that it is about the note."""
    text = messages[-1]["content"]
    if "task prompt optimization specialist" in text:
        return "note"
    return "report" if "Report the sum" in text else "outline"


# On a busy machine, a database that is late is not away.
write_behind.OPEN_TIMEOUT = write_behind.ANSWER_TIMEOUT = 60.0

FEATURES = {
    "run": Loop,
    "workflow": Steps,
    "items of a workflow": Items,
    "workflows inside": Inside,
    "cycle": Cycle,
    "question of a cycle": Question,
    "deliveries of a cycle": Deliveries,
    "evaluation": Cases,
    "reflection": Reflection,
    "reflection in a later run": LaterReflection,
    "ensemble": TwoTasks,
}
