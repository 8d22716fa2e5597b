"""Passages of sources, word for word: cut into units (`cut`), selected within a budget (`select`), compared with a claim (`ground`).

Greedy: the best unit first, each next one judged by what it adds to those already chosen. The result keeps the order of the
sources, is word for word, and says what was left out. Nothing is generated. Grounding checks facts by their quote: word for word, but for
case and punctuation, nearly, or not at all. "Nearly" never bridges another number, another name or a negation.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import InputError, WrongType
from holdfast.extract.sentence_index import IndexedSentence, SentenceIndex
from holdfast.text.language import alternatives, guess_language, read_lists
from holdfast.text.likeness import NEAR, Differences, compare
from holdfast.text.normalise import normalise, normalise_with_offsets
from holdfast.text.sentences import UnitKind, split_sentences
from holdfast.text.words import terms
from holdfast.validation import check_number, kind_of


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and what it is called."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a source, word for word: `text` is `source.text[start:end]` of the source with that id."""

    source: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class TextUnit:
    """A passage that may be chosen: a sentence, list item, table row, heading or block of code, and where it stands.

    `order` counts the units of all sources, `place` those of its own source. `heading` is what it stands under, from the
    outermost heading inwards.
    """

    passage: Passage
    kind: UnitKind
    order: int
    place: int
    siblings: int
    block: int
    heading: tuple[str, ...]


def cut(sources: Iterable[SourceText]) -> list[TextUnit]:
    """All units of all sources, in order. Raises InputError when two sources have one id: a passage could not be traced."""
    units: list[TextUnit] = []
    seen: set[str] = set()
    for source in sources:
        if source.id in seen:
            raise InputError(f"Two sources are called {source.id!r}.", hint="Give every source an id of its own.")
        seen.add(source.id)
        units.extend(_units(source, len(units)))
    return units


def _units(source: SourceText, first: int) -> Iterator[TextUnit]:
    sentences = split_sentences(source.text)
    path: list[tuple[int, str]] = []
    for place, sentence in enumerate(sentences):
        if sentence.kind == "heading":
            path = [above for above in path if above[0] < sentence.level]
        passage = Passage(source.id, sentence.start, sentence.end, sentence.text)
        heading = tuple(text for _, text in path)
        yield TextUnit(passage, sentence.kind, first + place, place, len(sentences), sentence.block, heading)
        if sentence.kind == "heading":
            path.append((sentence.level, sentence.text.lstrip("# ").rstrip("# ")))


_WINDOW = 3  # a claim may gather up to so many neighbouring sentences
_NEARLY = 0.75
_EDGES = re.compile(r"^[\s\"'“”‘’«».,;:!?…()\[\]-]+|[\s\"'“”‘’«».,;:!?…()\[\]-]+$")


@dataclass(frozen=True, slots=True)
class Grounding:
    """What a source has for a claim: how well it fits (`score`, 1 for the first two kinds), and the passage, if any."""

    kind: Literal["exact", "normalised", "near", "absent"]
    score: float
    passage: Passage | None = None

    def __bool__(self) -> bool:
        return self.kind != "absent"


def ground(claim: str, sources: Iterable[SourceText], *, threshold: float = _NEARLY) -> Grounding:
    """The best grounding of a claim in any of the sources; the first source wins a tie.

    >>> ground("“costs 40 Euros”", [Source("a", "It  costs 40 euros.")]).kind
    'normalised'
    """
    best = Grounding("absent", 0.0)
    if not claim.strip():
        return best
    listed = list(sources)
    for look in (_exact, _normalised):
        for source in listed:
            found = look(claim, source)
            if found is not None:
                return found
    for source in listed:
        near = _near(claim, source)
        if near.score > best.score:
            best = near
    return best if best.score >= threshold else Grounding("absent", best.score)


def _exact(claim: str, source: SourceText) -> Grounding | None:
    start = _find(source.text, claim)
    return Grounding("exact", 1.0, _passage(source, start, start + len(claim))) if start >= 0 else None


def _find(text: str, wanted: str) -> int:
    """Where a text has the wanted one as whole words, -1 if nowhere: "port 80" is not in "port 8080"."""
    start = text.find(wanted)
    while start >= 0 and not _whole_words(text, start, start + len(wanted)):
        start = text.find(wanted, start + 1)
    return start


def _normalised(claim: str, source: SourceText) -> Grounding | None:
    wanted = normalise(_EDGES.sub("", claim))
    if not wanted:
        return None
    if wanted not in normalise(source.text):  # quick; the way back is made only when it is needed
        return None
    form = normalise_with_offsets(source.text)
    at = _find(form.text, wanted)
    if at < 0:
        return None
    return Grounding("normalised", 1.0, _passage(source, *form.original(at, at + len(wanted))))


def _whole_words(text: str, start: int, end: int) -> bool:
    """Whether the stretch begins and ends where words do. Scripts without spaces have no such places."""
    before = start > 0 and text[start - 1].isascii() and text[start - 1].isalnum() and text[start].isalnum()
    after = end < len(text) and text[end].isascii() and text[end].isalnum() and text[end - 1].isalnum()
    return not before and not after


