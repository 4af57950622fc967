"""The command line in this process, with a model that is scripted."""

import asyncio
import json
import sys
from unittest.mock import patch

from typer.testing import CliRunner

from redraft import ScriptedModel
from redraft.main import app
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


def redraft(*words, stdin=None):
    """Run a command; what it returns has `exit_code`, `stdout` and `stderr`."""
    arguments = [str(word) for word in words]
    with patch.object(sys, "argv", ["redraft", *arguments]):
        return CliRunner().invoke(app, arguments, input=stdin)


def document(result):
    """Return the JSON document that a command printed."""
    found = json.loads(result.stdout)
    assert found["schema_version"] == 1
    return found


def script(monkeypatch, *replies):
    """Let every model name stand for a scripted model, and return that."""
    model = ScriptedModel(list(replies))
    for place in ("loop.agent", "loop.pattern", "loop.verbs", "loop.cli", "demo"):
        monkeypatch.setattr(
            f"redraft.{place}.model_of",
            lambda given, _settings=None, **_missing: model if isinstance(given, str | None) else given,
        )
    return model


def put(record):
    """Keep a record of a run that nobody ran."""

    async def keeping():
        store = project_store()
        await store.put(record.stored())
        await store.aclose()

    asyncio.run(keeping())
