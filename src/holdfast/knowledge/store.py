"""The contract of a knowledge store, what all adapters share of it (filters, checks of a question), and its answers as JSON values.

Every adapter passes `tests/contract/test_knowledge_store.py`. The JSON is what the command line prints and our MCP tools use:

    knowledge_add(records)                                                     -> a report
    knowledge_search(query, top_k, tags, after, before, session, budget, now)  -> {"hits": [...]}
    knowledge_get(id)                                                          -> {"record": ... or null}
    knowledge_forget(ids, text)                                                -> {"ids": [...]}
    knowledge_records(tags, after, before, session, start, limit)              -> {"records": [...], "next": ... or null}
    knowledge_stats()                                                          -> statistics
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from holdfast.clock import stamp
from holdfast.errors import InputError
from holdfast.knowledge.records import Hit, Record, Why, clean_text, from_json, not_fitting, to_json
from holdfast.search.pieces import Snippet, snippet_of
from holdfast.text.needle import Needle
from holdfast.validation import check_number

Progress = Callable[[int, int | None], None]
"""Is told how many records are done, and of how many where that is known."""

_LONGEST_QUESTION = 200_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class AddReport:
    """What an `add` did. `added` are new, `updated` had the same id and other content, `unchanged` were there already."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    embedded: int = 0
    """Texts for which a vector had to be computed. Nothing is embedded twice."""
    ids: tuple[str, ...] = ()
    """The ids of what was given, in its order."""

    def __add__(self, other: AddReport) -> AddReport:
        return AddReport(
            self.added + other.added,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
            self.embedded + other.embedded,
            self.ids + other.ids,
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds. `bytes` is what it takes on the disk or in the database, None where that cannot be known."""

    adapter: str
    where: str
    """The path or address, without any password."""
    records: int = 0
    sessions: int = 0
    vectors: int = 0
    bytes: int | None = None
    oldest: datetime | None = None
    newest: datetime | None = None
    tags: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What is wrong and was worked around, in words: a damaged file, a reranker that is not there."""


@runtime_checkable
class KnowledgeStore(Protocol):
    """Keeps records and finds them again. Safe for many threads and processes.

    StoreUnavailable means that nothing was written; Damaged names what does not check out. Damage never makes a store overwrite
    anything that a person could still read.
    """

    def add(self, records: Iterable[Record], *, progress: Progress | None = None) -> AddReport:
        """Keep these records durably: what was reported survives a power cut, and is found by every process from then on.

        A record whose id is there already replaces it, or, when it is the same thing, adds its tags (`records.merged`); one that
        changes nothing is `unchanged`. Records are taken in batches: an error keeps nothing of its batch, and what was kept before it is
        whole; doing it again is right. An embedder that fails is no error: records are kept, found by their words, and wait for vectors.
        """

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
        """What answers the question best, best first, at most `top_k`, each thing once.

        Any text is a question: nothing in it is an operator. An empty one is an InputError; one in which nothing can be looked for finds
        nothing. `tags` (all of them), `after` (from then on), `before` (earlier than that; a record without a time is in no period) and
        `session` (that conversation and what is below it: `trip` and `trip/day-1`) leave out what does not fit before anything is
        ranked. `budget` is how many tokens the texts of all hits may have together: they are packed by value. `now` is the day from
        which "last week" in the question is counted, today by default; a date in the question raises what fits it and hides nothing.

        Where a session is a conversation between a person and an assistant a hit is a round: a person's turn and what was answered
        (`Hit.unit`). Everywhere else it is one record.
        """

    def get(self, id: str) -> Record | None:
        """The record with this id."""

    def forget(self, ids: Iterable[str]) -> int:
        """Remove these records for good, out of every file and index, and say how many there were."""

    def forget_text(self, text: str) -> list[str]:
        """Forget every record that holds this text in any case, style of quotes and spacing; says which. An empty text is an InputError."""

    def stats(self) -> Stats:
        """What is in the store."""

    def records(
        self, *, tags: Collection[str] = (), after: datetime | None = None, before: datetime | None = None, session: str | None = None
    ) -> Iterator[Record]:
        """All records that fit, in no promised order (`records.reading_order` is one to sort by)."""

    def close(self) -> None:
        """Let go of files and connections. Harmless when done twice; everything else afterwards is a StorageError."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records a question is about, apart from its words."""

    tags: frozenset[str] = frozenset()
    after: datetime | None = None
    before: datetime | None = None
    session: str | None = None

    @classmethod
    def of(cls, tags: Collection[str], after: datetime | None, before: datetime | None, session: str | None) -> Filter:
        """The filter that these arguments of `search` or `records` mean. InputError if one of them cannot be."""
        if isinstance(tags, str):
            raise InputError(f"tags are several: {tags!r} alone is one.", hint=f"Write [{tags!r}].")
        wanted = frozenset(clean_text(tag, "tag").strip() for tag in tags)
        below = clean_text(session, "session") if session else None
        return cls(wanted - {""}, _in_utc(after, "after"), _in_utc(before, "before"), below)

    @property
    def arguments(self) -> dict[str, Any]:
        """It as the arguments that `search` and `records` take."""
        return {"tags": self.tags, "after": self.after, "before": self.before, "session": self.session}

    @property
    def empty(self) -> bool:
        """Whether it lets everything pass."""
        return not (self.tags or self.after or self.before or self.session)

    def admits(self, record: Record) -> bool:
        """Whether this record may be found."""
        if not self.tags.issubset(record.tags):
            return False
        if self.session is not None and not in_session(record.session, self.session):
            return False
        if self.after is None and self.before is None:
            return True
        time = record.time
        return time is not None and (self.after is None or time >= self.after) and (self.before is None or time < self.before)


def holds(needle: Needle, record: Record) -> bool:
    """Whether anything that people wrote into a record holds a text that is to be forgotten."""
    names = ("text", "id", "session", "source", "speaker", "kind", "tags", "extra")
    return needle.in_value({name: getattr(record, name) for name in names})


def check_question(query: str, top_k: int, budget: int | None) -> str:
    """The question as it is searched for. InputError if it, or how much is wanted, makes no sense."""
    if not isinstance(query, str) or not query.strip():
        raise InputError("the question is empty.", hint="Say what to look for.")
    check_number("top_k", top_k)
    if budget is not None:
        check_number("budget", budget)
    if top_k < 1:
        raise InputError(f"top_k is {top_k}: at least one result must be wanted.")
    if budget is not None and budget < 0:
        raise InputError(f"a budget of {budget} tokens is less than nothing.")
    return query[:_LONGEST_QUESTION].replace("\0", " ")


def summed_up(records: Iterable[Record], adapter: str, where: str, size: int | None, problems: Iterable[str] = ()) -> Stats:
    """The statistics of a store that has all of its records at hand."""
    tags: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    sessions: set[str] = set()
    times: list[datetime] = []
    for record in records:
        tags.update(record.tags)
        kinds[record.kind] += 1
        if record.session is not None:
            sessions.add(record.session)
        if record.time is not None:
            times.append(record.time)
    return Stats(
        adapter,
        where,
        kinds.total(),
        len(sessions),
        bytes=size,
        oldest=min(times, default=None),
        newest=max(times, default=None),
        tags=dict(tags.most_common()),
        kinds=dict(kinds.most_common()),
        problems=tuple(problems),
    )


def in_session(session: str | None, wanted: str) -> bool:
    """Whether a record's session is the wanted one or below it.

    >>> in_session("trip/day-1", "trip"), in_session("trip-2", "trip")
    (True, False)
    """
    return session is not None and (session == wanted or session.startswith(wanted.rstrip("/") + "/"))


def check_moment(moment: datetime | None, name: str) -> datetime | None:
    """The moment that an argument names. InputError if it is none."""
    if moment is None or isinstance(moment, datetime):
        return moment
    raise InputError(f"`{name}` is a datetime, and not {moment!r}.", hint="For example `datetime(2026, 1, 1, tzinfo=UTC)`.")


def _in_utc(moment: datetime | None, name: str) -> datetime | None:
    moment = check_moment(moment, name)
    if moment is not None and moment.tzinfo is None:
        raise InputError(f"`{name}` has no zone.", hint="Give one, for example `tzinfo=datetime.UTC`.")
    return None if moment is None else moment.astimezone(UTC)


def snippet_and_why(hit: Hit) -> tuple[Snippet, str]:
    """The part of a hit that answers best, with the stretches that match, and why it was found in words that a person understands."""
    text = hit.text[:_LONGEST_SHOWN]
    weights = {word: 1 / place for place, word in enumerate(hit.why.words, 1)}
    shown = snippet_of(text, weights, within=(0, len(text)), length=_SNIPPET)
    said = list(dict.fromkeys(shown.said[word] for word in hit.why.words if word in shown.said))
    marked = {shown.text[start:end].casefold() for start, end in shown.marks}
    seen = [word for word in said if word.casefold() in marked]
    elsewhere = [word for word in said if word not in seen]
    why = hit.why
    close = max(why.sentence or 0.0, why.token or 0.0)
    reasons = [
        f"it says {_joined(seen)}" if seen else "",
        f"elsewhere it says {_joined(elsewhere)}" if elsewhere else "",
        "its context has the words" if why.words and not said else "",
        "close in meaning" if close >= _CLOSE else "related in meaning" if close >= _RELATED else "",
        "from the time that is asked for" if (why.time or 0.0) >= 0.5 else "",
        "said by the one who is asked about" if why.speaker else "",
        *why.notes,
    ]
    return shown, "; ".join(reason for reason in reasons if reason) or NO_REASON


NO_REASON = "nothing better was found"
"""Said of a hit that neither has a word of the question nor is like it in meaning."""
_LONGEST_SHOWN = 200_000
_SNIPPET = 300
_CLOSE, _RELATED = 0.5, 0.3
"""Likeness in meaning from which on it is worth saying. Sentences about one thing are above the first, about the same field the second."""


def _joined(words: list[str]) -> str:
    quoted = [f"\u201c{word}\u201d" for word in words[:6]]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """A hit with its record, its score, the part that answers best, and why it was found, in parts and as one line."""
    parts = {name: value for name, value in asdict(hit.why).items() if value not in (None, ())}
    shown, why = snippet_and_why(hit)
    found = {"score": round(hit.score, 6), "why": why, "snippet": shown.text, "reasons": parts, "record": to_json(hit.record)}
    return found | ({"unit": [to_json(record) for record in hit.unit]} if hit.unit else {})


class _HitForm(BaseModel):
    record: Any = None
    score: float = 0.0
    reasons: Why = Field(default_factory=Why)
    unit: list[Any] = []


def hit_from_json(value: Any) -> Hit:
    """The hit that `hit_to_json` wrote. InputError if it is none."""
    form = _read(_HIT, value, "a hit")
    return Hit(from_json(form.record), form.score, form.reasons, tuple(from_json(record) for record in form.unit))


def report_to_json(report: AddReport) -> dict[str, Any]:
    """A report of an `add`."""
    return {**asdict(report), "ids": list(report.ids)}


def report_from_json(value: Mapping[str, Any]) -> AddReport:
    """The report that `report_to_json` wrote. InputError if it is none."""
    return _read(_REPORT, value, "a report of what was added")


def stats_to_json(stats: Stats) -> dict[str, Any]:
    """The statistics of a store."""
    times = {name: stamp(time) if (time := getattr(stats, name)) else None for name in ("oldest", "newest")}
    return {**asdict(stats), **times, "tags": dict(stats.tags), "kinds": dict(stats.kinds), "problems": list(stats.problems)}


def stats_from_json(value: Mapping[str, Any], adapter: str, where: str) -> Stats:
    """The statistics that `stats_to_json` wrote, of a store that is reached through another one. InputError if they are none."""
    return _read(_STATS, {**value, "adapter": adapter, "where": where}, "a store's statistics")


_HIT, _REPORT, _STATS = TypeAdapter(_HitForm), TypeAdapter(AddReport), TypeAdapter(Stats)


def _read(form: TypeAdapter[_T], value: Any, what: str) -> _T:
    """The value in this form, where null is as good as nothing and what is not known is left out."""
    given = {name: member for name, member in value.items() if member is not None} if isinstance(value, Mapping) else value
    try:
        return form.validate_python(given)
    except ValidationError as error:
        raise not_fitting(what, error) from error
