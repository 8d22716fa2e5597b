"""Adding and forgetting records in PostgreSQL: rows, how often each term comes, and vectors change in one transaction."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.durable import strict_json
from holdfast.durable.postgres import Postgres, Row, Transaction
from holdfast.errors import Damaged, InputError
from holdfast.knowledge.lexical import analyse
from holdfast.knowledge.periods import date_words
from holdfast.knowledge.postgres_vectors import Pieces
from holdfast.knowledge.records import Record, from_json, merged, to_json
from holdfast.knowledge.store import AddReport
from holdfast.search.embedding import Embedding
from holdfast.search.questions import analysed
from holdfast.text.words import terms

_DATE_WEIGHT = 0.5
_LAGGING = 64  # records without vectors that one `add` makes up for


class Writer:
    """Changes one collection. Writers take turns at its lock; embedding is done before."""

    def __init__(self, database: Postgres, collection: int, pieces: Pieces | None, lock: int) -> None:
        self._database = database
        self._collection = collection
        self._pieces = pieces
        self._lock = lock

    def add(self, batch: Sequence[Record]) -> AddReport:
        """Keep the records of a batch."""
        wanted: dict[str, Record] = {}
        for record in batch:
            wanted[record.id] = merged(wanted[record.id], record) if record.id in wanted else record
        changed = self._changed(wanted, self._there(self._database.rows, wanted))
        lagging = self._lagging()
        made, computed = self._embedded([*changed.values(), *(record for _, record in lagging)])
        updated = added = 0
        if changed or lagging:
            with self._database.transaction(self._lock) as step:
                there = self._there(step.rows, wanted)
                changed = self._changed(wanted, there)
                updated = sum(1 for id in changed if id in there)
                added = len(changed) - updated
                self._write(step, changed, there, made)
                for number, record in lagging:
                    self._put_pieces(step, number, record, made)
        return AddReport(added, updated, len(batch) - len(changed), computed, tuple(record.id for record in batch))

    def forget(self, ids: Sequence[str]) -> list[str]:
        """Remove these records and all that was made from them; says which there were."""
        if not ids:
            return []
        with self._database.transaction(self._lock) as step:
            query = "DELETE FROM knowledge_records WHERE collection = %s AND id = ANY(%s) RETURNING id, counts, language"
            gone = step.rows(query, [self._collection, list(ids)])
            self._count(step, -len(gone), _differences([], [counts for _, counts, _ in gone]), _differences([], [[row[2]] for row in gone]))
        return [row[0] for row in gone]

    def _embedded(self, records: Sequence[Record]) -> tuple[dict[bytes, Embedding], int]:
        return self._pieces.embed(records) if self._pieces is not None and records else ({}, 0)

    def _lagging(self) -> list[tuple[int, Record]]:
        rows = self._pieces.missing(_LAGGING) if self._pieces is not None else []
        return [(number, read_record(text)) for number, text in rows]

    def _there(self, ask: Callable[[str, Sequence[Any]], list[Row]], wanted: Iterable[str]) -> dict[str, _Old]:
        query = "SELECT id, number, record::text, counts, language FROM knowledge_records WHERE collection = %s AND id = ANY(%s)"
        rows = ask(query, [self._collection, list(wanted)])
        return {id: _Old(number, read_record(text), counts, language) for id, number, text, counts, language in rows}

    def _changed(self, wanted: Mapping[str, Record], there: Mapping[str, _Old]) -> dict[str, Record]:
        found = {id: merged(there[id].record, record) if id in there else record for id, record in wanted.items()}
        return {id: record for id, record in found.items() if id not in there or record != there[id].record}

    def _write(self, step: Transaction, changed: Mapping[str, Record], there: Mapping[str, _Old], made: Mapping[bytes, Embedding]) -> None:
        news: list[dict[str, float]] = []
        languages: list[list[str]] = []
        for id, record in changed.items():
            found = analyse(record)
            counts = _counts(found.counts, record)
            news.append(counts)
            languages.append([found.language])
            row = [_encoded(to_json(record)), record.session, record.position, record.time, record.kind, list(record.tags)]
            row += [found.language, _encoded(counts), list(counts)]
            if id in there:
                number = there[id].number
                step.execute(_UPDATE, [*row, number])
            else:
                made_row = step.one(_INSERT, [*row, self._collection, id])
                number = int(made_row[0]) if made_row else 0
            if id not in there or (there[id].record.text, there[id].record.role) != (record.text, record.role):
                self._put_pieces(step, number, record, made)
        olds = [there[id] for id in changed if id in there]
        self._count(
            step,
            len(news) - len(olds),
            _differences(news, [old.counts for old in olds]),
            _differences(languages, [[old.language] for old in olds]),
        )

    def _put_pieces(self, step: Transaction, number: int, record: Record, made: Mapping[bytes, Embedding]) -> None:
        if self._pieces is not None:
            self._pieces.put(step, number, record, made)

    def _count(self, step: Transaction, records: int, found: Mapping[str, int], languages: Mapping[str, int]) -> None:
        """Bring the counters of the collection in line, and leave a mark by which the change can be told."""
        for more, query, fewer in ((found, _MORE_TERMS, _FEWER_TERMS), (languages, _MORE_LANGUAGES, _FEWER_LANGUAGES)):
            step.execute(query, [self._collection, list(more), list(more.values())])
            step.execute(fewer, [self._collection, [name for name, times in more.items() if times < 0]])
        token = secrets.token_hex(8)
        step.execute(
            "UPDATE knowledge_collections SET records = records + %s, token = %s WHERE number = %s", [records, token, self._collection]
        )
        step.proof = ("SELECT 1 FROM knowledge_collections WHERE number = %s AND token = %s", [self._collection, token])


@dataclass(frozen=True, slots=True)
class _Old:
    """A record as it is in the database."""

    number: int
    record: Record
    counts: Mapping[str, Any]
    language: str


_MORE_TERMS = """
INSERT INTO knowledge_terms (collection, term, records) SELECT %s, t.name, t.more FROM unnest(%s::text[], %s::bigint[]) t (name, more)
ON CONFLICT (collection, term) DO UPDATE SET records = knowledge_terms.records + excluded.records
"""
_FEWER_TERMS = "DELETE FROM knowledge_terms WHERE collection = %s AND term = ANY(%s) AND records <= 0"
_MORE_LANGUAGES = """
INSERT INTO knowledge_languages (collection, language, records)
SELECT %s, t.name, t.more FROM unnest(%s::text[], %s::bigint[]) t (name, more)
ON CONFLICT (collection, language) DO UPDATE SET records = knowledge_languages.records + excluded.records
"""
_FEWER_LANGUAGES = "DELETE FROM knowledge_languages WHERE collection = %s AND language = ANY(%s) AND records <= 0"
_INSERT = """
INSERT INTO knowledge_records (record, session, position, time, kind, tags, language, counts, terms, collection, id)
VALUES (%s::json, %s, %s, %s, %s, %s, %s, %s::jsonb, array_to_tsvector(%s::text[]), %s, %s) RETURNING number
"""
_UPDATE = """
UPDATE knowledge_records SET (record, session, position, time, kind, tags, language, counts, terms)
    = ROW (%s::json, %s::text, %s::bigint, %s::timestamptz, %s::text, %s::text[], %s::text, %s::jsonb, array_to_tsvector(%s::text[]))
WHERE number = %s
"""


def read_record(text: str) -> Record:
    """The record in a row. Damaged if somebody made it something else."""
    try:
        return from_json(strict_json.decode(text.encode()))
    except InputError as error:
        raise Damaged(f"a record in the database cannot be read: {error.message}", hint="Look at the table knowledge_records.") from error


def _counts(found: Mapping[str, int], record: Record) -> dict[str, float]:
    """How often each term comes; the words of its day, by which it is asked for as well, count half."""
    counts: dict[str, float] = {term: times for term, times in found.items() if term}
    if record.time is not None:
        for term in dict.fromkeys(analysed(terms(date_words(record.time), "en"))):
            counts.setdefault(term, _DATE_WEIGHT)
    return counts


def _differences(news: Iterable[Iterable[str]], olds: Iterable[Iterable[str]]) -> dict[str, int]:
    """In how many more, or fewer, records each word comes."""
    found: Counter[str] = Counter()
    for words in news:
        found.update(set(words))
    for words in olds:
        found.subtract(set(words))
    return {word: more for word, more in found.items() if more}


def _encoded(value: Any) -> str:
    return strict_json.encode(value, readable=False).decode()
