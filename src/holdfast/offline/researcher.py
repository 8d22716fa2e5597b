"""The researcher without a model: for each question the sentences of the sources that answer it, word for word (W18, W10).

`Retrieval` finds them by the one ranking, each said once (K3). Where a question asks which has the most, the lowest, the earliest, rows of
tables are compared: they stand in a text with the heads of their columns, `- Model: CB-40; Price: 489` (`text/file_formats.py`). A column
counts where the question names it, one of days also where it is the only one; and only where one row is best.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.errors import Cancelled
from holdfast.extract.selection import TextUnit
from holdfast.extract.sentence_index import FAIR, FLOOR, SURE, IndexedSentence, SentenceIndex
from holdfast.offline.documents import Library, SourceDocument, bare_text, closing_units, section_name, tainted_units
from holdfast.offline.planner import TaskQuestion, questions_json, questions_listed, questions_of
from holdfast.offline.quantities import CLOCK, find_quantities, find_values
from holdfast.offline.sources import check_sources, gather, whole_number, wrong
from holdfast.session.output import Confidence, Finding, StageOutput
from holdfast.text.language import alternatives, guess_language, read_lists
from holdfast.text.likeness import NEAR, likeness
from holdfast.text.transcripts import TURN
from holdfast.text.words import terms
from holdfast.validation import counted
from holdfast.workflow.agent import StageRequest, StageResult, ground_output
from holdfast.workflow.definition import Stage

_LISTS = read_lists("holdfast.offline", "task_words")
_MOST, _LEAST, _LATEST, _EARLIEST, _LAST, _FIRST = (
    re.compile(rf"(?<!\bat )\b(?:{alternatives(_LISTS[name])})(?!\w)", re.IGNORECASE)
    for name in ("greatest", "least", "latest", "earliest", "last", "first")
)
_KINDS: tuple[Mapping[str, re.Pattern[str]], ...] = tuple(
    {name: re.compile(alternatives(words), re.IGNORECASE) for name, words in kind.items()}
    for kind in read_lists("holdfast.offline", "superlatives").values()
)
_ASKING = re.compile(rf"\s*¿?\s*(?:which|what|who|whose|where|when|{alternatives(_LISTS['foreign_question_word'])})\b", re.IGNORECASE)
_CELL = re.compile(r"(?P<head>[^:;]{1,60}): (?P<cell>[^;]*)(?:; |$)")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3}(?![\d.,])")
_FEWEST = 3  # rows: of two, each is either the most or the least
_LONGEST = 60  # characters of a cell that holds a value and no text


def orders_told(count: int) -> str:
    """What was passed over, in words."""
    return (
        "1 sentence with an order to an assistant" if count == 1 else f"{count} sentences with orders to an assistant, or going on from one"
    )


Words = Callable[[str], list[str]]
Rows = Sequence[tuple[int, Mapping[str, str]]]
"""The rows of a table: the number of the unit, and its cells by their heads."""


def best_rows(question: str, documents: Iterable[SourceDocument]) -> list[tuple[SourceDocument, int]]:
    """The rows that a superlative of the question means, each as a document and the number of a unit: of each table at most one."""
    if _ASKING.match(question) is None:
        return []
    dated = (_LATEST.search(question) is not None) - (_EARLIEST.search(question) is not None)
    sized = (_MOST.search(question) is not None) - (_LEAST.search(question) is not None)
    kind = next((one for one in _KINDS if one["most"].search(question) or one["least"].search(question)), None)
    if kind is not None:
        sized = -1 if kind["least"].search(question) else 1
    ordered = 0 if dated or sized else (_LAST.search(question) is not None) - (_FIRST.search(question) is not None)
    if not (dated or sized or ordered):
        return []
    words = partial(terms, language=guess_language(question))
    found = []
    for document in documents:
        for rows in _tables(document):
            number = _best(document, rows, _Asked(frozenset(words(question)), words, dated or ordered, sized, kind, bool(ordered)))
            if number is not None:
                found.append((document, number))
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """A superlative: the words of the question, whether the latest day or the greatest value is asked for (1) or the other end (-1), what
    kind of column it means by itself, and whether it says no more than the order ("founded first"), so that the column has to be named."""

    terms: frozenset[str]
    words: Words
    dated: int
    sized: int
    kind: Mapping[str, re.Pattern[str]] | None = None
    ordered: bool = False

    def named(self, head: str) -> int:
        """How much a question means a column: by the words of its head, or by the kind of thing that its superlative asks for."""
        shared = len(self.terms.intersection(self.words(head)))
        spaced = head.replace("_", " ")
        if self.kind is None or not self.kind["heads"].search(spaced):
            return shared
        return shared + (2 if self.kind["whole"].search(spaced) else 1)


def _tables(document: SourceDocument) -> Iterator[Rows]:
    """Stretches of items that have the same first head and hardly another head than those before."""
    held: list[tuple[int, Mapping[str, str]]] = []
    for number, unit in enumerate(document.units):
        cells = {one["head"].strip(): one["cell"].strip() for one in _CELL.finditer(bare_text(unit))} if unit.kind == "item" else {}
        if held and (len(cells) < 2 or next(iter(cells)) != next(iter(held[0][1])) or len(set(cells) - set(_heads(held))) > 1):
            yield held
            held = []
        if len(cells) > 1:
            held.append((number, cells))
    yield held


def _heads(rows: Rows) -> list[str]:
    return list(dict.fromkeys(head for _, cells in rows for head in cells))


def _best(document: SourceDocument, table: Rows, asked: _Asked) -> int | None:
    """The number of the unit of the best row; None where no column is meant, several rows are as good, or there are too few."""
    if len(table) < _FEWEST:
        return None
    heads = _heads(table)
    around = " ".join((document.title, *document.context(document.units[table[0][0]]), *heads))
    rows = _meant(table, asked.terms, asked.words)
    columns = {head: values for head in heads[1:] if (values := _column(rows, head, asked))}
    named = {head: asked.named(head) for head in columns}
    most = max(named.values(), default=0)
    chosen = [head for head in columns if named[head] == most]
    if len(chosen) != 1 or not (most or (asked.dated and not asked.ordered)) or asked.terms.isdisjoint(asked.words(around)):
        return None
    ordered = sorted(columns[chosen[0]], key=lambda one: one[0], reverse=(asked.dated or asked.sized) > 0)
    return ordered[0][1] if ordered[0][0] != ordered[1][0] else None


def _meant(rows: Rows, asked: frozenset[str], words: Words) -> Rows:
    """The rows that a word of the question picks out by a cell, where it is in some of several and not in all; else all of them."""
    for word in sorted(asked):
        fits = [one for one in rows if any(word in words(cell) for cell in one[1].values())]
        rows = fits if 1 < len(fits) < len(rows) else rows
    return rows


def _column(rows: Rows, head: str, asked: _Asked) -> list[tuple[float, int]]:
    """What a column holds in each row: figures, or days where these are asked for, or times of day in a column that the question names."""
    return _values(rows, head, dates=bool(asked.dated)) or (_hours(rows, head) if asked.dated and asked.named(head) else [])


def _hours(rows: Rows, head: str) -> list[tuple[float, int]]:
    """The times of day that stand in a column, where nothing else does."""
    found = [(find_values(cell), number) for number, cells in rows if (cell := cells.get(head, ""))]
    hours = len(found) > 1 and all([value.kind for value in values] == [CLOCK] for values, _ in found)
    return [(values[0].amount, number) for values, number in found] if hours else []


def _values(rows: Rows, head: str, *, dates: bool) -> list[tuple[float, int]]:
    """What a column holds in each row, where all that is written there is of one sort; else nothing."""
    found: list[tuple[float, int]] = []
    sorts: set[str] = set()
    grouped = [_GROUPED.search(cells.get(head, "")) is not None for _, cells in rows if re.search(r"\d", cells.get(head, ""))]
    if not dates and any(grouped) and not all(grouped):
        return []  # `12.500` among others may be thousands or a fraction
    for number, cells in rows:
        cell = cells.get(head, "")
        if len(cell) > _LONGEST:
            return []
        if dates:
            days = [one.day for one in find_values(cell) if one.day is not None]
            year = date(int(cell), 1, 1) if re.fullmatch(r"[12]\d{3}", cell) else None
            value = float((year or days[0].start).toordinal()) if year or len(days) == 1 else None
        else:
            figures = find_quantities(cell)
            value = figures[0].value if len(figures) == 1 else None
            sorts |= {figures[0].sort} if figures else set()
        if value is None and re.search(r"\d", cell):
            return []
        if value is not None:
            found.append((value, number))
    return found if len(found) >= max(2, (len(rows) + 1) // 2) and len(sorts) <= 1 else []


_PART = 0.5  # of the best score: less is beside the point when something to the point was found
_LOOKED_AT = 30
_SENTENCES, _PASSAGE = 3, 60  # sentences and words of a passage; one sentence may be longer
_LITTLE = 3  # words: fewer that the question has already are a name, and no answer
_GREETING = 3  # words: a line that ends with a comma and has no more opens a letter


@dataclass(frozen=True, slots=True)
class AnswerUnit:
    """A passage that answers a question: the units from `number` to `last` of a document, how well, and others that say the same."""

    document: SourceDocument
    number: int
    last: int
    score: float
    also: tuple[AnswerUnit, ...] = ()

    @property
    def unit(self) -> TextUnit:
        return self.document.units[self.number]

    @property
    def fact(self) -> str:
        return self.document.quote(self.number, self.last)

    @property
    def source(self) -> str:
        return self.document.cite(self.unit)

    def meets(self, other: AnswerUnit) -> bool:
        """Whether two passages have a sentence in common."""
        return self.document.id == other.document.id and self.number <= other.last and other.number <= self.last


class Retrieval:
    """Answers questions from the documents of a library. Sentences that give orders to an assistant are passed over: `tainted`.

    Ranked are all runs of up to three sentences of a paragraph: a sentence says less without the one that it goes on from, and a question
    often has two parts.
    """

    def __init__(self, library: Library) -> None:
        self._documents = tuple(library)
        self.tainted: dict[str, int] = {}
        self._passages: list[AnswerUnit] = []
        for document in library:
            bad = tainted_units(document)
            if bad:
                self.tainted[document.id] = len(bad)
            silent = bad | closing_units(document)
            said = [
                n for n, unit in enumerate(document.units) if n not in silent and _says_something(unit) and not _is_title(unit, document)
            ]
            self._passages += [AnswerUnit(document, first, last, 0.0) for first, last in _runs(document, said)]
        self._known = {(one.document.id, one.number) for one in self._passages}
        self._index = SentenceIndex([IndexedSentence(one.document.id, one.fact, _context(one)) for one in self._passages])

    def answers(self, question: str, most: int = 5, *, name: str = "") -> list[AnswerUnit]:
        """The passages that answer a question, best first and each thing once; only what speaks of `name`, if one is given."""
        found = self._ranked(question, most, name)
        return found if name else self._best_row_first(question, found, most)

    def _best_row_first(self, question: str, found: list[AnswerUnit], most: int) -> list[AnswerUnit]:
        """What a superlative asks for is in the row that is best, where a table has one: that of the table that was found best.

        Where no sentence of any table was found, the only table that has such a column is meant: a question for the cheapest need not
        share a word with its row."""
        rows = [row for row in best_rows(question, self._documents) if (row[0].id, row[1]) in self._known]
        order = {one.document.id: place for place, one in reversed(list(enumerate(found)))}
        near = [row for row in rows if row[0].id in order] or (rows if len(rows) == 1 else [])
        if not near:
            return found
        document, number = min(near, key=lambda row: order.get(row[0].id, 0))
        # What the words of a row share with the question says little here: its column was compared.
        best = AnswerUnit(document, number, number, max(found[0].score, FAIR) if found else FAIR)
        return [best, *(one for one in found if not (one.meets(best) or _says_the_same(one, best)))][:most]

    def _ranked(self, question: str, most: int, name: str) -> list[AnswerUnit]:
        found: list[AnswerUnit] = []
        speaks = speaks_of(name) if name else None
        asked = frozenset(terms(question))
        for match in self._index.rank(question, limit=_LOOKED_AT * (10 if name else 1) + most, names=True):
            answer = replace(self._passages[match.place], score=round(match.score, 4))
            if match.score < FLOOR or (found and match.score < _PART * found[0].score):
                break
            name_alone = len(answer.fact.split()) < _LITTLE and asked.issuperset(terms(answer.fact))
            if name_alone or any(answer.meets(known) for known in found):
                continue
            if speaks is not None and not speaks.search(f"{answer.fact} {' '.join(answer.document.context(answer.unit))}"):
                continue
            twin = next((n for n, known in enumerate(found) if _says_the_same(known, answer)), None)
            if twin is None and len(found) < most:
                found.append(answer)
            elif twin is not None and answer.document.id != found[twin].document.id:
                found[twin] = replace(found[twin], also=(*found[twin].also, answer))
        return found


def _context(answer: AnswerUnit) -> tuple[str, ...]:
    """What a passage stands under; of a talk also the question right before it: "Jago has it" says little alone."""
    above, before = answer.document.context(answer.unit), answer.number - 1
    if before < 0 or TURN.match(answer.fact) is None:
        return above
    asked = bare_text(answer.document.units[before])
    return (*above, asked) if asked.endswith(("?", "？")) and TURN.match(asked) else above


def _runs(document: SourceDocument, said: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last unit of each sentence, item or row, and of each few sentences of one paragraph that stand together."""
    units, there = document.units, frozenset(said)
    for first in said:
        words = 0
        for last in range(first, min(first + _SENTENCES, len(units))):
            words += len(units[last].passage.text.split())
            if last > first and (last not in there or units[last].block != units[first].block or words > _PASSAGE):
                break
            yield first, last


