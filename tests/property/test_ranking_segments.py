"""However records came to be in segments, the ranking is the same, and what was forgotten leaves no trace (K3, K5)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.search.corpus import Corpus
from holdfast.search.plain_ranking import Entry
from holdfast.search.questions import Asked
from holdfast.search.ranking import rank
from holdfast.search.segments import Segment, build, joined

WORDS = ["heron", "ledger", "quay", "lantern", "orchard", "saddle", "violin", "walnut"]
DIMENSION = 4


@st.composite
def entries(draw: Any) -> list[Entry]:
    made = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
        session = draw(st.sampled_from([None, "a", "b"]))
        pieces = draw(st.integers(0, 2))
        seed = np.random.default_rng(draw(st.integers(0, 2**16)))
        vectors = seed.integers(-127, 128, (pieces, DIMENSION)).astype(np.int8)
        made.append(
            Entry(
                number,
                session,
                draw(st.one_of(st.none(), st.integers(0, 5))),
                draw(st.integers(0, 2)),
                draw(st.one_of(st.none(), st.integers(0, 10**12))),
                draw(st.sampled_from([None, "Ann", "Bob"])),
                Counter(words),
                "en",
                number,
                np.full(pieces, 1 / 127, np.float32),
                np.zeros(pieces, np.uint16),
                vectors,
            )
        )
    return made


def answers(segments: list[Segment], question: str) -> list[tuple[list[int], float]]:
    corpus = Corpus.of([Segment.from_bytes(one.to_bytes()) for one in segments])
    vector = np.array([0.5, 0.5, 0.5, 0.5], np.float32)
    found = rank(Asked(question, vector), corpus, limit=50)
    units = [corpus.order[corpus.unit_starts[one.unit] : corpus.unit_starts[one.unit + 1]] for one in found]
    return [(corpus.numbers[rows].tolist(), round(one.score, 5)) for rows, one in zip(units, found, strict=True)]


def split(made: list[Entry], cut: int) -> list[Segment]:
    return [build(part, DIMENSION) for part in (made[:cut], made[cut:]) if part]


@settings(deadline=None)
@given(entries(), st.integers(0, 12), st.lists(st.sampled_from([*WORDS, "Ann"]), min_size=1, max_size=3))
def test_the_ranking_does_not_depend_on_how_records_are_spread_over_segments(made: list[Entry], cut: int, words: list[str]) -> None:
    question = " ".join(words)
    expected = answers([build(made, DIMENSION)], question)
    assert answers(split(made, cut), question) == expected
    assert answers([joined(split(made, cut))], question) == expected


@settings(deadline=None)
@given(entries(), st.integers(0, 12), st.sets(st.integers(1, 12)), st.sampled_from(WORDS))
def test_without_some_records_it_is_as_if_they_had_never_been_there(made: list[Entry], cut: int, gone: set[int], word: str) -> None:
    rest = [entry for entry in made if entry.number not in gone]
    left = [part for one in split(made, cut) if len(part := one.without(gone))]
    assert answers(left, word) == answers([build(rest, DIMENSION)] if rest else [], word)
    kept = {term for entry in rest for term in entry.counts}
    assert {term for one in left for term in one.terms} == kept
