"""Where sources disagree, told only where it is sure: the same thing, the same attribute, the same unit, and another value.

Two clauses of different documents are compared by the words that they share with each other, and with the rest of each other's sentence
and its heading, weighed by how rare these are; equal figures and dates in both are shared words too. Where there is an embedder, the two
sentences without their figures must also mean nearly the same, and each must be the nearest to the other of all sentences with such a
figure: then fewer shared words are enough. What is a plan, a bound on one side, a change, another case (a further figure or date that
differs), a series (the same sentence in many documents) or about something else (each names what the other does not, or stands in a
document about a thing that the other document never names) is no disagreement. A false one costs a reader more than one that was missed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import log
from typing import Any

from holdfast.extract.sentence_index import shared_vectors
from holdfast.offline.documents import SourceDocument, bare_text, tainted_units
from holdfast.offline.quantities import MEASURES, Quantity, differ, find_quantities, full_dates
from holdfast.text.dates import Span
from holdfast.text.language import guess_language
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import is_stop_word, terms

_SURE, _SURE_OF_DATES = 6.0, 9.0  # shared rarity times its share of the shorter sentence
_LIKELY, _LIKELY_OF_DATES = 5.0, 8.0  # that times the nearness in meaning, which is 1 for what is just alike
_LEAST_SHARED = 2.5  # of the rarity, whatever the meaning
_ALIKE = 0.55  # cosine of two sentences without their figures
_EQUAL = 0.001
_SERIES = 3  # documents that say the same with other values
_USUAL = 60  # claims: in a few sentences every word would look common
_LEAST = 2  # things that two sentences must have in common
_CONTEXT = 0.5  # what it counts that only the headings share a word
_OUTDATED = 540  # days between two documents, from which on the older one is history
_BUCKET = 300  # sentences with one sort of figure that are compared with each other
_CLAUSES = re.compile(r"(?<=\S)[,;]\s+|\s+[–—]\s+|\s+\(|\)\s*(?=\w)|\s+(?:but|although|whereas|aber|mais|pero|ma)\s+")
_TIMES = 5
_DATE = "a date"
_ROW = re.compile(r"[^:;]{1,60}: [^;]*; ")
_CODE = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d])[\w.-]+|\b[A-Z]{2,}[A-Z0-9-]*\b|\b[A-Z][\w-]*-\d+\b")
_NAME = re.compile(r"(?:(?<=[a-z,;’'\"] )|(?<=\bA ))[A-Z][a-z]\w+")
_TITLE_NAME = re.compile(r"\b[A-Z][\w'’-]{2,}")
_WORD = re.compile(r"\w+")
_POINTS_BACK = re.compile(r"(?:its?|seine?|ihre?)\b", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_CHANGE, _PLAN, _GENERAL, _BOUND = (
    re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'hedges')[name])})\b", re.IGNORECASE)
    for name in ("change", "plan", "general", "bound")
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says: the whole sentence, where it stands, and the figure or date in question."""

    fact: str
    source: str
    value: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two statements that cannot both be true, and how sure that is."""

    first: Statement
    second: Statement
    score: float
    dates: bool = False
    """Whether the values are dates."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A clause with a figure or a date. `around` are the words of the rest of its sentence and of its heading."""

    document: str
    source: str
    written: date | None
    fact: str
    clause: str
    words: frozenset[str]
    around: frozenset[str]
    quantities: tuple[Quantity, ...]
    stated: tuple[Quantity, ...]
    """Those of the whole sentence."""
    dates: tuple[Span, ...]
    names: frozenset[str]
    first: frozenset[str]
    """The word with which the sentence begins, if it may be a name too."""
    text: str
    """The whole document, in small letters."""
    about: frozenset[str]
    """The names in its title that it also uses in its text: the thing that the document is about."""
    title: tuple[str, ...]

    @property
    def sorts(self) -> frozenset[str]:
        """What its figures measure or count."""
        return frozenset(one.sort for one in self.quantities if one.sort) | (frozenset((_DATE,)) if self.dates else frozenset())


def find_disagreements(documents: Iterable[SourceDocument]) -> list[Disagreement]:
    """All disagreements between sentences of different documents, the surest first. Each sentence is told in at most one."""
    claims = [claim for document in documents for claim in _claims(document)]
    held = Counter(word for claim in claims for word in claim.words | claim.around)
    size = max(len(claims), _USUAL)
    rarity = {word: log(1 + (size - count + 0.5) / (count + 0.5)) for word, count in held.items()}
    nearness = _Nearness(claims)
    found = []
    for first, second in _candidates(claims):
        one = _compared(first, second, rarity)
        if one is not None and nearness.sure(one, first, second):
            found.append(one)
    found.sort(key=lambda one: (-round(one.score, 6), one.first.source, one.second.source, one.first.fact))
    told: set[tuple[str, str]] = set()
    kept = []
    for one in found:
        both = {(one.first.source, one.first.fact), (one.second.source, one.second.fact)}
        if not both & told:
            told |= both
            kept.append(one)
    return kept


