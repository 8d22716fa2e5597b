"""What all adapters of a knowledge store share: taking records in batches, and the way of a question from its check to packed hits.

An adapter says how it finds candidates (`_find`), which are ranked by `search.ranking`; they are given to the cross-encoder where one is
configured, cut to `top_k` and packed to the budget here, the same for all of them (K2, K3, K4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from logging import WARNING
from types import TracebackType
from typing import ClassVar, Self

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigError, InputError, StorageError
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.knowledge.indexing import analyse
from holdfast.knowledge.records import Hit, Record
from holdfast.knowledge.store import AddReport, Filter, Progress, check_question
from holdfast.search.embedding import Reranker, load_reranker
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tracing import asked_about, span

_RERANKED = 50
_DEEPEST = 64  # times as many answers as are wanted: so far is looked for different ones
_LEAST = 4  # tokens below which nothing fits that says anything


@dataclass(frozen=True, kw_only=True)
class KeywordsOnly(Event):
    """A store has no embedder."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path} is searched by keywords alone: install holdfast[vectors] for search by meaning"
    level: ClassVar[int] = WARNING
    path: str


@dataclass(frozen=True, kw_only=True)
class RerankerMissing(Event):
    """The cross-encoder that was asked for is not there."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "the reranker {model} is not used ({reason}); results are ranked word by word instead"
    level: ClassVar[int] = WARNING
    model: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class VectorsUnused(Event):
    """A store is searched by words alone, though it has vectors."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{reason}"
    level: ClassVar[int] = WARNING
    reason: str


def of_another_embedder(where: str) -> str:
    """What a store says whose vectors were not made by the embedder that the settings name."""
    return f"the vectors of {where} were made by another embedder than the settings name: {REMEDY}"


def no_embedder() -> ConfigError:
    """What is said where vectors are wanted and nothing can make them."""
    return ConfigError("there is no embedder.", key="knowledge.embedder", hint="Install holdfast[vectors], or name one.")


REMEDY = "they are not used until `holdfast knowledge reembed` makes them anew"


