"""A disk that fails on demand: the n-th call of a verb, once or from then on. Part of `holdfast.testing.disk`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from holdfast.durable.disk import Disk, Identity, Kind, Named, storage_error


@dataclass(frozen=True)
class Fault:
    """The `nth` call of `operation` (a verb of Disk, or `*` for any) fails with `error`; with `persistent`, all later ones too.

    A failed sync loses the writes that it was called for, as a kernel does: it says so once, and forgets them.
    """

    operation: str
    nth: int
    error: int
    persistent: bool = False


@dataclass(frozen=True)
class ShortWrite:
    """The `nth` write takes only `count` bytes; with `persistent`, all later ones too."""

    nth: int
    count: int
    persistent: bool = False


@dataclass(frozen=True)
class Call:
    """A call that was made: the verb, the path, the handle where there is one, and whether it was made to fail."""

    operation: str
    path: str
    handle: int | None
    failed: bool


class FailingDisk:
    """Another disk, some of whose calls fail as `plan` says. Notes every call; its handles are never given twice."""

    def __init__(self, disk: Disk, plan: Sequence[Fault | ShortWrite] = ()) -> None:
        self.disk = disk
        self.plan = tuple(plan)
        self.calls: list[Call] = []
        self._counts: Counter[str] = Counter()
        self._handles: dict[int, tuple[int, str]] = {}
        self._next = 1000

    def synced_again_after_failing(self) -> list[int]:
        """The handles on which a sync was tried once more after one had failed. There should be none."""
        failed: set[int] = set()
        again = []
        for call in self.calls:
            if call.operation == "sync" and call.handle is not None:
                if call.handle in failed:
                    again.append(call.handle)
                if call.failed:
                    failed.add(call.handle)
        return again

    @property
    def open_handles(self) -> int:
        """How many handles were opened and not closed."""
        return len(self._handles)

    @property
    def settled(self) -> set[str]:
        return self.disk.settled

    def resolve(self, path: str) -> str:
        return self.disk.resolve(path)

    def kind(self, path: str) -> Kind | None:
        self._meet("kind", path)
        return self.disk.kind(path)

    def modified(self, path: str) -> float:
        self._meet("modified", path)
        return self.disk.modified(path)

    def identity(self, place: str | int) -> Identity | None:
        if isinstance(place, int):
            return self.disk.identity(self._inner("identity", place))
        self._meet("identity", place)
        return self.disk.identity(place)

    def predates_start(self, path: str) -> bool:
        self._meet("predates_start", path)
        return self.disk.predates_start(path)

    def touch(self, path: str) -> None:
        self._meet("touch", path)
        self.disk.touch(path)

    def create(self, path: str, mode: int = 0o600) -> int:
        self._meet("create", path)
        return self._opened(self.disk.create(path, mode), path)

    def open(self, path: str) -> int:
        self._meet("open", path)
        return self._opened(self.disk.open(path), path)

    def open_log(self, path: str, mode: int = 0o600) -> int:
        self._meet("open_log", path)
        return self._opened(self.disk.open_log(path, mode), path)

    def imitate(self, handle: int, path: str) -> None:
        self.disk.imitate(self._inner("imitate", handle), path)

    def chmod(self, handle: int, mode: int) -> None:
        self.disk.chmod(self._inner("chmod", handle), mode)

    def size(self, handle: int) -> int:
        return self.disk.size(self._inner("size", handle))

    def read(self, handle: int, offset: int, count: int) -> bytes:
        return self.disk.read(self._inner("read", handle), offset, count)

    def write(self, handle: int, data: bytes, at: int | None = None) -> int:
        inner = self._inner("write", handle)
        for entry in self.plan:
            if isinstance(entry, ShortWrite) and _due(entry.nth, self._counts["write"], entry.persistent):
                data = data[: entry.count]
        return self.disk.write(inner, data, at)

    def truncate(self, handle: int, size: int) -> None:
        self.disk.truncate(self._inner("truncate", handle), size)

    def sync(self, handle: int, *, content_only: bool = False) -> None:
        self.disk.sync(self._inner("sync", handle), content_only=content_only)

    def close(self, handle: int) -> None:
        inner = self._handles.get(handle, (-1, ""))[0]
        try:
            self._inner("close", handle)
        finally:
            self._handles.pop(handle, None)
            self.disk.close(inner)  # an error of closing leaves the handle closed

    def rename(self, old: str, new: str, *, in_haste: bool = False) -> None:
        self._meet("rename", new)
        self.disk.rename(old, new, in_haste=in_haste)

    def unlink(self, path: str) -> None:
        self._meet("unlink", path)
        self.disk.unlink(path)

    def make_folder(self, path: str, mode: int = 0o700) -> None:
        self._meet("make_folder", path)
        self.disk.make_folder(path, mode)

    def sync_folder(self, path: str) -> None:
        self._meet("sync_folder", path)
        self.disk.sync_folder(path)

    def list(self, path: str) -> list[str]:
        self._meet("list", path)
        return self.disk.list(path)

    def scan(self, path: str) -> Sequence[Named]:
        self._meet("scan", path)
        return self.disk.scan(path)

    def remove_folder(self, path: str) -> None:
        self._meet("remove_folder", path)
        self.disk.remove_folder(path)

    def lock(self, path: str, timeout: float | None = 10.0) -> AbstractContextManager[object]:
        self._meet("lock", path)
        return self.disk.lock(path, timeout)

    def _opened(self, inner: int, path: str) -> int:
        self._next += 1
        self._handles[self._next] = (inner, path)
        return self._next

    def _inner(self, operation: str, handle: int) -> int:
        inner, path = self._handles.get(handle, (-1, f"descriptor {handle}"))
        self._meet(operation, path, handle)
        return inner

    def _meet(self, operation: str, path: str, handle: int | None = None) -> None:
        """Note the call, and fail if the plan says so."""
        self._counts[operation] += 1
        self._counts["*"] += 1
        for entry in self.plan:
            if isinstance(entry, Fault) and self._is_due(entry, operation):
                self.calls.append(Call(operation, path, handle, failed=True))
                self._fail(entry.error, operation, path, handle)
        self.calls.append(Call(operation, path, handle, failed=False))

    def _is_due(self, fault: Fault, operation: str) -> bool:
        return fault.operation in (operation, "*") and _due(fault.nth, self._counts[fault.operation], fault.persistent)

    def _fail(self, number: int, operation: str, path: str, handle: int | None) -> None:
        lose_writes: Callable[[int], None] | None = getattr(self.disk, "lose_writes", None)  # a simulated disk has it
        if operation == "sync" and handle in self._handles and lose_writes is not None:
            lose_writes(self._handles[handle][0])
        error = OSError(number, os.strerror(number), path)
        if isinstance(error, (FileNotFoundError, FileExistsError)):
            raise error
        raise storage_error(error, path, _WORDS.get(operation, operation)) from error


_WORDS = {
    "kind": "look at",
    "modified": "look at",
    "identity": "look at",
    "scan": "list",
    "remove_folder": "remove",
    "open_log": "open for writing",
    "imitate": "copy the mode of",
    "chmod": "set the mode of",
    "write": "write to",
    "truncate": "cut",
    "rename": "put in place",
    "unlink": "remove",
    "make_folder": "make folder",
    "sync_folder": "sync folder",
}


def _due(nth: int, count: int, persistent: bool) -> bool:
    return count == nth or (persistent and count > nth)
