"""Install `redraft hook` in the configuration of coding agents and of git, and remove it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft._files import replace_file
from redraft._locks import check_regular
from redraft.errors import ConfigError
from redraft.integrations.hook_answer import COMMIT_REFUSED
from redraft.text.json import load_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.integrations.coding_agents import CodingAgent


HUSKY = ".husky"
"""Folder of husky's scripts, which husky runs with `sh -e`, executable or not."""
FAILS_OPEN = " || exit 1"
"""The end of each command. Exit code 2 blocks an agent, but Python, uv and argparse also exit with 2 on their
own failures. On exit code 1, an agent continues and shows the error."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after a change."""

    path: Path
    before: str | None
    """None if the file does not exist."""
    after: str | None
    """None deletes the file."""
    mode: int = field(default=0o644, kw_only=True)
    """Mode of a new or empty file."""
    removes_folder: bool = field(default=False, kw_only=True)
    """Whether deleting the file also removes its folder if it is empty then."""

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty if there is none."""
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        old, new = ("/dev/null" if text is None else str(self.path) for text in (self.before, self.after))
        lines = unified_diff(before, after, old, new, lineterm="")
        # A script may be in any encoding.
        return (
            "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape").decode(errors="replace")
        )

    def write(self) -> None:
        """Write the file atomically, or delete it; raises `ConfigError` if that fails."""
        try:
            if self.after is None:
                self.path.unlink(missing_ok=True)
                folder = self.path.parent
                if self.removes_folder and not folder.is_symlink():
                    with suppress(OSError):  # not empty, or not permitted
                        folder.rmdir()
                return
            target = self.path.resolve()  # write to the target of a link, and keep the link
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, self.after.encode(errors="surrogateescape"))
            if not self.before:
                target.chmod(self.mode)
        except (OSError, RuntimeError) as error:  # RuntimeError: circular links
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{str(self.path)!r} can't be written: {reason}.") from error


def installed(agent: CodingAgent, folder: Path, program: str) -> FileChange:
    """The change that makes an agent call `program`, the command that starts `redraft`."""
    path = folder / agent.file
    before, document = _read(path)
    hooks = _without_ours(agent, _hooks_of(path, document))
    for event, (name, more) in agent.hooks.items():
        command = f"{program} hook {name} {agent.name}{FAILS_OPEN}"
        if not is_ours(command, agent.name):
            raise ConfigError(
                f"--program {program!r} must end with redraft, such as 'uv run redraft': that is how "
                "`uninstall` recognises what it may remove."
            )
        entries: Any = hooks.get(event) or []
        if not isinstance(entries, list):
            raise ConfigError(f"{str(path)!r}: {f'hooks.{event}'!r} must be a list, got {entries!r:.100}.")
        hooks[event] = [*cast("list[Any]", entries), agent.entry(command, more)]
    missing = {name: value for name, value in agent.members.items() if name not in document}
    return _change(path, before, document, {**document, **missing, "hooks": hooks})


def missing_events(agent: CodingAgent, folder: Path) -> list[str] | None:
    """Events on which an agent does not call `redraft hook`; None if it calls it on no event.

    Raises `ConfigError` for a file that can't be read.
    """
    _, document = _read(folder / agent.file)
    hooks = _hooks_of(folder / agent.file, document)
    others = _without_ours(agent, hooks)
    missing = [event for event in agent.hooks if others.get(event) == hooks.get(event)]
    return None if len(missing) == len(agent.hooks) else missing


def uninstalled(agent: CodingAgent, folder: Path) -> FileChange:
    """The change that removes the hooks of `installed`, and the file if nothing else is in it."""
    path = folder / agent.file
    before, document = _read(path)
    hooks = _hooks_of(path, document)
    others = _without_ours(agent, hooks)
    if others == hooks:
        return FileChange(path, before, before)
    after = {**document, "hooks": others}
    if not others:
        del after["hooks"]
    is_bare = {**agent.members, **after} == agent.members
    if is_bare and not path.is_symlink():  # deleting a link would leave the hooks in its target
        return FileChange(path, before, None, removes_folder=True)
    return _change(path, before, document, after)


def is_ours(command: str, agent: str) -> bool:
    """Whether `installed` writes commands of this form."""
    ending = rf"redraft(?:\.exe)?['\"]? hook (?:start|before|stop|end) {agent}(?:{re.escape(FAILS_OPEN)})?$"
    return re.search(ending, command.strip()) is not None


def _without_ours(agent: CodingAgent, hooks: Mapping[str, Any]) -> dict[str, Any]:
    """The hooks without the commands of `redraft hook`, and without events that have no other command."""
    others: dict[str, Any] = {}
    for event, entries in hooks.items():
        rest = entries
        if isinstance(entries, list):
            rest = [
                part
                for entry in cast("list[Any]", entries)
                for part in agent.without(entry, lambda command: is_ours(command, agent.name))
            ]
        if rest or not entries:
            others[event] = rest
    return others


def _hooks_of(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    hooks = document.get("hooks")
    if hooks is None:
        return {}
    if not isinstance(hooks, dict):
        raise ConfigError(f"{str(path)!r}: 'hooks' must be an object, got {hooks!r:.100}.")
    return cast("dict[str, Any]", hooks)


def _change(
    path: Path, before: str | None, document: Mapping[str, Any], after: Mapping[str, Any]
) -> FileChange:
    """The change of a JSON file; nothing changes if the data is the same and only its form differs."""
    if after == document:
        return FileChange(path, before, before)
    text = json.dumps(after, ensure_ascii=False, indent=2)
    # JSON and Python escape a lone surrogate in the same way.
    return FileChange(path, before, text.encode("utf-8", "backslashreplace").decode() + "\n")


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Read a JSON object from a file, with its text, None for a missing file; empty files and null are {}."""
    try:
        text = path.read_bytes().decode("utf-8-sig") if check_regular(path) else None
        document: Any = load_json(text, repeats_keys=False) if text and text.strip() else None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{str(path)!r}, line {error.lineno}: this is not JSON: {error.msg}.") from error
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not what JSON can express
        raise ConfigError(f"{str(path)!r} can't be read: {error}.") from error
    if document is None:
        return text, {}
    if not isinstance(document, dict):
        raise ConfigError(f"{str(path)!r} must hold a JSON object.")
    return text, cast("dict[str, Any]", document)


