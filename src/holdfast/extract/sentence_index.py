"""Sentences of documents, found with the one ranking of `search/`: by words, by meaning, word by word, and with what stands beside them.

A sentence is ranked together with its context, the title of its document and the headings above it: "36 dB(A) at the window" under "Noise"
answers a question about noise. Where the embedder is not installed it is ranked by its words alone. A score is on a
scale of its own: below `FLOOR` a sentence has nothing to do with the question. What a question asks for (a date, a number, a person, a
place, a reason) is told by rules over words, in the larger European languages and in Chinese and Japanese.

    index = SentenceIndex([IndexedSentence("a.md", "36 dB(A) at the window.", ("Norvik", "Noise"))])
    index.rank("How loud is the Norvik?")
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Literal

from holdfast.search.embedding import load_embedder
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked, Weights, analysed
from holdfast.text.date_rules import MONTHS
from holdfast.text.dates import find_dates
from holdfast.text.language import NO_SPACES, alternatives, guess_language, read_lists
from holdfast.text.words import is_stop_word, terms

if TYPE_CHECKING:
    from holdfast.search.segments import Compact, Meaning


FLOOR = 0.2
"""The score below which a sentence has nothing to do with the question: questions about something else stay below it."""
FAIR, SURE = 0.4, 0.6
"""Scores from which on it is likely, and rather sure, that an answer is among the first sentences."""
MOST_EMBEDDED = 2000
"""Sentences that are all compared by meaning. Of more, those that share words with the question are."""
_CANDIDATES = 200
_KEPT = 20_000  # small forms of sentences that are kept for the next question, some 4 kB each
_READ = 5000  # characters of a question that are embedded
_WEIGHTS = Weights(token=0.5, sentence=0.5, context=0.0, keyword=1.0, time=0.0, speaker=0.0)
_FITTING = 0.8
_FIRST, _FOLLOWED = 3, 0.2  # sentences whose names are followed, and what it counts that a document is called so
_NAMED, _RARE = 0.3, 6  # what it counts that a sentence has a name of the best one, which at most so many sentences have
_ALONE = 3.0  # the scale of scores by words alone against those with vectors


@dataclass(frozen=True, slots=True)
class IndexedSentence:
    """A sentence, the document that it is from, and its context: what its document is called, and the headings above it."""

    document: str
    text: str
    context: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A sentence that was found: its place in the index, and its score, which does not depend on what else was found."""

    place: int
    score: float


@cache
def shared_vectors() -> Compact | None:
    """The embedder of all sentences of this process; None where the extra `vectors` is not installed."""
    embedder = load_embedder("auto")
    if embedder is None:
        return None
    from holdfast.search.segments import Compact

    return Compact(embedder)


_meanings: OrderedDict[bytes, Meaning] = OrderedDict()
_lock = Lock()


def _embedded(texts: Iterable[str], compact: Compact) -> list[Meaning]:
    """The small forms of texts; those of the last ones are kept."""
    keyed = [(compact.hash_of([text]), text) for text in texts]
    with _lock:
        there = {key: _meanings[key] for key, _ in keyed if key in _meanings}
    there |= compact.embed({key: [text] for key, text in keyed if key not in there})
    with _lock:
        _meanings.update(there)
        while len(_meanings) > _KEPT:
            _meanings.popitem(last=False)
    return [there[key] for key, _ in keyed]


