"""Where sources disagree, told only where it is sure: the same thing, the same attribute, the same unit, and another value.

Every figure, date and time of day is looked at with the sentence and the clause that it stands in, all values left out: two statements of
one fact are then nearly the same text. Two values disagree where these texts are alike in meaning, each is the nearest to the other among
all values of other documents, and they share words that are rare enough. What is a plan, a bound on one side, a change, another case
(something else that differs too), a series (the same sentence in many documents) or about something else (each names what the other does
not, by a name, a number or the one word in which they differ) is no disagreement. Of dates and times of day the event beside them has to be
the same. Without an embedder the words decide alone. A false one costs a reader more than one that was missed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from heapq import nlargest
from itertools import combinations, islice
from math import inf, log, sqrt

from holdfast.extract.sentence_index import shared_vectors
from holdfast.offline.cases import BORDER, OWN, VALUE, Case, another_case, find_cases, leads_to_case, stems
from holdfast.offline.documents import SourceDocument, bare_text, tainted_units
from holdfast.offline.quantities import CLOCK, DATE, MEASURES, Value, find_values
from holdfast.text.language import alternatives, guess_language, read_lists
from holdfast.text.words import is_stop_word, stem, terms

_ALIKE = 0.6  # cosine of two texts without their values
_ALIKE_WORDS = 0.4  # the same, by words alone
_SHARED, _LEAST_SHARED = 4.0, 1.4  # rarity of the words that two sentences share; the second where they are all but the same
_EVIDENT = 0.75  # cosine of two that are all but the same
_EQUAL = 0.005  # of the likeness: closer than this is the same
_USUAL = 60  # sentences: in a few every word would look common
_SHORT = 4  # words: a clause with fewer says too little to be compared alone
_MOST, _MOST_OF_A_KIND = 2000, 600  # values that are compared
_LONGEST, _LISTED = 2000, 24  # characters and values of a sentence: with more it is a list, and what each value costs grows with it
_OUTDATED = 540  # days between two documents, from which on the older one is history
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_a-z])")
_CLAUSES = re.compile(r"[,;]\s+|\s+[–—]\s+|\s+\(|\)\s+|\s+(?:but|although|whereas|aber|mais|pero|ma)\s+")
_ROW = re.compile(r"[^:;]{1,60}: [^;]*; ")
_CODE = re.compile(
    r"\b[A-Z][\w-]*[^\W\d_] \d(?:[\d.]*\d)?(?![\w%])|\b(?=\w*\d)(?=\w*[^\W\d])[\w.-]+|\b[A-Z]{2,}[A-Z0-9-]*\b|\b[A-Z][\w-]*-\d+\b"
)
_NAME = re.compile(r"(?:(?<=[a-z,;’'\"] )|(?<=\bA ))[A-Z][a-z]\w+")
_TITLE_NAME = re.compile(r"\b[A-Z][\w'’-]{2,}")
_WORD = re.compile(r"\w+")
_NUMBERS: dict[str, int] = {"one": 1, **read_lists("holdfast.offline", "quantities")["numbers"]}
_NUMBERED = re.compile(rf"\b([^\W\d_]{{3,40}}) (\d{{1,6}}|[A-Z]|(?i:{'|'.join(_NUMBERS)}))(?!\w|[.,:/-]\w)")
_BESIDE = 2  # words of an event: "end of life"
_AT_HOUR = re.compile(r"\b(?:at|um|gegen|à|vers|a las?|alle|às)\s+$", re.IGNORECASE)
_POINTS_BACK = re.compile(r"(?:its?|seine?|ihre?)\b", re.IGNORECASE)
_CHANGE, _PLAN, _GENERAL = (
    re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'hedges')[name])})\b", re.IGNORECASE)
    for name in ("change", "plan", "general")
)
_AT_MOST, _AT_LEAST, _UNTIL, _AFTER = (
    re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'hedges')[name])})\s+(?:\S+\s+)?$", re.IGNORECASE)
    for name in ("at_most", "at_least", "until", "after")
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says: the whole sentence, where it stands, and the figure or date in question."""

    fact: str
    source: str
    value: str

    def stands_in(self, passages: Iterable[str]) -> bool:
        """Whether one of these passages has the sentence."""
        return any(self.fact in passage for passage in passages)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two statements that cannot both be true, and how sure that is."""

    first: Statement
    second: Statement
    score: float


@dataclass(frozen=True, slots=True)
class _Source:
    """What all values of a document have in common. `about` are the names in its title that it also uses in its text."""

    id: str
    written: date | None
    text: str
    title: tuple[str, ...]
    about: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Claim:
    """A value with what is said of it. `around` are the words of its heading and of what stands in one unit with its sentence."""

    document: _Source
    source: str
    fact: str
    value: Value
    values: tuple[Value, ...]
    clause: str
    bound: str
    general: bool
    bare: tuple[str, str]
    """Its sentence and its clause without values."""
    words: frozenset[str]
    around: frozenset[str]
    near: str
    """The unit and what it stands under, in small letters."""
    names: frozenset[str]
    named: frozenset[str]
    """The names of its own clause, and of the sentence that it points back to."""
    numbered: dict[str, frozenset[str]]
    """What its sentence tells apart by a number or a letter: `{"pier": {"2"}}`."""
    before: tuple[str, ...]
    after: tuple[str, ...]
    """The words of its clause before and after the value with its unit, in order."""
    cases: frozenset[Case]
    """When, where, for whom, under what condition its clause holds."""
    known: frozenset[str]
    """All words of its unit and of what it stands under, as stems."""
    event: tuple[str, ...]
    """Of a date or a time of day what happened, by the words beside it; the last one tells most."""


def find_disagreements(documents: Iterable[SourceDocument]) -> list[Disagreement]:
    """All disagreements between sentences of different documents, the surest first. Each sentence is told in at most one."""
    claims = list(islice((claim for document in documents for claim in _claims(document)), _MOST))
    sentences = {(claim.document.id, claim.bare[0]): claim for claim in claims}.values()
    held = Counter(word for claim in sentences for word in claim.words | claim.around)
    size = max(len(sentences), _USUAL)
    rarity = {word: log(1 + (size - count + 0.5) / (count + 0.5)) for word, count in held.items()}
    pairs = [(a, b, _shared(claims[a], claims[b], rarity)) for a, b in _pairs(claims)]
    unmatched = _unmatched()
    pairs = [pair for pair in pairs if pair[2] >= _LEAST_SHARED and _differ(claims[pair[0]], claims[pair[1]], unmatched)]
    if not pairs:
        return []
    likeness, alike = _likeness(claims, rarity)
    rival = cache(lambda one: _rival(one, likeness, claims))
    found = []
    for a, b, shared in pairs:
        score = likeness(a)[b]
        if score >= (alike if shared >= _SHARED else _EVIDENT) and max(rival(a), rival(b)) <= score - _EQUAL:
            first, second = (Statement(one.fact, one.source, one.value.text) for one in (claims[a], claims[b]))
            found.append(Disagreement(first, second, score))
    found.sort(key=lambda one: (-round(one.score, 6), one.first.source, one.second.source, one.first.fact))
    told: set[tuple[str, str]] = set()
    kept = []
    for one in found:
        both = {(one.first.source, one.first.fact), (one.second.source, one.second.fact)}
        if not both & told:
            told |= both
            kept.append(one)
    return kept


def _claims(document: SourceDocument) -> Iterator[_Claim]:
    tainted = tainted_units(document)
    language = guess_language(document.text[:4000])
    # Where every noun has a capital, a title shows no names.
    title = document.title if document.name or any(unit.kind == "heading" for unit in document.units[:1]) else ""
    titled = _TITLE_NAME.findall(title) if language != "de" else ()
    about = frozenset(name.lower() for name in titled if re.search(rf"(?:(?<=[\w,;’'\"] )|(?<=[\"“])){re.escape(name)}\b", document.text))
    text = f"{document.title}\n{document.text}".lower()
    source = _Source(document.id, document.written, text, tuple(_WORD.findall(title.lower())), about)
    for n, unit in enumerate(document.units):
        fact = bare_text(unit)
        if n in tainted or unit.kind not in ("sentence", "item") or fact.endswith(("?", "？", ":")) or _ROW.match(fact):
            continue
        earlier = bare_text(document.units[n - 1]) if n and document.units[n - 1].block == unit.block else ""
        heading = " ".join(unit.heading[-1:])
        near = " ".join((fact, *document.context(unit))).lower()
        whole = frozenset(terms(f"{fact} {heading}", language))
        known = stems(near, language)
        for sentence in (one for one in _SENTENCES.split(fact) if len(one) <= _LONGEST):
            values = tuple(one for one in find_values(sentence) if one.day is None or one.day.end.isoformat() != document.dated)
            if len(values) > _LISTED:
                continue
            bare = _without(sentence, values)
            words = frozenset(terms(bare, language))
            names = frozenset(word.lower() for word in (*_names(bare, sentence, language), *_first_name(sentence)))
            pointed = _names(earlier, earlier, language) if _POINTS_BACK.match(sentence) else []
            for value in values:
                start, end = _clause(sentence, value)
                clause = sentence[start:end]
                part = _without(clause, values, start)
                rest = max(value.end, value.start + len(value.text))
                before = tuple(terms(_without(sentence[start : value.start], values, start), language))
                after = tuple(terms(_without(sentence[rest:end], values, rest), language))
                yield _Claim(
                    source,
                    document.cite(unit),
                    fact,
                    value,
                    values,
                    clause,
                    _bound(sentence[: value.start], value),
                    _GENERAL.search(sentence) is not None,
                    (bare, part),
                    words,
                    whole - words,
                    near,
                    names,
                    frozenset(word.lower() for word in (*_names(part, clause, language), *pointed)),
                    _numbered(sentence, values, value, language),
                    before,
                    after,
                    find_cases(_with_cases(sentence, start, end, values, value, language), language),
                    known,
                    _event(before, after, language) if value.kind in (DATE, CLOCK) else (),
                )


def _without(text: str, values: Sequence[Value], start: int = 0) -> str:
    """A text without its values; it begins at `start`. What is counted stays: of "four containers" the containers."""
    for one in reversed(values):
        if start <= one.start < start + len(text):
            text = f"{text[: one.start - start]}{VALUE}{text[one.end - start :]}"
    return text


def _clause(sentence: str, value: Value) -> tuple[int, int]:
    start = 0
    for border in _CLAUSES.finditer(sentence):
        if border.start() > value.start:
            return start, border.start()
        start = border.end()
    return start, len(sentence)


def _with_cases(sentence: str, start: int, end: int, values: Sequence[Value], own: Value, language: str) -> str:
    """A clause with marks for its values, and the clauses beside it that only say of which case it speaks: "In winter, ..."."""
    blank = [one for one in values if one is own or not _tells_case(one, own, sentence)]
    borders = [0, *(place for one in _CLAUSES.finditer(sentence) for place in one.span()), len(sentence)]
    clauses = zip(borders[::2], borders[1::2], strict=True)
    beside = [sentence[first:last] for first, last in clauses if first != start and leads_to_case(sentence[first:last], language)]
    before, after = _without(sentence[start : own.start], blank, start), _without(sentence[own.end : end], blank, own.end)
    return f" {BORDER} ".join((f"{before}{OWN}{after}", *beside))


def _tells_case(value: Value, own: Value, sentence: str) -> bool:
    """Whether a value says when another one holds: a month of any year, an hour ("at six")."""
    if value.kind == DATE:
        return re.search(r"\d", value.text) is None
    return value.kind in ("", CLOCK) and own.kind != CLOCK and _AT_HOUR.search(sentence[: value.start]) is not None


def _bound(before: str, value: Value) -> str:
    """Whether what stands before a value makes it the most or the least that there can be."""
    most, least = (_UNTIL, _AFTER) if value.kind in (DATE, CLOCK) else (_AT_MOST, _AT_LEAST)
    return "most" if most.search(before) else "least" if least.search(before) else ""


def _numbered(sentence: str, values: Sequence[Value], own: Value, language: str) -> dict[str, frozenset[str]]:
    """Things with a number or a letter of their own. The value itself, a measure and a date are no such number."""
    amounts = [one for one in values if one is own or one.kind in (DATE, CLOCK) or one.kind.partition("/")[0] in MEASURES]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for match in _NUMBERED.finditer(sentence):
        word, number = match.groups()
        if not is_stop_word(word, language) and not any(one.start <= match.start(2) < one.end for one in amounts):
            found[stem(word, language)].add(str(_NUMBERS.get(number.lower(), number)))
    return {word: frozenset(numbers) for word, numbers in found.items()}


def _event(before: Sequence[str], after: Sequence[str], language: str) -> tuple[str, ...]:
    """The words beside a value: those before it, or those after it where it begins the clause, or where a verb may stand at the end."""
    words = after[-_BESIDE:] if language == "de" and after else before[-_BESIDE:] or after[:_BESIDE]
    return tuple(_events(language).get(word, word) for word in words)


@cache
def _events(language: str) -> dict[str, str]:
    """Words for one event, as terms of a language, each with the first of them."""
    lines = (terms(line, language) for line in read_lists("holdfast.offline", "events")["same"].strip().splitlines())
    return {word: words[0] for words in lines if words for word in words}


def _names(bare: str, text: str, language: str) -> list[str]:
    return [*_CODE.findall(bare), *(_NAME.findall(text) if language != "de" else ())]


def _first_name(fact: str) -> list[str]:
    """The word with which a sentence begins, if it may be a name."""
    first = re.match(r"[^\W\d_]\w+", fact)
    return [first.group()] if first is not None and first.group()[0].isupper() and not is_stop_word(first.group()) else []


def _pairs(claims: Sequence[_Claim]) -> Iterator[tuple[int, int]]:
    """Values of one kind in different documents."""
    kinds: defaultdict[str, list[int]] = defaultdict(list)
    for n, claim in enumerate(claims):
        if claim.value.kind:
            kinds[claim.value.kind].append(n)
    for numbers in kinds.values():
        yield from ((a, b) for a, b in combinations(numbers[:_MOST_OF_A_KIND], 2) if claims[a].document.id != claims[b].document.id)


def _shared(first: _Claim, second: _Claim, rarity: dict[str, float]) -> float:
    words = (first.words & second.words) | (first.words & second.around) | (second.words & first.around)
    return sum(rarity[word] for word in words)


Unmatched = Callable[[_Claim, _Claim], frozenset[Value]]


def _unmatched() -> Unmatched:
    """The values of one sentence that another does not have, worked out once for two sentences and not for each of their values."""
    known: dict[tuple[int, int], frozenset[Value]] = {}

    def unmatched(claim: _Claim, other: _Claim) -> frozenset[Value]:
        key = (id(claim.values), id(other.values))
        if key not in known:
            known[key] = frozenset(one for one in claim.values if not any(one.same(theirs) for theirs in other.values))
        return known[key]

    return unmatched


def _differ(first: _Claim, second: _Claim, unmatched: Unmatched) -> bool:
    """Whether two values can contradict each other, whatever else their sentences say."""
    if first.bound != second.bound or first.general or second.general or not first.value.comparable(second.value):
        return False
    mine, theirs = unmatched(first, second), unmatched(second, first)
    if first.value not in mine or second.value not in theirs:
        return False
    if len(({one.kind for one in mine} & {one.kind for one in theirs}) - {""}) > 1:
        return False
    if any(pattern.search(claim.clause) for pattern in (_CHANGE, _PLAN) for claim in (first, second)):
        return False
    if _outdated(first.document.written, second.document.written):
        return False
    if another_case(first.cases, second.cases, second.known) or another_case(second.cases, first.cases, first.known):
        return False
    if _one_word_apart(first, second) or _numbered_apart(first.numbered, second.numbered):
        return False
    if first.value.kind in (DATE, CLOCK) and not (set(first.event[-1:]) & set(second.event) or set(second.event[-1:]) & set(first.event)):
        return False
    agreed = len(mine) < len(first.values)
    return not (_about_others(first, second) or (not agreed and _siblings(first.document.title, second.document.title)))


def _outdated(first: date | None, second: date | None) -> bool:
    return first is not None and second is not None and abs((first - second).days) >= _OUTDATED


def _about_others(first: _Claim, second: _Claim) -> bool:
    """Whether each names something that the other, with what it stands under, does not; or one does, and the other's document never does;
    or they share no name, and each document is about a thing that the other never names."""
    both = ((first, second), (second, first))
    if any(name not in other.document.text for claim, other in both for name in claim.named):
        return True
    if all(any(name not in other.near for name in claim.names) for claim, other in both):
        return True
    apart = all(any(name not in other.document.text for name in claim.document.about) for claim, other in both)
    return apart and not first.names & second.names


def _one_word_apart(first: _Claim, second: _Claim) -> bool:
    """Whether two clauses are the same but for one word: it tells two things apart, "the north pier" and "the south pier". A word that
    stands right before the value belongs to the value: "already", "only"."""
    if len(first.before) != len(second.before) or len(first.after) != len(second.after):
        return False
    mine, theirs = ((*claim.before[:-1], *claim.after) for claim in (first, second))
    other = [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]]
    return len(other) == 1 and other[0][0] not in second.words and other[0][1] not in first.words


def _numbered_apart(first: dict[str, frozenset[str]], second: dict[str, frozenset[str]]) -> bool:
    """Whether a thing has one number here and another there: "pier two" and "pier four"."""
    return any(not first[word] & second[word] for word in first.keys() & second.keys())


def _siblings(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Whether two titles are of one form and tell two cases apart: "Post-mortem of 3 March", "Post-mortem of 9 October"."""
    mine, theirs = set(first), set(second)
    alike = first[:1] == second[:1] and 2 * len(mine & theirs) >= max(len(mine), len(theirs))
    return alike and bool(mine - theirs) and bool(theirs - mine)


