"""A question as the ranking takes it, and what it asks for: its terms, each with how much it weighs. Needs no numpy.

A question is a few words, too few to guess its language from: each of its words is looked up as every language of the index
would stem it. A word that the index does not know stands for those that are written much like it. How rare a term is comes from the store
(`Statistics`), so every adapter weighs the same question over the same records alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log
from typing import TYPE_CHECKING, Protocol

from holdfast.text.language import guess_language
from holdfast.text.words import keys, terms, tokenise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TERM_LENGTH = 80  # longer terms (addresses, hashes) are cut, in texts and in questions alike
_MAX_TERMS = 64  # a whole page given as a question: its first terms are enough, and the time stays bounded
_SHORTEST = 4  # letters of a word that others may stand for
_HEAD = 3  # letters that a lookalike shares at its beginning
_ALIKE = 0.55
_STANDS_FOR = 0.6  # what a lookalike weighs against the word itself
_MOST = 3
_LONGEST_NAME = 5  # words of a speaker's name
_SELDOM = 20  # a language of fewer than one record in so many is most often guessed wrongly
MONTH_NAMES = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
_MONTHS = {terms(name, "en")[0]: number for number, name in enumerate(MONTH_NAMES, 1)}
"""The number of each month by the term of its English name."""


# What is asked


@dataclass(frozen=True, slots=True)
class Weights:
    """What each ingredient counts. Without vectors of words the others fill their place."""

    token: float = 1.0
    sentence: float = 0.25
    context: float = 0.3
    keyword: float = 0.45
    time: float = 0.1
    speaker: float = 0.04
    wish: float = 0.05

    @property
    def filled(self) -> float:
        """What the other ingredients are multiplied with where there are no vectors of words."""
        rest = self.sentence + self.context + self.keyword
        return 1 + self.token / rest if rest else 1.0


_IN_USE: ContextVar[Weights | None] = ContextVar("weights", default=None)


def weights_in_use() -> Weights:
    """What the ingredients count where nobody says otherwise."""
    return _IN_USE.get() or Weights()


@contextmanager
def ranked_with(weights: Weights) -> Iterator[None]:
    """Inside of it every search of this thread or task ranks by these weights: to measure what an ingredient is worth."""
    token = _IN_USE.set(weights)
    try:
        yield
    finally:
        _IN_USE.reset(token)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the ranking needs it. `periods` are first and last day (since 1970) and over how many days nearness fades."""

    text: str
    vector: NDArray[np.float32] | None = None
    tokens: NDArray[np.float32] | None = None
    words: tuple[str, ...] = ()
    """The word to which each of `tokens` belongs."""
    periods: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A unit that was found, its score, and what each ingredient said of it; None means that it was not asked."""

    unit: int
    members: tuple[int, ...]
    """The numbers of its records, in reading order."""
    score: float
    words: tuple[str, ...]
    keyword: float
    sentence: float | None
    token: float | None
    time: float | None
    speaker: float | None
    wish: bool = False


_CERTAINTY = (5.0, 20.0, 4.0, -10.0)
"""By logistic regression over what was asked for and found against small talk and questions about other conversations."""


def certainty(token: float | None, sentence: float | None, information: float = 0.5) -> float:
    """How sure it is that something was asked for, 0 to 1: by its likeness word by word and that of its best sentence in meaning.

    `information` is how much the question's rare words tell, as a share of what would single out one text among all of them (the logarithm
    of their number).
    """
    met, meaning = token or 0.0, sentence or 0.0
    return logistic(_CERTAINTY[0] * met * information + _CERTAINTY[1] * meaning + _CERTAINTY[2] * met + _CERTAINTY[3])


def logistic(value: float) -> float:
    """Any number as one between 0 and 1."""
    return 1 / (1 + exp(-max(min(value, 50.0), -50.0)))


class Statistics(Protocol):
    """What a store knows about all records among which a question looks, not only about the candidates that it delivers."""

    @property
    def records(self) -> int:
        """How many records there are."""

    @property
    def spoken(self) -> int:
        """How many of them are no assistant's answers."""

    @property
    def average(self) -> float:
        """How many terms a record has on average; a term of an assistant's answer counts `ANSWER`."""

    @property
    def languages(self) -> Sequence[str]:
        """The languages in which they are written (`common_languages`)."""

    def held(self, wanted: Collection[str]) -> Mapping[str, tuple[int, int]]:
        """In how many records each of these terms comes, and in how many that are no answers. A term that no record has is left out."""

    def beginning_with(self, head: str) -> Iterable[str]:
        """The terms that begin so."""

    def speakers(self, names: Collection[str]) -> Collection[str]:
        """Which of these names (`bare_name`) somebody has who said one of the records."""


ANSWER = 0.5
"""How much a word of an assistant counts against one of a person's in the same round."""


def average_size(size: float, records: int, answer_size: float, answers: int) -> float:
    """The average that `Statistics` asks for, from the sums over what people said and over what assistants answered."""
    return max((size + ANSWER * answer_size) / max(records + ANSWER * answers, ANSWER), 1.0)


def common_languages(counts: Mapping[str, int]) -> list[str]:
    """The languages in which at least one record in twenty is written, the commonest first and at most four."""
    ordered = sorted(counts, key=lambda code: (-counts[code], code))
    return [code for code in ordered if counts[code] * _SELDOM >= sum(counts.values()) and counts[code] > 0][:4]


# Its terms


@dataclass(slots=True)
class Sought:
    """The terms of a question that the store knows."""

    rarity: dict[str, float] = field(default_factory=dict)
    """What each term weighs: how rare it is among the records, less for one that only stands for the word in the question."""
    spoken: dict[str, float] = field(default_factory=dict)
    """How rare each term is in what is compared word by word."""
    held: dict[str, int] = field(default_factory=dict)
    """In how many records each term comes."""
    records: int = 0
    """How many records there are."""
    unknown: float = 0.0
    """The rarity of a word that no record has, among what is compared word by word."""
    most: float = 0.0
    """The most that the question could weigh: each of its words by its rarest form."""


