"""Coding agents, played by the protocols that they document: the hooks they run, and what answers do."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from redraft.integrations.hook_install import FAILS_OPEN
from support.commands import redraft

MOST_BLOCKS = 8
"""After so many blocks in a row, Claude Code ends the turn all the same."""

CRITERIA = """\
criteria:
  - name: no debugging
    description: No print() is left in the code.
    evaluator: regex
    config: {pattern: '^\\+.*\\bprint\\(', flags: m, must_match: false}
"""


def git(folder, *words, **variables):
    """Run git in a folder, and return what it prints."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def repository(folder, *, criteria=CRITERIA):
    """Make a repository with a commit, criteria and settings."""
    return shutil.copytree(_template(criteria).name, folder, dirs_exist_ok=True)


@cache
def _template(criteria):
    """Such a repository, made once: copying it takes no process."""
    template = TemporaryDirectory()
    folder = Path(template.name)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    (folder / "prices.py").write_text("def price():\n    return 2\n", "utf-8")
    (folder / "redraft.toml").write_text("[hook]\n", "utf-8")
    (folder / "criteria.yaml").write_text(criteria, "utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=Begin", GIT_COMMITTER_DATE="2026-01-01T00:00:00Z")
    return template


def run_alone(command, event):
    """Run a hook of Claude Code in a process of its own; return its answer and the modules that it loaded."""
    code = (
        "import sys; sys.argv[1:1] = ['hook']\n"
        "from redraft.__main__ import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, command, "claude"]
    done = subprocess.run(words, input=event, capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


@dataclass
class Turn:
    """What came of a turn: the critiques that the agent got, and what the person was shown."""

    critiques: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass
class ClaudeCode:
    """Claude Code and Codex: hooks in a file, JSON on stdin, JSON or exit code 2 as the answer."""

    folder: Path
    file: str = ".claude/settings.json"
    session: str = "5f2c"
    turns: int = 0
    told: list[str] = field(default_factory=list)
    turn_id: str = "prompt_id"
    in_process: bool = True

    def fire(self, name, **more):
        """Run all hooks of an event, and return the exit code, the answer and stderr of the last one."""
        configured = json.loads((self.folder / self.file).read_text("utf-8"))["hooks"].get(name, [])
        event = {"session_id": self.session, "cwd": str(self.folder), "hook_event_name": name, **more}
        code, answer, stderr = 0, {}, ""
        for command in [one["command"] for entry in configured for one in entry["hooks"]]:
            code, answer, stderr = self.run(command, event)
        if text := answer.get("hookSpecificOutput", {}).get("additionalContext"):
            assert answer["hookSpecificOutput"]["hookEventName"] == name
            self.told.append(text)
        return code, answer, stderr

    def run(self, command, event):
        if self.in_process:
            assert command.startswith(f"{PROGRAM} ")
            words = command.removeprefix(PROGRAM).removesuffix(FAILS_OPEN).split()
            done = redraft(*words, stdin=json.dumps(event))
            assert done.exception is None or isinstance(done.exception, SystemExit)
            return done.exit_code, json.loads(done.stdout or "{}"), done.stderr
        done = subprocess.run(  # noqa: S602 (a shell, as agents do)
            command,
            shell=True,
            cwd=self.folder,
            input=json.dumps(event),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def start(self):
        self.fire("SessionStart", source="startup")

    def prompt(self, text, *edits, answer="Done."):
        """Do a turn: the first edit, and after each block the next one; without one, nothing is changed."""
        self.turns += 1
        ids = {self.turn_id: f"turn-{self.turns}"}
        self.fire("UserPromptSubmit", prompt=text, **ids)
        turn, left = Turn(), list(edits)
        while True:
            if left:
                left.pop(0)()
            blocked = len(turn.critiques)
            code, reply, stderr = self.fire(
                "Stop", stop_hook_active=blocked > 0, last_assistant_message=answer, **ids
            )
            turn.errors += [stderr] if stderr else []
            turn.shown += [reply["systemMessage"]] if "systemMessage" in reply else []
            if code == 2 or (code == 0 and reply.get("decision") == "block"):
                turn.critiques.append(stderr if code == 2 else reply["reason"])
                assert turn.critiques[-1].strip()
                if len(turn.critiques) < MOST_BLOCKS:
                    continue
            return turn

    def end(self):
        self.fire("SessionEnd", reason="prompt_input_exit")


@dataclass
class Cursor(ClaudeCode):
    """Cursor: its own names for events and answers, and a limit on the loop in the configuration."""

    file: str = ".cursor/hooks.json"

    def fire(self, name, **more):
        document = json.loads((self.folder / self.file).read_text("utf-8"))
        assert document["version"] == 1
        event = {
            "conversation_id": self.session,
            "generation_id": f"generation-{self.turns}-{more.get('loop_count', 0)}",
            "workspace_roots": [str(self.folder)],
            "hook_event_name": name,
            **more,
        }
        [entry] = document["hooks"][name]
        code, answer, stderr = self.run(entry["command"], event)
        if text := answer.get("additional_context"):
            self.told.append(text)
        return code, answer, stderr

    def start(self):
        self.fire("sessionStart")

    def prompt(self, text, *edits, answer="Done."):
        self.turns += 1
        self.fire("beforeSubmitPrompt", prompt=text)
        turn, left, loops = Turn(), list(edits), 0
        [entry] = json.loads((self.folder / self.file).read_text("utf-8"))["hooks"]["stop"]
        while loops < entry["loop_limit"]:
            if left:
                left.pop(0)()
            _code, reply, stderr = self.fire("stop", status="completed", loop_count=loops)
            turn.errors += [stderr] if stderr else []
            if not reply.get("followup_message"):
                return turn
            turn.critiques.append(reply["followup_message"])
            loops += 1
            self.fire("beforeSubmitPrompt", prompt=reply["followup_message"], loop_count=loops)
        return turn

    def end(self):
        self.fire("sessionEnd", reason="completed")


PROGRAM = f"{shlex.quote(sys.executable)} -m redraft"
"""How the agents of the tests start `redraft`."""
