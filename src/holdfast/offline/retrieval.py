"""Question answering by retrieval: the best sections by full-text search, in them the sentences that cover the words of the question."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from holdfast.extract.answer_types import AskedQuestion, offers, understand
from holdfast.extract.passages import TextUnit
from holdfast.extract.sentence_ranking import relevance
from holdfast.offline.claims import IDENTIFIER, Names, Subject, bare_text
from holdfast.offline.documents import Library, SourceDocument, tainted_units
from holdfast.offline.planner import TaskQuestion, question_terms
from holdfast.offline.quantities import find_quantities
from holdfast.search.fulltext import Document as Indexed
from holdfast.search.fulltext import FullTextIndex, Shape
from holdfast.text.language import guess_language
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import terms

GOOD = 0.5  # coverage from which on a sentence counts as an answer
FAIR = 0.3  # below it is not worth reading
_SECTIONS = 60
_HEADING, _NEIGHBOUR, _KIN = 0.6, 0.3, 0.7
_LEARNED_FROM = 400  # documents: enough to learn in what figures a topic is told
_VERY_GOOD, _ECHO = 0.8, 3
_BESIDE = 0.55  # of the best coverage: less is beside the point when something to the point was found
_REACH = 4  # sentences before one in its paragraph that may say what it speaks of
_WEAKLY = 0.3
_WEAK, _TICKET_WORDS, _MEASURES = (
    frozenset(read_lists("holdfast.offline", "claim_words")[name].split()) for name in ("weak", "ticket", "measure")
)
_BY_FIGURE = 0.75
_TELLING = 0.3  # of all sentences with such a figure: below, the figure tells too many things to tell this one
_COMPARES = re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'claim_words')['comparing'])})\b", re.IGNORECASE)
_SHORT = 7  # words: so little seldom says what it is about
_SHORTEST = 4  # words: "Fixed." alone answers nothing


@dataclass(frozen=True, slots=True)
class AnswerUnit:
    """A unit that answers a question: how much of the question it covers (0 to 1), and its rank among the others."""

    document: SourceDocument
    number: int
    coverage: float
    score: float

    @property
    def unit(self) -> TextUnit:
        return self.document.units[self.number]

    @property
    def fact(self) -> str:
        return bare_text(self.unit)

    @property
    def source(self) -> str:
        return self.document.cite(self.unit)


@dataclass(slots=True)
class _Reading:
    """Cache of what was worked out about one document: the terms of its units and headings, what each is about, which to leave out."""

    terms: list[frozenset[str]]
    heading_terms: dict[tuple[str, ...], frozenset[str]]
    innermost: dict[tuple[str, ...], frozenset[str]]
    subjects: list[Subject]
    tainted: frozenset[int]


class Retrieval:
    """Answers questions from the documents of a library. Close it after use, or use it in a `with`."""

    def __init__(self, library: Library, names: Names, questions: Sequence[TaskQuestion] = ()) -> None:
        self._documents = list(library)
        self._names = names
        # What the task asks about, topic by topic: a sentence that names another topic is no answer to this one by its figures alone.
        self._topics = {one.topic: frozenset(_asked(one)) - _WEAK for one in questions if one.kind == "aspect"}
        self._sorts: dict[str, str | None] = {}
        self._readings: dict[str, _Reading] = {}
        self._index = FullTextIndex(":memory:", Shape({"text": 1.0, "title": 1.5}))
        self._sections: list[tuple[SourceDocument, range]] = []
        for document in self._documents:
            self._sections += [(document, span) for span in _sections(document)]
        try:
            self._index.add(
                Indexed(
                    str(n), {"text": _text(document, span), "title": f"{document.title} {' '.join(document.units[span.start].heading)}"}
                )
                for n, (document, span) in enumerate(self._sections)
            )
        except BaseException:
            self._index.close()
            raise

    def close(self) -> None:
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def tainted(self) -> dict[str, int]:
        """For each document that was read: how many of its units were passed over, because they give orders to an assistant."""
        return {name: len(reading.tainted) for name, reading in sorted(self._readings.items()) if reading.tainted}

    def answers(self, question: TaskQuestion) -> list[AnswerUnit]:
        """The units that answer a question, best first, none below a fair coverage."""
        places = self._candidates(question)
        if not places:
            return []
        wanted = understand(f"{question.text} {question.asks}")
        weights = self._weights(question, places)
        if question.kind == "choice" and self._topics:
            weights = {term: 1.0 for term in weights}  # the names count alike, however often each is named
        covered = [self._coverage(document, n, weights, question) for document, n in places]
        covered = self._echoed(places, covered, weights)
        units = [document.units[n] for document, n in places]
        asked = AskedQuestion(question.asks or question.text, wanted.language, {term: 1.0 for term in weights}, wanted.wanted)
        ranks = relevance(units, [sorted(self._read(document).terms[n]) for document, n in places], asked)
        sort = self._figures_of(question.topic)
        enough = FAIR if question.kind == "context" else max(FAIR, _BESIDE * max(covered))
        found = []
        for (document, n), coverage, rank in zip(places, covered, ranks, strict=True):
            worth = 0.55 * coverage + 0.3 * rank + self._merit(document, n, question, wanted, sort)
            if coverage >= enough:
                found.append(AnswerUnit(document, n, coverage, worth))
        return sorted(found, key=lambda one: (-one.score, one.document.id, one.number))

    def _candidates(self, question: TaskQuestion) -> list[tuple[SourceDocument, int]]:
        """The units of the best sections that are about the thing in question, if it is about one."""
        found = self._index.search(f"{question.item} {question.text} {question.asks}", _SECTIONS)
        places: list[tuple[SourceDocument, int]] = []
        for section in sorted(int(hit.id) for hit in found):
            document, span = self._sections[section]
            reading = self._read(document)
            for n in span:
                unit = document.units[n]
                if (
                    n not in reading.tainted
                    and unit.kind in ("sentence", "item", "row")
                    and self._about(document, n, question)
                    and _says_something(unit)
                ):
                    places.append((document, n))
        return self._on_purpose(places, question) if question.kind == "context" else places

    def _on_purpose(self, places: list[tuple[SourceDocument, int]], question: TaskQuestion) -> list[tuple[SourceDocument, int]]:
        """Those of documents whose title names the purpose, if there are such documents: a list of requirements, say."""
        asked = frozenset(_asked(question))
        named = {document.id: len(asked & frozenset(terms(document.title))) for document, _ in places}
        most = max(named.values(), default=0)
        return [place for place in places if named[place[0].id] == most] if most >= 2 else places

    def _about(self, document: SourceDocument, n: int, question: TaskQuestion) -> bool:
        subject = self._read(document).subjects[n]
        if question.kind == "context":  # what it is for, and not one of the things that are compared
            return not subject
        if question.kind == "choice" and self._topics:  # what is said about several of them at once
            return len(self._names.named(document.units[n].passage.text)) > 1
        return not question.item or question.item in subject

    def _read(self, document: SourceDocument) -> _Reading:
        reading = self._readings.get(document.id)
        if reading is None:
            language = guess_language(document.text[:4000])
            own = [frozenset(terms(unit.passage.text, language)) for unit in document.units]
            headings = {unit.heading: frozenset(terms(" ".join(unit.heading), language)) for unit in document.units}
            innermost = {unit.heading: frozenset(terms(unit.heading[-1], language)) for unit in document.units if unit.heading}
            reading = _Reading(own, headings, innermost, self._names.of_units(document), tainted_units(document))
            self._readings[document.id] = reading
        return reading

    def _weights(self, question: TaskQuestion, places: Sequence[tuple[SourceDocument, int]]) -> dict[str, float]:
        """The words that make an answer, each with its rarity among the candidates. The name of the thing itself is not one of them."""
        asked = _asked(question) or list(question.terms)
        counted = Counter(term for document, n in places for term in self._read(document).terms[n])
        size = len(places)
        strong = [term for term in asked if term not in _WEAK and term not in _background(question)]
        weights = {term: math.log(1 + (size + 1) / (counted[term] + 1)) if counted[term] else 0.7 for term in asked}
        return {term: weight * (1.0 if term in strong or not strong else _WEAKLY) for term, weight in weights.items()}

    def _coverage(self, document: SourceDocument, n: int, weights: dict[str, float], question: TaskQuestion) -> float:
        """How much of what is asked a unit says itself, or takes from its heading or from the sentence before it."""
        reading, unit = self._read(document), document.units[n]
        own, above = reading.terms[n], reading.heading_terms[unit.heading]
        before = frozenset().union(*(reading.terms[m] for m in range(max(0, n - _REACH), n) if document.units[m].block == unit.block))
        background = _background(question)
        ticket = _TICKET_WORDS if IDENTIFIER.search(unit.passage.text) else frozenset()
        total = sum(weights.values()) or 1.0
        reached = 0.0
        touched = question.kind == "context"
        pointed_at = not background
        for term, weight in weights.items():
            here = max(_share(term, own), 1.0 if term in ticket else 0.0)
            pointed_at = pointed_at or (term in background and max(here, _share(term, above), _share(term, before)) > 0)
            touched = touched or (here > 0 and term not in background)
            reached += weight * max(here, _HEADING * _share(term, above), _NEIGHBOUR * _share(term, before))
        covered = reached / total
        if self._by_figure(document, n, question):
            return max(covered, _BY_FIGURE)
        # A heading alone does not make every sentence below it an answer, nor does a sentence about something else than is pointed at.
        return covered if touched and pointed_at else min(covered, FAIR * 0.95)

    def _echoed(self, places: Sequence[tuple[SourceDocument, int]], covered: Sequence[float], weights: dict[str, float]) -> list[float]:
        """Raise the coverage of units that share words with good answers and stand under a heading that names the topic."""
        said = [self._read(document).terms[n] for (document, n), value in zip(places, covered, strict=True) if value >= _VERY_GOOD]
        echo = frozenset(
            term for term, count in Counter(term for own in said for term in own).items() if term not in weights and not term.isdigit()
        )
        raised = []
        for (document, n), value in zip(places, covered, strict=True):
            reading = self._read(document)
            above = reading.heading_terms[document.units[n].heading]
            headed = sum(weight * _share(term, above) for term, weight in weights.items()) / (sum(weights.values()) or 1.0)
            raised.append(max(value, GOOD) if value < GOOD and headed >= 0.5 and len(reading.terms[n] & echo) >= _ECHO else value)
        return raised

    def _by_figure(self, document: SourceDocument, n: int, question: TaskQuestion) -> bool:
        """Whether a unit has the sort of figure that the topic is told in, and speaks of no other topic."""
        own = self._read(document).terms[n]
        if question.kind != "aspect" or any(words & own for topic, words in self._topics.items() if topic != question.topic):
            return False
        sorts = {one.sort for one in find_quantities(self._names.masked(document.units[n].passage.text))}
        sort = self._figures_of(question.topic)
        return sort is not None and "/" in sort and sort in sorts

    def _figures_of(self, topic: str) -> str | None:
        """The sort of figure in which the sources tell this topic ("messages per second"), learned from the sentences that name it."""
        if topic not in self._topics:
            return None
        if topic not in self._sorts:
            self._sorts[topic] = self._learned(topic)
        return self._sorts[topic]

    def _learned(self, topic: str) -> str | None:
        wanted = self._topics[topic]
        others = frozenset().union(*(words for name, words in self._topics.items() if name != topic)) - wanted
        telling: dict[str, set[str]] = {}
        counted: Counter[str] = Counter()
        hits: Counter[str] = Counter()
        for document in self._documents[:_LEARNED_FROM]:
            reading = self._read(document)
            for n, unit in enumerate(document.units):
                if unit.kind == "heading" or reading.terms[n] & others or n in reading.tainted:
                    continue
                above = reading.innermost.get(unit.heading, frozenset())
                named = bool(wanted) and wanted <= (reading.terms[n] | above)
                for sort in {
                    one.sort for one in find_quantities(self._names.masked(unit.passage.text)) if "/" in one.sort or one.sort in _MEASURES
                }:
                    counted[sort] += 1
                    if named:
                        hits[sort] += 1
                        telling.setdefault(sort, set()).add(document.id)
        good = [sort for sort, documents in telling.items() if len(documents) >= 2 and hits[sort] >= _TELLING * counted[sort]]
        return min(good, key=lambda sort: (-hits[sort], sort)) if good else None

    def _merit(self, document: SourceDocument, n: int, question: TaskQuestion, wanted: AskedQuestion, sort: str | None) -> float:
        """Bonus of a unit beside its words: it has the kind of thing that is asked for, or a figure."""
        text = self._names.masked(document.units[n].passage.text)
        sorts = {one.sort for one in find_quantities(text)}
        merit = 0.1 if wanted.wanted and all(offers(text, kind) for kind in wanted.wanted) else 0.0
        if IDENTIFIER.search(text) and _TICKET_WORDS & set(question.terms):
            merit += 0.25
        merit += 0.45 if sort is not None and sort in sorts else 0.1 if sorts else 0.0
        if question.kind == "choice" and _COMPARES.search(text):
            merit += 0.25
        reading = self._read(document)
        here = reading.terms[n] | reading.innermost.get(document.units[n].heading, frozenset())
        if question.kind == "context" and any(words & here or self._figures_of(topic) in sorts for topic, words in self._topics.items()):
            merit += 0.3
        if len(text.split()) < _SHORT and text.isascii():
            merit -= 0.2
        return merit


def _background(question: TaskQuestion) -> frozenset[str]:
    """The words that a question only points back to: "What caused it (the outage of 9 January)?"."""
    pointed = re.search(r"\(([^()]+)\)\?$", question.text)
    return (
        frozenset(question_terms(pointed.group(1))) - frozenset(question_terms(question.text[: pointed.start()]))
        if pointed
        else frozenset()
    )


def _asked(question: TaskQuestion) -> list[str]:
    item = set(question_terms(question.item))
    return [term for term in question_terms(question.asks or question.text) if term not in item]


def _share(term: str, own: frozenset[str]) -> float:
    if term in own:
        return 1.0
    return (
        _KIN
        if len(term) >= 5 and any(len(word) >= 5 and (word.startswith(term[:5]) and abs(len(word) - len(term)) <= 4) for word in own)
        else 0.0
    )


def _says_something(unit: TextUnit) -> bool:
    text = bare_text(unit)
    return (len(text.split()) >= _SHORTEST or not text.isascii()) and not text.endswith(("?", "？", ":")) and text.strip("|- ") != ""


def _sections(document: SourceDocument) -> list[range]:
    """Stretches of units under one heading."""
    spans: list[range] = []
    start = 0
    units = document.units
    for n in range(1, len(units) + 1):
        if n == len(units) or (units[n].heading != units[start].heading and units[n].kind != "heading") or units[n].kind == "heading":
            if any(unit.kind != "heading" for unit in units[start:n]):
                spans.append(range(start, n))
            start = n
    return spans


def _text(document: SourceDocument, span: range) -> str:
    return document.text[document.units[span.start].passage.start : document.units[span[-1]].passage.end]
