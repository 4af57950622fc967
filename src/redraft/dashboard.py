"""The dashboard, `redraft ui`: the pages of every feature, mounted on one guarded app."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.settings import load_settings
from redraft.stores.location import project_store
from redraft.terminal import options
from redraft.terminal.commands import at_database, command_group, handles_errors
from redraft.terminal.console import CalmConsole, deliver, emit, emit_json
from redraft.terminal.tables import PlainTable
from redraft.text.characters import visible
from redraft.web.people import People, people_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.applications import Starlette

    from redraft.web.page import Slice
    from redraft.web.project import Project

FEATURES = ("history", "workflow", "notes", "lessons", "cycles", "fleet", "evals")
"""The features with pages; each has a module `web` with a `SLICE`."""
NAVIGATION = {
    "Runs": "/runs",
    "Tasks": "/tasks",
    "Lessons": "/lessons",
    "Agents": "/agents",
    "Fleet": "/fleet",
    "Evaluations": "/evaluations",
    "Spend": "/spend",
}


token = command_group(
    help="Manage approver tokens, which prove who made a decision. Only their hashes are stored."
)
PersonName = Annotated[str, typer.Argument(metavar="NAME", help="The person's name.", show_default=False)]


@token.command()
@handles_errors
async def add(name: PersonName, as_json: options.Json = False) -> None:
    """Give a person a token, and print it once. They set it as REDRAFT_TOKEN."""
    async with _people() as people:
        secret = await people.add(name)
    if as_json:
        emit_json({"name": name, "token": secret})
        return
    CalmConsole(stderr=True).say(f"The token of {visible(name)}. It is shown only now; keep it secret:")
    emit(secret)


@token.command("list")
@handles_errors
async def list_(as_json: options.Json = False) -> None:
    """List who has a token."""
    async with _people() as people:
        owners = await people.all()
    rows = [{"name": owner.name, "token": owner.token_id, "since": owner.since} for owner in owners]
    if rows or as_json:
        deliver(PlainTable(rows, wrap=("name",)), {"people": rows}, as_json=as_json)
    else:
        CalmConsole().say("Nobody has a token yet. Create one with: redraft token add NAME")


@token.command()
@handles_errors
async def revoke(name: PersonName, as_json: options.Json = False) -> None:
    """Revoke a person's token. The decisions they made with it stay."""
    async with _people() as people:
        await people.revoke(name)
    if as_json:
        emit_json({"name": name, "revoked": True})
    else:
        CalmConsole().say(f"Revoked the token of {visible(name)}.")


@asynccontextmanager
async def _people() -> AsyncGenerator[People]:
    store = project_store()
    try:
        async with people_of(store) as people:
            yield people
    finally:
        if store is not None:
            await store.aclose()


def dashboard(project: Project) -> Starlette:
    """The pages of all features without the guard, for a test or for an app with its own guard."""
    from redraft.web.app import app

    return app(project, slices(), NAVIGATION)


def slices() -> list[Slice]:
    """Import the part of the dashboard of each feature."""
    return [import_module(f"redraft.{feature}.web").SLICE for feature in FEATURES]


@at_database
def ui(
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="The address to listen on. Any address other than loopback is reachable from other "
            "machines.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="The port to listen on; 0 picks any free port.")
    ] = 8765,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address without opening a browser.")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="REDRAFT_UI_TOKEN",
            show_envvar=True,
            metavar="TOKEN",
            help="A reusable access token of at least 16 characters, for ?token=... or the header "
            "Authorization: Bearer. The printed address works only once.",
        ),
    ] = None,
) -> None:
    """Open the dashboard in a browser. It shows runs, their costs, why they stopped, and what was learned."""
    import webbrowser
    from importlib.util import find_spec

    from redraft.errors import MissingExtraError

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingExtraError("The dashboard", "ui")
    from redraft.web.guard import Address, Keys
    from redraft.web.project import Project
    from redraft.web.server import login_url, serve

    keys, console = Keys(token), CalmConsole(stderr=True)

    def announce(address: Address) -> None:
        url = login_url(keys, address.url)
        console.say(f"The dashboard of {project.place} is at")
        console.say(f"  {url}")
        if address.public:
            console.say(f"  or {login_url(keys, address.public)}")
        reusable = "; with your token in place of this one, always" if token else ""
        console.say(f"  (works for one browser, once{reusable}). Ctrl-C stops it.")
        if not address.is_local:
            console.say(
                "WARNING: other machines can reach it, and the traffic is not encrypted. Anybody with an "
                "address or the token can read and change everything that is stored here."
            )
        if not no_open:
            webbrowser.open(url)

    project = Project.here()
    address = Address(host, port, load_settings().dashboard_url or "")
    serve(dashboard(project), project, keys, address, announce)