class _Nearness:
    """How near sentences are to each other in meaning, their figures left out. Without an embedder shared words decide alone."""

    def __init__(self, claims: Sequence[_Claim]) -> None:
        compact = shared_vectors() if claims else None
        self._embedder = compact.embedder if compact is not None else None
        self._rivals: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
        for claim in claims:
            for sort in claim.sorts:
                self._rivals[sort][claim.document, claim.fact] = None
        self._vectors: dict[str, Any] = {}

    def sure(self, found: Disagreement, first: _Claim, second: _Claim) -> bool:
        """Whether two that share many words mean nearly the same and are no series; of two that share few, neither may have a third
        sentence that is nearer to it."""
        many, few = (_SURE_OF_DATES, _LIKELY_OF_DATES) if found.dates else (_SURE, _LIKELY)
        if self._embedder is None:
            return found.score >= many
        self._embed([first.fact, second.fact])
        near = self._cosine(first.fact, second.fact)
        if near < _ALIKE or found.score * (near / _ALIKE) ** 2 < few:
            return False
        sorts = sorted(first.sorts & second.sorts)
        rivals = list(dict.fromkeys(place for sort in sorts for place in list(self._rivals[sort])[:_BUCKET]))
        self._embed(fact for _, fact in rivals)
        for claim in (first, second):
            others = [self._cosine(claim.fact, fact) for document, fact in rivals if document != claim.document]
            if sum(one > 1 - _EQUAL for one in others) >= _SERIES - 1:
                return False
            if found.score < many and any(one > near + _EQUAL for one in others):
                return False
        return True

    def _embed(self, facts: Iterable[str]) -> None:
        new = [fact for fact in dict.fromkeys(facts) if fact not in self._vectors]
        if new and self._embedder is not None:
            made = self._embedder.embed([_bare(fact) for fact in new])
            self._vectors.update((fact, one.vector) for fact, one in zip(new, made, strict=True))

    def _cosine(self, first: str, second: str) -> float:
        return float(self._vectors[first] @ self._vectors[second])


def _claims(document: SourceDocument) -> Iterator[_Claim]:
    tainted = tainted_units(document)
    language = guess_language(document.text[:4000])
    text = f"{document.title}\n{document.text}".lower()
    # Where every noun has a capital, a title shows no names.
    title = document.title if document.name or any(unit.kind == "heading" for unit in document.units[:1]) else ""
    titled = _TITLE_NAME.findall(title) if language != "de" else ()
    about = frozenset(name.lower() for name in titled if re.search(rf"(?:(?<=[\w,;’'\"] )|(?<=[\"“])){re.escape(name)}\b", document.text))
    for n, unit in enumerate(document.units):
        fact = bare_text(unit)
        before = bare_text(document.units[n - 1]) if n and document.units[n - 1].block == unit.block else None
        if n in tainted or unit.kind not in ("sentence", "item") or fact.endswith(("?", "？", ":")) or _ROW.match(fact):
            continue
        heading = " ".join(unit.heading[-1:])
        whole = frozenset(terms(_bare(fact), language))
        stated = tuple(find_quantities(fact))
        for clause in _CLAUSES.split(fact):
            quantities = tuple(find_quantities(clause))
            dates = tuple(
                span for span in full_dates(clause) if span.end.isoformat() != document.dated
            )  # the date of a letter claims nothing
            words = frozenset((*terms(_bare(clause), language), *_YEAR.findall(clause)))
            if words and (quantities or dates):
                named = fact if before is None or not _POINTS_BACK.match(fact) else f"{before} {fact}"
                names = (*_CODE.findall(_bare(named)), *(_NAME.findall(named) if language != "de" else ()))
                yield _Claim(
                    document.id,
                    document.cite(unit),
                    document.written,
                    fact,
                    clause,
                    words,
                    (whole | frozenset(terms(heading, language))) - words,
                    quantities,
                    stated,
                    dates,
                    frozenset(word.lower() for word in names),
                    frozenset(_first_name(fact)),
                    text,
                    about,
                    tuple(_WORD.findall(title.lower())),
                )


def _first_name(fact: str) -> list[str]:
    """The word with which a sentence begins, if it may be a name."""
    first = re.match(r"[^\W\d_]\w+", fact)
    return [first.group().lower()] if first is not None and first.group()[0].isupper() and not is_stop_word(first.group()) else []


def _bare(text: str) -> str:
    """A text without its figures and dates. What is counted stays: of "four containers" the containers."""
    for one in reversed(find_quantities(text)):
        counted = " " + one.text.split()[-1] if one.sort not in MEASURES and " " in one.text else ""
        text = text[: one.start] + counted.ljust(one.end - one.start) + text[one.end :]
    for span in full_dates(text):
        text = text.replace(span.text, " ")
    return text


