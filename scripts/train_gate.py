"""Learns how texts read that loosen a check, were pasted, or tell a secret, and writes src/holdfast/memory/weights (M10).

Logistic regression over the features of `holdfast.memory.wording`, one table of weights a question, on the invented texts in
`benchmarks/data/gate` and `benchmarks/data/gate/training`. Where a score begins to count is taken from writers whose texts the weights were
not learned from: those of each one are scored by weights of all others', and the mark is set where `BOUNDS` of the harmless ones are above
it. `--check` prints these scores' figures and writes nothing. The same data gives the same file. Needs numpy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.pasted import message_parts
from holdfast.memory.wording import BUCKETS, SHARES, Groups, Kind, message_groups, part_groups, read

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "gate"
CONCEPTS = ROOT / "src" / "holdfast" / "memory" / "lists" / "concepts.toml"
WEIGHTS = ROOT / "src" / "holdfast" / "memory" / "weights"
BOUNDS: dict[Kind, float] = {"loosening": 0.035, "pasted": 0.012, "pasted_part": 0.5, "secret": 0.015}
"""The share of harmless examples that may be taken for the kind. Of the parts of a message with pasted text the mark is even odds."""
STRENGTH = 0.2  # of the pull of all weights towards 0
ALL_LANGUAGES = "kmABCD"
"""Writers of all kinds in all six languages, one fold each. Others (one language or one kind) are learned from always, and set no mark."""
FOLDS = len(ALL_LANGUAGES) + 1
LEARNED = 100  # added to the fold of an example that is only learned from: of such a writer, or made of two
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
    """The number of its writer: that of the first texts is the last one."""
    writer = re.search(r"-([e-su-yA-J])\d+$", line["id"])
    if writer is None:
        return FOLDS - 1
    return ALL_LANGUAGES.index(writer[1]) if writer[1] in ALL_LANGUAGES else LEARNED + FOLDS


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


def examples(kind: Kind) -> tuple[list[Groups], NDArray[np.bool_], NDArray[np.int_]]:
    """Features, labels and folds of all examples of a question."""
    everyday, benign, loosening = lines("typed_everyday"), lines("benign_near_secrets"), lines("typed_loosening")
    secrets, pasted = lines("secrets"), lines("pasted")
    rows: list[tuple[Groups, bool, int]] = []
    if kind == "pasted_part":
        for line in pasted:
            rows += [(groups, label, fold(line)) for groups, label in parts_of(line)]
    elif kind == "pasted":
        typed = [*everyday, *benign]
        rows += [(message_groups(said(line)[-1]), True, fold(line)) for line in pasted]
        rows += [(message_groups(said(line)[-1]), False, fold(line)) for line in (*typed, *loosening, *secrets)]
        rows += [(message_groups(said(line)[-1]), False, LEARNED + fold(line)) for line in joined(typed)]
    else:
        true = loosening if kind == "loosening" else secrets
        false = (*everyday, *benign) if kind == "loosening" else (*everyday, *benign, *loosening)
        rows += [(read("\n".join(said(line))).groups, True, fold(line)) for line in true]
        rows += [(read("\n".join(said(line))).groups, False, fold(line)) for line in false]
    return [row[0] for row in rows], np.array([row[1] for row in rows]), np.array([row[2] for row in rows])


def parts_of(line: dict[str, Any]) -> list[tuple[Groups, bool]]:
    """The parts of a message with pasted text, and which of them were pasted."""
    text = said(line)[-1]
    start = text.find(line["pasted"])
    end = start + len(line["pasted"])
    spans = message_parts(text)
    parts = [text[one:two] for one, two in spans]
    return [(part_groups(parts, number), start <= (one + two) / 2 < end) for number, (one, two) in enumerate(spans)]


class Features:
    """Rows of features with their values: each group counts as much as its share, whatever the length of the text."""

    def __init__(self, rows: Sequence[Groups], shares: Sequence[float]) -> None:
        lengths = [[len(group) for group in groups] for groups in rows]
        counts = np.array([sum(one) for one in lengths])  # never 0: each text has runs
        self.index = np.fromiter((feature for groups in rows for group in groups for feature in sorted(group)), np.int64, counts.sum())
        each = np.array([share / max(1, length) ** 0.5 for one in lengths for share, length in zip(shares, one, strict=True)])
        self.value = np.repeat(each, np.ravel(lengths))
        self.row, self.starts = np.repeat(np.arange(len(rows)), counts), np.cumsum(counts) - counts

    def telling(self, labels: NDArray[np.bool_]) -> Floats:
        """How much each feature tells the two kinds apart by itself: the root of the logarithm of how often they have it."""
        held = [np.bincount(self.index[labels[self.row] == kind], minlength=BUCKETS) + 0.5 for kind in (True, False)]
        return np.sqrt(np.abs(np.log(held[0] / held[0].sum()) - np.log(held[1] / held[1].sum())))

    def scores(self, weights: Floats) -> Floats:
        return np.asarray(np.add.reduceat(self.value * weights[self.index], self.starts) + weights[-1], dtype=np.float64)

    def gradient(self, residual: Floats) -> Floats:
        return np.append(np.bincount(self.index, weights=self.value * residual[self.row], minlength=BUCKETS), residual.sum())


def learn(features: Features, labels: NDArray[np.bool_]) -> Floats:
    """Weights and, last, the bias: logistic regression by L-BFGS, both kinds counting the same.

    The weight of a feature that tells the kinds apart by itself is pulled towards 0 the less.
    """
    telling = features.telling(labels)
    plain, features.value = features.value, features.value * telling[features.index]
    balance = np.where(labels, (~labels).sum() / max(1, labels.sum()), 1.0)
    pull = np.append(np.full(BUCKETS, STRENGTH), 0.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = features.scores(weights)
        value = float((balance * np.logaddexp(0, np.where(labels, -scores, scores))).sum() + 0.5 * (pull * weights**2).sum())
        return value, features.gradient(balance * (1 / (1 + np.exp(-scores)) - labels)) + pull * weights

    weights = np.zeros(BUCKETS + 1)
    value, slope = loss(weights)
    steps: list[tuple[Floats, Floats]] = []
    for _ in range(60):
        direction = _direction(slope, steps)
        size, descent = 1.0, float(slope @ direction)
        while True:
            there = weights + size * direction
            value_there, slope_there = loss(there)
            if value_there <= value + 1e-4 * size * descent or size < 1e-8:
                break
            size /= 2
        step, change = there - weights, slope_there - slope
        if step @ change > 1e-10:
            steps = [*steps[-9:], (step, change)]
        done = abs(value - value_there) < 3e-4 * abs(value)
        weights, value, slope = there, value_there, slope_there
        if done:
            break
    features.value = plain
    return np.append(weights[:-1] * telling, weights[-1])


def _direction(slope: Floats, steps: Sequence[tuple[Floats, Floats]]) -> Floats:
    direction = slope.copy()
    taken = []
    for step, change in reversed(steps):
        amount = float(step @ direction) / float(step @ change)
        taken.append(amount)
        direction -= amount * change
    if steps:
        step, change = steps[-1]
        direction *= float(step @ change) / float(change @ change)
    else:
        direction /= max(1.0, float(np.linalg.norm(slope)))
    for (step, change), amount in zip(steps, reversed(taken), strict=True):
        direction += step * (amount - float(change @ direction) / float(step @ change))
    return -direction


def unseen_scores(rows: list[Groups], labels: NDArray[np.bool_], folds: NDArray[np.int_], shares: Sequence[float]) -> Floats:
    """The score of each example by weights that were learned without its fold."""
    scores = np.zeros(len(rows))
    for number in range(FOLDS):
        rest, part = np.flatnonzero(folds % LEARNED != number), np.flatnonzero(folds == number)
        weights = learn(Features([rows[one] for one in rest], shares), labels[rest])
        scores[part] = Features([rows[one] for one in part], shares).scores(weights)
    return scores


def mark(kind: Kind, scores: Floats, labels: NDArray[np.bool_]) -> float:
    """From where on a score counts."""
    return 0.0 if kind == "pasted_part" else float(np.quantile(scores[~labels], 1 - BOUNDS[kind]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="print the figures on unseen folds, write nothing")
    asked = parser.parse_args()
    told: dict[str, Any] = {}
    packed = b""
    for kind, shares in SHARES.items():
        rows, labels, folds = examples(kind)
        scores = unseen_scores(rows, labels, folds, shares) if kind != "pasted_part" or asked.check else np.zeros(len(rows))
        real = folds < LEARNED
        begins = mark(kind, scores[real], labels[real])
        above = scores > begins
        found = {"examples": len(rows), "found": above[labels & real].mean(), "wrongly": above[~labels & real].mean()}
        print(json.dumps({kind: {name: round(float(value), 3) for name, value in found.items()}}))
        if asked.check:
            continue
        weights = learn(Features(rows, shares), labels)
        scale = float(np.abs(weights[:-1]).max()) / 127
        packed += np.rint(weights[:-1] / scale).astype(np.int8).tobytes()
        told[kind] = {"scale": scale, "bias": float(weights[-1]) - begins}
    if not asked.check:
        WEIGHTS.joinpath("gate.bin").write_bytes(packed)
        learned = {"concepts": hashlib.sha256(CONCEPTS.read_bytes()).hexdigest(), "models": told}
        WEIGHTS.joinpath("gate.json").write_text(json.dumps(learned, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
