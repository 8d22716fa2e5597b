"""Tables as items that stand alone: each row with the heads of its columns, `- Model: CB-40; Price: 489`.

Read are tables of Markdown (with or without a ruler, as pages and converters write them), of aligned columns, and cells as CSV has them.
Where a table does not say which row is its head (Word marks it seldom, and a converter then writes an empty one) the first row is taken for
it when it reads like one. Rows of two columns without a head are a word and what it says, `- Tenant: Jago Penrose`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.text.normalise import one_line

Cells = Sequence[Sequence[str]]
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*")
_RULER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*|[ \t]*\+(?:[-=]+\+)+[ \t]*")
_COLUMNS = re.compile(r"[ \t]{2,}|\t")
_COLUMN_RULER = re.compile(r"[ \t]*(?:[=-]{2,}[ \t]+)+[=-]{2,}[ \t]*")


def row(heads: Sequence[str], cells: Sequence[str]) -> str:
    """A row with the heads of its columns; an empty cell is left out.

    >>> row(["Model", "", "Price"], ["CB-40", "new", "489"])
    '- Model: CB-40; new; Price: 489'
    """
    named = list(heads) + [""] * (len(cells) - len(heads))
    told = [f"{head}: {cell}" if head else cell for head, cell in zip(named, map(one_line, cells), strict=False) if cell]
    return f"- {'; '.join(told)}"


_BOLD = re.compile(r"(\*\*|__)(.+)\1")
_LONGEST_HEAD = 40  # characters
_FIGURE = re.compile(r"[-−+~≈<>]?\s?[$€£¥]?\s?(\d[\d.,:/’' -]*)")
_YEAR = re.compile(r"(?:19|20)\d\d")
_ENDED = (".", "!", "?", ";", ":")


def with_heads(text: str) -> str:
    """Markdown in which the rows of its tables stand as items with the heads of their columns."""
    made: list[str] = []
    held: list[str] = []
    fenced = False
    for line in [*text.split("\n"), ""]:
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (_ROW.fullmatch(line) or (held and _RULER.fullmatch(line))):
            held.append(line)
            continue
        if held:
            made += rows_of([_cells(one) for one in held if not _RULER.fullmatch(one)])
            held = []
        made.append(line)
    return "\n".join(made[:-1])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def rows_of(cells: Cells) -> list[str]:
    """The items of a table whose first row has the heads; a table of one row has none.

    >>> rows_of([["", ""], ["Utility", "Paid by"], ["Water", "harbour trust"], ["Power", "tenant"]])
    ['', '- Utility: Water; Paid by: harbour trust', '- Utility: Power; Paid by: tenant', '']
    """
    if len(cells) < 2:
        return [row([], one) for one in cells]
    above, table = _above(cells)
    if not above:
        return ["", *(row(table[0], one) for one in table[1:] if any(one)), ""]
    bare = [[_bare(cell) for cell in one] for one in table]
    named = [cell for one in above for cell in one if cell]
    if _begins_with_head(table):
        items = [row(bare[0], one) for one in bare[1:]]
    elif max(map(len, bare), default=0) == 2:
        items = [row(one[:1], one[1:]) if len(one) == 2 and all(one) else row([], one) for one in bare]
    else:
        items = [row([], one) for one in bare]
    return [*(line for one in named for line in ("", f"###### {_bare(one)}")), "", *items, ""]


def _above(cells: Cells) -> tuple[Cells, Cells]:
    """The rows at the top that are no head: an empty one, or the name of the table in a cell alone above a row that reads like a head."""
    first = next((n for n, one in enumerate(cells) if sum(map(bool, one)) > 1), len(cells))
    above, table = cells[:first], [one for one in cells[first:] if any(one)]
    named = [one for one in above if any(one)]
    if not table or (named and not (all(one[0] for one in named) and _begins_with_head(table))):
        return [], cells
    return above, table


def _begins_with_head(table: Cells) -> bool:
    """Whether the first row of a table that marks none reads like its head.

    It is short words, no figures, in every column (above the first there may be none). Of two columns it must differ from what is below: in
    boldness, or as a word does from figures of one unit, or with a capital above small letters; else the rows are words and what they say.
    """
    first, rest = table[0], table[1:]
    width = max(map(len, table))
    if not rest or width < 2 or len(first) < width or not all(first[1:]) or (width == 2 and not first[0]):
        return False
    if any(len(cell) > _LONGEST_HEAD or cell.endswith(_ENDED) or _is_value(_bare(cell)) for cell in first):
        return False
    bold = [[_BOLD.fullmatch(cell) is not None for cell in one] for one in table]
    if all(one[0] for one in bold) and not bold[0][-1]:
        return False
    if width > 2 or (all(bold[0]) and not all(map(all, bold))):
        return True
    below = [_bare(one[1]) for one in rest if len(one) > 1 and one[1]]
    units = {_FIGURE.sub("", cell).strip().lower() for cell in below}
    if len(below) > 1 and len(units) == 1 and all(_FIGURE.match(cell) for cell in below):
        return True
    return _bare(first[1])[:1].isupper() and 2 * sum(cell[:1].islower() for cell in below) > len(below)


def _is_value(cell: str) -> bool:
    return _FIGURE.match(cell) is not None and _YEAR.fullmatch(cell) is None


def _bare(cell: str) -> str:
    return _BOLD.sub(lambda match: match[2], cell)


def table_lines(lines: Sequence[str]) -> list[str]:
    """Lines in which stretches of aligned columns (three lines or more) are the items of a table."""
    made: list[str] = []
    held: list[list[str]] = []
    raw: list[str] = []
    for line in [*lines, ""]:
        cells = _COLUMNS.split(line.strip())
        if len(cells) >= 3 or (held and _COLUMN_RULER.fullmatch(line)) or _COLUMN_RULER.fullmatch(line):
            raw.append(line)
            held += [] if _COLUMN_RULER.fullmatch(line) else [cells]
            continue
        made += rows_of(held) if len(held) >= 3 else raw
        held, raw = [], []
        made.append(line)
    return made[:-1]