def _near(claim: str, source: SourceText) -> Grounding:
    """The sentence, or the few neighbouring ones, that support the claim best."""
    best, place = 0.0, (0, 0)
    sentences = [unit for unit in split_sentences(source.text) if unit.kind != "code"]
    singles = [compare(claim, unit.text) for unit in sentences]
    for n, first in enumerate(sentences):
        for size in range(1, min(_WINDOW, len(sentences) - n) + 1):
            window = singles[n : n + size]
            if size > 1 and not (window[0].shared and window[-1].shared):
                continue  # a sentence at the edge that shares nothing adds nothing
            end = sentences[n + size - 1].end
            differs = window[0] if size == 1 else compare(claim, source.text[first.start : end])
            # Several sentences: the one that speaks of the claim most says whether it is denied.
            closest = max(window, key=lambda single: single.shared)
            score = _support(differs, denied=closest.negation) - 0.02 * (size - 1)
            if score > best:
                best, place = score, (first.start, end)
    return Grounding("near", best, _passage(source, *place)) if best else Grounding("absent", 0.0)


def _support(differs: Differences, *, denied: bool) -> float:
    """How far a stretch of source supports a claim. More in the source is no harm; more in the claim is."""
    if differs.numbers[0] or differs.names[0] or denied or differs.opposites:
        return min(0.5, differs.score)
    if differs.shared < 0.5:
        return differs.score
    return max(differs.score, min(0.99, differs.shared - 0.12 * len(differs.words[0])))


def _passage(source: SourceText, start: int, end: int) -> Passage:
    return Passage(source.id, start, end, source.text[start:end])


_EMBEDDED = 600  # sentences that are all compared by meaning, in a second or two
# How much of its score a unit loses when all its words were used already: answers to one question rightly resemble each other.
_REDUNDANCY, _REDUNDANCY_ASKED = 0.5, 0.15
_UNASKED = 1e-6  # of its weight in the text: the score of what has nothing to do with the question
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
    """Passages of the sources, word for word and in their order, and what was left out."""

    passages: tuple[Passage, ...]
    tokens: int
    left_out: tuple[LeftOut, ...]

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
    if isinstance(sources, str | SourceText) or not isinstance(sources, Iterable):
        raise WrongType(f"`sources` takes a list of SourceText, and not {kind_of(sources)}.", hint='`[SourceText("notes.md", text)]`.')
    check_number("budget", budget)
    if budget < 0:
        raise InputError(f"A budget of {budget} tokens is not possible.", hint="Give 0 or more.")
    counter = count or _default_count
    units = cut(sources)
    found = unit_terms(units)
    scores = _scores(units, found, question)
    costs = [counter(unit.passage.text) for unit in units]
    redundancy = _REDUNDANCY_ASKED if question and question.strip() else _REDUNDANCY
    chosen = _fitted(units, scores, _choose(units, found, scores, costs, budget, redundancy), budget, counter)
    passages = tuple(units[n].passage for n in sorted(chosen))
    return Extract(passages, counter(_joined(passages)) if passages else 0, _left_out(units, costs, set(chosen)))


def _default_count(text: str) -> int:
    from holdfast.tokens.approximate import estimate  # not needed by callers who bring their own

    return math.ceil(estimate(text))


def _scores(units: Sequence[TextUnit], found: Sequence[Sequence[str]], question: str | None) -> list[float]:
    central = centrality(found)
    if question is None or not question.strip():
        return [_standing(unit, c, p) for unit, c, p in zip(units, central, positions(units), strict=True)]
    chosen, sentences = _sentences(units)
    ranked = SentenceIndex(sentences, most_embedded=_EMBEDDED).rank(question, limit=len(sentences))
    relevant = {chosen[match.place].order: match.score for match in ranked if match.score > 0}
    # What has nothing to do with the question comes last, by its weight in the text, so that a budget is never wasted; headings never.
    return [relevant.get(unit.order, 0.0 if unit.kind == "heading" else _UNASKED * c) for unit, c in zip(units, central, strict=True)]


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
) -> list[int]:
    """Unit numbers in the order of choice. A unit's score can only sink, so stale ones wait in a heap."""
    sets = [frozenset(own) for own in found]
    heap = [(-score, n, 0) for n, score in enumerate(scores) if units[n].kind != "heading" or score > 0]
    heapq.heapify(heap)
    chosen: list[int] = []
    said = [0.0] * len(units)  # how much of each unit those chosen say, as far as was looked
    room = budget
    while heap:
        worth, n, seen = heapq.heappop(heap)
        if costs[n] + (1 if chosen else 0) > room:
            continue
        if seen < len(chosen):
            said[n] = max(said[n], *(_overlap(units[n], sets[n], units[m], sets[m]) for m in chosen[seen:]))
            if said[n] >= 1.0:
                continue
            again = -scores[n] * (1 - redundancy * said[n])
            heapq.heappush(heap, (max(worth, again), n, len(chosen)))
            continue
        room -= costs[n] + (1 if chosen else 0)
        chosen.append(n)
    return chosen


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
