"""WorkflowProgress: how a workflow is going, node by node, told on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.text import Text

from redraft.cli.progress import Progress
from redraft.cli.show import BAD, GOOD, QUIET
from redraft.cli.warned import Warnings
from redraft.core.texts import shortened
from redraft.text.visible import visible
from redraft.workflow.events import NodeFinished, NodeStarted, WorkflowFinished
from redraft.workflow.node_outcome import NodeOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from redraft.cli.console import CalmConsole
    from redraft.workflow.events import WorkflowEvent

LONGEST_LABEL = 24


class WorkflowProgress:
    """Tell how a workflow is going: a row for each attempt of a loop, and for each node that ends.

    An event listener and a context manager around one workflow, which also shows the warnings that are
    logged meanwhile. `run_id` is that of the workflow where it is kept, `last` what a node gave last.
    """

    def __init__(self, console: CalmConsole, nodes: Sequence[str]) -> None:
        self.run_id = ""
        self.last: Any = None
        self._console = console
        self._width = min(LONGEST_LABEL, max(len(visible(node)) for node in nodes))
        self._inside = Progress(console)
        self._warnings = Warnings(console)

    def __enter__(self) -> Self:
        self._inside.__enter__()
        self._warnings.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(kind, error, trace)
        self._inside.__exit__(kind, error, trace)

    def __call__(self, event: WorkflowEvent) -> None:
        """Hear of an event of the workflow, or of a loop in it."""
        match event:
            case NodeStarted():
                self.run_id = event.run_id
                self._inside.turn_to(self._label(event.node))
            case NodeFinished():
                self._ended(event)
            case WorkflowFinished():
                pass
            case _:
                self._inside(event)

    def _ended(self, event: NodeFinished) -> None:
        if event.skipped:
            said = Text("skipped", QUIET)
        elif event.error:  # which is logged, too, and so is shown already
            said = Text("failed", BAD)
        else:
            said = node_outcome(event.result)
            self.last = event.result
        self._console.show(Text.assemble(self._label(event.node), "  ", said))

    def _label(self, node: str) -> str:
        shown = shortened(visible(node), self._width)
        return f"{shown:<{self._width}}"


def node_outcome(result: Any) -> Text:
    """Say how a node ended: of a loop or a judgement, what it came to."""
    outcome = NodeOutcome.of(result)
    style = "" if outcome.valid is None else GOOD if outcome.valid else BAD
    return Text.assemble((outcome.verdict, style), f" {outcome.detail}".rstrip())
