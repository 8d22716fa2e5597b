"""Commands in bubblewrap: their own processes, files and network, no capabilities, and a user who owns nothing else.

Two ways, by who we are. An ordinary user gets a user namespace. The superuser must not: mapped to root outside, a command without any
capability could still write to `/proc/sys` (and so run a program on the host by way of `core_pattern`), and limits on processes would not
hold. There bubblewrap sets up the mounts as root and `setpriv` becomes an ordinary user before the command starts; the thread's folders
are handed over to that user.

A seccomp filter is the second wall behind the namespaces: new user namespaces, mounts, tracing, keyrings, kernel modules, BPF, io_uring,
typing into a terminal, and sockets of any kind but UNIX, IPv4, IPv6 and netlink (a socket to the hypervisor is in no network namespace) are
refused with EPERM. `clone3` answers that it does not exist, whereupon the C library uses `clone`, whose flags a filter can see; so do
`memfd_create` and `shmget`, whose memory belongs to no process that could be measured: what wants it takes `/dev/shm`, which is bounded.
No file gets the bits by which a program runs as its owner or group, for it would stay behind in a mounted folder; `openat2`, whose mode a
filter cannot see, answers that it does not exist, and `openat` is used in its place.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.commands import CommandLimits, Program, run_program
from holdfast.sandbox.paths import WORKSPACE

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40  # where they are in what the filter is given; low halves
_NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SOCKETS = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_MAKES_FILE = 0x40 | 0x400000  # O_CREAT, O_TMPFILE
_RUNS_AS_OWNER = 0o6000  # S_ISUID, S_ISGID
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    """The numbers of one architecture."""

    audit: int
    clone: int
    ioctl: int
    sockets: tuple[int, int]  # socket, socketpair
    absent: tuple[int, ...]  # memfd_create, shmget
    modes: tuple[tuple[int, int], ...]  # calls that give a mode, and where it is
    opens: tuple[tuple[int, int, int], ...]  # calls that give one to a new file, where the flags are and where it is
    refused: tuple[int, ...]


_SHARED = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)  # io_uring_*, open_tree to fspick, mount_setattr: the same everywhere
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        clone=56,
        ioctl=16,
        sockets=(41, 53),
        absent=(319, 29),
        modes=(
            *((90, _SECOND), (91, _SECOND), (268, _THIRD), (452, _THIRD)),  # chmod, fchmod, fchmodat, fchmodat2
            *((83, _SECOND), (258, _THIRD), (133, _SECOND), (259, _THIRD), (85, _SECOND)),  # mkdir, mkdirat, mknod, mknodat, creat
        ),
        opens=((2, _SECOND, _THIRD), (257, _THIRD, _FOURTH)),  # open, openat
        refused=(
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
            *(175, 176, 246, 313, 320),  # init_module, delete_module, kexec_load, finit_module, kexec_file_load
            *(303, 304),  # name_to_handle_at, open_by_handle_at
            *(103, 153, 163, 164),  # syslog, vhangup, acct, settimeofday
            *(167, 168, 169, 179, 227),  # swapon, swapoff, reboot, quotactl, clock_settime
            *_SHARED,
        ),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        clone=220,
        ioctl=29,
        sockets=(198, 199),
        absent=(279, 194),
        modes=((52, _SECOND), (53, _THIRD), (452, _THIRD), (34, _THIRD), (33, _THIRD)),
        opens=((56, _THIRD, _FOURTH),),
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
    for number in (435, 437, 447, *known.absent):  # clone3, openat2, memfd_secret
        program += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ERROR | _ENOSYS)]
    for number, mode in known.modes:
        program += [_step(_EQUAL, number, 0, 4), *_refused_bits(mode)]
    for number, flags, mode in known.opens:
        program += [_step(_EQUAL, number, 0, 6), _step(_LOAD, flags), _step(_ANY_BIT, _MAKES_FILE, 0, 3), *_refused_bits(mode)]
    for number in known.sockets:
        families = [_step(_EQUAL, family, len(_SOCKETS) - place, 0) for place, family in enumerate(_SOCKETS)]
        program += [_step(_EQUAL, number, 0, len(_SOCKETS) + 3), _step(_LOAD, _FIRST), *families]
        program += [_step(_RETURN, _ERROR | _EPERM), _step(_RETURN, _ALLOW)]
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


def _refused_bits(mode: int) -> tuple[bytes, ...]:
    return _step(_LOAD, mode), _step(_ANY_BIT, _RUNS_AS_OWNER, 0, 1), _step(_RETURN, _ERROR | _EPERM), _step(_RETURN, _ALLOW)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


_OLDEST = (0, 6)
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    *("alternatives", "ca-certificates", "debian_version", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic"),
    *("mime.types", "nsswitch.conf", "os-release", "pki/ca-trust", "pki/tls/certs", "protocols", "services", "ssl/certs"),
    "ssl/openssl.cnf",
)
_NETWORK_SETTINGS = ("hosts", "resolv.conf")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = 65534


@dataclass(frozen=True)
class Bind:
    """A folder of this machine that the command sees at another path."""

    source: str
    target: str
    read_only: bool = False


def base_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that a command finds in its environment: nothing of ours but the path, a home and a language, and what was configured."""
    return {"PATH": _PATH, "HOME": WORKSPACE, "LANG": "C.UTF-8", "TMPDIR": "/tmp", **(extra or {})}  # noqa: S108 - its own, inside


