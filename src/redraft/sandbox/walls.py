"""Walls: the kernel features with which a process isolates itself irrevocably."""

# ruff: noqa: PTH112
# Runs inside the jail: only light modules of the standard library. Importing pathlib would cost each run 10
# ms and typing 7 ms, hence the plain paths and the constant below.

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from contextlib import suppress
from errno import ENOSYS, EPERM
from math import ceil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class MissingWallError(Exception):
    """This machine lacks a part of the jail; the message names the part."""


def check() -> None:
    """Raise `MissingWallError` if this machine has no jail."""
    if sys.platform != "linux":
        raise MissingWallError(f"a Linux kernel (this is {sys.platform})")
    if _machine() not in _MACHINES:
        raise MissingWallError(f"a table of system calls for the machine {_machine()!r}")
    if not _landlock_version():
        raise MissingWallError("Landlock (Linux 5.13 or later, with 'landlock' in the kernel's `lsm=`)")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process with its parent; exit if its parent is no longer `parent`."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def shut_in(
    *,
    readable: Sequence[str],
    executable: Sequence[str] = (),
    memory: int,
    seconds: float,
    processes: int | None = None,
    writable: Sequence[str] = (),
    programs: bool = False,
    becomes: bool = False,
    jailed_child: bool = False,
) -> None:
    """Raise every wall around this process and its children; raises `MissingWallError` if that fails.

    `readable`, `executable` and `writable` are the paths that can be opened; `memory` is in bytes, `seconds`
    of CPU time. `processes` (threads included) and `writable` require namespaces: outside them, all processes
    of the user would count, and a folder could be filled without limit. With `programs`, the process can
    start `executable` programs; with `becomes`, it can only turn into such a program. With `jailed_child`, it
    has a child behind walls of its own that must die with it.
    """
    limit(memory=memory, seconds=seconds)
    try:
        if processes is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        prctl(_PR_SET_DUMPABLE, 0)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        _restrict_files(readable, executable, writable, jailed_child=jailed_child)
        _filter_calls(programs=programs, becomes=becomes, metadata=bool(writable))
    except OSError as error:
        raise MissingWallError(f"a kernel that lets a process shut itself in ({error})") from error


# --- limits ---

_FILE_BYTES = 16 << 20
_OPEN_FILES = 256
_STACK_BYTES = 8 << 20


def limit(*, memory: int, seconds: float) -> None:
    """Limit this process, and each of its children, to bytes of memory and seconds of CPU time.

    An existing limit that is tighter remains. SIGXCPU can be caught; SIGKILL follows one second later.
    """
    cpu = ceil(seconds) + 1
    limits = {
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_FSIZE: (_FILE_BYTES, _FILE_BYTES),
        resource.RLIMIT_NOFILE: (_OPEN_FILES, _OPEN_FILES),
        resource.RLIMIT_STACK: (_STACK_BYTES, _STACK_BYTES),
        resource.RLIMIT_CORE: (0, 0),
    }
    for kind, (soft, hard) in limits.items():
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)  # noqa: PLW2901 (the same limits, capped)
        with suppress(ValueError, OSError):  # macOS refuses some limits; it has no jail anyway
            resource.setrlimit(kind, (soft, hard))


# --- namespaces: no network, no other processes, read-only files and a private scratch folder ---

_NEW_USER, _NEW_PID, _NEW_NETWORK, _NEW_IPC, _NEW_UTS, _NEW_MOUNTS = (
    0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x00020000,
)  # fmt: skip
_NOBODY = 65534
_MIN_PID_MAX = 301  # the kernel accepts no less
_AT_FDCWD, _RECURSIVE = -100, 0x8000
_READ_ONLY, _PRIVATE = 1, 1 << 18
_NO_SETUID, _NO_DEVICES, _NO_EXECUTION = 2, 4, 8