class SentenceIndex:
    """Sentences in memory, in the order of their documents. For one thread at a time."""

    def __init__(self, sentences: Sequence[IndexedSentence], *, most_embedded: int = MOST_EMBEDDED) -> None:
        self.sentences = list(sentences)
        languages = _languages(self.sentences)
        self._entries = [_entry(place, one, languages[one.document]) for place, one in enumerate(self.sentences)]
        self._compact = shared_vectors() if self.sentences else None
        self._few = len(self.sentences) <= most_embedded

    def rank(self, question: str, *, limit: int = 50, names: bool = False) -> list[Match]:
        """The sentences that have to do with the question, best first. Names of documents that the best ones mention are followed.

        With `names` other names in the best one are followed too: good for the first few sentences, not for filling a budget."""
        if not self.sentences or not question.strip():
            return []
        if self._compact is None or len(_WIDE.findall(question)) * 2 > len(question):  # what the small model cannot read it muddles
            found, alone = self._words.rank(Asked(question), limit=4 * limit, weights=_WEIGHTS), True
        else:
            found, alone = self._embedded_for(question).rank(question, 4 * limit, _WEIGHTS), False
        wanted = wanted_of(question)
        scale = _ALONE if alone else 1.0
        scores = {one.members[0]: one.score * scale * self._fitness(one.members[0], wanted, alone=alone) for one in found}
        best = sorted(scores.items(), key=lambda one: (-one[1], one[0]))[:_FIRST]
        for place, more in self._followed(question, best, best[: int(names)]).items():
            if place in scores:
                scores[place] += more
        return [Match(place, score) for place, score in sorted(scores.items(), key=lambda one: (-one[1], one[0]))[:limit]]

    def _fitness(self, place: int, wanted: Collection[Wanted], *, alone: bool) -> float:
        """More than 1 for a sentence that holds the kind of thing that is asked for: a date, a number, a person.

        It counts only where there is little else to go by: words `alone`, or a sentence that stands under no heading.
        """
        one = self.sentences[place]
        return 1 + _FITTING if wanted and (alone or not one.context) and all(offers(one.text, kind) for kind in wanted) else 1.0

    def _embedded_for(self, question: str) -> _Embedded:
        if self._few:
            return self._all
        found = self._words.rank(Asked(question), limit=_CANDIDATES, weights=_WEIGHTS)
        chosen = sorted(place for one in found for place in one.members)
        return _Embedded([self._entries[place] for place in chosen], self.sentences, self._compact)  # type: ignore[arg-type]

    @cached_property
    def _words(self) -> PlainIndex:
        return PlainIndex(self._entries)

    @cached_property
    def _all(self) -> _Embedded:
        return _Embedded(self._entries, self.sentences, self._compact)  # type: ignore[arg-type]  # asked for where there is one

    @cached_property
    def _called(self) -> dict[frozenset[str], list[int]]:
        """The sentences of the documents that are called by these words."""
        found: dict[frozenset[str], list[int]] = {}
        for place, one in enumerate(self.sentences):
            if one.context:
                found.setdefault(_name_words(one.context[0]), []).append(place)
        found.pop(frozenset(), None)
        return found

    def _followed(self, question: str, best: Sequence[tuple[int, float]], named: Sequence[tuple[int, float]]) -> dict[int, float]:
        """What sentences gain because a good one names their document, or the best one a thing that they name too, and the question does
        not: the second step of a chain."""
        asked = _name_words(question)
        gains: dict[int, float] = {}
        for place, score in best:
            text = self.sentences[place].text
            said = _name_words(text)
            capitals = frozenset(word.lower() for word in _CAPITAL.findall(text))
            for name, places in self._called.items():
                if name <= said and name & capitals and not name <= asked:
                    for other in places:
                        if self.sentences[other].document != self.sentences[place].document:
                            gains[other] = max(gains.get(other, 0.0), _FOLLOWED * score)
        for place, score in named:
            one = self.sentences[place]
            for name in {word.lower() for word in _NAME.findall(one.text)} - asked:
                for other in self._holding.get(name, ()) if len(self._holding.get(name, ())) <= _RARE else ():
                    if self.sentences[other].document != one.document:
                        gains[other] = max(gains.get(other, 0.0), _NAMED * score)
        return gains

    @cached_property
    def _holding(self) -> dict[str, set[int]]:
        """The sentences that have each word."""
        found: dict[str, set[int]] = {}
        for place, one in enumerate(self.sentences):
            for word in _WORD.findall(one.text):
                found.setdefault(word.lower(), set()).add(place)
        return found


_WIDE = re.compile(f"[{NO_SPACES}]")
_WORD = re.compile(r"[^\W_][\w-]*")
_NAME = re.compile(r"(?<![.!?:;]\s)(?<!^)\b[A-Z][\w-]*[a-z\d][\w-]*|\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[^\W_][\w-]*")
_CAPITAL = re.compile(r"\b[A-Z\d][\w-]*")
_ISO_MONTH = re.compile(r"\b\d{4}-(0[1-9]|1[0-2])-\d\d\b")


def _name_words(text: str) -> frozenset[str]:
    """The words of a text that may belong to a name: all but function words."""
    return frozenset(word.lower() for word in _WORD.findall(text) if not is_stop_word(word))


