"""A knowledge store over any LangChain `VectorStore`: Chroma, Qdrant, or a class of the user's choice (K2, K3).

    store = LangChainStore("side.db", VectorSource("chroma", base=base), embedder="auto")

A `VectorStore` finds by meaning and can do little else: it lists nothing, knows no words, and filters in a way of its own. So the records
stand in a SQLite file beside it, which also has their words and what is still to be done (`vector_store.PieceLedger`), and the vector
store holds the vectors. A search takes candidates from both, and the one ranking scores them (`search/ranking.py`). Documents that
somebody else put into the vector store are found too. While it cannot be reached records are kept and found by their words, and the
vectors follow.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from os import PathLike
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from holdfast.durable.lock import Lock
from holdfast.errors import ConfigError, InputError, StorageError, StoreUnavailable
from holdfast.knowledge.base import READ, REMEDY, BaseStore, StoreSettings, asked_of, entry_of, hits_of, no_embedder, texts_of
from holdfast.knowledge.records import Hit, Record, to_json
from holdfast.knowledge.sqlite import SqliteStore, numbers_of, records_by_number
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, holds
from holdfast.knowledge.vector_store import RECORD, OutsideVectors, Piece, PieceLedger, VectorForm, VectorSource, keys_of, records_of
from holdfast.search.corpus import Corpus, CorpusStatistics
from holdfast.search.embedding import PROBE, Embedder, as_embedder, embedded, load_embedder
from holdfast.search.pieces import MARKS
from holdfast.search.plain_ranking import WINDOW
from holdfast.search.questions import Asked, Ranked, weigh
from holdfast.search.ranking import rank
from holdfast.search.segments import Compact, Embedded, Meaning, Segment, build, with_vectors
from holdfast.text.needle import Needle

_FEWEST, _MOST, _DEEPEST = 100, 400, 4_096  # candidates that each way of looking gives, and how far it goes for a filter
_FEW = 2_000  # records: of a filter that leaves no more, all are candidates
_NEAR, _SEEN = len(WINDOW), 2 * len(WINDOW)  # places around a candidate that may be answers too, and that are needed to rank these
_AT_ONCE = 64  # records: what was embedded is put into the vector store before more is asked for
_STRANGERS = 2_000  # texts of others whose vectors are remembered


class LangChainStore(BaseStore):
    """Meets `KnowledgeStore`. `path` is the file of the records; `:memory:` makes it a view of a vector store that others fill."""

    def __init__(
        self,
        path: str | PathLike[str],
        source: VectorSource,
        *,
        embedder: str | Embedder | None = "auto",
        collection: str | None = None,
        share_text: bool = False,
        **settings: Unpack[StoreSettings],
    ) -> None:
        super().__init__(**settings)
        self._patience.unit = "piece"
        self._source = source
        self._embedder = _chosen(embedder, source)
        self._collection = collection
        self._shares = share_text or source.store is not None  # a store that was given embeds the texts itself
        self._side = SqliteStore(path, embedder=None, or_read_only=False, clock=self._clock, bus=self._bus)
        self._read_only = str(path) == ":memory:"
        self._threads = threading.RLock()
        self._turns: AbstractContextManager[Any] = nullcontext() if self._read_only else Lock(f"{path}.lock", timeout=600.0)
        self._opened: tuple[str, OutsideVectors] | None = None
        self._compact: Compact | None = None
        self._strangers: OrderedDict[str, Meaning] = OrderedDict()
        self._empty = False
        """Whether the vector store held nothing when it was last asked, although it should."""
        try:
            self._ledger = PieceLedger(self._side.database, shared=self._shares)
        except BaseException:
            self._side.close()
            raise

    @property
    def where(self) -> str:
        """The vector store and the file beside it, for people."""
        return f"{self._source.name}, records in {self._side.path}"

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        if self._read_only:
            raise InputError("this store only reads what others put into the vector store.", hint="Give a `path` for the records.")
        with self._in_use():
            self._check_settings()
            ids = [record.id for record in batch]
            report = self._side.put(batch, also=lambda database: self._ledger.follow(database, ids))
            return replace(report, embedded=self._settle(fresh=ids))

    def forget(self, ids: Iterable[str]) -> int:
        wanted = list(dict.fromkeys(ids))
        with self._in_use():
            known = [id for id in wanted if self._side.get(id) is not None]
            strangers = [id for id in wanted if id not in known and self._stranger(id) is not None]
            if known:
                self._side.put([], gone=known, also=lambda database: self._ledger.follow(database, known))
                self._side.scrub()
                self._settle(insist="forget")
            if strangers:
                self._vectors(self._form()).drop(strangers)
                self._strangers.clear()
        return len(known) + len(strangers)

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        with self._in_use():
            found = [record.id for record in self._side.records() if holds(needle, record)]
            if not self._stale:
                found += [record.id for record in self._strangers_near(text) if holds(needle, record) and record.id not in found]
            self.forget(found)
        return found

    def reembed(self, *, progress: Progress | None = None) -> int:
        """Make all vectors anew, by the embedder of now, and put them into the vector store of now. Says how many texts were embedded.

        What an interrupted call left is done by the next add or search. Vectors that other `use` or `arguments` placed stay there.
        """
        with self._in_use(), self._turns:
            embedded(self._embedder, [PROBE])  # what there is stays as it is where nothing would take its place
            new, old = self._form(), self._ledger.form
            if old is not None and old.target == new.target:
                self._vectors(old).drop(self._ledger.there() + self._ledger.gone(1 << 30))
            self._vectors(new)
            with self._side.transaction() as database:
                self._ledger.begin_anew(database, new)
            total, done = self._ledger.count("due"), 0
            fault: StorageError | None = None
            for made in self._placed(new):
                done += made.pieces
                fault = fault or made.fault
                if progress is not None:
                    progress(done, total)
        self._empty = False
        if fault is not None:
            self._patience.failed(fault, self._ledger.count("due"))
            raise fault
        self._patience.worked()
        return done

    def _check_settings(self) -> None:
        """ConfigError, before anything is kept, where the vector store cannot be made from its settings."""
        if self._patience.asks and not self._stale:
            try:
                self._vectors(self._form())
            except ConfigError:
                raise
            except StorageError as error:
                self._failed(error)

    def _settle(self, *, insist: str = "", fresh: Collection[str] = ()) -> int:
        """Bring the vector store in line with the records, as far as it can be reached. Says how many texts were embedded.

        `insist` names what must not be left for later: then StoreUnavailable says that it was. The `fresh` records were never tried.
        """
        if not self._ledger.anything_to_do or (not insist and not self._patience.asks):
            return 0
        pieces = 0
        faults: list[StorageError] = []
        try:
            with self._turns:
                while gone := self._ledger.gone(1_000):
                    self._vectors(self._ledger.form or self._form()).drop(gone)
                    with self._side.transaction() as database:
                        self._ledger.dropped(database, gone)
                if insist or self._stale:
                    return 0
                form = self._form()
                if self._ledger.form != form and self._ledger.due(1):
                    with self._side.transaction() as database:
                        self._ledger.set_form(database, form)
                for made in self._placed(form, None if self._patience.asks_again else fresh):
                    pieces += made.pieces
                    faults += [made.fault] if made.fault is not None else []
        except ConfigError:
            raise
        except StorageError as error:
            self._failed(error)
            if insist:
                raise StoreUnavailable(
                    f"the records are gone, but the vector store could not be told: {error.message} It is told again at the next call.",
                    path=self._source.name,
                    operation=insist,
                ) from error
            return pieces
        if faults:
            self._failed(faults[0])
        elif self._patience.trouble:
            self._patience.worked(waiting=self._ledger.anything_to_do)
        return pieces

    def _placed(self, form: VectorForm, only: Collection[str] | None = None) -> Iterator[Embedded]:
        """Put what is due, or these of it, into the vector store, each record once; says of each batch what came of it."""
        last = ""
        while due := self._ledger.due(_AT_ONCE, last):
            last = due[-1].id
            wanted = due if only is None else [record for record in due if record.id in only]
            if wanted:
                yield self._place(wanted, form)

    def _place(self, due: Sequence[Record], form: VectorForm) -> Embedded:
        """Put the pieces of these records into the vector store. A record to which the embedder gives no vectors stays due."""
        compact = self._compacted()
        texts = [texts_of(record) for record in due]
        made = iter(embedded(compact.embedder, [text for one in texts for text in one]))
        fault: StorageError | None = None
        pieces: list[Piece] = []
        meanings: list[tuple[Record, Meaning, bytes]] = []
        for record, one in zip(due, texts, strict=True):
            vectors = [next(made) for _ in one]
            if (wrong := next((said for vector in vectors if (said := compact.fault_in(vector))), None)) is not None:
                fault = fault or wrong
                continue
            meanings.append((record, compact.kept(vectors), compact.hash_of(one)))
            keys = keys_of(record, shared=self._shares)
            pieces += [self._piece(record, *each) for each in zip(keys, one, (vector.vector for vector in vectors), strict=True)]
        self._vectors(form).put(pieces)
        with self._side.transaction() as database:
            for placed in meanings:
                self._ledger.placed(database, *placed)
        return Embedded(pieces=len(pieces), fault=fault)

    def _piece(self, record: Record, key: str, text: str, vector: NDArray[np.float32]) -> Piece:
        numbers = vector.tolist()
        if not self._shares:
            return Piece(key, numbers, key, {})
        return Piece(key, numbers, text, {RECORD: json.dumps(to_json(record), ensure_ascii=False)})

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        self._check_open(self.where)
        asked, vector = self._asked(question, now)
        with self._in_use():
            if vector is not None:
                self._settle()
            corpus = self._side.corpus()
            fitting = None if chosen.empty else numbers_of(self._side.database, chosen)
            enough = min(max(4 * limit, _FEWEST), _MOST)
            seeds = self._by_words(asked, corpus, fitting, enough)
            strangers: list[Record] = []
            if vector is not None and asked.vector is not None:
                near, strangers = self._by_meaning(question, vector, chosen, fitting, enough)
                seeds |= near
            if self._patience.trouble and not len(corpus.numbers):
                raise StoreUnavailable(self._patience.trouble, path=self._source.name, operation="search")
            return self._ranked(asked, corpus, seeds, fitting, strangers, limit)

    def _asked(self, question: str, now: datetime) -> tuple[Asked, list[float] | None]:
        """The question for the ranking, and its whole vector for the vector store; without vectors where there can be none now."""
        with self._in_use():
            without = self._stale or not self._patience.asks
        if without:
            return asked_of(question, now), None
        try:
            compact = self._compacted()
            embedding = compact.question(question[:READ])
        except StorageError as error:
            self._failed(error)
            return asked_of(question, now), None
        vector, tokens = compact.asked(embedding)
        return Asked(question, vector, tokens, embedding.words, asked_of(question, now).periods), embedding.vector.tolist()

    def _by_words(self, asked: Asked, corpus: Corpus, fitting: Collection[int] | None, enough: int) -> set[int]:
        allowed = None if fitting is None else corpus.rows_with(fitting)
        words = Asked(asked.text, periods=asked.periods)
        found = {number for one in rank(words, corpus, allowed=allowed, limit=enough) for number in one.members}
        return found | set(fitting) if fitting is not None and len(fitting) <= _FEW else found

    def _by_meaning(
        self, question: str, vector: Sequence[float], chosen: Filter, fitting: Collection[int] | None, enough: int
    ) -> tuple[set[int], list[Record]]:
        """The numbers of the records that are nearest, and those of others. For a filter it is looked deeper until enough fit."""
        count = enough
        while True:
            try:
                found = self._vectors(self._ledger.form or self._form()).nearest(vector, question, count)
            except StorageError as error:
                self._failed(error)
                return set(), []
            known = self._ledger.numbers([one.key for one in found if one.key])
            near = {number for number in known.values() if number}
            strangers = [one for one in found if one.key not in known]
            fits = len(near) if fitting is None else len(near & set(fitting))
            self._empty = not found and self._ledger.count("there") > 0
            if fitting is None or len(fitting) <= _FEW or fits >= enough or len(found) < count or count >= _DEEPEST:
                if self._patience.trouble:
                    self._patience.worked(waiting=self._ledger.anything_to_do)
                return near, [record for record in records_of(strangers) if chosen.admits(record)]
            count *= 4

    def _ranked(
        self, asked: Asked, corpus: Corpus, seeds: set[int], fitting: Collection[int] | None, strangers: Sequence[Record], limit: int
    ) -> list[Hit]:
        near, seen = _around(corpus, seeds)
        size, words = (self._compact.dimension, self._compact.token_dimension) if self._compact is not None else (0, 0)
        kept = self._ledger.vectors(sorted(seen)) if asked.vector is not None else {}
        scope = None if fitting is None else corpus.rows_with(fitting)
        known = CorpusStatistics(corpus, scope) if len(corpus.numbers) else None
        terms = [*weigh(asked.text, known).rarity, *MARKS] if known is not None else []
        segments = [part for segment in corpus.segments if len(part := segment.only(seen, terms, kept, size))]
        outside = {-place: record for place, record in enumerate(strangers, 1)}
        if outside:
            segments.append(self._strange_segment(outside, asked, size))
        small = Corpus.of(segments)
        allowed = small.rows_with([number for number in near if fitting is None or number in fitting] + list(outside))

        def tokens(wanted: NDArray[np.int64]) -> NDArray[np.int8]:
            return small.tokens_of(wanted, small.numbers, words, lambda numbers: self._tokens(numbers, outside))

        found: list[Ranked] = rank(
            asked, small, known=known, allowed=allowed, tokens=tokens if asked.tokens is not None else None, limit=limit
        )
        members = [number for one in found for number in one.members]
        records = records_by_number(self._side.database, [number for number in members if number > 0]) | outside
        return hits_of(found, records)

    def _strange_segment(self, outside: Mapping[int, Record], asked: Asked, size: int) -> Segment:
        entries = [entry_of(number, record) for number, record in outside.items()]
        if asked.vector is not None:
            entries = [with_vectors(entry, self._meaning_of(outside[entry.number]).vectors, size) for entry in entries]
        return build(entries, size)

    def _tokens(self, numbers: Sequence[int], outside: Mapping[int, Record]) -> Mapping[int, bytes]:
        own = dict(self._ledger.tokens([number for number in numbers if number > 0]))
        return own | {number: self._meaning_of(outside[number]).tokens for number in numbers if number < 0}

    def _meaning_of(self, record: Record) -> Meaning:
        """The meaning of what somebody else put there: no `VectorStore` gives vectors back, so it is made once and remembered."""
        compact = self._compacted()
        if record.text not in self._strangers:
            made = compact.embed_most({b"": texts_of(record)})
            if made.fault is not None:  # it is found by its words
                self._failed(made.fault)
                return Meaning(b"", b"")
            self._strangers[record.text] = made.meanings[b""]
            if len(self._strangers) > _STRANGERS:
                self._strangers.popitem(last=False)
        self._strangers.move_to_end(record.text)
        return self._strangers[record.text]

    def get(self, id: str) -> Record | None:
        with self._in_use():
            return self._side.get(id) or self._stranger(id)

    def _stranger(self, id: str) -> Record | None:
        """What somebody else put there under this id, where the class of the vector store can read by id."""
        if self._stale or not self._patience.asks:
            return None
        try:
            found = self._vectors(self._ledger.form or self._form()).read([id])
        except StorageError as error:
            self._failed(error)
            return None
        return next(iter(records_of([one for one in found if one.key not in self._ledger.numbers([one.key])])), None)

    def _strangers_near(self, text: str) -> list[Record]:
        _, vector = self._asked(text, self._clock.now())
        return [] if vector is None else self._by_meaning(text, vector, Filter(), None, _FEWEST)[1]

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        return self._side.records(**chosen.arguments)

    def stats(self) -> Stats:
        with self._in_use():
            if not self._stale:
                self._settle()
            problems = [*self._reranker_problems, *self._problems()]
            found = self._side.stats()
            return replace(found, adapter="langchain", where=self.where, vectors=self._ledger.count("there"), problems=tuple(problems))

    def _problems(self) -> Iterator[str]:
        if stale := self._unused_vectors():
            yield stale
        elif self._empty:
            yield f"the vector store holds none of the {self._ledger.count('there')} vectors of before: `holdfast knowledge reembed`"
        elif problem := self._patience.problem(self._ledger.count("due")):
            yield problem

    def _unused_vectors(self) -> str:
        old = self._ledger.form
        if old is None or not self._stale:
            return ""
        return f"the vectors were made by {old.embedder} for the collection {old.collection}, and the settings name another: {REMEDY}"

    def close(self) -> None:
        with self._threads:
            self._closed = True
            self._let_go()
            self._side.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """One thread at a time. StorageError if the store was closed."""
        with self._threads:
            self._check_open(self.where)
            yield

    # What it stands on

    def _compacted(self) -> Compact:
        if self._compact is None:
            self._compact = Compact(self._embedder)
        return self._compact

    def _form(self) -> VectorForm:
        """What the settings of now mean. Asks the embedder for its size, so it may raise StoreUnavailable."""
        compact = self._compacted()
        embedder = compact.embedder
        return VectorForm(compact.name, embedder.dimension, self._source.collection(self._collection, compact.name), self._source.target)

    @property
    def _stale(self) -> bool:
        """Whether the vectors that there are were made by another embedder, or are in another place."""
        old = self._ledger.form
        if old is None or (self._compact is None and not self._patience.asks):
            return False
        try:
            return old != self._form()
        except StorageError as error:
            self._failed(error)
            return False

    def _vectors(self, form: VectorForm) -> OutsideVectors:
        """The collection, opened if need be. Only one is open at a time: some clients allow no second one."""
        if self._opened is None or self._opened[0] != form.collection:
            self._let_go()
            self._opened = (form.collection, self._source.open(form.collection, self._embedder, form.dimension))
        return self._opened[1]

    def _let_go(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    def _failed(self, error: StorageError) -> None:
        self._patience.failed(error, self._ledger.count("due"))


def _chosen(embedder: str | Embedder | None, source: VectorSource) -> Embedder:
    if embedder in ("auto", None) and source.store is not None and source.store.embeddings is not None:
        return as_embedder(source.store.embeddings)
    found = load_embedder(embedder) if isinstance(embedder, str) else embedder
    if found is None:
        raise no_embedder()
    return found


def _around(corpus: Corpus, seeds: set[int]) -> tuple[set[int], set[int]]:
    """The numbers of the records near these in their sessions, which may be answers too; and of those that are needed to rank these."""
    place = np.empty(len(corpus.order), np.int64)
    place[corpus.order] = np.arange(len(corpus.order))
    at = place[np.flatnonzero(corpus.rows_with(seeds))]
    line = corpus.session[corpus.order]
    near: set[int] = set(seeds)
    seen: set[int] = set(seeds)
    for step in (*range(-_SEEN, 0), *range(1, _SEEN + 1)):
        other = at + step
        inside = (other >= 0) & (other < len(line))
        other, own = other[inside], at[inside]
        same = other[(line[other] == line[own]) & (line[own] >= 0)]
        found = corpus.numbers[corpus.order[same]].tolist()
        seen.update(found)
        if abs(step) <= _NEAR:
            near.update(found)
    return near, seen
