"""The fleet of a machine in `support.machines`: an agent that learns, and a task with notes.

The programs are named after the machine, `clerk-a` and `order-a`, so that a test can say where a job runs.
All agents learn and recall as `clerk`. Each call of a model is a line in the log: the machine, the program,
and the words that were looked for and found in the prompt.
"""

import json
import os
import time

from redraft import (
    Agent,
    Ensemble,
    Lessons,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    Task,
    Workflow,
)
from redraft.fleet import Fleet
from support.learning_agents import REPLY

MACHINE = os.environ["FLEET_MACHINE"]
_log = os.open(os.environ["FLEET_LOG"], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
_SCHEMA = {"type": "object", "required": ["item"]}


def note(program, prompt, *words):
    """Append a line to the log, whole, whatever happens to the process."""
    found = [word for word in words if word in prompt]
    line = {"at": time.time(), "machine": MACHINE, "program": program, "found": found}
    os.write(_log, (json.dumps(line) + "\n").encode())
    return found


def _text(request):
    return "\n".join(str(message.content) for message in request.messages)


def fetch(request):
    """Fail until the lesson says how."""
    found = note("clerk", _text(request), 'The text consists of "all pages"', "next_cursor")
    return "all pages" if found else "E4031"


def order(request):
    """Fail until the note says which key is required."""
    found = note("order", _text(request), 'The key "item" is required')
    return '{"item": "tea"}' if found else '{"product": "tea"}'


clerk = Agent(
    ScriptedModel(fetch),
    name=f"clerk-{MACHINE}",
    lessons=Lessons(agent="clerk", model=ScriptedModel(lambda request: REPLY)),
    pattern=ReflectionPattern(
        max_iterations=0,
        quality_criteria=[
            QualityCriterion("pages", evaluator="regex", evaluator_config={"pattern": "^all pages$"})
        ],
    ),
)
task = Task(
    "Turn this message of a customer into an order: {message}",
    "One JSON object, and nothing else.",
    name="order",
    criteria=[QualityCriterion("form", evaluator="schema", evaluator_config={"schema": _SCHEMA})],
    reflect=True,
)


async def take_order(state, message):
    """Run the task with notes."""
    result = await Ensemble(ScriptedModel(order), [task]).run({"message": message})
    return str(result[task].output)


ORDER = f"""
name: order-{MACHINE}
nodes:
  - name: take
    uses: take_order
    with: {{message: "{{{{ state.message }}}}"}}
    output: order
"""
fleet = Fleet(
    [clerk],
    workflows=[Workflow.from_text(ORDER, actions={"take_order": take_order})],
    version="sharing",
    share_lessons=os.environ.get("FLEET_SHARE", "1") == "1",
)
