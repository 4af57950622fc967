"""The hooks on a real repository, played through the protocols of the agents."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import fields, replace
from importlib import invalidate_caches
from pathlib import Path

import pytest

from redraft import ModelError, ScriptedModel
from redraft.integrations.hook import NO_TASK, TASK_TYPE
from redraft.integrations.hook_answer import COMMIT_REFUSED, _learn_in_background
from redraft.integrations.hook_settings import HookOptions
from redraft.lessons import Failure, Lessons
from redraft.terminal.exits import ExitCode
from redraft.types import PlainTask
from support.coding_agents import CRITERIA, PROGRAM, ClaudeCode, Cursor, git, repository, run_alone
from support.commands import redraft
from support.counting_server import provider
from support.pages import Page

PAGE = Page("docs/coding-agents.md")
SECONDS = 30


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository as the working folder, which remembers what hooks did."""
    monkeypatch.chdir(repository(tmp_path))
    monkeypatch.delenv("REDRAFT_HOME")
    # A process that outlives the test; `redraft hook learn` does the same here.
    monkeypatch.setattr("redraft.integrations.hook_answer._learn_in_background", lambda: None)
    return tmp_path


def set_up(folder, *, criteria=CRITERIA, settings="[hook]\n"):
    (folder / "criteria.yaml").write_text(criteria, "utf-8")
    (folder / "redraft.toml").write_text(settings, "utf-8")


def edit(folder, text, name="offer.py"):
    """An edit that an agent makes."""
    return lambda: (folder / name).write_text(text, "utf-8")


def event(name, *, session="s", **more):
    return json.dumps({"session_id": session, "cwd": str(Path.cwd()), "hook_event_name": name, **more})


def stop(agent="claude", **more):
    """Fire the end of a turn in this process; return the answer and stderr."""
    done = redraft("hook", "stop", agent, stdin=event("Stop", prompt_id="1", **more))
    assert done.exit_code == 0
    return json.loads(done.stdout or "{}"), done.stderr


# --- whole sessions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "player", "more"),
    [
        ("claude", ClaudeCode, {"in_process": False}),  # the real thing, once
        ("codex", ClaudeCode, {"file": ".codex/hooks.json", "turn_id": "turn_id"}),
        ("cursor", Cursor, {}),
    ],
)
def test_a_session_is_blocked_and_its_fix_becomes_a_lesson(agent, player, more, project, monkeypatch):
    if more.get("in_process", True):
        learn = "redraft.integrations.hook_answer._learn_in_background"
        monkeypatch.setattr(learn, lambda: redraft("hook", "learn"))
    assert redraft("hook", "install", agent, "--program", PROGRAM).exit_code == 0
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=Hooks")
    session = player(project, **more)
    session.start()
    bad, good = (edit(project, f"def offer():\n    {line}\n") for line in ("print(2)", "return 2"))
    turn = session.prompt("Write an offer.", bad, good)
    assert len(turn.critiques) == 1
    assert "No print() is left in the code." in turn.critiques[0]
    assert "check 1 of 3" in turn.critiques[0]
    assert turn.errors == []
    session.end()
    [lesson] = lessons_written(project)
    assert re.search(r"kind: procedure.*trust: checked.*task: Write an offer\.", lesson, re.DOTALL)
    later = player(project, session="7d1a", **more)
    later.start()
    assert "No print() is left in the code." in later.told[0]


def lessons_written(project):
    """Wait for the process that writes lessons in the background, and return what it wrote."""
    end = time.monotonic() + SECONDS
    while list((project / ".redraft" / "hooks").glob("*.json")):
        assert time.monotonic() < end, "no lesson was written"
        time.sleep(0.05)
    return [path.read_text("utf-8") for path in (project / "memory" / "reflections").rglob("2*.md")]


def test_a_module_of_the_project_does_not_replace_a_library_when_lessons_are_written(project, monkeypatch):
    (project / "typer.py").write_text("raise ValueError('of the project')\n", "utf-8")
    started, popen = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **more: started.append(popen(*words, **more)))
    _learn_in_background()
    assert started[0].wait(SECONDS) == 0


def test_nothing_is_installed_with_settings_that_are_wrong(project):
    (project / "redraft.toml").write_text("[hook]\nblock = 3\n", "utf-8")
    before = sorted(project.rglob("*.json"))
    result = redraft("hook", "install", "claude", "--program", PROGRAM)
    assert (result.exit_code, sorted(project.rglob("*.json"))) == (2, before)
    assert "[hook]: unknown key 'block'" in result.stderr


@pytest.mark.parametrize(("agent", "player"), [("claude", ClaudeCode), ("cursor", Cursor)])
def test_a_turn_is_blocked_at_most_three_times(agent, player, project):
    redraft("hook", "install", agent, "--program", PROGRAM)
    session = player(project)
    session.start()
    edits = [edit(project, f"print({number})\n") for number in range(8)]
    turn = session.prompt("Print.", *edits)
    checks = [re.search(r"check \d of 3", one)[0] for one in turn.critiques]
    assert checks == ["check 1 of 3", "check 2 of 3", "check 3 of 3"]
    [line] = turn.errors
    assert "not met after 3 rounds: " in line
    assert turn.shown == ([line.removesuffix("\n")] if agent == "claude" else [])
    again = session.prompt("Explain.")  # what was let go is let go
    assert (again.critiques, again.shown) == ([], [])


# --- when a turn is let go ---------------------------------------------------------------------------------


def blocked(*, first=0, **more):
    """Three blocks of a turn, each after another edit, and its end."""
    says = ("check 1 of 3", "check 2 of 3", "check 3 of 3", "not met after 3 rounds: ")
    return [(f"print({first + number})", more, text) for number, text in enumerate(says)]


CONTINUED = {"prompt_id": "1", "stop_hook_active": True}
TURNS = {
    "nothing changed": [
        ("print(1)", {"prompt_id": "1"}, "check 1 of 3"),
        (None, CONTINUED, "nothing has changed since the last check"),
    ],
    "the critique repeats": [
        ("print(1)", {"prompt_id": "1"}, "check 1 of 3"),
        ("print(1)\nx = 1", CONTINUED, "the critique is the same as before"),
    ],
    # Claude Code is known to send it so within a turn; the id of the prompt says that it is the same.
    "a mark that stays false": blocked(prompt_id="1", stop_hook_active=False),
    "another hook has the agent go on": [
        *blocked(prompt_id="1"),
        ("x = 1", CONTINUED, ""),  # met in between
        ("print(9)", CONTINUED, "not met after 3 rounds: "),
    ],
    "turns without an id": [
        step
        for first in (0, 4)
        for step in (blocked(first=first)[0], *blocked(first=first, stop_hook_active=True)[1:])
    ],
    "a new prompt": [*blocked(prompt_id="1"), *blocked(first=4, prompt_id="2")],
}


