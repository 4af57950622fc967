"""Lessons on real failures: whether they name the failing step.

Failed trials of an airline agent become lessons of five fields: written from the transcript, by Redraft
without a model, and by a model if one is named.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from _measure import PROJECT, options, publish, table
from _model import model_given, model_options

from redraft.lessons.folder import LessonFolder
from redraft.lessons.lesson import Failure, Lesson
from redraft.lessons.outcome import Outcome
from redraft.lessons.writer import write_reflection
from redraft.models.testing import ScriptedModel
from redraft.types import PlainTask

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from redraft.protocols import ChatModel, ChatRequest


FILE = "tau_airline.jsonl.gz"
_SHOWN = 600
"""Characters of an entry, as Redraft shows those of its own runs."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial that failed; `step` and `tool` are those of the first error on record, if there is one."""

    name: str
    outcome: Outcome
    step: int = 0
    tool: str = ""


def failed_trials(data: Path) -> list[Trial]:
    """Return the trials that failed, in the order of the file."""
    with gzip.open(data / FILE, "rt") as file:
        rows = map(json.loads, file)
        return [_trial(row) for row in rows if row["kind"] == "trajectory" and not row["reward"]]


def _trial(row: dict[str, Any]) -> Trial:
    entries = list(_entries(row["messages"]))
    first = next((number for number, one in enumerate(entries, 1) if one[1]), 0)
    tool = entries[first - 1][1] if first else ""
    transcript = "\n".join(f"{number}. {text}" for number, (text, _) in enumerate(entries, 1))
    name = f"airline-{row['task_id']}-{row['trial']}"
    task = PlainTask(row["instruction"], task_type="airline")
    tools = tuple(sorted({call["name"] for one in row["messages"] for call in one.get("tool_calls", ())}))
    last = next((one["content"] for one in reversed(row["messages"]) if one.get("content")), "")
    outcome = Outcome(
        task,
        "failed",
        output=last,
        error="What was booked in the end is not what was asked for.",
        transcript=transcript,
        tools=tools,
        run_id=name,
    )
    return Trial(name, outcome, first, tool)


def _entries(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Tell each message as an entry, with the name of the tool that failed there, if one did."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            yield f"called {call['name']} with {_short(call['arguments'])}", ""
        if message["role"] == "tool":
            failed = message["name"] if message.get("error") else ""
            how = "failed" if failed else "answered"
            yield f"{message['name']} {how}: {_short(message.get('content', ''))}", failed
        elif message.get("content"):
            yield f"{message['role']} said: {_short(message.get('content', ''))}", ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} ..."


DAY = date(2026, 3, 1)
TRIALS = 20
_FAILED = re.compile(r"^(\d+)\. (\w+) failed: (.*)$", re.MULTILINE)
_CALLED = re.compile(r"^(\d+)\. called (\w+) with (.*)$", re.MULTILINE)


def by_the_record(request: ChatRequest) -> dict[str, object]:
    """Answer as a writer would who goes by the transcript alone: the first error is what went wrong."""
    shown = request.messages[0].content
    failed, calls = _FAILED.search(shown), _CALLED.findall(shown)
    if failed:
        step, tool, error = failed.groups()
        wrong, rule = (
            f"Step {step}: {tool} failed with {error}",
            f"IF {tool} fails THEN read what it says first",
        )
    else:
        step, tool, _ = calls[-1] if calls else ("1", "no tool", "")
        wrong, rule = (
            f"Step {step}: the last call was of {tool}",
            "Look at what was asked before the last call.",
        )
    return {
        "what_happened": "A customer was to be served; what was booked is not what was asked for.",
        "what_went_wrong": wrong[:1_500],
        "why": "The arguments of the call did not fit the policy or the data.",
        "do_differently": f"Check the arguments of {tool} against the record before calling it.",
        "rule": rule,
        "systemic": False,
        "principle": "",
        "strategy_to_replay": "",
        "steps_to_replay": [],
    }


async def files_of(trials: list[Trial], model: ChatModel | None) -> tuple[int, int]:
    """File a lesson of each trial; return how many name where the first error was, and how many there are.

    Without a model, what is written is what Redraft knows by itself.
    """
    named = 0
    with TemporaryDirectory() as place:
        folder = LessonFolder(Path(place), "airline-agent")
        for trial in trials:
            written = await write_reflection(trial.outcome, model or ScriptedModel([]))
            lesson = Lesson(written.content, "airline-agent", DAY, trial.name, trial.outcome.task.description)
            content = folder.read(folder.add(lesson).id).content
            if isinstance(content, Failure):
                named += names(content.what_went_wrong, trial)
        return named, len(list(folder.entries()))


def names(text: str, trial: Trial) -> bool:
    """Say whether a text names the step and the tool of a trial's first error."""
    steps = {int(number) for number in re.findall(r"\b(?:step\s*#?|was )(\d+)\b", text, re.IGNORECASE)}
    return trial.tool in text and trial.step in steps


async def trials_table(data: Path, model: ChatModel | None, limit: int | None) -> str:
    """Render how many lessons name the failing step, by who wrote them."""
    trials = failed_trials(data)
    with_error = [trial for trial in trials if trial.step]
    rows: list[tuple[object, ...]] = []
    for writer, who in (("by the record", ScriptedModel(by_the_record)), ("without a model", None)):
        named, _ = await files_of(with_error, who)
        _, files = await files_of(trials, who)
        rows.append((writer, f"{files} of {len(trials)}", _share(named, len(with_error))))
    if model is not None:
        some = with_error[:limit]
        named, files = await files_of(some, model)
        rows.append(("by the model", f"{files} of {len(some)}", _share(named, len(some))))
    head = ("written", "five-field files of failed trials", "name the failing step, where there is an error")
    return table(head, rows)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "none"


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=PROJECT.parent / "shared" / "data", help=f"of {FILE}")
    parser.add_argument("--limit", type=int, default=TRIALS, help="trials for a model")
    model_options(parser)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    model = model_given(given) if given.model or given.cassette else None
    if not (given.data / FILE).is_file():
        print(f"SKIPPED: there is no {given.data / FILE}; name its folder with --data.")
        return
    table_of_trials = asyncio.run(trials_table(given.data, model, given.limit))
    publish("lessons_real", table_of_trials, write=given.write)


if __name__ == "__main__":
    main()
