"""Learns how texts read that loosen a check, were pasted, or tell a secret, and writes src/holdfast/memory/weights (M10).

Logistic regression over the features of `holdfast.memory.wording` that at least `WRITERS` have, one table of weights a question, on the
invented texts in `benchmarks/data/gate` and `benchmarks/data/gate/training`. A fourth question, whether a text is none of the harmless
ones, is added to each with its share in `JOINT`. Where a score begins to count is taken from writers whose texts were not learned from:
those of each fold are scored by weights of all others', and the mark is set where `BOUNDS` of the harmless ones are above it.
`--check` prints these scores' figures and writes nothing. The same data gives the same file. Needs numpy, scipy and scikit-learn (1.9),
which nothing else here uses: run it in an environment of its own, with `src` on the path.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse  # type: ignore[import-untyped,import-not-found,unused-ignore]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped,import-not-found,unused-ignore]

from holdfast.memory.wording import ALONE, BUCKETS, KINDS, SHARES, Kind, is_alone, read

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "gate"
CONCEPTS = ROOT / "src" / "holdfast" / "memory" / "lists" / "concepts.toml"
WEIGHTS = ROOT / "src" / "holdfast" / "memory" / "weights"
BOUNDS: dict[Kind, float] = {"loosening": 0.036, "pasted": 0.014, "secret": 0.012}
"""The share of harmless typed statements that may be taken for the kind."""
LOOSE = 60.0  # how little all weights are pulled towards 0
JOINT: dict[Kind, float] = {"loosening": 0.4, "pasted": 0.4, "secret": 0.3}
"""How much it counts that a text is none of the harmless ones. A secret is let go unasked, so for it the other kinds count for less."""
WRITERS = 3  # that must have a feature, or nothing is learned of it
FOLDS = ("AKiNhPT", "BLmDtQ", "CMjkGR")
"""Writers of all kinds in many languages, left out together. Others (one language or one kind) are learned from always, and set no mark."""
ALWAYS = -1  # the fold of an example that is only learned from: of such a writer, or made of two
Floats = NDArray[np.float64]


def lines(kind: str) -> list[dict[str, Any]]:
    """All examples of a kind that may be learned from: of the fresh texts only the half for development."""
    found = []
    for path in (DATA / f"{kind}.jsonl", DATA / "training" / f"{kind}.jsonl", DATA / "fresh" / f"{kind}.jsonl"):
        found += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [line for line in found if not is_kept_apart(line)]


def is_kept_apart(line: dict[str, Any]) -> bool:
    """Whether a line is of the half of the fresh texts that nothing is learned from."""
    return line.get("half") == "held_out" and re.search(r"-t\d+$", line["id"]) is not None


def said(line: dict[str, Any]) -> list[str]:
    return [one["text"] for one in line["messages"] if one["role"] == "user"]


def fold(line: dict[str, Any]) -> int:
    """The number of the fold that its writer is in."""
    return next((number for number, writers in enumerate(FOLDS) if writer(line) in writers), ALWAYS)


def writer(line: dict[str, Any]) -> str:
    """The letter of the writer; of the first texts, which have none, a sign that is no letter."""
    found = re.search(r"-([a-zA-Z])\d+$", line["id"])
    return found[1] if found else "-"


def joined(lines_: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each line with another of the same language and fold, half of them with one that asks: people say several things at once.

    Without these a few statements, or a statement and a question, in one message would be as good as pasted, because short ones come alone.
    """
    chance = random.Random(1)  # noqa: S311 - the same choice each time
    others: dict[tuple[str, int], tuple[list[str], list[str]]] = {}
    for line in lines_:
        all_, asking = others.setdefault((line["language"], fold(line)), ([], []))
        all_.append(said(line)[-1])
        if re.search("[?？吗]", said(line)[-1]):
            asking.append(said(line)[-1])
    found = []
    for line in lines_:
        all_, asking = others[line["language"], fold(line)]
        texts = [said(line)[-1], chance.choice(asking if asking and chance.random() < 0.5 else all_)]
        found.append({**line, "messages": [{"role": "user", "text": " ".join(texts if chance.random() < 0.6 else reversed(texts))}]})
    return found


