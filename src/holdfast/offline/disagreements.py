"""Where sources disagree, told only where it is sure: the same thing, the same attribute, the same unit, and another value.

Two clauses of different documents are compared by the words that they share with each other, and with the rest of each other's sentence
and its heading, weighed by how rare these are; equal figures and dates in both are shared words too. What is a plan, a bound on one side,
a change, another case (a further figure or date that differs) or about something else (each names what the other does not) is no
disagreement. A false one costs a reader more than one that was missed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import log

from holdfast.offline.documents import SourceDocument, bare_text, tainted_units
from holdfast.offline.quantities import MEASURES, Quantity, differ, find_quantities, full_dates
from holdfast.text.dates import Span
from holdfast.text.language import guess_language
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import is_stop_word, terms

_SURE, _SURE_OF_DATES = 6.0, 9.0  # shared rarity times its share of the shorter sentence
_USUAL = 60  # claims: in a few sentences every word would look common
_LEAST = 2  # things that two sentences must have in common
_CONTEXT = 0.5  # what it counts that only the headings share a word
_OUTDATED = 540  # days between two documents, from which on the older one is history
_BUCKET = 300  # sentences with one sort of figure that are compared with each other
_CLAUSES = re.compile(r"(?<=\S)[,;]\s+|\s+[–—]\s+|\s+\(|\)\s*(?=\w)|\s+(?:but|although|whereas|aber|mais|pero|ma)\s+")
_TIMES = 5
_ROW = re.compile(r"[^:;]{1,60}: [^;]*; ")
_CODE = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d])[\w.-]+|\b[A-Z]{2,}[A-Z0-9-]*\b|\b[A-Z][\w-]*-\d+\b")
_NAME = re.compile(r"(?<=[a-z,;’'\"] )[A-Z][a-z]\w+")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_CHANGE, _PLAN, _BOUND = (
    re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'hedges')[name])})\b", re.IGNORECASE)
    for name in ("change", "plan", "bound")
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


def find_disagreements(documents: Iterable[SourceDocument]) -> list[Disagreement]:
    """All disagreements between sentences of different documents, the surest first. Each sentence is told in at most one."""
    claims = [claim for document in documents for claim in _claims(document)]
    held = Counter(word for claim in claims for word in claim.words | claim.around)
    size = max(len(claims), _USUAL)
    rarity = {word: log(1 + (size - count + 0.5) / (count + 0.5)) for word, count in held.items()}
    found = [one for first, second in _candidates(claims) if (one := _compared(first, second, rarity)) is not None]
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
    text = f"{document.title}\n{document.text}".lower()
    for n, unit in enumerate(document.units):
        fact = bare_text(unit)
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
                names = (*_CODE.findall(_bare(fact)), *(_NAME.findall(fact) if language != "de" else ()))
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
        for sort in {one.sort for one in claim.quantities if one.sort} | ({"a date"} if claim.dates else set()):
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
    lent = (first.words & second.around) | (second.words & first.around)
    above = (first.around & second.around) - own - lent
    common = len(own | lent) + equal + len(same_dates)
    if common < _LEAST or not own | lent:
        return None
    rare = max(rarity.values(), default=0.0) * 0.75
    shared = sum(rarity[word] for word in own | lent) + _CONTEXT * sum(rarity[word] for word in above) + rare * (equal + len(same_dates))
    shorter = min(sum(rarity[word] for word in claim.words) for claim in (first, second))
    score = shared * min(1.0, shared / max(shorter, 1e-6))
    if differing and len({a.sort for a, _ in differing}) == 1 and not other_dates and score >= _SURE:
        return _told(first, second, differing[0][0].text, differing[0][1].text, score)
    if other_dates and not differing and len(first.dates) == len(second.dates) == 1 and score >= _SURE_OF_DATES and common > _LEAST:
        return _told(first, second, first.dates[0].text, second.dates[0].text, score)
    return None


def _told(first: _Claim, second: _Claim, mine: str, theirs: str, score: float) -> Disagreement:
    return Disagreement(Statement(first.fact, first.source, mine), Statement(second.fact, second.source, theirs), score)


def _outdated(first: date | None, second: date | None) -> bool:
    return first is not None and second is not None and abs((first - second).days) >= _OUTDATED


def _hedged(first: str, second: str) -> bool:
    """Whether one of them tells a change or a plan, or only one of them a bound."""
    if any(pattern.search(text) for pattern in (_CHANGE, _PLAN) for text in (first, second)):
        return True
    return (_BOUND.search(first) is None) != (_BOUND.search(second) is None)


def _about_others(first: _Claim, second: _Claim) -> bool:
    """Whether each names something that the other, with its heading, does not; or only one does, and the other's document never does."""
    both = []
    for claim, other in ((first, second), (second, first)):
        said = " ".join((other.fact, *other.around)).lower()
        both.append(any(name not in said for name in claim.names | claim.first))
        if any(name not in other.text for name in claim.names):
            return True
    return all(both)


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