def _candidates(claims: Sequence[_Claim]) -> Iterator[tuple[_Claim, _Claim]]:
    """Pairs of different documents that have a sort of figure in common, or both a date."""
    buckets: defaultdict[str, list[int]] = defaultdict(list)
    for n, claim in enumerate(claims):
        for sort in claim.sorts:
            buckets[sort].append(n)
    seen = {(a, b) for numbers in buckets.values() for i, a in enumerate(numbers[:_BUCKET]) for b in numbers[i + 1 : _BUCKET]}
    for a, b in sorted(seen):
        if claims[a].document != claims[b].document:
            yield claims[a], claims[b]


def _compared(first: _Claim, second: _Claim, rarity: dict[str, float]) -> Disagreement | None:
    if _outdated(first.written, second.written) or _hedged(first.clause, second.clause) or _about_others(first, second):
        return None
    mine = [one for one in first.quantities if not any(_equal(one, other) for other in second.stated)]
    theirs = [one for one in second.quantities if not any(_equal(one, other) for other in first.stated)]
    equal = sum(any(_equal(one, other) for other in second.stated) for one in first.stated)
    same_dates = [span for span in first.dates if any(_meets(span, other) for other in second.dates)]
    other_dates = bool(first.dates and second.dates and not same_dates)
    differing = [(a, b) for a in mine for b in theirs if a.sort == b.sort and _same_size(a, b)]
    if any(a.sort not in MEASURES for a, _ in differing) and _BOUND.search(
        first.clause
    ):  # a bound of what is counted is a bound of anything
        return None
    own = first.words & second.words
    if not (equal or same_dates or any(map(_YEAR.fullmatch, own))) and _siblings(first.title, second.title):
        return None
    lent = (first.words & second.around) | (second.words & first.around)
    above = (first.around & second.around) - own - lent
    common = len(own | lent) + equal + len(same_dates)
    if common < _LEAST or not own | lent:
        return None
    rare = max(rarity.values(), default=0.0) * 0.75
    shared = sum(rarity[word] for word in own | lent) + _CONTEXT * sum(rarity[word] for word in above) + rare * (equal + len(same_dates))
    shorter = min(sum(rarity[word] for word in claim.words) for claim in (first, second))
    score = shared * min(1.0, shared / max(shorter, 1e-6))
    if differing and len({a.sort for a, _ in differing}) == 1 and not other_dates and score >= _LEAST_SHARED:
        return _told(first, second, differing[0][0].text, differing[0][1].text, score)
    if other_dates and not differing and len(first.dates) == len(second.dates) == 1 and score >= _LEAST_SHARED:
        return _told(first, second, first.dates[0].text, second.dates[0].text, score, dates=True)
    return None


def _told(first: _Claim, second: _Claim, mine: str, theirs: str, score: float, *, dates: bool = False) -> Disagreement:
    return Disagreement(Statement(first.fact, first.source, mine), Statement(second.fact, second.source, theirs), score, dates)


def _outdated(first: date | None, second: date | None) -> bool:
    return first is not None and second is not None and abs((first - second).days) >= _OUTDATED


def _hedged(first: str, second: str) -> bool:
    """Whether one of them tells a change, a plan or what holds in general, or only one of them a bound."""
    if any(pattern.search(text) for pattern in (_CHANGE, _PLAN, _GENERAL) for text in (first, second)):
        return True
    return (_BOUND.search(first) is None) != (_BOUND.search(second) is None)


def _about_others(first: _Claim, second: _Claim) -> bool:
    """Whether each names something that the other, with its heading, does not; or only one does, and the other's document never does;
    or they share no name, and each document is about a thing that the other never names."""
    both = []
    for claim, other in ((first, second), (second, first)):
        said = " ".join((other.fact, *other.around)).lower()
        both.append(any(name not in said for name in claim.names | claim.first))
        if any(name not in other.text for name in claim.names):
            return True
    if not (first.names | first.first) & (second.names | second.first):
        both.append(all(any(name not in other.text for name in claim.about) for claim, other in ((first, second), (second, first))))
        return all(both[:2]) or both[2]
    return all(both)


def _siblings(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Whether two titles are of one form and tell two cases apart: "Post-mortem of 3 March", "Post-mortem of 9 October"."""
    mine, theirs = set(first), set(second)
    alike = first[:1] == second[:1] and 2 * len(mine & theirs) >= max(len(mine), len(theirs))
    return alike and bool(mine - theirs) and bool(theirs - mine)


def _equal(first: Quantity, second: Quantity) -> bool:
    if first.sort != second.sort:
        return False
    year = _YEAR.search(first.text) is not None and _YEAR.search(second.text) is not None
    return first.value == second.value if year else not differ(first.value, second.value, close=0.02)


def _same_size(first: Quantity, second: Quantity) -> bool:
    """Whether two figures can be about one thing: what is ten times as much measures something else."""
    small, large = sorted((abs(first.value), abs(second.value)))
    return large <= _TIMES * small


def _meets(first: Span, second: Span) -> bool:
    """Whether two dates can be the same: one without a year fits every year."""
    if _YEAR.search(first.text) and _YEAR.search(second.text):
        return first.start <= second.end and second.start <= first.end
    return (first.start.month, first.start.day) == (second.start.month, second.start.day)
