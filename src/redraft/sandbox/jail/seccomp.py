"""The filter on system calls: what the jailed code may not even ask the kernel for."""

from __future__ import annotations

import ctypes
import os
import struct
from errno import ENOSYS, EPERM

from redraft.sandbox.jail import kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_CALLS = 0x40000000  # the second table of x86_64, by which a filter on numbers could be passed
_FIRST_UNKNOWN = 450  # calls younger than the kernels this was tried on do not exist in here

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS, _KEEP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENT_AT = 0, 4, (16, 24, 32, 40)  # offsets in struct seccomp_data (lower halves)

_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020080
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SIGNAL_OWNERS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_SIGNAL_BY_FILE = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: the kernel would send the signal for us
_PARENT_DEATH_SIGNAL = 1
_SHARED, _NOT_OF_A_FILE, _OF_HUGE_PAGES = 0x01, 0x20, 0x40000  # MAP_SHARED, MAP_ANONYMOUS, MAP_HUGETLB
_UNIX, _STREAM, _SOCKET_TYPES = 1, 1, 0xF  # AF_UNIX, SOCK_STREAM, and the bits that are not flags
_MODE_FILTER, _ALL_THREADS = 1, 1

_WALLS = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
_BY_ARGUMENT = {
    "clone",
    "clone3",
    "kill",
    "tgkill",
    "prlimit64",
    "ioctl",
    "fcntl",
    "prctl",
    "socketpair",
    "mmap",
}
_OTHER_PROGRAMS = {
    *("execve", "execveat", "fork", "vfork", "kill", "tkill", "tgkill"),
    *("rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal"),
}
_FILE_METADATA = {
    *("truncate", "chmod", "fchmod", "fchmodat", "chown", "lchown", "fchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
}

Instruction = tuple[int, int, int, int]
"""One instruction of classic BPF: code, steps to skip if true, steps to skip if false, operand."""


def install(*, programs: bool, metadata: bool, becomes: bool = False) -> None:
    """Install the filter for this process and all that come of it; raises `OSError` where that can't be.

    With `programs` it may start programs and signal them (they live in a namespace of their own), and shares
    no memory with them but that of files; without, it stays alone, and with `becomes` it may turn into
    another program all the same. With `metadata` modes and times of files may be changed: only where all but
    the scratch is mounted read-only, since Landlock does not watch these calls.
    """
    code = b"".join(
        struct.pack("<HBBI", *step) for step in _filter(programs=programs, metadata=metadata, becomes=becomes)
    )
    steps = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(steps))  # struct sock_fprog
    kernel.syscall("seccomp", _MODE_FILTER, _ALL_THREADS, head)


def _filter(*, programs: bool, metadata: bool, becomes: bool) -> list[Instruction]:
    refuse = _answer(_ERRNO | EPERM)
    absent = _answer(_ERRNO | ENOSYS)
    allow = _answer(_ALLOW)
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[kernel.machine()]),
        _answer(_KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, 0, 1, _X32_CALLS),
        _answer(_KILL),
        (_IF_AT_LEAST, 0, 1, _FIRST_UNKNOWN),
        absent,
    ]
    # The C library falls back to clone, whose flags are not behind a pointer and can be looked at.
    steps += _when("clone3", [absent])
    steps += _when("clone", _clone(programs=programs))
    steps += _when(
        "prlimit64",
        [_argument(2), (_IF_EQUAL, 0, 3, 0), _upper_argument(2), (_IF_EQUAL, 0, 1, 0), allow, refuse],
    )
    steps += _when("ioctl", _unless_argument(1, (*_TERMINAL_INPUT, *_SIGNAL_OWNERS)))
    steps += _when("fcntl", _unless_argument(1, _SIGNAL_BY_FILE))
    steps += _when("prctl", _unless_argument(0, (_PARENT_DEATH_SIGNAL,)))
    steps += _when("socketpair", _stream_pair())
    allowed = _WALLS | _BY_ARGUMENT
    if programs:
        steps += _when("mmap", _counted_memory())
        allowed |= _OTHER_PROGRAMS
    else:
        for name in ("kill", "tgkill"):  # abort() and signal.raise_signal() are fair
            steps += _when(name, [_argument(0), (_IF_EQUAL, 0, 1, os.getpid()), allow, refuse])
    if becomes:
        allowed |= {"execve"}
    if metadata:
        allowed |= _FILE_METADATA
    for name in kernel.NUMBERS.keys() - allowed:
        steps += _when(name, [refuse])
    return [*steps, allow]


def _when(name: str, then: list[Instruction]) -> list[Instruction]:
    """Make the steps for one call; `then` must end in an answer."""
    number = kernel.number(name)
    return [] if number is None else [(_IF_EQUAL, 0, len(then), number), *then]


def _clone(*, programs: bool) -> list[Instruction]:
    allow, refuse = _answer(_ALLOW), _answer(_ERRNO | EPERM)
    if programs:
        return [_argument(0), (_IF_BITS, 0, 1, _CLONE_NAMESPACES), refuse, allow]
    return [_argument(0), (_IF_BITS, 0, 1, _CLONE_THREAD), allow, refuse]


def _stream_pair() -> list[Instruction]:
    """Allow a pair of streams, which is connected for good.

    Any other socket could send to the path of a socket outside, descriptors included, and Landlock does not
    watch that.
    """
    return [
        *(_argument(0), (_IF_EQUAL, 0, 4, _UNIX)),
        *(_argument(1), (_KEEP_BITS, 0, 0, _SOCKET_TYPES), (_IF_EQUAL, 0, 1, _STREAM)),
        *(_answer(_ALLOW), _answer(_ERRNO | EPERM)),
    ]


def _counted_memory() -> list[Instruction]:
    """Refuse memory that stands in no process's account: shared between processes, or of huge pages.

    Memory of a file may be shared: what can be written to is in the scratch folder, which is bounded.
    """
    allow, refuse = _answer(_ALLOW), _answer(_ERRNO | EPERM)
    return [
        *(_argument(3), (_IF_BITS, 0, 1, _OF_HUGE_PAGES), refuse),
        *((_IF_BITS, 0, 2, _NOT_OF_A_FILE), (_IF_BITS, 0, 1, _SHARED), refuse, allow),
    ]


def _unless_argument(index: int, refused: tuple[int, ...]) -> list[Instruction]:
    tests: list[Instruction] = [
        (_IF_EQUAL, len(refused) - position, 0, value) for position, value in enumerate(refused)
    ]
    return [_argument(index), *tests, _answer(_ALLOW), _answer(_ERRNO | EPERM)]


def _argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENT_AT[index])


def _upper_argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENT_AT[index] + 4)


def _answer(value: int) -> Instruction:
    return (_RETURN, 0, 0, value)
