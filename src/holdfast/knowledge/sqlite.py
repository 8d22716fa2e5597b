"""A knowledge store in one SQLite file: keywords, vectors and word-by-word likeness, fused (K2, K3). The default.

    store = SqliteStore("knowledge.db")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

The records are the truth, and an add is one transaction of records, vectors and index. Without the extra `vectors`, and while the embedder
does not answer, the store works by keywords alone; what was added then gets its vectors afterwards (`patience`).
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from logging import WARNING
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from holdfast.durable.database import database_faults, open_database, transaction
from holdfast.errors import Damaged, DiskFull, InputError, NotWritable, StorageError, StoreUnavailable
from holdfast.events import Event
from holdfast.knowledge.base import (
    BaseStore,
    KeywordsOnly,
    StoreSettings,
    entry_of,
    hits_of,
    milliseconds,
    no_embedder,
    numpy_installed,
    of_another_embedder,
)
from holdfast.knowledge.records import Hit, Record, content_hash, from_json, merged, to_json
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, holds
from holdfast.search.embedding import PROBE, Embedder, embedded, load_embedder
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked
from holdfast.text.needle import Needle

if TYPE_CHECKING:
    from holdfast.knowledge.sqlite_index import SegmentIndex
    from holdfast.search.corpus import Corpus
    from holdfast.search.segments import Embedded

_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class IndexRebuilt(Event):
    """Parts of an index could not be used and are made again from the records."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path}: {segments} parts of the index were damaged or made in another way; they are made again"
    level: ClassVar[int] = WARNING
    path: str
    segments: int


