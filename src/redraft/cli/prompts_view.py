"""The prompts and replies of a run as a person reads them: every character of them, none that acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from redraft.cli.show import BAD, GOOD, QUIET
from redraft.core.summary import render_usage
from redraft.loop.exchange import exchange
from redraft.loop.timeline import timeline
from redraft.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.loop.exchange import Exchange
    from redraft.loop.kept_run import KeptRun
    from redraft.loop.timeline import Stretch


def prompts_view(run: KeptRun) -> RenderableType:
    """Render what was said in each call, in its order."""
    parts: list[RenderableType] = []
    for stretch in timeline(run):
        for step in stretch.inner:
            parts += _exchange(stretch, exchange(step))
    if not parts:
        parts = ["", Text("No model was asked in this run, or what was said is not kept.", QUIET)]
    return Group(*parts)


def _exchange(stretch: Stretch, said: Exchange) -> list[RenderableType]:
    version = "" if stretch.version is None else f"version {stretch.version}, "
    used = "" if said.usage is None else f", {render_usage(said.usage)}"
    head = Text(f"{version}{stretch.step.name}: {said.name}, {said.seconds:.1f} s{used}", "bold")
    parts: list[RenderableType] = ["", head]
    for turn in said.asked:
        parts += [Text(f"--- {turn.role}", QUIET), Text(visible(turn.text))]
    for turn in said.answered:
        role = "reply" if turn.role == "assistant" else turn.role
        parts += [Text(f"=== {role}", BAD if turn.role == "error" else GOOD), Text(visible(turn.text))]
    return parts