def _says_the_same(first: AnswerUnit, second: AnswerUnit) -> bool:
    """Whether two passages are the same, or one is a part of the other and both are from one file, as what a run kept of it is."""
    if likeness(first.fact, second.fact) >= NEAR:
        return True
    if first.document.id == second.document.id:
        return False
    files = {section_name(one.document.name or one.document.id)[0].casefold() for one in (first, second)}
    return len(files) == 1 and (first.fact in second.fact or second.fact in first.fact)


def _says_something(unit: TextUnit) -> bool:
    text = bare_text(unit)
    if unit.kind == "heading" or text.endswith(("?", "？", ":")) or not any(character.isalnum() for character in text):
        return False
    return not (text.endswith(",") and len(text.split()) <= _GREETING)


def _is_title(unit: TextUnit, document: SourceDocument) -> bool:
    """Whether a unit is no more than what its document states as its title, wherever it stands."""
    text = bare_text(unit)
    stated = bool(document.name) and len(document.units) > 1 and not text.endswith((".", "!", "。"))
    return stated and text.casefold() == document.title.casefold()


def speaks_of(name: str) -> re.Pattern[str]:
    """What a sentence, or what it stands under, has if it speaks of this: a part of the name that tells it from others, in any case.

    "the M9" is the Calora M9; a figure alone is no name.
    """
    parts = [part for part in name.split() if sum(map(str.isalpha, part)) >= 3 or (part.isalnum() and not part.isdigit() and len(part) > 1)]
    return re.compile("|".join(rf"(?<!\w){re.escape(part)}(?!\w)" for part in parts or [name]), re.IGNORECASE)


