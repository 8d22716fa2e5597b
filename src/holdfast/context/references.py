"""What stands in the place of text that moved to the archive: a reference, or head, tail and reference (S10, S12, A11)."""

from __future__ import annotations

from collections.abc import Callable

Count = Callable[[str], int]


def cleared(id: str, tokens: int, place: str | None = None) -> str:
    """The reference that a cleared tool result leaves behind."""
    return f"[This result of {tokens} tokens was cleared to save room. {_where(id, place)}]"


def left(count: int) -> str:
    """The reference that stands for the oldest messages when no summary is made of them."""
    where = "Use search_history to find them and read_history to read them."
    return f"[The {count} oldest messages of this conversation are in its archive. {where}]"


def clipped(text: str, allowed: int, *, id: str, count: Count, place: str | None = None) -> str:
    """Head, tail and reference within `allowed` tokens; only the reference when there is no room for more. Text that fits stays
    as it is."""
    total = count(text)
    if total <= allowed:
        return text
    middle = f"\n[... about {total} tokens in all; the middle was moved out. {_where(id, place)} ...]\n"
    low, high = 0, len(text)
    while low < high:  # the most characters that fit: counts grow with length, so halving finds them
        size = (low + high + 1) // 2
        if count(_ends(text, size, middle)) <= allowed:
            low = size
        else:
            high = size - 1
    return _ends(text, low, middle) if low >= 40 else middle.strip()


def _ends(text: str, size: int, middle: str) -> str:
    head = size * 2 // 3
    tail = size - head
    return text[:head] + middle + (text[-tail:] if tail else "")


def _where(id: str, place: str | None) -> str:
    file = f" It is in the file {place}." if place else ""
    return f'Read it with read_history("{id}").{file}'
