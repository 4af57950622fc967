"""Runs on display: a result as HTML, and a run while it goes on, in a notebook or a terminal."""

from __future__ import annotations

import os
import sys
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._texts import as_text
from redraft.events import TokenEvent, VersionEvaluated
from redraft.redact.kinds import Category
from redraft.redact.known import secrets_of
from redraft.redact.redactor import Redactor, terms_of_project
from redraft.text.characters import visible
from redraft.text.diff import word_diff
from redraft.types import REASONS, render_score, render_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.stream import RunStream
    from redraft.types import ReflectionResult, ReflectionVersion

OutputT = TypeVar("OutputT")

MOST_CHARACTERS = 20_000
"""Of an output that are shown in a notebook."""
MOST_ISSUES = 5
LONGEST_TAIL = 1_000
"""The last characters of what a model is writing that are shown."""


async def watch(stream: RunStream[OutputT]) -> ReflectionResult[OutputT]:
    """Show a run of `agent.stream` while it goes on, and return its result.

    In a notebook, a table of the versions grows, with what the model is writing below. In a terminal, each
    version is a line on stderr, below a status line; into a file go the lines alone. Raises what the run
    raises.
    """
    notebook = _notebook_display()
    if notebook is None:
        await _watch_in_terminal(stream)
    else:
        await _watch_in_notebook(stream, notebook)
    return stream.result


async def _watch_in_terminal(stream: RunStream[Any]) -> None:
    from redraft.loop.cli import Progress  # noqa: PLC0415 (a notebook needs no terminal)
    from redraft.terminal.console import CalmConsole  # noqa: PLC0415 (likewise)

    progress = Progress(CalmConsole(stderr=True))
    with progress:
        async for event in stream:
            if isinstance(event, TokenEvent):
                progress.on_token(event)
            else:
                progress(event)


async def _watch_in_notebook(stream: RunStream[Any], notebook: Any) -> None:
    handle = notebook.display(notebook.HTML(""), display_id=True)
    versions: list[ReflectionVersion] = []
    written, key = "", (0, 0)
    async for event in stream:
        if isinstance(event, TokenEvent):
            written = written if key == (event.version, event.attempt) else ""
            key = (event.version, event.attempt)
            written = (written + event.text)[-LONGEST_TAIL:]
        elif isinstance(event, VersionEvaluated):
            versions.append(event.version)
            written = ""
        else:
            continue
        handle.update(notebook.HTML(_table(_withheld(versions), None) + _written(_withheld(written))))
    handle.update(notebook.HTML(result_html(stream.result)))


def _notebook_display() -> Any:
    """Return IPython's module of displays if this is the kernel of a notebook, else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else sys.modules.get("IPython.display")


def result_html(result: ReflectionResult) -> str:
    """Return a result as HTML: its versions, why it stopped, what it cost, the output, and what changed.

    Everything is escaped, and secrets and personal data are withheld, since notebooks are passed on.
    """
    history = result.history
    best = history.best_version
    reason = result.convergence_reason.value
    lines = [
        f"Stopped: {REASONS[reason]} ({reason}).",
        f"Returned: version {best.iteration}, {'satisfactory' if result.success else 'not satisfactory'}.",
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s.",
        *(f"Note ({name}): {text}" for name, text in result.diagnostics.items()),
    ]
    if result.error is not None and not result.convergence_reason.is_budget:
        lines.append(f"Error: {type(result.error).__name__}: {result.error}")
    first, output = (_shown(one.output) for one in (history.versions[0], best))
    parts = [
        _table(_withheld(list(history.versions)), best.iteration),
        f"<p>{'<br>'.join(_text(_withheld(line)) for line in lines)}</p>",
        _details("Output", _text(output), is_open=True),
    ]
    if first != output:
        parts.append(_details(f"Changes from version 1 to {best.iteration}", _diff(first, output)))
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'


def _table(versions: Sequence[ReflectionVersion], best: int | None) -> str:
    rows = "".join(_row(version, is_best=version.iteration == best) for version in versions)
    head = "".join(
        f'<th style="text-align: left">{name}</th>' for name in ("Version", "Score", "How", "Issues")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(version: ReflectionVersion, *, is_best: bool) -> str:
    evaluation = version.evaluation
    issues = [_text(str(issue)) for issue in evaluation.issues[:MOST_ISSUES]]
    if more := len(evaluation.issues) - len(issues):
        issues.append(f"and {more} more")
    if version.repeats is not None:
        issues = [f"the same as version {version.repeats}"]
    found = "<br>".join(issues) or ("all criteria met" if evaluation.satisfactory else "")
    name = f"{version.name} (best)" if is_best else version.name
    cells = (name, render_score(evaluation.overall_score).strip(), _text(version.strategy.replace("_", " ")))
    plain = "".join(f"<td{_CELL}>{cell}</td>" for cell in cells)
    return f"<tr>{plain}<td{_CELL}>{found}</td></tr>"


_CELL = ' style="text-align: left; vertical-align: top"'
_PRE = ' style="white-space: pre-wrap; overflow-wrap: anywhere"'


def _details(title: str, html: str, *, is_open: bool = False) -> str:
    state = " open" if is_open else ""
    return f"<details{state}><summary>{title}</summary><pre{_PRE}>{html}</pre></details>"


def _diff(old: str, new: str) -> str:
    tags = {"-": "del", "+": "ins"}
    pieces = ((tags.get(op, ""), _text(text)) for op, text in word_diff(old, new))
    return "".join(f"<{tag}>{text}</{tag}>" if tag else text for tag, text in pieces)


def _written(text: str) -> str:
    return f"<pre{_PRE}>{_text(text)}</pre>" if text else ""


def _shown(output: Any) -> str:
    """Return an output as a text to show: without secrets, and cut to size."""
    text = _withheld(as_text(output))
    more = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}\n... and {more:,} characters more" if more > 0 else text


def _withheld(value: Any) -> Any:
    redactor = Redactor(secrets_of(os.environ), also=(Category.PERSONAL,), allow=terms_of_project())
    return redactor.redact_object(value)


def _text(text: str) -> str:
    return escape(visible(text))