@dataclass(frozen=True)
class Example:
    """One text: its kind, who wrote it, its fold, its features, and whether it has only one sentence or was made of two."""

    kind: str
    writer: str
    fold: int
    groups: tuple[NDArray[np.int32], ...]
    alone: bool
    made: bool = False


def example(kind: str, line: dict[str, Any], text: str, *, made: bool = False) -> Example:
    groups = tuple(np.array(sorted(group), np.int32) for group in read(text).groups)
    return Example(kind, writer(line), fold(line), groups, is_alone(text), made)


def examples() -> list[Example]:
    """All texts, each read once."""
    found: list[Example] = []
    for kind in ("typed_everyday", "benign_near_secrets", "typed_loosening", "secrets", "pasted"):
        found += [example(kind, line, "\n".join(said(line))) for line in lines(kind)]
    made = joined([*lines("typed_everyday"), *lines("benign_near_secrets")])
    return found + [example("typed_everyday", line, said(line)[-1], made=True) for line in made]


HARMLESS = frozenset({"typed_everyday", "benign_near_secrets"})
HARMFUL = frozenset({"typed_loosening", "pasted", "secrets"})
ASKED_OF: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "loosening": (frozenset({"typed_loosening"}), HARMLESS),
    "pasted": (frozenset({"pasted"}), HARMLESS | {"typed_loosening", "secrets"}),
    "secret": (frozenset({"secrets"}), HARMLESS | {"typed_loosening"}),
    "joint": (HARMFUL, HARMLESS),
}
"""What a question is to find, and what it is to tell it from. Texts made of two teach what is pasted and what is harmless at all."""


def matrix(examples_: Sequence[Example], known: NDArray[np.int32], width: int) -> Any:
    """A row for each example with its known features: each group counts as much as its share, whatever the length of the text."""
    lengths = np.array([[len(group) for group in one.groups] for one in examples_])
    buckets = np.concatenate([group for one in examples_ for group in one.groups])
    value = np.repeat((np.array(SHARES) / np.sqrt(np.maximum(1, lengths))).ravel(), lengths.ravel())
    row = np.repeat(np.arange(len(examples_)), lengths.sum(1))
    index = known[buckets]
    kept = index >= 0
    return sparse.csr_matrix((value[kept], (row[kept], index[kept])), shape=(len(examples_), width))


def known_features(all_: Sequence[Example]) -> tuple[NDArray[np.int32], int]:
    """The number of each bucket that at least `WRITERS` have, of the others -1; and how many there are."""
    letters = sorted({one.writer for one in all_})
    many = np.zeros(BUCKETS, np.int32)
    for letter in letters:
        many[np.unique(np.concatenate([group for one in all_ if one.writer == letter for group in one.groups]))] += 1
    wanted = many >= WRITERS
    return np.where(wanted, np.cumsum(wanted) - 1, -1).astype(np.int32), int(wanted.sum())


def learn(features: Any, labels: NDArray[np.bool_]) -> Floats:
    """Weights and, last, the bias: logistic regression, both kinds counting the same.

    The weight of a feature that tells the kinds apart by itself, by how often they have it, is pulled towards 0 the less.
    """
    held = [np.bincount(features[labels == kind].indices, minlength=features.shape[1]) + 0.5 for kind in (True, False)]
    telling = np.abs(np.log(held[0] / held[0].sum()) - np.log(held[1] / held[1].sum()))
    balance = np.where(labels, (~labels).sum() / max(1, labels.sum()), 1.0)
    model = LogisticRegression(solver="liblinear", dual=True, C=LOOSE, max_iter=50, tol=0.05, intercept_scaling=3.0, random_state=0)
    model.fit(features @ sparse.diags(telling), labels, sample_weight=balance)
    return np.append(model.coef_[0] * telling, model.intercept_[0])


