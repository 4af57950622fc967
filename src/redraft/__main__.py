"""`python -m redraft` is the command `redraft`."""

from __future__ import annotations

from redraft.main import main

main()
