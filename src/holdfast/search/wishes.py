"""Standing wishes: "Always give the units", "From now on call me Kit". They hold for questions that do not resemble them (K2).

A record that states one is indexed under a term of its own, `WISH`, which no question can ask for; the ranking raises it a little, so
that it stands before what is as far from the question. Only what is put as an order counts: "I always take the bus" is no wish.
"""

from __future__ import annotations

import re

WISH = "wish:"
"""The term of records that state a standing wish. A word of a text has no colon."""

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


def form_of_wishes() -> str:
    """A mark of what counts as a wish."""
    return _WISHED.pattern
