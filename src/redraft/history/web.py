"""The dashboard's pages of runs: the list of them, each one, comparisons, and what all spent."""

from __future__ import annotations

from redraft.history.pages import compare, diff, run, runs, spend
from redraft.web.page import Slice

SLICE = Slice((runs.PAGE, run.PAGE, diff.PAGE, compare.PAGE, spend.PAGE), texts=(run.OUTPUT,))
