"""The messages that an archive's index found by their words, ranked again by words, meaning and what stands beside them (K3, S9).

The index finds candidates among any number of messages; only these and their neighbours are compared by meaning, with the one ranking of
`search/`. Vectors are made when a message is a candidate for the first time and kept in the index, a bounded number at a time: a long
archive that nobody has searched before costs no more than a short one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from math import log
from typing import TYPE_CHECKING

from holdfast.errors import StorageError
from holdfast.search.embedding import load_embedder
from holdfast.search.fulltext import Found, FullTextIndex, Indexed
from holdfast.search.pieces import cut_for_meaning
from holdfast.search.plain_ranking import Entry
from holdfast.search.questions import Asked, certainty, logistic, weigh

if TYPE_CHECKING:
    from holdfast.search.vectors import Compact

CANDIDATES = 100
_REACH = 2  # neighbours on each side that are compared too
_AT_ONCE, _BESIDES = 200, 32  # pieces that one search embeds at most: of what it looks at, and of others that wait
_READ = 5000  # characters of a question that are embedded

Said = Callable[[Indexed], str]
"""The words of a piece, with the name of who said it where there is one."""


@cache
def vectors() -> Compact | None:
    """The embedder of all archives of this process; None where the extra `vectors` is not installed."""
    embedder = load_embedder("auto")
    if embedder is None:
        return None
    from holdfast.search.vectors import Compact

    return Compact(embedder)


def one_thread() -> ThreadPoolExecutor:
    """The thread in which all archives of this process are compared by meaning; a forked child gets one of its own."""
    return _thread_of(os.getpid())


@cache
def _thread_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "history")


def by_words(question: str, found: Sequence[Found], index: FullTextIndex) -> list[Found]:
    """These candidates in their order, each with how sure it is by its words alone."""
    rarity, all_of_it = weigh(question, index).rarity, log(index.records + 2)
    rated = []
    for hit in found:
        shared = sum(rarity.get(term, 0.0) * index.met(gain, rarity.get(term, 0.0)) for term, gain in hit.matched.items())
        rated.append(replace(hit, score=logistic(_WORDS[0] * shared / all_of_it + _WORDS[1])))
    return rated


def by_meaning(
    question: str, found: Sequence[Found], index: FullTextIndex, said: Said, compact: Compact, *, kinds: Collection[str], top_k: int
) -> list[Found]:
    """The best of these candidates in the order of the one ranking, each document once and with how sure it is."""
    from holdfast.search.corpus import Corpus
    from holdfast.search.ranking import rank
    from holdfast.search.segments import build

    candidates = {one.row: one for one in found}
    near = {row + step for row in candidates for step in range(-_REACH, _REACH + 1)}
    indexed = {row: piece for row, piece in index.indexed(near).items() if row in candidates or piece.kind in kinds}
    meanings = _meanings(index, indexed, list(candidates), said, compact)
    rarity = weigh(question, index).rarity
    corpus = Corpus.of([build(list(_entries(indexed, meanings, rarity.keys(), compact.dimension)), compact.dimension)])

    def kept(rows: Sequence[int]) -> dict[int, bytes]:
        return {row: meanings[row][1] for row in rows if row in meanings}

    result = rank(
        _asked(question, compact),
        corpus,
        known=index,
        allowed=corpus.rows_with(candidates),
        tokens=lambda rows: corpus.tokens_of(rows, corpus.meaning, compact.token_dimension, kept),
        limit=2 * top_k,  # a long document may be in it by several of its pieces
    )
    information = sum(rarity.values()) / log(index.records + 2)
    best: dict[str, Found] = {}
    for one in result:
        hit = candidates[one.members[0]]
        if hit.id not in best:
            best[hit.id] = replace(hit, score=certainty(one.token, one.sentence, information))
    return list(best.values())[:top_k]


_WORDS = (9.7, -5.3)
"""How sure a hit is by its words alone, see `search/questions.py: certainty`."""


def _asked(question: str, compact: Compact) -> Asked:
    (embedding,) = compact.embedder.embed([question[:_READ]], question=True)
    vector, tokens = compact.asked(embedding)
    return Asked(question, vector, tokens, embedding.words)


def _entries(
    indexed: Mapping[int, Indexed], meanings: Mapping[int, tuple[bytes, bytes]], asked: Collection[str], dimension: int
) -> Iterable[Entry]:
    """What the ranking knows of each piece: how often it has the terms that are asked for, how long it is, its vectors.

    Pieces that follow each other without a gap are neighbours.
    """
    from holdfast.search.segments import with_vectors

    run, last = "", None
    for row in sorted(indexed):
        piece = indexed[row]
        if last is None or last[0] != row - 1 or last[1] != piece.scope:
            run = str(row)
        last = (row, piece.scope)
        terms = [*piece.terms["text"], *piece.terms["calls"]]
        counts = Counter(term for term in terms if term in asked)
        entry = Entry(row, run, row, 0, _moment(piece.time), None, counts, piece.language, row, size=len(terms))
        yield with_vectors(entry, meanings[row][0], dimension) if row in meanings else entry


def _meanings(
    index: FullTextIndex, indexed: Mapping[int, Indexed], first: Sequence[int], said: Said, compact: Compact
) -> dict[int, tuple[bytes, bytes]]:
    """The vectors of these pieces. Those that have none yet get some: the candidates first, then what stands beside them, then others."""
    known = index.meanings(indexed) if index.note("meanings") == compact.name else {}
    missing = [row for row in dict.fromkeys([*first, *indexed]) if row in indexed and row not in known][:_AT_ONCE]
    if not missing:
        return known
    more = index.indexed(set(index.without_meaning(_BESIDES)) - indexed.keys()) if known else {}
    texts = {row: cut_for_meaning(said(piece)) for row, piece in [*((row, indexed[row]) for row in missing), *more.items()]}
    made = compact.embed({row.to_bytes(8, "big"): pieces for row, pieces in texts.items()})
    fresh = {int.from_bytes(key, "big"): (meaning.vectors, meaning.tokens) for key, meaning in made.items()}
    with suppress(StorageError):  # they are made again by the next search
        index.keep_meanings(fresh, by=compact.name)
    return known | fresh


def _moment(time: str) -> int | None:
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1000)
    except ValueError:
        return None