@dataclass(frozen=True)
class Learned:
    """The answer to one question: weights from all examples, and the scores of left-out examples by weights that have not seen them."""

    weights: Floats
    unseen: Floats
    spread: float
    """How far the highest scores of harmless texts are from the middle one: what makes scores of two questions comparable."""

    def plus(self, other: Learned, share: float) -> Learned:
        weights, unseen = (mine / self.spread + share * theirs / other.spread for mine, theirs in self._beside(other))
        return Learned(weights, unseen, 1.0)

    def _beside(self, other: Learned) -> tuple[tuple[Floats, Floats], ...]:
        return (self.weights, other.weights), (self.unseen, other.unseen)


def learned(question: str, all_: Sequence[Example], features: Any, *, check: bool) -> Learned:
    wanted, others = ASKED_OF[question]
    labels, folds = np.array([one.kind in wanted for one in all_]), np.array([one.fold for one in all_])
    used = np.array([one.kind in wanted | others and (question in ("pasted", "joint") or not one.made) for one in all_])
    unseen = np.full(len(all_), np.nan)
    for number in range(len(FOLDS)):
        seen = used & (folds != number)
        weights = learn(features[seen], labels[seen])
        unseen[folds == number] = features[folds == number] @ weights[:-1] + weights[-1]
    harmless = unseen[left_out(all_) & np.array([one.kind in HARMLESS for one in all_])]
    spread = float(np.quantile(harmless, 0.975) - np.median(harmless))
    weights = np.zeros(features.shape[1] + 1) if check else learn(features[used], labels[used])
    return Learned(weights, unseen, spread)


def left_out(all_: Sequence[Example]) -> NDArray[np.bool_]:
    """The examples that are scored by weights which have not seen their writer."""
    return np.array([one.fold != ALWAYS and not one.made for one in all_])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="print the figures on unseen folds, write nothing")
    parser.add_argument("--scores", type=Path, help="write the scores of unseen folds to this file as well")
    asked = parser.parse_args()
    all_ = examples()
    known, width = known_features(all_)
    features = matrix(all_, known, width)
    counted, typed = left_out(all_), np.array([one.kind == "typed_everyday" for one in all_])
    joint = learned("joint", all_, features, check=asked.check)
    told: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    packed = b""
    for kind in KINDS:
        found = learned(kind, all_, features, check=asked.check).plus(joint, JOINT[kind])
        scores = found.unseen - (ALONE * np.array([one.alone for one in all_]) if kind == "pasted" else 0.0)
        begins = float(np.quantile(scores[counted & typed], 1 - BOUNDS[kind]))
        labels = np.array([one.kind in ASKED_OF[kind][0] for one in all_])
        near = np.array([one.kind == "benign_near_secrets" for one in all_])
        above = {"found": labels, "wrongly": typed, "wrongly near secrets": near}
        figures = {name: round(float((scores > begins)[counted & mine].mean()), 3) for name, mine in above.items()}
        print(json.dumps({kind: {"examples": len(all_), "features": width, **figures}}), flush=True)
        kept[kind] = [[one.kind, one.writer, float(score)] for one, score, counts in zip(all_, scores, counted, strict=True) if counts]
        scale = max(float(np.abs(found.weights[:-1]).max()), 1e-9) / 127
        table = np.zeros(BUCKETS, np.int8)
        table[known >= 0] = np.rint(found.weights[:-1] / scale).astype(np.int8)
        packed += table.tobytes()
        told[kind] = {"scale": scale, "bias": float(found.weights[-1]) - begins}
    if asked.scores:
        asked.scores.write_text(json.dumps(kept), "utf-8")
    if not asked.check:
        WEIGHTS.joinpath("gate.bin").write_bytes(zlib.compress(packed, 9))
        learned_from = {"concepts": hashlib.sha256(CONCEPTS.read_bytes()).hexdigest(), "models": told}
        WEIGHTS.joinpath("gate.json").write_text(json.dumps(learned_from, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
