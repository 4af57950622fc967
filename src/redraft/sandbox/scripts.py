"""Scripts: run code in Python, Lua or Prolog, each in a sandbox of its own."""

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
from redraft.execution import Command
from redraft.sandbox.answers import MAX_DEPTH, failure, out_of_memory, timed_out, too_much_output
from redraft.sandbox.jail import PACKAGES, ProcessJail, bare_interpreter
from redraft.sandbox.pool import DeadError, GarbledError, LateError, Pool
from redraft.settings import cache_folder
from redraft.text.json import is_too_deep, load_json

if TYPE_CHECKING:
    from redraft.execution import CommandOutcome, Script, ScriptRunner
    from redraft.sandbox.answers import Answer


async def run_script(script: Script, *, allow_unsandboxed: bool = False) -> Any:
    """Run a script in the sandbox of its language and return its value as plain JSON data.

    Raises `ConfigError` for an unknown language and for names that are not JSON, `MissingExtraError` if the
    interpreter is not installed, `ScriptError` for an error in the script or its result, and another
    `SandboxError` when the script hits a limit: for the time limit, at most half a second after it.
    """
    runner = script_runner(script.language, script.sandbox, allow_unsandboxed=allow_unsandboxed)
    return await runner(script)


def script_runner(language: str, sandbox: str = "inline", *, allow_unsandboxed: bool = False) -> ScriptRunner:
    """The runner for scripts of a language; raises the errors of `run_script` that don't depend on a run.

    If inline Python is not installed, a jailed process runs the script instead: it supports everything that
    inline Python does, but takes longer to start. `allow_unsandboxed` applies only to that process, on a
    machine without a jail.
    """
    if language not in LANGUAGES:
        raise ConfigError(
            f"There is no sandbox for the language {language!r}: {nearest(language, LANGUAGES)}"
        )
    if sandbox not in ("inline", "process"):
        raise ConfigError(f"A script's sandbox must be 'inline' or 'process', got {sandbox!r}.")
    interpreter = LANGUAGES[language]
    if language == "python" and (sandbox == "process" or not installed(interpreter.module)):
        return ProcessPython(allow_unsandboxed, replaces_inline=sandbox == "inline")
    if sandbox == "process":
        raise ConfigError(f"`sandbox: process` is for Python; {interpreter.title} runs inline only.")
    if not installed(interpreter.module):
        raise MissingExtraError(f"Running {interpreter.title} scripts", interpreter.extra)
    return InlineRunner(language)


# --- the languages ---


@dataclass(frozen=True, slots=True)
class Language:
    """The interpreter of a language."""

    title: str
    """The name of the language in messages."""
    module: str
    """The Python module of the interpreter."""
    extra: str
    """The extra of Redraft that installs it."""
    options: Callable[[], Mapping[str, Any]]
    """Options for the language's `start`."""

    def libraries(self) -> list[str]:
        """The folders from which a worker imports the module; imports nothing."""
        spec = find_spec(self.module)
        if spec is None or not spec.origin:
            return []
        path = Path(spec.origin)
        return [str(path.parents[1] if path.stem == "__init__" else path.parent)]


@cache
def installed(module: str) -> bool:
    """Whether a module is installed; does not import it."""
    return find_spec(module) is not None


def _monty_options() -> dict[str, Any]:
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("monty", path=scripts) or shutil.which("monty")
    if program is None:
        raise ConfigError(
            f"The program 'monty' of pydantic-monty is neither in {scripts!r} nor on PATH: "
            "pip install --force-reinstall 'redraft[python]', or use `sandbox: process`."
        )
    return {"program": program, "interpreter": bare_interpreter(), "packages": PACKAGES}


_OTHERS = 0o077


def private_cache() -> str | None:
    """The folder for compiled interpreters, created if necessary; None if it can't be private.

    Its files are run as machine code, so the folder must belong to this user, be inaccessible to others, and
    not be a link.
    """
    try:
        folder = cache_folder() / "prolog"
        if not folder.is_absolute():
            return None
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except (OSError, RuntimeError):  # a read-only file system, or no home folder
        return None
    is_private = not status.st_mode & _OTHERS and status.st_uid == os.geteuid()
    return str(folder) if stat.S_ISDIR(status.st_mode) and is_private else None


LANGUAGES = {
    "python": Language("Python", "pydantic_monty", "python", _monty_options),
    "lua": Language("Lua", "lupa", "lua", dict),
    "prolog": Language("Prolog", "wasmtime", "prolog", lambda: {"cache": private_cache()}),
}


@cache
def _pool(language: str) -> Pool:
    interpreter = LANGUAGES[language]
    return Pool(language, interpreter.options(), interpreter.libraries())


# --- inline: in a warm worker ---

