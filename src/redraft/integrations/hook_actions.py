"""Actions of coding agents: the lessons on commands and edits, and the lessons that commands teach."""

# A hook runs before each action, so a search must be fast: `before` reads only the file that `write_actions`
# writes at the start of a session and with each prompt.

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
"""The file with the lessons on actions, in the folder of the hooks' state."""
COMMAND_TYPE = "command"
"""The task type of the lessons on commands."""
LESSONS_PER_ACTION = 2
"""Most lessons that are sent before an action."""
MOST_LESSONS = 500
"""Lessons in the index, the newest."""
LONGEST_ACTION, LONGEST_COMMAND, LONGEST_ERROR = 20_000, 300, 400
"""Characters of an action to search, and of a command and an error in a lesson."""
FEWEST_NAMES = 2
"""Identifiers of an error that an action has to contain, unless the error has fewer."""
MOST_NAMES = 12
"""Identifiers of an error that the index holds."""


# --- searching ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailingForm:
    """A form of a command that fails."""

    words: tuple[str, ...]
    """The program, and the other words that the command has to contain, in any order."""
    without: tuple[tuple[str, ...], ...] = ()
    """Words of the forms that passed: an action that contains all words of a form does not match."""
    command: str = ""
    """The whole command, if it was run in exactly this form."""

    def matches(self, commands: list[list[str]], words: frozenset[str]) -> bool:
        """Whether an action has this form; `words` are the words of all its `commands`."""
        if any(words.issuperset(passed) for passed in self.without):
            return False
        return any(
            command[0] == self.words[0] and set(command).issuperset(self.words) for command in commands
        )


def text_of_action(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The command of an action, empty for an edit, and the text to search; both empty for other tools."""
    command = arguments.get("command")
    if isinstance(command, list):
        command = shlex.join(map(str, cast("list[Any]", command)))
    if isinstance(command, str):
        return command[:LONGEST_ACTION], command[:LONGEST_ACTION]
    if not any(name in arguments for name in _EDITED):
        return "", ""
    edits = arguments.get("edits")
    parts = [arguments, *map(_object, cast("list[Any]", edits) if isinstance(edits, list) else ())]
    texts = [str(part.get(name, "")) for part in parts for name in _EDITED]
    return "", f"{tool}\n" + "\n".join(filter(None, texts))[:LONGEST_ACTION]


_EDITED = ("file_path", "notebook_path", "path", "new_string", "content", "new_source", "input", "patch")
"""The arguments of tools that edit files."""


def key_of(agent: str, session: str) -> str:
    """The key of a session's state."""
    return f"{agent}-{sha256(session.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class ActionLessons:
    """The lessons on actions, and the ids of the lessons that each session was sent, in files of a folder.

    Hooks run concurrently, so they only append lines to the file of a session.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file with the lessons on actions."""
        return self.folder / FILE

    def read(self) -> dict[str, Any]:
        """Read the lessons on actions; empty if the file is missing or can't be read."""
        with suppress(OSError, ValueError, RecursionError):
            if check_regular(self.path):
                stored: Any = json.loads(self.path.read_text("utf-8"))
                return cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
        return {}

    def sent_to(self, key: str) -> frozenset[str]:
        """Ids of the lessons that a session was sent before its actions."""
        with suppress(OSError):
            if check_regular(self._sent(key)):
                return frozenset(self._sent(key).read_text("utf-8", "replace").splitlines())
        return frozenset()

    def add_sent(self, key: str, lesson_ids: Iterable[str]) -> None:
        """Record the lessons that a session is sent; raises `OSError` if the file can't be written."""
        path, flags = self._sent(key), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        check_regular(path)
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(f"{lesson_id}\n" for lesson_id in lesson_ids))

    def forget(self, key: str) -> None:
        """Forget the lessons that a session was sent, because its context was cleared."""
        self._sent(key).unlink(missing_ok=True)

    def _sent(self, key: str) -> Path:
        return self.folder / f"{key}.given"


def before(event: HookEvent, agent: str) -> str:
    """The lessons that match an action of an agent, each once in a session; empty if none matches."""
    folder = hooks_folder(project_folder())
    actions = None if folder is None else ActionLessons(folder)
    entries = None if actions is None else actions.read().get("lessons")
    if actions is None or not entries:
        return ""
    command, text = text_of_action(event.tool, event.arguments)
    key = key_of(agent, event.session)
    lessons = _matching(entries, command, text, actions.sent_to(key)) if text.strip() else {}
    if lessons:
        actions.add_sent(key, lessons)
    return "\n\n".join(_restored(lesson, text) for lesson in lessons.values())


