"""What all adapters of a knowledge store share: what of a record is searched, taking records in batches, and the way of a question to hits.

`analyse` and `texts_of` decide under which terms and by which vectors a record is found: changing them changes what every store finds.
An adapter says how it finds candidates (`_find`), which are ranked by `search.ranking`; they are given to the cross-encoder where one is
configured, cut to `top_k` and packed to the budget here, the same for all of them (K2, K3, K4). Needs no numpy until vectors are there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import blake2b
from importlib.util import find_spec
from itertools import islice
from logging import INFO, WARNING
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypedDict

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigError, InputError, StorageError
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.knowledge.patience import Patience
from holdfast.knowledge.records import Hit, Record, Why
from holdfast.knowledge.store import AddReport, Filter, Progress, check_moment, check_question
from holdfast.search.embedding import Reranker, load_reranker
from holdfast.search.pieces import ASKS, PROBE, WISH, cut_for_meaning, ends_with_a_question, form_of_marks, states_a_wish
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked, analysed
from holdfast.text.dates import Span, find_dates
from holdfast.text.language import guess_language
from holdfast.text.words import terms
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tracing import asked_about, span

if TYPE_CHECKING:
    from holdfast.search.segments import Compact

ROLES = {None: 0, "person": 1, "assistant": 2}
READ = 5000  # characters of a question that are embedded


def numpy_installed() -> bool:
    """Whether arrays can be used; without numpy records are ranked in plain Python, by their words alone."""
    return find_spec("numpy") is not None


def form_of_analysis() -> str:
    """A mark of how texts are analysed and cut: another one makes an index that was kept useless."""
    parts = [*terms(PROBE, "en"), *cut_for_meaning("word. " * 600), form_of_marks()]
    return blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def analyse(record: Record) -> tuple[Mapping[str, int], str]:
    """The terms under which a record is found, how often each comes, and their language.

    They are those of its text, its title and its speaker. What a person tells an assistant, or a note, may state a standing wish; what
    somebody says to somebody may be a question.
    """
    language = guess_language(record.text[:4000])
    speaker = record.speaker if record.role is None else None  # "user" and "assistant" are no names to look for
    names = " ".join(name for name in (speaker, record.extra.get("title")) if isinstance(name, str))
    found = analysed(terms(record.text, language))
    if names:
        found += analysed(terms(names, language))
    if (record.role == "person" or record.speaker is None) and record.role != "assistant" and states_a_wish(record.text):
        found.append(WISH)
    if record.role is None and record.session is not None and ends_with_a_question(record.text):
        found.append(ASKS)
    return Counter(found), language


def texts_of(record: Record) -> tuple[str, ...]:
    """What of a record is embedded. What an assistant answers is long and says little that was asked: it is found by its words alone."""
    if record.role == "assistant":
        return ()
    name = f"{record.speaker}: " if record.speaker and record.role is None else ""
    return tuple(name + piece for piece in cut_for_meaning(record.text))


def milliseconds(record: Record) -> int | None:
    """The time of a record, since 1970."""
    return None if record.time is None else round(record.time.timestamp() * 1000)


def entry_of(number: int, record: Record) -> Entry:
    """What the ranking knows of a record, without vectors."""
    counts, language = analyse(record)
    return Entry(number, record.session, record.position, ROLES[record.role], milliseconds(record), record.speaker, counts, language)


def asked_of(question: str, now: datetime, compact: Compact | None = None) -> Asked:
    """The question as the ranking needs it: its days, and its vectors where there is an embedder. StorageError when that one fails."""
    days = asked_periods(question, now)
    if compact is None:
        return Asked(question, periods=days)
    embedding = compact.question(question[:READ])
    vector, tokens = compact.asked(embedding)
    return Asked(question, vector, tokens, embedding.words, days)


def hits_of(found: Iterable[Ranked], records: Mapping[int, Record]) -> list[Hit]:
    """The hits of ranked units. What is no longer there is left out."""
    hits = []
    for one in found:
        members = tuple(records[number] for number in one.members if number in records)
        if members:
            hits.append(Hit(members[0], one.score, _why(one), members if len(members) > 1 else ()))
    return hits


def _why(one: Ranked) -> Why:
    return Why(
        words=one.words,
        keyword=round(one.keyword, 4),
        sentence=_rounded(one.sentence),
        token=_rounded(one.token),
        time=_rounded(one.time),
        speaker=one.speaker,
        notes=("a standing wish",) if one.wish else (),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def rank_records(records: Sequence[Record], question: str, now: datetime, limit: int) -> list[Hit]:
    """The records that answer the question best by their words: for stores that have no index of their own."""
    index = PlainIndex(entry_of(place, record) for place, record in enumerate(records))
    found = index.rank(asked_of(question, now), limit=limit)
    return hits_of(found, dict(enumerate(records)))


# Days by which people miss when they say it: "three weeks ago" is seldom 21 days.
_SLACK = {"day": 1, "weekend": 1, "week": 2, "month": 8, "quarter": 8, "season": 15, "half": 15, "year": 60}
_EPOCH = date(1970, 1, 1).toordinal()


def asked_periods(question: str, now: datetime) -> list[tuple[int, int, int]]:
    """The periods that a question names, counted from `now`: first and last day since 1970, and over how many days around them nearness
    falls to nothing. A whole decade or century says nothing about a day and is left out."""
    return [_period(span) for span in find_dates(question, now) if span.precision in _SLACK or span.precision == "range"]


def _period(span: Span) -> tuple[int, int, int]:
    slack = _SLACK.get(span.precision, 1)
    fade = 2 * slack + 1 if span.relative else 7 if span.precision == "day" else 1
    return span.start.toordinal() - _EPOCH, span.end.toordinal() - _EPOCH, fade


_RERANKED = 50
_DEEPEST = 64  # times as many answers as are wanted: so far is looked for different ones
_LEAST = 4  # tokens below which nothing fits that says anything


@dataclass(frozen=True, kw_only=True)
class KeywordsOnly(Event):
    """A store has no embedder."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path} is searched by keywords alone: install holdfast[vectors] for search by meaning"
    level: ClassVar[int] = INFO  # `holdfast doctor` says it where it is looked for
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


