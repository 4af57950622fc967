"""What the tests of evaluators share."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from redraft.protocols import RunContext
from redraft.types import PlainTask, QualityCriterion, ReflectionEvaluation, ReflectionVersion

RUN = RunContext(PlainTask("Say why the sky is blue."), "run")


def evaluate(evaluator, output, run=RUN):
    return asyncio.run(evaluator(output, run))


def criterion(evaluator, name="it", **config):
    return QualityCriterion(name, evaluator=evaluator, evaluator_config=config)


def after(*outputs, run=RUN):
    """The run once these outputs were made; one may come with its evaluation."""
    pairs = [item if isinstance(item, tuple) else (item, ReflectionEvaluation(0.5)) for item in outputs]
    versions = [ReflectionVersion(i, *pair) for i, pair in enumerate(pairs, 1)]
    return replace(run, versions=tuple(versions), iteration=len(versions) + 1)