class SqliteStore(BaseStore):
    """Meets `KnowledgeStore`. Safe for many threads and processes.

    Where nothing can be written (a read-only file system, a full disk), what is there can be searched, unless `or_read_only` is false: for
    who keeps tables of its own beside the records. Each use tries whether it can be written by then.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        embedder: str | Embedder | None = "auto",
        or_read_only: bool = True,
        **settings: Unpack[StoreSettings],
    ) -> None:
        super().__init__(**settings)
        self._lock = threading.RLock()
        self._embedder = load_embedder(embedder) if isinstance(embedder, str) else embedder
        self._open(path, or_read_only=or_read_only)
        if self._embedder is None and embedder == "auto":
            self._bus.emit(KeywordsOnly(path=self.path))

    def _open(self, path: str | PathLike[str], *, or_read_only: bool) -> None:
        tables = files("holdfast.knowledge").joinpath("sqlite.sql").read_text(encoding="utf-8")
        self.database = open_database(path, migrations=[tables], threads=True, or_read_only=or_read_only)
        self.path = self.database.path
        self._seen: object = None  # of the connection: another one begins anew
        self._index: SegmentIndex | None = None
        self._plain: PlainIndex | None = None
        self._entries: dict[int, Entry] = {}
        try:
            self.database.execute("PRAGMA cache_size=-32768")  # 32 MB: the vectors of words are read in many small parts
            self.database.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten, not only unlinked
            self._unreached = False
            """Whether the embedder could not even be asked how large its vectors are. Then the index has none of it."""
            if numpy_installed():
                self._index = self._made_index()
        except BaseException:
            self.database.close()
            raise

    def _try_again(self) -> None:
        """Open the file for writing, should it have been opened for reading alone. NotWritable or DiskFull where that is still so."""
        with self._lock:
            if self.database.read_only:
                before = self.database
                self._open(self.path, or_read_only=False)
                before.close()

    def _look_again(self) -> None:
        with suppress(NotWritable, DiskFull):
            self._try_again()

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        return self.put(batch)

    def put(
        self,
        batch: Sequence[Record],
        *,
        gone: Iterable[str] = (),
        exactly: bool = False,
        also: Callable[[sqlite3.Connection], None] | None = None,
    ) -> AddReport:
        """Keep these records and drop those with the ids `gone`, in one transaction; `also` is done in it as well.

        With `exactly` a record takes the place of the one with its id without its tags.
        """
        self._try_again()
        with self._faults("read"), self._lock:
            self._reach()
            self._refresh()
            index = self._index
            unknown = [record for record in batch if known_record(self.database, record.id) is None] if index else []
            asks = index is not None and self._patience.asks
        made = index.embed(batch if len(unknown) < len(batch) else unknown) if index is not None and asks else None
        counts = {"added": 0, "updated": 0, "unchanged": 0}
        with self._changing() as database:
            self._delete(database, gone)
            fresh: dict[int, Record] = {}
            for record in batch:
                change = _put_record(database, record, exactly=exactly)
                counts[change.kind] += 1
                if change.replaced is not None:
                    fresh.pop(change.replaced, None)
                    self._take_out([change.replaced])
                    change = _replace_record(database, change)
                if change.anew:
                    fresh[change.number] = change.record
            if index is not None:
                index.put(list(fresh.items()), made.meanings if made is not None else {})
            if also is not None:
                also(database)
        if made is not None:
            self._note(made)
        return AddReport(embedded=made.pieces if made is not None else 0, ids=tuple(record.id for record in batch), **counts)

    def forget(self, ids: Iterable[str]) -> int:
        self._try_again()
        with self._lock:
            with self._changing() as database:
                found = self._delete(database, ids)
            if found:
                self.scrub()
        return found

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        found = [record.id for record in self.records() if holds(needle, record)]
        self.forget(found)
        return found

    def reembed(self, *, progress: Progress | None = None) -> int:
        self._try_again()
        with self._lock:
            if self._embedder is None or self._index is None:
                raise no_embedder()
            embedded(self._embedder, [PROBE])  # what there is stays as it is where nothing would take its place
            if self._unreached:
                self._index = self._made_index()
            with self._changing():
                self._index.begin_anew()
            made = self._index_waiting(self._index, progress=progress)
            self._index.refresh()
            self._note(made)
        if made.fault is not None:
            raise made.fault
        return made.pieces

    def _delete(self, database: sqlite3.Connection, ids: Iterable[str]) -> int:
        found = [known[0] for id in dict.fromkeys(ids) if (known := known_record(database, id)) is not None]
        self._take_out(found)
        _delete_records(database, found)
        return len(found)

    def _take_out(self, numbers: list[int]) -> None:
        if self._index is not None:
            self._index.take_out(numbers)
        elif numbers:
            marks = ",".join(map(str, numbers))
            query = f"SELECT DISTINCT segment FROM records WHERE number IN ({marks}) AND segment IS NOT NULL"  # noqa: S608  # numbers only
            drop_segments(self.database, [number for (number,) in self.database.execute(query).fetchall()])

    def scrub(self) -> None:
        """Rewrite the file, so that nothing of what was forgotten is left in it or in its write-ahead log."""
        with self._lock, self._faults("scrub"):
            self.database.execute("VACUUM")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        self._look_again()
        with self._lock, self._faults("search"):
            self._reach()
            index = self._index
        asked = self._question_of(question, now, None if index is None else index.compact, self._waiting_records)
        with self._lock, self._faults("search"):
            found = self._by_words(asked, chosen, limit) if index is None else self._ranked(index, asked, chosen, limit)
            return hits_of(found, records_by_number(self.database, [number for one in found for number in one.members]))

    def _ranked(self, index: SegmentIndex, asked: Asked, chosen: Filter, limit: int) -> list[Ranked]:
        from holdfast.search.ranking import rank

        self._refresh()
        corpus = index.corpus
        allowed = None if chosen.empty else corpus.rows_with(numbers_of(self.database, chosen))
        return rank(asked, corpus, allowed=allowed, tokens=index.tokens if index.compact is not None else None, limit=limit)

    def _by_words(self, asked: Asked, chosen: Filter, limit: int) -> list[Ranked]:
        if self._changed() or self._plain is None:
            stored = numbers_of(self.database, Filter())
            fresh = records_by_number(self.database, stored - self._entries.keys())
            self._entries = {number: entry for number, entry in self._entries.items() if number in stored}
            self._entries |= {number: entry_of(number, record) for number, record in fresh.items()}
            self._plain = PlainIndex(self._entries[number] for number in sorted(self._entries))
        allowed = None if chosen.empty else numbers_of(self.database, chosen)
        return self._plain.rank(asked, allowed=allowed, limit=limit)

    def get(self, id: str) -> Record | None:
        self._look_again()
        with self._lock, self._faults("read"):
            found = known_record(self.database, id)
        return None if found is None else found[1]

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        self._look_again()
        last = 0
        while True:
            with self._lock, self._faults("read"):
                page = _listed_rows(self.database, chosen, last, _PAGE)
            if not page:
                return
            last = page[-1][0]
            yield from (read_row(self.database, text) for _, text in page)

    def stats(self) -> Stats:
        self._look_again()
        with self._lock, self._faults("read"):
            problem = self._unused_vectors() or self._patience.problem(self._waiting_records())
            return Stats(
                "sqlite", self.path, problems=(*([problem] if problem else ()), *self._reranker_problems), **_summary(self.database)
            )

    def _unused_vectors(self) -> str:
        return of_another_embedder(self.path) if self._index is not None and self._index.stale else ""

    def close(self) -> None:
        with self._lock:
            self.database.close()

    # The index

    def _made_index(self) -> SegmentIndex:
        from holdfast.knowledge.sqlite_index import SegmentIndex
        from holdfast.search.segments import Compact

        compact, fault = None, None
        try:
            compact = None if self._embedder is None else Compact(self._embedder)
        except StorageError as error:
            fault = error
        index = SegmentIndex(self.database, compact, lambda segments: self._bus.emit(IndexRebuilt(path=self.path, segments=segments)))
        self._unreached = fault is not None
        if fault is not None:
            self._patience.failed(fault, index.waiting_records())
        return index

    def _reach(self) -> None:
        """Ask an embedder again that did not answer when the store was opened."""
        if self._unreached and self._patience.asks:
            self._index, self._seen = self._made_index(), None

    def _waiting_records(self) -> int:
        """How many records have no vectors yet."""
        with self._lock:
            return self._index.waiting_records() if self._index is not None and self._embedder is not None else 0

    def _note(self, made: Embedded) -> None:
        """What came of embedding, for the next time and for who watches."""
        if made.fault is not None:
            self._patience.failed(made.fault, self._waiting_records())
        elif made.pieces and self._patience.trouble:
            self._patience.worked(waiting=self._waiting_records() > 0)

    def _changed(self) -> bool:
        """Whether anybody wrote since this was last asked."""
        now = self.version()
        changed, self._seen = now != self._seen, now
        return changed

    def corpus(self) -> Corpus:
        """The index of all records as they are now. Needs numpy."""
        with self._lock, self._faults("search"):
            assert self._index is not None, "numpy is not installed"  # noqa: S101
            self._refresh()
            return self._index.corpus

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A change of the file by who keeps tables of its own beside the records."""
        self._try_again()
        with self._changing() as database:
            yield database

    def version(self) -> object:
        """Another one whenever anybody has written."""
        with self._lock, self._faults("read"):
            return self.database.execute("PRAGMA data_version").fetchone()[0], self.database.total_changes

    def _refresh(self) -> None:
        """Bring the index to what the file holds now; index what waits for it."""
        index = self._index
        if index is None:
            return
        changed = self._changed()
        unusable = index.refresh() if changed else ()
        if self.database.read_only:  # what waits for the index is found when the file can be written again
            return
        if changed:
            if unusable:
                with self._changing():
                    index.repair(unusable)
            made = self._index_waiting(index)
            index.refresh()
            self._note(made)
        if index.waiting and self._patience.asks_again:
            self._catch_up(index)

    def _catch_up(self, index: SegmentIndex) -> None:
        """Make the vectors that records wait for. A segment of them stays as it is while nothing comes of that."""
        faults: list[StorageError] = []
        for number in index.waiting:
            made = index.embed(record for _, record in _of_segment(self.database, number, self.batch))
            if made.fault is None or made.meanings:
                with self._changing() as database:
                    drop_segments(database, [number])
                made = self._index_waiting(index, made)
            faults += [made.fault] if made.fault is not None else []
            if any(isinstance(fault, StoreUnavailable) for fault in faults):
                break
        index.refresh()
        if faults:
            self._patience.failed(faults[-1], index.waiting_records())
        else:
            self._patience.worked()

    def _index_waiting(self, index: SegmentIndex, known: Embedded | None = None, progress: Progress | None = None) -> Embedded:
        """Index the records that wait for it; says what came of embedding them and those that are `known`.

        Once the embedder fails to answer, the rest is indexed by words.
        """
        from holdfast.search.segments import Embedded

        known = known or Embedded()
        pieces, fault, done = known.pieces, known.fault, 0
        while waiting := list(_waiting(self.database, self.batch)):
            away = isinstance(fault, StoreUnavailable) or not self._patience.asks
            made = Embedded() if away else index.embed((record for _, record in waiting), known.meanings)
            pieces, fault = pieces + made.pieces, made.fault or fault
            with self._changing():
                index.put([one for one in _waiting(self.database, self.batch) if one in waiting], {**known.meanings, **made.meanings})
            done += len(waiting)
            if progress is not None:
                progress(done, None)
        return Embedded(pieces=pieces, fault=fault)

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._faults("write"), self._lock, transaction(self.database) as database:
            yield database

    @contextmanager
    def _faults(self, operation: str) -> Iterator[None]:
        try:
            with database_faults(self.path, operation):
                yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise StorageError.closed(f"the store {self.path}", self.path, operation=operation) from None


