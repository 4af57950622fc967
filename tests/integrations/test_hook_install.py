"""What `redraft hook install` writes, and `uninstall` takes away."""

import json
import os
import subprocess
from itertools import cycle
from pathlib import Path

import pytest

from redraft.integrations.coding_agents import AGENTS
from redraft.integrations.hook_install import FAILS_OPEN
from support.coding_agents import git, repository
from support.commands import redraft


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(repository(tmp_path))
    return tmp_path


@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_installed_is_called_and_uninstalled_without_a_trace(folder, agent):
    file = folder / AGENTS[agent].file
    shown = redraft("hook", "install", agent, "--program", "uv run redraft", "--check")
    assert (shown.exit_code, file.exists()) == (1, False)
    assert f"uv run redraft hook stop {agent}" in shown.stdout
    done = redraft("hook", "install", agent, "--program", "uv run redraft")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith(f"Written: {file}")
    first = file.read_text("utf-8")
    assert json.loads(first)["hooks"].keys() == AGENTS[agent].hooks.keys()
    for options in ((), ("--check",)):
        again = redraft("hook", "install", agent, "--program", "uv run redraft", *options)
        assert (again.exit_code, again.stdout, file.read_text("utf-8")) == (0, "", first)
    assert redraft("hook", "install", agent, "--program", "redraft").exit_code == 0  # replaces the other
    assert "uv run" not in file.read_text("utf-8")
    assert redraft("hook", "uninstall", agent).exit_code == 0
    assert not file.parent.exists()
    assert "nothing to change" in redraft("hook", "uninstall", agent).stderr


def test_a_folder_of_others_stays(folder):
    (folder / ".claude").mkdir()
    (folder / ".claude" / "agents").mkdir()
    redraft("hook", "install", "claude")
    redraft("hook", "uninstall", "claude")
    assert [one.name for one in (folder / ".claude").iterdir()] == ["agents"]
    (folder / "elsewhere").mkdir()
    (folder / ".codex").symlink_to("elsewhere")
    redraft("hook", "install", "codex")
    redraft("hook", "uninstall", "codex")
    assert list((folder / ".codex").iterdir()) == []


def entry(agent, command):
    """An entry with a command of somebody else."""
    return AGENTS[agent].entry(command, {})


TEXTS = [
    ("", None),
    (" \n", None),
    ("null", None),
    ("{}\n", None),
    ('{"hooks": null}', None),
    ("\ufeff", None),
    ('{"a": 1}', {"a": 1}),
    ('\ufeff{"a": null, "b": "größer"}', {"a": None, "b": "größer"}),
    ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
    ('{\r\n "z": [1.0, 1e2, -5],\r\n "a": {"hooks": 1}\r\n}', {"z": [1.0, 100, -5], "a": {"hooks": 1}}),
]


@pytest.mark.parametrize(
    ("agent", "text", "left"), [(agent, *row) for agent, row in zip(cycle(AGENTS), TEXTS, strict=False)]
)
def test_keys_of_others_stay(folder, agent, text, left):
    file = folder / AGENTS[agent].file
    file.parent.mkdir()
    file.write_text(text, "utf-8", newline="")
    for program in ("uv run redraft", "redraft", "redraft"):
        assert redraft("hook", "install", agent, "--program", program).exit_code == 0
    written = json.loads(file.read_bytes())  # without a byte order mark
    assert written["hooks"].keys() == AGENTS[agent].hooks.keys()
    assert all(len(entries) == 1 for entries in written["hooks"].values())
    assert written.keys() == {*(left or {}), *AGENTS[agent].members, "hooks"}
    assert redraft("hook", "uninstall", agent).exit_code == 0
    if left is None:
        assert not file.exists()
    else:
        assert json.loads(file.read_bytes()) == {**left, **AGENTS[agent].members}


@pytest.mark.parametrize("agent", AGENTS)
def test_hooks_of_others_stay_where_they_are(folder, agent):
    last = list(AGENTS[agent].hooks)[-1]
    theirs = {last: [None, entry(agent, "say done"), "x"], "Other": [], "Another": {}}
    before = {"hooks": theirs, "model": "x", **AGENTS[agent].members}
    file = folder / AGENTS[agent].file
    file.parent.mkdir()
    file.write_text(json.dumps(before, indent=2) + "\n", "utf-8")
    text = file.read_text("utf-8")
    assert redraft("hook", "install", agent, "--program", "redraft").exit_code == 0
    both = json.loads(file.read_text("utf-8"))
    assert list(both) == list(before)
    command = f"redraft hook end {agent}{FAILS_OPEN}"
    assert both["hooks"][last] == [*theirs[last], AGENTS[agent].entry(command, AGENTS[agent].hooks[last][1])]
    assert redraft("hook", "uninstall", agent).exit_code == 0
    assert file.read_text("utf-8") == text


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_command_that_shares_an_entry_with_the_hook_stays(folder, agent):
    file = folder / AGENTS[agent].file
    file.parent.mkdir()
    ours, theirs = ({"type": "command", "command": one} for one in (f"redraft hook stop {agent}", "format"))
    for shared in ([ours, theirs], [theirs, ours]):
        file.write_text(json.dumps({"hooks": {"Stop": [{"matcher": "x", "hooks": shared}]}}), "utf-8")
        assert redraft("hook", "uninstall", agent).exit_code == 0
        assert json.loads(file.read_text("utf-8")) == {
            "hooks": {"Stop": [{"matcher": "x", "hooks": [theirs]}]}
        }


