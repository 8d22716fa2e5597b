"""There is one ranking: with numpy or without it the same records answer a question in the same order with the same scores (K2, K3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.search.corpus import Corpus
from holdfast.search.pieces import WISH
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked
from holdfast.search.ranking import rank
from holdfast.search.segments import build

WORDS = ["heron", "ledger", "quay", "lantern", "orchard", "saddle", "violin", "may", "1999", "14"]
DAY = 86_400_000


@st.composite
def entries(draw: Any) -> list[Entry]:
    made = []
    for number in range(1, draw(st.integers(1, 14)) + 1):
        words = draw(st.lists(st.sampled_from([*WORDS, WISH]), min_size=1, max_size=60))
        made.append(
            Entry(
                number,
                draw(st.sampled_from([None, "a", "b"])),
                draw(st.one_of(st.none(), st.integers(0, 6))),
                draw(st.integers(0, 2)),
                draw(st.one_of(st.none(), st.integers(0, 20_000).map(lambda day: day * DAY))),
                draw(st.sampled_from([None, "Ann", "Bob Marsh"])),
                Counter(words),
                draw(st.sampled_from(["en", "de"])),
            )
        )
    return made


QUESTIONS = st.lists(st.sampled_from([*WORDS, "Ann", "Bob Marsh", "herons", "lanterne", "nowhere"]), min_size=1, max_size=5).map(" ".join)
PERIODS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 400), st.integers(1, 60)), max_size=2)


def shown(found: list[Ranked]) -> list[tuple[Any, ...]]:
    return [(one.members, one.words, one.time is None, one.speaker, one.wish) for one in found]


def numbers(found: list[Ranked]) -> list[float]:
    """Scores and nearness in time: single and double precision differ in the last places, so they are compared by likeness."""
    return [value for one in found for value in (one.score, one.keyword, one.time or 0.0)]


@settings(deadline=None)
@given(entries(), QUESTIONS, PERIODS, st.one_of(st.none(), st.sets(st.integers(1, 14))), st.integers(1, 20))
def test_plain_python_and_arrays_rank_alike(
    made: list[Entry], question: str, periods: list[tuple[int, int, int]], allowed: set[int] | None, limit: int
) -> None:
    asked = Asked(question, periods=[(start, start + days, fade) for start, days, fade in periods])
    corpus = Corpus.of([build(made, 0)])
    rows = None if allowed is None else [number in allowed for number in corpus.numbers.tolist()]
    arrays = rank(asked, corpus, allowed=None if rows is None else np.array(rows), limit=limit)
    plain = PlainIndex(made).rank(asked, allowed=allowed, limit=limit)
    assert shown(plain) == shown(arrays)
    assert numbers(plain) == pytest.approx(numbers(arrays), abs=1e-5)