Likeness = Callable[[int], Sequence[float]]


def _likeness(claims: Sequence[_Claim], rarity: dict[str, float]) -> tuple[Likeness, float]:
    """How alike each of all values is to one of them, by what is said of it; and from which likeness on two are about the same."""
    compact = shared_vectors()
    if compact is None:
        weights = [sum(rarity[word] ** 2 for word in claim.words) or 1.0 for claim in claims]

        @cache
        def by_words(a: int) -> Sequence[float]:
            mine = claims[a].words
            shared = (sum(rarity[word] ** 2 for word in mine & other.words) for other in claims)
            return [both / sqrt(weights[a] * weight) for both, weight in zip(shared, weights, strict=True)]

        return by_words, _ALIKE_WORDS
    import numpy as np

    from holdfast.search.segments import product

    texts = list(dict.fromkeys(text for claim in claims for text in claim.bare))
    vectors = dict(zip(texts, (one.vector for one in compact.embedder.embed(texts)), strict=True))
    sentences, clauses = (np.array([vectors[claim.bare[part]] for claim in claims]) for part in (0, 1))
    whole = np.array([len(claim.bare[1].split()) >= _SHORT for claim in claims])

    @cache
    def by_meaning(a: int) -> Sequence[float]:
        near = product(sentences, sentences[a])
        if whole[a]:
            parts = np.max([product(clauses, clauses[a]), product(clauses, sentences[a]), product(sentences, clauses[a])], axis=0)
            near = np.where(whole, np.maximum(near, parts), near)
        row: list[float] = near.tolist()
        return row

    return by_meaning, _ALIKE


def _rival(one: int, likeness: Likeness, claims: Sequence[_Claim]) -> float:
    """How near the second nearest sentence of other documents is to a value: what is no nearer than that is one of a series. What is
    outdated or bounded in another way is no rival."""
    row, mine = likeness(one), claims[one]
    near: dict[tuple[str, str], float] = {}
    for n, other in enumerate(claims):
        apart = other.document.id != mine.document.id and other.bound == mine.bound
        if apart and not _outdated(mine.document.written, other.document.written):
            key = (other.document.id, other.bare[0])
            near[key] = max(row[n], near.get(key, row[n]))
    return nlargest(2, near.values())[1] if len(near) > 1 else -inf
