"""Arguments: a value of a wrong kind is refused with an error of Redraft's, which names it."""

import inspect
from enum import Enum
from importlib import import_module

import pytest

from redraft import ScriptedModel
from redraft.errors import RedraftError

FOLDERS = ("", "cycles", "evals", "fleet", "lessons", "models", "notes", "redact", "retention", "stores")
MODULES = [
    import_module(f"redraft.{name}".rstrip(".")) for name in (*FOLDERS, "telemetry", "testing", "workflow")
]
MADE_BY_REDRAFT = ("AgentHandle", "AgentSpec", "SuccessCriteria.of")
"""What users get rather than make."""


class Odd:
    def __repr__(self):
        return "<odd>"


WRONG = (5, -1, True, float("nan"), None, Odd(), b"x", "a\0b", "\ud800", "", [], {}, (), set())
RIGHT = {
    "model": ScriptedModel(["x"]),
    "text": "name: a\nnodes: []\n",
    "path": "x.db",
    "fn": str,
    "criteria": [],
}
"""Arguments that are required besides the wrong value; "x" for any other."""


def public_callables():
    """The public classes and functions, and the other ways to make a class, by name."""
    found = {}
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value) or getattr(value, "_is_protocol", False):
                continue
            if inspect.isclass(value) and issubclass(value, BaseException | Enum):
                continue
            found[name] = value
            if inspect.isclass(value):
                makers = [
                    key for key, made in vars(value).items() if isinstance(made, classmethod | staticmethod)
                ]
                found |= {f"{name}.{key}": getattr(value, key) for key in makers if not key.startswith("_")}
    return {name: value for name, value in found.items() if name not in MADE_BY_REDRAFT}


CALLABLES = public_callables()


def parameters_of(function):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in inspect.signature(function).parameters.values() if each.kind not in kinds]


def call(function, wrong, value):
    """Call a function with a wrong value for a parameter, and the right ones for others that it requires."""
    args, options = [], {}
    for parameter in parameters_of(function):
        if parameter is not wrong and parameter.default is not parameter.empty:
            continue
        passed = value if parameter is wrong else RIGHT.get(parameter.name, "x")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(passed)
        else:
            options[parameter.name] = passed
    made = function(*args, **options)
    if inspect.iscoroutine(made):
        made.close()


@pytest.mark.parametrize("name", CALLABLES)
def test_a_value_of_a_wrong_kind_never_raises_an_error_of_python(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = CALLABLES[name]
    for parameter in parameters_of(function):
        for value in WRONG:
            try:
                call(function, parameter, value)
            except RedraftError:
                pass
            except Exception as error:  # noqa: BLE001 (what this test is about)
                pytest.fail(f"{name}({parameter.name}={value!r}) raised {error!r}")
