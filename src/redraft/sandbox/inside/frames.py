"""Frames: how the host and its workers tell where a message ends."""

from __future__ import annotations

import struct

HEAD = struct.Struct("<I")
"""The length of the message that follows, as monty's protocol has it."""


def framed(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return HEAD.pack(len(message)) + message
