"""The backend in a folder: a key is a file that a person can read, and may edit (W2, M2, M6).

Documents are replaced as a whole, logs are JSON Lines with a checksum in each, blobs lie under their hash. Only `Disk` is used, so that
what is shown with a disk that loses its power or fails on demand holds for the machine's own.

A lease is a lock of the kernel's that ends with its process, and a note beside it that says who holds it. The note is for people and for
`Locked`; whether the holder lives is asked of the lock alone, so a dead one is taken over at once.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace as changed
from datetime import UTC, datetime
from functools import lru_cache, partial
from os import PathLike
from typing import Any, TypeVar

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable import strict_json
from holdfast.durable.append import AppendLog
from holdfast.durable.disk import REAL, Disk, closing, make_folders, read_whole
from holdfast.durable.log_records import line_of
from holdfast.durable.replace import Blobs, Draft, is_temp, read_json, replace, set_aside, temp_name, write_new
from holdfast.errors import Damaged, InputError, Locked, NotWritable, RevisionConflict, StorageError, SyncFailed, WriteFailed
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.storage.backend import (
    ABSENT,
    LEASE_LOCK,
    LEASE_NOTE,
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
    check_changes,
    check_document,
    check_key,
    check_log,
    check_removal,
    held_by,
    is_key,
    is_log,
    this_process,
)
from holdfast.storage.pending import PendingSteps, mark_of
from holdfast.storage.places import OF_AGENTS, PENDING, Places

T = TypeVar("T")
_LOGS = 256  # logs that are kept ready for the next append
_MARKS = 1024
_VIEW_BEHIND = "What was changed is kept; only this file, which people read, is behind, and is written again when that is possible."
_LEFT_BEHIND = 3600.0  # seconds: a replacing takes milliseconds, so an older draft belongs to nobody
_READINGS = 5
_PATIENCE = 0.25  # seconds: somebody who only looks whether a lease is held has it for a moment
_UNKNOWN: Mark = "unknown"  # of a log whose end could not be looked at, or of a put without one: stands for nothing, so all is read anew


class FileBackend:
    """Keeps every promise of `Backend` below `root`, with files of mode 0600 in folders of mode 0700.

    `places` puts some keys elsewhere (see `Places`); `timeout` is how many seconds a write waits for other writers of its keys; `beat` how
    often the holder of a lease gives a sign of life. Backends over different roots that share a place exclude each other there, but finish
    only what was begun below their own root.
    """

    def __init__(
        self,
        root: str | PathLike[str],
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        places: Mapping[str, str] | None = None,
        timeout: float | None = 10.0,
        beat: float = 5.0,
        bus: Bus | None = None,
    ) -> None:
        self.disk = disk
        self.clock = clock or SystemClock()
        self.bus = bus or process_bus
        self._places = Places(os.fspath(root), places or {}, disk)
        self._path_of = lru_cache(maxsize=_MARKS)(self._places.path)
        self._timeout = timeout
        self._beat = beat
        self._pending = PendingSteps(f"{self._places.root}/{PENDING}", self)
        self._guard = threading.Lock()
        self._logs: OrderedDict[str, AppendLog] = OrderedDict()
        self._marks: OrderedDict[str, tuple[tuple[int, ...], Mark]] = OrderedDict()

    # Reading

    def get(self, key: str) -> Stored | None:
        path = self.path(check_document(key))
        self._finish_if_abandoned(key)
        return self._read(path)

    def mark(self, key: str) -> Mark | None:
        self.path(key)  # refuses what is no key
        self._finish_if_abandoned(key)
        return self.standing(key)

    def glance(self, key: str) -> str | None:
        identity = self.disk.identity(self.path(check_key(key)))
        return None if identity is None else str(identity.facts)

    def read(self, key: str, *, after: Mark | None = None, limit: int | None = None) -> Records:
        log = self.log(check_log(key))
        self._finish_if_abandoned(key)
        found = log.read(after, limit)
        if found.damage and found.damage[-1].tail:  # an append that is under way looks like that too: look again when nobody writes
            with suppress(Locked, NotWritable), self.writing([key], 0.5):
                found = log.read(after, limit)
            if found.damage and found.damage[-1].tail and self._is_busy(key):
                lasting = [at for at, one in enumerate(found.damage) if not one.tail]
                found = changed(found, damage=tuple(found.damage[at] for at in lasting), torn=tuple(found.torn[at] for at in lasting))
        damage = tuple(f"{self.where(key)}, byte {one.position}, {one.length} bytes: {one.reason}" for one in found.damage)
        return Records(found.records, found.mark or ABSENT, damage, found.whole, found.positions, found.torn)

    def last(self, key: str) -> Mapping[str, Any] | None:
        self._finish_if_abandoned(check_log(key))
        return self.log(key).last()

    def predates_start(self, key: str) -> bool:
        try:
            return self.disk.predates_start(self.path(check_document(key)))
        except FileNotFoundError:
            return False

    def at(self, key: str, place: int) -> Mapping[str, Any] | None:
        try:
            return self.log(check_log(key)).read_at(place)
        except Damaged:
            return None

    # Writing

    def write(self, *changes: Change) -> tuple[Mark, ...]:
        check_changes(changes)
        if not changes:
            return ()
        lasting = [change for change in changes if not (isinstance(change, Put) and not change.durable)]
        for change in lasting:
            if isinstance(change, Append) and len(lasting) > 1:
                [line_of(record) for record in change.records]  # refuses what has no form in JSON before anything is written down
        keys = [change.key for change in lasting]  # a view needs no lock: it is replaced in one step, and people take none
        return self._alone(keys, lambda: self._write(changes, lasting))

    def _write(self, changes: Sequence[Change], lasting: Sequence[Change]) -> tuple[Mark, ...]:
        for change in changes:
            if change.expect is not None and (len(lasting) > 1 or not isinstance(change, Append)):
                self._expect(change.key, change.expect)  # a lone append looks at the end of its log anyway
        if len(lasting) > 1:
            self._pending.carry_out(lasting)
        elif lasting:
            self._carry_out(lasting[0])
        if len(changes) > len(lasting):
            try:
                self._put_views([change for change in changes if isinstance(change, Put) and not change.durable])
            except WriteFailed as error:
                if lasting:
                    error.hint = _VIEW_BEHIND
                raise
        return tuple([self._new_mark(change) for change in changes])

    def rewrite(self, key: str, records: Sequence[Mapping[str, Any]], *, expect: Mark | None = None) -> Mark:
        log = self.log(check_log(key))

        def rewritten() -> Mark:
            self._expect(key, expect)
            try:
                return log.rewrite(records)
            except SyncFailed:
                self._renew(key)
                raise

        return self._alone([key], rewritten)

    def set_aside(self, key: str) -> str:
        path = self.path(check_key(key))
        try:
            kept = self._alone([key], lambda: set_aside(path, disk=self.disk, clock=self.clock))
        except FileNotFoundError:
            raise InputError(f"there is nothing at {path} to set aside.") from None
        return f"{key}{kept.removeprefix(self.disk.resolve(path))}"

    # Blobs

    def put_blob(self, prefix: str, data: bytes) -> str:
        return self._blobs(prefix).put(data)

    def get_blob(self, prefix: str, name: str) -> bytes | None:
        try:
            return self._blobs(prefix).get(name)
        except FileNotFoundError:
            return None

    def delete_blob(self, prefix: str, name: str) -> None:
        self._blobs(prefix).remove(name)

    # All keys

    def list(self, prefix: str = "") -> Iterator[Item]:
        if self._pending.are_there():
            self._pending.finish_if_abandoned(None)
        yield from self._places.items(prefix)

    def children(self, folder: str) -> Iterator[str]:
        if self._pending.are_there():
            self._pending.finish_if_abandoned(None)
        yield from self._places.children(folder)

    def recent(self, folder: str, *endings: str) -> Sequence[tuple[str, float]]:
        if self._pending.are_there():
            self._pending.finish_if_abandoned(None)
        return self._places.recent(folder, endings)

    def remove(self, *prefixes: str, documents: Sequence[str] = ()) -> int:
        check_removal(prefixes, documents)
        if self._pending.are_there():
            self._pending.finish_if_abandoned(None)
        synced: set[str] = set()
        gone = sum(self._unlink(key, synced) for key in documents)
        self._sync(synced)
        aside = []
        for prefix in prefixes:
            if (moved := self._put_aside(prefix, synced)) is not None:
                gone += self._places.count(prefix, moved)
                aside.append(moved)
            else:
                gone += self._remove_one_by_one(prefix)
        self._sync(synced)
        for moved in aside:  # what a crash leaves of it is nobody's, and `prune` removes it
            self._clear(moved)
        return gone

    def _sync(self, folders: set[str]) -> None:
        while folders:
            self.disk.sync_folder(folders.pop())

    def _unlink(self, key: str, changed_folders: set[str]) -> int:
        """Remove a document, whose folder is to be synced then: also where it is gone, because whoever removed it may have died before."""
        path = self.disk.resolve(self.path(key))

        def unlink() -> int:
            try:
                self.disk.unlink(path)
            except FileNotFoundError:
                return 0
            return 1

        if self.disk.kind(folder := os.path.dirname(path)) == "folder":  # noqa: PTH120
            changed_folders.add(folder)
        return self._alone([key], unlink)

    def _put_aside(self, prefix: str, changed_folders: set[str]) -> str | None:
        """Give the folder of a prefix a name that is nobody's, in one step, and say which; the folder above is to be synced then.

        None where that cannot be done: it is not there, it is only linked there, or keys below it have their files elsewhere.
        """
        folder = self._places.folder(prefix)
        above, _, name = folder.rpartition("/")
        above = self.disk.resolve(f"{above}/{name}x").rpartition("/")[0]
        if self._places.are_moved(prefix) or self.disk.resolve(folder) != f"{above}/{name}":
            return None
        moved = f"{above}/{temp_name()}"
        with self._guard:
            for path in [path for path in self._logs if path.startswith(f"{folder}/")]:
                self._logs.pop(path).close()
        try:
            self.disk.rename(folder, moved)
        except FileNotFoundError:
            return None
        self.disk.settled.clear()
        changed_folders.add(above)
        return moved

    def _remove_one_by_one(self, prefix: str) -> int:
        items = [*self._places.items(prefix)]
        for item in items:
            below, _, name = item.key.rpartition("/")
            if item.kind == "blob":
                self.delete_blob(below, name)
            else:
                self.write(Delete(item.key))
        self._clear(self._places.folder(prefix))
        return len(items)

    def sweep(self, prefix: str = "", *, holding: Callable[[bytes], bool] | None = None) -> Sequence[str]:
        now = self.clock.now().timestamp()
        removed = []
        folder = self._places.folder(f"{prefix.rpartition('/')[0]}/") if "/" in prefix else self._places.root
        for path, name, modified in self._files_below(folder):
            if not is_temp(name):
                continue
            with suppress(FileNotFoundError):  # its writer came to its end after all
                if now - modified >= _LEFT_BEHIND or (holding is not None and holding(read_whole(self.disk, path))):
                    self.disk.unlink(path)
                    self.disk.sync_folder(os.path.dirname(path))  # noqa: PTH120 - paths of a Disk are texts
                    removed.append(path)
        return removed

    # Who may

    @contextmanager
    def locked(self, key: str, timeout: float | None = 10.0) -> Iterator[None]:
        path = self.disk.resolve(self.path(key))
        make_folders(self.disk, os.path.dirname(path), durable=False)  # noqa: PTH120
        with self.disk.lock(f"{path}.step.lock", timeout):
            yield

    def lease(self, key: str, *, holder: str | None = None) -> AbstractContextManager[Lease]:
        folder = self._places.folder(f"{check_key(key)}/")
        return _held_lease(key, folder, name=holder, disk=self.disk, clock=self.clock, beat=self._beat)

    @contextmanager
    def idle(self, keys: Sequence[str]) -> Iterator[Sequence[str]]:
        with ExitStack() as stack:
            free = []
            for key in keys:
                folder = self._places.folder(f"{check_key(key)}/")
                with suppress(Locked):
                    stack.enter_context(self.disk.lock(f"{folder}/{LEASE_LOCK}", _PATIENCE))
                    free.append(key)
            yield free

    def holder(self, key: str) -> Holder | None:
        return _live_holder(self._places.folder(f"{check_key(key)}/"), self.disk)

    def where(self, key: str) -> str:
        return self.path(key)

    def close(self) -> None:
        """Give back the logs that are held open because they are growing. They open again when they are needed."""
        with self._guard:
            while self._logs:
                self._logs.popitem()[1].close()

    # What a step of several changes needs; see `pending.Files`

    def path(self, key: str) -> str:
        """The file of a key."""
        return self._path_of(key)

    def log(self, key: str) -> AppendLog:
        """The log of a key, kept ready: its end need not be looked for at every append."""
        path = self.path(key)
        with self._guard:
            log = self._logs.pop(path, None) or AppendLog(path, disk=self.disk, locking=False)
            self._logs[path] = log
            if len(self._logs) > _LOGS:
                self._logs.popitem(last=False)  # closes itself when nobody writes to it any more
            return log

    def standing(self, key: str) -> Mark | None:
        """The mark of what is there now: by the file's identity where that is certain, else by its content."""
        path = self.path(key)
        if is_log(key):
            return self.log(key).mark()
        identity = self.disk.identity(path)
        if identity is None:
            return None
        known = self._marks.get(path)
        if known is not None and identity.settled and known[0] == identity.facts:
            return known[1]
        stored = self._read(path)
        return None if stored is None else stored.mark

    def writing(self, keys: Sequence[str], timeout: float | None) -> AbstractContextManager[object]:
        """Keeps all other writers of these keys out. In one order for everybody, so that no two wait for each other."""
        if len(keys) == 1:
            return self.disk.lock(f"{self.disk.resolve(self.path(keys[0]))}.lock", timeout)
        with ExitStack() as stack:
            for path in sorted({self.disk.resolve(self.path(key)) for key in keys}):
                stack.enter_context(self.disk.lock(f"{path}.lock", timeout))
            return stack.pop_all()

    # Inside

    def _alone(self, keys: Sequence[str], work: Callable[[], T]) -> T:
        """What the work gives, which is done while other writers are kept out and everything is finished that others began and left."""
        while True:
            with self.writing(keys, self._timeout):
                if self._pending.are_clear(keys):
                    return work()
            self._pending.finish(self._pending.touching(keys), timeout=self._timeout)

    def _finish_if_abandoned(self, key: str) -> None:
        if self._pending.are_there():
            self._pending.finish_if_abandoned([key])

    def _read(self, path: str) -> Stored | None:
        for _ in range(_READINGS):
            try:
                handle = self.disk.open(path)
            except FileNotFoundError:
                return None
            with closing(self.disk, handle):
                before = self.disk.identity(handle)
                data = self.disk.read(handle, 0, self.disk.size(handle) + 1)
                after = self.disk.identity(handle)
            if before is not None and after is not None and before.facts == after.facts:
                break  # nobody wrote into it meanwhile
        mark = mark_of(data)
        if after is not None and after.settled:
            with self._guard:
                self._marks[path] = (after.facts, mark)
                if len(self._marks) > _MARKS:
                    self._marks.popitem(last=False)
        return Stored(data, mark)

    def _expect(self, key: str, expect: Mark | None) -> None:
        if expect is not None:
            self._compare(key, expect, self.standing(key))

    def _compare(self, key: str, expect: Mark | None, found: Mark | None) -> None:
        if expect is not None and found != (None if expect == ABSENT else expect):
            where = self.where(key)
            raise RevisionConflict(f"{where} was changed by somebody else.", path=where, expected=expect, found=found)

    def _carry_out(self, change: Change) -> None:
        match change:
            case Put(key, data):
                replace(self.path(key), data, disk=self.disk)
            case Append(key, records, expect, as_one, growing):
                check = None if expect is None else partial(self._compare, key, expect)
                try:
                    self.log(key).append_many(records, as_one=as_one, growing=growing, check=check)
                except SyncFailed:
                    self._renew(key)
                    raise
            case Delete(key):
                if is_log(key):
                    self.log(key).close()
                path = self.disk.resolve(self.path(key))
                with suppress(FileNotFoundError):
                    self.disk.unlink(path)
                with suppress(FileNotFoundError):  # also where it is gone: whoever removed it may have died before that was on the disk
                    self.disk.sync_folder(os.path.dirname(path))  # noqa: PTH120

    def _put_views(self, puts: Sequence[Put]) -> None:
        last, is_fresh = "", False
        for put in puts:
            path = self.path(put.key)
            folder = path.rpartition("/")[0]
            if folder != last:
                last, is_fresh = folder, self._is_made(folder)
            if is_fresh:
                write_new(path, put.data, disk=self.disk)
                continue
            draft = Draft(path, put.data, disk=self.disk, durable=False)
            try:
                draft.put_in_place()
            except StorageError:
                draft.drop()
                raise

    def _is_made(self, folder: str) -> bool:
        """Make this folder, unless it is there, or one above it is not: then whoever writes to it sees to that."""
        try:
            self.disk.make_folder(folder)
        except (FileExistsError, FileNotFoundError, StorageError):
            return False
        return True

    def _new_mark(self, change: Change) -> Mark:
        match change:
            case Put(_, data, marked=marked):
                return mark_of(data) if marked else _UNKNOWN
            case Append(key):
                return self.log(key).last_mark or _UNKNOWN
            case Delete():
                return ABSENT

    def _renew(self, key: str) -> None:
        """A log that met a failed sync is given up, so the next call starts with a new one."""
        with self._guard:
            self._logs.pop(self.path(key), None)

    def _is_busy(self, key: str) -> bool:
        """Whether somebody writes there right now, or may: then what looks torn may be whole in a moment."""
        try:
            with self.writing([key], 0):
                return False
        except (Locked, NotWritable):
            return True

    def _blobs(self, prefix: str) -> Blobs:
        return Blobs(self._places.folder(f"{check_key(prefix)}/"), disk=self.disk)

    def _files_below(self, folder: str) -> Iterator[tuple[str, str, float]]:
        """The files below a folder, as deep as a key reaches: what is below that was not put there by us."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            for entry in self._places.scan(here):
                path = f"{here}/{entry.name}"
                if entry.kind == "file":
                    yield path, entry.name, entry.modified
                elif entry.kind == "folder" and not entry.link and entry.name != OF_AGENTS and is_key(path[len(folder) + 1 :]):
                    waiting.append(path)

    def _clear(self, folder: str) -> None:
        """Remove a folder with the locks and leftovers in it. What is a link is removed, and not what it leads to."""
        for entry in self._places.scan(folder):
            path = f"{folder}/{entry.name}"
            if entry.kind == "folder" and not entry.link:
                self._clear(path)
            else:
                with suppress(FileNotFoundError):
                    self.disk.unlink(path)
        with suppress(FileNotFoundError):
            for name in self.disk.list(folder):  # pipes, and links that lead nowhere
                self.disk.unlink(f"{folder}/{name}")
        self.disk.remove_folder(folder)
        self.disk.settled.clear()


@contextmanager
def _held_lease(key: str, folder: str, *, name: str | None, disk: Disk, clock: Clock, beat: float) -> Iterator[Lease]:
    """Hold the lease whose files are in `folder`; see `Backend.lease`."""
    note = f"{folder}/{LEASE_NOTE}"
    with ExitStack() as stack:
        try:
            stack.enter_context(disk.lock(f"{folder}/{LEASE_LOCK}", _PATIENCE))
        except Locked as error:
            raise held_by(folder, _read_note(note, disk), error.path) from error
        before = _read_note(note, disk)
        mine = this_process(name, clock)
        facts = strict_json.encode({"name": mine.name, "host": mine.host, "pid": mine.pid, "since": mine.since})
        Draft(note, facts, disk=disk, durable=False).put_in_place()  # a power cut ends the lease, so the note need not survive one
        stack.callback(_forget_note, note, disk)
        stack.enter_context(_beating(note, disk, beat))
        yield Lease(key, mine, before)


def _live_holder(folder: str, disk: Disk) -> Holder | None:
    """The live holder. Asks the lock: a note whose writer died means nothing."""
    holder = _read_note(f"{folder}/{LEASE_NOTE}", disk)
    if holder is None:
        return None
    try:
        with disk.lock(f"{folder}/{LEASE_LOCK}", 0):
            return None
    except Locked:
        return holder


def _read_note(note: str, disk: Disk) -> Holder | None:
    try:
        facts: Any = read_json(note, disk=disk)
        beat = stamp(datetime.fromtimestamp(disk.modified(note), UTC))
        return Holder(str(facts["name"]), str(facts["host"]), int(facts["pid"]), str(facts["since"]), beat)
    except (FileNotFoundError, Damaged, KeyError, TypeError, ValueError):
        return None


def _forget_note(note: str, disk: Disk) -> None:
    with suppress(FileNotFoundError, StorageError):  # it says nothing without the lock
        disk.unlink(note)


@contextmanager
def _beating(note: str, disk: Disk, beat: float) -> Iterator[None]:
    """A sign of life every `beat` seconds: the time of the note."""
    over = threading.Event()

    def live() -> None:
        while not over.wait(beat):
            with suppress(StorageError, FileNotFoundError):
                disk.touch(note)

    thread = threading.Thread(target=live, name="lease-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