# --- git's own hook ----------------------------------------------------------------------------------------

_BEGIN, _END = "# redraft hook: begin", "# redraft hook: end"
_SHELLS = re.compile(r"#!\s*(?:/\S*/env\s+(?:-S\s+)?)?(?:/\S*/)?(?:ba|da|k|z)?sh\b")
_SHEBANG = "#!/bin/sh\n"
_BLOCK = f"""\
{_BEGIN}
redraft_code=0
{{program}} hook stop git || redraft_code=$?
case $redraft_code in
0) ;;
{COMMIT_REFUSED}) exit 1 ;;
*)
    echo "redraft hook: Redraft ended with exit code $redraft_code. Nothing was checked or blocked." >&2
    echo "To remove the hook, delete the lines from '{_BEGIN}' to '{_END}' in $0" >&2
    ;;
esac
{_END}
"""
"""Only a verdict refuses a commit; if Redraft can't start or crashes, the commit passes."""


def installed_in_git(path: Path, program: str) -> FileChange:
    """The change that makes git's pre-commit hook, the script `path`, call `redraft`.

    The check runs before the rest of an existing shell script. As in git, a script without a shebang is a
    script of sh. Raises `ConfigError` for any other program.
    """
    before = _script(path)
    is_empty = not (before or "").strip()
    if before is not None and not is_empty:
        is_shell_script = _SHELLS.match(before) or not before.startswith("#!")
        if not is_shell_script or "\0" in before:
            raise ConfigError(
                f"{str(path)!r} is not a shell script, so it was not changed; have it run "
                f"`{program} hook stop git`, and refuse the commit only on exit code {COMMIT_REFUSED}."
            )
    shebang, rest = "", before or ""
    if is_empty or rest.startswith("#!"):
        shebang, _, rest = (_SHEBANG if is_empty else rest).partition("\n")
    block = _BLOCK.format(program=program)
    after = f"{shebang}\n{block}{_without_block(rest)}" if shebang else f"{block}{_without_block(rest)}"
    return FileChange(path, before, after, mode=0o755)


def uninstalled_from_git(path: Path) -> FileChange:
    """The change that removes the lines of `installed_in_git`."""
    before = _script(path)
    if before is None or _BEGIN not in before:
        return FileChange(path, before, before)
    after = _without_block(before)
    is_bare = after == _SHEBANG and not path.is_symlink()
    return FileChange(path, before, None if is_bare else after)


def _script(path: Path) -> str | None:
    """Text of a script, including bytes that are not UTF-8; None if it doesn't exist."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else None
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error.strerror}.") from error


def _without_block(script: str) -> str:
    return re.sub(rf"^{_BEGIN}\n.*?^{_END}\n", "", script, flags=re.DOTALL | re.MULTILINE)
