"""Actions of coding agents, which are commands and edits: the lessons on them, and those they teach."""

# A hook runs before each action, so a search must not load what lessons need. `write_actions` writes all that
# `before` looks through into one file, at the start of a session and with each prompt.

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft._locks import check_regular
from redraft.settings import hooks_folder, project_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from redraft.integrations.coding_agents import HookEvent
    from redraft.integrations.hook_sessions import Sessions
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.lessons import Lessons

FILE = "actions"
"""The file with the lessons on actions, in the folder of what hooks store."""
COMMAND_TYPE = "command"
"""The task type of the lessons on commands."""
MOST_GIVEN = 2
"""Lessons before one action."""
MOST_LESSONS = 500
"""Lessons in the index, the newest."""
LONGEST_ACTION, LONGEST_COMMAND, LONGEST_ERROR = 20_000, 300, 400
"""Characters of an action that are searched, and of a command and an error in a lesson."""
FEWEST_NAMES = 2
"""Identifiers of an error that an action has to name, unless the error has fewer."""
MOST_NAMES = 12


# --- searching ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailingForm:
    """A form of a command that fails, and those that don't."""

    words: tuple[str, ...]
    """The program of a command, and the other words that it has to have, in any order."""
    without: tuple[tuple[str, ...], ...] = ()
    """Words of the forms that passed: with all of one of these, an action is right already."""
    command: str = ""
    """The whole command, if it was carried out as it is here."""

    def fits(self, commands: list[list[str]], words: frozenset[str]) -> bool:
        """Return whether an action is of this form; `words` are those of all its `commands`."""
        if any(words.issuperset(right) for right in self.without):
            return False
        return any(one[0] == self.words[0] and set(one).issuperset(self.words) for one in commands)


def text_of_action(tool: str, given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the command of an action, if it is one, and the text to search; empty for other tools."""
    command = given.get("command")
    if isinstance(command, list):
        command = shlex.join(map(str, cast("list[Any]", command)))
    if isinstance(command, str):
        return command[:LONGEST_ACTION], command[:LONGEST_ACTION]
    if not any(name in given for name in _EDITED):
        return "", ""
    edits = given.get("edits")
    parts = [given, *map(_object, cast("list[Any]", edits) if isinstance(edits, list) else ())]
    texts = [str(part.get(name, "")) for part in parts for name in _EDITED]
    return "", f"{tool}\n" + "\n".join(filter(None, texts))[:LONGEST_ACTION]


_EDITED = ("file_path", "notebook_path", "path", "new_string", "content", "new_source", "input", "patch")
"""The arguments of tools that edit files."""


def key_of(agent: str, session: str) -> str:
    """Return the key under which the state of a session is stored."""
    return f"{agent}-{sha256(session.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class KnownActions:
    """What lessons say of actions, and which of them each session was given, in files of a folder.

    Hooks run at the same time, so they only add lines to the file of a session.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file with what lessons say of actions."""
        return self.folder / FILE

    def read(self) -> dict[str, Any]:
        """Return what lessons say of actions; empty without a file, or if it can't be read."""
        with suppress(OSError, ValueError):
            if check_regular(self.path):
                stored: Any = json.loads(self.path.read_text("utf-8"))
                return cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
        return {}

    def given(self, key: str) -> frozenset[str]:
        """Return the ids of the lessons that a session was given before its actions."""
        with suppress(OSError):
            if check_regular(self._given(key)):
                return frozenset(self._given(key).read_text("utf-8", "replace").splitlines())
        return frozenset()

    def give(self, key: str, lessons: Iterable[str]) -> None:
        """Note that a session was given lessons; raises `OSError` if the file can't be written."""
        path, flags = self._given(key), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        check_regular(path)
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(f"{one}\n" for one in lessons))

    def forget(self, key: str) -> None:
        """Note that a session no longer knows what it was given."""
        self._given(key).unlink(missing_ok=True)

    def _given(self, key: str) -> Path:
        return self.folder / f"{key}.given"


def before(event: HookEvent, agent: str) -> str:
    """Return the lessons that an action of an agent matches, each once in a session; empty if none does."""
    folder = hooks_folder(project_folder())
    actions = None if folder is None else KnownActions(folder)
    entries = None if actions is None else actions.read().get("lessons")
    if actions is None or not entries:
        return ""
    command, text = text_of_action(event.tool, event.arguments)
    key = key_of(agent, event.session)
    found = _matching(entries, command, text, actions.given(key)) if text.strip() else {}
    if found:
        actions.give(key, found)
    return "\n\n".join(found.values())