@pytest.mark.parametrize("steps", TURNS.values(), ids=TURNS)
def test_a_turn_is_blocked_until_it_is_let_go(project, steps):
    for text, more, says in steps:
        if text is not None:
            edit(project, f"{text}\n")()
        done = redraft("hook", "stop", "claude", stdin=event("Stop", **more))
        answer = json.loads(done.stdout or "{}")
        shown = answer.get("reason", answer.get("systemMessage", ""))
        assert says in shown if says else not shown, (text, shown)
        assert ("decision" in answer) is says.startswith("check")
        assert done.stderr.count("\n") == ("systemMessage" in answer)


def test_an_agent_that_does_not_say_that_it_goes_on(project):
    """Events played by hand, and agents that give prompts no id, may leave the mark out."""

    def end_of_turn():
        done = redraft("hook", "stop", "claude", stdin=event("Stop"))
        return json.loads(done.stdout or "{}")

    for number in range(3):
        edit(project, f"print({number})\n")()
        assert f"check {number + 1} of 3" in end_of_turn()["reason"]
    edit(project, "print(4)\n")()
    assert "after 3 rounds" in end_of_turn()["systemMessage"]
    redraft("hook", "start", "claude", stdin=event("UserPromptSubmit", prompt="Print."))
    assert end_of_turn() == {}  # what was let go is let go
    edit(project, "print(5)\n")()
    assert "check 1 of 3" in end_of_turn()["reason"]
    assert "nothing has changed" in end_of_turn()["systemMessage"]
    edit(project, "print(6)\n")()
    assert "check 1 of 3" in end_of_turn()["reason"]  # the turn was over


def test_a_fix_without_a_reported_continuation_leaves_a_procedure(project, monkeypatch):
    redraft("hook", "start", "claude", stdin=event("UserPromptSubmit", prompt="Write an offer."))
    for text in ("print(1)\n", "x = 1\n"):
        edit(project, text)()
        redraft("hook", "stop", "claude", stdin=event("Stop"))
    redraft("hook", "end", "claude", stdin=event("SessionEnd"))
    redraft("hook", "learn")
    [path] = (project / "memory" / "reflections" / "coding-agent").glob("*.md")
    assert "kind: procedure" in path.read_text("utf-8")


@pytest.mark.parametrize(("blocks", "said"), [(0, "not met: "), (1, "not met after 1 round: ")])
def test_so_many_blocks_are_allowed(project, blocks, said):
    set_up(project, settings=f"[hook]\nblocks = {blocks}\n")
    for number in range(blocks + 1):
        edit(project, f"print({number})\n")()
        answer, _ = stop()
        assert list(answer) == (["systemMessage"] if number == blocks else ["decision", "reason"])
    assert said in answer["systemMessage"]


# --- what is judged ----------------------------------------------------------------------------------------


def test_changes_before_the_session_are_not_judged(project):
    edit(project, "print('mine')\n", "mine.py")()
    edit(project, "def price():\n    print(2)\n", "prices.py")()
    redraft("hook", "start", "claude", stdin=event("SessionStart", source="startup"))
    assert stop() == ({}, "")
    edit(project, "x = 1\n", "theirs.py")()
    assert stop() == ({}, "")
    edit(project, "print('theirs')\n", "mine.py")()
    assert stop()[0]["decision"] == "block"


def test_what_was_committed_in_the_session_is_judged(project):
    redraft("hook", "start", "claude", stdin=event("SessionStart", source="startup"))
    edit(project, "print(1)\n")()
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=Print")
    assert stop()[0]["decision"] == "block"


def test_a_repository_without_a_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    git(tmp_path, "init", "--quiet")
    (tmp_path / "criteria.yaml").write_text(CRITERIA, "utf-8")
    (tmp_path / "redraft.toml").write_text("", "utf-8")
    edit(tmp_path, "print(1)")()
    git(tmp_path, "add", "offer.py")
    assert stop()[0]["decision"] == "block"


def test_paths_and_ignored_files(project):
    set_up(project, settings='[hook]\npaths = ["*.py", ":!tests"]\n')
    (project / ".gitignore").write_text("build\n", "utf-8")
    for name in ("notes.txt", "tests/t.py", "build/b.py"):
        (project / name).parent.mkdir(exist_ok=True)
        edit(project, "+print(1)\nprint(1)\n", name)()
    assert stop() == ({}, "")
    (project / "sub").mkdir()
    edit(project, "print(1)\n", "sub/ümläut name.py")()
    assert stop()[0]["decision"] == "block"


@pytest.mark.parametrize(
    ("files", "place", "variables"),
    [
        ("committed", "{linked}", {}),
        ("committed", "{main}/.claude/worktrees/w", {"CLAUDE_PROJECT_DIR": "{main}"}),
        ("criteria committed", "{linked}", {"CLAUDE_PROJECT_DIR": "{main}"}),
        ("not committed", "{linked}", {}),
        ("not committed", "{linked}", {"CLAUDE_PROJECT_DIR": "{main}"}),
        ("not committed", "{main}/.claude/worktrees/w", {}),
    ],
)
def test_the_work_tree_is_judged_that_the_agent_works_in(
    project, tmp_path_factory, monkeypatch, files, place, variables
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(main=project))
    if files != "committed":
        git(project, "rm", "--quiet", "--cached", "redraft.toml")
    if files == "criteria committed":
        (project / "redraft.toml").unlink()
    elif files == "not committed":
        git(project, "rm", "--quiet", "--cached", "criteria.yaml")
    git(project, "commit", "--quiet", "--allow-empty", "--message=x")
    folder = Path(place.format(main=project, linked=tmp_path_factory.mktemp("linked") / "w"))
    git(project, "worktree", "add", "--quiet", "-b", "w", str(folder))
    edit(project, "print('of the person')\n")()
    (folder / "sub").mkdir()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    def stops(where, **more):
        done = redraft(
            "hook", "stop", "claude", stdin=event("Stop", **more).replace(str(Path.cwd()), str(where))
        )
        return json.loads(done.stdout or "{}")

    assert stops(folder, session="a") == {}
    edit(folder / "sub", "print('of the agent')\n")()
    assert "of the agent" in stops(folder / "sub", session="b")["reason"]
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=By the agent", "--no-verify")
    assert "of the agent" in stops(folder, session="c")["reason"]
    assert "of the person" in stops(project, session="d")["reason"]


