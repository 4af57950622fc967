"""Record what the offline model replies to the tasks of `redraft demo`, for those who don't have it.

.venv/bin/python demo/record.py

It takes a few minutes, and is due whenever a prompt or a task of the demo changes: a test says so.
"""

import asyncio

from redraft import demo
from redraft.loop.cli import Progress, Runner
from redraft.models.local import LocalModel
from redraft.models.testing import Cassette
from redraft.terminal.console import CalmConsole
from redraft.terminal.options import DEMO_MODEL


def main() -> None:
    """Do all tasks anew, without a limit of time, and replace the recording."""
    demo.RECORDING.unlink(missing_ok=True)
    model = demo.bounded(Cassette(demo.RECORDING, record=LocalModel(DEMO_MODEL.removeprefix("local:"))))
    stderr = CalmConsole(stderr=True)
    runner = Runner("demo", DEMO_MODEL, keep=False)
    for task in demo.TASKS:
        progress = Progress(stderr, task.name)
        runner.revise(task.task, model, demo.pattern_of(task, on_event=progress), progress)
    noted: list[demo.Noted] = []
    with Progress(stderr, "notes") as progress:
        asyncio.run(demo.with_and_without_notes(model, progress, noted, keep=False))
    demo.RECORDING.chmod(0o644)  # everyone who installs the package reads it
    print(f"{demo.RECORDING}: {len(demo.RECORDING.read_text('utf-8').splitlines())} replies")


if __name__ == "__main__":
    main()
