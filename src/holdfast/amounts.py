"""Amounts in words: so many things, and some of many."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, one: str, many: str | None = None) -> str:
    """So many things, in words.

    >>> counted(1, "file"), counted(2, "file"), counted(0, "memory", "memories")
    ('1 file', '2 files', '0 memories')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def some(things: Iterable[str], most: int, between: str = ", ") -> str:
    """The first of many things and how many more there are; all of them where only one would be left out, which takes no more room.

    >>> some(["a", "b", "c"], 2), some(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    listed = list(things)
    if len(listed) <= most + 1:
        return between.join(listed)
    return f"{between.join(listed[:most])}{between.rstrip() if between.strip() == ';' else ''} and {len(listed) - most} more"