# The rows: records and their tags. What writes runs inside a transaction of its caller


@dataclass(frozen=True, slots=True)
class _Change:
    """What putting a record did: `replaced` is the number that it had before and must leave the index."""

    kind: str
    number: int
    record: Record
    replaced: int | None = None
    anew: bool = False
    """Whether it must be indexed."""


def read_row(database: sqlite3.Connection, text: str) -> Record:
    """The record that a row holds. Damaged if it holds none."""
    try:
        return from_json(json.loads(text))
    except (ValueError, TypeError, RecursionError, InputError) as error:
        told = f"a record cannot be read: {error}: {text[:80]!r}"
        raise _damaged(database, told, hint="`holdfast knowledge forget` its id, if it is known, or restore a backup.") from error


def _damaged(database: sqlite3.Connection, what: str, *, hint: str = "Set it aside and restore a backup, or start anew.") -> Damaged:
    path = getattr(database, "path", "the knowledge store")
    return Damaged(f"{path} is damaged: {what}.", path=path, hint=hint)


def known_record(database: sqlite3.Connection, id: str) -> tuple[int, Record] | None:
    """The number and the content of the record with this id."""
    row = database.execute("SELECT number, record FROM records WHERE id = ?", (id,)).fetchone()
    return None if row is None else (int(row[0]), read_row(database, row[1]))


