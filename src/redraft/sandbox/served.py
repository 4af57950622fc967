"""The dialect of workers of our own: an order as JSON, and one answer as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redraft.sandbox.dialect import Answer, Dialect, SpoiledError
from redraft.sandbox.given import as_json, names_of
from redraft.sandbox.inside.answer import failure
from redraft.sandbox.inside.frames import framed

if TYPE_CHECKING:
    from redraft.protocols import Script
    from redraft.sandbox.dialect import Conversation


def _greet() -> Conversation[str | None]:
    return _read((yield b"")).get("refused")


def _converse(script: Script) -> Conversation[Answer]:
    order = {"source": script.source, "names": names_of(script), "limits": script.limits.to_json()}
    return _ask(framed(as_json(order)))


def _ask(order: bytes) -> Conversation[Answer]:
    return _read((yield order))


def _read(message: bytes) -> Answer:
    try:
        return json.loads(message)
    except (ValueError, RecursionError) as error:  # never from a worker that is what it was
        raise SpoiledError(failure("script", f"got an answer that is none: {error}")) from error


SERVED = Dialect("serve", _greet, _converse)
