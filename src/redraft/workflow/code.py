"""Makers: an action or a piece of code of the file, carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError
from redraft.core.script import Script
from redraft.workflow.made import Made

if TYPE_CHECKING:
    from redraft.workflow.bench import Bench
    from redraft.workflow.scope import Scope
    from redraft.workflow.spec import Code, Maker


async def make(maker: Maker, scope: Scope, bench: Bench) -> Made:
    """Carry out what a maker says; raises what the action or the code raises."""
    if (maker.action is None) == (maker.run is None):
        raise ConfigError("give either 'action' or 'run'")
    if maker.run is not None:
        return await run_code(maker, scope, bench)
    return await bench.do(str(maker.action), maker.params, scope)


async def run_code(code: Code, scope: Scope, bench: Bench) -> Made:
    """Run code with the names of a scope; its value is plain JSON data. Raises `SandboxError`."""
    limits = bench.limits.of_scripts
    script = Script(code.language, str(code.run), scope.variables_of_code(), limits, code.sandbox)
    return Made((await bench.code(code)(script)).value)
