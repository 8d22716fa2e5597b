"""Noticing that a text repeats itself: a model that has lost the thread says the same again and again until its limit is reached."""

from __future__ import annotations

import re
from itertools import pairwise

_LONGEST_UNIT = 400
_SHORT_UNIT = 40
_LEAST = 100
"""Characters of repetition from which on it is no figure of speech, no table and no ruled line."""
_SENTENCES = 12
_DIFFERENT = 3
_END = re.compile(r"[.!?\n]+")
_DIGITS = re.compile(r"\d+")


def repetition(text: str) -> int | None:
    """Where a text begins to say again, up to its very end, what it has just said; None when it does not.

    What is kept before that place has the repeated words once.

    >>> text = "The sky is blue. " + "I help people, and I help them. " * 9
    >>> text[: repetition(text)]
    'The sky is blue. I help people, and I help them.'
    >>> repetition("Row, row, row your boat, gently down the stream.") is None
    True
    """
    whole = text.rstrip()
    found = _same_unit(whole)
    return _same_sentences(whole) if found is None else found


def _same_unit(text: str) -> int | None:
    """The same characters over and over."""
    for size in range(1, min(_LONGEST_UNIT, len(text) // 3) + 1):
        times = max(6 if size < _SHORT_UNIT else 3, -(-_LEAST // size))
        if len(text) < size * times:
            continue
        unit = text[-size:]
        if not any(letter.isalpha() for letter in unit) or not text.endswith(unit * times):
            continue
        start = len(text) - size * times
        while start >= size and text[start - size : start] == unit:
            start -= size
        before = start
        while before > 0 and text[before - 1] == text[before - 1 + size]:
            before -= 1  # the unit began somewhere else than our count from the end says
        return len(text[: before + size].rstrip())
    return None


def _same_sentences(text: str) -> int | None:
    """A few sentences over and over, in any order, whatever numbers stand in them."""
    ends = [0, *(match.end() for match in _END.finditer(text))]
    if ends[-1] < len(text):
        ends.append(len(text))
    sentences = [(start, _DIGITS.sub("", text[start:end]).strip(" .!?\n\t-*").casefold()) for start, end in pairwise(ends)]
    said = [(start, words) for start, words in sentences if len(words) >= 12]
    last = said[-_SENTENCES:]
    if len(last) < _SENTENCES or len({words for _, words in last}) > _DIFFERENT:
        return None
    known = {words for _, words in last}
    first = len(said)
    while first > 0 and said[first - 1][1] in known:
        first -= 1
    heard: set[str] = set()
    for start, words in said[first:]:
        if words in heard:
            return len(text[:start].rstrip())
        heard.add(words)
    return None
