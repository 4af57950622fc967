"""The dashboard's pages on runs: the list, a run, diffs and spend."""

from __future__ import annotations

from redraft.history import changes, run_page, runs_page, spend
from redraft.web.page import Slice

SLICE = Slice((runs_page.PAGE, run_page.PAGE, changes.PAGE, spend.PAGE), texts=(run_page.OUTPUT,))
