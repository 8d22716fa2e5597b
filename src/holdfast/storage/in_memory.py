"""A backend in this process's memory: nothing survives it. For tests, and for sessions that need not be kept."""

from __future__ import annotations

import builtins
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.strict_json import decode, encode
from holdfast.errors import InputError, Locked, RevisionConflict
from holdfast.storage.backend import (
    ABSENT,
    Append,
    Change,
    Delete,
    Holder,
    Item,
    Lease,
    Mark,
    Put,
    Records,
    Stored,
    check_blob,
    check_changes,
    check_document,
    check_key,
    check_log,
    check_removal,
)


class MemoryBackend:
    """Keeps every promise of `Backend` but survival."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._documents: dict[str, tuple[bytes, int, float]] = {}
        self._logs: dict[str, tuple[list[bytes], int, float]] = {}
        self._blobs: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._leases: dict[str, Holder] = {}
        self._count = 0

    def get(self, key: str) -> Stored | None:
        with self._guard:
            found = self._documents.get(check_document(key))
            return None if found is None else Stored(found[0], f"d{found[1]}")

    def mark(self, key: str) -> Mark | None:
        with self._guard:
            if check_key(key) in self._documents:
                return f"d{self._documents[key][1]}"
            return self._end(key) if key in self._logs else None

    def read(self, key: str, *, after: Mark | None = None, limit: int | None = None) -> Records:
        with self._guard:
            lines, generation, _ = self._logs.get(check_log(key), ([], 0, 0.0))
            start = int(after.partition(":")[2]) if after is not None and generation and after.startswith(f"l{generation}:") else None
            first = start or 0
            last = len(lines) if limit is None else min(first + limit, len(lines))
            mark = self._end(key) if last == len(lines) else f"l{generation}:{last}"
            return Records(tuple(decode(line) for line in lines[first:last]), mark, (), start is None, tuple(range(first, last)))

    def last(self, key: str) -> Mapping[str, Any] | None:
        with self._guard:
            lines = self._logs.get(check_log(key), ([], 0, 0.0))[0]
            found: Mapping[str, Any] | None = decode(lines[-1]) if lines else None
            return found

    def predates_start(self, key: str) -> bool:
        check_document(key)
        return False

    def at(self, key: str, place: int) -> Mapping[str, Any] | None:
        with self._guard:
            lines = self._logs.get(check_log(key), ([], 0, 0.0))[0]
            found: Mapping[str, Any] | None = decode(lines[place]) if 0 <= place < len(lines) else None
            return found

    def write(self, *changes: Change) -> tuple[Mark, ...]:
        lines = [_lines(change.records) if isinstance(change, Append) else [] for change in changes]
        check_changes(changes)
        with self._guard:
            for change in changes:
                self._expect(change.key, change.expect)
            return tuple(self._carry_out(change, new) for change, new in zip(changes, lines, strict=True))

    def rewrite(self, key: str, records: Sequence[Mapping[str, Any]], *, expect: Mark | None = None) -> Mark:
        lines = _lines(records)
        with self._guard:
            self._expect(check_log(key), expect)
            self._logs[key] = (lines, self._next(), time.time())
            return self._end(key)

    def put_blob(self, prefix: str, data: bytes) -> str:
        name = f"sha256-{hashlib.sha256(data).hexdigest()}"
        with self._guard:
            self._blobs.setdefault((check_key(prefix), name), (bytes(data), time.time()))
        return name

    def get_blob(self, prefix: str, name: str) -> bytes | None:
        with self._guard:
            found = self._blobs.get((check_key(prefix), check_blob(name)))
            return None if found is None else found[0]

    def delete_blob(self, prefix: str, name: str) -> None:
        with self._guard:
            self._blobs.pop((check_key(prefix), check_blob(name)), None)

    def remove(self, *prefixes: str, documents: Sequence[str] = ()) -> int:
        check_removal(prefixes, documents)
        with self._guard:
            gone = [item for item in self.list() if item.key in documents or item.key.startswith(prefixes)]
            for item in gone:
                below, _, name = item.key.rpartition("/")
                self._documents.pop(item.key, None)
                self._logs.pop(item.key, None)
                self._blobs.pop((below, name), None)
            return len(gone)

    def list(self, prefix: str = "") -> Iterator[Item]:
        with self._guard:
            items = [Item(key, "document", len(data), at) for key, (data, _, at) in self._documents.items()]
            items += [Item(key, "log", sum(map(len, lines)), at) for key, (lines, _, at) in self._logs.items()]
            items += [Item(f"{below}/{name}", "blob", len(data), at) for (below, name), (data, at) in self._blobs.items()]
        yield from sorted((item for item in items if item.key.startswith(prefix)), key=lambda item: item.key)

    def glance(self, key: str) -> str | None:
        return self.mark(key)

    def children(self, folder: str) -> Iterator[str]:
        start = f"{check_key(folder)}/"
        yield from sorted({item.key.removeprefix(start).partition("/")[0] for item in self.list(start)})

    def recent(self, folder: str, *endings: str) -> Sequence[tuple[str, float]]:
        start, found = f"{check_key(folder)}/", dict[str, float]()
        for item in self.list(start):
            for ending in endings:
                name = item.key.removeprefix(start).removesuffix(ending)
                if item.key == f"{start}{name}{ending}" and "/" not in name:
                    found[name] = max(item.modified, found.get(name, 0.0))
        return sorted(found.items(), key=lambda one: (one[1], one[0]), reverse=True)

    @contextmanager
    def locked(self, key: str, timeout: float | None = 10.0) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(check_key(key), threading.Lock())
        if not lock.acquire(timeout=-1 if timeout is None else timeout):
            raise Locked(f"{self.where(key)} is being changed by somebody else.", path=key)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def lease(self, key: str, *, holder: str | None = None) -> Iterator[Lease]:
        now = stamp(self._clock.now())
        mine = Holder(holder or f"process-{os.getpid()}", socket.gethostname(), os.getpid(), now, now)
        with self._guard:
            if (other := self._leases.get(check_key(key))) is not None:
                raise Locked(f"{self.where(key)} is held by {other}.", path=key, owner=str(other))
            self._leases[key] = mine
        try:
            yield Lease(key, mine)
        finally:
            with self._guard:
                self._leases.pop(key, None)

    @contextmanager
    def idle(self, keys: Sequence[str]) -> Iterator[Sequence[str]]:
        with ExitStack() as stack:
            free = []
            for key in keys:
                with suppress(Locked):
                    stack.enter_context(self.lease(key))
                    free.append(key)
            yield free

    def holder(self, key: str) -> Holder | None:
        with self._guard:
            return self._leases.get(check_key(key))

    def set_aside(self, key: str) -> str:
        with self._guard:
            found = self._documents.pop(check_key(key), None)
            log = self._logs.pop(key, None)
            if found is None and log is None:
                raise InputError(f"there is nothing under {key!r} to set aside.")
            name = f"{key}.damaged-{self._next()}"
            self._documents[name] = found or (b"".join(log[0] if log else []), self._count, time.time())
            return name

    def sweep(self, prefix: str = "", *, holding: Callable[[bytes], bool] | None = None) -> Sequence[str]:
        return ()

    def where(self, key: str) -> str:
        return f"memory:{key}"

    def close(self) -> None:
        """Nothing to give back."""

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _end(self, key: str) -> Mark:
        if key not in self._logs:
            return ABSENT
        lines, generation, _ = self._logs[key]
        return f"l{generation}:{len(lines)}"

    def _expect(self, key: str, expect: Mark | None) -> None:
        if expect is None:
            return
        found = self.mark(key)
        if found != (None if expect == ABSENT else expect):
            raise RevisionConflict(f"{self.where(key)} was changed by somebody else.", path=key, expected=expect, found=found)

    def _carry_out(self, change: Change, lines: builtins.list[bytes]) -> Mark:
        match change:
            case Put(key, data):
                self._documents[key] = (bytes(data), self._next(), time.time())
                return f"d{self._count}"
            case Append(key, _):
                held, generation, _at = self._logs.get(key, ([], 0, 0.0))
                self._logs[key] = ([*held, *lines], generation or self._next(), time.time())
                return self._end(key)
            case Delete(key):
                self._documents.pop(key, None)
                self._logs.pop(key, None)
                return ABSENT


def _lines(records: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return [encode(record) for record in records]