def enter_namespaces(scratch: str, *, scratch_bytes: int, processes: bool) -> bool:
    """Move this process into namespaces of its own; False if the machine refuses any part of this.

    Inside, there is no network, and everything is mounted read-only except `scratch`, which becomes the
    working folder: an empty file system in memory of at most `scratch_bytes`, invisible to other processes
    and deleted with the last process. With `processes`, the next child is the first process of a process
    namespace: when it ends, the kernel kills all others.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        kinds = _NEW_USER | _NEW_NETWORK | _NEW_IPC | _NEW_UTS | _NEW_MOUNTS | (_NEW_PID if processes else 0)
        syscall("unshare", kinds)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_NOBODY} {uid} 1")
        _write("/proc/self/gid_map", f"{_NOBODY} {gid} 1")
        _mount("tmpfs", scratch, _NO_SETUID | _NO_DEVICES, f"size={scratch_bytes},nr_inodes=4096,mode=700")
        # Also private: otherwise later mounts of the host would appear inside, and be writable.
        _change_mounts("/", _RECURSIVE, struct.pack("<4Q", _READ_ONLY, 0, _PRIVATE, 0))
        _change_mounts(scratch, 0, struct.pack("<4Q", 0, _READ_ONLY, 0, 0))
    except OSError:
        return False
    finally:
        os.chdir(scratch)
    return True


def mount_own_proc() -> bool:
    """Mount a /proc that shows only the processes of this namespace; False if the machine refuses."""
    try:
        _mount("proc", "/proc", _NO_SETUID | _NO_DEVICES | _NO_EXECUTION, "")
    except OSError:
        return False
    return True


def limit_process_numbers() -> None:
    """Limit the process numbers of this namespace; requires `mount_own_proc`.

    Unlike the limit on processes, this also binds root. Kernels before 6.14 refuse it.
    """
    with suppress(OSError):
        _write("/proc/sys/kernel/pid_max", str(_MIN_PID_MAX))


def _mount(kind: str, target: str, flags: int, options: str) -> None:
    name = ctypes.create_string_buffer(kind.encode())
    place = ctypes.create_string_buffer(os.fsencode(target))
    syscall("mount", name, place, name, flags, ctypes.create_string_buffer(options.encode()))


def _change_mounts(path: str, flags: int, change: bytes) -> None:
    place = ctypes.create_string_buffer(os.fsencode(path))
    syscall("mount_setattr", _AT_FDCWD, place, flags, change, len(change))


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _drop_capabilities() -> None:
    """Drop every capability: root is then an ordinary user that owns its files."""
    version_3 = struct.pack("<Ii", 0x20080522, 0)
    syscall("capset", version_3, bytes(24))


# --- Landlock: which files can be opened, and how ---

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # other rights are for folders only
_RIGHTS_SINCE = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_BIND_AND_CONNECT, _ABSTRACT_SOCKETS, _SIGNALS = 3, 1, 2
_ASK_VERSION, _PATH_BENEATH = 1, 1


def _landlock_version() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _ASK_VERSION)
    except OSError:
        return 0


def _restrict_files(
    readable: Sequence[str], executable: Sequence[str], writable: Sequence[str], *, jailed_child: bool
) -> None:
    """Refuse access to all files except these paths and the files below them; raises `OSError`.

    Executable and writable paths can also be read. A path that does not exist is ignored.
    """
    version = _landlock_version()
    rights = _FIRST_RIGHTS
    for since, right in _RIGHTS_SINCE.items():
        rights |= right if version >= since else 0
    fields = [rights]
    if version >= _TCP_SINCE:
        fields.append(_BIND_AND_CONNECT)
    if version >= _SCOPES_SINCE:
        # The signal that ends a jailed child counts as sent by its parent, and would be refused.
        fields.append(_ABSTRACT_SOCKETS | (0 if jailed_child else _SIGNALS))
    handled = struct.pack(f"<{len(fields)}Q", *fields)
    ruleset = syscall("landlock_create_ruleset", handled, len(handled), 0)
    read = _READ_FILE | _READ_DIR
    _allow_paths(ruleset, readable, read)
    _allow_paths(ruleset, executable, read | _EXECUTE)
    _allow_paths(ruleset, writable, rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK))
    syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _allow_paths(ruleset: int, paths: Sequence[str], rights: int) -> None:
    for path in paths:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        granted = rights if os.path.isdir(path) else rights & _FOR_FILES
        beneath = ctypes.create_string_buffer(struct.pack("<Qi", granted, handle), 12)
        syscall("landlock_add_rule", ruleset, _PATH_BENEATH, beneath, 0)
        os.close(handle)


# --- seccomp: which system calls can be made ---

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_CALLS = 0x40000000  # x86_64's second table of calls, which would bypass a filter by number
_FIRST_UNKNOWN = 450  # newer system calls, which were not tested, are reported as missing

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS, _KEEP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENT_AT = 0, 4, (16, 24, 32, 40)  # offsets in struct seccomp_data (lower halves)

_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020080
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SIGNAL_OWNERS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_SIGNAL_BY_FILE = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: with them, the kernel would send the signal
_PARENT_DEATH_SIGNAL = 1
_SHARED, _NOT_OF_A_FILE, _OF_HUGE_PAGES = 0x01, 0x20, 0x40000  # MAP_SHARED, MAP_ANONYMOUS, MAP_HUGETLB
_UNIX, _STREAM, _SOCKET_TYPES = 1, 1, 0xF  # AF_UNIX, SOCK_STREAM, and the bits that are not flags
_MODE_FILTER, _ALL_THREADS = 1, 1

_WALLS = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
_BY_ARGUMENT = {
    *("clone", "clone3", "kill", "tgkill", "prlimit64", "ioctl", "fcntl", "prctl", "socketpair", "mmap"),
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

_Instruction = tuple[int, int, int, int]
"""An instruction of classic BPF: code, steps to skip if true, steps to skip if false, operand."""


def _filter_calls(*, programs: bool, metadata: bool, becomes: bool) -> None:
    """Install the filter for this process and its children; raises `OSError`.

    With `programs`, the process can start programs and signal them (they have a namespace of their own), and
    share with them only memory that is mapped from files. Otherwise it can't start processes, and with
    `becomes` can only turn into another program. With `metadata`, it can change modes and times of files,
    which Landlock does not control: only for a process for which everything except the scratch folder is
    mounted read-only.
    """
    code = b"".join(
        struct.pack("<HBBI", *step)
        for step in _instructions(programs=programs, metadata=metadata, becomes=becomes)
    )
    steps = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(steps))  # struct sock_fprog
    syscall("seccomp", _MODE_FILTER, _ALL_THREADS, head)


def _instructions(*, programs: bool, metadata: bool, becomes: bool) -> list[_Instruction]:
    refuse = _answer(_ERRNO | EPERM)
    absent = _answer(_ERRNO | ENOSYS)
    allow = _answer(_ALLOW)
    steps: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[_machine()]),
        _answer(_KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, 0, 1, _X32_CALLS),
        _answer(_KILL),
        (_IF_AT_LEAST, 0, 1, _FIRST_UNKNOWN),
        absent,
    ]
    # The C library falls back to clone, whose flags are not behind a pointer and can be checked.
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
        for name in ("kill", "tgkill"):  # so that abort() and signal.raise_signal() work
            steps += _when(name, [_argument(0), (_IF_EQUAL, 0, 1, os.getpid()), allow, refuse])
    if becomes:
        allowed |= {"execve"}
    if metadata:
        allowed |= _FILE_METADATA
    for name in _NUMBERS.keys() - allowed:
        steps += _when(name, [refuse])
    return [*steps, allow]


def _when(name: str, then: list[_Instruction]) -> list[_Instruction]:
    """Instructions for one system call; `then` must end in an answer."""
    n = number(name)
    return [] if n is None else [(_IF_EQUAL, 0, len(then), n), *then]


def _clone(*, programs: bool) -> list[_Instruction]:
    allow, refuse = _answer(_ALLOW), _answer(_ERRNO | EPERM)
    if programs:
        return [_argument(0), (_IF_BITS, 0, 1, _CLONE_NAMESPACES), refuse, allow]
    return [_argument(0), (_IF_BITS, 0, 1, _CLONE_THREAD), allow, refuse]


def _stream_pair() -> list[_Instruction]:
    """Allow a pair of streams that stay connected to each other.

    Any other socket could send data and descriptors to a socket's path outside, which Landlock does not
    control.
    """
    return [
        *(_argument(0), (_IF_EQUAL, 0, 4, _UNIX)),
        *(_argument(1), (_KEEP_BITS, 0, 0, _SOCKET_TYPES), (_IF_EQUAL, 0, 1, _STREAM)),
        *(_answer(_ALLOW), _answer(_ERRNO | EPERM)),
    ]


def _counted_memory() -> list[_Instruction]:
    """Refuse memory that is not charged to a process: shared between processes, or in huge pages.

    Memory mapped from a file may be shared: writable files are in the scratch folder, whose size is limited.
    """
    allow, refuse = _answer(_ALLOW), _answer(_ERRNO | EPERM)
    return [
        *(_argument(3), (_IF_BITS, 0, 1, _OF_HUGE_PAGES), refuse),
        *((_IF_BITS, 0, 2, _NOT_OF_A_FILE), (_IF_BITS, 0, 1, _SHARED), refuse, allow),
    ]


def _unless_argument(index: int, refused: tuple[int, ...]) -> list[_Instruction]:
    tests: list[_Instruction] = [
        (_IF_EQUAL, len(refused) - position, 0, value) for position, value in enumerate(refused)
    ]
    return [_argument(index), *tests, _answer(_ALLOW), _answer(_ERRNO | EPERM)]


def _argument(index: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENT_AT[index])


def _upper_argument(index: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENT_AT[index] + 4)


def _answer(value: int) -> _Instruction:
    return (_RETURN, 0, 0, value)


# --- system calls, which the standard library does not wrap ---

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38

_MACHINES = {"x86_64": 0, "aarch64": 1}
"""The supported machines, and their column in `_NUMBERS`."""

# From the kernel's tables (unistd_64.h and the generic unistd.h); None where the machine has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # other programs, other processes
    "execve": (59, 221), "execveat": (322, 281),
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "prlimit64": (302, 261), "setrlimit": (160, 164), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # the network, and memory that outlives or is shared
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "vmsplice": (278, 75),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41),
    "mount": (165, 40), "umount2": (166, 39), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # large, rarely used parts of the kernel, where its bugs are found
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "fanotify_init": (300, 262), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "lookup_dcookie": (212, 18),
    "personality": (135, 92), "seccomp": (317, 277), "ioperm": (173, None), "iopl": (172, None),
    # the machine itself
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "setuid": (105, 146), "setgid": (106, 144), "setresuid": (117, 147), "setresgid": (119, 149),
    "setreuid": (113, 145), "setregid": (114, 143), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "setgroups": (116, 159), "capset": (126, 91),
    # what changes a file without opening it, which Landlock does not control
    "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # filtered by argument
    "ioctl": (16, 29), "fcntl": (72, 25), "prctl": (157, 167), "socketpair": (53, 199), "mmap": (9, 222),
    # the walls
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
"""Numbers of system calls: (x86_64, aarch64)."""


def _machine() -> str:
    return os.uname().machine


def number(name: str) -> int | None:
    """The number of a system call on this machine; None if it does not exist there."""
    return _NUMBERS[name][_MACHINES[_machine()]]


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call; raises `OSError` with the call's name.

    Passes integers as 64 bits, bytes and buffers as their address, None as zero.
    """
    if (n := number(name)) is None:
        raise NotImplementedError(f"{name!r} does not exist on {_machine()}")
    converted = [
        ctypes.c_long(argument or 0) if argument is None or isinstance(argument, int) else argument
        for argument in arguments
    ]
    return _checked(name, int(_libc.syscall(ctypes.c_long(n), *converted)))


def prctl(option: int, value: int) -> None:
    """Set a property of this process; raises `OSError`."""
    zero = ctypes.c_ulong(0)
    _checked("prctl", int(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)))


def _checked(name: str, returned: int) -> int:
    if returned < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return returned
