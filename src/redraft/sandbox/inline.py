"""InlineRunner: scripts in a warm worker, whose interpreter is the sandbox."""

from __future__ import annotations

import shutil
import signal
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError, SandboxError, SandboxMemoryError, SandboxTimeoutError, ScriptError
from redraft.sandbox.dialect import Dialect, SpoiledError
from redraft.sandbox.inside.answer import late, too_big
from redraft.sandbox.monty.conversation import MONTY
from redraft.sandbox.monty.protocol import OUT_OF_MEMORY
from redraft.sandbox.prolog.kept import kept_folder
from redraft.sandbox.served import SERVED
from redraft.sandbox.told import outcome_of
from redraft.sandbox.worker import DeadError, LateError, LongError
from redraft.sandbox.workers import Workers

if TYPE_CHECKING:
    from redraft.protocols import Script, ScriptOutcome


@cache
def installed(module: str) -> bool:
    """Say whether a module is there; it is not imported for that."""
    return find_spec(module) is not None


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Describe a language's interpreter: the module it comes in, our extra that brings it, what it needs."""

    title: str
    module: str
    extra: str
    options: Callable[[], Mapping[str, Any]]
    dialect: Dialect = SERVED

    def libraries(self) -> list[str]:
        """Return the folders that a worker imports from; nothing is imported to find them."""
        spec = find_spec(self.module)
        if spec is None or not spec.origin:
            return []
        path = Path(spec.origin)
        return [str(path.parents[1] if path.stem == "__init__" else path.parent)]


def _monty_program() -> dict[str, Any]:
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("monty", path=scripts) or shutil.which("monty")
    if program is None:
        raise ConfigError(
            f"The program 'monty' of pydantic-monty is neither in {scripts!r} nor on PATH: "
            "pip install --force-reinstall 'redraft[python]', or say `sandbox: process`."
        )
    return {"binary": program}


def _prolog() -> dict[str, Any]:
    return {"kept": kept_folder()}


INTERPRETERS = {
    "python": Interpreter("Python", "pydantic_monty", "python", _monty_program, MONTY),
    "lua": Interpreter("Lua", "lupa", "lua", dict),
    "prolog": Interpreter("Prolog", "wasmtime", "prolog", _prolog),
}


@dataclass(frozen=True, slots=True)
class InlineRunner:
    """Run scripts of one language in warm workers: a `ScriptRunner`.

    A worker is a process with an empty environment that runs one script at a time, with nothing left of the
    one before. It is killed when it does not answer within the limit and a third of a second, and
    replaced. On Linux it stands behind the jail's walls as well, should the interpreter have a hole.
    """

    language: str

    async def __call__(self, script: Script, /) -> ScriptOutcome:
        """Run one script; waiting for a free worker does not count as its time."""
        interpreter = INTERPRETERS[self.language]
        title, conversation = interpreter.title, interpreter.dialect.converse(script)
        try:
            answer = await _workers(self.language).talk(
                conversation, script.limits.seconds + interpreter.dialect.grace
            )
        except SpoiledError as error:
            answer = error.answer
        except LateError as error:
            raise _late(title, script) from error
        except LongError as error:
            raise ScriptError(f"The {title} script gave a result that is too large ({error}).") from error
        except DeadError as error:
            raise _death(title, script, error) from error
        return outcome_of(title, answer)


def _late(title: str, script: Script) -> SandboxTimeoutError:
    return SandboxTimeoutError(f"The {title} script {late(script.limits.to_json())['message']}.")


def _death(title: str, script: Script, error: DeadError) -> SandboxError:
    if error.exit_code == -signal.SIGALRM:
        return _late(title, script)
    if error.exit_code == OUT_OF_MEMORY:
        return SandboxMemoryError(f"The {title} script {too_big(script.limits.to_json())['message']}.")
    if error.exit_code < 0:  # interpreters abort when they find no more memory
        name = signal.Signals(-error.exit_code).name
        return SandboxMemoryError(
            f"The {title} script ended its worker ({name}): most likely it took more memory than its limit "
            f"of {script.limits.memory_mb} MB."
        )
    return ScriptError(f"The {title} script ended its worker ({error}).")


@cache
def _workers(language: str) -> Workers:
    interpreter = INTERPRETERS[language]
    return Workers(language, interpreter.dialect, interpreter.options(), interpreter.libraries())
