"""Cycles for the tests of single substages: a scripted bus, a model, functions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from redraft._steps import direct
from redraft.approvals import HumanAnswer
from redraft.cycles.cycle import DERIVED, Cycle, CycleState, Runtime
from redraft.cycles.egress import Egress
from redraft.cycles.spec import AgentSpec
from redraft.loop.journal import Journalled, StepRecords
from redraft.models.testing import ScriptedModel

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def begun(store, run_id, **more):
    """The journal of a cycle, which stores its own record."""
    return Journalled(store, run_id, log=StepRecords(store, run_id), **more)


class ScriptedBus:
    """A bus with prepared messages and verdicts, which records what was published and waited for.

    A verdict of None is a wait that ends without one.
    """

    def __init__(self, messages=(), verdicts=()):
        self.ready = list(messages)
        self.verdicts = list(verdicts)
        self.published = []
        self.told = []
        self.waits = []

    async def messages(self, topic, most, /):
        return [message for message in self.ready if topic in (None, message.topic)][-most:]

    async def publish(self, topic, data, key, /):
        self.published.append((topic, data, key))
        return True

    async def notify(self, notice, /):
        self.told.append(notice)

    async def ask(self, questions, within, /):
        self.waits.append((within, [question.node for question in questions]))
        answers = {}
        while len(answers) < len(questions) and (verdict := self.verdicts.pop(0)) is not None:
            for question in questions:
                about = verdict.action in (None, question.node, question.message.split()[0].rstrip(":"))
                if about and question.id not in answers:
                    own = {
                        key: value
                        for key, value in (verdict.changes or {}).items()
                        if key in question.data or not any(key in one.data for one in questions)
                    }
                    value = {**question.data, **own}
                    approved = verdict.verdict != "reject"
                    answers[question.id] = HumanAnswer(approved, value, verdict.message, verdict.by)
        return answers


def spec_of(**stages):
    """The spec of an agent with these stages, each a list of substages: `reason=[{...}]`."""
    parts = {stage: {"substages": substages} for stage, substages in stages.items()}
    return AgentSpec.model_validate({"name": "monitor", "description": "Watches.", "stages": parts})


def cycle_of(spec, *, replies=(), bus=None, functions=None, folder=".", step=direct, redact=None, **state):
    """Return cycle 7 of an agent, and the model that answers it; `payload` and `memory` are of its state."""
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies)
    bus = bus or ScriptedBus()
    runtime = Runtime(
        functions=functions or {},
        model_for=lambda name: model,
        bus=bus,
        outbox=bus,
        egress=Egress(no_lease, lambda: NOON, unsaved),
        folder=Path(folder),
        clock=lambda: NOON,
        redact=redact or (lambda data: data),
    )
    data = CycleState(
        {"payload": state.get("payload", {}), "errors": []},
        {**{key: {} for key in DERIVED}, **state.get("derived", {})},
        state.get("memory", {}),
    )
    return Cycle(spec, "7", 7, NOON, data, runtime, step), model


async def no_lease():
    """Check no lease: nobody else runs the agent."""


async def unsaved(records):
    """Save nothing: what was done is not counted by a later process."""


def substages(spec, stage):
    return getattr(spec.stages, stage).substages


def run(coroutine):
    """Run a coroutine with a time limit."""
    return asyncio.run(asyncio.wait_for(coroutine, 120))
