"""The originals of `docs/migration.md` that need a library of their own."""

import pytest

from support.migration import CASES, play_original
from support.pages import ROOT

ENDS = {
    "with_instructor": {"raised": "InstructorRetryException"},
    "with_refine": {"slogan": CASES["never"][0][0]},
}
"""How an original ends if no slogan is short enough."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("name", "environment"), [("with_instructor", "instructor"), ("with_refine", "dspy")]
)
def test_the_original_of_another_library_runs(name, environment, case, tmp_path):
    replies, short = CASES[case]
    python = ROOT / "build" / "frameworks" / environment / "bin" / "python"
    wanted = {"slogan": short} if short else ENDS[name]
    assert play_original(name, python, tmp_path, replies) == wanted | {"calls": len(replies)}
