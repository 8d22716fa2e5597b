"""Where sources disagree: another figure, another date, a yes against a no, about the same subject and under the same conditions.

Two clauses are compared only if they come from different documents, are about the same thing and share most of their words. A second
figure that differs as well (at 10,000 a second against at 50,000) is another condition, and two dates far apart are a development: neither
is a disagreement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from holdfast.offline.claims import Claim
from holdfast.offline.quantities import Quantity, differ
from holdfast.text.likeness import compare

Kind = Literal["number", "date", "negation", "opposite"]

_SHARED = 0.6  # of the words of the clause that has fewer
_AS_LONG = 0.34  # of the words of the longer one
_OUTDATED = 540  # days between two documents, from which on the older one is history
_LATER = 150  # days: "no longer" does not contradict what was said so long before
_YEAR = re.compile(r"\b\d{4}\b")
_DENIED = 2  # words after the negation that the other claim has to say: what is denied, and of what
_BUCKET = 400  # claims about one subject that are compared with each other: beyond, a subject is too wide to mean one thing


@dataclass(frozen=True, slots=True)
class ConflictingStatement:
    """What one source says: the whole sentence, where it stands, and the figure or date in question (empty for a yes or a no)."""

    fact: str
    source: str
    value: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two or more statements that cannot all be true, in the order of the sources."""

    kind: Kind
    subject: str
    statements: tuple[ConflictingStatement, ...]
    shared: float
    terms: frozenset[str]


def find_conflicts(claims: Iterable[Claim]) -> list[Conflict]:
    """All disagreements between claims of different documents. Those that share a statement and a kind are one."""
    listed = list(claims)
    pairs: list[tuple[int, int, Conflict]] = []
    for a, b in _candidates(listed):
        found = disagreement_between(listed[a], listed[b])
        if found is not None:
            pairs.append((a, b, found))
    return _joined(pairs, listed)


def _candidates(claims: Sequence[Claim]) -> Iterator[tuple[int, int]]:
    """Pairs worth comparing: the same subject, other documents, and a sort of figure, a date or a denied word in common."""
    buckets: dict[tuple[str, ...], list[int]] = {}
    for n, claim in enumerate(claims):
        subject = "\x00".join(sorted(claim.subject))
        for sort in {one.sort for one in claim.quantities}:
            buckets.setdefault((subject, "figure", sort), []).append(n)
        if claim.dates:
            buckets.setdefault((subject, "date"), []).append(n)
        for term in claim.order:
            buckets.setdefault((subject, "word", term), []).append(n)
    seen: set[tuple[int, int]] = set()
    for key, numbers in buckets.items():
        for i, a in enumerate(numbers[:_BUCKET]):
            for b in numbers[i + 1 : _BUCKET]:
                if claims[a].document == claims[b].document or (a, b) in seen:
                    continue
                if (
                    key[1] == "word"
                    and (claims[a].denied is None) == (claims[b].denied is None)
                    and claims[a].quantities
                    and claims[b].quantities
                ):
                    continue
                seen.add((a, b))
    yield from sorted(seen)


def disagreement_between(first: Claim, second: Claim) -> Conflict | None:
    """In what two claims disagree, or None."""
    shared, ratio, longer = _sharing(first, second)
    enough = ratio >= _SHARED and longer >= _AS_LONG
    if shared == 0 or not (enough or first.identified) or _other_version(first, second) or _outdated(first.written, second.written):
        return None
    if not first.subject and shared < 2:
        return None
    dates, numbers = _other_dates(first, second), _other_numbers(first, second, shared)
    if numbers is not None and enough:
        if _other_conditions(first, second, numbers[0].sort) or _other_period(first, second):
            return None
        return _conflict("number", first, second, numbers[0].text, numbers[1].text, ratio)
    if dates is not None and (first.identified or shared >= 2) and not _other_conditions(first, second, None):
        return _conflict("date", first, second, *dates, ratio)
    if enough and dates is None and numbers is None and not _other_conditions(first, second, None) and not _other_period(first, second):
        if _denies(first, second) or _denies(second, first):
            return _conflict("negation", first, second, "", "", ratio)
        if _opposite(first, second, ratio, longer):
            return _conflict("opposite", first, second, "", "", ratio)
    return None


def _conflict(kind: Kind, first: Claim, second: Claim, mine: str, theirs: str, ratio: float) -> Conflict:
    statements = (ConflictingStatement(first.sentence, first.source, mine), ConflictingStatement(second.sentence, second.source, theirs))
    return Conflict(kind, ", ".join(sorted(first.subject)), statements, ratio, first.terms & second.terms)


