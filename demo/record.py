"""Record the replies of the offline model in the acts of `redraft demo`, for machines without the model.

.venv/bin/python demo/record.py

Takes about a minute. Run it after a change to a prompt or to a task of the demo; a test fails until then.
"""

import sys

from redraft.demo import cli as demo
from redraft.loop.cli import Runner
from redraft.models.local import LocalModel
from redraft.models.testing import Cassette
from redraft.terminal.console import CalmConsole
from redraft.terminal.options import DEMO_MODEL


def recorder(path: str) -> Cassette:
    """The offline model, recorded to a file."""
    return Cassette(path, record=LocalModel(DEMO_MODEL.removeprefix("local:")))


def main() -> None:
    """Play all acts, without a limit of time, and replace the recording."""
    demo.RECORDING.unlink(missing_ok=True)
    source, stderr = str(demo.RECORDING), CalmConsole(stderr=True)
    demo.CHILD = f"import runpy; runpy.run_path({__file__!r}, run_name='child')"
    runner = Runner("demo", DEMO_MODEL, keep=False)
    stage = demo.Stage(demo.Metered(recorder(source)), source, runner, stderr, is_recording=True)
    for act in demo.acts(stage, runs_code=True):
        stderr.show(demo.act_report(act))
    demo.RECORDING.chmod(0o644)  # everyone who installs the package reads it
    print(f"{source}: {len(demo.RECORDING.read_text('utf-8').splitlines())} replies")


if __name__ == "child":  # the process that act 5 kills
    demo.open_model = recorder
    demo.run_until_killed(*sys.argv[1:])

if __name__ == "__main__":
    main()
