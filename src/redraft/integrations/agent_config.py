"""The configuration of coding agents, and of git, with the calls of `redraft hook` and without them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.integrations.coding_agents import CodingAgent


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after a change; None for a file that does not exist. `mode` is for a new one.

    With `removes_folder`, its folder is removed with it if nothing else is in there.
    """

    path: Path
    before: str | None
    after: str | None
    mode: int = field(default=0o644, kw_only=True)
    removes_folder: bool = field(default=False, kw_only=True)

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty if there is none."""
        before, after = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        old, new = ("/dev/null" if text is None else str(self.path) for text in (self.before, self.after))
        return "".join(unified_diff(before, after, old, new))

    def write(self) -> None:
        """Write the file, or delete it; raises `ConfigError` if that fails."""
        try:
            if self.after is None:
                self.path.unlink(missing_ok=True)
                folder = self.path.parent
                if self.removes_folder and not folder.is_symlink():
                    with suppress(OSError):  # it is not empty, or not ours to remove
                        folder.rmdir()
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(self.after, "utf-8")
            if self.before is None:
                self.path.chmod(self.mode)
        except OSError as error:
            raise ConfigError(f"{str(self.path)!r} can't be written: {error.strerror}.") from error


def installed(agent: CodingAgent, folder: Path, program: str) -> FileChange:
    """Return the change that has an agent call `program`, which is how `redraft` is started."""
    before, document = _read(folder / agent.file)
    hooks = _without_ours(agent, _hooks_of(document, agent))
    for event, (command, more) in agent.hooks.items():
        entry = agent.entry(f"{program} hook {command} {agent.name}", more)
        hooks[event] = [*hooks.get(event, ()), entry]
    after = before or _NEW_FILE
    for name, value in agent.beside(hooks).items():
        after = after if name in document else with_member(after, name, value)
    return FileChange(folder / agent.file, before, _with_hooks(after, hooks))


def uninstalled(agent: CodingAgent, folder: Path) -> FileChange:
    """Return the change that takes away what `installed` wrote, and nothing else."""
    before, document = _read(folder / agent.file)
    if before is None or "hooks" not in document:
        return FileChange(folder / agent.file, before, before)
    found = _hooks_of(document, agent)
    hooks = _without_ours(agent, found)
    if hooks == found:
        return FileChange(folder / agent.file, before, before)
    after = _with_hooks(before, hooks)
    bare = after
    for name in agent.beside(found):
        bare = with_member(bare, name, None)
    return FileChange(folder / agent.file, before, None if bare == _NEW_FILE else after, removes_folder=True)


def is_ours(command: str, agent: str) -> bool:
    """Return whether a command is one that `installed` writes."""
    return re.search(rf"redraft['\"]? hook (?:start|stop|end) {agent}$", command.strip()) is not None


def _without_ours(agent: CodingAgent, hooks: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for event, entries in hooks.items():
        if not isinstance(entries, list):
            kept[event] = entries
            continue
        others = [
            entry
            for entry in cast("list[Any]", entries)
            if not any(is_ours(command, agent.name) for command in agent.commands_of(entry))
        ]
        if others or not entries:
            kept[event] = others
    return kept


def _hooks_of(document: Mapping[str, Any], agent: CodingAgent) -> dict[str, Any]:
    hooks = document.get("hooks", {})
    if not isinstance(hooks, dict):
        raise ConfigError(f"{agent.file}: 'hooks' must be an object, got {hooks!r:.100}.")
    return cast("dict[str, Any]", hooks)


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the text of a file, None if there is none, and the object in it."""
    try:
        # Bytes are decoded, since reading text would replace the line ends of Windows.
        text = path.read_bytes().decode() if path.exists() else None
        document: Any = {} if text is None else json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}.") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{str(path)!r}, line {error.lineno}: this is not JSON: {error.msg}.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{str(path)!r} must hold a JSON object.")
    return text, cast("dict[str, Any]", document)


_NEW_FILE = "{\n}\n"


