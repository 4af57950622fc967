"""Coding agents: the events of their hooks, their replies, and their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from redraft.text.characters import well_formed


@dataclass(frozen=True, slots=True)
class HookEvent:
    """An event of an agent, as a hook receives it; fields are empty where the agent sends no value."""

    name: str
    session: str
    """Session id."""
    folder: str = ""
    """The agent's working folder."""
    turn: str = ""
    """Id of the person's prompt."""
    prompt: str = ""
    """The person's prompt."""
    answer: str = ""
    """The agent's last message."""
    is_continued: bool = False
    """Whether the agent is continuing because of a hook."""
    forgot: bool = False
    """Whether the agent starts without the texts that hooks sent it before."""
    tool: str = ""
    """The tool that the agent is about to use."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the tool."""
    transcript: str = ""
    """Path of the agent's own record of the session."""


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """A coding agent whose hooks are commands that read JSON from stdin and write JSON to stdout.

    This is the protocol of Claude Code and Codex.
    """

    name: str
    title: str
    file: str
    """Configuration file, relative to the repository."""
    hooks: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Events, each with its command of `redraft hook` and further members of its entry."""
    note: str = ""
    """Advice to print after the installation."""
    members: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members that the file needs besides the hooks."""

    def event(self, payload: Mapping[str, Any]) -> HookEvent:
        """Read an event."""
        name, arguments = _text(payload, "hook_event_name"), payload.get("tool_input")
        return HookEvent(
            name,
            _text(payload, "session_id"),
            _text(payload, "cwd"),
            _text(payload, "prompt_id") or _text(payload, "turn_id"),
            _text(payload, "prompt"),
            _text(payload, "last_assistant_message"),
            is_continued=payload.get("stop_hook_active") is True,
            forgot=name == "SessionStart" and _text(payload, "source") != "resume",
            tool=_text(payload, "tool_name"),
            arguments=cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {},
            transcript=_text(payload, "transcript_path"),
        )

    def block(self, critique: str) -> dict[str, Any]:
        """Reply that makes the agent continue, with a critique."""
        return {"decision": "block", "reason": critique}

    def context(self, event: HookEvent, text: str) -> dict[str, Any]:
        """Reply that adds a text to the agent's context."""
        return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}

    def notice(self, text: str) -> dict[str, Any]:
        """Reply that shows the person a text without blocking the agent."""
        return {"systemMessage": text}

    def entry(self, command: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Entry of a hook in the configuration."""
        about = {MATCHER: more[MATCHER]} if MATCHER in more else {}
        others = {name: value for name, value in more.items() if name != MATCHER}
        return {**about, "hooks": [{"type": "command", "command": command, **others}]}

    def without(self, entry: Any, is_unwanted: Callable[[str], bool]) -> list[Any]:
        """The entry of the configuration without unwanted commands; empty if nothing is left."""
        if not isinstance(entry, dict):
            return [entry]
        members = cast("dict[str, Any]", entry)
        if not isinstance(members.get("hooks"), list):
            return [members]
        commands = cast("list[Any]", members["hooks"])
        others = [command for command in commands if not _has_command(command, is_unwanted)]
        if len(others) == len(commands):
            return [members]
        return [{**members, "hooks": others}] if others else []


@dataclass(frozen=True, slots=True)
class Cursor(CodingAgent):
    """Cursor, which continues an agent with a message, and can't show notices."""

    def event(self, payload: Mapping[str, Any]) -> HookEvent:
        """Read an event."""
        roots, loops = payload.get("workspace_roots"), payload.get("loop_count")
        folder = cast("list[Any]", roots)[0] if isinstance(roots, list) and roots else ""
        is_continued = isinstance(loops, int) and loops > 0
        name = _text(payload, "hook_event_name")
        return HookEvent(
            name,
            _text(payload, "conversation_id") or _text(payload, "session_id"),
            _text(payload, "cwd") or str(folder),
            _text(payload, "generation_id"),
            _text(payload, "prompt"),
            is_continued=is_continued,
            forgot=name == "sessionStart",
        )

    def block(self, critique: str) -> dict[str, Any]:
        """Reply that makes the agent continue, with a critique."""
        return {"followup_message": critique}

    def context(self, event: HookEvent, text: str) -> dict[str, Any]:
        """Reply that adds a text to the agent's context; Cursor takes it only at the start of a session."""
        return {"additional_context": text} if event.name == "sessionStart" else {}

    def notice(self, text: str) -> dict[str, Any]:  # noqa: ARG002 (Cursor has no place for it)
        """Empty reply."""
        return {}

    def entry(self, command: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Entry of a hook in the configuration."""
        return {"command": command, **more}

    def without(self, entry: Any, is_unwanted: Callable[[str], bool]) -> list[Any]:
        """The entry of the configuration without unwanted commands; empty if nothing is left."""
        return [] if _has_command(entry, is_unwanted) else [entry]


AGENT_SECONDS = 60
"""The agent's time limit for a hook. The hook's own `timeout` is shorter, so that it can say why it ended."""
CODEX_END_SECONDS = 3
"""Codex's maximum at the end of a session."""
LIMITS: dict[str, Any] = {"timeout": AGENT_SECONDS}
MATCHER = "matcher"
"""Key of the tools that a hook is called for."""
ACTION_SECONDS = 10
"""The agent's time limit for a hook before an action."""

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


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    return well_formed(value) if isinstance(value, str) else ""