def weigh(question: str, known: Statistics) -> Sought:
    """What each term of the question weighs among these records."""
    found = Sought(records=known.records, unknown=rarity(0, known.spoken))
    words = _forms(question, known.languages)
    frequencies = dict(known.held({term for forms in words for term in forms}))
    for forms in words:
        likes = {term: 1.0 for term in forms if term in frequencies or date_part(term)[0]}
        if not likes:
            for term in forms:
                likes |= lookalikes(term, known.beginning_with)
            frequencies |= known.held(likes.keys() - frequencies.keys())
        best = rarity(0, known.records) if not likes else 0.0
        for term, likeness in likes.items():
            held, spoken = frequencies.get(term, (0, 0))
            if term not in found.rarity:
                found.rarity[term] = likeness * rarity(held, known.records)
                found.spoken[term] = rarity(spoken, known.spoken)
                found.held[term] = held
            best = max(best, found.rarity[term])
        found.most += best
    return found


def rarity(held: int, records: int) -> float:
    """IDF: how much it says that a record has a term which `held` of the records have."""
    return log(1 + max(records - held + 0.5, 0.0) / (held + 0.5))


def token_weights(words: Sequence[str], sought: Sought) -> list[float]:
    """How rare each word of the question is that has a vector, as shares of all."""
    weights = []
    for word in words:
        forms = [term for one in tokenise(word) for term in analysed(keys(one, "en"))]
        known = [sought.spoken[term] for term in forms if term in sought.spoken]
        weights.append(max(known) if known else sought.unknown)
    total = max(sum(weights), 1e-6)
    return [weight / total for weight in weights]


def date_part(term: str) -> tuple[str, int]:
    """Which part of a date a term writes (`day`, `month` or `year`) and its number; ("", 0) if none."""
    if term in _MONTHS:
        return "month", _MONTHS[term]
    if not term.isascii() or not term.isdigit() or len(term) not in (1, 2, 4):
        return "", 0
    return ("year" if len(term) == 4 else "day"), int(term)


def analysed(found: Iterable[str]) -> list[str]:
    """Terms in the form in which the index stores them: no blanks or quotes, and not too long."""
    given = list(found)
    if len(max(given, key=len, default="")) <= TERM_LENGTH and _UNWRITABLE_MARK.search("".join(given)) is None:
        return given  # as nearly all are
    return [term.translate(_UNWRITABLE)[:TERM_LENGTH] for term in given]


_UNWRITABLE = {ord(mark): "_" for mark in " \t\n\r\x0b\x0c\"'`\0"}
_UNWRITABLE_MARK = re.compile("[ \t\n\r\x0b\x0c\"'`\0]")


def asked_terms(question: str, languages: Sequence[str]) -> list[str]:
    """The different terms of a question in order, under its own likely language and those of the index."""
    codes = _codes(question, languages)
    found: dict[str, None] = {}
    for word in tokenise(question[:20_000]):
        for code in codes:
            found.update(dict.fromkeys(analysed(keys(word, code))))
        if len(found) >= _MAX_TERMS:
            break
    return list(found)[:_MAX_TERMS]


def _forms(question: str, languages: Sequence[str]) -> list[list[str]]:
    """The words of a question that say something, each in the forms that the languages of the index give it; each word once."""
    codes = _codes(question, languages)
    known = set(asked_terms(question, languages))
    found: dict[tuple[str, ...], None] = {}
    for word in tokenise(question[:20_000]):
        forms = dict.fromkeys(term for code in codes for term in analysed(keys(word, code)) if term in known)
        if forms:
            found[tuple(forms)] = None
    return [list(forms) for forms in found]


def _codes(question: str, languages: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([guess_language(question[:4000]), *languages, "en"]))


def lookalikes(term: str, vocabulary: Callable[[str], Iterable[str]]) -> dict[str, float]:
    """Words of the index that an unknown one may stand for, with their weight: a longer or shorter form, or a misspelling.

    `vocabulary` gives the words that begin with a string.
    """
    if len(term) < _SHORTEST or not term.isalpha():
        return {}
    rated = [(_likeness(term, word), word) for word in vocabulary(term[:_HEAD]) if len(word) >= _SHORTEST and word.isalpha()]
    best = sorted((pair for pair in rated if pair[0] >= _ALIKE), key=lambda pair: (-pair[0], pair[1]))[:_MOST]
    return {word: _STANDS_FOR * rate for rate, word in best}


def _likeness(one: str, other: str) -> float:
    if one.startswith(other) or other.startswith(one):
        return 0.9
    first, second = _threes(one), _threes(other)
    return 2 * len(first & second) / (len(first) + len(second))


def _threes(word: str) -> set[str]:
    padded = f" {word} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


# Whom it names


def named_speaker(question: str, known: Statistics) -> str | None:
    """The one speaker whom the question names, as a bare name; None if it names nobody, or several."""
    words = bare_name(question[:20_000]).split(" ")
    names = {" ".join(words[at : at + size]) for size in range(1, _LONGEST_NAME + 1) for at in range(len(words) - size + 1)} - {""}
    found = set(known.speakers(names))
    return found.pop() if len(found) == 1 else None


@lru_cache(maxsize=512)
def bare_name(text: str) -> str:
    """A name, or a text that may hold one, as its bare words: "Ann's" is "ann"."""
    return " ".join(word.text.lower().removesuffix("'s").removesuffix("’s") for word in tokenise(text))
