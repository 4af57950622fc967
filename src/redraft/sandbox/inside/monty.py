"""The worker of inline Python: a process that shuts itself in and turns into monty."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from redraft.sandbox.inside.shut_in import shut_in

if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Become the program that `argv` names, which speaks its protocol on stdin and stdout."""
    given = json.loads(sys.argv[1])
    program = given["options"]["binary"]
    shut_in(given["parent"], becomes=program)
    os.execve(program, [program, "subprocess"], {})  # noqa: S606 (a program without a shell is what is wanted)
