"""Run a hook for a coding agent or for git. It fails open: no error blocks anything."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from redraft.errors import ConfigError
from redraft.integrations.coding_agents import AGENTS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from redraft.integrations.coding_agents import CodingAgent, HookEvent

T = TypeVar("T")

GIT = "git"
DEFAULT_CRITERIA = "criteria.yaml"
BEFORE_SECONDS = 5.0
"""The most seconds that an agent's action waits for its lessons."""
COMMIT_REFUSED = 10
"""Exit code for a commit that does not meet the criteria. It differs from all codes of a failure to start
Redraft: Python exits with 1 or 2, uv with 2, a shell with 126 or 127."""


def answer(command: str, words: Sequence[str]) -> int:
    """Write the reply to the agent named by the first word to stdout; returns the exit code.

    `command` is `start`, `before`, `stop` or `end`. The exit code is `COMMIT_REFUSED` for a commit that does
    not meet the criteria, 130 after Ctrl-C, and otherwise 0. An error becomes a line on stderr and a notice
    in the reply.
    """
    stdout, name, agent = sys.stdout, words[0] if words else "", None
    reply: dict[str, Any] = {}
    try:
        agent = AGENTS.get(name)
        if agent is not None:
            payload = _given()
            event = agent.event(payload)
            if payload:
                _check_event(agent, event, command)
            if event.folder:
                event = replace(event, folder=str(Path(event.folder).absolute()))
            # A check's print() is no reply.
            with chdir(_project(event.folder, agent.name, event.session)), redirect_stdout(sys.stderr):
                _limit_time(agent, stdout, _timeout(command))
                reply = _ANSWERS[command](agent, event)
        elif name == GIT and command == "stop":
            where = str(Path.cwd())
            with chdir(_project(where)), redirect_stdout(sys.stderr):
                _limit_time(None, stdout, _timeout("commit"))
                return _stop_commit(where)
        else:
            raise ConfigError(f"Unknown agent {name!r}; expected one of {', '.join([*AGENTS, GIT])}")  # noqa: TRY301
    except KeyboardInterrupt:
        _give_way(agent, "Interrupted")
        return 130
    except BaseException as error:  # noqa: BLE001 (no failure may block, a check that calls sys.exit(2) included)
        why = str(error) or type(error).__name__
        if isinstance(error, SystemExit):
            why = f"A check ended the program with sys.exit({error.code!r:.100})"
        # The hook runs before every action, and a notice each time would only repeat itself.
        reply = _give_way(None if command == "before" else agent, why)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if reply:
        stdout.write(f"{json.dumps(reply)}\n")  # in ASCII, which every stream can encode
    return 0


def _check_event(agent: CodingAgent, event: HookEvent, command: str) -> None:
    """Raise `ConfigError` for an event of another command, or without a session.

    The limit on rounds is counted per session; without a session, an agent could be blocked forever.
    """
    expected = [name for name, (called, _) in agent.hooks.items() if called == command]
    if event.name.casefold() not in map(str.casefold, expected):
        names = " or ".join(map(repr, expected))
        raise ConfigError(
            f"`redraft hook {command} {agent.name}` is for the event {names}, got {event.name!r:.100}"
        )
    if not event.session:
        raise ConfigError(f"The event {event.name!r} names no session")


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # noqa: PLC0415 (see `_ANSWERS`)
    import logging  # noqa: PLC0415 (see `_ANSWERS`)

    logging.getLogger("redraft").addHandler(logging.NullHandler())  # stderr is for one line
    return asyncio.run(work)


def _before(agent: CodingAgent, event: HookEvent) -> dict[str, Any]:
    from redraft.integrations.hook_actions import before  # noqa: PLC0415 (see `_ANSWERS`)

    text = before(event, agent.name)
    return agent.context(event, text) if text else {}


def _stop(agent: CodingAgent, event: HookEvent) -> dict[str, Any]:
    from redraft.integrations.hook import check_turn  # noqa: PLC0415 (see `_ANSWERS`)

    verdict = _run(check_turn(event, agent.name))
    note = agent.notice(_say(verdict.note)) if verdict.note else {}
    return {**note, **(agent.block(verdict.critique) if verdict.critique else {})}


def _stop_commit(where: str) -> int:
    from redraft.integrations.hook import check_commit  # noqa: PLC0415 (see `_ANSWERS`)
    from redraft.text.characters import visible  # noqa: PLC0415 (see `_ANSWERS`)

    verdict = _run(check_commit(where))
    if verdict.note:
        _say(verdict.note)
    if verdict.critique:
        sys.stderr.write(f"{visible(verdict.critique)}\n\nTo commit all the same: git commit --no-verify\n")
        return COMMIT_REFUSED
    return 0


def _start(agent: CodingAgent, event: HookEvent) -> dict[str, Any]:
    from redraft.integrations.hook import begin  # noqa: PLC0415 (see `_ANSWERS`)
    from redraft.integrations.hook_sessions import Sessions  # noqa: PLC0415 (see `_ANSWERS`)

    if not event.prompt and Sessions().unlearned():
        _learn_in_background()
    text, note = _run(begin(event, agent.name))
    return {**(agent.notice(_say(note)) if note else {}), **(agent.context(event, text) if text else {})}