@pytest.mark.parametrize(
    ("agent", "program", "recognised"),
    [
        ("claude", "python -m redraft", True),
        ("codex", r"'C:\tools\redraft.exe'", True),
        ("cursor", '"/opt/my tools/redraft"', True),
        ("claude", "./run", False),
        ("cursor", "redraft --debug", False),
    ],
)
def test_only_a_program_that_uninstall_recognises_is_installed(folder, agent, program, recognised):
    done = redraft("hook", "install", agent, "--program", program)
    assert (done.exit_code, "must end with redraft" in done.stderr) == (
        (0, False) if recognised else (2, True)
    )
    redraft("hook", "uninstall", agent)
    assert not (folder / AGENTS[agent].file).exists()


def test_only_the_form_of_a_file_is_no_change(folder):
    assert redraft("hook", "install", "claude", "--program", "redraft").exit_code == 0
    file = folder / ".claude" / "settings.json"
    compact = json.dumps(json.loads(file.read_text("utf-8")))
    file.write_text(compact, "utf-8")
    done = redraft("hook", "install", "claude", "--program", "redraft", "--check")
    assert (done.exit_code, "nothing to change" in done.stderr) == (0, True)


@pytest.mark.parametrize("target", ['{"a": 1}\n', "{}", None])
def test_a_link_stays_and_its_target_is_written(folder, target):
    actual, file = folder / "dotfiles" / "claude.json", folder / ".claude" / "settings.json"
    for one in (actual, file):
        one.parent.mkdir()
    if target is not None:
        actual.write_text(target, "utf-8")
        actual.chmod(0o600)
    file.symlink_to(Path("..") / "dotfiles" / "claude.json")
    assert redraft("hook", "install", "claude").exit_code == 0
    assert (file.is_symlink(), "hooks" in json.loads(actual.read_text("utf-8"))) == (True, True)
    assert redraft("hook", "uninstall", "claude").exit_code == 0
    assert (file.is_symlink(), json.loads(actual.read_text("utf-8"))) == (True, json.loads(target or "{}"))
    assert actual.stat().st_mode & 0o777 == (0o644 if target is None else 0o600)


def test_a_write_that_fails_leaves_the_file_as_it_was(folder, monkeypatch):
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"a": 1}', "utf-8")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = redraft("hook", "install", "claude")
    assert (done.exit_code, "can't be written: No space left" in done.stderr) == (2, True)
    assert ([one.name for one in file.parent.iterdir()], file.read_text("utf-8")) == ([file.name], '{"a": 1}')


def test_links_in_a_circle_are_an_error(folder):
    (folder / ".claude").symlink_to(".claude")
    done = redraft("hook", "install", "claude")
    assert (done.exit_code, "can't be" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1: this is not JSON"),
        ("[]", "must hold a JSON object"),
        ('{"hooks": []}', "'hooks' must be an object"),
        ('{"hooks": {"Stop": "x"}}', "'hooks.Stop' must be a list, got 'x'"),
        ('{"a": {"b": 1, "b": 2}}', "can't be read: the key 'b' comes twice in one object"),
        ('{"a": 1e999}', "can't be read: the number 1e999 is too large"),
        ('{"a": ' + "[" * 100_000, "can't be read: it is nested too deeply"),
        (f'{{"a": {"9" * 5_000}}}', "can't be read: Exceeds the limit"),
    ],
)
def test_a_file_that_is_not_understood_stays_as_it_is(folder, text, says):
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(text, "utf-8")
    done = redraft("hook", "install", "claude")
    assert (done.exit_code, says in done.stderr, file.read_text("utf-8")) == (2, True, text)


def test_an_unknown_agent_is_refused_and_remaining_steps_are_named(folder):
    assert "unknown value 'emacs'" in redraft("hook", "install", "emacs").stderr
    (folder / "criteria.yaml").unlink()
    said = redraft("hook", "install", "codex").stderr
    assert "criteria.yaml does not exist" in said
    assert "open /hooks in it" in said
    assert "a path on this machine" in said
    assert "not a git repository" not in said


