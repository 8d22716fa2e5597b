"""What a folder's disk can promise, measured: for `holdfast doctor`, and for whoever wonders why writing is slow, or too fast."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike

from holdfast.durable.beneath import openat2_works
from holdfast.durable.disk import REAL, closing, write_all
from holdfast.durable.replace import temp_name
from holdfast.errors import StorageError

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph"})
_ROUNDS = 5
_TOO_FAST_MS = 0.015  # a stubbed fsync takes 0.006 ms; the quickest drives with a protected cache take several times this


@dataclass(frozen=True)
class Probe:
    """What was found. `doubts` says in words why a write here may not survive; without any, the promises hold."""

    folder: str
    file_system: str
    writable: bool
    fsync_ms: float | None
    fsync_stubbed: bool
    free_bytes: int
    openat2: bool
    file_locks: bool
    doubts: tuple[str, ...]


def probe(folder: str | PathLike[str]) -> Probe:
    """Look at the disk under `folder`, which must exist, and time a few syncs of a small file in it."""
    place = REAL.resolve(os.fspath(folder))
    space = os.statvfs(place)
    kind = _file_system(place)
    doubts: list[str] = []
    sync_ms: float | None = None
    try:
        sync_ms = _time_sync(place)
    except (StorageError, OSError) as error:
        doubts.append(f"not writable: {error}")
    stubbed = _stub_reasons(kind, sync_ms)
    doubts += stubbed
    if kind in _REMOTE:
        doubts.append(f"{kind} is a network file system: locks and syncs are only as good as the server's.")
    locks = _has_flock()
    if not locks:
        doubts.append("no flock on this platform: a process that dies while it holds a lock leaves the lock behind.")
    return Probe(
        folder=place,
        file_system=kind,
        writable=sync_ms is not None,
        fsync_ms=sync_ms,
        fsync_stubbed=bool(stubbed),
        free_bytes=space.f_bavail * space.f_frsize,
        openat2=openat2_works(),
        file_locks=locks,
        doubts=tuple(doubts),
    )


def _time_sync(place: str) -> float:
    """The median of a few syncs, each after a write, in milliseconds."""
    path = os.path.join(place, temp_name())
    times = []
    with closing(REAL, REAL.create(path)) as handle:
        try:
            for _ in range(_ROUNDS):
                write_all(REAL, handle, b"\0" * 512)
                begin = time.perf_counter()
                REAL.sync(handle)
                times.append((time.perf_counter() - begin) * 1000)
        finally:
            REAL.unlink(path)
    return round(sorted(times)[_ROUNDS // 2], 4)


def _stub_reasons(kind: str, sync_ms: float | None) -> list[str]:
    reasons = []
    if kind in _IN_MEMORY:
        reasons.append(f"{kind} is memory: nothing in it survives a power cut.")
    if "eatmydata" in os.environ.get("LD_PRELOAD", "") or _is_mapped("libeatmydata"):
        reasons.append("libeatmydata is loaded: it turns every sync into nothing.")
    if not reasons and sync_ms is not None and sync_ms < _TOO_FAST_MS:
        reasons.append(f"a sync took {sync_ms} ms, which no disk can do: something answers in its place.")
    return reasons


def _is_mapped(library: str) -> bool:
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(library in line for line in maps)
    return False


def _file_system(place: str) -> str:
    """The type of the mounted file system, from the kernel's list of mounts; `unknown` where there is none."""
    device = os.stat(place).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            fields = line.split()
            if len(fields) > 2 and fields[2] == wanted and "-" in fields:
                return fields[fields.index("-") + 1]
    return "unknown"


def _has_flock() -> bool:
    try:
        import fcntl
    except ImportError:
        return False
    return hasattr(fcntl, "flock")
