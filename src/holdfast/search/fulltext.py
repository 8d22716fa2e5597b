"""A full-text index over SQLite: our own terms in FTS5, ranked by BM25 over fields and neighbours.

    index = FullTextIndex("notes.sqlite", Shape({"text": 1.0, "title": 2.0}))
    index.add([Document("n1", {"text": "The tests need PostgreSQL 16.", "title": "Database"})])
    index.search("which databases do we need?")

FTS5 finds the candidates, in C; they are ranked anew here, because FTS5 knows neither neighbours nor our settings of BM25. An index is
derived from something else and may be thrown away: when its form or the analysis of words has changed it empties itself
and is `fresh`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from itertools import islice
from math import log
from os import PathLike
from types import TracebackType

from holdfast.durable.database import database_faults, open_database, transaction
from holdfast.errors import InputError
from holdfast.search.pieces import PROBE, cut_pieces
from holdfast.search.plain_ranking import saturated
from holdfast.search.questions import analysed, asked_terms, common_languages, lookalikes
from holdfast.text.language import guess_language
from holdfast.text.words import terms

_COLUMNS = ("a", "b", "c", "d")
_SCRIPTS = ("fulltext.sql", "fulltext_meanings.sql")
_BATCH = 500
_CANDIDATES = 60
_SHORT = 64  # characters
_FORM = 2  # changes when documents are indexed in another way: then an index empties itself
_ENOUGH_ROWS = 20_000  # rows looked at for candidates: the rarest terms are asked first, and commoner ones only until this is reached


@dataclass(frozen=True)
class Shape:
    """What is indexed and how it is ranked.

    `fields` are one to four names with their weights; the first is the long one, which is cut into pieces. `window` holds the weight of
    the neighbours at distance 1, 2, ...: a message is often understood from the one before it. `k1` and `b` are BM25's.
    """

    fields: Mapping[str, float]
    window: tuple[float, ...] = ()
    k1: float = 0.9
    b: float = 0.4
    rarity: float = 1.0
    """The power to which a term's rarity is raised: above 1, one rare word that a question shares outweighs several common ones."""
    full_neighbour: float = 40.0
    """Terms of a neighbour that count in full; of a longer one only a part does, so that a page does not colour what stands beside it."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.fields) <= len(_COLUMNS):
            raise InputError(f"an index has one to {len(_COLUMNS)} fields, not {len(self.fields)}.")


@dataclass(frozen=True, slots=True)
class Document:
    """Something to be found. `ref` is the owner's own number for it (a position in a log, say).

    `kind` and `time` (text that sorts, such as an ISO stamp) are there to filter by; neighbours never cross a `scope`.
    """

    id: str
    fields: Mapping[str, str]
    kind: str = ""
    time: str = ""
    scope: str = ""
    ref: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A document that was found: its best piece, as a stretch of the first field, and the terms that it matched with what they added."""

    id: str
    ref: int
    score: float
    piece: tuple[int, int]
    language: str
    matched: Mapping[str, float] = field(default_factory=dict)
    row: int = 0
    """The number of that piece in the index: the next ones are its neighbours."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A piece as it is indexed: where it is, and the terms of each field, as often as they come."""

    document: str
    ref: int
    kind: str
    time: str
    scope: str
    language: str
    piece: tuple[int, int]
    terms: Mapping[str, Sequence[str]]


_Piece = tuple[int, int, str, Sequence[Sequence[str]]]
"""A stretch of a document's first field, its language, and the terms of each field."""


@dataclass(slots=True)
class _Row:
    document: str
    ref: int
    scope: str
    language: str
    piece: tuple[int, int]
    size: float
    counts: dict[str, float]


