"""Namespaces of one's own: no network, no neighbours, a read-only world and a private scratch folder."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress

from redraft.sandbox.jail import kernel

_USER, _PID, _NETWORK, _IPC, _UTS, _MOUNTS = (
    0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x00020000,
)  # fmt: skip
_NOBODY = 65534
_LEAST_BOUND = 301  # the kernel takes none below
_AT_FDCWD, _RECURSIVE = -100, 0x8000
_READ_ONLY, _PRIVATE = 1, 1 << 18
_NO_SETUID, _NO_DEVICES, _NO_EXECUTION = 2, 4, 8


def enter(scratch: str, *, scratch_bytes: int, processes: bool) -> bool:
    """Move this process into namespaces of its own; False where the machine refuses any part of that.

    On success there is no network, everything is mounted read-only but `scratch`, which is an empty memory
    file system of at most `scratch_bytes` that nobody else sees and that vanishes with the last process, and
    it is the working folder. With `processes` the next child is the first of a process namespace: when it
    ends, the kernel kills whatever came of it.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        kinds = _USER | _NETWORK | _IPC | _UTS | _MOUNTS | (_PID if processes else 0)
        kernel.syscall("unshare", kinds)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_NOBODY} {uid} 1")
        _write("/proc/self/gid_map", f"{_NOBODY} {gid} 1")
        _mount("tmpfs", scratch, _NO_SETUID | _NO_DEVICES, f"size={scratch_bytes},nr_inodes=4096,mode=700")
        # Private, too: what the host mounts later must not appear in here, writable.
        _change_mounts("/", _RECURSIVE, struct.pack("<4Q", _READ_ONLY, 0, _PRIVATE, 0))
        _change_mounts(scratch, 0, struct.pack("<4Q", 0, _READ_ONLY, 0, 0))
    except OSError:
        return False
    finally:
        os.chdir(scratch)
    return True


def show_own_processes() -> bool:
    """Mount a /proc that shows the processes of this namespace only; False where the machine refuses."""
    try:
        _mount("proc", "/proc", _NO_SETUID | _NO_DEVICES | _NO_EXECUTION, "")
    except OSError:
        return False
    return True


def bound_process_numbers() -> None:
    """Keep the numbers of this namespace's processes small, where its own /proc is mounted.

    It holds for root as well, whom the limit on processes does not bind. A kernel before 6.14 has no such
    bound for one namespace and refuses.
    """
    with suppress(OSError):
        _write("/proc/sys/kernel/pid_max", str(_LEAST_BOUND))


def drop_capabilities() -> None:
    """Give up every capability, so that being root means nothing beyond owning root's files."""
    version_3 = struct.pack("<Ii", 0x20080522, 0)
    kernel.syscall("capset", version_3, bytes(24))


def _mount(kind: str, target: str, flags: int, options: str) -> None:
    name = ctypes.create_string_buffer(kind.encode())
    place = ctypes.create_string_buffer(os.fsencode(target))
    kernel.syscall("mount", name, place, name, flags, ctypes.create_string_buffer(options.encode()))


def _change_mounts(path: str, flags: int, change: bytes) -> None:
    place = ctypes.create_string_buffer(os.fsencode(path))
    kernel.syscall("mount_setattr", _AT_FDCWD, place, flags, change, len(change))


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