def test_a_commit_in_a_work_tree_is_judged_by_criteria_of_the_main_checkout(project, tmp_path_factory):
    git(project, "rm", "--quiet", "--cached", "criteria.yaml", "redraft.toml")
    git(project, "commit", "--quiet", "--message=x")
    folder = tmp_path_factory.mktemp("linked") / "w"
    git(project, "worktree", "add", "--quiet", "-b", "w", str(folder))
    assert redraft("hook", "install", "git", "--program", PROGRAM).exit_code == 0
    edit(folder, "print(1)\n")()
    git(folder, "add", ".")
    done = subprocess.run(
        ["git", "commit", "-m", "x"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "No print() is left" in done.stderr) == (1, True)


@pytest.mark.parametrize("agent", ["claude", "codex", "cursor"])
def test_an_agent_that_works_in_a_subfolder_is_judged(project, agent):
    """Also without settings, of which all have defaults."""
    (project / "redraft.toml").unlink()
    (project / "sub" / "deeper").mkdir(parents=True)
    edit(project, "print(1)\n")()
    name = "stop" if agent == "cursor" else "Stop"
    given = event(name).replace(str(project), str(project / "sub" / "deeper"))
    assert "No print() is left" in redraft("hook", "stop", agent, stdin=given).stdout


def test_what_is_no_text_is_named_once_and_a_guess_is_named(project):
    (project / "picture.png").write_bytes(bytes(range(256)))
    answer, _ = stop()
    assert answer["systemMessage"] == "redraft hook: 'picture.png' is not text, so it was not judged."
    assert stop() == ({}, "")
    (project / "a.py").write_bytes("# größe\n".encode("latin-1"))
    answer, _ = stop()
    assert (
        "'a.py' is not UTF-8 and declares no encoding; it was read as cp1252; 'pict"
        in answer["systemMessage"]
    )
    git(project, "add", ".")
    assert "it was read as cp1252" in redraft("hook", "stop", "git").stderr


def test_settings_and_criteria_may_begin_with_a_byte_order_mark(project):
    set_up(project, criteria=f"\ufeff{CRITERIA}", settings="\ufeff[hook]\nblocks = 1\n")
    edit(project, "print(1)\n")()
    assert "check 1 of 1" in stop()[0]["reason"]


WEAKER = CRITERIA.replace("print", "never")
CHECKS = """\
criteria:
  - name: no debugging
    evaluator: function
    config: {function: "house_rules:no_print"}
"""
NO_PRINT = """\
def no_print(text):
    return "+print(" not in text, "No print() is left in the code."
"""


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("subject", ["diff", "files"])
def test_the_module_of_a_criterion_is_not_judged_by_it(project, begins, subject):
    name = f"own_{subject}_{begins}".lower()
    (project / f"{name}_rules.py").write_text(NO_PRINT, "utf-8")
    set_up(project, criteria=CHECKS.replace("house", name), settings=f"[hook]\nsubject = '{subject}'\n")
    if begins:
        begin()
    assert stop() == ({}, "")
    edit(project, "print(1)\n+print(1)\n")()
    assert "No print() is left" in stop()[0]["reason"]


def begin(session="s", **more):
    """Fire the start of a session; return the answer."""
    done = redraft(
        "hook", "start", "claude", stdin=event("SessionStart", session=session, source="startup", **more)
    )
    return json.loads(done.stdout or "{}")


def in_terminal(command, typed):
    """Run a command whose stdin is a terminal, and return what it prints."""
    ours, its = os.openpty()
    os.write(ours, typed.encode())
    try:
        done = subprocess.run(command, stdin=its, capture_output=True, text=True, check=True)
    finally:
        os.close(ours)
        os.close(its)
    return done.stdout


ALLOWING = {
    "module": "house_rules.py",
    "package in place of a module": "house_rules/__init__.py",
    "module of a package": "rules/house.py",
    "package": "rules/__init__.py",
}
SETTINGS = {
    "other home": "home = '.other'\n",
    "no home": "home = ''\n",
    "no TOML": "[hook\n",
    "unknown setting": "modell = 'x'\n",
    "no time": "[hook]\ntimeout = 0.000001\n",
    "memory": "memory = 'offer.py'\n",
}


def weaken(project, change):
    """Make a change after which the criteria would forbid nothing, as an agent might."""
    if change == "deleted":
        (project / "criteria.yaml").unlink()
    elif change == "other file":
        (project / "weak.yaml").write_text(WEAKER, "utf-8")
        (project / "redraft.toml").write_text("[hook]\ncriteria = 'weak.yaml'\n", "utf-8")
    elif change == "other subject":
        (project / "redraft.toml").write_text("[hook]\npaths = ['README.md']\n", "utf-8")
    elif change == "never blocks":
        (project / "redraft.toml").write_text("[hook]\nblocks = 0\n", "utf-8")
    elif change in ALLOWING:
        path = project / ALLOWING[change]
        path.parent.mkdir(exist_ok=True)
        path.write_text("def no_print(text):\n    return True\n", "utf-8")
    elif change in SETTINGS:
        (project / "redraft.toml").write_text(SETTINGS[change], "utf-8")
        (project / "criteria.yaml").write_text(WEAKER, "utf-8")
    else:
        (project / "criteria.yaml").write_text(WEAKER if change == "weaker" else "- [", "utf-8")


@pytest.mark.parametrize(
    "change",
    ["weaker", "deleted", "broken", "other file", "other subject", "never blocks", *ALLOWING, *SETTINGS],
)
def test_what_an_agent_changes_of_its_criteria_is_reported_and_not_applied(project, change):
    if change in ALLOWING:
        module = "house_rules" if ALLOWING[change].startswith("house_rules") else "rules.house"
        if module == "rules.house":
            (project / "rules").mkdir()
            (project / "rules/__init__.py").write_text("", "utf-8")
            (project / "rules/words.py").write_text("FORBIDDEN = ['print']\n", "utf-8")
        text = NO_PRINT if module == "house_rules" else f"from .words import FORBIDDEN\n{NO_PRINT}"
        (project / f"{module.replace('.', '/')}.py").write_text(text, "utf-8")
        set_up(project, criteria=CHECKS.replace("house_rules", module))
    begin()
    weaken(project, change)
    edit(project, "print(1)\n")()
    for module in ("house_rules", "rules", "rules.house", "rules.words"):  # as in a process of its own
        sys.modules.pop(module, None)
    invalidate_caches()
    answer, said_on_stderr = stop()
    assert "No print() is left in the code." in answer["reason"]
    changed = "criteria.yaml" if change in ("weaker", "deleted", "broken") else "redraft.toml"
    said = f"{ALLOWING.get(change, changed)} has changed"
    if change in SETTINGS:
        said = "criteria.yaml and redraft.toml have changed"
    assert f"{said}, and what was accepted before was applied" in said_on_stderr
    # Another session is judged by what was accepted, too, until a person accepts the change.
    redraft("hook", "end", "claude", stdin=event("SessionEnd"))
    assert said in begin("another")["systemMessage"]


@pytest.mark.parametrize("variables", [{}, {"CLAUDE_PROJECT_DIR": "{project}"}])
@pytest.mark.parametrize("place", ["{project}/sub", "{project}/trees/w", "{outside}/w"])
def test_settings_that_an_agent_writes_elsewhere_do_not_apply(
    place, variables, project, tmp_path_factory, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(project=project))
    begin()
    folder = Path(place.format(project=project, outside=tmp_path_factory.mktemp("outside")))
    if folder.name == "w":
        git(project, "worktree", "add", "--quiet", "-b", "w", str(folder))
    else:
        folder.mkdir()
        (folder / "redraft.toml").write_text("[hook]\n", "utf-8")
    (folder / "criteria.yaml").write_text(WEAKER, "utf-8")
    edit(folder, "print(1)\n")()
    monkeypatch.chdir(folder)
    assert "No print() is left in the code." in stop()[0]["reason"]


@pytest.mark.parametrize(
    ("agent", "command", "name"),
    [
        ("cursor", "start", "sessionStart"),
        ("cursor", "start", "beforeSubmitPrompt"),
        ("cursor", "stop", "stop"),
        ("codex", "start", "UserPromptSubmit"),
        ("codex", "stop", "Stop"),
        ("claude", "stop", "Stop"),
    ],
)
def test_the_criteria_hold_from_the_first_event_of_a_session(agent, command, name, project):
    def fire(command, name):
        more = {"conversation_id": "c", "turn_id": "1", "workspace_roots": [str(project)]}
        return redraft("hook", command, agent, stdin=event(name, prompt="Go.", **more))

    fire(command, name)
    weaken(project, "weaker")
    edit(project, "print(1)\n")()
    done = fire("stop", "stop")
    assert "No print() is left in the code." in done.stdout
    assert "criteria.yaml has changed, and what was accepted before was applied" in done.stderr


def test_a_change_of_the_criteria_alone_is_reported_once(project):
    begin()
    weaken(project, "weaker")
    assert "criteria.yaml has changed" in stop()[0]["systemMessage"]
    assert stop() == ({}, "")
    (project / "criteria.yaml").write_text(CRITERIA, "utf-8")
    edit(project, "print(1)\n")()
    answer, said = stop()
    assert (answer["decision"], said) == ("block", "")


def test_what_a_person_changes_between_sessions_applies_to_the_next(project):
    begin()
    stop()
    redraft("hook", "end", "claude", stdin=event("SessionEnd"))
    weaken(project, "weaker")
    told = begin("another")["systemMessage"]
    assert "criteria.yaml changed since the last session, and what is there now applies." in told
    edit(project, "print(1)\n")()
    assert stop(session="another") == ({}, "")


def test_a_commit_within_a_session_is_judged_by_what_was_accepted(project):
    begin()
    weaken(project, "weaker")
    edit(project, "print(1)\n")()
    git(project, "add", ".")
    done = redraft("hook", "stop", "git")
    assert done.exit_code == COMMIT_REFUSED
    redraft("hook", "end", "claude", stdin=event("SessionEnd"))
    assert redraft("hook", "stop", "git").exit_code == COMMIT_REFUSED  # it was seen when the session ended


def test_a_person_accepts_a_change_at_a_terminal(project):
    assert "Nothing has changed." in redraft("hook", "accept").stderr
    begin()
    weaken(project, "weaker")
    done = redraft("hook", "accept", stdin="y\n")
    assert (done.exit_code, "a person has to do that" in done.stderr) == (ExitCode.USAGE, True)
    edit(project, "print(1)\n")()
    assert "reason" in stop()[0]
    shown = in_terminal(shlex.split(f"{PROGRAM} hook accept"), "y\n")
    assert "bnever" in shown
    edit(project, "print(2)\n")()
    assert stop() == ({}, "")
    assert "Nothing has changed." in redraft("hook", "accept").stderr


def test_a_program_that_the_criteria_run_is_reported(project):
    criteria = """\
criteria:
  - name: style
    evaluator: command
    config: {command: ["sh", "style.sh", "{file}"], readable: [style.sh]}
"""
    (project / "style.sh").write_text("exit 1\n", "utf-8")
    set_up(project, criteria=criteria)
    begin()
    (project / "style.sh").write_text("exit 0\n", "utf-8")
    assert "style.sh, which the criteria run, has changed" in stop()[0]["systemMessage"]


def test_an_agent_that_removes_its_hook_is_reported(project):
    redraft("hook", "install", "claude")
    begin()
    (project / ".claude/settings.json").write_text("{}", "utf-8")
    assert "no longer calls `redraft hook`" in stop()[0]["systemMessage"]


def test_criteria_outside_of_the_repository(project, tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared") / "criteria.yaml"
    shared.write_text(CRITERIA, "utf-8")
    path = os.path.relpath(shared, project)
    set_up(project, settings=f'[hook]\ncriteria = "{path}"\n')
    edit(project, "print(1)\n")()
    assert stop()[0]["decision"] == "block"


@pytest.mark.parametrize("place", ["{project}", "{project}/.git/..", "{link}", "../{name}"])
def test_the_criteria_file_is_not_judged_whatever_form_its_path_has(place, project, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "project"
    link.symlink_to(project)
    path = place.format(project=project, link=link, name=project.name)
    set_up(project, settings=f'[hook]\ncriteria = "{path}/criteria.yaml"\n')
    edit(project, CRITERIA + "# print(1)\n", "criteria.yaml")()
    assert stop() == ({}, "")
    edit(project, "print(1)\n")()
    assert stop()[0]["decision"] == "block"


FILES = """\
criteria:
  - {name: short, description: At most two lines., evaluator: lines, config: {at_most: 2}}
  - {name: a sentence that only a model can judge}
"""


def test_files_are_judged_one_by_one(project):
    set_up(project, criteria=FILES, settings='[hook]\nsubject = "files"\n')
    edit(project, "a\nb\nc\n", "long.py")()
    edit(project, "a\n", "short.py")()
    (project / "picture.bin").write_bytes(b"\0\1\2")
    git(project, "rm", "--quiet", "prices.py")
    reason = stop()[0]["reason"]
    assert "long.py: The text has 3 lines" in reason
    assert "short.py" not in reason


def test_the_last_answer_is_judged(project):
    criteria = "criteria: [{name: brief, evaluator: words, config: {at_most: 3}}]"
    set_up(project, criteria=criteria, settings='[hook]\nsubject = "answer"\n')
    assert "decision" in stop(last_assistant_message="It took me four words.")[0]
    assert stop(last_assistant_message="Done.") == ({}, "")
    assert "does not say what it answered" in stop()[1]


# --- it fails open -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criteria", "settings", "says"),
    [
        ("criteria:\n  - {name: a, evaluator: regex, confg: {}}\n", "", "yaml, line 2: unknown key 'confg'"),
        ("- [", "", "criteria.yaml"),
        ("- Names the price.\n", "", "nothing that can be checked without a model; set judge = true"),
        ("- Names the price.\n", "[hook]\njudge = true\n", "judge = true in [hook] needs a model"),
        ("- {name: a, evaluator: function, config: {function: 'nowhere:f'}}\n", "", "nowhere"),
        (CRITERIA, '[hook]\ncriteria = "none.yaml"\n', "none.yaml' cannot be read"),
        (CRITERIA, "[hook]\nblock = 3\n", "redraft.toml, [hook]: unknown key 'block'"),
        (CRITERIA, "[hook]\npaths = [3]\n", "[hook]: paths: a pathspec must be a non-empty string, got 3."),
        (CRITERIA, "[hook]\nblocks = 9\n", "[hook]: blocks must be a whole number of at most 7."),
        (CRITERIA, "[hook]\nbudget_tokens = 1.5\n", "budget_tokens must be a whole number of at least 1"),
        (CRITERIA, "[hook]\nmax_tokens = -1\n", "max_tokens must be a whole number of at least 0, got -1"),
        (CRITERIA, "[hook", "redraft.toml is not valid TOML"),
        ("output_type: x.json\n" + CRITERIA, "", "x.json"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_settings_blocks_nothing(project, criteria, settings, says):
    set_up(project, criteria=criteria, settings=settings)
    edit(project, "print(1)\n")()
    answer, stderr = stop()
    assert says in stderr
    assert re.fullmatch(r"redraft hook: .*Nothing was checked or blocked\.\n", stderr)
    assert answer == {"systemMessage": stderr.removesuffix("\n")}


@pytest.mark.parametrize(
    ("words", "given", "says"),
    [
        (["stop", "claude"], "{", "The event on stdin is not JSON"),
        (["stop", "claude"], "[]", "must be a JSON object"),
        (["stop", "emacs"], "{}", "Unknown agent 'emacs'"),
        (["stop"], "{}", "Unknown agent ''"),
        (["stop", "claude", "--newer-option"], '{"session_id": 3}', ""),
        (["start", "claude", "--newer-option"], "{}", ""),
        (["end", "cursor"], "", ""),
        (["stop", "claude"], event("Stopp"), "is for the event 'Stop', got 'Stopp'"),
        (["stop", "claude"], event("SubagentStop"), "is for the event 'Stop', got 'SubagentStop'"),
        (
            ["start", "codex"],
            event("Stop"),
            "is for the event 'SessionStart' or 'UserPromptSubmit', got 'Stop'",
        ),
        (["stop", "cursor"], event("sessionEnd"), "is for the event 'stop', got 'sessionEnd'"),
        (["stop", "claude"], '{"session_id": "s"}', "is for the event 'Stop', got ''"),
        (["stop", "claude"], event("Stop", session=""), "The event 'Stop' names no session"),
        (["stop", "claude"], '{"hook_event_name": "Stop"}', "The event 'Stop' names no session"),
    ],
)
def test_no_call_of_an_agent_is_a_usage_error(project, words, given, says):
    done = redraft("hook", *words, stdin=given)
    assert (done.exit_code, says in done.stderr) == (0, True)


@pytest.mark.parametrize("given", [event("Stopp"), event("Stop", session="")])
def test_an_event_that_is_not_understood_ends_the_turn_with_one_message(project, given):
    edit(project, "print(1)\n")()
    done = redraft("hook", "stop", "claude", stdin=given)
    assert re.fullmatch(r"redraft hook: .*Nothing was checked or blocked\.\n", done.stderr)
    assert json.loads(done.stdout) == {"systemMessage": done.stderr.removesuffix("\n")}


def test_outside_of_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "is not in a git repository" in stop()[1]


def test_sessions_are_stored_where_the_settings_file_cannot_say(project, monkeypatch):
    """An agent may write to that file."""
    (project / "redraft.toml").write_text("home = ''\n", "utf-8")
    edit(project, "print(1)\n")()
    assert stop()[0]["decision"] == "block"
    monkeypatch.setenv("REDRAFT_HOME", "")
    assert "blocked turns can't be counted" in stop()[1]


def test_projects_that_share_a_home_have_sessions_and_accepted_criteria_of_their_own(
    project, tmp_path_factory, monkeypatch
):
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path_factory.mktemp("home")))
    other = repository(tmp_path_factory.mktemp("other"))
    (other / "criteria.yaml").write_text(WEAKER, "utf-8")
    for folder, decision in ((project, "block"), (other, None)):
        monkeypatch.chdir(folder)
        assert begin(f"in {folder}").get("systemMessage") is None
        edit(folder, "print(1)\n")()
        answer, said = stop(session=f"in {folder}")
        assert (answer.get("decision"), said) == (decision, "")


def test_without_git(project, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "git can't be run" in stop()[1]


def test_a_check_that_raises(project):
    criteria = "- {name: a, evaluator: function, config: {function: 'broken_check:f'}}\n"
    (project / "broken_check.py").write_text("def f(text):\n    return 1 / 0\n", "utf-8")
    set_up(project, criteria=criteria)
    edit(project, "x = 1\n")()
    answer, stderr = stop()
    assert "decision" not in answer
    assert "division by zero" in stderr


@pytest.mark.parametrize("agent", ["claude", "git"])
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import sys\ndef f(text): sys.exit(2)\n", "raised SystemExit: 2"),
        ("import argparse\nargparse.ArgumentParser().parse_args(['x'])\n", "SystemExit: 2"),
        ("import sys\nsys.exit(10)\n", "SystemExit: 10"),
        ("raise KeyboardInterrupt\n", "Interrupted"),
        (
            "import asyncio\ndef f(text): raise asyncio.CancelledError\n",
            "f was cancelled, and the run was not",
        ),
        ("raise GeneratorExit\n", "GeneratorExit"),
    ],
)
def test_a_check_that_ends_the_program_blocks_nothing(project, agent, body, says):
    criteria = "- {name: a, evaluator: function, config: {function: 'ending_check:f'}}\n"
    (project / "ending_check.py").write_text(body, "utf-8")
    set_up(project, criteria=criteria)
    edit(project, "x = 1\n")()
    git(project, "add", ".")
    sys.modules.pop("ending_check", None)
    done = redraft("hook", "stop", agent, stdin=event("Stop") if agent == "claude" else None)
    assert done.exit_code == (130 if says == "Interrupted" else 0)
    assert "decision" not in done.stdout
    assert says in done.stderr


def test_what_a_check_prints_is_no_part_of_the_answer(project):
    criteria = "- {name: a, evaluator: function, config: {function: 'printing_check:f'}}\n"
    body = "print('loaded')\ndef f(text):\n    print('called')\n    return False, 'No.'\n"
    (project / "printing_check.py").write_text(body, "utf-8")
    set_up(project, criteria=criteria)
    edit(project, "x = 1\n")()
    assert stop()[0]["decision"] == "block"


def test_an_event_with_any_text_is_read_and_answered_in_any_locale(project):
    set_up(
        project,
        criteria="criteria: [{name: größer, evaluator: words, config: {at_most: 1}}]\n",
        settings='[hook]\nsubject = "answer"\n',
    )
    done = subprocess.run(
        [sys.executable, "-m", "redraft", "hook", "stop", "claude"],
        input=(
            "\ufeff" + event("Stop", last_assistant_message="\ud83d ü 漢").replace("\\u00fc", "ü")
        ).encode(),
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["decision"] == "block"


def test_lone_surrogates_in_an_event_do_not_keep_it_from_being_judged(project):
    criteria = "- {name: a, evaluator: regex, config: {pattern: 'A', must_match: false}, shown: true}\n"
    set_up(project, criteria=criteria, settings="[hook]\nsubject = 'answer'\n")
    answer, _ = stop(session="\ud800", last_assistant_message="\ud800 A")
    assert answer["decision"] == "block"


def test_a_hanging_check_is_abandoned(project):
    """In a process of its own, which ends at once whatever is under way."""
    criteria = "- {name: a, evaluator: function, config: {function: 'hanging_check:f'}}\n"
    (project / "hanging_check.py").write_text("import time\ndef f(text):\n    time.sleep(600)\n", "utf-8")
    set_up(project, criteria=criteria, settings="[hook]\ntimeout = 0.3\n")
    redraft("hook", "install", "claude", "--program", PROGRAM)
    turn = ClaudeCode(project, in_process=False).prompt("Wait.", edit(project, "x = 1\n"))
    assert turn.critiques == []
    assert "The time limit of 0.3 s was exceeded" in turn.shown[0]
    assert turn.errors[0].count("\n") == 1


# --- a judge, on request -----------------------------------------------------------------------------------

JUDGED = "task: Write an offer.\ncriteria:\n  - Names the price.\n"


@pytest.fixture
def model(monkeypatch):
    """A judge that likes nothing."""

    def reply(request):
        scores = {"names_the_price": {"reason": "There is none.", "score": 0.1}}
        return {"criteria": scores, "issues": ["No price."], "suggestions": [], "confidence": 0.9}

    model = ScriptedModel(reply)
    monkeypatch.setenv("REDRAFT_MODEL", "any:model")
    monkeypatch.setattr("redraft.loop.verbs.model_of", lambda *_, **__: model)
    return model


def test_a_model_judges_if_asked_for(project, model):
    set_up(project, criteria=JUDGED, settings="[hook]\njudge = true\n")
    edit(project, "x = 2\n")()
    assert "There is none" in stop()[0]["reason"]


def test_no_model_judges_unless_asked_for(project, model):
    set_up(project, criteria=f"{JUDGED}  - {{name: x, evaluator: regex, config: {{pattern: x}}}}\n")
    edit(project, "x = 1\n")()
    assert stop() == ({}, "")
    assert model.requests == []


def test_a_budget_that_does_not_allow_the_judge_blocks_nothing(project, model):
    set_up(project, criteria=JUDGED, settings="[hook]\njudge = true\nbudget_tokens = 1\n")
    edit(project, "x = 1\n")()
    answer, stderr = stop()
    assert (model.requests, "decision" in answer) == ([], False)
    assert "'Names the price.': " in stderr


@pytest.mark.parametrize(
    ("model", "usd", "calls", "says"),
    [
        (
            "gpt-4o-mini",
            0.00001,
            False,
            r"'Names the price\.': budget_usd=1e-05 left no room.*takes about \$0\.0",
        ),
        ("gpt-4o-mini", 0.01, True, ""),
        ("my-own", 1.0, False, "The price of 'openai-chat:my-own' is not known"),
    ],
)
def test_a_judge_that_cannot_fit_or_has_no_price_is_not_called(model, usd, calls, says, project, monkeypatch):
    monkeypatch.setenv("REDRAFT_MODEL", f"openai-chat:{model}")
    set_up(project, criteria=JUDGED, settings=f"[hook]\njudge = true\nbudget_usd = {usd:f}\n")
    edit(project, "x = 1\n" + "# word\n" * 300)()
    with provider(monkeypatch) as server:
        answer, stderr = stop()
        assert (len(server.limits) > 0) == calls
        assert server.usd <= 0.01
    assert "decision" not in answer
    assert re.search(says, stderr)


def test_a_model_that_fails_blocks_nothing(project, model):
    def fail(request):
        raise ModelError("The provider does not answer.")

    model._answer = fail
    set_up(project, criteria=JUDGED, settings="[hook]\njudge = true\n")
    edit(project, "x = 1\n")()
    answer, stderr = stop()
    assert "decision" not in answer
    assert "The provider does not answer" in stderr


EVIDENT = "criteria:\n  - {name: Names the price., config: {evidence: ['file:price.txt']}}\n"


def test_evidence_from_files_is_that_of_the_work_tree(project, model, tmp_path_factory):
    set_up(project, criteria=EVIDENT, settings="[hook]\njudge = true\n")
    git(project, "commit", "--all", "--quiet", "--message=Set up")
    folder = tmp_path_factory.mktemp("linked") / "w"
    git(project, "worktree", "add", "--quiet", "-b", "w", str(folder))
    edit(project, "1 euro\n", "price.txt")()
    edit(folder, "x = 1\n")()
    here = str(Path.cwd())

    def stops(session):
        asked = event("Stop", prompt_id="1", session=session).replace(here, str(folder))
        done = redraft("hook", "stop", "claude", stdin=asked)
        return json.loads(done.stdout or "{}"), done.stderr

    answer, stderr = stops("a")
    assert (model.requests, "decision" in answer) == ([], False)  # what is missing blocks nothing
    assert "the evidence 'file:price.txt' could not be had: there is no such file" in stderr
    edit(folder, "12 euros\n", "price.txt")()
    assert stops("b")[0]["decision"] == "block"
    asked = "".join(str(message.content) for message in model.requests[0].messages)
    assert ("file price.txt begins\n12 euros" in asked, "1 euro\n" in asked) == (True, False)


# --- git ---------------------------------------------------------------------------------------------------


def test_a_commit_is_judged_as_it_is_staged(project):
    assert redraft("hook", "install", "git", "--program", PROGRAM).exit_code == 0

    def commit(*words):
        words = ["git", "commit", "--message=Offer", *words]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    edit(project, "print(1)\n")()
    git(project, "add", "offer.py")
    edit(project, "x = 1\n")()  # not staged
    refused = commit()
    assert refused.returncode == 1
    assert "No print() is left in the code." in refused.stderr
    assert commit("--all").returncode == 0
    edit(project, "print(1)\n")()
    assert commit("--all").returncode == 1
    assert commit("--all", "--no-verify").returncode == 0
    edit(project, "print(2)\n")()
    (project / "criteria.yaml").write_text("- [", "utf-8")
    open_again = commit("--all")
    assert open_again.returncode == 0
    assert "Nothing was checked or blocked." in open_again.stderr


def test_the_hook_of_git_has_an_exit_code_of_its_own():
    """It is written twice, since the exit codes of commands load Typer."""
    assert COMMIT_REFUSED == ExitCode.COMMIT_REFUSED
    assert [code for code in ExitCode if code == COMMIT_REFUSED] == [ExitCode.COMMIT_REFUSED]


def test_staged_files(project):
    set_up(project, criteria=FILES, settings='[hook]\nsubject = "files"\n')
    edit(project, "a\nb\nc\n", "long.py")()
    git(project, "add", "long.py")
    edit(project, "a\n", "long.py")()
    done = redraft("hook", "stop", "git")
    assert (done.exit_code, "long.py: The text has 3 lines" in done.stderr) == (10, True)


# --- lessons -----------------------------------------------------------------------------------------------


def play(session="s", *texts, prompt="Write an offer."):
    """Do a turn in this process with these texts of a file."""
    redraft("hook", "start", "claude", stdin=event("SessionStart", session=session, source="startup"))
    begun = event("UserPromptSubmit", session=session, prompt=prompt, prompt_id="1")
    redraft("hook", "start", "claude", stdin=begun)
    for text in texts:
        Path("offer.py").write_text(text, "utf-8")
        redraft("hook", "stop", "claude", stdin=event("Stop", session=session, prompt_id="1"))


def test_a_failed_attempt_leaves_a_reflection_of_the_facts(project, monkeypatch):
    play("s", "print(1)\n", "print(2)\n")
    assert redraft("hook", "end", "claude", stdin=event("SessionEnd")).exit_code == 0
    done = redraft("hook", "learn")
    assert (done.exit_code, done.stderr) == (0, "")
    [path] = (project / "memory" / "reflections" / "coding-agent").glob("*.md")
    text = path.read_text("utf-8")
    assert path.stem.endswith("-no-print-left-in-code")
    assert "kind: failure" in text
    assert "model" not in text
    assert "No print() is left in the code." in text.split("## What should I do differently?")[1]
    assert redraft("hook", "learn").stdout == ""  # once


TWO_CRITERIA = f"""{CRITERIA}
  - name: no todo
    description: No TODO is left in the code.
    evaluator: regex
    config: {{pattern: '^\\+.*\\bTODO\\b', flags: m, must_match: false}}
"""
PROMPTS = ("Write an offer.", "Sum the prices of a basket.", "Parse the dates of a CSV file.", "Send a mail.")


def learned(project, session):
    """End a session, and return the lessons by title, each with its kind and confidence."""
    redraft("hook", "end", "claude", stdin=event("SessionEnd", session=session))
    assert redraft("hook", "learn").exit_code == 0
    listed = json.loads(redraft("lessons", "list", "--agent", "coding-agent", "--json").stdout)["lessons"]
    return {one["title"]: (one["kind"], one["confidence"]) for one in listed}


def test_the_same_mistake_in_four_sessions_is_one_lesson(project, monkeypatch):
    set_up(project, criteria=TWO_CRITERIA)
    for number, prompt in enumerate(PROMPTS, 1):
        bad = f"def function_{number}():\n    print({number})\n"
        good = ["x = 1\n"] if number == 2 else []  # one of them mends it in the end
        play(f"s{number}", bad, *good, prompt=prompt)
        found = learned(project, f"s{number}")
    # Each session was sent the criterion, and not the lesson, which says no more.
    assert found == {"No print() is left in the code": ("partial", 0.7)}


def test_two_mistakes_have_a_lesson_each_also_if_they_occur_together(project, monkeypatch):
    set_up(project, criteria=TWO_CRITERIA)
    mistakes = ("print(1)\n", "x = 2  # TODO two\n", "print(3)\n# TODO three\n")
    for number, (text, prompt) in enumerate(zip(mistakes, PROMPTS, strict=False)):
        play(f"s{number}", text, prompt=prompt)
        found = learned(project, f"s{number}")
    assert found == {
        "No print() is left in the code": ("partial", 0.5),
        "No TODO is left in the code": ("partial", 0.5),
    }
    later = redraft("hook", "start", "claude", stdin=event("SessionStart", session="later", source="startup"))
    assert later.stderr == ""  # no reflection on the failed session is due
    assert "No TODO is left in the code." in later.stdout


def test_a_retired_lesson_of_the_facts_is_not_learned_again(project, monkeypatch):
    play("s1", "print(1)\n", prompt=PROMPTS[0])
    learned(project, "s1")
    [path] = (project / "memory" / "reflections" / "coding-agent").glob("2*.md")
    assert redraft("lessons", "retire", f"coding-agent/{path.stem}", "--why", "We print.").exit_code == 0
    play("s2", "print(2)\n", prompt=PROMPTS[2])
    redraft("hook", "end", "claude", stdin=event("SessionEnd", session="s2"))
    redraft("hook", "learn")
    assert list(path.parent.glob("2*.md")) == [path]


def test_a_session_without_a_check_leaves_nothing(project):
    redraft("hook", "start", "claude", stdin=event("SessionStart", source="startup"))
    redraft("hook", "end", "claude", stdin=event("SessionEnd"))
    assert redraft("hook", "learn").stdout == ""
    assert not (project / "memory").exists()


def recorded(content, **more):
    """Store a lesson of a person, and return its path."""

    async def record():
        lessons = Lessons(agent="coding-agent", auto=False, embedder="none")
        lesson = await lessons.record(content, PlainTask(NO_TASK, task_type=TASK_TYPE), **more)
        await lessons.aclose()
        return Path("memory/reflections", f"{lesson.id}.md")

    return asyncio.run(record())


def advice_at_start():
    """What a new session is sent after the criteria."""
    started = event("SessionStart", session="new", source="startup")
    answer = json.loads(redraft("hook", "start", "claude", stdin=started).stdout)
    text = answer["hookSpecificOutput"]["additionalContext"]
    assert text.count("No print() is left in the code.") == 1
    return text.partition("\n\n")[2]


DATES = Failure("Dates were wrong.", "They were ambiguous.", "Habit.", "Write dates as YYYY-MM-DD.", "none")


@pytest.mark.parametrize("check", ["another", "no debugging"])
def test_a_lesson_that_a_check_has_replaced_is_not_sent(project, check):
    path = recorded(DATES)
    text = path.read_text("utf-8")
    path.write_text(text.replace("\nstatus: ", f"\ncheck: {check}\nstatus: ", 1), "utf-8")
    assert (DATES.do_differently in advice_at_start()) is (check == "another")


def test_a_name_that_the_criteria_require_is_sent_in_full(project):
    signed = "The mail ends with the line Kind regards, Anna Petrova."
    criterion = f"  - {{name: end, description: '{signed}', evaluator: regex, config: {{pattern: Anna}}}}\n"
    set_up(project, criteria=f"{CRITERIA}{criterion}")
    told = "End with the line Kind regards, Anna Petrova, and a mail's subject is needed."
    path = recorded(replace(DATES, do_differently=told))
    assert "[withheld: name]" in path.read_text("utf-8")
    assert told in advice_at_start()


def test_lessons_are_sent_once_and_limited_in_tokens(project, monkeypatch):
    recorded(DATES)

    def start(**more):
        return redraft("hook", "start", "claude", stdin=event(session="later", **more)).stdout

    first = start(name="SessionStart", source="startup")
    assert DATES.do_differently in json.loads(first)["hookSpecificOutput"]["additionalContext"]
    for prompt in ("Write an offer.", "Don't write the dates.", "Parse a CSV file."):  # for different reasons
        assert start(name="UserPromptSubmit", prompt=prompt, prompt_id=prompt) == ""
    assert start(name="SessionStart", source="resume") == ""
    assert start(name="SessionStart", source="compact") == first  # the agent has forgotten it
    redraft("hook", "end", "claude", stdin=event("SessionEnd", session="later"))
    set_up(project, settings="[hook]\nmax_tokens = 5\n")  # by a person, between two sessions
    again = json.loads(start(name="SessionStart", source="clear"))["hookSpecificOutput"]["additionalContext"]
    assert again.splitlines() == [
        "At the end of each turn, your work is checked by criteria.yaml:",
        "- no debugging: No print() is left in the code.",
    ]


def test_a_session_begins_with_the_names_of_criteria_that_say_nothing_more(project):
    program, hidden = (
        f"  - {{name: {name}, evaluator: command, config: {{command: [make]}}, shown: {shown}}}\n"
        for name, shown in [("build", "true"), ("secret", "false")]
    )
    set_up(project, criteria=f"{CRITERIA}{program}{hidden}")
    answer = redraft("hook", "start", "claude", stdin=event("SessionStart", source="startup")).stdout
    assert json.loads(answer)["hookSpecificOutput"]["additionalContext"].splitlines()[1:] == [
        "- no debugging: No print() is left in the code.",
        "- build",
    ]


def test_a_session_that_another_hook_deletes_meanwhile_is_no_error(project):
    begin()
    redraft("hook", "end", "claude", stdin=event("SessionEnd"))
    (project / ".redraft/hooks/claude-gone.json").symlink_to("nowhere")
    weaken(project, "weaker")
    assert "changed since the last session" in begin("another")["systemMessage"]
    assert not (project / ".redraft/hooks/claude-gone.json").is_symlink()


def test_what_is_remembered_is_the_persons_own(project):
    edit(project, "print(1)\n")()
    stop()
    folder = project / ".redraft" / "hooks"
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    [file] = folder.glob("*.json")
    assert "\n" not in git(project, "status", "--short").strip()  # offer.py alone
    file.write_text("{", "utf-8")  # a file that can't be read is a new session
    assert stop()[0]["decision"] == "block"


# --- how quick it is ---------------------------------------------------------------------------------------


def test_a_check_loads_no_more_than_it_needs(project):
    """What a hook loads is what it costs; benchmarks/start.py measures it."""
    edit(project, "print(1)\n")()
    answer, loaded = run_alone("stop", event("Stop"))
    assert json.loads(answer)["decision"] == "block"
    assert not loaded & {"typer", "rich", "pydantic", "sqlite3", "redraft.loop.run", "redraft.lessons"}


def test_the_start_of_a_session_and_a_prompt_load_no_more_than_they_need(project):
    recorded(DATES)
    heavy = {"typer", "rich", "pydantic_core", "numpy", "onnxruntime", "redraft.loop.run"}
    heavy |= {"redraft.lessons.error_forms", "redraft.models.provider"}
    prompt = event("UserPromptSubmit", prompt=NO_TASK)
    for begun, told in ((event("SessionStart", source="startup"), True), (prompt, False)):
        answer, loaded = run_alone("start", begun)
        assert (DATES.do_differently in answer) is told
        assert not loaded & heavy


def test_the_defaults_are_what_the_page_says():
    [table] = [text for text in PAGE.blocks("toml") if "blocks" in text]
    documented = HookOptions(**tomllib.loads(table)["hook"])
    defaults = replace(HookOptions(), paths=[], budget_usd=0.1, budget_tokens=20_000)
    assert documented == defaults
    assert len(tomllib.loads(table)["hook"]) == len(fields(HookOptions))


def test_the_setup_of_the_page_can_be_committed(project):
    """The criterion is described by what it forbids."""
    git(project, "rm", "--quiet", "criteria.yaml", "redraft.toml")
    git(project, "commit", "--quiet", "--message=Without")
    (project / "criteria.yaml").write_text(PAGE.blocks("yaml")[0], "utf-8")
    (project / "redraft.toml").write_text(PAGE.blocks("toml")[0], "utf-8")
    git(project, "add", ".")
    assert redraft("hook", "stop", "git").exit_code == 0
    edit(project, "print(2)\n")()
    git(project, "add", ".")
    assert redraft("hook", "stop", "git").exit_code == 10


def test_the_page_plays_a_session_by_hand(project):
    set_up(project, criteria=PAGE.blocks("yaml")[0], settings=PAGE.blocks("toml")[0])
    [by_hand] = PAGE.blocks("console")
    reply = {}
    for line in by_hand.splitlines():
        if not line.startswith("$ "):
            promised = json.loads(line)
            assert reply.keys() == promised.keys()
            assert all(reply[key].startswith(text.removesuffix(" ...")) for key, text in promised.items())
            continue
        _, text, sign, *command = shlex.split(line.removeprefix("$ "))
        if sign == ">":
            Path(command[0]).write_text(f"{text}\n", "utf-8")
            continue
        done = redraft(*command[1:], stdin=text)
        assert done.exit_code == 0, done.stderr
        reply = json.loads(done.stdout or "{}")
    assert "systemMessage" in reply


def test_the_page_tells_a_session_as_it_happens(project):
    """The criteria, the commands and the critique of the page, one after the other."""
    criteria, *_ = PAGE.blocks("yaml")
    set_up(project, criteria=criteria, settings=PAGE.blocks("toml")[0])
    for command in (line for line in PAGE.commands() if line.startswith("redraft hook ")):
        _, *words = shlex.split(command, comments=True)
        done = redraft(*words)
        assert done.exit_code == ("--check" in words), (command, done.stderr)
    edit(project, "def offer():\n    print(2)\n")()
    promised, *_ = PAGE.blocks("text")
    assert stop()[0]["reason"] == promised.removesuffix("\n")
