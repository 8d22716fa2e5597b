"""Which row of a table has the most, the lowest, the earliest: where a question asks for it, its column is compared (W18).

Rows stand in a text with the heads of their columns, `- Model: CB-40; Price: 489` (`text/file_formats.py`). A column counts where the
question names it, one of days also where it is the only one; and only where one row is best. Nothing is known of any subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.offline.documents import SourceDocument, bare_text
from holdfast.offline.quantities import find_quantities, full_dates
from holdfast.text.language import guess_language
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import terms

_LISTS = read_lists("holdfast.offline", "task_words")
_MOST, _LEAST, _LATEST, _EARLIEST = (
    re.compile(rf"(?<!\bat )\b(?:{alternatives(_LISTS[name])})\b", re.IGNORECASE) for name in ("greatest", "least", "latest", "earliest")
)
_ASKING = re.compile(rf"\s*¿?\s*(?:which|what|who|whose|where|when|{alternatives(_LISTS['foreign_question_word'])})\b", re.IGNORECASE)
_CELL = re.compile(r"(?P<head>[^:;]{1,60}): (?P<cell>[^;]*)(?:; |$)")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3}(?![\d.,])")
_FEWEST = 3  # rows: of two, each is either the most or the least
_LONGEST = 60  # characters of a cell that holds a value and no text

Words = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class _Table:
    document: SourceDocument
    heads: tuple[str, ...]
    rows: tuple[tuple[int, Mapping[str, str]], ...]


def best_rows(question: str, documents: Iterable[SourceDocument]) -> list[tuple[SourceDocument, int]]:
    """The rows that a superlative of the question means, each as a document and the number of a unit: of each table at most one."""
    if _ASKING.match(question) is None:
        return []
    dated = (_LATEST.search(question) is not None) - (_EARLIEST.search(question) is not None)
    sized = (_MOST.search(question) is not None) - (_LEAST.search(question) is not None)
    if not dated and not sized:
        return []
    words = partial(terms, language=guess_language(question))
    found = []
    for document in documents:
        for table in _tables(document):
            number = _best(table, frozenset(words(question)), words, dated, sized)
            if number is not None:
                found.append((document, number))
    return found


def _tables(document: SourceDocument) -> Iterator[_Table]:
    """Stretches of items that have the same first head and hardly another head than the first of them."""
    held: list[tuple[int, Mapping[str, str]]] = []
    for number, unit in enumerate(document.units):
        text = bare_text(unit)
        cells = {match["head"].strip(): match["cell"].strip() for match in _CELL.finditer(text)} if unit.kind == "item" else {}
        same = bool(held) and len(cells) > 1 and next(iter(cells)) == next(iter(held[0][1])) and len(set(cells) - _heads(held)) <= 1
        if held and not same:
            yield from _made(document, held)
            held = []
        if len(cells) > 1:
            held.append((number, cells))
    yield from _made(document, held)


def _heads(rows: Sequence[tuple[int, Mapping[str, str]]]) -> set[str]:
    return {head for _, cells in rows for head in cells}


def _made(document: SourceDocument, rows: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[_Table]:
    if len(rows) >= _FEWEST:
        yield _Table(document, tuple(dict.fromkeys(head for _, cells in rows for head in cells)), tuple(rows))


def _best(table: _Table, asked: frozenset[str], words: Words, dated: int, sized: int) -> int | None:
    """The number of the unit of the best row; None where no column is meant, or several rows are as good."""
    document = table.document
    around = " ".join((document.title, *document.context(document.units[table.rows[0][0]]), *table.heads))
    rows = _meant(table, asked, words)
    columns = {head: values for head in table.heads[1:] if (values := _values(rows, head, dates=bool(dated)))}
    named = {head: len(asked & frozenset(words(head))) for head in columns}
    most = max(named.values(), default=0)
    chosen = [head for head in columns if named[head] == most]
    if len(chosen) != 1 or not (most or dated) or asked.isdisjoint(words(around)):
        return None
    values = columns[chosen[0]]
    ordered = sorted(values, key=lambda one: one[0], reverse=(dated or sized) > 0)
    return ordered[0][1] if ordered[0][0] != ordered[1][0] else None


def _meant(table: _Table, asked: frozenset[str], words: Words) -> Sequence[tuple[int, Mapping[str, str]]]:
    """The rows that a word of the question picks out by a cell, where it is in some of several and not in all; else all of them."""
    rows: Sequence[tuple[int, Mapping[str, str]]] = table.rows
    for word in sorted(asked):
        fits = [one for one in rows if any(word in words(cell) for cell in one[1].values())]
        rows = fits if 1 < len(fits) < len(rows) else rows
    return rows


def _values(rows: Sequence[tuple[int, Mapping[str, str]]], head: str, *, dates: bool) -> list[tuple[float, int]]:
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
            days = full_dates(cell)
            value = float(days[0].start.toordinal()) if len(days) == 1 else _year(cell)
        else:
            figures = find_quantities(cell)
            value = figures[0].value if len(figures) == 1 else None
            sorts |= {figures[0].sort} if figures else set()
        if value is None and re.search(r"\d", cell):
            return []
        if value is not None:
            found.append((value, number))
    return found if len(found) >= max(2, (len(rows) + 1) // 2) and len(sorts) <= 1 else []


def _year(cell: str) -> float | None:
    return float(cell) * 365.25 if re.fullmatch(r"[12]\d{3}", cell) else None
