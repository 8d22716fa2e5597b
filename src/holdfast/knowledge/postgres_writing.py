"""Adding and forgetting records in PostgreSQL: rows, how often each term comes, and vectors change in one transaction."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.durable import strict_json
from holdfast.durable.postgres import Postgres, Row, Transaction
from holdfast.errors import Damaged, InputError
from holdfast.knowledge.indexing import analyse, form_of_analysis, texts_of
from holdfast.knowledge.periods import date_words
from holdfast.knowledge.postgres_vectors import Vectors
from holdfast.knowledge.records import Record, from_json, merged, to_json
from holdfast.knowledge.store import AddReport
from holdfast.search.questions import analysed, bare_name
from holdfast.text.words import terms

if TYPE_CHECKING:
    from holdfast.search.vectors import Meaning

_LAGGING = 64  # records without vectors that one `add` makes up for


class Writer:
    """Changes one collection. Writers take turns at its lock; embedding is done before."""

    def __init__(self, database: Postgres, collection: int, vectors: Vectors | None, lock: int) -> None:
        self._database = database
        self._collection = collection
        self._vectors = vectors
        self._lock = lock
        self._form = form_of_analysis()

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
                    self._put_vectors(step, number, record, made)
        return AddReport(added, updated, len(batch) - len(changed), computed, tuple(record.id for record in batch))

    def forget(self, ids: Sequence[str]) -> list[str]:
        """Remove these records and all that was made from them; says which there were."""
        if not ids:
            return []
        with self._database.transaction(self._lock) as step:
            query = f"DELETE FROM knowledge_records WHERE collection = %s AND id = ANY(%s) RETURNING id, {_COUNTED}"  # noqa: S608 - ours
            gone = step.rows(query, [self._collection, list(ids)])
            self._count(step, [], [_Counted(*row[1:]) for row in gone])
        return [row[0] for row in gone]

    def analyse_again(self) -> None:
        """Analyse and count what was written in another way, by an older version for example."""
        query = "SELECT id FROM knowledge_records WHERE collection = %s AND analysis <> %s LIMIT %s"
        while ids := [id for (id,) in self._database.rows(query, [self._collection, self._form, _LAGGING])]:
            with self._database.transaction(self._lock) as step:
                there = self._there(step.rows, ids)
                self._write(step, {id: old.record for id, old in there.items()}, there, {})

    def embed_more(self) -> bool:
        """Embed some of what has no vectors yet; says whether there may be more."""
        if not self._lagging():
            return False
        self.add([])
        return True

    def _embedded(self, records: Sequence[Record]) -> tuple[dict[bytes, Meaning], int]:
        return self._vectors.embed(records) if self._vectors is not None and records else ({}, 0)

    def _lagging(self) -> list[tuple[int, Record]]:
        rows = self._vectors.missing(_LAGGING) if self._vectors is not None else []
        return [(number, read_record(text)) for number, text in rows]

    def _there(self, ask: Callable[[str, Sequence[Any]], list[Row]], wanted: Iterable[str]) -> dict[str, _Old]:
        query = f"SELECT id, number, record::text, {_COUNTED} FROM knowledge_records WHERE collection = %s AND id = ANY(%s)"  # noqa: S608 - ours
        rows = ask(query, [self._collection, list(wanted)])
        return {id: _Old(number, read_record(text), _Counted(*counted)) for id, number, text, *counted in rows}

    def _changed(self, wanted: Mapping[str, Record], there: Mapping[str, _Old]) -> dict[str, Record]:
        found = {id: merged(there[id].record, record) if id in there else record for id, record in wanted.items()}
        return {id: record for id, record in found.items() if id not in there or record != there[id].record}

    def _write(self, step: Transaction, changed: Mapping[str, Record], there: Mapping[str, _Old], made: Mapping[bytes, Meaning]) -> None:
        news: list[_Counted] = []
        for id, record in changed.items():
            counts, language = analyse(record)
            new = _Counted({term: times for term, times in counts.items() if term}, language, record.role, self._form)
            news.append(new)
            row = [_encoded(to_json(record)), record.session, record.position, record.time, record.kind, list(record.tags)]
            row += [language, _encoded(new.counts), list(dict.fromkeys((*new.counts, *_date_terms(record)))), self._form, record.role]
            row += [bare_name(record.speaker) if record.speaker else None, sum(counts.values())]
            if id in there:
                number = there[id].number
                step.execute(_UPDATE, [*row, number])
            else:
                made_row = step.one(_INSERT, [*row, self._collection, id])
                number = int(made_row[0]) if made_row else 0
            if id not in there or texts_of(there[id].record) != texts_of(record):
                self._put_vectors(step, number, record, made)
        self._count(step, news, [there[id].counted for id in changed if id in there])

    def _put_vectors(self, step: Transaction, number: int, record: Record, made: Mapping[bytes, Meaning]) -> None:
        if self._vectors is not None:
            self._vectors.put(step, number, record, made)

    def _count(self, step: Transaction, news: Sequence[_Counted], olds: Sequence[_Counted]) -> None:
        """Bring the counters of the collection in line, and leave a mark by which the change can be told."""
        terms, spoken, languages = Counter[str](), Counter[str](), Counter[str]()
        totals = Counter[str]()
        for sign, counted in (*((1, one) for one in news), *((-1, one) for one in olds if one.analysis)):
            said = counted.role != "assistant"
            for term in counted.counts:
                terms[term] += sign
                spoken[term] += sign * said
            languages[counted.language] += sign
            totals.update({"records": sign, "spoken": sign * said, "size" if said else "answer_size": sign * counted.size})
        touched = [term for term in terms if terms[term] or spoken[term]]
        step.execute(_TERMS, [self._collection, touched, [terms[term] for term in touched], [spoken[term] for term in touched]])
        step.execute(_UNUSED_TERMS, [self._collection, touched])
        step.execute(_LANGUAGES, [self._collection, list(languages), list(languages.values())])
        step.execute(_UNUSED_LANGUAGES, [self._collection, list(languages)])
        token = secrets.token_hex(8)
        step.execute(_TOTALS, [*(totals[name] for name in ("records", "spoken", "size", "answer_size")), token, self._collection])
        step.proof = ("SELECT 1 FROM knowledge_collections WHERE number = %s AND token = %s", [self._collection, token])


@dataclass(frozen=True, slots=True)
class _Counted:
    """What of a record is in the counters of its collection. Nothing is where `analysis` is empty."""

    counts: Mapping[str, int]
    language: str
    role: str | None
    analysis: str
    stored: int | None = None

    @property
    def size(self) -> int:
        return sum(self.counts.values()) if self.stored is None else self.stored


@dataclass(frozen=True, slots=True)
class _Old:
    """A record as it is in the database."""

    number: int
    record: Record
    counted: _Counted


_COUNTED = "counts, language, role, analysis, size"
_TERMS = """
INSERT INTO knowledge_terms (collection, term, records, spoken)
SELECT %s, t.name, t.more, t.spoken FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) t (name, more, spoken)
ON CONFLICT (collection, term) DO UPDATE
SET records = knowledge_terms.records + excluded.records, spoken = knowledge_terms.spoken + excluded.spoken
"""
_UNUSED_TERMS = "DELETE FROM knowledge_terms WHERE collection = %s AND term = ANY(%s) AND records <= 0"
_LANGUAGES = """
INSERT INTO knowledge_languages (collection, language, records)
SELECT %s, t.name, t.more FROM unnest(%s::text[], %s::bigint[]) t (name, more)
ON CONFLICT (collection, language) DO UPDATE SET records = knowledge_languages.records + excluded.records
"""
_UNUSED_LANGUAGES = "DELETE FROM knowledge_languages WHERE collection = %s AND language = ANY(%s) AND records <= 0"
_TOTALS = """
UPDATE knowledge_collections
SET records = records + %s, spoken = spoken + %s, size = size + %s, answer_size = answer_size + %s, token = %s WHERE number = %s
"""
_INSERT = """
INSERT INTO knowledge_records
    (record, session, position, time, kind, tags, language, counts, terms, analysis, role, speaker, size, collection, id)
VALUES (%s::json, %s, %s, %s, %s, %s, %s, %s::jsonb, array_to_tsvector(%s::text[]), %s, %s, %s, %s, %s, %s) RETURNING number
"""
_UPDATE = """
UPDATE knowledge_records SET (record, session, position, time, kind, tags, language, counts, terms, analysis, role, speaker, size)
    = ROW (%s::json, %s::text, %s::bigint, %s::timestamptz, %s::text, %s::text[], %s::text, %s::jsonb, array_to_tsvector(%s::text[]),
           %s::text, %s::text, %s::text, %s::integer)
WHERE number = %s
"""


def read_record(text: str) -> Record:
    """The record in a row. Damaged if somebody made it something else."""
    try:
        return from_json(strict_json.decode(text.encode()))
    except InputError as error:
        raise Damaged(f"a record in the database cannot be read: {error.message}", hint="Look at the table knowledge_records.") from error


def _date_terms(record: Record) -> list[str]:
    """The words of a record's day, by which it is looked for as well."""
    return analysed(terms(date_words(record.time), "en")) if record.time is not None else []


def _encoded(value: Any) -> str:
    return strict_json.encode(value, readable=False).decode()