def _sharing(first: Claim, second: Claim) -> tuple[int, float, float]:
    """How many words two clauses share, and what part that is of the shorter and of the longer one."""
    fewer, more = sorted((first.terms, second.terms), key=len)
    shared = len(fewer & more) + sum(1 for term in fewer - more if any(_akin(term, other) for other in more - fewer))
    return shared, shared / len(fewer), shared / len(more)


def _akin(term: str, other: str) -> bool:
    """Whether two stems are forms of one word: "applic" and "appli", "consum" and "consumpt"."""
    short, long = sorted((term, other), key=len)
    return len(short) >= 5 and long.startswith(short[: max(5, len(short) - 1)]) and len(long) - len(short) <= 4


def _other_version(first: Claim, second: Claim) -> bool:
    a, b = first.version, second.version
    return bool(a and b) and not (f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}."))


def _outdated(first: date | None, second: date | None) -> bool:
    return first is not None and second is not None and abs((first - second).days) >= _OUTDATED


def _other_numbers(first: Claim, second: Claim, shared: int) -> tuple[Quantity, Quantity] | None:
    """The figures of one sort that differ, if no figure of that sort agrees."""
    for mine in first.quantities:
        others = [one for one in second.quantities if one.sort == mine.sort]
        own = [one for one in first.quantities if one.sort == mine.sort]
        if not others or any(not differ(a.value, b.value) for a in own for b in others):
            continue
        if mine.sort in ("", "share") and shared < 2 and not first.subject:
            continue
        return mine, others[0]
    return None


def _other_conditions(first: Claim, second: Claim, sort: str | None) -> bool:
    """Whether the sentences name another figure of another sort, so that they speak of different cases."""
    for kind in {one.sort for one in first.around} & {one.sort for one in second.around} - {sort}:
        mine = [one.value for one in first.around if one.sort == kind]
        theirs = [one.value for one in second.around if one.sort == kind]
        if all(differ(a, b) for a in mine for b in theirs):
            return True
    return False


def _other_period(first: Claim, second: Claim) -> bool:
    """Whether the sentences speak of different times, by their dates or by the age of the document that gives none."""
    if first.around_dates and second.around_dates:
        return not any(a.start <= b.end and b.start <= a.end for a in first.around_dates for b in second.around_dates)
    for dated, other in ((first, second), (second, first)):
        years = {year for span in dated.around_dates if _YEAR.search(span.text) for year in (span.start.year, span.end.year)}
        if years and other.written is not None and other.written.year not in years:
            return True
    return False


def _other_dates(first: Claim, second: Claim) -> tuple[str, str] | None:
    if not first.dates or not second.dates or any(a.start <= b.end and b.start <= a.end for a in first.dates for b in second.dates):
        return None
    return first.dates[0].text, second.dates[0].text


def _denies(claim: Claim, other: Claim) -> bool:
    """Whether a claim says no to what the other says yes to."""
    if claim.denied is None or other.denied is not None:
        return False
    shared = len(claim.terms & other.terms)
    if shared < (2 if claim.subject else 3) and not (claim.leads and other.leads):
        return False
    if claim.no_longer and claim.written and other.written and (claim.written - other.written).days > _LATER:
        return False
    return all(term in other.terms or any(_akin(term, word) for word in other.terms) for term in claim.denied[:_DENIED])


def _opposite(first: Claim, second: Claim, ratio: float, longer: float) -> bool:
    """Whether the same is said with one word turned into its opposite."""
    if first.denied is not None or second.denied is not None or ratio < _SHARED or longer < 0.5 or len(first.terms & second.terms) < 2:
        return False
    differs = compare(first.clause, second.clause)
    return differs.opposites and not (differs.names[0] and differs.names[1])


def _joined(pairs: Sequence[tuple[int, int, Conflict]], claims: Sequence[Claim]) -> list[Conflict]:
    """Pairs that share a claim become one conflict with all its statements, each sentence once."""
    groups: list[tuple[Kind, set[int], Conflict]] = []
    for a, b, conflict in pairs:
        for n, (kind, members, known) in enumerate(groups):
            if kind == conflict.kind and known.subject == conflict.subject and ({a, b} & members or _same(conflict, known)):
                groups[n] = (kind, members | {a, b}, _merged(known, conflict))
                break
        else:
            groups.append((conflict.kind, {a, b}, conflict))
    return [conflict for _, _, conflict in groups]


def _same(first: Conflict, second: Conflict) -> bool:
    return bool({one.fact for one in first.statements} & {one.fact for one in second.statements})


def _merged(known: Conflict, more: Conflict) -> Conflict:
    seen = {(one.fact, one.source) for one in known.statements}
    added = tuple(one for one in more.statements if (one.fact, one.source) not in seen)
    return Conflict(known.kind, known.subject, (*known.statements, *added), max(known.shared, more.shared), known.terms | more.terms)
