"""What each ingredient of the ranking is worth, on conversations with questions whose answers are known.

    python benchmarks/knowledge_ablation.py --data FILE [FILE ...]

A file has one conversation a line, in the form that `holdfast eval recall` takes. Each conversation goes into a SQLite store of its own;
every question is ranked once with all ingredients and once without each of them, and once by each alone. The same figures as there:
R@k in percent for evidence in turns; any@k, all@k and ndcg@10 for evidence in sessions.

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import holdfast.search.ranking as ranking
from holdfast.knowledge.base import asked_of
from holdfast.knowledge.evaluation import INGREDIENTS, TestConversation, measure_sessions, measure_turns, read_conversations
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.search.corpus import Corpus
from holdfast.search.questions import Asked, Weights
from holdfast.search.ranking import rank

NOTHING = Weights(**dict.fromkeys(INGREDIENTS, 0.0))
FULL = Weights()


@dataclass(frozen=True)
class Variant:
    """One way to rank: weights, whether turns have neighbours, and how many units are compared word by word."""

    weights: Weights = FULL
    neighbours: bool = True
    candidates: int = 200


VARIANTS: Mapping[str, Variant] = {
    "all": Variant(),
    **{f"without {name}": Variant(replace(FULL, **{name: 0.0})) for name in INGREDIENTS},
    "without neighbours": Variant(neighbours=False),
    **{f"{name} alone": Variant(replace(NOTHING, **{name: 1.0}), candidates=1_000_000) for name in INGREDIENTS[:4]},
    **{f"{count} candidates": Variant(candidates=count) for count in (50, 100, 1_000_000)},
}


@dataclass
class Prepared:
    """A conversation in a store, with its questions as the ranking needs them."""

    conversation: TestConversation
    corpus: Corpus
    names: list[str]
    asked: list[tuple[Asked, frozenset[str]]]
    tokens: Any


def prepared(conversation: TestConversation, store: SqliteStore) -> Prepared:
    store.add(conversation.records)
    store.search("anything")  # so that the index is read
    index = store._index
    assert index is not None
    corpus = index.corpus
    ids = dict(store.database.execute("SELECT number, id FROM records").fetchall())
    newest = max((record.time for record in conversation.records if record.time), default=None)
    asked = [
        (asked_of(question.text, question.now or newest or store._clock.now(), index.compact), question.evidence)
        for question in conversation.questions
        if question.evidence
    ]
    return Prepared(conversation, corpus, [conversation.named[ids[number]] for number in corpus.numbers.tolist()], asked, index.tokens)


def rows_of(one: Prepared, variant: Variant) -> Iterator[dict[str, float]]:
    """The figures of every question of a conversation, ranked in this way."""
    corpus = one.corpus if variant.neighbours else replace(one.corpus, line=-1 - np.arange(one.corpus.units), _cache={})
    by_turn = one.conversation.unit == "turn"
    ranking._CANDIDATES, ranking._DEEPER = variant.candidates, 1  # so that exactly these are looked at, or as many as are wanted
    for asked, evidence in one.asked:
        found = rank(asked, corpus, tokens=one.tokens, limit=50 if by_turn else 200, weights=variant.weights)
        units = [corpus.order[corpus.unit_starts[hit.unit] : corpus.unit_starts[hit.unit + 1]] for hit in found]
        yield (measure_turns if by_turn else measure_sessions)([_named(one, rows) for rows in units], evidence)


def _named(one: Prepared, rows: NDArray[np.int64]) -> list[str]:
    return [one.names[row] for row in rows.tolist()]


def ablation(path: str, folder: Path) -> dict[str, dict[str, float]]:
    """The mean figures of every variant on one file."""
    sums: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for number, conversation in enumerate(read_conversations(path)):
        with SqliteStore(folder / f"{Path(path).name}-{number}.db") as store:
            one = prepared(conversation, store)
            for name, variant in VARIANTS.items():
                sums[name] += rows_of(one, variant)
    return {name: {figure: round(float(np.mean([row[figure] for row in rows])), 4) for figure in rows[0]} for name, rows in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], help="files of conversations with questions")
    paths = parser.parse_args().data
    if not paths:
        print(json.dumps({"skipped": "no data was given: name files with --data"}))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({Path(path).name: ablation(path, Path(folder)) for path in paths}, indent=2))


if __name__ == "__main__":
    main()