def test_a_folder_outside_git_is_reported(folder, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("outside"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(Path.cwd().parent))
    said = redraft("hook", "install", "claude").stderr
    assert "This is not a git repository: until it is, nothing is checked." in said


def test_the_configuration_is_at_the_top_of_the_repository(folder, monkeypatch):
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    redraft("hook", "install", "claude")
    assert (folder / ".claude" / "settings.json").is_file()


# --- git's own hook ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"gr\xf6\xdfe", b"ends with a space "])
def test_a_repository_in_a_folder_of_any_name(folder, name, monkeypatch):
    inside = folder / os.fsdecode(name)
    inside.mkdir()
    monkeypatch.chdir(repository(inside))
    for agent, file in (("claude", ".claude/settings.json"), ("git", ".git/hooks/pre-commit")):
        assert redraft("hook", "install", agent).exit_code == 0
        assert (inside / file).is_file()


def test_the_pre_commit_hook_of_others_stays(folder):
    path = folder / ".git" / "hooks" / "pre-commit"
    theirs = "#!/usr/bin/env bash\nset -e\necho theirs >> ran\n"
    path.write_text(theirs, "utf-8")
    path.chmod(0o755)
    for _ in range(2):
        assert redraft("hook", "install", "git", "--program", "true").exit_code == 0
    assert path.read_text("utf-8").count("true hook stop git") == 1
    (folder / "new.py").write_text("x = 1\n", "utf-8")
    git(folder, "add", "new.py")
    assert subprocess.run(["git", "commit", "--quiet", "-m", "x"], check=False).returncode == 0
    assert Path("ran").read_text("utf-8") == "theirs\n"
    assert redraft("hook", "uninstall", "git").exit_code == 0
    assert path.read_text("utf-8") == theirs


def test_a_new_pre_commit_hook_is_deleted_again(folder):
    git(folder, "config", "core.hooksPath", "their-hooks")
    path = folder / "their-hooks" / "pre-commit"
    assert redraft("hook", "install", "git").exit_code == 0
    assert path.stat().st_mode & 0o111
    assert redraft("hook", "uninstall", "git").exit_code == 0
    assert not path.exists()


PROGRAMS = [
    ("exit 10", 10),  # the verdict
    ("exit 0", 0),
    ("exit 1", 1),  # ImportError, SyntaxError in another version of Python
    ("exit 2", 2),  # no such script; also the code of a launcher such as uv
    ("exit 70", 70),
    ("exit 120", 120),
    ("exit 255", 255),
    ("kill -9 $$", 137),
    ("kill -11 $$", 139),
]
"""What a program may do that is to run Redraft, and its exit code."""


def program_that(folder, does):
    """Write a program."""
    program = folder / "redraft"
    program.write_text(f"#!/bin/sh\necho broken >&2\n{does}\n", "utf-8")
    program.chmod(0o755)
    return program


def commit():
    words = ["git", "commit", "--quiet", "--allow-empty", "--message=x"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", [None, "#!/bin/sh -eu\ntouch theirs\n", "#!/bin/bash\ntouch theirs\n"])
def test_only_a_verdict_refuses_a_commit(folder, script):
    path = folder / ".git" / "hooks" / "pre-commit"
    if script is not None:
        path.write_text(script, "utf-8")
        path.chmod(0o755)
    program = program_that(folder, "exit 0")
    assert redraft("hook", "install", "git", "--program", str(program)).exit_code == 0

    def check(code):
        done = commit()
        failed = f"Redraft ended with exit code {code}. Nothing was checked" in done.stderr
        assert (done.returncode, failed) == (code == 10, code not in {0, 10})
        assert ("To remove the hook, delete the lines from" in done.stderr) is failed
        assert Path("theirs").exists() is (script is not None and code != 10)
        Path("theirs").unlink(missing_ok=True)

    for does, code in PROGRAMS:
        program_that(folder, does)
        check(code)
    program.chmod(0o644)
    check(126)
    program.unlink()  # as with a virtual environment that was deleted
    check(127)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_program_that_fails_blocks_no_agent(folder, agent):
    """Claude Code, Codex and Cursor take exit code 2 for a block."""
    for does, code in PROGRAMS:
        program = program_that(folder, does)
        assert redraft("hook", "install", agent, "--program", str(program)).exit_code == 0
        hooks = json.loads((folder / AGENTS[agent].file).read_text("utf-8"))["hooks"]
        entries = [entry for several in hooks.values() for entry in several]
        commands = [entry.get("command") or entry["hooks"][0]["command"] for entry in entries]
        assert all(command.endswith(FAILS_OPEN) for command in commands)
        done = subprocess.run(commands[0], shell=True, capture_output=True, text=True, check=False)  # noqa: S602 (as agents do)
        assert (done.returncode, done.stdout) == (code != 0, "")
        assert "broken" in done.stderr


@pytest.mark.parametrize("agent", AGENTS)
def test_an_event_without_a_value_gets_the_hook(folder, agent):
    file = folder / AGENTS[agent].file
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": dict.fromkeys(AGENTS[agent].hooks)}), "utf-8")
    assert redraft("hook", "install", agent).exit_code == 0
    assert all(len(one) == 1 for one in json.loads(file.read_text("utf-8"))["hooks"].values())


def test_a_command_of_an_earlier_version_is_replaced(folder):
    """It did not say what to do if Redraft cannot start."""
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir()
    earlier = {"hooks": {"Stop": [entry("claude", "redraft hook stop claude")]}}
    file.write_text(json.dumps(earlier), "utf-8")
    assert redraft("hook", "install", "claude", "--program", "redraft").exit_code == 0
    [only] = json.loads(file.read_text("utf-8"))["hooks"]["Stop"]
    assert [one["command"] for one in only["hooks"]] == ["redraft hook stop claude || exit 1"]


SCRIPTS = [
    b"",
    b"\n",
    b"npm test\n",
    b"# a comment\n",
    b"\xef\xbb\xbfecho theirs\n",
    b"#!/bin/sh -e",
    b"#!/bin/sh\r\necho theirs\r\n",
    b"#!/usr/bin/env -S bash -e\necho theirs\n",
    b"#!/bin/sh\n# gr\xfc\xdfe\n",
]


def test_a_script_of_sh_in_any_form_gets_the_hook_and_loses_it(folder):
    path = folder / ".git" / "hooks" / "pre-commit"
    for script in SCRIPTS:
        path.write_bytes(script)
        path.chmod(0o755)
        for _ in range(2):
            assert redraft("hook", "install", "git", "--program", "true").exit_code == 0
        assert path.read_bytes().count(b"true hook stop git") == 1
        assert redraft("hook", "uninstall", "git").exit_code == 0
        after = path.read_bytes() if path.exists() else b""
        assert after.rstrip(b"\n") == script.rstrip(b"\n")


def test_an_empty_script_of_git_becomes_executable(folder):
    path = folder / ".git" / "hooks" / "pre-commit"
    path.touch(0o644)
    assert redraft("hook", "install", "git", "--program", "true").exit_code == 0
    assert path.stat().st_mode & 0o111


def test_a_script_that_git_ignores_is_named(folder):
    path = folder / ".git" / "hooks" / "pre-commit"
    path.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    done = redraft("hook", "install", "git", "--program", "true")
    assert (done.exit_code, "until it is executable" in done.stderr) == (0, True)


def test_the_hook_of_husky_is_the_script_that_husky_runs(folder):
    """Husky 9 makes the folder `_` again whenever packages are installed, and runs scripts with `sh -e`."""
    inner = folder / ".husky" / "_"
    inner.mkdir(parents=True)
    (inner / "pre-commit").write_text('#!/usr/bin/env sh\nsh -e ".husky/pre-commit" "$@"\n', "utf-8")
    (inner / "pre-commit").chmod(0o755)
    git(folder, "config", "core.hooksPath", ".husky/_")
    path = folder / ".husky" / "pre-commit"
    path.write_text("echo theirs >> ran\n", "utf-8")  # neither a shebang nor executable
    assert redraft("hook", "install", "git", "--program", "false").exit_code == 0
    assert commit().returncode == 0
    assert Path("ran").read_text("utf-8") == "theirs\n"
    assert redraft("hook", "uninstall", "git").exit_code == 0
    assert path.read_text("utf-8") == "echo theirs >> ran\n"


def test_a_linked_pre_commit_hook_stays_linked(folder):
    path, actual = folder / ".git" / "hooks" / "pre-commit", folder / "hook.sh"
    actual.write_text("#!/bin/sh\n", "utf-8")
    path.symlink_to(actual)
    for command in ("install", "uninstall"):
        assert redraft("hook", command, "git").exit_code == 0
        assert (path.is_symlink(), "redraft" in actual.read_text("utf-8")) == (True, command == "install")


def test_a_hook_in_another_language_is_refused(folder):
    path = folder / ".git" / "hooks" / "pre-commit"
    path.write_text("#!/usr/bin/env python3\nprint(1)\n", "utf-8")
    done = redraft("hook", "install", "git")
    assert (done.exit_code, "is not a shell script" in done.stderr) == (2, True)


def test_outside_of_a_repository_there_is_no_hook(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("bare")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    assert "is not in a git repository" in redraft("hook", "install", "git").stderr
