"""How much room the files of one thread may take on the disk, also while a command writes them (`sandbox.max_bytes`).

What counts is what the disk holds for everything below `user-data`: blocks, so that a sparse file counts for what it really takes, each
file once however many names it has, and also files that were removed and are still held open. Folders that are mounted are the user's own
and do not count. Counting walks the tree, which takes time; between two counts the free space of the file system says how much the tree
can have grown at most.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.durable.folder import Folder
from holdfast.durable.tree import Tree
from holdfast.errors import QuotaExceeded

_PROC = Path("/proc")
_BLOCK = 512
_SLICE = 0.05  # seconds that one look may take: time limit and output of the command are looked at in between
_EVERY = 2.0
_MAPPED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) +(/.*) \(deleted\)$", re.MULTILINE)
_INSIDE = "/mnt/user-data/"


class DiskQuota:
    """The room of one thread. `limit` in bytes; without one nothing is ever counted or refused. Safe for many threads.

    Close it when done: it keeps the folder open.
    """

    def __init__(self, data: Folder, limit: int | None) -> None:
        self.limit = limit
        self._data = data.folder(".")
        self._lock = threading.Lock()
        self._counted: int | None = None
        self._free = 0
        self._written = 0

    def used(self) -> int:
        """What the files take now, counted."""
        free = self.free()
        total = max(self.counting())
        self.note(total, free)
        return total

    def estimate(self) -> int:
        """What they take at most by now, as far as the free space tells; counted if they never were."""
        with self._lock:
            if self._counted is not None:
                return self._counted + max(self._free - self.free(), self._written, 0)
        return self.used()

    def check(self, more: int) -> None:
        """Raise QuotaExceeded if `more` bytes would not fit. What takes nothing more always fits."""
        if self.limit is None or more <= 0:
            return
        if self.estimate() + more > self.limit and (used := self.used()) + more > self.limit:
            raise QuotaExceeded(
                f"the files of this thread would take {used + more:,} bytes, and {self.limit:,} are allowed.",
                hint="Remove files that are not needed any more, or raise `sandbox.max_bytes`.",
            )
        with self._lock:
            self._written += more

    def watch(self) -> QuotaWatch | None:
        """Looks after one command; None without a limit."""
        return None if self.limit is None else QuotaWatch(self, self.limit)

    def counting(self) -> Iterator[int]:
        """The sum so far, after each file; the last one is the result."""
        total = 0
        seen: set[tuple[int, int]] = set()
        with self._data.folder(".") as data, Tree.at(data.descriptor) as tree:
            for entry in tree.walk({}):
                facts = entry.facts
                if facts is None:
                    continue
                if facts.st_nlink > 1 and not stat.S_ISDIR(facts.st_mode):
                    if (facts.st_dev, facts.st_ino) in seen:
                        continue
                    seen.add((facts.st_dev, facts.st_ino))
                total += blocks(facts)
                yield total
        yield total

    def free(self) -> int:
        """The free space of the file system that the files are on."""
        found = os.fstatvfs(self._data.descriptor)
        return found.f_bfree * found.f_frsize

    def nameless(self, processes: Iterator[int]) -> int:
        """What the files take that have no name any more and are held by these processes, open or mapped into memory."""
        places = (f"{self._data.path}/", _INSIDE)
        device = os.fstat(self._data.descriptor).st_dev
        found: dict[int, int] = {}
        for process in processes:
            with suppress(OSError):  # ended meanwhile, or not ours to look at
                for one in (_PROC / str(process) / "fd").iterdir():
                    with suppress(OSError):
                        name = str(one.readlink())
                        facts = one.stat() if name.endswith(" (deleted)") else None
                        if facts is not None and stat.S_ISREG(facts.st_mode) and (facts.st_dev == device or name.startswith(places)):
                            found[facts.st_ino] = blocks(facts)
            with suppress(OSError):
                for start, end, inode, path in _MAPPED.findall((_PROC / str(process) / "maps").read_bytes()):
                    if os.fsdecode(path).startswith(places):
                        found.setdefault(int(inode), int(end, 16) - int(start, 16))
        return sum(found.values())

    def note(self, total: int, free: int) -> None:
        """The tree was counted, and this much space was free when that began."""
        with self._lock:
            self._counted, self._free, self._written = total, free, 0

    def close(self) -> None:
        self._data.close()


class QuotaWatch:
    """Looks ten times a second whether a command has written too much. For one thread.

    Where the files took too much before the command began it may remove, and write nothing (`is_full`): how could it make room otherwise?
    """

    def __init__(self, quota: DiskQuota, limit: int) -> None:
        self._quota = quota
        self._counted, self._free = quota.estimate(), quota.free()
        if self._counted >= limit:
            self._counted = quota.used()
        self.is_full = self._counted >= limit
        self._limit = max(limit, self._counted)
        self._walk: Iterator[int] | None = None
        self._began = self._began_free = 0.0
        self._next, self._not_before = 0.0, 0.0

    def is_over(self, processes: Iterator[int]) -> bool:
        """Whether it is too much now. `processes` are those of the command: what they hold open counts, also without a name."""
        now = time.monotonic()
        if self._walk is None:
            grown = self._counted + max(self._free - self._quota.free(), 0) > self._limit
            if now < (self._not_before if grown else self._next):
                return False
            self._began, self._began_free, self._walk = now, self._quota.free(), self._quota.counting()
        total = 0
        for total in self._walk:
            if total > self._limit:
                return True
            if time.monotonic() - now > _SLICE:
                return False  # goes on with the next look
        took = time.monotonic() - self._began
        self._walk = None
        self._next, self._not_before = now + max(_EVERY, 20 * took), now + 2 * took
        self._counted, self._free = total + self._quota.nameless(processes), int(self._began_free)
        return self._counted > self._limit

    def close(self) -> None:
        """The command is over: what it wrote is counted when somebody next asks."""
        self._quota.note(self._counted, self._free)


def blocks(facts: os.stat_result) -> int:
    """The bytes that something takes on the disk."""
    return getattr(facts, "st_blocks", -(-facts.st_size // _BLOCK)) * _BLOCK
