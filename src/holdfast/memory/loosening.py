"""Whether something that a user types takes a check away or reaches beyond the conversation (M10).

What he wants of answers and of the work is simply remembered. A recipient, money, a permission, secrecy, an address, a check that is
switched off: these are asked about first, because whoever gets one of them into memory has more than a wrong answer. The words are in
`lists/loosening.toml`, by what is done and not by how an order is built, in the forms that order or allow.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from holdfast.memory.word_lists import word_lists

_LISTS = word_lists("loosening")
_CONCEPTS = tuple((one["rule"], _LISTS.compiled(one["form"]), one["why"]) for one in _LISTS.tables["concepts"])
_ADDS_CHECK = _LISTS.pattern("adds_check")
_STANDING = _LISTS.pattern("standing")
_QUOTES = str.maketrans("‘’‚‛`´“”„«»", "''''''" + '"' * 5)


@dataclass(frozen=True, slots=True)
class Loosening:
    """What a text loosens: the stable name of the kind, why in words, and the words themselves."""

    rule: str
    why: str
    words: str


def find_loosening(text: str) -> Loosening | None:
    """What of a typed text has to be asked about, or None when it only says something or wishes something about the work.

    >>> find_loosening("Always run the tests before committing"), find_loosening("Send them without asking me").rule
    (None, 'permission')
    """
    plain = without_added_checks(text)
    for rule, pattern, why in _CONCEPTS:
        match = pattern.search(plain)
        if match:
            return Loosening(rule, why, match.group()[:80])
    return None


def find_standing(text: str) -> Loosening | None:
    """What of a text loosens a check for all later times, and not for this once.

    >>> find_standing("Send this to Bob"), find_standing("From now on send my reports to Bob").rule
    (None, 'recipient')
    """
    loosens = find_loosening(text)
    return loosens if loosens and _STANDING.search(without_added_checks(text)) else None


def without_added_checks(text: str) -> str:
    """The text in its compared form without what asks for a check ("nothing is deleted without asking me"): that is always welcome."""
    plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).translate(_QUOTES).lower()).strip()
    return _ADDS_CHECK.sub(" ", plain)
