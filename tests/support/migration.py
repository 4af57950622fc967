"""The loops of docs/migration.md: what each is asked, answers and returns."""

import json
import os
import subprocess

from support.pages import ROOT, Page

PAGE = Page("docs/migration.md")
FILES = PAGE.files("python")
LONG, LONGER = (
    "A lamp that shines all night long for every camper.",
    "A lamp that shines all night for all of you.",
)
SHORT = "Light for every camper."
CASES = {
    "at once": ([SHORT], SHORT),
    "after a retry": ([LONG, SHORT], SHORT),
    "never": ([LONG, LONGER, LONG], None),
}
"""The replies of the model, and the slogan that is short enough."""


def play_original(name, python, folder, replies):
    """Run a loop of another library in its environment; return what it printed."""
    (folder / f"{name}.py").write_text(FILES[f"{name}.py"], "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "HOME": str(folder),
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or DSPy waits for a download
    }
    script = ROOT / "tests" / "frameworks" / "originals.py"
    done = subprocess.run(
        [python, script, name, *replies],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
