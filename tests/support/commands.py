"""The command line in this process, with a model that is scripted."""

import asyncio
import json
import sys
from functools import cache, partial
from unittest.mock import patch

from typer.testing import CliRunner

from redraft import ScriptedModel
from redraft.main import Commands, app
from redraft.stores.location import project_store

THREE_A = """\
task: Write three letters a.
threshold: 1
criteria:
  - name: three
    evaluator: regex
    config: {pattern: a, min_matches: 3}
  - name: no b
    evaluator: regex
    config: {pattern: b, must_match: false}
"""


_command = cache(partial(Commands.get_command, None, None))
"""A command by name. Typer would make it anew for each call, which takes longer than most commands do."""


def redraft(*words, stdin=None):
    """Run a command; what it returns has `exit_code`, `stdout` and `stderr`."""
    arguments = [str(word) for word in words]
    with (
        patch.object(sys, "argv", ["redraft", *arguments]),
        patch.object(Commands, "get_command", lambda _commands, _context, name: _command(name)),
    ):
        return CliRunner().invoke(app, arguments, input=stdin)


def document(result):
    """The JSON document that a command printed."""
    assert result.stdout, (result.exit_code, result.stderr, result.exception)
    data = json.loads(result.stdout)
    assert data["schema_version"] == 1
    return data


NAMED = [
    f"redraft.{place}.model_of"
    for place in ("loop.agent", "loop.pattern", "loop.verbs", "loop.cli", "demo.cli")
]
"""Where commands look a model up by its name."""


def script(monkeypatch, *replies):
    """Let every model name stand for a scripted model, and return that."""
    model = ScriptedModel(list(replies))
    for place in NAMED:
        monkeypatch.setattr(place, always(model))
    return model


def always(model):
    """A `model_of` for which every name means this model."""
    return lambda given, _settings=None, **_missing: model if isinstance(given, str | None) else given


def put(record):
    """Keep a record of a run that nobody ran."""

    async def keeping():
        store = project_store()
        await store.put(record.stored())
        await store.aclose()

    asyncio.run(keeping())
