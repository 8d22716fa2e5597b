"""Where sources disagree, told only where it is sure: the same thing, the same attribute, the same unit, and another value.

Sentences of different documents are compared without their values (figures, dates, times) by the parts of the one ranking: how well the
words of each are met in the other and in what that stands under, each by how rare it is, and how near the two are in meaning. A value that
both state alike speaks for it. No disagreement is what is a plan, a change, what holds in general or a bound on one side; what states a
second value of another sort, or another time, that differs; a series (the same sentence in many documents); and what names a thing that
the other does not. A false one costs a reader more than one that was missed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

from holdfast.extract.sentence_index import shared_vectors
from holdfast.offline.documents import SourceDocument, bare_text, tainted_units
from holdfast.offline.quantities import TIMES, Value, find_values
from holdfast.text.language import guess_language
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import is_stop_word, terms, tokenise

_SURE = 0.97
"""Set by hand on the development corpora of the benchmark, where nothing false is above it."""
_MET, _FURTHER, _NEAR, _AROUND, _EQUAL_VALUE = 1.0, 0.5, 0.5, 0.5, 0.2
_OLD, _OTHER_NAME = 0.25, 0.1  # what two documents of different years lose, and a name beside the clause that the other never uses
_SAME = 0.9  # nearness from which on a sentence is the same one again
_SERIES = 3  # documents that say the same with other values
_USUAL = 60  # claims: in a few sentences every word would look common
_OUTDATED = 540  # days between two documents, from which on the older one may be history
_BUCKET = 300  # sentences with one sort of value that are compared with each other
_TIMES_AS_MUCH = 5  # what is more measures something else
_CLAUSES = re.compile(r"(?<=\S)[,;]\s+|\s+[–—]\s+|\s+(?:but|although|whereas|aber|mais|pero|ma)\s+")
_ROW = re.compile(r"[^:;]{1,60}: [^;]*; ")
_LEAD = re.compile(r"(?:\[[^\]]{1,12}\]\s*|\(?\d{1,2}[.)]\s+|[\w.]{2,20}:\s+(?=[a-z]))+")
_CODE = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d])[\w.-]+|\b[A-Z]{2,}[A-Z0-9-]*\b|\b[A-Z][\w-]*-\d+\b|\b[A-Z][a-z]+ \d{1,3}\b")
_NAME = re.compile(r"(?:(?<=[a-zà-ÿ,;’'\"] )|(?<=\bA ))[A-Z][a-z]\w+")
_TITLE_NAME = re.compile(r"\b[A-Z][\w'’-]{2,}")
_POINTS_BACK = re.compile(r"(?:its|seine?|ihre?)\b", re.IGNORECASE)
_CHANGE, _PLAN, _GENERAL, _BOUND = (
    re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'hedges')[name])})\b", re.IGNORECASE)
    for name in ("change", "plan", "general", "bound")
)
_FROM = re.compile(
    r"\b(?:from|as of|starting|ab|à partir|dès)(?: (?:the|on|dem|de|du|le))?\s+$", re.IGNORECASE
)  # a value that holds since then
_BEFORE = 30  # characters before a value in which a bound of it stands


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says: the whole sentence, where it stands, and the value in question."""

    fact: str
    source: str
    value: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two statements that cannot both be true, and how sure that is."""

    first: Statement
    second: Statement
    score: float


@dataclass(frozen=True)
class _Claim:
    """A sentence with values. `before` is the sentence that it may lean on."""

    document: SourceDocument
    language: str
    fact: str
    source: str
    body: str
    context: tuple[str, ...]
    before: str
    values: tuple[Value, ...]

    @cached_property
    def masked(self) -> str:
        """Its words without the values. What is counted stays: of "four containers" the containers."""
        text = self.body
        for one in reversed(self.values):
            kept = " ".join(one.text.split()[1:]) if not one.sort else ""
            text = f"{text[: one.start]} {kept} {text[one.end :]}"
        return " ".join(text.split())

    @cached_property
    def around(self) -> str:
        return " > ".join((*self.context, self.before)) + f": {self.masked}"

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(terms(self.masked, self.language))

    @cached_property
    def all_words(self) -> frozenset[str]:
        return self.words | frozenset(terms(" ".join((*self.context, self.before)), self.language))

    def clause(self, value: Value) -> str:
        """The part of the sentence in which a value stands."""
        start = 0
        for cut in _CLAUSES.finditer(self.body):
            if cut.start() >= value.end:
                return self.body[start : cut.start()]
            start = cut.end() if cut.end() <= value.start else start
        return self.body[start:]

    @cached_property
    def said(self) -> str:
        return f"{self.body} {self.around}".lower()

    @cached_property
    def named(self) -> str:
        """Where its names are looked for: itself, and what it points back to."""
        return f"{self.before} {self.body}" if _POINTS_BACK.match(self.body) else self.body

    @cached_property
    def names(self) -> frozenset[str]:
        first = re.match(r"[^\W\d_]\w+", self.body)
        opening = {first.group().lower()} if first and first.group()[0].isupper() and not is_stop_word(first.group()) else set()
        return self.names_in(self.named) | opening

    def names_in(self, text: str) -> frozenset[str]:
        """The names in a stretch of it. Where every noun has a capital, only those with a figure show."""
        found = (*_CODE.findall(text), *(_NAME.findall(text) if self.language != "de" else ()))
        stated = " ".join(one.text for one in self.values)  # a month is no name
        return frozenset(name.lower() for name in found if name.split()[-1] not in stated)


def find_disagreements(documents: Iterable[SourceDocument]) -> list[Disagreement]:
    """All disagreements between sentences of different documents, the surest first. Each sentence is told in at most one."""
    claims = [claim for document in documents for claim in _claims(document)]
    held = Counter(word for claim in claims for word in claim.all_words)
    size = max(len(claims), _USUAL)
    rarity = {word: log(1 + (size - count + 0.5) / (count + 0.5)) for word, count in held.items()}
    abouts = {claim.document.id: _about(claim.document, claim.language) for claim in claims}
    pairs = []
    for first, second in _candidates(claims):
        values = _differing(first, second)
        if values is not None and not _excused(first, second, *values) and not _of_others(first, second, *values, abouts):
            pairs.append((first, second, *values))
    likeness = _Likeness([claim for pair in pairs for claim in pair[:2]], rarity)
    found = []
    for first, second, mine, theirs in pairs:
        score = likeness.of(first, second)
        if score >= _SURE:
            found.append(Disagreement(_statement(first, mine), _statement(second, theirs), score))
    found.sort(key=lambda one: (-round(one.score, 6), one.first.source, one.second.source, one.first.fact))
    told: set[tuple[str, str]] = set()
    kept = []
    for one in found:
        both = {(one.first.source, one.first.fact), (one.second.source, one.second.fact)}
        if not both & told:
            told |= both
            kept.append(one)
    return kept


def _statement(claim: _Claim, value: Value) -> Statement:
    return Statement(claim.fact, claim.source, value.text.rstrip("."))


def _claims(document: SourceDocument) -> Iterator[_Claim]:
    tainted = tainted_units(document)
    language = guess_language(document.text[:4000])
    for n, unit in enumerate(document.units):
        fact = bare_text(unit)
        if n in tainted or unit.kind not in ("sentence", "item") or fact.endswith(("?", "？", ":")) or _ROW.match(fact):
            continue
        lead = _LEAD.match(fact)
        body = fact[lead.end() :] if lead else fact
        # The date of a letter claims nothing.
        values = tuple(one for one in find_values(body) if one.day is None or one.day.end.isoformat() != document.dated)
        before = document.units[n - 1] if n and document.units[n - 1].block == unit.block else None
        leaned = bare_text(before) if before is not None and before.kind != "heading" else ""
        if values and any(character.isalpha() for character in body):
            yield _Claim(document, language, fact, document.cite(unit), body, document.context(unit), leaned, values)


def _candidates(claims: Sequence[_Claim]) -> Iterator[tuple[_Claim, _Claim]]:
    """Pairs of different documents that have a sort of value and a word in common, without series."""
    documents = Counter(masked for _, masked in {(claim.document.id, claim.masked) for claim in claims})
    buckets: defaultdict[str, list[int]] = defaultdict(list)
    for n, claim in enumerate(claims):
        for sort in {one.sort for one in claim.values}:
            if documents[claim.masked] < _SERIES:
                buckets[sort].append(n)
    for a, b in sorted({(a, b) for numbers in buckets.values() for i, a in enumerate(numbers[:_BUCKET]) for b in numbers[i + 1 : _BUCKET]}):
        first, second = claims[a], claims[b]
        if first.document.id != second.document.id and (first.words & second.all_words or second.words & first.all_words):
            yield first, second


def _differing(first: _Claim, second: _Claim) -> tuple[Value, Value] | None:
    """The two values that differ, those in the most alike clauses; None if none do, or values of several sorts."""
    found = []
    for mine in first.values:
        for theirs in second.values:
            counted = not mine.sort and not theirs.sort and bool(mine.counted & second.words or theirs.counted & first.words)
            if not mine.same_sort(theirs) and not (counted and not (mine.counted and theirs.counted)):
                continue
            if any(mine.same_sort(one) and mine.agrees(one) for one in second.values):
                continue
            if any(theirs.same_sort(one) and theirs.agrees(one) for one in first.values):
                continue
            small, large = sorted((abs(mine.amount), abs(theirs.amount)))
            if not mine.agrees(theirs) and (mine.sort in TIMES or large <= _TIMES_AS_MUCH * small):
                found.append((mine, theirs))
    if not found or len({(mine.sort, mine.counted if not theirs.counted else mine.counted & theirs.counted) for mine, theirs in found}) > 1:
        return None

    def alike(pair: tuple[Value, Value]) -> float:
        mine, theirs = (set(terms(claim.clause(one), claim.language)) for claim, one in zip((first, second), pair, strict=True))
        return len(mine & theirs) / max(min(len(mine), len(theirs)), 1)

    return max(found, key=alike)


def _excused(first: _Claim, second: _Claim, mine: Value, theirs: Value) -> bool:
    """Whether they can both be true: a change, a plan, a bound on one side, another time, or what only holds in general."""
    clauses = first.clause(mine), second.clause(theirs)
    if any(pattern.search(clause) for pattern in (_CHANGE, _PLAN, _GENERAL) for clause in clauses):
        return True
    bounds = [_BOUND.search(claim.body[max(0, one.start - _BEFORE) : one.start]) for claim, one in ((first, mine), (second, theirs))]
    if mine.sort not in TIMES and (bounds[0] is None) != (bounds[1] is None):
        return True
    for sort in TIMES - {mine.sort}:
        ours, others = ([one for one in claim.values if one.sort == sort] for claim in (first, second))
        since = [claim for claim in (first, second) for one in claim.values if one.sort == sort and _FROM.search(claim.body[: one.start])]
        if (since or (ours and others)) and not any(one.agrees(other) for one in ours for other in others):
            return True
    return _ahead(first, mine) != _ahead(second, theirs) or _siblings(first, second)


def _ahead(claim: _Claim, value: Value) -> bool:
    """Whether a date comes after the document that states it: then it is a plan."""
    written = claim.document.written
    if value.day is None or written is None or value.sort != "date":
        return False
    day = value.day.start
    stated = re.search(r"\b\d{4}\b", value.text) is not None
    return (day.isoformat() if stated else f"{written.year}{day.isoformat()[4:]}") > written.isoformat()


def _siblings(first: _Claim, second: _Claim) -> bool:
    """Whether their titles are of one form and tell two cases apart: "Post-mortem of 3 March", "Post-mortem of 9 October"."""
    mine, theirs = ([word.text.lower() for word in tokenise(_title(claim.document))] for claim in (first, second))
    if any(one.same_sort(other) and one.agrees(other) for one in first.values for other in second.values):
        return False
    ours, others = set(mine), set(theirs)
    alike = (mine[:1] == theirs[:1] or mine[-1:] == theirs[-1:]) and 2 * len(ours & others) >= max(len(ours), len(others))
    return alike and bool(ours - others) and bool(others - ours)


def _title(document: SourceDocument) -> str:
    """What a document calls itself; not just its first line."""
    return document.title if document.name or any(unit.kind == "heading" for unit in document.units[:1]) else ""


def _about(document: SourceDocument, language: str) -> frozenset[str]:
    """The names in its title that it also uses in its text: the thing that a document is about."""
    title = _title(document)
    for one in reversed(find_values(title)):  # a month is no name
        title = title[: one.start] + title[one.end :]
    names = _TITLE_NAME.findall(title) if language != "de" else ()
    return frozenset(name.lower() for name in names if re.search(rf"(?:(?<=[\w,;’'\"] )|(?<=[\"“])){re.escape(name)}\b", document.text))


def _of_others(first: _Claim, second: _Claim, mine: Value, theirs: Value, abouts: Mapping[str, frozenset[str]]) -> bool:
    """Whether each names something that the other, with what it stands under, does not; or only one does, beside its value, and the
    other's document never does; or they share no name, and each document is about a thing that the other never names."""
    own = [{name for name in claim.names if name not in other.said} for claim, other in ((first, second), (second, first))]
    if all(own):
        return True
    for claim, other, value in ((first, second, mine), (second, first, theirs)):
        beside = claim.clause(value) if claim.named == claim.body else claim.named
        if any(not _mentions(other, name) for name in claim.names_in(beside)):
            return True
    if first.names & second.names:
        return False
    return all(
        any(not _mentions(other, name) for name in abouts[claim.document.id]) for claim, other in ((first, second), (second, first))
    )  # fmt: skip


