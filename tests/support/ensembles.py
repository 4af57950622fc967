"""Models that tell tasks from reflections, and a strategy without a model, for the tests of ensembles."""

from __future__ import annotations

import logging

from redraft import ScriptedModel
from redraft.notes import ReflectionConfig, TaskReflection

REPLY = """REFINED_DESCRIPTION:
{description}, with sources

REFINED_EXPECTED_OUTPUT:
A report with links

OBSERVATIONS:
- The reader had no sources

SUGGESTIONS:
- Name a source for each trend
"""


BETTER_REPLY = REPLY.format(description="Research AI trends in 2025")


def is_reflection(request):
    return "task prompt optimization specialist" in request.messages[-1].content


def thinking(answer="A report.", reply=BETTER_REPLY):
    """A model that answers tasks and reflections with a text each, or with what a function returns."""

    def say(request):
        said = reply if is_reflection(request) else answer
        return said(request) if callable(said) else said

    return ScriptedModel(say)


def asked(model):
    """The prompts of the tasks that a model answered, in order."""
    return [request.messages[-1].content for request in model.requests if not is_reflection(request)]


def reflections(model):
    return [request.messages[-1].content for request in model.requests if is_reflection(request)]


def better(given):
    """Reflect without a model."""
    return TaskReflection.of_first_run(
        f"{given.task.description} Well.", given.task.expected_output, ["seen"]
    )


BETTER = ReflectionConfig(strategy=better)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
