"""Answers from documents: the sentences of a library that answer a question, by the one ranking, each said once (W18, K3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.extract.passages import TextUnit
from holdfast.extract.sentence_index import FLOOR, IndexedSentence, SentenceIndex
from holdfast.offline.documents import Library, SourceDocument, bare_text, tainted_units
from holdfast.text.likeness import NEAR, likeness
from holdfast.text.words import terms

_PART = 0.5  # of the best score: less is beside the point when something to the point was found
_LOOKED_AT = 30
_LITTLE = 3  # words that are not function words: a sentence with fewer leans on what stands around it
_GREETING = 3  # words: a line that ends with a comma and has no more opens a letter


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
        self._index = SentenceIndex(sentences)

    def answers(self, question: str, most: int = 5, *, name: str = "") -> list[AnswerUnit]:
        """The units that answer a question, best first and each thing once; only what speaks of `name`, if one is given."""
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
