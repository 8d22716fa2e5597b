"""Which records of a collection may answer a question: by their words and by their meaning, each from an index, with their neighbours.

The rarest words of a question decide which records are looked at; how good they are is judged afterwards, exactly (`postgres_ranking`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

from holdfast.durable.postgres import Postgres, Transaction
from holdfast.knowledge.lexical import Analysis
from holdfast.knowledge.periods import Period, asked_periods
from holdfast.knowledge.postgres_vectors import Pieces, Seen
from holdfast.knowledge.postgres_writing import read_record
from holdfast.knowledge.records import Record
from holdfast.knowledge.store import Filter
from holdfast.search.embedding import Embedding
from holdfast.search.questions import analysed, asked_terms, lookalikes
from holdfast.text.words import terms

_ENOUGH = 4000  # records that the words which are looked up may have together
_SEEN = 6  # positions around a candidate that are fetched: four lend it their words
_NEAR = 2  # positions around it that are candidates too
_VOCABULARY = 3000
_MOST = 400


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record that was fetched, with its terms. `seed` says how far it is from one that was found: 0 is found itself."""

    number: int
    record: Record
    analysis: Analysis
    away: int


@dataclass(frozen=True)
class Found:
    """All that the ranking needs."""

    rows: Sequence[Candidate] = ()
    asked: Mapping[str, float] = field(default_factory=dict)
    """The terms of the question that the collection knows, with how much they weigh."""
    admits: Callable[[Record], bool] = lambda record: True
    question: Embedding | None = None
    weights: Sequence[float] = ()
    """How much each word of the question weighs that has a vector."""
    likeness: Mapping[int, float] = field(default_factory=dict)
    periods: Sequence[Period] = ()
    tokens: Callable[[Sequence[int]], Mapping[int, Sequence[Seen]]] = lambda numbers: {}