class FullTextIndex:
    """The index in the file at `path`, or in memory with `":memory:"`. Safe for many threads and processes.

    What `add` and `remove` returned survives a power cut. Damaged if the file is not a sound database: remove it and begin anew.
    """

    def __init__(self, path: str | PathLike[str], shape: Shape, *, timeout: float = 10.0) -> None:
        self.shape = shape
        self._weights = [*shape.fields.values(), *[0.0] * (len(_COLUMNS) - len(shape.fields))]
        self._lock = threading.RLock()
        scripts = [files("holdfast.search").joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS]
        self._database = open_database(path, migrations=scripts, timeout=timeout, threads=True)
        self.path = self._database.path
        try:
            self._database.execute("PRAGMA secure_delete=ON")  # what is removed is overwritten, not only unlinked
            self.fresh = self._prepare()
        except BaseException:
            self._database.close()
            raise

    def add(self, documents: Iterable[Document], *, notes: Mapping[str, str] | None = None) -> int:
        """Index the documents, in place of those of the same id, and write down the notes, all in one step. Says how many there were."""
        prepared = [(document, self._pieces(document)) for document in documents]
        with self._changing() as database:
            self._remove(self._held([document.id for document, _ in prepared]))
            for language, count in Counter(piece[2] for _, pieces in prepared for piece in pieces).items():
                self._count(language, count)
            self._insert([(document, piece) for document, pieces in prepared for piece in pieces])
            database.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", list((notes or {}).items()))
        return len(prepared)

    def clear(self) -> None:
        """Take everything out, the notes too."""
        with self._changing() as database:
            self._empty(database)

    def note(self, key: str) -> str | None:
        """What was written down under this key."""
        row = self._one("SELECT value FROM notes WHERE key = ?", key)
        return None if row is None else str(row[0])

    def ids(self) -> set[str]:
        """The ids of all documents."""
        with self._lock, database_faults(self.path, "read"):
            return {str(name) for (name,) in self._database.execute("SELECT DISTINCT document FROM pieces")}

    def __len__(self) -> int:
        row = self._one("SELECT count(DISTINCT document) FROM pieces")
        return int(row[0]) if row else 0

    def search(
        self,
        question: str,
        top_k: int = 10,
        *,
        kinds: Collection[str] | None = None,
        after: str | None = None,
        before: str | None = None,
        among: Collection[str] | None = None,
    ) -> list[Found]:
        """The documents that answer the question best, best first; the newer of two equal ones first.

        Any text is a question: nothing in it is an operator. `kinds`, `after` (from then on), `before` (earlier than that) and
        `among` (ids) leave out what does not fit before anything is ranked.
        """
        with self._lock, database_faults(self.path, "search"):
            asked = self._asked(question)
            if not asked or top_k < 1:
                return []
            condition, values = _condition(kinds, after, before, among)
            rows = self._candidates(asked, max(_CANDIDATES, 4 * top_k), condition, values)
            return self._ranked({term: weight for term, (weight, _) in asked.items()}, rows, top_k, condition, values)

    def met(self, gain: float, rarity: float) -> float:
        """Of a term of this rarity: how much of the most that it could add to a score it did add, 0 to 1."""
        most = rarity**self.shape.rarity * (self.shape.k1 + 1)
        return min(gain / most, 1.0) if most else 0.0

    def indexed(self, rows: Collection[int]) -> dict[int, Indexed]:
        """Those of these pieces that there are."""
        found: dict[int, Indexed] = {}
        names = list(self.shape.fields)
        with self._lock, database_faults(self.path, "read"):
            for batch in _batches(sorted(set(rows))):
                columns_of = "SELECT row, document, ref, kind, time, scope, language, start, stop, a, b, c, d FROM pieces"
                statement = f"{columns_of} JOIN words ON words.rowid = pieces.row WHERE pieces.row IN ({_marks(batch)})"
                for row, document, ref, kind, time, scope, language, start, stop, *columns in self._database.execute(statement, batch):
                    terms_of = {name: column.split(" ") if column else [] for name, column in zip(names, columns, strict=False)}
                    found[row] = Indexed(document, ref, kind, time, scope, language, (start, stop), terms_of)
        return found

    def meanings(self, rows: Collection[int]) -> dict[int, tuple[bytes, bytes]]:
        """What `keep_meanings` was given for these pieces."""
        found: dict[int, tuple[bytes, bytes]] = {}
        with self._lock, database_faults(self.path, "read"):
            for batch in _batches(sorted(set(rows))):
                statement = f"SELECT row, vectors, tokens FROM meanings WHERE row IN ({_marks(batch)})"  # noqa: S608  # numbers only
                found |= {row: (vectors, tokens) for row, vectors, tokens in self._database.execute(statement, batch)}
        return found

    def without_meaning(self, limit: int, *, but: str = "") -> list[int]:
        """The newest pieces that have none, those of the kind `but` left out."""
        statement = "SELECT row FROM pieces WHERE kind IS NOT ? AND row NOT IN (SELECT row FROM meanings) ORDER BY row DESC LIMIT ?"
        with self._lock, database_faults(self.path, "read"):
            return [row for (row,) in self._database.execute(statement, (but or None, limit))]

    def keep_meanings(self, made: Mapping[int, tuple[bytes, bytes]], *, by: str) -> None:
        """Keep the vectors of pieces beside them. `by` names what made them: those of another maker go."""
        with self._changing() as database:
            if self.note("meanings") != by:
                database.execute("DELETE FROM meanings")
                database.execute("INSERT OR REPLACE INTO notes VALUES ('meanings', ?)", (by,))
            database.executemany("INSERT OR REPLACE INTO meanings VALUES (?, ?, ?)", [(row, *parts) for row, parts in made.items()])

    @property
    def records(self) -> int:
        """How many pieces there are (this and the next ones are `questions.Statistics`)."""
        return int(self._one("SELECT pieces FROM totals")[0])  # type: ignore[index]  # there is always one row

    @property
    def spoken(self) -> int:
        return self.records

    @property
    def average(self) -> float:
        pieces, size = self._one("SELECT pieces, size FROM totals")  # type: ignore[misc]  # as above
        return float(max(size / max(pieces, 1), 1.0))

    @property
    def languages(self) -> list[str]:
        with self._lock, database_faults(self.path, "read"):
            return common_languages(dict(self._database.execute("SELECT code, pieces FROM languages")))

    def held(self, wanted: Collection[str]) -> dict[str, tuple[int, int]]:
        with self._lock, database_faults(self.path, "read"):
            counts = {term: self._frequency(term) for term in wanted}
        return {term: (count, count) for term, count in counts.items() if count}

    def beginning_with(self, head: str) -> list[str]:
        with self._lock, database_faults(self.path, "read"):
            return self._beginning_with(head)

    def speakers(self, names: Collection[str]) -> Collection[str]:  # the index knows nobody by name
        return ()

    def close(self) -> None:
        """Close the file. The index is of no more use afterwards."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> FullTextIndex:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Writing

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._database) as database:
            yield database

    def _prepare(self) -> bool:
        """Empty the index if it was made with another shape or another analysis. True if it is empty now for that or no reason."""
        form = json.dumps([_FORM, list(self.shape.fields), terms(PROBE, "en"), list(cut_pieces("word. " * 600))])
        mark = blake2b(form.encode(), digest_size=12).hexdigest()
        if self.note("form") == mark:
            return False
        with self._changing() as database:
            self._empty(database)
            database.execute("INSERT OR REPLACE INTO notes VALUES ('form', ?)", (mark,))
        return True

    def _empty(self, database: sqlite3.Connection) -> None:
        for table in ("words", "pieces", "languages", "meanings"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608  # our own table names
        database.execute("DELETE FROM notes WHERE key != 'form'")
        database.execute("UPDATE totals SET pieces = 0, size = 0")

    def _pieces(self, document: Document) -> list[_Piece]:
        """The pieces of a document with the terms of every field. The short fields go with the first piece."""
        names = list(self.shape.fields)
        text = document.fields.get(names[0], "")
        language = guess_language(text[:4000])
        short = [_terms(document.fields.get(name, ""), language) for name in names[1:]]
        found: list[_Piece] = []
        for start, stop in cut_pieces(text):
            found.append((start, stop, language, [_terms(text[start:stop], language), *(short if start == 0 else [])]))
        return found

    def _insert(self, given: Sequence[tuple[Document, _Piece]]) -> None:
        """Write these pieces, all of a table at once: an archive that nobody has searched comes in as a whole."""
        (row,) = self._database.execute("SELECT coalesce(max(row), 0) + 1 FROM pieces").fetchone()
        places, words, total = [], [], 0.0
        for number, (one, (start, stop, language, columns)) in enumerate(given, row):
            size = sum(len(column) * weight for column, weight in zip(columns, self._weights, strict=False))
            places.append((number, one.id, one.ref, one.kind, one.time, one.scope, language, start, stop, size))
            words.append((number, *(" ".join(column) for column in columns), *[""] * (len(_COLUMNS) - len(columns))))
            total += size
        self._database.executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", places)
        self._database.executemany("INSERT INTO words (rowid, a, b, c, d) VALUES (?, ?, ?, ?, ?)", words)
        self._database.execute("UPDATE totals SET pieces = pieces + ?, size = size + ?", (len(given), total))

    def _remove(self, ids: Iterable[str]) -> None:
        for name in dict.fromkeys(ids):
            rows = self._database.execute("SELECT row, language, size FROM pieces WHERE document = ?", (name,)).fetchall()
            for row, language, size in rows:
                self._database.execute("DELETE FROM words WHERE rowid = ?", (row,))
                self._database.execute("DELETE FROM meanings WHERE row = ?", (row,))
                self._count(language, -1)
                self._database.execute("UPDATE totals SET pieces = pieces - 1, size = size - ?", (size,))
            self._database.execute("DELETE FROM pieces WHERE document = ?", (name,))

    def _count(self, language: str, pieces: int) -> None:
        self._database.execute(
            "INSERT INTO languages VALUES (?, ?) ON CONFLICT (code) DO UPDATE SET pieces = pieces + excluded.pieces", (language, pieces)
        )

    # Reading

    def _one(self, statement: str, *values: object) -> sqlite3.Row | None:
        with self._lock, database_faults(self.path, "read"):
            found: sqlite3.Row | None = self._database.execute(statement, values).fetchone()
            return found

    def _held(self, ids: Sequence[str]) -> list[str]:
        """Those of these documents that there are."""
        statement = "SELECT DISTINCT document FROM pieces WHERE document IN (SELECT value FROM json_each(?))"
        return [name for (name,) in self._database.execute(statement, (json.dumps(ids),))]

    def _asked(self, question: str) -> dict[str, tuple[float, int]]:
        """The terms of the question that the index knows, each with its rarity as weight and how often it is there, the rarest first."""
        codes = [code for (code,) in self._database.execute("SELECT code FROM languages WHERE pieces > 0 ORDER BY pieces DESC LIMIT 4")]
        (pieces,) = self._database.execute("SELECT pieces FROM totals").fetchone()
        found: dict[str, tuple[float, int]] = {}
        for term in asked_terms(question, codes):
            count = self._frequency(term)
            if count:
                found[term] = (self._rarity(pieces, count), count)
                continue
            for other, weight in lookalikes(term, self._beginning_with).items():
                count = self._frequency(other)
                found[other] = max(found.get(other, (0.0, 0)), (weight * self._rarity(pieces, count), count))
        return dict(sorted(found.items(), key=lambda pair: -pair[1][0]))

    def _rarity(self, pieces: int, count: int) -> float:
        return float(log(1 + (pieces - count + 0.5) / (count + 0.5)) ** self.shape.rarity)

    def _frequency(self, term: str) -> int:
        row = self._database.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
        return int(row[0]) if row else 0

    def _beginning_with(self, head: str) -> list[str]:
        limits = (head, head + "\U0010ffff")
        return [term for (term,) in self._database.execute("SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT 5000", limits)]

    def _candidates(self, asked: Mapping[str, tuple[float, int]], count: int, condition: str, values: Sequence[object]) -> list[int]:
        """The rows that hold the rarest of the terms, by FTS5's own ranking."""
        chosen: list[str] = []
        reached = 0
        for term, (_, frequency) in asked.items():
            reached += frequency
            if chosen and reached > _ENOUGH_ROWS:
                break
            chosen.append(term)
        match = " OR ".join('"' + term.replace('"', '""') + '"' for term in chosen)
        join = f"JOIN pieces ON pieces.row = words.rowid AND {condition}" if condition else ""
        rank = f"bm25(words, {', '.join(str(float(weight)) for weight in self._weights)})"
        statement = f"SELECT words.rowid FROM words {join} WHERE words MATCH ? ORDER BY {rank} LIMIT ?"  # noqa: S608  # numbers and our own names
        return [row for (row,) in self._database.execute(statement, (*values, match, count))]

    def _ranked(
        self, weights: Mapping[str, float], candidates: list[int], top_k: int, condition: str, values: Sequence[object]
    ) -> list[Found]:
        reach = len(self.shape.window)
        near = sorted({row + step for row in candidates for step in range(-reach, reach + 1)})
        rows = self._rows(near, weights)
        allowed = self._allowed(near, condition, values) if condition and reach else set(near)
        (pieces, size) = self._database.execute("SELECT pieces, size FROM totals").fetchone()
        average = max(size / max(pieces, 1), 1.0) * (1 + 2 * sum(self.shape.window))
        best: dict[str, tuple[float, int, dict[str, float]]] = {}
        for number in near:
            row = rows.get(number)
            if row is None or number not in allowed:
                continue
            gains = self._gains(number, row, rows, weights, average)
            score = sum(gains.values())
            if score > 0 and (row.document not in best or (score, number) > best[row.document][:2]):
                best[row.document] = (score, number, gains)
        ordered = sorted(best.values(), key=lambda found: (-found[0], -found[1]))
        return [
            Found(rows[number].document, rows[number].ref, score, rows[number].piece, rows[number].language, gains, number)
            for score, number, gains in islice(ordered, top_k)
        ]

    def _gains(self, number: int, row: _Row, rows: Mapping[int, _Row], weights: Mapping[str, float], average: float) -> dict[str, float]:
        """What each term adds to the score of a row: BM25 over its own words and, at a lower weight, those of its neighbours."""
        counts, size = dict(row.counts), row.size
        for step in (-1, 1):
            for distance, weight in enumerate(self.shape.window, 1):
                other = rows.get(number + step * distance)
                if other is None or other.scope != row.scope:
                    break
                part = weight * min(1.0, self.shape.full_neighbour / max(other.size, 1.0))
                size += part * other.size
                for term, count in other.counts.items():
                    counts[term] = counts.get(term, 0.0) + part * count
        return {term: weights[term] * saturated(count, size / average, self.shape.k1, self.shape.b) for term, count in counts.items()}

    def _rows(self, numbers: Collection[int], weights: Mapping[str, float]) -> dict[int, _Row]:
        found: dict[int, _Row] = {}
        for batch in _batches(sorted(set(numbers))):
            columns_of = "SELECT row, document, ref, scope, language, start, stop, size, a, b, c, d FROM pieces"
            statement = f"{columns_of} JOIN words ON words.rowid = pieces.row WHERE pieces.row IN ({_marks(batch)})"
            for row, document, ref, scope, language, start, stop, size, *columns in self._database.execute(statement, batch):
                found[row] = _Row(document, ref, scope, language, (start, stop), size, self._counts(columns, weights))
        return found

    def _counts(self, columns: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
        counts: dict[str, float] = {}
        for column, weight in zip(columns, self._weights, strict=True):
            if column:
                words = column.split(" ")
                for term in weights.keys() & words:
                    counts[term] = counts.get(term, 0.0) + weight * words.count(term)
        return counts

    def _allowed(self, numbers: list[int], condition: str, values: Sequence[object]) -> set[int]:
        found: set[int] = set()
        for batch in _batches(numbers):
            statement = f"SELECT row FROM pieces WHERE {condition} AND row IN ({_marks(batch)})"  # noqa: S608  # our own conditions
            found.update(row for (row,) in self._database.execute(statement, (*values, *batch)))
        return found


def _terms(text: str, language: str) -> Sequence[str]:
    """The terms of a text. Of a short one, a date or the name of a tool, they are kept: many documents have it."""
    return _few_terms(text, language) if len(text) <= _SHORT else analysed(terms(text, language))


@lru_cache(maxsize=1024)
def _few_terms(text: str, language: str) -> tuple[str, ...]:
    return tuple(analysed(terms(text, language)))


def _condition(
    kinds: Collection[str] | None, after: str | None, before: str | None, among: Collection[str] | None
) -> tuple[str, list[object]]:
    """The filters as SQL over `pieces`, values apart."""
    parts: list[str] = []
    values: list[object] = []
    for column, allowed in (("kind", kinds), ("document", among)):
        if allowed is not None:
            parts.append(f"pieces.{column} IN (SELECT value FROM json_each(?))")  # noqa: S608  # our own column names
            values.append(json.dumps(sorted(allowed)))
    for operator, moment in ((">=", after), ("<", before)):
        if moment is not None:
            parts.append(f"pieces.time {operator} ?")
            values.append(moment)
    return " AND ".join(parts), values


def _batches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), _BATCH):
        yield numbers[start : start + _BATCH]


def _marks(batch: Sequence[int]) -> str:
    return ",".join("?" * len(batch))