def _matching(
    entries: list[dict[str, Any]], command: str, text: str, known: frozenset[str]
) -> dict[str, str]:
    """Return the texts of lessons that an action matches, by id, without those `known` already."""
    commands = commands_of(command)
    words = frozenset(word for one in commands for word in one)
    found: dict[str, str] = {}
    for entry in entries:
        if entry["id"] in known:
            continue
        patterns = [
            FailingForm(tuple(one["words"]), tuple(map(tuple, one["without"]))) for one in entry["patterns"]
        ]
        if any(one.fits(commands, words) for one in patterns) or _names(entry["names"], text):
            found[entry["id"]] = entry["text"]
            if len(found) == MOST_GIVEN:
                break
    return found


def _names(names: list[str], text: str) -> bool:
    shown = text.casefold()
    count = sum(
        re.search(rf"(?<![\w.-]){re.escape(name)}(?!\w)", shown) is not None
        for name in names
        if name in shown
    )
    return bool(names) and count >= min(FEWEST_NAMES, len(names))


def commands_of(line: str) -> list[list[str]]:
    """Return the words of each command in a line of shell, without what is set for it and what starts it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = list(lexer)
    except ValueError:  # an open quotation
        words = re.split(r"([;&|()\n]+)|\s+", line)
    groups = groupby(filter(None, words), key=lambda word: not word.strip(";&|()\n"))
    found = [list(group) for is_joint, group in groups if not is_joint]
    return [rest for one in found if (rest := _without_start(one))]


def _without_start(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and (words[at] in _STARTERS or re.fullmatch(r"\w+=.*", words[at], re.DOTALL)):
        at += 1
    return words[at:]


_STARTERS = frozenset({"sudo", "time", "nice", "env", "command", "exec", "nohup", "then", "do", "else", "!"})


# --- the index ----------------------------------------------------------------------------------------------


async def write_actions(sessions: Sessions, lessons: Lessons) -> None:
    """Write what the lessons say of actions, unless they have not changed since."""
    from redraft._prompts import mistake_text  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.advice import advice_on_mistake  # noqa: PLC0415 (likewise)
    from redraft.lessons.index import LessonMatch  # noqa: PLC0415 (likewise)
    from redraft.lessons.lesson import violation_in  # noqa: PLC0415 (likewise)
    from redraft.lessons.lessons import MISTAKE_TOKENS  # noqa: PLC0415 (likewise)

    state = await lessons.fingerprint()
    if sessions.actions.read().get("state") == state:
        return
    active = [*await lessons.find(status="active"), *await lessons.find(status="active", archived=True)]
    entries: dict[str, dict[str, Any]] = {}
    for lesson in sorted(active, key=lambda one: (one.recency, one.id), reverse=True)[:MOST_LESSONS]:
        patterns, names = patterns_in(lesson), names_in(lesson)
        if lesson.kind == "decision" or not (patterns or names) or violation_in(lesson):
            continue
        advice = advice_on_mistake([LessonMatch(lesson, 1.0, "")], (), MISTAKE_TOKENS)
        if advice:
            entries[lesson.id] = {
                "id": lesson.id,
                "patterns": [asdict(one) for one in patterns],
                "names": names,
                "text": mistake_text(advice),
            }
    sessions.write_actions({"state": state, "lessons": list(entries.values())})


def patterns_in(lesson: Lesson) -> list[FailingForm]:
    """Return the forms of commands that a lesson says fail: those that it quotes as code, or as not found."""
    content = lesson.content
    wrong = [str(getattr(content, name, "")) for name in ("what_happened", "what_went_wrong")]
    right = [str(getattr(content, name, "")) for name in ("do_differently", "strategy")]
    passed = [words for text in right for code in _CODE.findall(text) for words in commands_of(code)]
    found: dict[FailingForm, None] = {}
    if lesson.task_type == COMMAND_TYPE and lesson.task:
        words, added = _essential(lesson.task, passed, lesson.error)
        return [FailingForm(words, (added,) if added else (), lesson.task)] if words else []
    without = tuple(tuple(words) for words in passed)
    codes = [code for text in wrong for code in _CODE.findall(text)]
    for words in [words for code in codes for words in commands_of(code)]:
        if len(words) > 1 or _is_program(words[0]):
            found[FailingForm(tuple(words), tuple(one for one in without if set(one) - set(words)))] = None
    for match in _NOT_FOUND.finditer("\n".join([lesson.error, *wrong])):
        name = match[1] or match[2]
        found[FailingForm((name,), tuple(one for one in without if name not in one))] = None
    return list(found)


def _essential(failed: str, passed: list[list[str]], error: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words that made a command fail, as far as its error names them, and those that mended it.

    Where the error names none, the whole command is what failed.
    """
    commands = commands_of(failed)
    words = [word for one in commands for word in one]
    others, programs = {word for one in passed for word in one}, {one[0] for one in passed}
    named = set(re.findall(r"[^\s'\"`:,;()\[\]]+", error))
    added = tuple(word for one in passed for word in one if word not in words)
    for one in commands:
        # `pytest` in `python -m pytest` is another word than the program.
        changed = [word for word in one[1:] if word not in others]
        changed += [] if one[0] in programs else [one[0]]
        if culprits := [word for word in changed if word in named]:
            return tuple(dict.fromkeys([one[0], *culprits])), added
    # As one command, which is what a pattern looks for: of several, the first that did not pass.
    return tuple(next((one for one in commands if one not in passed), commands[0] if commands else ())), added


