"""Workflows for tests: a file around fragments, run on scripted models."""

import asyncio
import textwrap

from redraft import ScriptedModel
from redraft.workflow import Workflow, run_action

SCHEMA = {"type": "object", "required": ["name", "age"], "properties": {"age": {"type": "integer"}}}


def under(text, spaces):
    """The text, indented."""
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * spaces)


def loop_file(*fragments, **options):
    """A file with one loop, whose parameters are fragments of YAML."""
    params = "\n".join(under(fragment, 6) for fragment in fragments)
    lines = "\n".join(f"      {key}: {value}" for key, value in options.items())
    return f"name: test\nnodes:\n  - name: one\n    uses: reflection.loop\n    with:\n{params}\n{lines}\n"


def workflow(text, *replies, actions=None, keep=False, model="gpt-4"):
    """A workflow whose model gives these replies, and that model."""
    script = replies[0] if len(replies) == 1 and callable(replies[0]) else list(replies)
    scripted = ScriptedModel(script)
    made = Workflow.from_text(text, actions=actions, models={model: scripted}, keep=keep)
    return made, scripted


def run(text, *replies, state=None, **options):
    """Run a workflow; return its final state and the requests to its model."""
    made, scripted = workflow(text, *replies, **options)
    return made.run_sync(state).state, scripted.requests


def loop(state=None, actions=None, replies=(), **params):
    """Run a single `reflection.loop`, whose model is `gpt-4`; return its value."""
    models = {"gpt-4": ScriptedModel(list(replies))}
    return act("reflection.loop", state, actions, models, **params)


def act(name, state=None, actions=None, models=None, **params):
    """Run a single action; return its value."""
    return asyncio.run(
        run_action(name, with_=params, state=state, actions=actions, models=models, keep=False)
    )


def making(*outputs):
    """An action that gives these outputs in turn; `seen` lists the states and parameters it got."""
    left, seen = list(outputs), []

    def make(state, **params):
        seen.append((state, params))
        one = left.pop(0) if left else outputs[-1]
        if isinstance(one, Exception):
            raise one
        return one

    make.seen = seen
    return make


def scoring(expression, language="python"):
    """An evaluator whose verdict is an expression in a language."""
    return {"type": "custom", "language": language, "run": f"result = {expression}"}
