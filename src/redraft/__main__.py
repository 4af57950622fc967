"""The command `redraft`, also as `python -m redraft`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Hooks of coding agents are answered without loading the other commands."""
    match sys.argv[1:]:
        case ["hook", "start" | "before" | "stop" | "end" as command, *words] if not {"-h", "--help"} & {
            *words
        }:
            from redraft.integrations.hook_answer import answer  # noqa: PLC0415 (agents wait for it on every turn)

            sys.exit(answer(command, words))
        case _:
            from redraft.main import main  # noqa: PLC0415 (only when called)

            main()


if __name__ == "__main__":
    main()
