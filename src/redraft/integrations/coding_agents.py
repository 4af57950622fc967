"""Coding agents: the events of their hooks, the form of the answers, and what configures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class HookEvent:
    """An event of an agent, as a hook receives it; empty where the agent says nothing.

    `session` is the id of the session and `turn` that of the person's prompt. `is_continued` means that the
    agent goes on because of a hook. `folder` is where it works, `prompt` what the person asked, `answer` what
    the agent said last. `forgot` means that the agent begins without what hooks sent it before. `tool` is
    what it is about to use, with its `arguments`, and `transcript` the path of its own record of the session.
    """

    name: str
    session: str
    folder: str = ""
    turn: str = ""
    prompt: str = ""
    answer: str = ""
    is_continued: bool = False
    forgot: bool = False
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    transcript: str = ""


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """A coding agent whose hooks are commands that get JSON on stdin and answer with JSON on stdout.

    `file` configures it, in the folder of the repository; `hooks` are its events, each with the command of
    `redraft hook` and what else its entry holds. This is the protocol of Claude Code, which Codex shares.
    """

    name: str
    title: str
    file: str
    hooks: Mapping[str, tuple[str, Mapping[str, Any]]]
    note: str = ""
    members: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the file must hold as well as its hooks."""

    def event(self, given: Mapping[str, Any]) -> HookEvent:
        """Read an event."""
        name = _text(given, "hook_event_name")
        return HookEvent(
            name,
            _text(given, "session_id"),
            _text(given, "cwd"),
            _text(given, "prompt_id") or _text(given, "turn_id"),
            _text(given, "prompt"),
            _text(given, "last_assistant_message"),
            is_continued=given.get("stop_hook_active") is True,
            forgot=name == "SessionStart" and _text(given, "source") != "resume",
            tool=_text(given, "tool_name"),
            arguments=_object(given, "tool_input"),
            transcript=_text(given, "transcript_path"),
        )

    def block(self, critique: str) -> dict[str, Any]:
        """Return the answer that has the agent go on, with a critique."""
        return {"decision": "block", "reason": critique}

    def context(self, event: HookEvent, text: str) -> dict[str, Any]:
        """Return the answer that gives the agent a text to know."""
        return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}

    def notice(self, text: str) -> dict[str, Any]:
        """Return the answer that tells the person something and stops nothing."""
        return {"systemMessage": text}

    def entry(self, command: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of a hook in the configuration."""
        about = {MATCHER: more[MATCHER]} if MATCHER in more else {}
        others = {name: value for name, value in more.items() if name != MATCHER}
        return {**about, "hooks": [{"type": "command", "command": command, **others}]}

    def without(self, entry: Any, is_unwanted: Callable[[str], bool]) -> list[Any]:
        """Return what is left of an entry of the configuration without unwanted commands: it, or nothing."""
        if not isinstance(entry, dict):
            return [entry]
        members = cast("dict[str, Any]", entry)
        if not isinstance(members.get("hooks"), list):
            return [members]
        commands = cast("list[Any]", members["hooks"])
        others = [one for one in commands if not _has_command(one, is_unwanted)]
        if len(others) == len(commands):
            return [members]
        return [{**members, "hooks": others}] if others else []


@dataclass(frozen=True, slots=True)
class Cursor(CodingAgent):
    """Cursor, which continues an agent with a message, and shows the person nothing."""

    def event(self, given: Mapping[str, Any]) -> HookEvent:
        """Read an event."""
        roots, loops = given.get("workspace_roots"), given.get("loop_count")
        folder = cast("list[Any]", roots)[0] if isinstance(roots, list) and roots else ""
        is_continued = isinstance(loops, int) and loops > 0
        name = _text(given, "hook_event_name")
        return HookEvent(
            name,
            _text(given, "conversation_id") or _text(given, "session_id"),
            _text(given, "cwd") or str(folder),
            _text(given, "generation_id"),
            _text(given, "prompt"),
            is_continued=is_continued,
            forgot=name == "sessionStart",
        )

    def block(self, critique: str) -> dict[str, Any]:
        """Return the answer that has the agent go on, with a critique."""
        return {"followup_message": critique}

    def context(self, event: HookEvent, text: str) -> dict[str, Any]:
        """Return the answer that gives the agent a text to know; only a new session takes one."""
        return {"additional_context": text} if event.name == "sessionStart" else {}

    def notice(self, text: str) -> dict[str, Any]:  # noqa: ARG002 (Cursor has no place for it)
        """Return the answer that stops nothing."""
        return {}

    def entry(self, command: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of a hook in the configuration."""
        return {"command": command, **more}

    def without(self, entry: Any, is_unwanted: Callable[[str], bool]) -> list[Any]:
        """Return what is left of an entry of the configuration without unwanted commands: it, or nothing."""
        return [] if _has_command(entry, is_unwanted) else [entry]


AGENT_SECONDS = 60
"""How long an agent waits for a hook: longer than the hook's own `timeout`, which says why it gave up."""
CODEX_END_SECONDS = 3
"""More than this Codex does not allow at the end of a session."""
LIMITS: dict[str, Any] = {"timeout": AGENT_SECONDS}
MATCHER = "matcher"
"""The key of the tools for which a hook is called."""
ACTION_SECONDS = 10
"""How long an agent waits before an action."""

AGENTS = {
    agent.name: agent
    for agent in (
        CodingAgent(
            "claude",
            "Claude Code",
            ".claude/settings.json",
            {
                "SessionStart": ("start", LIMITS),
                "UserPromptSubmit": ("start", LIMITS),
                "PreToolUse": (
                    "before",
                    {MATCHER: "Bash|Edit|MultiEdit|NotebookEdit|Write", "timeout": ACTION_SECONDS},
                ),
                "Stop": ("stop", LIMITS),
                "SessionEnd": ("end", LIMITS),
            },
        ),
        CodingAgent(
            "codex",
            "Codex",
            ".codex/hooks.json",
            {
                "SessionStart": ("start", LIMITS),
                "UserPromptSubmit": ("start", LIMITS),
                "PreToolUse": ("before", {MATCHER: "Bash|apply_patch", "timeout": ACTION_SECONDS}),
                "Stop": ("stop", LIMITS),
                "SessionEnd": ("end", {"timeout": CODEX_END_SECONDS}),
            },
            note="Codex runs new or changed hooks only after you have trusted them: open /hooks in it.",
        ),
        Cursor(
            "cursor",
            "Cursor",
            ".cursor/hooks.json",
            {
                "sessionStart": ("start", LIMITS),
                "beforeSubmitPrompt": ("start", LIMITS),
                "stop": ("stop", {**LIMITS, "loop_limit": 8}),
                "sessionEnd": ("end", LIMITS),
            },
            members={"version": 1},
        ),
    )
}


def _has_command(entry: Any, matches: Callable[[str], bool]) -> bool:
    return isinstance(entry, dict) and matches(str(cast("dict[str, Any]", entry).get("command")))


def _object(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = given.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""
