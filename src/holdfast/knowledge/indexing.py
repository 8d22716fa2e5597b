"""What of a record is searched, and how a ranked unit becomes a hit: the same for every adapter. Needs no numpy until vectors are there.

`analyse` and `texts_of` decide under which terms and by which vectors a record is found. Changing them changes what every store finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.knowledge.periods import asked_periods
from holdfast.knowledge.records import Hit, Record, Why
from holdfast.search.pieces import PROBE, cut_for_meaning
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked, analysed
from holdfast.search.wishes import WISH, form_of_wishes, states_a_wish
from holdfast.text.language import guess_language
from holdfast.text.words import terms

if TYPE_CHECKING:
    from holdfast.search.vectors import Compact

ROLES = {None: 0, "person": 1, "assistant": 2}
_READ = 5000  # characters of a question that are embedded


def numpy_installed() -> bool:
    """Whether arrays can be used; without numpy records are ranked in plain Python, by their words alone."""
    return find_spec("numpy") is not None


def form_of_analysis() -> str:
    """A mark of how texts are analysed and cut: another one makes an index that was kept useless."""
    parts = [*terms(PROBE, "en"), *cut_for_meaning("word. " * 600), form_of_wishes()]
    return blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def analyse(record: Record) -> tuple[Mapping[str, int], str]:
    """The terms under which a record is found, how often each comes, and their language.

    They are those of its text, its title and its speaker. What a person tells an assistant, or a note, may state a standing wish.
    """
    language = guess_language(record.text[:4000])
    speaker = record.speaker if record.role is None else None  # "user" and "assistant" are no names to look for
    names = " ".join(name for name in (speaker, record.extra.get("title")) if isinstance(name, str))
    found = analysed(terms(record.text, language))
    if names:
        found += analysed(terms(names, language))
    if (record.role == "person" or record.speaker is None) and record.role != "assistant" and states_a_wish(record.text):
        found.append(WISH)
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
    """The question as the ranking needs it: its days, and its vectors where there is an embedder."""
    days = asked_periods(question, now)
    if compact is None:
        return Asked(question, periods=days)
    (embedding,) = compact.embedder.embed([question[:_READ]], question=True)
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
