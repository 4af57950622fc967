"""Display of runs: a run under way as lines of text, and its result as HTML for notebooks."""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._texts import as_text
from redraft._validation import named_error
from redraft.events import VersionEvaluated
from redraft.redact.redactor import withheld
from redraft.text.characters import visible
from redraft.text.diff import word_diff
from redraft.types import REASONS, render_score, render_usage, unasked_text, verdict, version_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.stream import RunStream
    from redraft.types import ReflectionResult, ReflectionVersion

OutputT = TypeVar("OutputT")

MOST_CHARACTERS = 20_000
"""The most characters of an output in a notebook."""
MOST_ISSUES = 5


async def watch(stream: RunStream[OutputT]) -> ReflectionResult[OutputT]:
    """Print a line on stderr for each version of a run of `agent.stream`; returns the result.

    Secrets and personal data are withheld. Raises what the run raises.
    """
    async for event in stream:
        if isinstance(event, VersionEvaluated):
            sys.stderr.write(f"{visible(withheld(version_line(event.version))).strip()}\n")
    return stream.result


def result_html(result: ReflectionResult) -> str:
    """A result as HTML: its versions, why it stopped, what it cost, the output, and what changed.

    Everything is escaped, and secrets and personal data are withheld, since notebooks are shared.
    """
    history = result.history
    best = history.best_version
    reason = result.convergence_reason.value
    lines = [
        f"Stopped: {REASONS[reason]} ({reason}).",
        f"Returned: version {best.iteration}, {verdict(result)}.",
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s.",
        *(f"Note ({name}): {text}" for name, text in result.diagnostics.items()),
    ]
    if result.error is not None and not result.convergence_reason.is_budget:
        lines.append(f"Error: {named_error(result.error)}")
    first, output = (_output_text(version.output) for version in (history.versions[0], best))
    parts = [
        _table(withheld(list(history.versions)), best.iteration),
        f"<p>{'<br>'.join(_text(withheld(line)) for line in lines)}</p>",
        _details("Output", _text(output), is_open=True),
    ]
    if first != output:
        parts.append(_details(f"Changes from version 1 to {best.iteration}", _diff(first, output)))
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'


def _table(versions: Sequence[ReflectionVersion], best: int) -> str:
    rows = "".join(_row(version, is_best=version.iteration == best) for version in versions)
    head = "".join(
        f'<th style="text-align: left">{name}</th>' for name in ("Version", "Score", "How", "Issues")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(version: ReflectionVersion, *, is_best: bool) -> str:
    evaluation = version.evaluation
    failing = evaluation.failing
    issues = [_text(str(issue)) for issue in failing[:MOST_ISSUES]]
    if more := len(failing) - len(issues):
        issues.append(f"and {more} more")
    if evaluation.unasked:
        issues.append(_text(unasked_text(evaluation)))
    if version.repeats is not None:
        issues = [f"the same as version {version.repeats}"]
    last_cell = "<br>".join(issues) or ("all criteria met" if evaluation.satisfactory else "")
    name = f"{version.name} (best)" if is_best else version.name
    cells = (name, render_score(evaluation.overall_score).strip(), _text(version.strategy.replace("_", " ")))
    plain = "".join(f"<td{_CELL}>{cell}</td>" for cell in cells)
    return f"<tr>{plain}<td{_CELL}>{last_cell}</td></tr>"


_CELL = ' style="text-align: left; vertical-align: top; white-space: pre-wrap"'
_PRE = ' style="white-space: pre-wrap; overflow-wrap: anywhere"'


def _details(title: str, html: str, *, is_open: bool = False) -> str:
    state = " open" if is_open else ""
    return f"<details{state}><summary>{title}</summary><pre{_PRE}>{html}</pre></details>"


def _diff(old: str, new: str) -> str:
    tags = {"-": "del", "+": "ins"}
    pieces = ((tags.get(op, ""), _text(text)) for op, text in word_diff(old, new))
    return "".join(f"<{tag}>{text}</{tag}>" if tag else text for tag, text in pieces)


def _output_text(output: Any) -> str:
    """An output as a text without secrets, cut to size."""
    text = withheld(as_text(output))
    more = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}\n... and {more:,} characters more" if more > 0 else text


def _text(text: str) -> str:
    return escape(visible(text))