_GRACE = 0.3
"""Seconds after a script's limit in which a worker can still report the result."""


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """Run scripts of one language in warm workers: a `ScriptRunner`.

    A worker is a process with an empty environment. It runs one script at a time, and a script leaves nothing
    behind for the next. If it has not answered a third of a second after the script's time limit, it is
    killed and replaced. On Linux it also runs behind the jail's walls, in case the interpreter has a hole.
    """

    language: str

    async def __call__(self, script: Script, /) -> Any:
        """Run one script; waiting for a free worker does not count as its time."""
        title, limits = LANGUAGES[self.language].title, script.limits
        for name in script.names:
            if not (name.isidentifier() and name.isascii()):
                raise ConfigError(f"A name passed to a script must be an ASCII identifier, got {name!r}.")
        order = {"source": script.source, "names": dict(script.names), "limits": limits.to_json()}
        try:
            encoded = json.dumps(order, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"A script in {title}, and the values passed to it, can't hold a lone surrogate, which is "
                f"half a character; found {error.object[error.start]!r}."
            ) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"The values passed to a script must be JSON: {error}.") from error
        try:
            answer = await _pool(self.language).ask(encoded, limits.seconds + _GRACE)
        except LateError:
            answer = timed_out(limits.to_json())
        except GarbledError as error:
            answer = failure(
                "script", f"returned a value that can't be read: it is too large or broken ({error})"
            )
        except DeadError as error:
            answer = _answer_of_dead(error, script)
        return _value(title, answer)


def _answer_of_dead(error: DeadError, script: Script) -> Answer:
    limits = script.limits.to_json()
    if error.exit_code == -signal.SIGALRM:
        return timed_out(limits)
    if error.exit_code < 0:  # interpreters abort when memory runs out
        name = signal.Signals(-error.exit_code).name
        limit = f"its limit of {limits['memory_mb']} MB"
        return failure("memory", f"ended its worker ({name}): most likely it used more memory than {limit}")
    return failure("script", f"ended its worker ({error})")


# --- Python in a jailed process of its own ---

_START_SECONDS = 0.3
"""Seconds for an interpreter and its walls to start, in addition to the script's time."""

_INTERPRETER_MB = 128
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class ProcessPython:
    """Run Python scripts in jailed processes: a `ScriptRunner`.

    A script that did not run to its end has no result, even if it printed something.
    """

    allow_unsandboxed: bool = False
    """On a machine without a jail, run the script with limits only (see `ProcessJail`)."""
    replaces_inline: bool = False
    """Whether the script is for inline Python, which is not installed."""

    async def __call__(self, script: Script, /) -> Any:
        """Run one script in a fresh process; waiting for a free slot does not count as its time."""
        limits = script.limits
        command = Command(
            python="from redraft.sandbox.python import run; result = run(inputs)",
            inputs={"source": script.source, "names": dict(script.names), "limits": limits.to_json()},
            timeout=limits.seconds + _START_SECONDS,
            memory=(limits.memory_mb + _INTERPRETER_MB) << 20,
            readable=(_HERE,),
            output_limit=4 * limits.output_chars,  # in bytes; a character takes up to four
            output_kept=4 * limits.output_chars,
        )
        try:
            outcome = await ProcessJail(self.allow_unsandboxed)(command)
        except SandboxForbiddenError as error:
            if not self.replaces_inline:
                raise
            raise SandboxForbiddenError(
                f"{error} Inline Python needs no jail with an optional part: pip install 'redraft[python]'"
            ) from error
        return _value("Python", _answer_of_process(outcome, limits.to_json()))


def _answer_of_process(outcome: CommandOutcome, limits: dict[str, Any]) -> Answer:
    stopped = {"timeout": timed_out, "memory": out_of_memory, "output": too_much_output}
    if outcome.stopped in stopped:
        return stopped[outcome.stopped](limits)
    if outcome.stopped == "killed":
        return failure("memory", "was killed, most likely because the machine ran out of memory")
    if outcome.stopped:
        return failure("forbidden", "did something that it is not allowed to do")
    result: Any = outcome.result
    if not isinstance(result, dict) or not outcome.completed:
        return failure("script", f"ended before its last line (exit code {outcome.exit_code})")
    if len(outcome.stdout) > limits["output_chars"]:
        return too_much_output(limits)
    return cast("dict[str, Any]", result)


# --- the value or the error of an answer ---

_ERRORS = {
    "timeout": SandboxTimeoutError,
    "memory": SandboxMemoryError,
    "forbidden": SandboxForbiddenError,
    "output": SandboxError,
}


def _value(title: str, answer: Answer) -> Any:
    """Decode the value of an answer, or raise its `SandboxError`."""
    if "value" in answer:
        try:
            value = load_json(answer["value"], repeats_keys=False)  # {1: "a", "1": "b"} repeats a key
        except (ValueError, TypeError) as error:  # such as a number of too many digits
            raise ScriptError(f"The {title} script returned a value that is not JSON: {error}.") from error
        if len(answer["value"]) > MAX_DEPTH and is_too_deep(value):  # each level takes a bracket at least
            raise ScriptError(
                f"The {title} script returned a value that is too deep: the limit is {MAX_DEPTH} levels."
            )
        return value
    line = answer.get("line")
    message = f"The {title} script{f', line {line},' if line else ''} {answer['message']}."
    raise _ERRORS.get(answer["kind"], ScriptError)(message, line=line)
