"""What `redraft hook install` writes, and `uninstall` takes away."""

import json
import subprocess
from pathlib import Path

import pytest

from redraft.integrations.agent_config import with_member
from redraft.integrations.coding_agents import AGENTS
from support.coding_agents import git, repository
from support.commands import redraft

THEIRS = """\
{
    "permissions": {"allow": ["Bash(ls:*)", "Read"],   "deny": []},
    "hooks": {
        "Stop": [
            {
                "hooks": [
                    {
                        "type": "command",
                        "command": "say done"
                    }
                ]
            }
        ]
    },
    "model": "größer"
}
"""


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
    assert (done.exit_code, done.stdout) == (0, shown.stdout)
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


COMPACT = """\
{"permissions": {"allow": ["Bash(ls)"]}, "hooks": {"PostToolUse": [{"matcher": "Edit",
 "hooks": [{"type": "command", "command": "format"}]}]} }"""


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "text",
    [
        '{"permissions": {"allow": ["Bash(ls)"]}\n}\n',
        '{"permissions": {}}',
        '{ "a": 1 }\n',
        '{\r\n  "a": 1\r\n}\r\n',
        COMPACT,
    ],
)
def test_a_file_of_others_is_the_same_byte_for_byte_after_uninstalling(folder, agent, text):
    if agent == "cursor":
        text = text.replace("{", '{"version": 1, ', 1)
    file = folder / AGENTS[agent].file
    file.parent.mkdir()
    file.write_bytes(text.encode())
    assert redraft("hook", "install", agent, "--program", "uv run redraft").exit_code == 0
    assert redraft("hook", "install", agent, "--program", "redraft").exit_code == 0
    written = file.read_bytes()
    assert AGENTS[agent].hooks.keys() <= json.loads(written)["hooks"].keys()
    assert written.count(b"\r\n") == ("\r\n" in text) * written.count(b"\n")  # all lines end alike
    assert redraft("hook", "uninstall", agent).exit_code == 0
    assert file.read_bytes() == text.encode()


def test_an_empty_object_is_left_empty(folder):
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text("{}\n", "utf-8")
    redraft("hook", "install", "claude")
    redraft("hook", "uninstall", "claude")
    assert file.read_text("utf-8") == "{}\n"


def test_what_others_wrote_keeps_its_very_form(folder):
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(THEIRS, "utf-8")
    assert redraft("hook", "install", "claude", "--program", "redraft").exit_code == 0
    both = json.loads(file.read_text("utf-8"))["hooks"]["Stop"]
    assert [entry["hooks"][0]["command"] for entry in both] == ["say done", "redraft hook stop claude"]
    assert redraft("hook", "uninstall", "claude").exit_code == 0
    assert file.read_text("utf-8") == THEIRS


OBJECTS = [
    "{}",
    "{}\n",
    "{ }",
    '{"a": 1}',
    '{\n  "a": 1\n}\n',
    '{\n\t"a": [1,   2],\n\t"b": {"hooks": 1}\n}',
    ' {"a" :1 ,"b":{}}',
    '{"hooks": 1}',
    '{"hooks": 1, "a": 2}',
    '{"a": 2, "hooks": [], "b": "}"}',
    '{\n  "hooks": {},\n  "a": 1\n}\n',
]


@pytest.mark.parametrize("text", OBJECTS)
def test_members_are_set_and_taken_away(text):
    before = json.loads(text)
    added = with_member(text, "hooks", {"x": [1]})
    assert json.loads(added) == before | {"hooks": {"x": [1]}}
    removed = with_member(added, "hooks", None)
    assert json.loads(removed) == {name: value for name, value in before.items() if name != "hooks"}
    if "hooks" not in before:
        assert removed == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1: this is not JSON"),
        ("[]", "must hold a JSON object"),
        ('{"hooks": []}', "'hooks' must be an object"),
    ],
)
def test_a_file_that_is_not_understood_stays_as_it_is(folder, text, says):
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(text, "utf-8")
    done = redraft("hook", "install", "claude")
    assert (done.exit_code, says in done.stderr, file.read_text("utf-8")) == (2, True, text)


def test_an_unknown_agent_and_what_is_left_to_do(folder):
    assert "unknown value 'emacs'" in redraft("hook", "install", "emacs").stderr
    (folder / "criteria.yaml").unlink()
    said = redraft("hook", "install", "codex").stderr
    assert "criteria.yaml does not exist" in said
    assert "open /hooks in it" in said
    assert "a path on this machine" in said


def test_the_configuration_stands_at_the_top_of_the_repository(folder, monkeypatch):
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    redraft("hook", "install", "claude")
    assert (folder / ".claude" / "settings.json").is_file()


# --- git's own hook ----------------------------------------------------------------------------------------


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
