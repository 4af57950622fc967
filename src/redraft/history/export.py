"""The page of a run in one HTML file that needs nothing but a browser, and asks nothing of anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from redraft.history.run_view import run_view
from redraft.loop.record import Process
from redraft.redact.data import redact_object
from redraft.web.rendering import clipped, policy_hash, render, static_text

if TYPE_CHECKING:
    from redraft.loop.runs import KeptRun


def run_page(run: KeptRun) -> str:
    """Return the page of a run: all of it in one file, without scripts, with all that is its own inert.

    Its content security policy lets a browser apply the one style sheet inside it and load nothing at all.
    """
    style = static_text("redraft.css")
    policy = f"default-src 'none'; style-src {policy_hash(style)}; base-uri 'none'; form-action 'none'"
    return render(
        "history/templates/run.html",
        page=run_view(redact_object(run, clipped, (Process,))),
        site=None,
        style=Markup(style),  # noqa: S704 (a file of ours, with nothing of the run in it)
        policy=policy,
    )
