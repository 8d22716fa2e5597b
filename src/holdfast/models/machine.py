"""What this machine has to offer to a local model: cores and free memory, as far as the system lets us have them."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def sensible_threads() -> int:
    """One thread under pytest, else one for each physical core.

    More threads than free cores make llama.cpp slower than one: all of them wait for the one that lost its core.
    """
    return 1 if "PYTEST_VERSION" in os.environ else physical_cores()


def physical_cores() -> int:
    """The physical cores that this process may use, within the limit of its control group."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    siblings = {_read(_CPUS / f"cpu{cpu}/topology/core_cpus_list") or str(cpu) for cpu in allowed}
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return max(1, min(len(siblings), math.ceil(int(quota) / int(period))))
    return max(1, len(siblings))


def available_memory() -> int | None:
    """Bytes that can be taken without swapping or hitting the limit of the control group; None where that is not told."""
    free = [int(line.split()[1]) * 1024 for line in _read(_MEMINFO).splitlines() if line.startswith("MemAvailable:")]
    most, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if most.isdigit() and used.isdigit():
        free.append(int(most) - int(used))
    return min(free, default=None)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""  # not Linux, or not told: the caller has a fallback
