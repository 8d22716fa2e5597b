"""Which records of a PostgreSQL collection may answer a question: by words and by meaning, each from an index, with their neighbours.

The rarest words of a question and the nearest vectors decide which records are looked at. How good they are is said by `search.ranking`,
as for every other store: it gets the candidates with what they need, and the statistics of all records from the counters of the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from holdfast.durable.postgres import Postgres, Transaction
from holdfast.knowledge.indexing import ROLES, asked_of, numpy_installed
from holdfast.knowledge.postgres_vectors import Vectors
from holdfast.knowledge.store import Filter
from holdfast.search.entries import Entry
from holdfast.search.plain_ranking import WINDOW, PlainIndex
from holdfast.search.questions import Asked, Ranked, Sought, average_size, common_languages, date_part, weigh

_ENOUGH = 4000  # records that the words which are looked up may have together
_NEAR = len(WINDOW)  # places around a candidate that may be answers too: so far it lends them its words
_SEEN = 2 * _NEAR  # places around it that are fetched: so far these borrow from others
_VOCABULARY = 3000
_FEWEST, _MOST = 100, 400  # candidates that each way of looking gives
_ON_THE_DAY = 50
_SHARES = {"day": 30, "month": 12, "year": 1}  # one record in so many has a given day, month or year in its date
_SPOKEN = "role IS DISTINCT FROM 'assistant'"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A record that was fetched. `away` says how many places it is from one that was found: 0 is found itself."""

    entry: Entry
    away: int
    fits: bool


class CollectionStatistics:
    """What the counters of a collection say of its records; under a filter what is counted of those that fit (`questions.Statistics`)."""

    def __init__(self, step: Transaction, collection: int, chosen: Filter) -> None:
        self._step = step
        self._collection = collection
        self._where, self._values = conditions(collection, chosen)
        self._empty = chosen.empty

    @cached_property
    def _totals(self) -> tuple[int, int, int, int]:
        """Records, those that are no answers, the terms of these, and the terms of answers."""
        query = "SELECT records, spoken, size, answer_size FROM knowledge_collections WHERE number = %s"
        counted = f"""
            SELECT count(*), count(*) FILTER (WHERE {_SPOKEN}), coalesce(sum(size) FILTER (WHERE {_SPOKEN}), 0),
                coalesce(sum(size) FILTER (WHERE role = 'assistant'), 0) FROM knowledge_records r WHERE {self._where}
            """  # noqa: S608 - our own words
        row = self._step.one(query, [self._collection]) if self._empty else self._step.one(counted, self._values)
        records, spoken, size, answer_size = row or (0, 0, 0, 0)
        return int(records), int(spoken), int(size), int(answer_size)

    @property
    def records(self) -> int:
        return self._totals[0]

    @property
    def spoken(self) -> int:
        return self._totals[1]

    @property
    def average(self) -> float:
        records, spoken, size, answer_size = self._totals
        return average_size(size, spoken, answer_size, records - spoken)

    @cached_property
    def languages(self) -> Sequence[str]:
        query = "SELECT language, records FROM knowledge_languages WHERE collection = %s"
        return common_languages({code: int(records) for code, records in self._step.rows(query, [self._collection])})

    def held(self, wanted: Collection[str]) -> Mapping[str, tuple[int, int]]:
        query = "SELECT term, records, spoken FROM knowledge_terms WHERE collection = %s AND term = ANY(%s)"
        found = {term: (int(records), int(spoken)) for term, records, spoken in self._step.rows(query, [self._collection, list(wanted)])}
        if self._empty or not found:
            return found
        counted = f"""
            SELECT q.term, count(*), count(*) FILTER (WHERE {_SPOKEN}) FROM unnest(%s::text[]) q (term)
            JOIN knowledge_records r ON r.counts ? q.term WHERE {self._where} GROUP BY 1
            """  # noqa: S608 - our own words
        inside = {term: (int(records), int(spoken)) for term, records, spoken in self._step.rows(counted, [list(found), *self._values])}
        return {term: inside.get(term, (0, 0)) for term in found}

    def beginning_with(self, head: str) -> list[str]:
        query = "SELECT term FROM knowledge_terms WHERE collection = %s AND term >= %s AND term < %s || chr(1114111) LIMIT %s"
        return [term for (term,) in self._step.rows(query, [self._collection, head, head, _VOCABULARY])]

    def speakers(self, names: Collection[str]) -> Collection[str]:
        query = f"SELECT DISTINCT speaker FROM knowledge_records r WHERE {self._where} AND speaker = ANY(%s) AND {_SPOKEN}"  # noqa: S608 - ours
        return [name for (name,) in self._step.rows(query, [*self._values, list(names)])]


