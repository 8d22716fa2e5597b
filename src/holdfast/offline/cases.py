"""The case of which a sentence speaks: when, where, for whom, before or after what, and under what condition.

"The office opens at 8:00" and "in winter the office opens at 9:00" contradict each other no more than "4 knots in the harbour" and "8
knots in the fairway" do: where one sentence names a case that the other does not, each speaks of its own. A case is told by words that
lead to one ("in", "before", "without", "if") with the first word behind them, or by itself ("winter", "upstairs", "first"). What only
says who tells it ("in our tests") or names a dimension ("in length") is none. The lists are by language (`lists/cases.toml`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from holdfast.text.language import read_lists
from holdfast.text.words import is_stop_word, stem

VALUE, OWN = "…", "‡"
"""Stand in a text for each of its values, and for the one in question."""
BORDER = ";"
"""Stands between the clauses of a text."""
_PARTS = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
_OPPOSITES = {"before": "after", "with": "without", "inside": "outside", "above": "below"}
_OPPOSITE = {**_OPPOSITES, **{second: first for first, second in _OPPOSITES.items()}}
_LEADING = (*_OPPOSITE, "beside", "when")
_ELIDED = re.compile(r"^(?:l|d|qu|un|all|dell|nell|sull|dall)['’]")
_ALONE = 8  # words: a clause of so many that begins with such a word is a case and no statement of its own


@dataclass(frozen=True, slots=True)
class Case:
    """A word for a case, as a stem, and on which side of it ("before", "without"); `side` is empty where the word tells it alone."""

    word: str
    side: str = ""


@dataclass(frozen=True, slots=True)
class _Words:
    leading: dict[str, str]
    alone: frozenset[str]
    that: frozenset[str]
    of: frozenset[str]
    nothing: frozenset[str]


@cache
def _words(language: str) -> _Words | None:
    listed = read_lists("holdfast.offline", "cases").get(language)
    if listed is None:
        return None
    leading = {word: side for side in _LEADING for word in listed[side].split()}
    alone = frozenset((*listed["times"].split(), *listed["order"].split()))
    return _Words(leading, alone, frozenset(listed["that"].split()), frozenset(listed["of"].split()), frozenset(listed["nothing"].split()))


def stems(text: str, language: str) -> frozenset[str]:
    """All words of a text as stems: what a case of another sentence may be found among."""
    return frozenset(stem(_ELIDED.sub("", part.lower()), language) for part in _PARTS.findall(text) if part[0].isalnum())


def leads_to_case(clause: str, language: str) -> bool:
    """Whether a clause is only a case ("In winter, ..."), and belongs to what stands beside it."""
    words = _words(language)
    parts = _PARTS.findall(clause.lower())
    return words is not None and 0 < len(parts) <= _ALONE and (parts[0] in words.leading or parts[0] in words.alone)


def find_cases(bare: str, language: str) -> frozenset[Case]:
    """The cases that a clause names; its values are left out of it."""
    return frozenset(_found(bare, language))


def _found(bare: str, language: str) -> Iterator[Case]:
    words = _words(language)
    if words is None:
        return
    parts = [_ELIDED.sub("", part) for part in _PARTS.findall(bare)]
    for n, part in enumerate(map(str.lower, parts)):
        if part in words.alone:
            before = [other.lower() for other in parts[max(n - 2, 0) : n]]
            if not (words.that.intersection(before[-1:]) or words.of.intersection(before)):
                yield Case(stem(part, language))
        elif part in words.leading and not (words.leading[part] == "when" and OWN in _clause(parts[n:])):
            word = _behind(parts[n + 1 :], words, language)
            if word:
                yield Case(stem(word, language), words.leading[part])


def _clause(parts: Sequence[str]) -> Sequence[str]:
    """What stands before the next border. A condition that holds the value itself is what is told, and not the case of it."""
    return parts[: parts.index(BORDER)] if BORDER in parts else parts


def _behind(parts: Sequence[str], words: _Words, language: str) -> str:
    """The first word behind a leading one that says something; empty where it is a value, points to what was told before, or is a name:
    what bears another name is told apart by that."""
    for part in parts:
        word = part.lower()
        if word in words.that or word in words.nothing or words.leading.get(word) == "when":
            return ""
        if not part[0].isalnum() or (part[0].isupper() and language != "de"):
            return ""
        if word not in words.leading and not is_stop_word(word, language):
            return word
    return ""


def another_case(mine: frozenset[Case], theirs: frozenset[Case], known: frozenset[str]) -> bool:
    """Whether one sentence names a case that the other does not: `known` are the stems of the other and of what it stands under. The same
    word on the other side of it ("before the repair", "after the repair") is another case too. What a thing is with is only one beside
    one without it: "fixed with version 3.2"."""
    if any(case.word not in known and case.side != "with" for case in mine):
        return True
    return any(Case(case.word, _OPPOSITE.get(case.side, "-")) in theirs for case in mine)
