"""Scripts: one call runs code in Python, Lua or Prolog, each in a sandbox of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft._validation import nearest
from redraft.errors import (
    ConfigError,
    MissingExtraError,
    SandboxError,
    SandboxForbiddenError,
    SandboxMemoryError,
    SandboxTimeoutError,
    ScriptError,
)
from redraft.execution import Command, ScriptOutcome
from redraft.sandbox.answers import DEPTH, failure, is_too_deep, out_of_memory, timed_out, too_much_output
from redraft.sandbox.jail import ProcessJail, bare_interpreter
from redraft.sandbox.pool import DeadError, GarbledError, LateError, Pool

if TYPE_CHECKING:
    from redraft.execution import CommandOutcome, Script, ScriptRunner
    from redraft.sandbox.answers import Answer


async def run_script(script: Script, *, allow_unsandboxed: bool = False) -> Any:
    """Run a script in the sandbox of its language and return its value as plain JSON data.

    Raises `ConfigError` for an unknown language and for names that are not JSON, `MissingExtraError` where
    the interpreter is not installed, `ScriptError` for an error in the script or its result, and another
    `SandboxError` for a limit that it hit, at most half a second after a limit on time.
    """
    runner = script_runner(script.language, script.sandbox, allow_unsandboxed=allow_unsandboxed)
    return (await runner(script)).value


def script_runner(language: str, sandbox: str = "inline", *, allow_unsandboxed: bool = False) -> ScriptRunner:
    """Return what runs scripts of a language; raises those errors of `run_script` that need no run.

    Inline Python without its interpreter installed runs in a jailed child instead, which can do all that the
    interpreter can, and takes longer to start. `allow_unsandboxed` is for that child only, on a machine
    without a jail.
    """
    if language not in INTERPRETERS:
        raise ConfigError(
            f"There is no sandbox for the language {language!r}: {nearest(language, INTERPRETERS)}"
        )
    if sandbox not in ("inline", "process"):
        raise ConfigError(f"A script's sandbox must be 'inline' or 'process', got {sandbox!r}.")
    interpreter = INTERPRETERS[language]
    if language == "python" and (sandbox == "process" or not installed(interpreter.module)):
        return WholePython(allow_unsandboxed)
    if sandbox == "process":
        raise ConfigError(f"`sandbox: process` is for Python; {interpreter.title} runs inline only.")
    if not installed(interpreter.module):
        raise MissingExtraError(f"Running {interpreter.title} scripts", interpreter.extra)
    return InlineRunner(language)


# --- the interpreters ---


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Describe a language's interpreter: the module it comes in, our extra that installs it, its options."""

    title: str
    module: str
    extra: str
    options: Callable[[], Mapping[str, Any]]

    def libraries(self) -> list[str]:
        """Return the folders that a worker imports from, without importing anything."""
        spec = find_spec(self.module)
        if spec is None or not spec.origin:
            return []
        path = Path(spec.origin)
        return [str(path.parents[1] if path.stem == "__init__" else path.parent)]


@cache
def installed(module: str) -> bool:
    """Say whether a module is installed, without importing it."""
    return find_spec(module) is not None


def _monty_options() -> dict[str, Any]:
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("monty", path=scripts) or shutil.which("monty")
    if program is None:
        raise ConfigError(
            f"The program 'monty' of pydantic-monty is neither in {scripts!r} nor on PATH: "
            "pip install --force-reinstall 'redraft[python]', or say `sandbox: process`."
        )
    packages = str(Path(__file__).resolve().parents[2])
    return {"program": program, "interpreter": bare_interpreter(), "packages": packages}


_OTHERS = 0o077