def _restored(lesson: str, action: str) -> str:
    """The text of a lesson with what the action says in full, where memory withholds it."""
    from redraft.redact.kinds import MARK  # noqa: PLC0415 (not needed if no lesson matches)

    if not MARK.search(lesson):
        return lesson
    from redraft._prompts import ABOUT_MARKS  # noqa: PLC0415 (few lessons have a mark)
    from redraft.memory.safety import restorer  # noqa: PLC0415 (few lessons have a mark)

    about = f"\n\n{ABOUT_MARKS}"
    # As one line, so that no text of an action adds a line to the quotation.
    restored = restorer(" ".join(action.split()))(lesson.removesuffix(about))
    return f"{restored}{about}" if MARK.search(restored) else restored


def _matching(entries: list[dict[str, Any]], command: str, text: str, sent: frozenset[str]) -> dict[str, str]:
    """The texts of the lessons that match an action, by id, without those that were `sent` already."""
    commands = commands_of(command)
    words = frozenset(word for command_words in commands for word in command_words)
    lessons: dict[str, str] = {}
    for entry in entries:
        if entry["id"] in sent:
            continue
        forms = [
            FailingForm(tuple(form["words"]), tuple(map(tuple, form["without"])))
            for form in entry["patterns"]
        ]
        if any(form.matches(commands, words) for form in forms) or _contains_names(text, entry["names"]):
            lessons[entry["id"]] = entry["text"]
            if len(lessons) == LESSONS_PER_ACTION:
                break
    return lessons


def _contains_names(text: str, names: list[str]) -> bool:
    folded = text.casefold()
    count = sum(
        re.search(rf"(?<![\w.-]){re.escape(name)}(?!\w)", folded) is not None
        for name in names
        if name in folded
    )
    return bool(names) and count >= min(FEWEST_NAMES, len(names))


def commands_of(line: str) -> list[list[str]]:
    """The words of each command in a line of shell, without leading assignments and `sudo` and the like."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = list(lexer)
    except ValueError:  # an open quotation
        words = re.split(r"([;&|()\n]+)|\s+", line)
    groups = groupby(filter(None, words), key=lambda word: not word.strip(";&|()\n"))
    commands = [list(group) for is_separator, group in groups if not is_separator]
    return [rest for words in commands if (rest := _without_start(words))]


def _without_start(words: list[str]) -> list[str]:
    start = 0
    while start < len(words) and (
        words[start] in _STARTERS or re.fullmatch(r"\w+=.*", words[start], re.DOTALL)
    ):
        start += 1
    return words[start:]


_STARTERS = frozenset({"sudo", "time", "nice", "env", "command", "exec", "nohup", "then", "do", "else", "!"})


# --- the index ----------------------------------------------------------------------------------------------


async def write_actions(sessions: Sessions, lessons: Lessons) -> None:
    """Write the lessons on actions into their file, if lessons have changed."""
    from redraft._prompts import mistake_text  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.advice import advice_on_mistake  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.index import LessonMatch  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.lesson import violation_in  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.lessons import MISTAKE_TOKENS  # noqa: PLC0415 (not needed to search)

    state = await lessons.fingerprint()
    if sessions.actions.read().get("state") == state:
        return
    active = [*await lessons.find(status="active"), *await lessons.find(status="active", archived=True)]
    entries: dict[str, dict[str, Any]] = {}
    for lesson in sorted(active, key=lambda lesson: (lesson.recency, lesson.id), reverse=True)[:MOST_LESSONS]:
        forms, names = failing_forms(lesson), names_in(lesson)
        if lesson.kind == "decision" or not (forms or names) or violation_in(lesson):
            continue
        advice = advice_on_mistake([LessonMatch(lesson, 1.0, "")], (), MISTAKE_TOKENS)
        if advice:
            entries[lesson.id] = {
                "id": lesson.id,
                "patterns": [asdict(form) for form in forms],
                "names": names,
                "text": mistake_text(advice),
            }
    sessions.write_actions({"state": state, "lessons": list(entries.values())})


def failing_forms(lesson: Lesson) -> list[FailingForm]:
    """The failing forms of commands in a lesson: commands that it quotes as code, or that were not found."""
    content = lesson.content
    wrong = [str(getattr(content, name, "")) for name in ("what_happened", "what_went_wrong")]
    right = [str(getattr(content, name, "")) for name in ("do_differently", "strategy")]
    passed = [words for text in right for code in _CODE.findall(text) for words in commands_of(code)]
    forms: dict[FailingForm, None] = {}
    if lesson.task_type == COMMAND_TYPE and lesson.task:
        words, added = _differing_words(lesson.task, passed, lesson.error)
        return [FailingForm(words, (added,) if added else (), lesson.task)] if words else []
    without = tuple(tuple(words) for words in passed)
    codes = [code for text in wrong for code in _CODE.findall(text)]
    for words in [words for code in codes for words in commands_of(code)]:
        if len(words) > 1 or _is_program(words[0]):
            fixes = tuple(fix for fix in without if set(fix) - set(words))
            forms[FailingForm(tuple(words), fixes)] = None
    for match in _NOT_FOUND.finditer("\n".join([lesson.error, *wrong])):
        name = match[1] or match[2]
        forms[FailingForm((name,), tuple(words for words in without if name not in words))] = None
    return list(forms)


def _differing_words(
    failed: str, passed: list[list[str]], error: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that made a command fail, and the words that the passing form added.

    The first are the program and the words that the error names; if it names none, the whole command.
    """
    commands = commands_of(failed)
    words = [word for command in commands for word in command]
    others, programs = {word for command in passed for word in command}, {command[0] for command in passed}
    named = set(re.findall(r"[^\s'\"`:,;()\[\]]+", error))
    added = tuple(word for command in passed for word in command if word not in words)
    for command in commands:
        # `pytest` in `python -m pytest` is not the program.
        changed = [word for word in command[1:] if word not in others]
        changed += [] if command[0] in programs else [command[0]]
        if culprits := [word for word in changed if word in named]:
            return tuple(dict.fromkeys([command[0], *culprits])), added
    # A form holds the words of a single command: of several, the first that did not pass.
    first = next((command for command in commands if command not in passed), commands[0] if commands else ())
    return tuple(first), added


