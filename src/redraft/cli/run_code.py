"""The code of a workflow, read by its sandboxes without being run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from redraft.core.errors import SandboxError, ScriptError
from redraft.core.script import Script
from redraft.sandbox.scripts import run_script

if TYPE_CHECKING:
    from redraft.cli.run_ready import Ready
    from redraft.workflow.spec import Code

FIRST = {"lua": "do return true end ", "prolog": "evaluate(true) :- !. "}
"""What code begins with that gives its value at once: the rest is read, and not run."""


async def read_code(found: Ready, *, allow_unsandboxed: bool) -> None:
    """Have each piece of code read by what would run it; of Python its imports are tried, too.

    Raises `WorkflowError` for what it can't read or import, and where its sandbox does not work here.
    """
    for code, way in found.uses.code:
        source, lines = _read_alone(code)
        script = Script(code.language, source, sandbox=code.sandbox)
        try:
            await run_script(script, allow_unsandboxed=allow_unsandboxed)
        except SandboxError as error:
            said, line = str(error), None
            if isinstance(error, ScriptError) and error.line is not None:
                line = lines[error.line - 1] if error.line <= len(lines) else error.line - len(lines)
                said = said.replace(f", line {error.line},", f", line {line},", 1)
            raise found.workflow.source.error(way, said, within=line) from error


def _read_alone(code: Code) -> tuple[str, list[int]]:
    """Return code that is read and not run, and for each line put before it the line that it comes from."""
    run = str(code.run)
    if code.language != "python":
        return FIRST[code.language] + run, []
    statements = ast.parse(run).body
    imports = [one for one in statements if isinstance(one, ast.Import | ast.ImportFrom)]
    # What whole Python can read, this Python just has.
    rest = ["return True", run] if code.sandbox == "inline" else ["result = True"]
    return "\n".join([*map(ast.unparse, imports), *rest]), [*(node.lineno for node in imports), 1]
