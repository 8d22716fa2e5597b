"""Makes src/holdfast/search/data/minilm-projection.npz: the directions in which the vectors of the default embedder differ most.

Every word of the model's vocabulary is embedded among nine others, in a shuffled order of a fixed seed; the leading directions of the
texts' vectors and of the words' vectors are kept. Nothing but the model goes into it, so that it can be made again anywhere.

    python scripts/make_projection.py
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from holdfast.search.minilm import MiniLM, vocabulary

TARGET = Path(__file__).parent.parent / "src" / "holdfast" / "search" / "data" / "minilm-projection.npz"
SENTENCE, TOKEN = 128, 128
TOGETHER = 10
SEED = 7


def leading(vectors: np.ndarray, count: int) -> np.ndarray:
    """The directions that hold most of the squared length, strongest first; the sign of each is fixed."""
    _, directions = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors.astype(np.float64))
    chosen = directions[:, ::-1][:, :count]
    return np.asarray(chosen * np.sign(chosen[np.abs(chosen).argmax(axis=0), range(count)]), dtype=np.float16)


def main() -> None:
    words = [word for word in vocabulary() if word.isascii() and word.isalpha() and len(word) > 2]
    random.Random(SEED).shuffle(words)  # noqa: S311  # a fixed order, not a secret
    made = MiniLM().embed([" ".join(words[at : at + TOGETHER]) for at in range(0, len(words), TOGETHER)])
    tokens = np.concatenate([one.tokens for one in made if one.tokens is not None])
    np.savez(TARGET, sentence=leading(np.stack([one.vector for one in made]), SENTENCE), token=leading(tokens, TOKEN))


if __name__ == "__main__":
    main()