class CandidateSearch:
    """Looks for candidates in one collection, under one filter, and has them ranked."""

    def __init__(self, database: Postgres, collection: int, vectors: Vectors | None, chosen: Filter) -> None:
        self._database = database
        self._collection = collection
        self._vectors = vectors
        self._filter = chosen
        self._where, self._values = conditions(collection, chosen)

    def ranked(self, question: str, now: datetime, limit: int) -> list[Ranked]:
        """The best answers, best first."""
        asked = asked_of(question, now, None if self._vectors is None else self._vectors.compact)
        with self._database.transaction() as step:
            known = CollectionStatistics(step, self._collection, self._filter)
            sought = weigh(question, known)
            if not sought.most and not asked.periods and asked.vector is None:
                return []
            seeds = self._seeds(step, asked, sought, min(max(4 * limit, _FEWEST), _MOST))
            found = self._around(step, seeds, list(sought.rarity))
            allowed = {one.entry.number for one in found if one.fits and one.away <= _NEAR}
            entries = [one.entry for one in found]
            if not numpy_installed():
                return PlainIndex(entries).rank(asked, known=known, allowed=allowed, limit=limit)
            return self._by_vectors(step, asked, known, entries, allowed, limit)

    def _by_vectors(
        self, step: Transaction, asked: Asked, known: CollectionStatistics, entries: Sequence[Entry], allowed: set[int], limit: int
    ) -> list[Ranked]:
        from holdfast.search.corpus import Corpus
        from holdfast.search.ranking import rank
        from holdfast.search.segments import build, with_vectors

        vectors = self._vectors
        if vectors is None:
            corpus = Corpus.of([build(entries, 0)] if entries else [])
            return rank(asked, corpus, known=known, allowed=corpus.rows_with(allowed), limit=limit)
        size, words = vectors.compact.dimension, vectors.compact.token_dimension
        kept = vectors.vectors(step, [entry.number for entry in entries])
        corpus = Corpus.of([build([with_vectors(entry, kept.get(entry.number), size) for entry in entries], size)] if entries else [])
        return rank(
            asked,
            corpus,
            known=known,
            allowed=corpus.rows_with(allowed),
            tokens=lambda rows: corpus.tokens_of(rows, corpus.numbers, words, lambda numbers: vectors.tokens(step, numbers)),
            limit=limit,
        )

    def _seeds(self, step: Transaction, asked: Asked, sought: Sought, limit: int) -> list[int]:
        """The numbers of the records that were found by themselves; those of the days that the question names once more."""
        scopes = [(self._where, self._values)]
        scopes += [_within(self._where, self._values, *period) for period in asked.periods]
        found: dict[int, None] = {}
        if self._filter != (wider := Filter(session=self._filter.session)):  # what does not fit may stand beside what does
            found.update(dict.fromkeys(self._by_words(step, sought, *conditions(self._collection, wider), limit)))
        for place, (where, values) in enumerate(scopes):
            found.update(dict.fromkeys(self._by_words(step, sought, where, values, limit)))
            if asked.vector is not None and self._vectors is not None:
                found.update(dict.fromkeys(self._vectors.nearest(step, asked.vector, where, values, limit)))
            if place:  # a day that was named is reason enough
                query = f"SELECT r.number FROM knowledge_records r WHERE {where} ORDER BY r.time DESC, r.number LIMIT %s"  # noqa: S608 - ours
                found.update(dict.fromkeys(number for (number,) in step.rows(query, [*values, _ON_THE_DAY])))
        return list(found)

    def _by_words(self, step: Transaction, sought: Sought, where: str, values: Sequence[Any], limit: int) -> list[int]:
        looked_up: list[str] = []
        together = 0
        for term in sorted(sought.held, key=lambda term: (self._expected(term, sought), term)):
            together += self._expected(term, sought)
            if together > _ENOUGH and (looked_up or not sought.held[term]):
                break
            looked_up.append(term)
        if not looked_up:
            return []
        rows = step.rows(
            f"""
            SELECT r.number FROM knowledge_records r WHERE {where} AND r.terms @@ %s::tsquery
            ORDER BY (SELECT sum(q.weight * (r.counts ->> q.term)::real / ((r.counts ->> q.term)::real + 1))
                      FROM unnest(%s::text[], %s::real[]) q (term, weight)) DESC NULLS LAST, r.number DESC
            LIMIT %s
            """,  # noqa: S608 - `where` is made of our own words
            [*values, " | ".join(_quoted(term) for term in looked_up), list(sought.rarity), list(sought.rarity.values()), limit],
        )
        return [number for (number,) in rows]

    def _expected(self, term: str, sought: Sought) -> int:
        """About how many records have a term in their text or in their date."""
        return sought.held[term] + sought.records // _SHARES.get(date_part(term)[0], sought.records + 1)

    def _around(self, step: Transaction, seeds: Sequence[int], terms: Sequence[str]) -> list[_Candidate]:
        """These records, and those at the places around them in their sessions, with how often each of the terms comes."""
        rows = step.rows(
            f"""
            WITH seeds AS (SELECT number, collection, session, position FROM knowledge_records WHERE number = ANY(%s)),
            near AS (
                SELECT number, 0 AS away FROM seeds
                UNION ALL SELECT n.number, n.away FROM seeds s CROSS JOIN LATERAL (
                    SELECT o.number, row_number() OVER (ORDER BY o.position) AS away FROM knowledge_records o
                    WHERE o.collection = s.collection AND o.session = s.session AND o.position > s.position
                    ORDER BY o.position LIMIT {_SEEN}) n
                UNION ALL SELECT n.number, n.away FROM seeds s CROSS JOIN LATERAL (
                    SELECT o.number, row_number() OVER (ORDER BY o.position DESC) AS away FROM knowledge_records o
                    WHERE o.collection = s.collection AND o.session = s.session AND o.position <= s.position AND o.number <> s.number
                    ORDER BY o.position DESC LIMIT {_SEEN}) n
            ), around AS (SELECT number, min(away) AS away FROM near GROUP BY number)
            SELECT r.number, a.away, r.session, r.position, r.role, r.time, r.speaker, r.size, {self._where},
                ARRAY(SELECT coalesce((r.counts ->> q.term)::int, 0)
                      FROM unnest(%s::text[]) WITH ORDINALITY q (term, place) ORDER BY q.place)
            FROM around a JOIN knowledge_records r ON r.number = a.number ORDER BY r.number
            """,  # noqa: S608 - our own words and numbers
            [list(seeds), *self._values, list(terms)],
        )
        found = []
        for number, away, session, position, role, time, speaker, size, fits, counts in rows:
            moment = None if time is None else round(time.timestamp() * 1000)
            held = {term: count for term, count in zip(terms, counts, strict=True) if count}
            entry = Entry(number, session, position, ROLES[role], moment, speaker, held, "en", size=size)
            found.append(_Candidate(entry, int(away), bool(fits)))
        return found