def private_cache() -> str | None:
    """Return the folder for compiled interpreters, made if need be; None if there can be none.

    What is in it is run as machine code, so it must be this user's, unreachable for others, and no link.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "redraft" / "prolog"
    try:
        if not folder.is_absolute():
            return None
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except (OSError, RuntimeError):  # read-only, or no home
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
    return str(folder) if private else None


INTERPRETERS = {
    "python": Interpreter("Python", "pydantic_monty", "python", _monty_options),
    "lua": Interpreter("Lua", "lupa", "lua", dict),
    "prolog": Interpreter("Prolog", "wasmtime", "prolog", lambda: {"cache": private_cache()}),
}


@cache
def _pool(language: str) -> Pool:
    interpreter = INTERPRETERS[language]
    return Pool(language, interpreter.options(), interpreter.libraries())


# --- inline: in a warm interpreter ---

_GRACE = 0.3
"""Seconds beyond a script's limit in which a worker can still report what happened."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """Run scripts of one language in warm workers: a `ScriptRunner`.

    A worker is a process with an empty environment that runs one script at a time, with nothing left of the
    one before. It is killed and replaced when it does not answer within the limit and a third of a second. On
    Linux it stands behind the jail's walls as well, in case the interpreter has a hole.
    """

    language: str

    async def __call__(self, script: Script, /) -> ScriptOutcome:
        """Run one script; waiting for a free worker does not count as its time."""
        title, limits = INTERPRETERS[self.language].title, script.limits
        for name in script.names:
            if not (name.isidentifier() and name.isascii()):
                raise ConfigError(f"A script's name must be an identifier in ASCII, got {name!r}.")
        order = {"source": script.source, "names": dict(script.names), "limits": limits.to_json()}
        try:
            encoded = json.dumps(order, ensure_ascii=False, allow_nan=False).encode(errors="replace")
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"What a script is given must be JSON: {error}.") from error
        try:
            answer = await _pool(self.language).ask(encoded, limits.seconds + _GRACE)
        except LateError:
            answer = timed_out(limits.to_json())
        except GarbledError as error:
            answer = failure(
                "script", f"gave an answer that cannot be read: it is too large or broken ({error})"
            )
        except DeadError as error:
            answer = _answer_of_dead(error, script)
        return _outcome(title, answer)


def _answer_of_dead(error: DeadError, script: Script) -> Answer:
    limits = script.limits.to_json()
    if error.exit_code == -signal.SIGALRM:
        return timed_out(limits)
    if error.exit_code < 0:  # interpreters abort when they find no more memory
        name = signal.Signals(-error.exit_code).name
        limit = f"its limit of {limits['memory_mb']} MB"
        return failure("memory", f"ended its worker ({name}): most likely it took more memory than {limit}")
    return failure("script", f"ended its worker ({error})")


# --- whole Python: in a jailed child of its own ---

_START_SECONDS = 0.3
"""Seconds for an interpreter and its walls to start, which are no part of the script's time."""

_INTERPRETER_MB = 128
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class WholePython:
    """Run Python scripts in jailed children: a `ScriptRunner`.

    A script that did not run to its end has no result, whatever it printed. `allow_unsandboxed` runs it with
    limits only where there is no jail (see `ProcessJail`).
    """

    allow_unsandboxed: bool = False

    async def __call__(self, script: Script, /) -> ScriptOutcome:
        """Run one script in a fresh child; waiting for a free slot does not count as its time."""
        limits = script.limits
        outcome = await ProcessJail(self.allow_unsandboxed)(
            Command(
                python="from redraft.sandbox.python import run; result = run(inputs)",
                inputs={"source": script.source, "names": dict(script.names), "limits": limits.to_json()},
                timeout=limits.seconds + _START_SECONDS,
                memory=(limits.memory_mb + _INTERPRETER_MB) << 20,
                readable=(_HERE,),
                output_limit=4 * limits.output_chars,  # in bytes; a character takes up to four
            )
        )
        return _outcome("Python", _answer_of_child(outcome, limits.to_json()))


def _answer_of_child(outcome: CommandOutcome, limits: dict[str, Any]) -> Answer:
    stopped = {"timeout": timed_out, "memory": out_of_memory, "output": too_much_output}
    if outcome.stopped in stopped:
        return stopped[outcome.stopped](limits)
    if outcome.stopped:
        return failure("forbidden", "did what it may not do")
    result: Any = outcome.result
    if not isinstance(result, dict) or not outcome.completed:
        return failure("script", f"ended before its last line (exit code {outcome.exit_code})")
    if len(outcome.stdout) > limits["output_chars"]:
        return too_much_output(limits)
    return {**cast("dict[str, Any]", result), "printed": outcome.stdout}


# --- from an answer to a value or an error ---

_ERRORS = {
    "timeout": SandboxTimeoutError,
    "memory": SandboxMemoryError,
    "forbidden": SandboxForbiddenError,
    "output": SandboxError,
}


def _outcome(title: str, answer: Answer) -> ScriptOutcome:
    """Return the outcome that an answer holds, or raise its `SandboxError`."""
    if "value" in answer:
        try:
            value = json.loads(answer["value"])
        except (ValueError, TypeError, RecursionError) as error:  # such as a number of too many digits
            raise ScriptError(f"The {title} script gave a result that is no JSON: {error}.") from error
        if len(answer["value"]) > DEPTH and is_too_deep(value):  # each level takes a bracket at least
            raise ScriptError(
                f"The {title} script gave a result that is too deep: {DEPTH} levels are allowed."
            )
        return ScriptOutcome(value, answer["printed"])
    line = answer.get("line")
    message = f"The {title} script{f', line {line},' if line else ''} {answer['message']}."
    if answer["kind"] in _ERRORS:
        raise _ERRORS[answer["kind"]](message)
    raise ScriptError(message, line=line)