def limited(command: Sequence[str], limits: CommandLimits, *, bash: str, folder: str, processes: bool = True) -> list[str]:
    """The command below a shell that goes to its folder and gives up, for good, the right to use more than the limits allow.

    Address space is allowed four times the memory: runtimes reserve much that they never touch. What is touched is watched.
    """
    asked = [f"ulimit -c 0 -f {limits.file_bytes // 1024} -n {limits.open_files}"]
    if processes:
        asked.append(f"ulimit -u {limits.processes}")
    if limits.memory_bytes is not None:
        asked.append(f"ulimit -v {limits.memory_bytes * 4 // 1024}")
    script = "; ".join(f"{one} 2>/dev/null" for one in asked) + '; cd -- "$0" || exit 126; exec "$@"'
    return [bash, "--noprofile", "--norc", "-c", script, folder, *command]


class Bubblewrap:
    """Builds the command line of one installed bubblewrap."""

    user = USER

    def __init__(self, program: str) -> None:
        self.program = program
        self.as_superuser = os.geteuid() == 0

    def program_for(
        self,
        command: Sequence[str],
        *,
        binds: Sequence[Bind],
        environment: Mapping[str, str],
        limits: CommandLimits,
        network: bool = False,
        folder: str = WORKSPACE,
    ) -> Program:
        """What to start. The descriptors in it belong to who runs it."""
        handles: list[int] = []
        status, report = os.pipe()
        handles.append(report)
        arguments = [self.program, "--json-status-fd", str(report), *self._namespaces(network)]
        if (rules := filter_program()) is not None:
            arguments += ["--seccomp", _given(rules, handles)]
        arguments += _system(network)
        arguments += self._account(handles)
        arguments += _scratch(limits)
        for bind in sorted(binds, key=lambda bind: bind.target.count("/")):
            arguments += [*_folders_above(bind.target), "--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]
        if self.as_superuser:
            who = str(self.user)
            arguments += ["setpriv", "--reuid", who, "--regid", who, "--clear-groups", "--no-new-privs"]
            arguments += ["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--"]
        arguments += limited(command, limits, bash="bash", folder=folder)
        return Program(tuple(arguments), environment, "/", tuple(handles), status)

    def _namespaces(self, network: bool) -> list[str]:
        asked = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
        asked += ["--die-with-parent", "--new-session", *([] if network else ["--unshare-net"]), "--cap-drop", "ALL"]
        if self.as_superuser:  # just enough to stop being the superuser
            return [*asked, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
        return [*asked, "--unshare-user", "--uid", str(self.user), "--gid", str(self.user), *_no_more_user_namespaces(self.program)]

    def _account(self, handles: list[int]) -> list[str]:
        people = f"root:x:0:0:root:/:/bin/false\nsandbox:x:{self.user}:{self.user}:sandbox:{WORKSPACE}:/bin/bash\n"
        groups = f"root:x:0:\nsandbox:x:{self.user}:\n"
        files = (("/etc/passwd", people), ("/etc/group", groups), ("/etc/hostname", "sandbox\n"))
        asked: list[str] = []
        for path, content in files:
            asked += ["--perms", "0644", "--ro-bind-data", _given(content.encode(), handles), path]
        return asked


def _given(data: bytes, handles: list[int]) -> str:
    """A descriptor from which the data can be read, as an argument."""
    reading, writing = os.pipe()
    handles.append(reading)
    try:
        os.write(writing, data)  # a pipe takes 64 KiB without a reader
    finally:
        os.close(writing)
    return str(reading)


def _folders_above(target: str) -> list[str]:
    """Left to itself bubblewrap makes them for their owner only, who is not the one that runs the command."""
    parts = target.split("/")[1:-1]
    return [word for depth in range(len(parts)) for word in ("--dir", "/" + "/".join(parts[: depth + 1]))]


def _system(network: bool) -> list[str]:
    """The programs and libraries of the machine, and the few settings that they need, to be read only."""
    asked = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            asked += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            asked += ["--ro-bind", name, name]
    for name in (*_SETTINGS, *(_NETWORK_SETTINGS if network else ())):
        path = Path("/etc") / name
        if path.exists():
            asked += [*_folders_above(str(path)), "--ro-bind", str(path.resolve()), str(path)]
    return asked


def _scratch(limits: CommandLimits) -> list[str]:
    size = str(min(limits.temp_bytes, limits.memory_bytes or limits.temp_bytes))  # both are kept in memory
    shared = ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]  # noqa: S108 - a mount inside
    return [*shared, "--perms", "1777", "--size", size, "--tmpfs", "/tmp", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108


@cache
def _no_more_user_namespaces(program: str) -> tuple[str, ...]:
    """Where the filter is not known, this bubblewrap may still be able to forbid them."""
    if filter_program() is not None:
        return ()
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - a fixed question
    return ("--disable-userns",) if "--disable-userns" in told.stdout + told.stderr else ()


def find_bubblewrap(program: str | None = None) -> Bubblewrap:
    """A bubblewrap that works here, or SandboxUnavailable that says what is missing."""
    reason = unavailable_because(program)
    if reason is not None:
        where = "" if sys.platform.startswith("linux") else "It needs Linux. "
        instead = "set `sandbox.allow_host_bash: true` to run them without any boundary."
        hint = f"{where}Install the package bubblewrap (`apt install bubblewrap`), or {instead}"
        raise SandboxUnavailable(f"commands cannot be run safely: {reason}", hint=hint)
    return Bubblewrap(program or shutil.which("bwrap") or "bwrap")


def unavailable_because(program: str | None = None) -> str | None:
    """Why bubblewrap cannot be used here, in a sentence; None if it can. A bubblewrap that works is tried out only once."""
    if not sys.platform.startswith("linux"):
        return f"there is no bubblewrap for {sys.platform}."
    path = program or shutil.which("bwrap")
    if path is None:
        return "bubblewrap is not installed."
    for needed, package in (("bash", "bash"), *((("setpriv", "util-linux"),) if os.geteuid() == 0 else ())):
        if shutil.which(needed, path=_PATH) is None:
            return f"{needed} is not installed (package {package})."
    key = (path, os.geteuid(), _identity(path))
    if key in _working:
        return None
    reason = _try_out(path)
    if reason is None:
        _working.add(key)
    return reason


_working: set[tuple[str, int, tuple[int, int]]] = set()


def _identity(path: str) -> tuple[int, int]:
    try:
        facts = Path(path).stat()
    except OSError:
        return (0, 0)
    return (facts.st_ino, stat.S_IMODE(facts.st_mode))


def _try_out(path: str) -> str | None:
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - a fixed question
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not start: {error}."
    found = re.search(r"(\d+)\.(\d+)", told.stdout)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        return f"{path} is {told.stdout.strip() or 'not bubblewrap'}, and {_OLDEST[0]}.{_OLDEST[1]} or newer is needed."
    limits = CommandLimits(seconds=30.0, kept_bytes=4096)
    program = Bubblewrap(path).program_for(["true"], binds=(), environment=base_environment(), limits=limits, folder="/")
    ended = run_program(program, limits)
    if ended.exit_code == 0:
        return None
    return f"bubblewrap does not work here: {ended.capture.text().strip()[-400:] or 'it says nothing'}."
