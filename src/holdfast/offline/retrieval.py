"""Answers from documents: the sentences of a library that answer a question, by the one ranking, each said once (W18, K3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.extract.passages import TextUnit
from holdfast.extract.sentence_index import FLOOR, IndexedSentence, SentenceIndex
from holdfast.offline.best_row import best_rows
from holdfast.offline.documents import Library, SourceDocument, bare_text, tainted_units
from holdfast.offline.quantities import find_quantities
from holdfast.text.likeness import NEAR, likeness
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import terms

_PART = 0.5  # of the best score: less is beside the point when something to the point was found
_LOOKED_AT = 30
_LITTLE = 3  # words that are not function words: a sentence with fewer leans on what stands around it
_GREETING = 3  # words: a line that ends with a comma and has no more opens a letter
_HOW_MUCH = re.compile(rf"\b(?:{alternatives(read_lists('holdfast.offline', 'task_words')['how_much'])})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AnswerUnit:
    """A unit that answers a question, how well, and further units that say the same."""

    document: SourceDocument
    number: int
    score: float
    also: tuple[AnswerUnit, ...] = ()

    @property
    def unit(self) -> TextUnit:
        return self.document.units[self.number]

    @property
    def fact(self) -> str:
        return bare_text(self.unit)

    @property
    def source(self) -> str:
        return self.document.cite(self.unit)


class Retrieval:
    """Answers questions from the documents of a library. Sentences that give orders to an assistant are passed over: `tainted`."""

    def __init__(self, library: Library) -> None:
        self._documents = tuple(library)
        self.tainted: dict[str, int] = {}
        self._places: list[tuple[SourceDocument, int]] = []
        sentences: list[IndexedSentence] = []
        for document in library:
            bad = tainted_units(document)
            if bad:
                self.tainted[document.id] = len(bad)
            for n, unit in enumerate(document.units):
                if n not in bad and _says_something(unit):
                    self._places.append((document, n))
                    sentences.append(IndexedSentence(document.id, bare_text(unit), document.context(unit)))
        self._known = {(document.id, number) for document, number in self._places}
        self._index = SentenceIndex(sentences)

    def answers(self, question: str, most: int = 5, *, name: str = "") -> list[AnswerUnit]:
        """The units that answer a question, best first and each thing once; only what speaks of `name`, if one is given."""
        found = self._ranked(question, most, name)
        if not name:
            found = self._best_row_first(question, found, most)
        return self._with_figure(question, found, most)

    def _best_row_first(self, question: str, found: list[AnswerUnit], most: int) -> list[AnswerUnit]:
        """What a superlative asks for is in the row that is best, where a table has one: that of the table that was found best."""
        if not found:
            return found
        rows = best_rows(question, self._documents)
        order = {one.document.id: place for place, one in reversed(list(enumerate(found)))}
        near = [row for row in rows if row[0].id in order and (row[0].id, row[1]) in self._known]
        if not near:
            return found
        document, number = min(near, key=lambda row: order[row[0].id])
        rest = [one for one in found if (one.document.id, one.number) != (document.id, number)]
        return [AnswerUnit(document, number, found[0].score), *rest][:most]

    def _with_figure(self, question: str, found: list[AnswerUnit], most: int) -> list[AnswerUnit]:
        """Where a figure is asked for and the best sentence has none, the one right after it comes with it, if it has one."""
        if not found or _HOW_MUCH.search(question) is None or _has_figure(found[0].fact):
            return found
        best = found[0]
        if (best.document.id, best.number + 1) not in self._known:
            return found
        answer = AnswerUnit(best.document, best.number + 1, best.score)
        is_next = answer.unit.kind == best.unit.kind == "sentence" and answer.unit.block == best.unit.block
        if not is_next or not _has_figure(answer.fact):
            return found
        rest = [one for one in found[1:] if (one.document.id, one.number) != (answer.document.id, answer.number)]
        return [best, answer, *rest][:most]

    def _ranked(self, question: str, most: int, name: str) -> list[AnswerUnit]:
        found: list[AnswerUnit] = []
        speaks = speaks_of(name) if name else None
        asked = frozenset(terms(question))
        for match in self._index.rank(question, limit=_LOOKED_AT * (10 if name else 1) + most, names=True):
            document, number = self._places[match.place]
            answer = AnswerUnit(document, number, round(match.score, 4))
            if match.score < FLOOR or (found and match.score < _PART * found[0].score):
                break
            if _is_filler(answer.fact, asked):
                continue
            if speaks is not None and not speaks.search(f"{answer.fact} {' '.join(document.context(answer.unit))}"):
                continue
            twin = next((n for n, known in enumerate(found) if likeness(known.fact, answer.fact) >= NEAR), None)
            if twin is None and len(found) < most:
                found.append(answer)
            elif twin is not None and answer.document.id != found[twin].document.id:
                known = found[twin]
                found[twin] = AnswerUnit(known.document, known.number, known.score, (*known.also, answer))
        return found


def _has_figure(text: str) -> bool:
    return any(character.isdigit() for character in text) or bool(find_quantities(text))


def _is_filler(sentence: str, asked: frozenset[str]) -> bool:
    """Whether a sentence says hardly anything of its own ("More about this below.") and nothing of what is asked: it was found only
    because of what it stands under, and would be found for every question about that."""
    if any(character.isdigit() for character in sentence):
        return False
    own = frozenset(terms(sentence))
    return len(own) < _LITTLE and asked.isdisjoint(own)


def _says_something(unit: TextUnit) -> bool:
    text = bare_text(unit)
    if unit.kind == "heading" or text.endswith(("?", "？", ":")) or not any(character.isalnum() for character in text):
        return False
    return not (text.endswith(",") and len(text.split()) <= _GREETING)


def speaks_of(name: str) -> re.Pattern[str]:
    """What a sentence, or what it stands under, has if it speaks of this: a part of the name that tells it from others, in any case.

    "the M9" is the Calora M9; a figure alone is no name.
    """
    parts = [part for part in name.split() if sum(map(str.isalpha, part)) >= 3 or (part.isalnum() and not part.isdigit() and len(part) > 1)]
    return re.compile("|".join(rf"(?<!\w){re.escape(part)}(?!\w)" for part in parts or [name]), re.IGNORECASE)