class _Embedded:
    """Sentences with their vectors."""

    def __init__(self, entries: Sequence[Entry], sentences: Sequence[IndexedSentence], compact: Compact) -> None:
        from holdfast.search.corpus import Corpus
        from holdfast.search.segments import build, with_vectors

        made = _embedded((_with_context(sentences[entry.number]) for entry in entries), compact)
        filled = [
            with_vectors(replace(entry, meaning=place), one.vectors, compact.dimension)
            for place, (entry, one) in enumerate(zip(entries, made, strict=True), 1)
        ]
        self._tokens = {place: one.tokens for place, one in enumerate(made, 1)}
        self._corpus = Corpus.of([build(filled, compact.dimension)])
        self._compact = compact

    def rank(self, question: str, limit: int, weights: Weights) -> list[Ranked]:
        from holdfast.search.ranking import rank

        (embedding,) = self._compact.embedder.embed([question[:_READ]], question=True)
        vector, tokens = self._compact.asked(embedding)
        corpus, size = self._corpus, self._compact.token_dimension
        return rank(
            Asked(question, vector, tokens, embedding.words),
            corpus,
            tokens=lambda rows: corpus.tokens_of(rows, corpus.meaning, size, lambda keys: {key: self._tokens[key] for key in keys}),
            limit=limit,
            weights=weights,
        )


def _languages(sentences: Sequence[IndexedSentence]) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for one in sentences:
        texts.setdefault(one.document, []).append(one.text)
    return {document: guess_language("\n".join(found)[:4000]) for document, found in texts.items()}


def _entry(place: int, one: IndexedSentence, language: str) -> Entry:
    counts = Counter(analysed(terms(one.text, language)))
    counts.update(
        dict.fromkeys(analysed([word for month in _ISO_MONTH.findall(one.text) for word in _month_words(int(month), language)]), 1)
    )
    counts.update(dict.fromkeys(analysed(terms(" ".join(one.context), language)), 1))
    return Entry(place, None, None, 0, None, None, counts, language)


@cache
def _month_words(number: int, language: str) -> tuple[str, ...]:
    """The names of a month, as words to be found by: `2027-03-14` has to do with a question about March."""
    return tuple(dict.fromkeys(term for name, month in MONTHS.items() if month == number for term in terms(name, language)))


def _with_context(one: IndexedSentence) -> str:
    return f"{' > '.join(one.context)}: {one.text}" if one.context else one.text


Wanted = Literal["date", "time", "number", "money", "duration", "measure", "share", "person", "place", "reason", "means"]

_SLOT = re.compile(r"\{([a-z_]+)\}")
_REFERENCE = date(2000, 6, 15)  # only whether there is a date counts here, not which


@cache
def _pattern(pattern: str) -> str:
    """A pattern of the lists, with the words that its `{names}` stand for."""
    words: dict[str, str] = read_lists("holdfast.extract", "answer_types")["words"]
    return _SLOT.sub(lambda slot: f"(?:{alternatives(words[slot[1]])})", pattern)


@cache
def _asking() -> tuple[tuple[Wanted, re.Pattern[str]], ...]:
    """What questions of each kind look like. Compiled at first use: importing should cost nothing."""
    listed = read_lists("holdfast.extract", "answer_types")["questions"]["asking"]
    return tuple((kind, re.compile(_pattern(form), re.IGNORECASE)) for kind, form in listed)


@cache
def _offering(wanted: Wanted) -> re.Pattern[str]:
    """What a sentence looks like that holds such a thing. Names of people are told by their capitals."""
    form: str | list[str] = read_lists("holdfast.extract", "answer_types")["offers"][wanted]
    joined = alternatives(form) if isinstance(form, str) else "|".join(form)
    return re.compile(_pattern(joined), re.NOFLAG if wanted == "person" else re.IGNORECASE)


def wanted_of(question: str) -> frozenset[Wanted]:
    """The kinds of thing that an answer should hold.

    >>> sorted(wanted_of("How much did the bridge cost, and when was it opened?"))
    ['date', 'money']
    """
    wanted: set[Wanted] = set()
    for kind, pattern in _asking():
        match = pattern.search(question)
        if match:
            wanted.add(kind)
            question = question[: match.start()] + " " + question[match.end() :]  # "how many days" wants a duration, not also a number
    if wanted & {"money", "share", "measure", "duration", "time"}:
        wanted.discard("number")
    return frozenset(wanted)


@lru_cache(maxsize=16384)
def offers(text: str, wanted: Wanted) -> bool:
    """Whether a sentence holds a thing of the wanted kind."""
    if wanted == "date":
        return bool(find_dates(text, _REFERENCE))
    return _offering(wanted).search(text) is not None
