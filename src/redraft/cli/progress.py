"""Progress: how runs are going, told on stderr."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from redraft.cli.show import version_row
from redraft.cli.withheld import withheld
from redraft.core.events import RunFinished, StepFailed, StepFinished, StepStarted, VersionEvaluated
from redraft.text.visible import visible

if TYPE_CHECKING:
    from types import TracebackType

    from redraft.cli.console import CalmConsole
    from redraft.core.events import Event
    from redraft.core.result import ReflectionResult

DOING = {"generate": "drafting", "evaluate": "judging", "revise": "revising"}


class Progress:
    """Tell how a run is going: a line that moves while it lasts, and a row for each version that is judged.

    An event listener and a context manager around one run. Where stderr is no terminal, nothing moves.
    `label` says which run this is, and `rows=False` leaves the rows away. `result` is what the run came to,
    also when it was interrupted.
    """

    def __init__(self, console: CalmConsole, label: str = "", *, rows: bool = True) -> None:
        self.result: ReflectionResult | None = None
        self._console = console
        self._label = label
        self._rows = rows
        self._doing = "loading"
        self._version = 1
        self._since = monotonic()
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            get_renderable=self._line,
            console=console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def turn_to(self, label: str) -> None:
        """Tell of another run from now on, which may turn out to have no versions at all."""
        self._label, self._version = label, 0
        self._begin("running")

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        match event:
            case StepStarted(name=name):
                self._version = max(1, self._version)
                self._begin(DOING.get(name, name))
            case StepFailed(error=error, retry_in=float(wait)):
                self._begin("waiting")
                said = visible(withheld(str(error)))
                self._console.print(f"{said} Trying again in {wait:.1f} s.", style="yellow")
            case StepFinished():
                self._begin("deciding")
            case VersionEvaluated(version=version):
                self._version = version.iteration + 1
                if self._rows:
                    self._console.show(version_row(version, label=self._label))
            case RunFinished(result=result):
                self.result = result
            case _:
                pass

    def _begin(self, doing: str) -> None:
        self._doing, self._since = doing, monotonic()

    def _line(self) -> Spinner:
        seconds = monotonic() - self._since
        version = f"version {self._version}" if self._version else ""
        parts = (self._label.rstrip(), version, self._doing, f"{seconds:.1f} s")
        self._spinner.update(text=Text(" · ".join(part for part in parts if part)))
        return self._spinner
