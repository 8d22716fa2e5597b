"""What search takes from a text: pieces to embed, longer ones to rank by words, the sentence to show, and standing wishes. No files here.

`cut_for_meaning` gives a sentence or two, so that one fact does not drown in others; `cut_pieces` some 250 words; `snippet_of` one line.

A standing wish ("Always give the units", "From now on call me Kit") holds for questions that do not resemble it (K2): a record that
states one is indexed under a term of its own, `WISH`, which no question can ask for, and the ranking raises it a little. Only what is put
as an order counts: "I always take the bus" is no wish. In the same way `ASKS` marks what ends with a question: its words are those of the
answer after it too.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.search.questions import TERM_LENGTH
from holdfast.text.language import NO_SPACES
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms_with_offsets

_LEAST_WORDS = 8  # words: a shorter sentence says little by itself and joins the next
_MANY = 20  # pieces of an ordinary text; the pieces of a longer one grow instead
_MOST_WORDS = 80
_MOST_CHARACTERS = 900  # more than the embedder reads
_MOST_PIECES = 200

PROBE = "The users' databases were renamed: parse_url, getUserName, v3.11.7, 2024-05-08, e-mail; Häuser, машины, 数据库"
"""Words whose analysis shows whether an index was made as one would be made today."""
_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|(?<!\s)\s*\n\s*")
_SPACELESS = re.compile(f"[{NO_SPACES}]")


def cut_for_meaning(text: str) -> list[str]:
    """The pieces of a text in order. Cuts at the ends of sentences and lines; a piece has at least eight words if the text has.

    >>> cut_for_meaning("Hi! I moved to Lisbon in May. The flat is small but it has a view of the river.")
    ['Hi! I moved to Lisbon in May. The flat is small but it has a view of the river.']
    """
    sentences = [part for part in _ENDS.split(text) if part and not part.isspace()]
    sizes = [_size(sentence) for sentence in sentences]
    least = min(max(_LEAST_WORDS, sum(sizes) / _MANY), _MOST_WORDS)
    pieces: list[str] = []
    held: list[str] = []
    reached = 0.0
    for sentence, size in zip(sentences, sizes, strict=True):
        held.append(sentence)
        reached += size
        if reached >= least:
            pieces.extend(_bounded(" ".join(held)))
            held, reached = [], 0.0
    if held:
        rest = " ".join(held)
        if pieces and len(pieces[-1]) + len(rest) < _MOST_CHARACTERS:
            pieces[-1] += " " + rest
        else:
            pieces.extend(_bounded(rest))
    return pieces[:_MOST_PIECES]


def _size(text: str) -> float:
    """How many words: in scripts without spaces two characters count as one."""
    words = len(text.split())
    return words if text.isascii() else words + len(_SPACELESS.findall(text)) / 2


def _bounded(piece: str) -> Iterator[str]:
    """A piece that is too long to be read at once, cut at spaces or else anywhere."""
    while len(piece) > _MOST_CHARACTERS:
        cut = piece.rfind(" ", _MOST_CHARACTERS // 2, _MOST_CHARACTERS)
        cut = cut if cut > 0 else _MOST_CHARACTERS
        yield piece[:cut]
        piece = piece[cut:].lstrip()
    if piece:
        yield piece


PIECE = 1500  # characters: some 250 words. A fact in a long text is found by the piece that it is in
_SHORTEST_PIECE = 800
_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"[.!?。！？]\s*(?=\s|[^\x00-\x7f])"), re.compile(r"\s"))


@dataclass(frozen=True, slots=True)
class Snippet:
    """The part of a text to show, and the stretches of it that match."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    """The terms that matched anywhere in the part that was looked at, each as it is written there first."""


def cut_pieces(text: str) -> Iterator[tuple[int, int]]:
    """(start, stop) of the pieces of a text, in order and without a gap. A short text, and an empty one, is one piece."""
    start = 0
    while len(text) - start > PIECE + _SHORTEST_PIECE // 2:
        stop = _break(text, start)
        yield start, stop
        start = stop
    yield start, len(text)


def _break(text: str, start: int) -> int:
    """The best place to cut in reach: a blank line, a line end, a sentence end, a space, or anywhere."""
    for pattern in _BREAKS:
        found = -1
        for match in pattern.finditer(text, start + _SHORTEST_PIECE, start + PIECE):
            found = match.end()
        if found > start:
            return found
    return start + PIECE


def snippet_of(
    text: str, weights: Mapping[str, float], *, within: tuple[int, int] | None = None, language: str | None = None, length: int = 240
) -> Snippet:
    """The sentence of `text[within]` that matches best, with the words that match; shortened around them if it is long.

    `weights` are the terms that were asked for; each counts once for a sentence, and more the fewer sentences have it. A code ("CB-50")
    is a term as a whole and by its parts, so it counts more than another code with a part of it. Without any match it is the beginning.
    """
    start, stop = within if within is not None else (0, min(len(text), 4 * PIECE))
    part = text[start:stop]
    hits = [(key, term.start, term.end) for term in terms_with_offsets(part, language) if (key := term.key[:TERM_LENGTH]) in weights]
    units = split_sentences(part) if hits else []
    held = [[hit for hit in hits if unit.start <= hit[1] < unit.end] for unit in units]
    shares = Counter(key for unit in held for key in {key for key, _, _ in unit})
    worth = {key: weights[key] * math.log(1 + len(units) / count) for key, count in shares.items()}
    best = max(range(len(units)), key=lambda at: (sum(worth[key] for key in {key for key, _, _ in held[at]}), -at), default=0)
    said = {key: part[begin:end] for key, begin, end in (*reversed(hits), *(reversed(held[best]) if held else ()))}
    inside = [hit for hit in held[best] if hit[2] <= units[best].end] if held else []
    if not inside:
        return Snippet(_shortened(" ".join(part.split()), length), said=said)
    _, *anchor = max(inside, key=lambda hit: (worth[hit[0]], -hit[1]))
    spans = sorted({(begin, end) for _, begin, end in inside})
    return replace(_around(part, units[best].start, units[best].end, spans, (anchor[0], anchor[1]), length), said=said)


def _around(text: str, start: int, end: int, spans: list[tuple[int, int]], anchor: tuple[int, int], length: int) -> Snippet:
    """The sentence as one line, or the part of it around the match that matters most when it is too long to show."""
    head = tail = ""
    if end - start > length:
        begin = max(start, min(anchor[0] - length // 4, end - length))
        stop = min(end, begin + length)
        if begin > start:  # from a whole word on, and to one
            begin += max(0, text[begin : anchor[0]].find(" ") + 1)
        if stop < end and (last := text.rfind(" ", anchor[1], stop)) > stop - length // 4:
            stop = last
        head, tail = "… " if begin > start else "", " …" if stop < end else ""
        start, end = begin, stop
    shown = "".join(" " if character.isspace() else character for character in text[start:end])
    shift = len(head) - start
    return Snippet(head + shown + tail, tuple((s + shift, e + shift) for s, e in spans if s >= start and e <= end))


def _shortened(text: str, length: int) -> str:
    """The beginning of a text, cut between words where there are any."""
    if len(text) <= length:
        return text
    whole, _, rest = text[: length - 1].rpartition(" ")
    return f"{whole if len(rest) < length // 4 else text[: length - 2]} …"


WISH, ASKS = "wish:", "asks:"
"""The terms of records that state a standing wish, and of those that end with a question. A word of a text has no colon."""
MARKS = (WISH, ASKS)
_QUESTION_MARKS = ("?", "？", "؟")

_WISHED = re.compile(
    r"""(?:^|[.!?:]["'\s]*)(?:please,?\s+|bitte\s+|por\s+favor,?\s+)?
        (?:(?:always|never)\b                                              # an order begins with it
         |[^\W\d_]+\s+(?:mir\s+|mich\s+)?(?:immer|niemals)\b               # or with its verb
         |[^\W\d_]+(?:-moi)?\s+toujours\b | ne\s+[^\W\d_]+\s+jamais\b
         |[^\W\d_]+\s+siempre\b | nunca\s+[^\W\d_]+(?:es|as)\b)
    |\b(?:from\s+now\s+on|going\s+forward|ab\s+jetzt|von\s+nun\s+an|d[ée]sormais|dor[ée]navant|de\s+ahora\s+en\s+adelante)\b""",
    re.IGNORECASE | re.VERBOSE,
)


def states_a_wish(text: str) -> bool:
    """Whether some sentence of a text asks for something once and for all.

    >>> states_a_wish("Thanks. Please always give the units."), states_a_wish("I always take the bus.")
    (True, False)
    """
    return any(_WISHED.search(line.strip(" \t\"'")) is not None for line in text.splitlines())  # line by line: linear in a text of many


def ends_with_a_question(text: str) -> bool:
    """Whether the next turn is likely to answer it.

    >>> ends_with_a_question("I am back. Did you see Lisbon?"), ends_with_a_question("Did you? I did.")
    (True, False)
    """
    return text.rstrip().endswith(_QUESTION_MARKS)


def form_of_marks() -> str:
    """A mark of what counts as a wish and as a question."""
    return _WISHED.pattern + "".join(_QUESTION_MARKS)