def names_in(lesson: Lesson) -> list[str]:
    """The identifiers in a lesson's error and description of the failure, in lower case."""
    from redraft.lessons.advice import ErrorText  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.full_text import names_in  # noqa: PLC0415 (not needed to search)

    if lesson.task_type == COMMAND_TYPE:
        return []
    wrong = f"{lesson.error}\n{getattr(lesson.content, 'what_went_wrong', '')}"
    names = [re.sub(r"(?::\d+)+$", "", name) for name in names_in(wrong) if ErrorText(name).names]
    return list(dict.fromkeys(name.casefold() for name in names if len(name) > 2))[:MOST_NAMES]  # noqa: PLR2004 (letters)


_CODE = re.compile(r"`([^`\n]+)`")
_NOT_FOUND = re.compile(
    r"(?:command not found: |not found: )([\w.+/-]+)|([\w.+/-]+): (?:command )?not found\b"
)


def _is_program(word: str) -> bool:
    return re.fullmatch(r"[\w.+/-]{3,}", word) is not None and not word.isdecimal()


# --- commands that failed until they changed ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixedCommand:
    """A command that failed, its error, and the form that passed later."""

    failed: str
    error: str
    passed: str


@dataclass(frozen=True, slots=True)
class RunCommand:
    """A command that an agent ran, or an edit."""

    command: str | None
    """None for an edit."""
    error: str = ""
    has_failed: bool = False


LARGEST = 20_000_000
"""Bytes of a transcript that are read: the last ones."""
REACH = 8
"""Commands after a failure among which a passing form is searched."""
ALIKE = 0.5
"""Two commands that share more than this part of their words are forms of the same command."""
MOST_LINES = 8
"""Lines of an error about a command; longer ones are results, such as those of tests."""


def commands_run(transcript: str) -> list[RunCommand]:
    """The commands and edits in the transcript of a session, in order; none if it can't be read."""
    path = Path(transcript)
    try:
        if not transcript or not check_regular(path):
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LARGEST))
            lines = file.read(LARGEST).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):  # ValueError: an impossible file name
        return []
    calls: dict[str, Mapping[str, Any]] = {}
    commands: list[RunCommand] = []
    for line in lines:
        try:
            entry: Any = json.loads(line)
        except (ValueError, RecursionError):  # the last line may be half written, the first cut off
            continue
        if isinstance(entry, dict):
            commands += _commands_in_entry(cast("dict[str, Any]", entry), calls)
    return commands