class Candidates:
    """Looks for candidates in one collection, under one filter."""

    def __init__(self, database: Postgres, collection: int, pieces: Pieces | None, chosen: Filter) -> None:
        self._database = database
        self._collection = collection
        self._pieces = pieces
        self._filter = chosen
        self._where, self._values = _conditions(collection, chosen)

    def find(self, question: str, now: datetime, limit: int) -> Found:
        """Everything that may answer the question. Empty if there is nothing in it that can be looked for."""
        periods = asked_periods(question, now)
        languages = self._database.rows(
            "SELECT language FROM knowledge_languages WHERE collection = %s ORDER BY records DESC LIMIT 4", [self._collection]
        )
        words = asked_terms(question, [code for (code,) in languages])
        if not words and not periods:
            return Found()
        embedded = self._pieces.embedder.embed([question], question=True)[0] if self._pieces is not None else None
        names = [_term(word) for word in embedded.words] if embedded is not None else []
        wanted = min(max(limit, 50), _MOST)
        with self._database.transaction() as step:
            total, frequencies = self._frequencies(step, {*words, *names})
            asked = self._asked(step, words, frequencies, total)
            seeds = self._seeds(step, asked, frequencies, embedded, periods, wanted)
            rows = self._around(step, seeds)
            likeness = (
                self._pieces.likeness(step, embedded, [row.number for row in rows])
                if embedded is not None and self._pieces is not None
                else {}
            )
        return Found(
            rows,
            asked,
            self._filter.admits,
            embedded,
            [_rarity(frequencies.get(name, 0), total) for name in names],
            likeness,
            periods,
            self._tokens,
        )

    def _tokens(self, numbers: Sequence[int]) -> Mapping[int, Sequence[Seen]]:
        if self._pieces is None:
            return {}
        with self._database.transaction() as step:
            return self._pieces.tokens(step, numbers)

    def _frequencies(self, step: Transaction, words: set[str]) -> tuple[int, dict[str, int]]:
        row = step.one("SELECT records FROM knowledge_collections WHERE number = %s", [self._collection])
        query = "SELECT term, records FROM knowledge_terms WHERE collection = %s AND term = ANY(%s)"
        return int(row[0]) if row else 0, dict(step.rows(query, [self._collection, list(words)]))

    def _asked(self, step: Transaction, words: Sequence[str], frequencies: dict[str, int], total: int) -> dict[str, float]:
        """The terms with their weights; for an unknown word those that are written much like it."""

        def beginning_with(head: str) -> list[str]:
            query = "SELECT term, records FROM knowledge_terms WHERE collection = %s AND term >= %s AND term < %s || chr(1114111) LIMIT %s"
            rows = step.rows(query, [self._collection, head, head, _VOCABULARY])
            frequencies.update(rows)
            return [term for term, _ in rows]

        found: dict[str, float] = {}
        for word in words:
            if word in frequencies:
                found[word] = _rarity(frequencies[word], total)
                continue
            for other, weight in lookalikes(word, beginning_with).items():
                found[other] = max(found.get(other, 0.0), weight * _rarity(frequencies[other], total))
        return found

    def _seeds(
        self,
        step: Transaction,
        asked: Mapping[str, float],
        frequencies: Mapping[str, int],
        embedded: Embedding | None,
        periods: Sequence[Period],
        limit: int,
    ) -> list[int]:
        """The numbers of the records that were found by themselves; those of the days that the question names once more."""
        scopes = [(self._where, self._values)]
        scopes += [_within(self._where, self._values, period) for period in periods]
        found: dict[int, None] = {}
        for place, (where, values) in enumerate(scopes):
            found.update(dict.fromkeys(self._by_words(step, asked, frequencies, where, values, limit)))
            if embedded is not None and self._pieces is not None:
                found.update(dict.fromkeys(self._pieces.nearest(step, embedded, where, values, limit)))
            if place:  # a day that was named is reason enough
                query = f"SELECT r.number FROM knowledge_records r WHERE {where} ORDER BY r.time DESC, r.number LIMIT %s"  # noqa: S608 - ours
                found.update(dict.fromkeys(number for (number,) in step.rows(query, [*values, 50])))
        return list(found)

    def _by_words(
        self, step: Transaction, asked: Mapping[str, float], frequencies: Mapping[str, int], where: str, values: Sequence[Any], limit: int
    ) -> list[int]:
        looked_up: list[str] = []
        together = 0
        for term in sorted(asked, key=lambda term: frequencies[term]):
            together += frequencies[term]
            if looked_up and together > _ENOUGH:
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
            [*values, " | ".join(_quoted(term) for term in looked_up), list(asked), list(asked.values()), limit],
        )
        return [number for (number,) in rows]

    def _around(self, step: Transaction, seeds: Sequence[int]) -> list[Candidate]:
        """These records, and those at the positions around them in their sessions."""
        rows = step.rows(
            """
            SELECT r.number, min(around.away), r.record::text, r.counts, r.language FROM (
                SELECT number, 0 AS away FROM unnest(%s::bigint[]) number
                UNION ALL
                SELECT n.number, abs(n.position - s.position) FROM knowledge_records s JOIN knowledge_records n
                    ON n.collection = s.collection AND n.session = s.session AND n.position BETWEEN s.position - %s AND s.position + %s
                WHERE s.number = ANY(%s)
            ) around JOIN knowledge_records r ON r.number = around.number
            GROUP BY r.number
            """,
            [list(seeds), _SEEN, _SEEN, list(seeds)],
        )
        return [
            Candidate(number, read_record(text), Analysis(counts, language), int(away)) for number, away, text, counts, language in rows
        ]


def near_enough(candidate: Candidate) -> bool:
    """Whether it may be an answer itself; the others only lend their words."""
    return candidate.away <= _NEAR


def _conditions(collection: int, chosen: Filter) -> tuple[str, list[Any]]:
    """The filter as a condition on a record `r`."""
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


def _within(where: str, values: Sequence[Any], period: Period) -> tuple[str, list[Any]]:
    start = datetime.combine(period.start, datetime.min.time(), UTC) - timedelta(days=period.fade)
    end = datetime.combine(period.end, datetime.min.time(), UTC) + timedelta(days=period.fade + 1)
    return f"{where} AND r.time >= %s AND r.time < %s", [*values, start, end]


def _rarity(frequency: int, total: int) -> float:
    return log(1 + (max(total - frequency, 0) + 0.5) / (frequency + 0.5))


def _term(word: str) -> str:
    """The term that a word of the question stands for."""
    return next(iter(analysed(terms(word, "en"))), word)


def _quoted(term: str) -> str:
    """A term as a lexeme of a tsquery."""
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"