_PER_QUESTION = 4
_KEPT = 200  # documents that are kept for the next stage beside those that are cited
Answered = dict[str, list[AnswerUnit]]


class Researcher:
    """Reads its sources and selects sentences.

    Settings: `sources` {folder, globs, knowledge, raw, top_k}; `max_findings` for each question (5); `questions`, else they are those of
    a planner among the given outputs, or the task itself, split.
    """

    def check(self, stage: Stage) -> None:
        """ConfigError for questions that are none."""
        questions_listed(stage)

    def check_sources(self, stage: Stage, home: Path | None) -> None:
        """ConfigError for sources that cannot be read."""
        check_sources(stage, home)

    def run(self, request: StageRequest) -> StageResult:
        questions = questions_of(request)
        most = whole_number(request.stage, "max_findings", _PER_QUESTION)
        library = gather(request, [question.query for question in questions])
        if not len(library):
            hint = "Name a folder (`sources: {folder: docs}`), or configure a knowledge store."
            why = "there is nothing to search."
            if held := len(getattr(request.knowledge, "held", ())):
                why = f"there is nothing to search: {counted(held, 'record')} of the knowledge store that may fit: held back."
                hint = "`holdfast knowledge review` says why, and `holdfast knowledge agree ID` lets them in."
            raise wrong(request.stage, "sources", why, hint)
        request.emit(f"{counted(len(library), 'document')}, {counted(len(questions), 'question')}")
        retrieval = Retrieval(library)
        answered: Answered = {}
        for question in questions:
            if request.cancelled():
                raise Cancelled("The search was stopped.", session=request.session_id, stage=request.stage.name)
            answered[question.id] = _answers(question, questions, retrieval, most)
            request.emit(f"{question.id}: {counted(len(answered[question.id]), 'sentence')}")
        output = _output(request, questions, library, answered, _stored(request, library, answered), retrieval.tainted)
        return StageResult(output=ground_output(output, library.text_of)[0])


