"""Record the replies of the offline model to the tasks of `redraft demo`, for machines without the model.

.venv/bin/python demo/record.py

Takes about a minute. Run it after a change to a prompt or to a task of the demo; a test fails until then.
"""

from redraft import demo
from redraft.loop.cli import Progress, Runner
from redraft.models.local import LocalModel
from redraft.models.testing import Cassette
from redraft.terminal.console import CalmConsole
from redraft.terminal.options import DEMO_MODEL


def main() -> None:
    """Run all tasks, without a limit of time, and replace the recording."""
    demo.RECORDING.unlink(missing_ok=True)
    local = LocalModel(DEMO_MODEL.removeprefix("local:"), threads=1)
    model = demo.bounded(Cassette(demo.RECORDING, record=local))
    stderr = CalmConsole(stderr=True)
    runner = Runner("demo", DEMO_MODEL, keep=False)
    for task in demo.TASKS:
        progress = Progress(stderr, task.title)
        runner.revise(task.task, model, demo.pattern_of(task, on_event=progress), progress)
    demo.RECORDING.chmod(0o644)  # everyone who installs the package reads it
    print(f"{demo.RECORDING}: {len(demo.RECORDING.read_text('utf-8').splitlines())} replies")


if __name__ == "__main__":
    main()