def _with_hooks(text: str, hooks: Mapping[str, Any]) -> str:
    """Set the hooks of a configuration; those that stay the same keep their form."""
    place = next((one for one in _members(text) if one.name == "hooks"), None)
    if place is None or not hooks:
        return with_member(text, "hooks", hooks or None)
    inner = text[place.start : place.end]
    found = json.loads(inner)
    for event in [*hooks, *(one for one in found if one not in hooks)]:
        if event not in found or hooks.get(event) != found[event]:
            inner = with_member(inner, event, hooks.get(event), depth=2)
    return text[: place.start] + inner + text[place.end :]


def with_member(text: str, name: str, value: Any, *, depth: int = 1) -> str:
    """Set a member of the JSON object in a text, or take it away (None); the rest keeps its very form.

    A member that was added and taken away again leaves no trace. The object lies `depth` - 1 levels deep.
    """
    members = _members(text)
    indent = next((one.indent for one in members if one.indent), "  " * depth)
    step = indent[: len(indent) // depth]
    line_end = "\r\n" if "\r\n" in text else "\n"
    rendered = json.dumps(value, ensure_ascii=False, indent=step).replace("\n", f"{line_end}{indent}")
    at = next((number for number, one in enumerate(members) if one.name == name), None)
    if at is None and value is None:
        return text
    if at is None:
        start = members[-1].end if members else text.index("{") + 1
        comma = "," if members else ""
        return f"{text[:start]}{comma}{line_end}{indent}{json.dumps(name)}: {rendered}{text[start:]}"
    one = members[at]
    if value is not None:
        return text[: one.start] + rendered + text[one.end :]
    if at:
        return text[: members[at - 1].end] + text[one.end :]
    rest = members[1].name_start if len(members) > 1 else None
    return text[: one.name_start] + text[rest:] if rest else text[: text.index("{") + 1] + text[one.end :]


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a JSON object: its name, where it starts, and where its value starts and ends."""

    name: str
    name_start: int
    start: int
    end: int
    indent: str


def _members(text: str) -> list[_Member]:
    decoder = json.JSONDecoder()
    members: list[_Member] = []
    at = text.index("{") + 1
    while (found := _NEXT_MEMBER.match(text, at)) is not None:
        name, after = decoder.raw_decode(text, found.end())
        colon = _COLON.match(text, after)
        start = after if colon is None else colon.end()  # the text is known to be JSON
        _, at = decoder.raw_decode(text, start)
        members.append(_Member(name, found.end(), start, at, found["indent"] or ""))
    return members


_NEXT_MEMBER = re.compile(r'[\s,]*?(?:\n(?P<indent>[ \t]*))?(?=")')
_COLON = re.compile(r"\s*:\s*")


# --- git's own hook ----------------------------------------------------------------------------------------

_BEGIN, _END = "# redraft hook: begin", "# redraft hook: end"
_SHELLS = re.compile(r"#!\s*(?:/usr/bin/env\s+)?(?:/\S*/)?(?:ba|da|k|z)?sh\b")
_SHEBANG = "#!/bin/sh\n"


def installed_in_git(path: Path, program: str) -> FileChange:
    """Return the change that has git's pre-commit hook, the script `path`, call `redraft`.

    An existing shell script keeps what it does, after the check. Raises `ConfigError` for any other program.
    """
    before = _script(path)
    if before is not None and not _SHELLS.match(before):
        raise ConfigError(
            f"{str(path)!r} is not a shell script, so it was not changed; have it run `{program} hook stop "
            "git`."
        )
    shebang, rest = (before or _SHEBANG).split("\n", 1)
    block = f"{_BEGIN}\n{program} hook stop git || exit 1\n{_END}\n"
    return FileChange(path, before, f"{shebang}\n{block}{_without_block(rest)}", mode=0o755)


def uninstalled_from_git(path: Path) -> FileChange:
    """Return the change that takes away what `installed_in_git` wrote."""
    before = _script(path)
    if before is None or _BEGIN not in before:
        return FileChange(path, before, before)
    after = _without_block(before)
    return FileChange(path, before, None if after == _SHEBANG else after)


def _script(path: Path) -> str | None:
    try:
        return path.read_text("utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}.") from error


def _without_block(script: str) -> str:
    return re.sub(rf"^{_BEGIN}\n.*?^{_END}\n", "", script, flags=re.DOTALL | re.MULTILINE)
