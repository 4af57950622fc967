"""The wall around the file system: what may be opened, and for what."""

from __future__ import annotations

import ctypes
import os
import struct

from redraft.sandbox.jail import kernel

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV  # the others are of folders only
_RIGHTS_SINCE = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_BIND_AND_CONNECT, _SIGNALS_AND_SOCKETS = 3, 3
_ASK_VERSION, _PATH_BENEATH = 1, 1


def version() -> int:
    """Give the version of Landlock that the kernel speaks, 0 for none."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(readable: list[str], executable: list[str], writable: list[str]) -> None:
    """Refuse this process, for good, all of the file system but these paths and what is below them.

    What is executable or writable may be read as well. A path that does not exist is left out. Raises
    `OSError` where the kernel refuses.
    """
    spoken = version()
    rights = _FIRST_RIGHTS
    for since, right in _RIGHTS_SINCE.items():
        rights |= right if spoken >= since else 0
    fields = [rights]
    if spoken >= _TCP_SINCE:
        fields.append(_BIND_AND_CONNECT)
    if spoken >= _SCOPES_SINCE:
        fields.append(_SIGNALS_AND_SOCKETS)
    handled = struct.pack(f"<{len(fields)}Q", *fields)
    ruleset = kernel.syscall("landlock_create_ruleset", handled, len(handled), 0)
    read = READ_FILE | READ_DIR
    _allow(ruleset, readable, read)
    _allow(ruleset, executable, read | EXECUTE)
    _allow(ruleset, writable, rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK))
    kernel.syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, paths: list[str], rights: int) -> None:
    for path in paths:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        is_folder = os.path.isdir(path)  # noqa: PTH112 (pathlib would cost each run 10 ms)
        granted = rights if is_folder else rights & _FOR_FILES
        beneath = ctypes.create_string_buffer(struct.pack("<Qi", granted, handle), 12)
        kernel.syscall("landlock_add_rule", ruleset, _PATH_BENEATH, beneath, 0)
        os.close(handle)
