"""Scripts: the one door to all sandboxes, by language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft._validation import nearest
from redraft.errors import ConfigError, MissingExtraError
from redraft.sandbox.inline import INTERPRETERS, InlineRunner, installed
from redraft.sandbox.whole import WholePython

if TYPE_CHECKING:
    from redraft.protocols import Script, ScriptRunner


async def run_script(script: Script, *, allow_unsandboxed: bool = False) -> Any:
    """Run a script in the sandbox of its language and return its value as plain JSON data.

    Raises `ConfigError` for an unknown language and names that are no JSON, `MissingExtraError` where the
    interpreter is not installed, `ScriptError` for what is wrong with the script or its result, and
    another `SandboxError` for a limit that it hit: the host lives, and hears of it within the limit plus
    half a second.
    """
    runner = script_runner(script.language, script.sandbox, allow_unsandboxed=allow_unsandboxed)
    return (await runner(script)).value


def script_runner(language: str, sandbox: str = "inline", *, allow_unsandboxed: bool = False) -> ScriptRunner:
    """Return what runs scripts of a language; raises what of `run_script` can be known before a run.

    Inline Python without its interpreter installed runs in the jailed child instead, which has all that the
    interpreter has, and takes longer to start. `allow_unsandboxed` is for that child only, on a machine
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
