"""Workflows that were carried out and kept, to look at."""

from contextlib import nullcontext

import pytest

from redraft import MemoryStore, ScriptedModel
from redraft.workflow import Workflow

TEXT = """
name: two nodes
nodes:
  - name: draft
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, prompt: Draft.}
      evaluator: {type: schema, schema: {required: [a]}}
  - name: shaky
    uses: work
    on_error: continue
  - name: use
    uses: work
    output: last
"""


def worker(gave, failing, why):
    """An action that fails so many times, and then gives something."""
    left = iter([True] * failing)

    async def work(state):
        if next(left, False):
            raise RuntimeError(why)
        return gave

    return work


def kept(*run_ids, inputs=None, gave="it worked", failing=1, why="the disk is full", store=None, text=TEXT):
    """A store with workflows of a loop with two attempts, a node that fails, and one that gives something."""
    store = store or MemoryStore()
    for run_id in run_ids:
        model = ScriptedModel(["{}", '{"a": 1}'])
        made = Workflow.from_text(
            text, actions={"work": worker(gave, failing, why)}, models={"gpt-4": model}, keep=store
        )
        with pytest.raises(RuntimeError) if failing > 1 else nullcontext():
            made.run_sync(inputs or {}, run_id=run_id)
    return store