class BaseStore(ABC):
    """A `KnowledgeStore` but for how records are kept and candidates are found. `batch` is how many records are written together."""

    batch: ClassVar[int] = 256

    def __init__(
        self,
        *,
        rerank: bool = False,
        rerank_model: str | Reranker | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._bus = bus or process_bus
        self._counter = counter
        self._reranker_problems: tuple[str, ...] = ()
        self._told = ""
        self._reranker = self._chosen_reranker(rerank, rerank_model)

    @abstractmethod
    def _add(self, batch: list[Record]) -> AddReport:
        """Keep the records of one batch durably."""

    @abstractmethod
    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        """The best `limit` answers among what fits, best first."""

    @abstractmethod
    def _listed(self, chosen: Filter) -> Iterator[Record]:
        """All records that fit."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def _unused_vectors(self) -> str:
        """Why the vectors that there are do not count in a search; empty where they do."""
        return ""

    def add(self, records: Iterable[Record], *, progress: Progress | None = None) -> AddReport:
        total = len(records) if isinstance(records, Collection) else None
        report = AddReport()
        for batch in self._batches(records):
            report += self._add(batch)
            if progress is not None:
                progress(len(report.ids), total)
        return report

    def _batches(self, records: Iterable[Record]) -> Iterator[list[Record]]:
        pending = iter(records if isinstance(records, Iterable) else (records,))
        while batch := list(islice(pending, self.batch)):
            strange = records if isinstance(records, Record) else next((one for one in batch if not isinstance(one, Record)), None)
            if strange is not None:
                raise InputError(f"records are added as a list, and this is {type(strange).__name__}.", hint="store.add([Record(text)])")
            yield batch

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        tags: Collection[str] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        session: str | None = None,
        budget: int | None = None,
        now: datetime | None = None,
    ) -> list[Hit]:
        question = check_question(query, top_k, budget)
        chosen = Filter.of(tags, after, before, session)
        depth = top_k if self._reranker is None else max(top_k, _RERANKED)
        with span("retrieval", type(self).__name__, "RETRIEVER", asked_about(question)) as traced:
            hits = self._each_once(question, chosen, now or self._clock.now(), depth)
            if self._reranker is not None and hits:
                hits = _reranked(self._reranker, question, hits)
            traced.set({"holdfast.found": len(hits[:top_k])})
        if (reason := self._unused_vectors()) != self._told:
            self._told = reason
            if reason:
                self._bus.emit(VectorsUnused(reason=reason))
        return hits[:top_k] if budget is None else packed(hits[:top_k], budget, self._counter)

    def _each_once(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        """The best `limit` answers. What several sessions found with the same words in the same source is one of them."""
        asked = limit
        while True:
            found = self._find(question, chosen, now, asked)
            hits = _joined(found)
            if len(hits) >= limit or len(found) < asked or asked >= limit * _DEEPEST:
                return hits[:limit]
            asked *= 4

    def reembed(self, *, progress: Progress | None = None) -> int:
        """Make the vectors of all records anew, by the embedder of now; says how many texts were embedded. StorageError if it has none."""
        raise StorageError("this store keeps no vectors of its own.", operation="reembed", hint="Who keeps its records makes them.")

    def records(
        self, *, tags: Collection[str] = (), after: datetime | None = None, before: datetime | None = None, session: str | None = None
    ) -> Iterator[Record]:
        return self._listed(Filter.of(tags, after, before, session))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _chosen_reranker(self, wanted: bool, model: str | Reranker | None) -> Reranker | None:
        if not wanted and model is None:
            return None
        if model is not None and not isinstance(model, str):
            return model
        reranker, reason = load_reranker(model)
        if reranker is None:
            self._reranker_problems = (f"the reranker is not used: {reason}",)
            self._bus.emit(RerankerMissing(model=model or "(none named)", reason=reason))
        return reranker


def _joined(hits: Sequence[Hit]) -> list[Hit]:
    """Each thing once, at its best place: what stands in no conversation and has the same words from the same named source.

    Of one workflow and one trust: who asks leaves out by these what is of no concern to them.
    """
    kept: dict[object, Hit] = {}
    others: Counter[object] = Counter()
    for hit in hits:
        record = hit.record
        alone = hit.unit or record.speaker is not None or record.role is not None or record.source is None
        same = record.id if alone else (record.text, record.kind, record.source, record.trust, str(record.extra.get("workflow")))
        others[same] += same in kept
        kept.setdefault(same, hit)
    return [
        replace(hit, why=replace(hit.why, notes=(*hit.why.notes, _again(others[same])))) if others[same] else hit
        for same, hit in kept.items()
    ]


def _again(others: int) -> str:
    return "found once more in the same words" if others == 1 else f"found {others} more times in the same words"


def _reranked(reranker: Reranker, question: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits in the order that the reranker gives them."""
    values = reranker.score(question, [hit.text for hit in hits])
    order = sorted(range(len(hits)), key=lambda place: (-values[place], place))
    return [replace(hits[place], score=values[place], why=replace(hits[place].why, rerank=values[place])) for place in order]


def packed(hits: Sequence[Hit], budget: int, counter: TokenCounter | None = None) -> list[Hit]:
    """The hits whose texts together fit the budget, in their order: whole, in part, or not at all (K4).

    A round that is too long for what is left gives the one of its turns that matches best and still fits: an assistant's answer is often
    ten times as long as what was asked, and half of a round is worth more than nothing. Weighing length against score was tried and finds
    no more.
    """
    count = (counter or open_counter()).count_until
    left, chosen = budget, []
    for hit in hits:
        if left < _LEAST:
            break
        fitting = [whole] if (whole := (count(hit.text, left), hit))[0] is not None else []
        if not fitting and len(hit.unit) > 1:
            parts = [_part(hit, record) for record in hit.unit]
            fitting = [(tokens, part) for part in parts if (tokens := count(part.text, left)) is not None]
        if fitting:
            tokens, best = max(fitting, key=lambda one: _matches(one[1])) if len(fitting) > 1 else fitting[0]
            chosen.append(best)
            left -= tokens or 0
    return chosen


def _part(hit: Hit, record: Record) -> Hit:
    return replace(hit, record=record, unit=(), why=replace(hit.why, notes=(*hit.why.notes, "one turn of a longer round")))


def _matches(part: Hit) -> int:
    """How many of the words that the whole was found by this part has. Of two with as many the first counts, which is what was asked."""
    counts, _ = analyse(part.record)
    return sum(1 for word in part.why.words if word in counts)
