"""Hits packed to a token budget by value (K4).

The best hit comes first. A round that is too long for what is left gives the one of its turns that matches best and still fits: an
assistant's answer is often ten times as long as what was asked, and half of a round is worth more than nothing. Weighing length against
score was tried and finds no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.knowledge.lexical import analyse
from holdfast.knowledge.records import Hit, Record
from holdfast.tokens.counter import TokenCounter, open_counter

_LEAST = 4  # tokens below which nothing fits that says anything


def packed(hits: Sequence[Hit], budget: int, counter: TokenCounter | None = None) -> list[Hit]:
    """The hits whose texts together fit the budget, in their order: whole, in part, or not at all."""
    count = (counter or open_counter()).count_until
    left, chosen = budget, []
    for hit in hits:
        if left < _LEAST:
            break
        fitting = [whole] if (whole := (count(hit.text, left), hit))[0] is not None else []
        if not fitting and len(hit.unit) > 1:
            parts = [_part(hit, record) for record in hit.unit]
            fitting = [(tokens, part) for part in parts if (tokens := count(part.text, left)) is not None]
        if fitting:
            tokens, best = max(fitting, key=lambda one: _matches(one[1])) if len(fitting) > 1 else fitting[0]
            chosen.append(best)
            left -= tokens or 0
    return chosen


def _part(hit: Hit, record: Record) -> Hit:
    return replace(hit, record=record, unit=(), why=replace(hit.why, notes=(*hit.why.notes, "one turn of a longer round")))


def _matches(part: Hit) -> int:
    """How many of the words that the whole was found by this part has. Of two with as many the first counts, which is what was asked."""
    counts = analyse(part.record).counts
    return sum(1 for word in part.why.words if word in counts)
