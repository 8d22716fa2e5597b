"""A text cut into the pieces that are embedded one by one: a sentence or two, so that one fact does not drown in the others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.text.language import NO_SPACES

_LEAST = 8  # words: a shorter sentence says little by itself and joins the next
_MANY = 20  # pieces of an ordinary text; the pieces of a longer one grow instead
_MOST_WORDS = 80
_MOST_CHARACTERS = 900  # more than the embedder reads
_MOST_PIECES = 200

_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\s*\n+\s*")
_SPACELESS = re.compile(f"[{NO_SPACES}]")


def cut_for_meaning(text: str) -> list[str]:
    """The pieces of a text in order. Cuts at the ends of sentences and lines; a piece has at least eight words if the text has.

    >>> cut_for_meaning("Hi! I moved to Lisbon in May. The flat is small but it has a view of the river.")
    ['Hi! I moved to Lisbon in May. The flat is small but it has a view of the river.']
    """
    sentences = [part for part in _ENDS.split(text) if part and not part.isspace()]
    sizes = [_size(sentence) for sentence in sentences]
    least = min(max(_LEAST, sum(sizes) / _MANY), _MOST_WORDS)
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
