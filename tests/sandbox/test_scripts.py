"""Scripts: which sandbox runs them, and what is rejected before they run."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import asyncio
import json
import subprocess
import sys

import pytest

from redraft.errors import ConfigError, MissingExtraError, SandboxForbiddenError, ScriptError
from redraft.execution import MOST_SOURCE, Script, ScriptLimits
from redraft.sandbox.scripts import ProcessPython, run_script, script_runner
from support.scripts import NAMES, value_of

JUDGED = {"valid": False, "score": 0.5, "errors": ["no name"]}


@pytest.mark.parametrize(
    "script",
    [
        Script(
            "python",
            "result = {'valid': bool(state['name']), 'score': 0.5, 'errors': ['no name']}",
            {"state": {"name": ""}},
        ),
        Script(
            "lua",
            "return {valid = #state.name > 0, score = 0.5, errors = {'no name'}}",
            {"state": {"name": ""}},
        ),
        Script(
            "prolog",
            "valid :- \\+ state(name, '').\nscore(0.5).\nerror(\"no name\").",
            {"state": {"name": ""}},
        ),
        Script("python", "return {'valid': False, 'score': 0.5, 'errors': ['no name']}", sandbox="process"),
    ],
    ids=lambda script: f"{script.language} {script.sandbox}",
)
def test_one_call_runs_every_language(script):
    assert asyncio.run(run_script(script)) == JUDGED


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (("ruby", "1"), "did you mean|expected one of 'python', 'lua', 'prolog'"),
        (("pythn", "1"), "did you mean 'python'"),
        (("lua", "1", {}, ScriptLimits(), "process"), "`sandbox: process` is for Python"),
        (("python", "1", {}, ScriptLimits(), "jail"), "must be 'inline' or 'process', got 'jail'"),
        (("python", "1", {"a b": 1}), "must be an ASCII identifier, got 'a b'"),
        (("python", "1", {"a": {1, 2}}), "must be JSON: Object of type set"),
        (("python", "1", {"a": float("nan")}), "must be JSON"),
        *(
            ((language, "1", {"state": {"a": ["b", "c\ud800"]}}), r"can't hold a lone surrogate.*'\\ud800'")
            for language in ("python", "lua", "prolog")
        ),
        (("lua", "return '\ud800'"), "can't hold a lone surrogate"),
        (("python", "1", {"a": {1, 2}}, ScriptLimits(), "process"), "must be JSON: Object of type set"),
    ],
)
def test_rejects_invalid_scripts(script, message):
    with pytest.raises(ConfigError, match=message):
        asyncio.run(run_script(Script(*script)))


PYTHON_RAISES, PYTHON_FUNCTION, PYTHON_SYNTAX = (
    "x = 1\n\n1 / 0",
    "def f():\n    return 1 / 0\n\nf()",
    "x = 1\ny = = 2",
)


@pytest.mark.parametrize(
    ("language", "sandbox", "source", "line"),
    [
        ("python", "inline", PYTHON_RAISES, 3),
        ("python", "inline", PYTHON_FUNCTION, 2),
        ("python", "inline", PYTHON_SYNTAX, 2),
        ("python", "process", PYTHON_RAISES, 3),
        ("python", "process", PYTHON_FUNCTION, 2),
        ("python", "process", PYTHON_SYNTAX, 2),
        ("lua", "inline", "local x = 1\n\nerror('bad')", 3),
        ("lua", "inline", "local function f()\n  return nil + 1\nend\nf()", 2),
        ("lua", "inline", "local x = 1\nlocal = 2", 2),
        ("prolog", "inline", "foo.\n\nbar(.\nevaluate(true).", 3),
        ("prolog", "inline", "foo :- .", 1),
    ],
)
def test_errors_name_their_line(language, sandbox, source, line):
    with pytest.raises(ScriptError, match=f"line {line},") as caught:
        value_of(language, source, sandbox)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "bound",
    [
        {"seconds": 0},
        {"seconds": float("inf")},
        {"memory_mb": 1},
        {"memory_mb": 64.5},
        {"memory_mb": 4096},
        {"output_chars": -1},
        {"result_chars": True},
    ],
)
def test_rejects_invalid_limits(bound):
    with pytest.raises(ConfigError, match=next(iter(bound))):
        ScriptLimits(**bound)


def test_rejects_source_that_is_too_long():
    with pytest.raises(ConfigError, match="may have"):
        Script("python", " " * (MOST_SOURCE + 1))


@pytest.mark.parametrize(("language", "extra"), [("lua", "lua"), ("prolog", "prolog")])
def test_a_missing_interpreter_names_its_extra(language, extra, monkeypatch):
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'redraft\[{extra}\]'"):
        script_runner(language)


def test_without_monty_inline_python_runs_in_a_process(monkeypatch):
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: False)
    assert script_runner("python") == ProcessPython(replaces_inline=True)
    assert value_of("python", "1 + 1") == 2


def test_without_monty_and_a_jail_inline_python_names_its_extra(monkeypatch):
    async def refuse(_self, _command):
        raise SandboxForbiddenError("This machine has no jail.")

    monkeypatch.setattr("redraft.sandbox.scripts.ProcessJail.__call__", refuse)
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: False)
    with pytest.raises(SandboxForbiddenError, match=r"has no jail\. .* pip install 'redraft\[python\]'"):
        value_of("python", "1 + 1")
    with pytest.raises(SandboxForbiddenError, match=r"^This machine has no jail\.$"):
        asyncio.run(script_runner("python", "process")(Script("python", "1 + 1", sandbox="process")))


def test_unsandboxed_python_must_be_allowed():
    assert script_runner("python", "process", allow_unsandboxed=True) == ProcessPython(allow_unsandboxed=True)
    assert script_runner("python", "process") == ProcessPython(allow_unsandboxed=False)


def test_importing_scripts_imports_no_interpreter():
    code = "import sys, redraft.sandbox.scripts; print([m for m in ('pydantic_monty', 'lupa', 'wasmtime') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_value_survives_a_round_trip_through_json():
    value = value_of("python", "reflection_output")
    assert json.loads(json.dumps(value)) == NAMES["reflection_output"]