class StoreSettings(TypedDict, total=False):
    """What every store takes, as keywords: a cross-encoder, and what tells it the time, hears of it and counts its tokens."""

    rerank: bool
    rerank_model: str | Reranker | None
    clock: Clock | None
    bus: Bus | None
    counter: TokenCounter | None


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
        self._patience = Patience(self._clock, self._bus)
        self._reranker_problems: tuple[str, ...] = ()
        self._told = ""
        self._closed = False
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

    def _check_open(self, where: str) -> None:
        """StorageError if the store was closed: it does not open again by itself."""
        if self._closed:
            raise StorageError.closed(f"the store {where}", where)

    def _unused_vectors(self) -> str:
        """Why the vectors that there are do not count in a search; empty where they do."""
        return ""

    def _question_of(self, question: str, now: datetime, compact: Compact | None, waiting: Callable[[], int]) -> Asked:
        """The question as the ranking needs it; by its words alone while the embedder does not answer it."""
        if compact is None or not self._patience.asks:
            return asked_of(question, now)
        try:
            asked = asked_of(question, now, compact)
        except StorageError as error:
            self._patience.failed(error, waiting())
            return asked_of(question, now)
        if self._patience.trouble:
            self._patience.worked(waiting=waiting() > 0)
        return asked

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
            hits = self._each_once(question, chosen, check_moment(now, "now") or self._clock.now(), depth + 1)
            if self._reranker is not None and hits:
                hits = _reranked(self._reranker, question, hits)
            hits = sorted(hits, key=lambda hit: _only_asks(hit, question))
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


def _only_asks(hit: Hit, question: str) -> bool:
    """Whether a record is the question itself, asked before: it is not its own answer."""
    asked = question.rstrip().endswith(("?", "？"))
    return asked and " ".join(hit.record.text.casefold().split()) == " ".join(question.casefold().split())


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