def _put_record(database: sqlite3.Connection, record: Record, *, exactly: bool = False) -> _Change:
    """Keep a record. One that has the same id gives way; when it is the same thing it takes on the new tags (with `exactly` only those)."""
    found = known_record(database, record.id)
    if found is None:
        return _Change("added", _insert(database, record), record, anew=True)
    number, old = found
    new = record if exactly else merged(old, record)
    if new == old:
        return _Change("unchanged", number, old)
    if content_hash(new) == content_hash(old) and new.role == old.role and new.extra.get("title") == old.extra.get("title"):
        database.execute("UPDATE records SET record = ? WHERE number = ?", (_written(new), number))
        database.execute("DELETE FROM tags WHERE record = ?", (number,))
        _tag(database, number, new)
        return _Change("updated", number, new)
    return _Change("updated", number, new, replaced=number, anew=True)


def _replace_record(database: sqlite3.Connection, change: _Change) -> _Change:
    """Put the new content of a record in place of the old, under a new number."""
    assert change.replaced is not None  # noqa: S101
    _delete_records(database, [change.replaced])
    return _Change(change.kind, _insert(database, change.record), change.record, anew=True)


def _insert(database: sqlite3.Connection, record: Record) -> int:
    values = (record.id, record.session, milliseconds(record), record.kind, _written(record))
    cursor = database.execute("INSERT INTO records (id, session, time, kind, record) VALUES (?, ?, ?, ?, ?)", values)
    number = int(cursor.lastrowid or 0)
    _tag(database, number, record)
    return number


def _tag(database: sqlite3.Connection, number: int, record: Record) -> None:
    database.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, number) for tag in record.tags])


