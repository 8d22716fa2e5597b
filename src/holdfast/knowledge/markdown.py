"""A knowledge store that is a folder of Markdown files, one for each record. Nothing to install (K2).

    store = MarkdownStore("knowledge")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

The files are the store. A person may edit, add and remove them with any editor: changes are noticed by the next call. A file without a
head is a record as well. A file whose head does not make sense is named in `stats().problems` and never touched.

What the files hold is searched by an index beside them, `.index/index.db`: a SQLite store that is brought in line with the files before
every call, may be removed at any time, and lies in memory where the folder cannot be written to. So both rank alike: by words, and by
meaning too when the extra `vectors` is installed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import ClassVar, NamedTuple, Unpack

from holdfast.durable.disk import REAL, make_folders, read_whole, write_all
from holdfast.durable.lock import Lock
from holdfast.durable.replace import is_temp, temp_name
from holdfast.errors import Damaged, InputError, StorageError
from holdfast.events import Event
from holdfast.knowledge.base import BaseStore, StoreSettings
from holdfast.knowledge.record_forms import parse, render
from holdfast.knowledge.records import Hit, Record, merged
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, holds
from holdfast.search.embedding import Embedder, load_embedder
from holdfast.text.needle import Needle
from holdfast.text.normalise import fold

_FILES = """CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, modified INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL, id TEXT, problem TEXT) WITHOUT ROWID"""


@dataclass(frozen=True, kw_only=True)
class RecordUnreadable(Event):
    """A file of a Markdown store cannot be understood. It is left as it is."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path}: {problem}"
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was read last: the id of the record in it, or why there is none."""

    stamp: _Stamp
    id: str | None
    problem: str | None = None


class MarkdownStore(BaseStore):
    """The records in the Markdown files below `root`. Meets `KnowledgeStore`. Of several files with one id the first by its path counts."""

    batch = 128  # each of them is an open file for a moment

    def __init__(self, root: str | PathLike[str], *, embedder: str | Embedder | None = "auto", **settings: Unpack[StoreSettings]) -> None:
        super().__init__(**settings)
        self.root = Path(root).absolute()
        self._embedder = embedder
        self._threads = threading.RLock()
        self._lock = Lock(self.root / _OWN_FOLDER / "lock", timeout=60.0)
        self._opened: tuple[SqliteStore, int] | None = None
        self._seen: tuple[SqliteStore, object, Mapping[str, _File]] | None = None
        if self.root.exists() and not self.root.is_dir():
            raise StorageError(f"{self.root} is not a folder.", path=self.root, operation="open", hint="Give a folder for Markdown files.")

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        with self._in_use():
            make_folders(REAL, str(self.root))
            with self._lock:
                index, known = self._refreshed()
                old = {record.id: found for record in batch if (found := index.get(record.id)) is not None}
                changed: dict[str, Record] = {}
                for record in batch:
                    before = changed.get(record.id) or old.get(record.id)
                    new = record if before is None else merged(before, record)
                    if new != before:
                        changed[record.id] = new
                placed = _placed(self.root, changed.values(), _counting(known))
                stamps = _put_all(self.root, {path: render(record) for path, record in placed.items()})
                embedded = 0
                with suppress(StorageError):  # the files are what is kept, and they are there: the next call brings the index in line
                    embedded = index.put(
                        list(changed.values()),
                        exactly=True,
                        also=lambda database: _note(database, {path: _File(stamps[path], record.id) for path, record in placed.items()}),
                    ).embedded
        updated = sum(1 for id in changed if id in old)
        ids = tuple(record.id for record in batch)
        return AddReport(len(changed) - updated, updated, len(batch) - len(changed), embedded, ids)

    def forget(self, ids: Iterable[str]) -> int:
        wanted = set(ids)
        with self._in_use():
            if not self.root.is_dir():
                return 0
            with self._lock:
                index, known = self._refreshed()
                gone = {path: file.id for path, file in known.items() if file.id in wanted}
                if gone:
                    self._remove(index, known, gone)
        return len(set(gone.values()))

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        with self._in_use():
            if not self.root.is_dir():
                return []
            with self._lock:
                index, known = self._refreshed()
                held = {record.id for record in index.records() if holds(needle, record)}
                counting = set(_counting(known).values())
                others = {path for path in known if path not in counting and needle.in_bytes(self._raw(path))}
                gone = {path: file.id for path, file in known.items() if (file.id in held and path in counting) or path in others}
                self._remove(index, known, gone)
        return list(dict.fromkeys(id or path for path, id in gone.items()))

    def _remove(self, index: SqliteStore, known: Mapping[str, _File], gone: Mapping[str, str | None]) -> None:
        """Out of the index first: when it is interrupted after that, asking again finds the files that are left."""
        ids = {id for id in gone.values() if id is not None}
        unread = dict.fromkeys(path for path, file in known.items() if path in gone or file.id in ids)
        index.put([], gone=ids, also=lambda database: _note(database, unread))
        index.scrub()
        _sweep_all(self.root)
        _remove_all(self.root, gone)
        self._refreshed()  # another file with one of these ids may count from now on

    def reembed(self, *, progress: Progress | None = None) -> int:
        with self._in_use():
            return self._current().reembed(progress=progress) if self.root.is_dir() else 0

    def _raw(self, path: str) -> bytes:
        try:
            return read_whole(REAL, str(self.root / path))
        except FileNotFoundError:
            return b""

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        with self._in_use():
            return self._current().search(question, top_k=limit, now=now, **chosen.arguments) if self.root.is_dir() else []

    def get(self, id: str) -> Record | None:
        with self._in_use():
            return self._current().get(id) if self.root.is_dir() else None

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        with self._in_use():
            return iter(list(self._current().records(**chosen.arguments)) if self.root.is_dir() else ())

    def stats(self) -> Stats:
        with self._in_use():
            if not self.root.is_dir():
                return Stats("markdown", str(self.root), bytes=0, problems=self._reranker_problems)
            index, known = self._settled()
            found = index.stats()
            paths = _counting(known)
            said = [(path, file.problem) for path, file in known.items() if file.problem]
            same = [(path, paths[file.id]) for path, file in known.items() if file.id is not None and paths[file.id] != path]
            said += [(path, f"it has the same id as {other}, which counts.") for path, other in same]
            problems = tuple(f"{self.root / path}: {problem}" for path, problem in sorted(said))
            size = sum(file.stamp.size for file in known.values() if file.id is not None) + (found.bytes or 0)
            return replace(
                found, adapter="markdown", where=str(self.root), bytes=size, problems=(*problems, *found.problems, *self._reranker_problems)
            )

    def close(self) -> None:
        with self._threads:
            self._closed = True
            opened, self._opened = self._opened, None
            if opened is not None:
                opened[0].close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """One thread at a time. StorageError if the store was closed."""
        with self._threads:
            self._check_open(str(self.root))
            yield

    # The index

    def _current(self) -> SqliteStore:
        return self._settled()[0]

    def _settled(self) -> tuple[SqliteStore, Mapping[str, _File]]:
        """The index as the files are now. Writers of one index take turns, so what one forgot another does not bring back."""
        index = self._index()
        known = self._known(index)
        if _scan(self.root) == {path: file.stamp for path, file in known.items()}:
            return index, known
        locked: AbstractContextManager[object] = self._lock if index.path != ":memory:" else nullcontext()
        with locked:
            return self._refreshed()

    def _refreshed(self) -> tuple[SqliteStore, Mapping[str, _File]]:
        """Bring the index in line with the files. For who holds the lock."""
        index = self._index()
        known = dict(self._known(index))
        seen = _scan(self.root)
        changed = [path for path, stamp in seen.items() if path not in known or known[path].stamp != stamp]
        gone = [path for path in known if path not in seen]
        while changed or gone:
            part, changed = changed[: self.batch], changed[self.batch :]
            self._take_in(index, known, {path: seen[path] for path in part}, gone)
            gone = []
        return index, known

    def _take_in(self, index: SqliteStore, known: dict[str, _File], changed: Mapping[str, _Stamp], gone: Iterable[str]) -> None:
        """Read some files and put what is in them into the index, with what is known of them, in one transaction."""
        stale = {known[path].id for path in (*changed, *gone) if path in known}
        read: dict[str, Record] = {}
        noted: dict[str, _File | None] = dict.fromkeys(gone)
        for path, stamp in changed.items():
            noted[path], record = self._read(path, stamp)
            if record is not None:
                read[path] = record
        known.update({path: file for path, file in noted.items() if file is not None})
        for path in (path for path, file in noted.items() if file is None):
            known.pop(path, None)
        counting = _counting(known)
        wanted = {id for id in stale | {record.id for record in read.values()} if id is not None}
        records: list[Record] = []
        for id in wanted & counting.keys():
            path = counting[id]
            record = read[path] if path in read else self._read(path, known[path].stamp)[1]
            if record is not None:
                records.append(record)
        index.put(records, gone=wanted - counting.keys(), exactly=True, also=lambda database: _note(database, noted))

    def _read(self, path: str, stamp: _Stamp) -> tuple[_File | None, Record | None]:
        problem = "it has no text."
        try:
            record = parse(read_whole(REAL, str(self.root / path)), path)
            if record is not None:
                return _File(_remembered(stamp), record.id), record
        except FileNotFoundError:
            return None, None
        except (InputError, StorageError) as error:
            problem = str(error)
            self._bus.emit(RecordUnreadable(path=str(self.root / path), problem=problem))
        return _File(stamp, None, problem), None

    def _known(self, index: SqliteStore) -> Mapping[str, _File]:
        """The files that the index knows, by their paths; read again only when somebody wrote."""
        version = index.version()
        if self._seen is None or self._seen[:2] != (index, version):
            rows = index.database.execute("SELECT path, modified, size, inode, id, problem FROM files")
            found = {path: _File(_Stamp(modified, size, inode), id, problem) for path, modified, size, inode, id, problem in rows}
            self._seen = (index, version, found)
        return self._seen[2]

    def _index(self) -> SqliteStore:
        """The index, opened or made if need be: anew where somebody removed it."""
        path = self.root / _OWN_FOLDER / "index.db"
        if self._opened is not None:
            index, inode = self._opened
            if index.path == ":memory:" or _inode(path) == inode:
                return index
            index.close()
        embedder = load_embedder(self._embedder) if isinstance(self._embedder, str) else self._embedder
        self._embedder = embedder
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # also where somebody removed it while we had it open
            index = self._open(path, embedder)
        except Damaged:
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            index = self._open(path, embedder)
        except (StorageError, OSError):  # the folder cannot be written to
            index = self._open(":memory:", embedder)
        self._opened = (index, _inode(path))
        return index

    def _open(self, path: Path | str, embedder: Embedder | None) -> SqliteStore:
        index = SqliteStore(path, embedder=embedder, or_read_only=False, clock=self._clock, bus=self._bus)
        try:
            index.database.execute(_FILES)
            if path != ":memory:":
                with suppress(FileNotFoundError):
                    REAL.unlink(str(self.root / _OWN_FOLDER / "cache.json"))  # what an older version kept: it holds texts
        except BaseException:
            index.close()
            raise
        return index


def write_folder(root: Path, records: Iterable[Record]) -> int:
    """Write records as the files of a new store, without an index; says how many. On return they survive a power cut."""
    pending = iter(records)
    total = 0
    make_folders(REAL, str(root))
    while batch := list(islice(pending, MarkdownStore.batch)):
        _put_all(root, {path: render(record) for path, record in _placed(root, batch, {}).items()})
        total += len(batch)
    return total


def _placed(root: Path, records: Iterable[Record], paths: Mapping[str, str]) -> dict[str, Record]:
    """The file of each record: the one it has, else a new name that nothing else has."""
    found: dict[str, Record] = {}
    for record in records:
        path = paths.get(record.id)
        if path is None:
            path = wanted = _name_of(record)
            number = 1
            while path in found or (root / path).exists():
                number += 1
                path = f"{wanted.removesuffix('.md')}-{number}.md"
        found[path] = record
    return found


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _counting(known: Mapping[str, _File]) -> dict[str, str]:
    """The file that counts for each id: the first by its path."""
    found: dict[str, str] = {}
    for path, file in known.items():
        if file.id is not None and (file.id not in found or path < found[file.id]):
            found[file.id] = path
    return found


def _note(database: sqlite3.Connection, noted: Mapping[str, _File | None]) -> None:
    """Write down what is known of these files; None for one that is gone."""
    database.executemany("DELETE FROM files WHERE path = ?", [(path,) for path in noted])
    rows = [(path, *file.stamp, file.id, file.problem) for path, file in noted.items() if file is not None]
    database.executemany("INSERT INTO files (path, modified, size, inode, id, problem) VALUES (?, ?, ?, ?, ?, ?)", rows)


# The files. Readers take no lock: every file is put in place whole. Writers of one folder hold the lock of its store.

_OWN_FOLDER = ".index"
_ENDINGS = (".md", ".markdown")
_RACY = 20_000_000  # nanoseconds: a file may change twice within one tick of the file system's clock


class _Stamp(NamedTuple):
    """By what a change is noticed."""

    modified: int
    size: int
    inode: int


def _scan(root: Path) -> dict[str, _Stamp]:
    """Every Markdown file below the folder, by its path with `/`. Hidden folders and links are not looked into."""
    found: dict[str, _Stamp] = {}
    pending = [""]
    while pending:
        place = pending.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root / place) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                path = f"{place}/{entry.name}" if place else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.name.lower().endswith(_ENDINGS) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        found[path] = _stamp_of(entry.stat(follow_symlinks=False))
    return found


def _stamp_of(status: os.stat_result) -> _Stamp:
    """The stamp of a file."""
    return _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _remembered(stamp: _Stamp) -> _Stamp:
    """The stamp to remember of a file that was read: one that changed just now may change again without a trace, so it is read again."""
    return stamp if time.time_ns() - stamp.modified > _RACY else stamp._replace(modified=-1)


def _name_of(record: Record) -> str:
    """Where a record goes: a folder for each part of its session, and a name that a person recognises."""
    folders = [_slug(part, 60) or "session" for part in (record.session or "").split("/") if part.strip()]
    tail = blake2b(record.id.encode(), digest_size=5).hexdigest()
    parts = [
        "" if record.position is None else f"{record.position:05d}",
        "" if record.time is None or record.position is not None else record.time.strftime("%Y-%m-%d"),
        _slug(record.speaker or "", 24) if record.position is not None else "",
        _slug(record.text[:200], 48),
        tail,
    ]
    return "/".join([*folders, "-".join(part for part in parts if part) + ".md"])


def _slug(text: str, limit: int) -> str:
    """Letters and digits of the text with hyphens between, at most `limit` bytes."""
    words = "".join(character if character.isalnum() else " " for character in fold(text)).split()
    whole = "-".join(words).encode("utf-8")
    if len(whole) <= limit:
        return whole.decode("utf-8")
    cut = whole[:limit].decode("utf-8", "ignore")
    return (cut.rpartition("-")[0] or cut).strip("-")


def _put_all(root: Path, contents: Mapping[str, bytes]) -> dict[str, _Stamp]:
    """Put these files in place; on return all of them survive a power cut. An error leaves some old and some new, none half.

    All are written before the first is synced: one commit of the file system's journal then carries most of them.
    """
    with ExitStack() as opened:
        new = [_temp_file(opened, root / path, data) for path, data in contents.items()]
        stamps = {}
        for path, (_, handle) in zip(contents, new, strict=True):
            REAL.sync(handle)
            stamps[path] = _stamp_of(os.fstat(handle))
    for path, (temp, _) in zip(contents, new, strict=True):
        REAL.rename(temp, str(root / path))
    for folder in dict.fromkeys(str((root / path).parent) for path in contents):
        REAL.sync_folder(folder)
    return stamps


def _temp_file(opened: ExitStack, target: Path, data: bytes) -> tuple[str, int]:
    """A new file beside the target with this content, not synced yet. It goes away if something fails before it is put in place."""
    make_folders(REAL, str(target.parent))
    temp = str(target.with_name(temp_name()))
    handle = REAL.create(temp)
    opened.push(partial(_finish, temp, handle))
    write_all(REAL, handle, data)
    if REAL.kind(str(target)) == "file":
        REAL.imitate(handle, str(target))
    return temp, handle


def _finish(temp: str, handle: int, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    if error is None:
        REAL.close(handle)
        return
    with suppress(StorageError, OSError):  # the first error is the one to tell
        REAL.close(handle)
    with suppress(StorageError, OSError):
        REAL.unlink(temp)


def _remove_all(root: Path, paths: Iterable[str]) -> None:
    """Remove these files, and the folders that are empty then; on return that survives a power cut."""
    folders: dict[Path, None] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            REAL.unlink(str(root / path))
        folders[(root / path).parent] = None
    for folder in folders:
        _drop_empty(root, folder)


def _drop_empty(root: Path, folder: Path) -> None:
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            break
        REAL.settled.discard(str(folder))
        folder = folder.parent
    with suppress(FileNotFoundError):
        REAL.sync_folder(str(folder))


def _sweep_all(root: Path) -> None:
    """Remove what writers that died left behind. Only for who holds the lock of the store."""
    for path in list(_temps(root)):
        with suppress(FileNotFoundError):
            REAL.unlink(str(path))
            REAL.sync_folder(str(path.parent))


def _temps(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") or name == _OWN_FOLDER]
        yield from (Path(place, name) for name in names if is_temp(name))