def _commands_in_entry(entry: dict[str, Any], calls: dict[str, Mapping[str, Any]]) -> Iterator[RunCommand]:
    """Yield the commands and edits that a transcript's entry reports; adds new calls to `calls`, by id."""
    message, payload = entry.get("message"), entry.get("payload")
    content = _object(message).get("content", [payload])  # of Claude Code, else of Codex
    for part in map(_object, cast("list[Any]", content) if isinstance(content, list) else ()):
        match part.get("type"):
            case "tool_use":
                calls[str(part.get("id"))] = _object(part.get("input"))
            case "function_call":
                calls[str(part.get("call_id"))] = _object(part.get("arguments"))
            case "tool_result":
                arguments = calls.pop(str(part.get("tool_use_id")), {})
                has_failed = part.get("is_error") is True
                error = _EXIT.sub("", _text(part.get("content"))) if has_failed else ""
                yield from _command_of(arguments, error, has_failed=has_failed)
            case "function_call_output":
                arguments = calls.pop(str(part.get("call_id")), {})
                output = _text(part.get("output"))
                code = _CODEX_EXIT.search(output)
                if code is not None:
                    has_failed = code[1] != "0"
                    error = output.partition("Output:\n")[2] if has_failed else ""
                    yield from _command_of(arguments, error, has_failed=has_failed)
            case _:
                pass


_EXIT = re.compile(r"\A(?:Error: )?Exit code \d+\s*")
_CODEX_EXIT = re.compile(r"(?:Process exited with|Exit) code:? (\d+)")


def _command_of(arguments: Mapping[str, Any], error: str, *, has_failed: bool) -> Iterator[RunCommand]:
    command = arguments.get("command", arguments.get("cmd"))
    if isinstance(command, list):  # of older versions of Codex: ["bash", "-lc", "..."]
        words = [str(word) for word in cast("list[Any]", command)]
        command = words[2] if words[1:2] in (["-lc"], ["-c"]) and len(words) > 2 else shlex.join(words)  # noqa: PLR2004 (the third)
    if isinstance(command, str) and not command.startswith("apply_patch"):
        yield RunCommand(command.strip(), error.strip(), has_failed)
    elif command is not None or any(word in arguments for word in _EDITED):
        yield RunCommand(None)


def fixed_commands(commands: list[RunCommand]) -> list[FixedCommand]:
    """The commands that failed and soon passed in another form, without an edit in between.

    Failures without an error text, such as a search without matches, teach nothing, nor do commands that
    passed unchanged later.
    """
    fixed: dict[str, FixedCommand] = {}
    for number, run in enumerate(commands):
        is_about_command = run.has_failed and 0 < len(run.error.splitlines()) <= MOST_LINES
        if not is_about_command or not _is_short(run.command):
            continue
        failed = run.command or ""
        for later in commands[number + 1 : number + 1 + REACH]:
            if later.command is None or (later.command == failed and not later.has_failed):
                break
            if not later.has_failed and _is_short(later.command) and _is_alike(failed, later.command):
                fixed[failed] = FixedCommand(failed, run.error[:LONGEST_ERROR], later.command)
                break
    passed = {run.command for run in commands if not run.has_failed}
    return [command for command in fixed.values() if command.failed not in passed]


def refuted_lessons(sessions: Sessions, commands: list[RunCommand]) -> list[str]:
    """Ids of the lessons on failing commands that passed unchanged."""
    passed = {run.command for run in commands if run.command and not run.has_failed}
    return [
        entry["id"]
        for entry in sessions.actions.read().get("lessons", [])
        if any(form["command"] in passed for form in entry["patterns"])
    ]


def _is_short(command: str | None) -> bool:
    return bool(command) and len(command or "") <= LONGEST_COMMAND and not re.search(r"[`\n]", command or "")


def _is_alike(failed: str, other: str) -> bool:
    """Whether two commands are forms of the same command: they share most parts of their words."""
    parts, others = (set(re.findall(r"\w+", line)) for line in (failed, other))
    return failed != other and len(parts & others) > ALIKE * min(len(parts), len(others))


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    return "\n".join(
        str(cast("dict[str, Any]", part).get("text", "")) for part in parts if isinstance(part, dict)
    )


async def learn_command(lessons: Lessons, command: FixedCommand) -> Lesson | None:
    """Store the lesson of a command; None if lessons may not contain it."""
    from redraft.errors import ConfigError  # noqa: PLC0415 (not needed to search)
    from redraft.lessons.lesson import Failure  # noqa: PLC0415 (not needed to search)
    from redraft.memory.safety import WITHHELD, Cleaner  # noqa: PLC0415 (not needed to search)
    from redraft.redact.log import logger  # noqa: PLC0415 (not needed to search)
    from redraft.types import PlainTask, in_one_line  # noqa: PLC0415 (not needed to search)

    cleaner = Cleaner.of(command.failed, command.passed, command.error)
    failed, passed = cleaner.redact(command.failed), cleaner.redact(command.passed)
    # Line by line, so that a text that lessons may not contain removes only its own line.
    error = in_one_line(cleaner.clean(command.error)).replace("`", "'")
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
