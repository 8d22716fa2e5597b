"""Selecting passages within a budget of tokens: `select`.

Greedy: the best unit first, each next one judged by what it adds to those already chosen. The result keeps the order of the
sources, is word for word, and says what was left out. Nothing is generated.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.errors import InputError
from holdfast.extract.passages import Passage, SourceText, TextUnit, cut
from holdfast.extract.sentence_index import IndexedSentence, SentenceIndex
from holdfast.text.language import guess_language
from holdfast.text.likeness import NEAR, compare
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import terms

_EMBEDDED = 600  # sentences that are all compared by meaning, in a second or two
# How much of its score a unit loses when all its words were used already: answers to one question rightly resemble each other.
_REDUNDANCY, _REDUNDANCY_ASKED = 0.5, 0.15
_LISTS = {name: alternatives(entry) for name, entry in read_lists("holdfast.extract", "cues").items()}
_CUES = re.compile(rf"\b(?:{_LISTS['words']})\b|{_LISTS['wide']}", re.IGNORECASE)


_POINTS_BACK = re.compile(r"(?:it|its|they|their|he|she|his|her|this|these|er|sie|es|il|elle|ils|elles)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of one source is not in the extract: how many units, and how many tokens they have."""

    source: str
    units: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Extract:
    """Passages of the sources, word for word and in their order, and what was left out.

    `repeated` are passages that were worth choosing but say what a chosen one already says.
    """

    passages: tuple[Passage, ...]
    tokens: int
    left_out: tuple[LeftOut, ...]
    repeated: tuple[Passage, ...] = ()

    @property
    def text(self) -> str:
        """The passages, one to a line, a blank line between sources. `tokens` is the count of this text."""
        return _joined(self.passages)


def select(
    sources: Iterable[SourceText],
    *,
    budget: int,
    question: str | None = None,
    count: Callable[[str], int] | None = None,
) -> Extract:
    """The passages that answer `question`, or that carry the texts when there is none, in at most `budget` tokens.

    `count` counts the tokens of a text (by default an estimate); the extract's `text` is within the budget by that count. Same
    input, same result. Raises InputError for a negative budget.
    """
    if budget < 0:
        raise InputError(f"A budget of {budget} tokens is not possible.", hint="Give 0 or more.")
    counter = count or _default_count
    units = cut(sources)
    found = unit_terms(units)
    scores = _scores(units, found, question)
    costs = [counter(unit.passage.text) for unit in units]
    redundancy = _REDUNDANCY_ASKED if question and question.strip() else _REDUNDANCY
    chosen, repeated = _choose(units, found, scores, costs, budget, redundancy)
    chosen = _fitted(units, scores, chosen, budget, counter)
    passages = tuple(units[n].passage for n in sorted(chosen))
    left = _left_out(units, costs, set(chosen))
    return Extract(passages, counter(_joined(passages)) if passages else 0, left, tuple(units[n].passage for n in sorted(repeated)))


def _default_count(text: str) -> int:
    from holdfast.tokens.approximate import estimate  # not needed by callers who bring their own

    return math.ceil(estimate(text))


def _scores(units: Sequence[TextUnit], found: Sequence[Sequence[str]], question: str | None) -> list[float]:
    central, place = centrality(found), positions(units)
    if question is None or not question.strip():
        return [_standing(unit, c, p) for unit, c, p in zip(units, central, place, strict=True)]
    chosen, sentences = _sentences(units)
    ranked = SentenceIndex(sentences, most_embedded=_EMBEDDED).rank(question, limit=len(sentences))
    relevant = {chosen[match.place].order: match.score for match in ranked if match.score > 0}
    # What has nothing to do with the question comes last, by its weight in the text, so that a budget is never wasted.
    return [relevant.get(unit.order, 0.0) + 0.01 * c for unit, c in zip(units, central, strict=True)]


def _sentences(units: Sequence[TextUnit]) -> tuple[list[TextUnit], list[IndexedSentence]]:
    """What is ranked: all but headings and the heads of tables, each with what it stands under."""
    chosen: list[TextUnit] = []
    sentences: list[IndexedSentence] = []
    heads: tuple[int, str] = (-1, "")
    for unit in units:
        text, source = " ".join(unit.passage.text.split()), unit.passage.source
        if unit.kind == "heading":
            continue
        if unit.kind == "row" and heads[0] != unit.order - 1:
            heads = (unit.order, text)
            continue
        above = unit.heading
        if not above and chosen and chosen[-1].block == unit.block and chosen[-1].passage.source == source and _POINTS_BACK.match(text):
            above = (sentences[-1].text,)
        if unit.kind == "row":
            above, heads = (*above, heads[1]), (unit.order, heads[1])
        chosen.append(unit)
        sentences.append(IndexedSentence(source, text, above))
    return chosen, sentences


def _standing(unit: TextUnit, central: float, place: float) -> float:
    """A unit's worth in a text that nobody asked a question about."""
    text = unit.passage.text
    telling = 0.5 * bool(re.search(r"\d", text)) + 0.5 * bool(_CUES.search(text))
    worth = 0.6 * central + 0.25 * place + 0.15 * telling
    return worth * {"sentence": 1.0, "item": 0.95, "row": 0.7, "code": 0.4, "heading": 0.3}[unit.kind]


