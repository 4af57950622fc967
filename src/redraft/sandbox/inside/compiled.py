"""The compiled interpreter: kept on disk where that is safe, else made anew."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import wasmtime

if TYPE_CHECKING:
    from wasmtime import Engine, Module

_OTHERS = 0o077


def compiled(engine: Engine, source: bytes, folder: str | None) -> Module:
    """Return a WebAssembly module as machine code; `folder` is private to this user, or None.

    What is kept is taken only if it is a file of this user's that nobody else can reach, and if the engine
    says that it made it.
    """
    if folder is None:
        return wasmtime.Module(engine, source)
    name = hashlib.sha256(source).hexdigest()[:16]
    path = Path(folder) / f"trealla-{name}-wasmtime-{version('wasmtime')}"
    with suppress(OSError, wasmtime.WasmtimeError):  # not there yet, or of another machine
        return wasmtime.Module.deserialize(engine, _read(path))
    module = wasmtime.Module(engine, source)
    with suppress(OSError):  # a full disk: the next start takes longer
        _write(path, bytes(module.serialize()))
    return module


def _read(path: Path) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(file, "rb") as opened:  # noqa: PTH123 (a descriptor: what was looked at is what is read)
        found = os.fstat(file)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            raise PermissionError(f"{path} is not private")
        return opened.read()


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "wb") as opened:  # noqa: PTH123 (likewise)
            opened.write(data)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
