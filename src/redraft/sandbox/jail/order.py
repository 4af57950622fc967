"""Order: what the host asks of one jailed child, as it travels."""

from __future__ import annotations

from typing import Any, TypedDict


class Order(TypedDict):
    """Ask a child for one run: `python` source, or `argv` with an absolute path first.

    `channel` is the file descriptor on which the child reports, `nonce` what each of its reports begins
    with, `parent` the process that must be its parent. `readable` and `executable` are paths beyond the
    scratch folder. Sizes are in bytes, `seconds` is wall time. `unjailed_if_needed` lets it run without
    walls on a machine that has none.
    """

    nonce: str
    channel: int
    parent: int
    python: str
    inputs: Any
    argv: list[str]
    files: dict[str, str]
    scratch: str
    scratch_bytes: int
    readable: list[str]
    executable: list[str]
    memory: int
    seconds: float
    processes: int
    unjailed_if_needed: bool


class Report(TypedDict, total=False):
    """Tell the host one thing: `ready` and `refused` before, the rest after code that is not ours ran."""

    ready: str
    refused: str
    result: Any
    raised: str
    exit: int
    stopped: str
