"""The command line."""

from __future__ import annotations

from redraft.cli.app import main as main
