"""Disks for tests: one that loses what was not synced, and one that fails on demand. Both pass the contract suite of `Disk`.

    disk = SimulatedDisk(seed=7, cut_at=12)       # the power goes at the twelfth call
    with suppress(PowerCut):
        replace("/notes.txt", b"new", disk=disk)
    after = disk.crash()                          # what the next start finds

What `crash` does is what power cuts were seen to do to real file systems: a random part of the unsynced writes is there, torn
between sectors, in any order; a file may have its new length and NUL bytes in place of its content; a rename may be done though
the content of the renamed file is not; any of the unsynced names may be missing. What was synced is there, always.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.durable.disk import Identity, Kind, Named, storage_error
from holdfast.errors import Locked

_NUMBERS = itertools.count(1)


class PowerCut(BaseException):
    """The power is gone. Not an Exception: nothing that a program does about errors helps against it."""


@dataclass(eq=False)
class _File:
    """A file: what readers see, what the disk has, and the changes that lie between the two."""

    mode: int = 0o600
    seen: bytes = b""
    kept: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, data), or (size, None) for a cut
    changed: float = 0.0
    number: int = field(default_factory=lambda: next(_NUMBERS))  # as an inode has one, and never given twice
    version: int = 0
    survived: bool = False
    """Whether it was last written before the power went."""


@dataclass(eq=False)
class _Folder:
    """A folder: the names that readers see, and the names that the disk has."""

    seen: dict[str, _File | _Folder] = field(default_factory=dict)
    kept: dict[str, _File | _Folder] = field(default_factory=dict)
    number: int = field(default_factory=lambda: next(_NUMBERS))
    version: int = 0


_Node = _File | _Folder
_AnyNode = TypeVar("_AnyNode", _File, _Folder)


@dataclass(frozen=True, eq=False)
class _Change:
    """A change of names that is not on the disk yet. A rename takes one name away and gives another in one step."""

    node: _Node
    taken: tuple[_Folder, str] | None
    given: tuple[_Folder, str] | None

    def apply(self) -> None:
        if self.taken is not None and self.taken[0].kept.get(self.taken[1]) is self.node:
            del self.taken[0].kept[self.taken[1]]
        if self.given is not None:
            self.given[0].kept[self.given[1]] = self.node

    def touches(self, folder: _Folder) -> bool:
        return any(side is not None and side[0] is folder for side in (self.taken, self.given))


class SimulatedDisk:
    """A disk in memory that keeps apart what is written and what is synced.

    With `cut_at=n` the n-th call raises PowerCut, and so does every later one. `crash()` then gives the disk as it is after the
    power came back, `kill()` as it is when only the process died. The same seed gives the same ruins.
    """

    def __init__(self, seed: int = 0, *, cut_at: int | None = None, sector: int = 512) -> None:
        self.random = random.Random(seed)  # noqa: S311  # reproducible, and no secret
        self.cut_at = cut_at
        self.sector = sector
        self.calls = 0
        self._root = _Folder()
        self._changes: list[_Change] = []
        self._open: dict[int, tuple[_File, str]] = {}
        self._next = 3
        self._locks: dict[str, threading.Lock] = {}
        self._settled: set[str] = set()
        self._dead = False

    # The end of a process, and of the power

    def crash(self, *, cut_at: int | None = None) -> SimulatedDisk:
        """The disk after a power cut. This one is dead from now on."""
        for change in self._changes:
            if self.random.random() < 0.5:
                change.apply()
        after = self._successor(cut_at)
        for folder in _folders(after._root):
            folder.seen = dict(folder.kept)
            for node in folder.kept.values():
                if isinstance(node, _File) and node.pending:
                    node.kept = self._ruin(node)
                    node.pending = []
                if isinstance(node, _File):
                    node.seen = node.kept
                    node.version += 1
                    node.survived = True
        return after

    def kill(self, *, cut_at: int | None = None) -> SimulatedDisk:
        """The disk after the process was killed: everything that was written can be read, and is no more synced than before."""
        after = self._successor(cut_at)
        after._changes = self._changes
        return after

    def _successor(self, cut_at: int | None) -> SimulatedDisk:
        after = SimulatedDisk(self.random.randrange(2**32), cut_at=cut_at, sector=self.sector)
        after._root = self._root
        self._dead = True
        return after

    def _ruin(self, file: _File) -> bytes:
        """Some of the unsynced writes, sector by sector; the length of one moment with the content of others."""
        way = self.random.random()
        if way < 0.15:
            return file.kept
        states = [file.kept]
        for change in file.pending:
            states.append(_applied(states[-1], change))
        if way < 0.3:
            return states[-1]
        size = len(self.random.choice(states))
        if way < 0.45:  # the length reached the disk, the data did not
            return file.kept[:size].ljust(size, b"\0")
        sectors = []
        for begin in range(0, size, self.sector):
            state = self.random.choice(states)
            length = min(self.sector, size - begin)
            sectors.append(state[begin : begin + length].ljust(length, b"\0"))
        return b"".join(sectors)

    def lose_writes(self, handle: int) -> None:
        """What a kernel does after a failed sync: the unsynced writes stay readable, and will never reach the disk."""
        self._file(handle).pending.clear()

    def mode(self, path: str) -> int:
        """The permission bits of a file."""
        return self._need_file(path).mode

    # The verbs of `Disk`

    @property
    def settled(self) -> set[str]:
        return self._settled

    def resolve(self, path: str) -> str:
        return posixpath.normpath(posixpath.join("/", path))

    def kind(self, path: str) -> Kind | None:
        self._tick()
        node = self._find(path)
        return None if node is None else "file" if isinstance(node, _File) else "folder"

    def modified(self, path: str) -> float:
        self._tick()
        return self._need_file(path).changed

    def identity(self, place: str | int) -> Identity | None:
        self._tick()
        node = self._file(place) if isinstance(place, int) else self._find(place)
        if node is None:
            return None
        if isinstance(node, _Folder):
            return Identity((node.number, node.version), settled=True)
        return Identity((node.number, len(node.seen), node.version), settled=True)

    def predates_start(self, path: str) -> bool:
        self._tick()
        return self._need_file(path).survived

    def touch(self, path: str) -> None:
        self._tick()
        file = self._need_file(path)
        file.version += 1
        file.changed = float(self.calls)

    def create(self, path: str, mode: int = 0o600) -> int:
        self._tick()
        folder, name = self._place(path)
        if name in folder.seen:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return self._opened(self._add(folder, name, _File(mode=mode)), path)

    def open(self, path: str) -> int:
        self._tick()
        return self._opened(self._need_file(path), path)

    def open_log(self, path: str, mode: int = 0o600) -> int:
        self._tick()
        if self._find(path) is None:
            folder, name = self._place(path)
            return self._opened(self._add(folder, name, _File(mode=mode)), path)
        return self._opened(self._need_file(path, "open for writing"), path)

    def imitate(self, handle: int, path: str) -> None:
        self._tick()
        self._file(handle).mode = self._need_file(path).mode

    def chmod(self, handle: int, mode: int) -> None:
        self._tick()
        self._file(handle).mode = mode

    def size(self, handle: int) -> int:
        self._tick()
        return len(self._file(handle).seen)

    def read(self, handle: int, offset: int, count: int) -> bytes:
        self._tick()
        return self._file(handle).seen[offset : offset + count]

    def write(self, handle: int, data: bytes, at: int | None = None) -> int:
        self._tick()
        file = self._file(handle)
        self._change(file, (len(file.seen) if at is None else at, bytes(data)))
        return len(data)

    def truncate(self, handle: int, size: int) -> None:
        self._tick()
        self._change(self._file(handle), (size, None))

    def sync(self, handle: int, *, content_only: bool = False) -> None:
        self._tick()
        file = self._file(handle)
        for change in file.pending:
            file.kept = _applied(file.kept, change)
        file.pending.clear()

    def close(self, handle: int) -> None:
        self._tick()
        self._file(handle)
        del self._open[handle]

    def rename(self, old: str, new: str, *, in_haste: bool = False) -> None:
        self._tick()
        source, name = self._place(old)
        target, new_name = self._place(new)
        if name not in source.seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        if isinstance(target.seen.get(new_name), _Folder):
            raise self._fault(errno.EISDIR, new, "put in place")
        node = source.seen.pop(name)
        target.seen[new_name] = node
        source.version += 1
        target.version += 1
        self._changes.append(_Change(node, (source, name), (target, new_name)))

    def unlink(self, path: str) -> None:
        self._tick()
        node = self._need_file(path, "remove")
        self._take_away(path, node)

    def make_folder(self, path: str, mode: int = 0o700) -> None:
        self._tick()
        folder, name = self._place(path)
        if name in folder.seen:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._add(folder, name, _Folder())

    def sync_folder(self, path: str) -> None:
        self._tick()
        folder = self._need_folder(path)
        for change in self._changes:
            if change.touches(folder):
                change.apply()
        self._changes = [change for change in self._changes if not change.touches(folder)]

    def list(self, path: str) -> list[str]:
        self._tick()
        return sorted(self._need_folder(path).seen)

    def scan(self, path: str) -> Sequence[Named]:
        self._tick()
        return [
            Named(name, "file", len(node.seen), node.changed, link=False)
            if isinstance(node, _File)
            else Named(name, "folder", 0, 0.0, link=False)
            for name, node in sorted(self._need_folder(path).seen.items())
        ]

    def remove_folder(self, path: str) -> None:
        self._tick()
        node = self._find(path)
        if isinstance(node, _Folder) and not node.seen:
            self._take_away(path, node)
            self._settled.discard(self.resolve(path))

    def lock(self, path: str, timeout: float | None = 10.0) -> AbstractContextManager[object]:
        return self._locked(path, -1 if timeout is None else timeout)

    # Below the verbs

    @contextmanager
    def _locked(self, path: str, timeout: float) -> Iterator[None]:
        self._tick()
        lock = self._locks.setdefault(path, threading.Lock())
        if not lock.acquire(timeout=timeout):
            raise Locked(f"{path} is held by another thread.", path=path, owner=f"process {os.getpid()}")
        try:
            yield
        finally:
            lock.release()

    def _tick(self) -> None:
        self.calls += 1
        if self._dead or (self.cut_at is not None and self.calls >= self.cut_at):
            raise PowerCut

    def _change(self, file: _File, change: tuple[int, bytes | None]) -> None:
        file.seen = _applied(file.seen, change)
        file.pending.append(change)
        file.version += 1
        file.survived = False
        file.changed = float(self.calls)

    def _add(self, folder: _Folder, name: str, node: _AnyNode) -> _AnyNode:
        folder.seen[name] = node
        folder.version += 1
        self._changes.append(_Change(node, None, (folder, name)))
        return node

    def _take_away(self, path: str, node: _Node) -> None:
        folder, name = self._place(path)
        del folder.seen[name]
        folder.version += 1
        self._changes.append(_Change(node, (folder, name), None))

    def _opened(self, file: _File, path: str) -> int:
        self._next += 1
        self._open[self._next] = (file, path)
        return self._next

    def _file(self, handle: int) -> _File:
        if handle not in self._open:
            raise self._fault(errno.EBADF, f"descriptor {handle}", "use")
        return self._open[handle][0]

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for part in self.resolve(path).split("/")[1:]:
            if part and node is not None:
                if isinstance(node, _File):
                    raise self._fault(errno.ENOTDIR, path, "look at")
                node = node.seen.get(part)
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        folder, name = posixpath.split(self.resolve(path))
        return self._need_folder(folder), name

    def _need_file(self, path: str, operation: str = "open") -> _File:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Folder):
            raise self._fault(errno.EISDIR, path, operation)
        return node

    def _need_folder(self, path: str) -> _Folder:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _File):
            raise self._fault(errno.ENOTDIR, path, "open")
        return node

    def _fault(self, number: int, path: str, operation: str) -> Exception:
        cause = OSError(number, os.strerror(number), path)
        error = storage_error(cause, path, operation)
        error.__cause__ = cause
        return error


def _applied(content: bytes, change: tuple[int, bytes | None]) -> bytes:
    at, data = change
    if data is None:
        return content[:at].ljust(at, b"\0")
    return content[:at].ljust(at, b"\0") + data + content[at + len(data) :]


def _folders(folder: _Folder) -> Iterator[_Folder]:
    """All folders that the disk has, from the top."""
    yield folder
    for node in folder.kept.values():
        if isinstance(node, _Folder):
            yield from _folders(node)
