"""System calls that no command needs and that a hole in the kernel would be reached by, as a filter for bubblewrap (`--seccomp`).

A second wall behind the namespaces: new user namespaces, mounts, tracing, keyrings, kernel modules, BPF, io_uring, and typing into a
terminal are refused with EPERM. `clone3` answers that it does not exist, whereupon the C library uses `clone`, whose flags a filter can
see.
"""

from __future__ import annotations

import platform
import struct
import sys
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # where they are in what the filter is given; low halves of the arguments
_NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    """The numbers of one architecture."""

    audit: int
    clone: int
    ioctl: int
    refused: tuple[int, ...]


_SHARED = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)  # io_uring_*, open_tree to fspick, mount_setattr: the same everywhere
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        clone=56,
        ioctl=16,
        refused=(
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
            *(175, 176, 246, 313, 320),  # init_module, delete_module, kexec_load, finit_module, kexec_file_load
            *(303, 304),  # name_to_handle_at, open_by_handle_at
            *(
                103,
                153,
                163,
                164,
                167,
                168,
                169,
                179,
                227,
            ),  # syslog, vhangup, acct, settimeofday, swapon, swapoff, reboot, quotactl, clock_settime
            *_SHARED,
        ),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        clone=220,
        ioctl=29,
        refused=(
            *(117, 270, 271, 272),
            *(39, 40, 41, 51, 97, 268),
            *(217, 218, 219),
            *(241, 280, 282),
            *(104, 105, 106, 273, 294),
            *(264, 265),
            *(58, 60, 89, 112, 116, 142, 170, 224, 225),
            *_SHARED,
        ),
    ),
}


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter for this machine in the form the kernel takes; None for an architecture whose numbers are not known here."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None or sys.byteorder != "little":
        return None
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, known.audit, 1, 0),
        _step(_RETURN, _ERROR | _EPERM),  # programs of another architecture have other numbers
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _ERROR | _EPERM),
    ]
    for number in known.refused:
        program += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ERROR | _EPERM)]
    program += [_step(_EQUAL, 435, 0, 1), _step(_RETURN, _ERROR | _ENOSYS)]  # clone3
    program += [
        _step(_EQUAL, known.clone, 0, 4),
        _step(_LOAD, _FIRST),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, _ERROR | _EPERM),
        _step(_RETURN, _ALLOW),
        _step(_EQUAL, known.ioctl, 0, 5),
        _step(_LOAD, _SECOND),
        _step(_EQUAL, _TERMINAL_INPUT[0], 1, 0),
        _step(_EQUAL, _TERMINAL_INPUT[1], 0, 1),
        _step(_RETURN, _ERROR | _EPERM),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)
