"""The jailed child from its first line on: take the order, raise the walls, run the code, report."""

from __future__ import annotations

import builtins
import json
import os
import sys
from types import ModuleType

from redraft.sandbox.jail import limits, namespaces, program, walls
from redraft.sandbox.jail.channel import reporter

TYPE_CHECKING = False  # typing itself would cost each run 7 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from redraft.sandbox.jail.order import Order, Report

    Send = Callable[[Report], None]


def main() -> NoReturn:
    """Carry out the order that stands on stdin; never returns."""
    order: Order = json.loads(sys.stdin.buffer.read())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the order holds the nonce: the code must not read it
    os.close(nothing)
    report = reporter(order["channel"], order["nonce"])
    order["nonce"] = ""
    try:
        walls.check()
        walls.die_with_parent(order["parent"])
        if order["argv"]:
            program.run(order, report)
        _enter_python(order)
    except walls.RefusedError as error:
        if not order["unjailed_if_needed"]:
            report({"refused": str(error)})
            os._exit(1)
        walls.write_files(order)
        if order["argv"]:
            program.run_unjailed(order, report)
        limits.limit(order)
    report({"ready": "python"})
    run_python(order, report)


def _enter_python(order: Order) -> None:
    private = namespaces.enter(order["scratch"], scratch_bytes=order["scratch_bytes"], processes=False)
    walls.die_with_parent(order["parent"])  # again: the kernel may forget it with the change of user
    walls.write_files(order)
    walls.raise_walls(order, private=private, programs=False)


def run_python(order: Order, report: Send) -> NoReturn:
    """Execute the order's source in this interpreter, report its global `result`, and leave.

    It is reported only when the source ran to its last line. The code shares the process with this
    function, so one that hunts through frames could report in its place; that gains it nothing, since what
    it would have to know to be judged right never comes in here.
    """
    leave, complain, out, err = os._exit, sys.__excepthook__, sys.stdout, sys.stderr
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    for name in ("exit", "quit"):  # the site module, which is left out, would have brought them
        setattr(builtins, name, sys.exit)
    names["inputs"] = order["inputs"]
    code = 1
    ended: Report = {}
    try:
        exec(compile(order["python"], "<python>", "exec"), names)  # noqa: S102 (this is what the jail is for)
        report({"result": names.get("result")})
        code = 0
    except SystemExit as error:
        code = error.code & 0xFF if isinstance(error.code, int) else 1 if error.code else 0
        ended = {"raised": "SystemExit"}
    except BaseException as error:  # noqa: BLE001 (whatever it raises, the host is told)
        if error.__traceback__:
            error = error.with_traceback(error.__traceback__.tb_next)  # without the line of ours
        complain(type(error), error, error.__traceback__)
        ended = {"raised": type(error).__name__}
    finally:
        for stream in (out, err):
            try:
                stream.flush()
            except (OSError, ValueError):  # the code closed it
                continue
        if ended:
            report(ended)
        leave(code)