def _delete_records(database: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Delete records, their tags, and the meanings that no other record needs."""
    for number in numbers:
        row = database.execute("SELECT meaning FROM records WHERE number = ?", (number,)).fetchone()
        database.execute("DELETE FROM records WHERE number = ?", (number,))
        if row is not None and row[0] is not None:
            needed = database.execute("SELECT 1 FROM records WHERE meaning = ? LIMIT 1", (row[0],)).fetchone()
            if needed is None:
                database.execute("DELETE FROM meanings WHERE number = ?", (row[0],))


def drop_segments(database: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Let go of segments of the index; their records are indexed anew by whoever can."""
    for number in numbers:
        database.execute("UPDATE records SET segment = NULL WHERE segment = ?", (number,))
        database.execute("DELETE FROM segments WHERE number = ?", (number,))


def _clause_of(chosen: Filter) -> tuple[str, list[Any]]:
    """A filter as a condition over `records`, and its values."""
    parts: list[str] = []
    values: list[Any] = []
    for tag in sorted(chosen.tags):
        parts.append("number IN (SELECT record FROM tags WHERE tag = ?)")
        values.append(tag)
    if chosen.session is not None:
        below = chosen.session.rstrip("/") + "/"
        parts.append("(session = ? OR (session >= ? AND session < ?))")
        values += [chosen.session, below, below[:-1] + "0"]  # "0" follows "/"
    for operator, moment in ((">=", chosen.after), ("<", chosen.before)):
        if moment is not None:
            parts.append(f"time {operator} ?")
            values.append(moment.timestamp() * 1000)
    return " AND ".join(parts) or "1", values


def _listed_rows(database: sqlite3.Connection, chosen: Filter, after: int, limit: int) -> Sequence[tuple[int, str]]:
    """Records that fit, from the number `after` on."""
    condition, values = _clause_of(chosen)
    query = f"SELECT number, record FROM records WHERE number > ? AND {condition} ORDER BY number LIMIT ?"  # noqa: S608  # our own words
    return database.execute(query, (after, *values, limit)).fetchall()


def numbers_of(database: sqlite3.Connection, chosen: Filter) -> set[int]:
    """The numbers of all records that fit."""
    condition, values = _clause_of(chosen)
    query = f"SELECT number FROM records WHERE {condition}"  # noqa: S608  # our own words
    return {number for (number,) in database.execute(query, values)}


def records_by_number(database: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Record]:
    """The records with these numbers."""
    marks = ",".join(str(int(number)) for number in numbers)
    rows = database.execute(f"SELECT number, record FROM records WHERE number IN ({marks})")  # noqa: S608  # numbers only
    return {number: read_row(database, text) for number, text in rows}


def _summary(database: sqlite3.Connection) -> dict[str, Any]:
    """What `Stats` says about the records."""
    counts = "SELECT count(*), count(DISTINCT session), min(time), max(time), (SELECT count(*) FROM meanings) FROM records"
    records, sessions, oldest, newest, vectors = database.execute(counts).fetchone()
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return {
        "records": records,
        "sessions": sessions,
        "vectors": vectors,
        "bytes": pages * size,
        "oldest": _moment(database, oldest),
        "newest": _moment(database, newest),
        "tags": _counts(database, "SELECT tag, count(*) FROM tags GROUP BY tag ORDER BY 2 DESC, 1"),
        "kinds": _counts(database, "SELECT kind, count(*) FROM records GROUP BY kind ORDER BY 2 DESC, 1"),
    }


def _counts(database: sqlite3.Connection, query: str) -> dict[str, int]:
    """How often there is each text. SQLite keeps bytes in a column for text where somebody put them: that is damage."""
    found = dict(database.execute(query))
    for name in found:
        if not isinstance(name, str):
            raise _damaged(database, f"{name[:80]!r} stands where a text should")
    return found


def _waiting(database: sqlite3.Connection, limit: int) -> Iterator[tuple[int, Record]]:
    """Records that are not in the index yet."""
    rows = database.execute("SELECT number, record FROM records WHERE segment IS NULL ORDER BY number LIMIT ?", (limit,)).fetchall()
    return ((number, read_row(database, text)) for number, text in rows)


def _of_segment(database: sqlite3.Connection, segment: int, limit: int) -> Sequence[tuple[int, Record]]:
    """The first records of a segment of the index."""
    rows = database.execute("SELECT number, record FROM records WHERE segment = ? ORDER BY number LIMIT ?", (segment, limit)).fetchall()
    return [(number, read_row(database, text)) for number, text in rows]


def _written(record: Record) -> str:
    return json.dumps(to_json(record), ensure_ascii=False)


def _moment(database: sqlite3.Connection, since: Any) -> datetime | None:
    try:
        return None if since is None else datetime.fromtimestamp(since / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise _damaged(database, f"{str(since)[:80]!r} stands where a time should") from error
