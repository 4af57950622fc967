"""The kernel by number: the system calls that the standard library does not wrap."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

MACHINES = {"x86_64": 0, "aarch64": 1}
"""The machines that the jail knows, and their column in `NUMBERS`."""

# From the kernel's own tables (unistd_64.h and the generic unistd.h); None: that machine has no such call.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
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
    # large and little used parts of the kernel, where its mistakes are found
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
    # what changes a file without opening it: Landlock does not see these
    "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # looked at by argument
    "ioctl": (16, 29), "fcntl": (72, 25), "prctl": (157, 167), "socketpair": (53, 199), "mmap": (9, 222),
    # the walls
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
"""Numbers of system calls: (x86_64, aarch64)."""


def machine() -> str:
    """Name the machine that the kernel runs on."""
    return os.uname().machine


def number(name: str) -> int | None:
    """Give the number of a system call on this machine, or None where it has no such call."""
    return NUMBERS[name][MACHINES[machine()]]


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call the kernel; raises `OSError` with the name of the call when it refuses.

    A number goes as 64 bits, bytes and buffers as their address, None as zero.
    """
    if (n := number(name)) is None:
        raise NotImplementedError(f"{name!r} does not exist on {machine()}")
    passed = [
        ctypes.c_long(a) if isinstance(a, int) else ctypes.c_long(0) if a is None else a for a in arguments
    ]
    return _checked(name, int(_libc.syscall(ctypes.c_long(n), *passed)))


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    zero = ctypes.c_ulong(0)
    _checked("prctl", int(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)))


def _checked(name: str, returned: int) -> int:
    if returned < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return returned
