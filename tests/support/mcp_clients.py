"""Clients of `redraft mcp`, and a project for them to work in."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from redraft.integrations.mcp import ProjectTools, http_app, server_of
from redraft.stores.location import close_project_store
from redraft.web.guard import Address, Keys
from redraft.web.server import listening_socket, server_config

TOKEN = "a token of sixteen characters or more"
FAILURE = {
    "kind": "failure",
    "what_happened": "Two letters were written.",
    "what_went_wrong": "The text had one letter a.",
    "why": "Nobody counted the letters.",
    "do_differently": "Count the letters before you answer.",
    "rule": "Count the letters before you answer.",
}


@dataclass
class Session:
    """A client that answers in short: what a tool returned, or the text of its error."""

    client: Client
    progress: list

    async def call(self, tool, **arguments):
        """Call a tool; return its structured answer."""
        answer = await self.answer(tool, **arguments)
        assert not answer.is_error, answer.content[0].text
        return answer.structured_content

    async def refused(self, tool, **arguments):
        """Call a tool that refuses; return the message."""
        answer = await self.answer(tool, **arguments)
        assert answer.is_error, answer.structured_content
        return answer.content[0].text

    async def answer(self, tool, **arguments):
        async def hear(_progress, _total, message):
            self.progress.append(message)

        return await self.client.call_tool(tool, arguments, progress_callback=hear)


@asynccontextmanager
async def in_process(**options):
    """Yield a session with a server in this process, and close the project's store in the end."""
    tools = ProjectTools(**options)
    try:
        async with Client(server_of(tools)) as client:
            yield Session(client, [])
    finally:
        await tools.aclose()
        await close_project_store()


def play(work, **options):
    """Run an async function with such a session, and return what it returns."""

    async def main():
        async with in_process(**options) as session:
            return await work(session)

    return asyncio.run(main())


@asynccontextmanager
async def over_stdio(*words, mode="auto"):
    """Yield a session with a server of its own, started in the working folder as a coding agent does."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "redraft", "mcp", *words], env=dict(os.environ)
    )
    async with Client(server, mode=mode) as client:
        yield Session(client, [])


@asynccontextmanager
async def http_server(port=0, **options):
    """Serve over HTTP in this process; yield the address."""
    with listening_socket(Address("127.0.0.1", port)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        async with http_app(ProjectTools(**options), Keys(TOKEN, browsers=False), address) as app:
            server = uvicorn.Server(server_config(app))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield address
            finally:
                server.should_exit = True
                await serving
    await close_project_store()


@asynccontextmanager
async def over_http(address, token=TOKEN, mode="auto"):
    """Yield a session with the server at an address."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
        transport = streamable_http_client(f"{address.url}mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield Session(client, [])