def _answers(question: TaskQuestion, questions: Sequence[TaskQuestion], retrieval: Retrieval, most: int) -> list[AnswerUnit]:
    """What answers a question. Of several things together only that speaks which itself names one of them."""
    if question.kind != "choice":
        return retrieval.answers(question.query, most, name=question.item)
    names = [speaks_of(item) for item in dict.fromkeys(one.item for one in questions if one.item and one.item in question.text)]
    found = retrieval.answers(question.query, most * 4 if names else most)
    return [one for one in found if not names or any(name.search(one.fact) for name in names)][:most]


def _stored(request: StageRequest, library: Library, answered: Answered) -> dict[str, str]:
    """Keep the text of every document that is cited, and of others: they may disagree."""
    used = dict.fromkeys(one.document.id for found in answered.values() for answer in found for one in (answer, *answer.also))
    used.update(dict.fromkeys([document.id for document in library if document.id not in used][:_KEPT]))
    documents = {document.id: document for document in library}
    return {name: _kept(request, documents[name]) for name in used}


def _kept(request: StageRequest, document: SourceDocument) -> str:
    return document.ref or request.raw.put(document.text, source=document.id, media_type="text/markdown")


def _output(
    request: StageRequest,
    questions: Sequence[TaskQuestion],
    library: Library,
    answered: Answered,
    refs: dict[str, str],
    tainted: dict[str, int],
) -> StageOutput:
    findings = _findings(answered, refs)
    unanswered = [one for one in questions if not answered[one.id]]
    cited = {one.document.id for found in answered.values() for answer in found for one in (answer, *answer.also)}
    passed = sum(tainted.values())
    notes = f" Passed over: {orders_told(passed)} ({', '.join(tainted)})." if passed else ""
    notes += f" Not read: {', '.join(library.not_read)}." if library.not_read else ""
    return StageOutput(
        request.stage.name,
        f"{counted(len(findings), 'sentence')} from {len(cited)} of {counted(len(library), 'document')} for "
        f"{len(questions) - len(unanswered)} of {counted(len(questions), 'question')}. "
        f"They are quoted word for word; nothing was generated.{notes}",
        findings,
        _confidence(answered),
        tuple(f"Not answered by the sources: {one.text}" for one in unanswered),
        tuple(dict.fromkeys(refs.values())),
        {
            "method": "extraction",
            "questions": questions_json(questions),
            "unanswered": [one.id for one in unanswered],
            "documents": [_described(document, refs[document.id]) for document in library if document.id in refs],
            "passed_over": tainted,
            "not_read": dict(library.not_read),
        },
    )


