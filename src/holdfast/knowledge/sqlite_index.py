"""The search index of a SQLite knowledge store: how records become segments, and how these are written, joined, repaired and read.

Everything here runs inside a transaction of the store, or reads. numpy is needed; a store without it ranks in plain Python.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from holdfast.knowledge.base import ROLES, entry_of, form_of_analysis, texts_of
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import drop_segments
from holdfast.search.corpus import Corpus
from holdfast.search.plain_ranking import Entry
from holdfast.search.segments import Compact, Embedded, Meaning, Segment, build, joined, read_vectors

_LARGEST = 16_384  # records of a segment: more are not joined, so that forgetting one does not write everything anew


@dataclass(frozen=True, slots=True)
class _Text:
    """What of a record is embedded, and the name under which its meaning is kept."""

    hash: bytes
    pieces: tuple[str, ...]


class SegmentIndex:
    """The segments of one database, and the corpus that they make together. Not thread-safe: its owner holds a lock."""

    def __init__(self, database: sqlite3.Connection, compact: Compact | None, told: Callable[[int], None]) -> None:
        self._database = database
        self._compact = compact
        self._told = told
        self._dimension = compact.dimension if compact is not None else 0
        self._analysis = form_of_analysis()
        self._by_words = f"{self._analysis}|"
        """The form of segments without vectors. Where there is an embedder now their records wait for it."""
        self.waiting: tuple[int, ...] = ()
        """The segments, of those that `refresh` saw last, whose records wait for their vectors."""
        self._loaded: dict[int, Segment] = {}
        self._corpus: Corpus | None = None
        self._first = True
        self.stale = self._is_stale()
        """Whether there are vectors of another embedder, and making them anew has to be asked for. Then words alone are searched."""

    @property
    def compact(self) -> Compact | None:
        """What makes and compares vectors; None while there is no embedder, or none that fits what there is."""
        return None if self.stale else self._compact

    def _is_stale(self) -> bool:
        if self._compact is None or not getattr(self._compact.embedder, "on_request", False):
            return False
        forms = [form.partition("|")[2] for form in self._forms().values()]
        return any(embedder not in ("", self._compact.name) for embedder in forms)

    @property
    def _form(self) -> str:
        return self._by_words + (self.compact.name if self.compact is not None else "")

    def waiting_records(self) -> int:
        """How many records have no vectors and could have some. What an assistant answered has none by design."""
        numbers = [number for number, form in self._forms().items() if form == self._by_words]
        found = [segment for number in numbers if (segment := self._loaded.get(number) or self._read(number)) is not None]
        return sum(int((segment["role"] != ROLES["assistant"]).sum()) for segment in found)

    def _forms(self) -> dict[int, str]:
        """The form of every segment. Of whatever type a damaged one is, it reads as a text, and fits nothing."""
        rows = self._database.execute("SELECT number, CAST(form AS BLOB) FROM segments")
        return {number: form.decode(errors="replace") for number, form in rows}

    # Reading

    @property
    def corpus(self) -> Corpus:
        """Everything that `refresh` saw last."""
        if self._corpus is None:
            self._corpus = Corpus.of([self._loaded[number] for number in sorted(self._loaded)])
        return self._corpus

    def refresh(self) -> list[int]:
        """Read the segments that are new, and let go of those that are gone. Returns those that cannot be used."""
        self.stale = self._is_stale()
        unusable = self._lost() if self._first else []
        self._first = False
        stored = self._forms()
        gone = self._loaded.keys() - stored.keys()
        for number in gone:
            del self._loaded[number]
        fresh = [number for number in sorted(stored) if number not in self._loaded]
        for number in fresh:
            segment = self._read(number) if self._fits(stored[number]) else None
            if segment is None:
                unusable.append(number)
            else:
                self._loaded[number] = segment
        if gone or fresh:
            self._corpus = None
        self.waiting = tuple(number for number in sorted(self._loaded) if stored[number] == self._by_words) if self.compact else ()
        return unusable

    def _lost(self) -> list[int]:
        """Segments that records name and that are not there."""
        query = "SELECT DISTINCT segment FROM records WHERE segment IS NOT NULL AND segment NOT IN (SELECT number FROM segments)"
        return [number for (number,) in self._database.execute(query)]

    def _fits(self, form: str) -> bool:
        analysis, _, embedder = form.partition("|")
        return analysis == self._analysis and (self.compact is None or embedder in ("", self.compact.name))

    def _read(self, number: int) -> Segment | None:
        query = "SELECT CAST(checksum AS INTEGER), CAST(body AS BLOB), CAST(form AS BLOB) FROM segments WHERE number = ?"
        row = self._database.execute(query, (number,)).fetchone()
        if row is None or crc32(row[1]) != row[0]:
            return None
        try:
            segment = Segment.from_bytes(row[1])
        except (ValueError, KeyError, IndexError):
            return None
        return segment.without_vectors(self._dimension) if row[2] == self._by_words.encode() else segment

    def tokens(self, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        """The bytes of the vectors of the words of these rows. Where they are not as long as they should be there is nothing but zeros."""
        assert self.compact is not None  # noqa: S101
        return self.corpus.tokens_of(rows, self.corpus.meaning, self.compact.token_dimension, self._kept_tokens)

    def _kept_tokens(self, numbers: Sequence[int]) -> dict[int, bytes]:
        marks = ",".join(map(str, numbers))
        query = f"SELECT number, CAST(tokens AS BLOB) FROM meanings WHERE number IN ({marks})"  # noqa: S608  # numbers only
        return dict(self._database.execute(query))

    # Writing

    def embed(self, records: Iterable[Record], known: Mapping[bytes, Meaning] | None = None) -> Embedded:
        """The meanings of these records that are not kept yet nor known, by the hash of their text, as far as the embedder answers."""
        if self.compact is None:
            return Embedded()
        wanted = {text.hash: text.pieces for record in records if (text := self._text(record)).pieces}
        missing = {hash: pieces for hash, pieces in wanted.items() if hash not in (known or {}) and self._meaning(hash) is None}
        return self.compact.embed_most(missing)

    def put(self, records: Sequence[tuple[int, Record]], made: Mapping[bytes, Meaning]) -> None:
        """Index these records, by their numbers, in new segments; small segments become one.

        What has no vectors yet is indexed by its words, and waits in a segment of its own.
        """
        ready: list[Entry] = []
        waiting: list[Entry] = []
        for number, record in records:
            entry = self._entry(number, record, made) if self.compact is not None else None
            (waiting if entry is None else ready).append(entry or entry_of(number, record))
        self._database.executemany("UPDATE records SET meaning = ? WHERE number = ?", [(one.meaning or None, one.number) for one in ready])
        for entries, form in ((ready, self._form), (waiting, self._by_words)):
            if entries:
                self._join(self._write(build(entries, self._dimension), [one.number for one in entries], form))

    def _entry(self, number: int, record: Record, made: Mapping[bytes, Meaning]) -> Entry | None:
        """What is indexed of a record with its vectors; None while it has none, and should have some."""
        text = self._text(record)
        if not text.pieces:
            return entry_of(number, record)
        found = self._kept(text, made)
        if found is None:
            return None
        meaning, kept = found
        scales, words, vectors = read_vectors(kept, self._dimension)
        return replace(entry_of(number, record), meaning=meaning, scales=scales, words=words, vectors=vectors)

    def _kept(self, text: _Text, made: Mapping[bytes, Meaning]) -> tuple[int, bytes] | None:
        """The number of a text's meaning, and its vectors; written down if it is new. None if it is neither kept nor made."""
        known = self._meaning(text.hash)
        meaning = made.get(text.hash)
        if known is not None or meaning is None:
            return known
        values = (text.hash, meaning.vectors, meaning.tokens)
        query = (
            "INSERT INTO meanings (hash, vectors, tokens) VALUES (?, ?, ?)"
            " ON CONFLICT (hash) DO UPDATE SET vectors = excluded.vectors, tokens = excluded.tokens RETURNING number"  # over a damaged one
        )
        (number,) = self._database.execute(query, values).fetchone()
        return int(number), meaning.vectors

    def _meaning(self, hash: bytes) -> tuple[int, bytes] | None:
        row = self._database.execute("SELECT number, CAST(vectors AS BLOB) FROM meanings WHERE hash = ?", (hash,)).fetchone()
        if row is None or (self.compact is not None and len(row[1]) % (self._dimension + 6)):
            return None
        return int(row[0]), bytes(row[1])

    def _text(self, record: Record) -> _Text:
        assert self.compact is not None  # noqa: S101
        pieces = texts_of(record)
        return _Text(self.compact.hash_of(pieces), pieces)

    def _write(self, segment: Segment, numbers: Iterable[int], form: str) -> int:
        body = segment.to_bytes()
        cursor = self._database.execute(
            "INSERT INTO segments (form, records, checksum, body) VALUES (?, ?, ?, ?)", (form, len(segment), crc32(body), body)
        )
        stored = int(cursor.lastrowid or 0)
        self._database.executemany("UPDATE records SET segment = ? WHERE number = ?", [(stored, number) for number in numbers])
        return stored

    def _join(self, newest: int) -> None:
        """Join the newest segment with the one before as long as that is not much larger: so there are never many."""
        sizes = self._database.execute("SELECT number, records, form FROM segments ORDER BY number").fetchall()
        together = [newest]
        total = sizes[-1][1]
        for number, records, form in reversed(sizes[:-1]):
            if form != sizes[-1][2] or records > 2 * total or total + records > _LARGEST:
                break
            together.append(number)
            total += records
        if len(together) < 2:
            return
        parts = [self._loaded.get(number) or self._read(number) for number in sorted(together)]
        sound = [part for part in parts if part is not None]
        if len(sound) < len(parts):
            return  # the damaged one is found and made again by the next search
        whole = joined(sound)
        self._database.executemany("DELETE FROM segments WHERE number = ?", [(number,) for number in together])
        self._write(whole, whole["numbers"].tolist(), sizes[-1][2])

    def take_out(self, numbers: Iterable[int]) -> None:
        """Write the segments of these records anew without them. The records are deleted by the caller, afterwards."""
        affected: dict[int, list[int]] = {}
        for number in numbers:
            row = self._database.execute("SELECT segment FROM records WHERE number = ?", (number,)).fetchone()
            if row is not None and row[0] is not None:
                affected.setdefault(row[0], []).append(number)
        forms = self._forms() if affected else {}
        for stored, gone in affected.items():
            segment = self._loaded.get(stored) or self._read(stored)
            drop_segments(self._database, [stored])
            if segment is not None and len(segment) > len(gone):
                rest = segment.without(gone)
                self._write(rest, rest["numbers"].tolist(), forms[stored])

    def begin_anew(self) -> None:
        """Forget all segments and all vectors: every record waits to be indexed and embedded again."""
        self._database.execute("UPDATE records SET segment = NULL, meaning = NULL")
        for table in ("segments", "meanings"):
            self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
        self.stale = False

    def repair(self, unusable: Iterable[int]) -> None:
        """Forget segments that cannot be read, or were made in another way: their records wait to be indexed again."""
        found = list(unusable)
        if found:
            drop_segments(self._database, found)
            self._told(len(found))