def names_in(lesson: Lesson) -> list[str]:
    """Return the identifiers of what a lesson says went wrong, in lower case, as they are written."""
    from redraft.lessons.full_text import names_in  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.recurrence import ErrorText  # noqa: PLC0415 (likewise)

    if lesson.task_type == COMMAND_TYPE:
        return []
    wrong = f"{lesson.error}\n{getattr(lesson.content, 'what_went_wrong', '')}"
    known = [re.sub(r"(?::\d+)+$", "", name) for name in names_in(wrong) if ErrorText(name).names]
    return list(dict.fromkeys(name.casefold() for name in known if len(name) > 2))[:MOST_NAMES]  # noqa: PLR2004 (letters)


_CODE = re.compile(r"`([^`\n]+)`")
_NOT_FOUND = re.compile(
    r"(?:command not found: |not found: )([\w.+/-]+)|([\w.+/-]+): (?:command )?not found\b"
)


def _is_program(word: str) -> bool:
    return re.fullmatch(r"[\w.+/-]{3,}", word) is not None and not word.isdecimal()


# --- commands that failed until they changed ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MendedCommand:
    """A command that failed, its error, and the form of it that passed later."""

    failed: str
    error: str
    passed: str


@dataclass(frozen=True, slots=True)
class _Done:
    """A command that was carried out, and its error if it failed; None for an edit."""

    command: str | None
    error: str = ""
    has_failed: bool = False


LARGEST = 20_000_000
"""Bytes of a transcript that are read: the last ones."""
REACH = 8
"""Commands after a failure among which its other form is looked for."""
ALIKE = 0.5
"""The share of its words that a command has in common with more than another form of it."""
MOST_LINES = 8
"""Lines of an error about a command; longer ones are results, such as those of tests."""


def commands_in(transcript: str) -> list[_Done]:
    """Return what an agent did in a session, as its transcript says; nothing if that can't be read."""
    path = Path(transcript)
    try:
        if not transcript or not check_regular(path):
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LARGEST))
            lines = file.read(LARGEST).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    calls: dict[str, Mapping[str, Any]] = {}
    done: list[_Done] = []
    for line in lines:
        try:
            entry: Any = json.loads(line)
        except ValueError:  # the last line may be half written, the first one cut off
            continue
        if isinstance(entry, dict):
            done += _done_in(cast("dict[str, Any]", entry), calls)
    return done


def _done_in(entry: dict[str, Any], calls: dict[str, Mapping[str, Any]]) -> Iterator[_Done]:
    """Yield what an entry of a transcript says was done; `calls` are the calls so far, by their ids."""
    message, payload = entry.get("message"), entry.get("payload")
    content = _object(message).get("content", [payload])  # of Claude Code, else of Codex
    for part in map(_object, cast("list[Any]", content) if isinstance(content, list) else ()):
        match part.get("type"):
            case "tool_use":
                calls[str(part.get("id"))] = _object(part.get("input"))
            case "function_call":
                calls[str(part.get("call_id"))] = _object(part.get("arguments"))
            case "tool_result":
                given = calls.pop(str(part.get("tool_use_id")), {})
                has_failed = part.get("is_error") is True
                error = _EXIT.sub("", _text(part.get("content"))) if has_failed else ""
                yield from _done(given, error, has_failed=has_failed)
            case "function_call_output":
                given = calls.pop(str(part.get("call_id")), {})
                output = _text(part.get("output"))
                code = _CODEX_EXIT.search(output)
                if code is not None:
                    has_failed = code[1] != "0"
                    error = output.partition("Output:\n")[2] if has_failed else ""
                    yield from _done(given, error, has_failed=has_failed)
            case _:
                pass