def _described(document: SourceDocument, ref: str) -> dict[str, Any]:
    described: dict[str, Any] = {"id": document.id, "ref": ref, "title": document.title, "trust": document.trust}
    if document.written is not None:
        described |= {"written": document.written.isoformat(), "dated": document.dated}
    if document.author:
        described["author"] = document.author
    return {**described, **document.extra}


def _findings(answered: Answered, refs: dict[str, str]) -> tuple[Finding, ...]:
    """Each sentence once, with the questions that it answers and its score for each of them."""
    found: dict[tuple[str, int, int], Finding] = {}
    for question, answers in answered.items():
        for one in answers:
            place = (one.document.id, one.number, one.last)
            if place in found:
                found[place].extra["weights"][question] = one.score
                found[place].extra["questions"].append(question)
                continue
            extra: dict[str, Any] = {"raw": refs[one.document.id], "questions": [question], "weights": {question: one.score}}
            if one.also:
                extra["also"] = [{"fact": other.fact, "source": other.source, "raw": refs[other.document.id]} for other in one.also]
            found[place] = Finding(one.fact, one.source, extra=extra)
    return tuple(found.values())


def _confidence(answered: Answered) -> Confidence:
    """By the score of the best sentence of each question."""
    best = [found[0].score if found else 0.0 for found in answered.values()]
    sure = sum(score >= SURE for score in best) / max(len(best), 1)
    fair = sum(score >= FAIR for score in best) / max(len(best), 1)
    return "high" if sure >= 0.7 and fair >= 0.9 else "medium" if fair >= 0.5 else "low"
