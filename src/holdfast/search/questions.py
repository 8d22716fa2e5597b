"""What a question asks for: its terms, as the index knows them, with how much each should weigh. No files here.

A question is a few words, too few to guess its language from: each of its words is looked up as every language of the index
would stem it. A word that the index does not know stands for those that are written much like it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.text.language import guess_language
from holdfast.text.words import keys, tokenise

TERM_LENGTH = 80  # longer terms (addresses, hashes) are cut, in texts and in questions alike
_MAX_TERMS = 64  # a whole page given as a question: its first terms are enough, and the time stays bounded
_SHORTEST = 4  # letters of a word that others may stand for
_HEAD = 3  # letters that a lookalike shares at its beginning
_ALIKE = 0.55
_STANDS_FOR = 0.6  # what a lookalike weighs against the word itself
_MOST = 3


def analysed(found: Iterable[str]) -> list[str]:
    """Terms in the form in which the index stores them: no blanks or quotes, and not too long."""
    return [term if term.isalnum() and len(term) <= TERM_LENGTH else term.translate(_UNWRITABLE)[:TERM_LENGTH] for term in found]


_UNWRITABLE = {ord(mark): "_" for mark in " \t\n\r\x0b\x0c\"'`\0"}


def asked_terms(question: str, languages: Sequence[str]) -> list[str]:
    """The different terms of a question in order, under its own likely language and those of the index."""
    codes = dict.fromkeys([guess_language(question[:4000]), *languages, "en"])
    found: dict[str, None] = {}
    for word in tokenise(question[:20_000]):
        for code in codes:
            found.update(dict.fromkeys(analysed(keys(word, code))))
        if len(found) >= _MAX_TERMS:
            break
    return list(found)[:_MAX_TERMS]


def lookalikes(term: str, vocabulary: Callable[[str], Iterable[str]]) -> dict[str, float]:
    """Words of the index that an unknown one may stand for, with their weight: a longer or shorter form, or a misspelling.

    `vocabulary` gives the words that begin with a string.
    """
    if len(term) < _SHORTEST or not term.isalpha():
        return {}
    rated = [(_likeness(term, word), word) for word in vocabulary(term[:_HEAD]) if len(word) >= _SHORTEST and word.isalpha()]
    best = sorted((pair for pair in rated if pair[0] >= _ALIKE), key=lambda pair: (-pair[0], pair[1]))[:_MOST]
    return {word: _STANDS_FOR * rate for rate, word in best}


def _likeness(one: str, other: str) -> float:
    if one.startswith(other) or other.startswith(one):
        return 0.9
    first, second = _threes(one), _threes(other)
    return 2 * len(first & second) / (len(first) + len(second))


def _threes(word: str) -> set[str]:
    padded = f" {word} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}