def _choose(
    units: Sequence[TextUnit], found: Sequence[Sequence[str]], scores: Sequence[float], costs: Sequence[int], budget: int, redundancy: float
) -> tuple[list[int], list[int]]:
    """Unit numbers in the order of choice, and those that only repeat. A unit's score can only sink, so stale ones wait in a heap."""
    sets = [frozenset(own) for own in found]
    heap = [(-score, n, 0) for n, score in enumerate(scores) if units[n].kind != "heading" or score > 0]
    heapq.heapify(heap)
    chosen: list[int] = []
    repeated: list[int] = []
    said = [0.0] * len(units)  # how much of each unit those chosen say, as far as was looked
    room = budget
    while heap:
        worth, n, seen = heapq.heappop(heap)
        if costs[n] + (1 if chosen else 0) > room:
            continue
        if seen < len(chosen):
            said[n] = max(said[n], *(_overlap(units[n], sets[n], units[m], sets[m]) for m in chosen[seen:]))
            if said[n] >= 1.0:
                repeated.append(n)
                continue
            again = -scores[n] * (1 - redundancy * said[n])
            heapq.heappush(heap, (max(worth, again), n, len(chosen)))
            continue
        room -= costs[n] + (1 if chosen else 0)
        chosen.append(n)
    return chosen, repeated


def _overlap(unit: TextUnit, own: frozenset[str], other: TextUnit, theirs: frozenset[str]) -> float:
    """How much of a unit another one already says: 1 for a near duplicate, little when they differ in a number or a negation."""
    common = len(own & theirs)
    if not own or not common:
        return 1.0 if unit.passage.text == other.passage.text else 0.0
    share = common / len(own)
    if share < 0.6:
        return share
    differs = compare(unit.passage.text, other.passage.text)
    if differs.score >= NEAR:
        return 1.0
    apart = differs.negation or differs.opposites or (differs.numbers[0] and differs.numbers[1])
    return share * (0.3 if apart else 0.99)


def _fitted(units: Sequence[TextUnit], scores: Sequence[float], chosen: list[int], budget: int, count: Callable[[str], int]) -> list[int]:
    """What was chosen, without the least worth of it while the joined text is over the budget: counts of parts do not quite add up."""
    kept = list(chosen)
    while kept and count(_joined([units[n].passage for n in sorted(kept)])) > budget:
        kept.remove(min(kept, key=lambda n: (scores[n], -n)))
    return kept


def _joined(passages: Sequence[Passage]) -> str:
    pieces: list[str] = []
    for n, passage in enumerate(passages):
        if n:
            pieces.append("\n" if passages[n - 1].source == passage.source else "\n\n")
        pieces.append(passage.text)
    return "".join(pieces)


def _left_out(units: Sequence[TextUnit], costs: Sequence[int], chosen: set[int]) -> tuple[LeftOut, ...]:
    missing: dict[str, list[int]] = {}
    for n, unit in enumerate(units):
        if n not in chosen:
            missing.setdefault(unit.passage.source, []).append(costs[n])
    return tuple(LeftOut(source, len(tokens), sum(tokens)) for source, tokens in missing.items())


# What makes a unit worth choosing where no question is asked: it is central to the text, it stands where writers put what matters.
# Scores are between 0 and 1 and follow from the texts alone: the same input gives the same numbers on every machine.


def unit_terms(units: Sequence[TextUnit]) -> list[list[str]]:
    """The terms of every unit, all of one source in that source's language."""
    languages: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for unit in units:
        texts.setdefault(unit.passage.source, []).append(unit.passage.text)
    for source, pieces in texts.items():
        languages[source] = guess_language("\n".join(pieces)[:4000])
    return [terms(unit.passage.text, languages[unit.passage.source]) for unit in units]


def _idf(found: Sequence[Sequence[str]]) -> dict[str, float]:
    df = Counter(term for own in found for term in dict.fromkeys(own))
    return {term: math.log(1 + (len(found) - n + 0.5) / (n + 0.5)) for term, n in df.items()}


def centrality(found: Sequence[Sequence[str]], *, rounds: int = 8) -> list[float]:
    """How much each unit shares with the others: a random walk between units and their terms, as TextRank does it.

    Walking through the terms instead of comparing all pairs keeps it linear in the length of the text.
    """
    rows, holders = _shares(found)
    score = [1.0 / len(rows)] * len(rows) if rows else []
    for _ in range(rounds):
        flow = [0.0] * len(holders)
        for row, own in zip(rows, score, strict=True):
            for term, weight in row:
                flow[term] += own * weight
        spread = [amount / held for amount, held in zip(flow, holders, strict=True)]
        score = [0.15 / len(rows) + 0.85 * sum([spread[term] * weight for term, weight in row]) for row in rows]
    return _scaled([value * _damp(len(own)) for value, own in zip(score, found, strict=True)])


def _shares(found: Sequence[Sequence[str]]) -> tuple[list[list[tuple[int, float]]], list[float]]:
    """For each unit its terms as numbers with their share of its weight, and for each term the sum of its shares."""
    idf = _idf(found)
    numbers = {term: n for n, term in enumerate(idf)}
    holders = [0.0] * len(numbers)
    rows = []
    for own in found:
        distinct = list(dict.fromkeys(own))
        total = sum(idf[term] for term in distinct) or 1.0
        row = [(numbers[term], idf[term] / total) for term in distinct]
        for term, weight in row:
            holders[term] += weight
        rows.append(row)
    return rows, holders


def _damp(length: int) -> float:
    """Units of one or two words are central to nothing."""
    return min(1.0, length / 5)


def _scaled(values: list[float]) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def positions(units: Sequence[TextUnit]) -> list[float]:
    """Where writers put what matters: the beginning of a source first, its end next, the first sentence of a paragraph."""
    scores = []
    for n, unit in enumerate(units):
        ahead = 1 / (1 + unit.place * 0.5)
        behind = 0.5 / (1 + (unit.siblings - 1 - unit.place) * 0.5)
        opens = n == 0 or units[n - 1].block != unit.block or units[n - 1].passage.source != unit.passage.source
        scores.append(min(1.0, max(ahead, behind) + (0.15 if opens else 0.0)))
    return scores
