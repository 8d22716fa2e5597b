"""Whether something that a user types takes a check away or reaches beyond the conversation (M10).

What he wants of answers and of the work is simply remembered. A recipient, money, a permission, secrecy, an address, a check that is
switched off: these are asked about first, because whoever gets one of them into memory has more than a wrong answer. Addresses, "without
asking" and orders to set rules aside have a form (`lists/loosening.toml`). All else is told by how a text reads, as learned from examples
(`wording.py`): of strangers' texts, lists of words for it found 37 % and took 15 % of the harmless ones for it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from holdfast.memory.word_lists import word_lists
from holdfast.memory.wording import reads_loosening, speaks_of

_LISTS = word_lists("loosening")
_FORMS = tuple((one["rule"], _LISTS.compiled(one["form"]), one["why"]) for one in _LISTS.tables["concepts"])
_ADDS_CHECK = _LISTS.pattern("adds_check")
_STANDING = _LISTS.pattern("standing")
_KINDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("secrecy", ("hide", "fake"), "may keep something from somebody"),
    ("permission", ("alone", "authority", "access", "no_need", "without", "sign"), "may take a question or an approval away"),
    ("money", ("pay", "money"), "may let money be spent"),
    ("recipient", ("send",), "may give something to somebody"),
    ("check", ("check", "test", "backup", "warn", "security", "skip", "ignore"), "may take a check away"),
    ("permission", (), "may take a question or an approval away"),
)
"""What a text may be about that reads as if it loosened something: the concepts that it speaks of, the first that fits."""
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
    for rule, pattern, why in _FORMS:
        match = pattern.search(plain)
        if match:
            return Loosening(rule, why, match.group()[:80])
    if not plain.strip() or reads_loosening(text) <= 0:
        return None
    rule, _, why = next(kind for kind in _KINDS if not kind[1] or any(speaks_of(text, concept) for concept in kind[1]))
    return Loosening(rule, why, " ".join(text.split())[:80])


def find_standing(text: str) -> Loosening | None:
    """What of a text loosens a check for all later times, and not for this once.

    >>> find_standing("Send this to Bob"), find_standing("From now on send my reports to Bob").rule
    (None, 'recipient')
    """
    loosens = find_loosening(text)
    standing = _STANDING.search(without_added_checks(text)) or any(speaks_of(text, one) for one in ("always", "no_need", "no_more"))
    return loosens if loosens and standing else None


def without_added_checks(text: str) -> str:
    """The text in its compared form without what asks for a check ("nothing is deleted without asking me"): that is always welcome."""
    plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).translate(_QUOTES).lower()).strip()
    return _ADDS_CHECK.sub(" ", plain)
