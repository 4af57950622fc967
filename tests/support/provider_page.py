"""The setups of docs/providers.md, asked at a server on the loopback; also a script for another Python."""

import asyncio
import json
import re
import sys

PAGE = "docs/providers.md"
EXPORT = re.compile(r"^export (\w+)=(.*)$", re.MULTILINE)
KEY = "not" + "-a-" + "key"


def setup_of(text, heading):
    """Return the variables that the section of the page with a heading exports, with a key for `...`."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = dict(EXPORT.findall(section.split("```sh\n")[1].split("```")[0]))
    return {name: KEY if value == "..." else value for name, value in found.items()}


def ask(name):
    """Ask the model with a name one question; return the error, which the server gives to everything."""
    from redraft.models.names import model_named
    from redraft.protocols import ChatRequest, Message

    try:
        asyncio.run(model_named(name)(ChatRequest((Message("user", "hi"),))))
    except Exception as error:  # noqa: BLE001 (the test says which it expects)
        return type(error).__name__
    return None


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1])))
