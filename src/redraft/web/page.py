"""The page of a run: one HTML file that needs nothing but a browser, and asks nothing of anybody."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from redraft.core.summary import render_usage
from redraft.loop.compared import unasked
from redraft.web.run_view import run_view
from redraft.web.shown import shown

if TYPE_CHECKING:
    from redraft.loop.kept_run import KeptRun


def run_page(run: KeptRun) -> str:
    """Return the page of a run: all of it in one file, without scripts, with all that is its own inert.

    Its content security policy lets a browser apply the one style sheet inside it and load nothing at all.
    """
    pages = _pages()
    style = pages.get_template("style.css").render()
    policy = (
        f"default-src 'none'; style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return pages.get_template("run.html").render(
        view=run_view(run),
        unasked=unasked,
        style=Markup(style),  # noqa: S704 (a file of ours, with nothing of the run in it)
        policy=policy,
        program=f"Redraft {version('redraft')}",
    )


@cache
def _pages() -> Environment:
    pages = Environment(
        loader=PackageLoader("redraft.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters["used"] = render_usage
    return pages
