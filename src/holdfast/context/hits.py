"""From what the full-text index found to what a person or an agent is shown: the message, the sentence, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.context.records import MessageRecord
from holdfast.search.fulltext import Found
from holdfast.search.snippets import snippet_of
from holdfast.text.normalise import normalise

_PHRASE = re.compile(r"[\"“„«]([^\"“”„«»]{2,200})[\"“”»]")
_DEEPER = 40  # hits looked at when a phrase in quotes is asked for


@dataclass(frozen=True)
class Hit:
    """A message that was found. `marks` are the stretches of `snippet` that match, `why` the words that did."""

    record: MessageRecord
    score: float
    snippet: str
    why: tuple[str, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()


def phrases_in(query: str) -> tuple[str, ...]:
    """What stands in quotes, in its compared form: messages that say exactly that come first."""
    return tuple(found for phrase in _PHRASE.findall(query) if (found := normalise(phrase)))


def wanted(query: str, top_k: int) -> int:
    """How many hits to ask the index for."""
    return max(top_k, _DEEPER) if phrases_in(query) else top_k


def hits_of(query: str, found: Iterable[Found], read: Callable[[Found], MessageRecord | None], top_k: int) -> list[Hit]:
    """The messages that were found, those with the quoted phrases first."""
    pairs = [(one, record) for one in found if (record := read(one)) is not None]
    phrases = phrases_in(query)
    if phrases:
        pairs.sort(key=lambda pair: -sum(phrase in normalise(pair[1].text) for phrase in phrases))
    return [_hit(one, record) for one, record in pairs[:top_k]]


def literal_hits(query: str, newest_first: Iterable[MessageRecord], top_k: int) -> list[Hit]:
    """Messages that hold the query as it is written: for queries without a word (emoji, signs) and parts of words."""
    needle = normalise(query)
    found: list[Hit] = []
    for record in newest_first if needle else ():
        if len(found) >= top_k:
            break
        if needle in normalise(record.text):
            at = max(record.text.casefold().find(query.strip().casefold()), 0)
            begin = max(at - 80, 0)
            shown = " ".join(record.text[begin : at + len(query) + 160].split())
            found.append(Hit(record, 0.0, shown, (query.strip(),)))
    return found


def _hit(found: Found, record: MessageRecord) -> Hit:
    snippet = snippet_of(record.text, found.matched, within=found.piece, language=found.language)
    return Hit(record, found.score, snippet.text, _why(found.matched, snippet.said), snippet.marks)


def _why(matched: Mapping[str, float], said: Mapping[str, str]) -> tuple[str, ...]:
    ordered = sorted(matched, key=lambda term: -matched[term])
    return tuple(dict.fromkeys(said.get(term, f"{term} (in context)") for term in ordered))
