"""Run an example of `examples/frameworks` in the environment of its framework."""

import json
import os
import subprocess

from support.pages import ROOT

FOLDER = ROOT / "examples" / "frameworks"
FAKES = ROOT / "tests" / "frameworks" / "fakes.py"
DONE = {
    "outputs": ["Some.", "Few.", "There are 7."],
    "looked_up": ["tea"],  # once: the revisions know it from the conversation
    "heard": [1, 2, 2],  # both revisions continue the conversation of the first version, which was better
    "tokens": [40, 12],
    "requests": 4,
    "cost": None,
    "remembered": 3,
}
"""What `play` returns, if an example leaves nothing out."""
DIED = 9


def play(recipe, python, folder, **variables):
    """Run an example with its fake, in `folder`; return what it did, None if it died."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "REDRAFT_HOME": str(folder / "home"),
        **variables,
        "HOME": str(folder),  # where frameworks keep what they remember
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or DSPy waits for a download
    }
    done = subprocess.run(
        [python, FAKES, recipe], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode == DIED:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
