"""Recorded trials of an airline agent, as outcomes to be reflected on, with where each went wrong."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.lessons.outcome import Outcome
from redraft.types import Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    task = Task(row["instruction"], task_type="airline")
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