def _mentions(claim: _Claim, name: str) -> bool:
    return name in claim.document.text.lower() or name in claim.document.title.lower()


class _Likeness:
    """How alike two sentences are without their values. Without an embedder shared words decide alone."""

    def __init__(self, claims: Sequence[_Claim], rarity: Mapping[str, float]) -> None:
        compact = shared_vectors() if claims else None
        self._rarity = rarity
        texts = list(dict.fromkeys(text for claim in claims for text in (claim.masked, claim.around)))
        self._made = dict(zip(texts, compact.embedder.embed(texts), strict=True)) if compact is not None else {}

    def of(self, first: _Claim, second: _Claim) -> float:
        """The score of a pair: above `_SURE` they speak of the same."""
        if self._made:
            met = sorted((self._met(first, second), self._met(second, first)))
            near, around = (
                float(self._made[one].vector @ self._made[other].vector)
                for one, other in ((first.masked, second.masked), (first.around, second.around))
            )
        else:
            met = sorted((self._shared(first.words, second.all_words), self._shared(second.words, first.all_words)))
            near = min(self._shared(first.words, second.words), self._shared(second.words, first.words))
            around = self._shared(first.all_words, second.all_words)
        equal = any(one.same_sort(other) and one.agrees(other) for one in first.values for other in second.values)
        score = _MET * met[0] + _FURTHER * met[1] + _NEAR * near + _AROUND * around + _EQUAL_VALUE * equal
        written = first.document.written, second.document.written
        if written[0] and written[1] and abs((written[0] - written[1]).days) >= _OUTDATED:
            if near > _SAME:
                return 0.0  # the same sentence, years later
            score -= _OLD
        strange = any(not _mentions(other, name) for claim, other in ((first, second), (second, first)) for name in claim.names)
        return score - _OTHER_NAME * strange

    def _met(self, asking: _Claim, other: _Claim) -> float:
        """How well the words of one are met by those of the other and of what it stands under, 0 to 1."""
        words, there = self._made[asking.masked], self._made[other.around]
        if words.tokens is None or there.tokens is None or not len(words.words) or not len(there.words):
            return self._shared(asking.words, other.all_words)
        best = (words.tokens @ there.tokens.T).max(axis=1).clip(0) ** 2
        weights = [self._rare(word, asking.language) for word in words.words]
        return float(best @ weights) / max(sum(weights), 1e-6)

    def _rare(self, word: str, language: str) -> float:
        return max((self._rarity.get(term, 0.0) for term in terms(word, language)), default=0.3)

    def _shared(self, words: frozenset[str], other: frozenset[str]) -> float:
        total = sum(self._rarity[word] for word in words)
        return sum(self._rarity[word] for word in words & other) / total if total else 0.0
