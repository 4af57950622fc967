"""The setups of docs/providers.md, asked at a server on the loopback; also a script for another Python."""

import asyncio
import json
import re
import sys

PAGE = "docs/providers.md"
VARIABLE = re.compile(r"`(\w+)(?:=([^`]+))?`")
KEY = "not" + "-a-" + "key"


def setup_of(text, provider):
    """The variables in the provider's row of the table, with a key where the row gives no value."""
    [row] = [line for line in text.splitlines() if line.startswith((f"| {provider} |", f"| [{provider}]("))]
    _, _, _, model, variables, _ = row.split("|")
    values = {name: value or KEY for name, value in VARIABLE.findall(variables)}
    return values | {"REDRAFT_MODEL": model.strip(" `")}


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