_EXIT = re.compile(r"\A(?:Error: )?Exit code \d+\s*")
_CODEX_EXIT = re.compile(r"(?:Process exited with|Exit) code:? (\d+)")


def _done(given: Mapping[str, Any], error: str, *, has_failed: bool) -> Iterator[_Done]:
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list):  # of an earlier Codex: ["bash", "-lc", "..."]
        words = [str(word) for word in cast("list[Any]", command)]
        command = words[2] if words[1:2] in (["-lc"], ["-c"]) and len(words) > 2 else shlex.join(words)  # noqa: PLR2004 (the third)
    if isinstance(command, str) and not command.startswith("apply_patch"):
        yield _Done(command.strip(), error.strip(), has_failed)
    elif command is not None or any(word in given for word in _EDITED):
        yield _Done(None)


def mended_in(done: list[_Done]) -> list[MendedCommand]:
    """Return the commands that failed, and passed a little later in another form, without an edit in between.

    A failure without an error text, such as that of a search that finds nothing, teaches nothing, and nor
    does a command that passed unchanged.
    """
    found: dict[str, MendedCommand] = {}
    for number, one in enumerate(done):
        is_about_command = one.has_failed and 0 < len(one.error.splitlines()) <= MOST_LINES
        if not is_about_command or not _is_short(one.command):
            continue
        failed = one.command or ""
        for later in done[number + 1 : number + 1 + REACH]:
            if later.command is None or (later.command == failed and not later.has_failed):
                break
            if not later.has_failed and _is_short(later.command) and _is_alike(failed, later.command):
                found[failed] = MendedCommand(failed, one.error[:LONGEST_ERROR], later.command)
                break
    passed = {one.command for one in done if not one.has_failed}
    return [one for one in found.values() if one.failed not in passed]


def refuted_by(sessions: Sessions, done: list[_Done]) -> list[str]:
    """Return the ids of the lessons on commands that passed now, just as they are."""
    passed = {one.command for one in done if one.command and not one.has_failed}
    return [
        entry["id"]
        for entry in sessions.actions.read().get("lessons", [])
        if any(one["command"] in passed for one in entry["patterns"])
    ]


def _is_short(command: str | None) -> bool:
    return bool(command) and len(command or "") <= LONGEST_COMMAND and not re.search(r"[`\n]", command or "")


def _is_alike(failed: str, other: str) -> bool:
    """Return whether two commands are forms of the same one: whether they share most parts of their words."""
    parts, others = (set(re.findall(r"\w+", line)) for line in (failed, other))
    return failed != other and len(parts & others) > ALIKE * min(len(parts), len(others))


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    return "\n".join(
        str(cast("dict[str, Any]", one).get("text", "")) for one in parts if isinstance(one, dict)
    )


async def learn_command(lessons: Lessons, mended: MendedCommand) -> Lesson | None:
    """Store the lesson of a command; None if what it says may not be in a lesson."""
    from redraft.errors import ConfigError  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.lesson import Failure  # noqa: PLC0415 (likewise)
    from redraft.memory.safety import WITHHELD, Cleaner  # noqa: PLC0415 (likewise)
    from redraft.redact.log import logger  # noqa: PLC0415 (likewise)
    from redraft.types import PlainTask  # noqa: PLC0415 (likewise)

    cleaner = Cleaner.of(mended.failed, mended.passed, mended.error)
    failed, passed = cleaner.redact(mended.failed), cleaner.redact(mended.passed)
    # Line by line, so that what no lesson may hold takes only its line with it.
    error = " ".join(cleaner.clean(mended.error).split()).replace("`", "'")
    content = Failure(
        f"The command `{failed}` failed, and another form of it passed.",
        f"`{failed}` failed: {error}" if error != WITHHELD else f"`{failed}` failed.",
        "Not known.",
        f"This form passed: `{passed}`",
        "None.",
    )
    task = PlainTask(failed, task_type=COMMAND_TYPE, tools=("Bash",))
    try:
        return await lessons.record(content, task, error=error, title=f"Instead of {failed}", observed=True)
    except ConfigError as refusal:
        logger.info("A command left no lesson: %s", refusal)
        return None
