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

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import ClassVar

from holdfast.clock import Clock
from holdfast.durable.disk import REAL, make_folders, read_whole
from holdfast.durable.lock import Lock
from holdfast.errors import Damaged, InputError, StorageError
from holdfast.events import Bus, Event
from holdfast.knowledge import markdown_files as files
from holdfast.knowledge.base import BaseStore
from holdfast.knowledge.markdown_files import parse, render
from holdfast.knowledge.records import Hit, Record, merged
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, holds
from holdfast.search.embedding import Embedder, Reranker, load_embedder
from holdfast.text.needle import Needle
from holdfast.tokens.counter import TokenCounter

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

    stamp: files.Stamp
    id: str | None
    problem: str | None = None


class MarkdownStore(BaseStore):
    """The records in the Markdown files below `root`. Meets `KnowledgeStore`. Of several files with one id the first by its path counts."""

    batch = 128  # each of them is an open file for a moment

    def __init__(
        self,
        root: str | PathLike[str],
        *,
        embedder: str | Embedder | None = "auto",
        rerank: bool = False,
        rerank_model: str | Reranker | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(rerank=rerank, rerank_model=rerank_model, clock=clock, bus=bus, counter=counter)
        self.root = Path(root).absolute()
        self._embedder = embedder
        self._threads = threading.RLock()
        self._lock = Lock(self.root / files.OWN_FOLDER / "lock", timeout=60.0)
        self._opened: tuple[SqliteStore, int] | None = None
        self._seen: tuple[SqliteStore, object, Mapping[str, _File]] | None = None
        if self.root.exists() and not self.root.is_dir():
            raise StorageError(f"{self.root} is not a folder.", path=self.root, operation="open", hint="Give a folder for Markdown files.")

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        with self._threads:
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
                stamps = files.put_all(self.root, {path: render(record) for path, record in placed.items()})
                report = index.put(
                    list(changed.values()),
                    exactly=True,
                    also=lambda database: _note(database, {path: _File(stamps[path], record.id) for path, record in placed.items()}),
                )
        updated = sum(1 for id in changed if id in old)
        ids = tuple(record.id for record in batch)
        return AddReport(len(changed) - updated, updated, len(batch) - len(changed), report.embedded, ids)

    def forget(self, ids: Iterable[str]) -> int:
        wanted = set(ids)
        with self._threads:
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
        with self._threads:
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
        files.sweep_all(self.root)
        files.remove_all(self.root, gone)
        self._refreshed()  # another file with one of these ids may count from now on

    def reembed(self, *, progress: Progress | None = None) -> int:
        with self._threads:
            return self._current().reembed(progress=progress) if self.root.is_dir() else 0

    def _raw(self, path: str) -> bytes:
        try:
            return read_whole(REAL, str(self.root / path))
        except FileNotFoundError:
            return b""

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        with self._threads:
            return self._current().search(question, top_k=limit, now=now, **chosen.arguments) if self.root.is_dir() else []

    def get(self, id: str) -> Record | None:
        with self._threads:
            return self._current().get(id) if self.root.is_dir() else None

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        with self._threads:
            return iter(list(self._current().records(**chosen.arguments)) if self.root.is_dir() else ())

    def stats(self) -> Stats:
        with self._threads:
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
            opened, self._opened = self._opened, None
            if opened is not None:
                opened[0].close()

    # The index

    def _current(self) -> SqliteStore:
        return self._settled()[0]

    def _settled(self) -> tuple[SqliteStore, Mapping[str, _File]]:
        """The index as the files are now. Writers of one index take turns, so what one forgot another does not bring back."""
        index = self._index()
        known = self._known(index)
        if files.scan(self.root) == {path: file.stamp for path, file in known.items()}:
            return index, known
        locked: AbstractContextManager[object] = self._lock if index.path != ":memory:" else nullcontext()
        with locked:
            return self._refreshed()

    def _refreshed(self) -> tuple[SqliteStore, Mapping[str, _File]]:
        """Bring the index in line with the files. For who holds the lock."""
        index = self._index()
        known = dict(self._known(index))
        seen = files.scan(self.root)
        changed = [path for path, stamp in seen.items() if path not in known or known[path].stamp != stamp]
        gone = [path for path in known if path not in seen]
        while changed or gone:
            part, changed = changed[: self.batch], changed[self.batch :]
            self._take_in(index, known, {path: seen[path] for path in part}, gone)
            gone = []
        return index, known

    def _take_in(self, index: SqliteStore, known: dict[str, _File], changed: Mapping[str, files.Stamp], gone: Iterable[str]) -> None:
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

    def _read(self, path: str, stamp: files.Stamp) -> tuple[_File | None, Record | None]:
        problem = "it has no text."
        try:
            record = parse(read_whole(REAL, str(self.root / path)), path)
            if record is not None:
                return _File(files.settled(stamp), record.id), record
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
            found = {path: _File(files.Stamp(modified, size, inode), id, problem) for path, modified, size, inode, id, problem in rows}
            self._seen = (index, version, found)
        return self._seen[2]

    def _index(self) -> SqliteStore:
        """The index, opened or made if need be: anew where somebody removed it."""
        path = self.root / files.OWN_FOLDER / "index.db"
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
        index = SqliteStore(path, embedder=embedder, clock=self._clock, bus=self._bus)
        try:
            index.database.execute(_FILES)
            if path != ":memory:":
                with suppress(FileNotFoundError):
                    REAL.unlink(str(self.root / files.OWN_FOLDER / "cache.json"))  # what an older version kept: it holds texts
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
        files.put_all(root, {path: render(record) for path, record in _placed(root, batch, {}).items()})
        total += len(batch)
    return total


def _placed(root: Path, records: Iterable[Record], paths: Mapping[str, str]) -> dict[str, Record]:
    """The file of each record: the one it has, else a new name that nothing else has."""
    found: dict[str, Record] = {}
    for record in records:
        path = paths.get(record.id)
        if path is None:
            path = wanted = files.name_of(record)
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