def _end(agent: CodingAgent, event: HookEvent) -> dict[str, Any]:
    from redraft.integrations.hook import end  # noqa: PLC0415 (see `_ANSWERS`)

    if end(event, agent.name):
        _learn_in_background()
    return {}


_ANSWERS = {"stop": _stop, "start": _start, "before": _before, "end": _end}
"""Functions that answer the commands. They import modules when called: import errors then fail open, too,
and an agent doesn't wait for modules that its command doesn't use."""


def _given() -> dict[str, Any]:
    """Read the event from stdin; empty if stdin is a terminal."""
    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()  # UTF-8, whatever the locale says
    try:
        payload = json.loads(data or b"{}")
    except ValueError as error:
        raise ConfigError(f"The event on stdin is not JSON: {error}.") from error
    if not isinstance(payload, dict):
        raise ConfigError("The event on stdin must be a JSON object.")
    return cast("dict[str, Any]", payload)


def _project(where: str, agent: str = "", session: str = "") -> Path:
    """Project folder of an agent that works in `where`, which may be empty.

    It is the folder with the state of the session, whatever the agent has written elsewhere. At first, it is
    the nearest folder with settings, else with criteria: above `where`, else where the session began, else in
    the main checkout of the repository, because linked work trees lack uncommitted files.
    """
    from redraft.integrations.hook_actions import key_of  # noqa: PLC0415 (see `_ANSWERS`)
    from redraft.settings import SETTINGS_FILE, hooks_folder, project_folder  # noqa: PLC0415 (see `_ANSWERS`)

    begun = (os.environ.get(name, "") for name in ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR"))
    folders = [Path(name) for name in (where, *begun) if name and Path(name).is_dir()] or [Path.cwd()]
    above = [each for folder in folders for each in (folder, *folder.parents)]
    if session and any((each / ".git").is_file() for each in above):  # a linked work tree
        from redraft.integrations.git import locate, main_checkout  # noqa: PLC0415 (see `_ANSWERS`)

        above += filter(None, [main_checkout(locate(folders[0]))])
    for folder in above if session else ():
        state = hooks_folder(folder)
        if state is not None and (state / f"{key_of(agent, session)}.json").is_file():
            return folder
    for folder in folders:
        if (project_folder(folder) / SETTINGS_FILE).is_file():
            return folder
    from redraft.integrations.git import locate, main_checkout  # noqa: PLC0415 (see `_ANSWERS`)

    work_tree = locate(folders[0])
    main_tree = main_checkout(work_tree)
    tops = [*([work_tree[0]] if work_tree else []), *([main_tree] if main_tree else [])]
    with_settings = [folder for folder in tops if (folder / SETTINGS_FILE).is_file()]
    with_criteria = [folder for folder in (*folders, *tops) if (folder / DEFAULT_CRITERIA).is_file()]
    return [*with_settings, *with_criteria, *reversed(folders)][0]


def _limit_time(agent: CodingAgent | None, stdout: TextIO, seconds: float) -> None:
    """End the process without blocking when the time is up, because a check or a model may hang."""

    def give_up(_signal: int, _frame: object) -> None:
        answer = _give_way(agent, f"The time limit of {seconds:g} s was exceeded (`timeout` in [hook])")
        if answer:
            stdout.write(f"{json.dumps(answer)}\n")
        stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a normal exit would wait for the check or model that hangs

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _timeout(command: str) -> float:
    if command == "before":
        return BEFORE_SECONDS
    from redraft.integrations.hook import Standard  # noqa: PLC0415 (see `_ANSWERS`)
    from redraft.integrations.hook_sessions import Sessions  # noqa: PLC0415 (see `_ANSWERS`)

    return Standard(Sessions(), for_agent=command in {"stop", "end"}).options.timeout


def _give_way(agent: CodingAgent | None, why: str) -> dict[str, Any]:
    note = _say(f"{why.rstrip('.')}. Nothing was checked or blocked.")
    return {} if agent is None else agent.notice(note)


def _say(text: str) -> str:
    """Write one line to stderr, without secrets, and return it."""
    from redraft.redact import redact  # noqa: PLC0415 (see `_ANSWERS`)
    from redraft.text.characters import visible  # noqa: PLC0415 (see `_ANSWERS`)
    from redraft.types import in_one_line  # noqa: PLC0415 (see `_ANSWERS`)

    line = f"redraft hook: {visible(redact(in_one_line(text)).text)}"
    sys.stderr.write(f"{line}\n")
    return line


def _learn_in_background() -> None:
    """Write lessons in a process of its own: an agent that ends does not wait for its hooks."""
    import subprocess  # noqa: PLC0415 (see `_ANSWERS`)

    subprocess.Popen(
        [sys.executable, "-P", "-m", "redraft", "hook", "learn"],  # -P: no modules of the project
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