def conditions(collection: int, chosen: Filter) -> tuple[str, list[Any]]:
    """A filter as a condition on a record `r`."""
    parts, values = ["r.collection = %s"], [collection]
    more: list[Any] = []
    if chosen.tags:
        parts.append("r.tags @> %s")
        more.append(sorted(chosen.tags))
    if chosen.after is not None:
        parts.append("r.time >= %s")
        more.append(chosen.after)
    if chosen.before is not None:
        parts.append("r.time < %s")
        more.append(chosen.before)
    if chosen.session is not None:
        parts.append("(r.session = %s OR starts_with(r.session, %s))")
        more += [chosen.session, chosen.session.rstrip("/") + "/"]
    return " AND ".join(parts), [*values, *more]


def _within(where: str, values: Sequence[Any], first: int, last: int, fade: int) -> tuple[str, list[Any]]:
    """The condition for the days of a period and those over which nearness to it fades."""
    epoch = datetime.combine(date(1970, 1, 1), datetime.min.time(), UTC)
    start, end = epoch + timedelta(days=first - fade), epoch + timedelta(days=last + fade + 1)
    return f"{where} AND r.time >= %s AND r.time < %s", [*values, start, end]


def _quoted(term: str) -> str:
    """A term as a lexeme of a tsquery."""
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"
