"""Likeness word by word (late interaction): each word of a question looks for its best counterpart in a text, weighted by how rare it is.

A neighbour may supply a word that a turn itself leaves out ("it", "that trip"), but cannot count twice: the best is taken for each word of
the question before anything is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OWN = 0.85  # what other pieces of the same unit may supply
_STEP = 0.75  # and those of a neighbour, for each step away


class WordByWord:
    """Compares one question with many units."""

    def __init__(self, question: NDArray[np.float32], weights: Sequence[float]) -> None:
        self._question = question
        self._weights = np.asarray(weights, dtype=np.float32)
        self._total = float(self._weights.sum()) or 1.0

    def __call__(self, pieces: Sequence[Any], around: Sequence[tuple[int, Sequence[Any]]] = ()) -> float | None:
        """How much of the question the best piece of a unit answers, 0 to 1; None if it has none. `around` are pieces of neighbours."""
        rows = [self._best(piece) for piece in pieces]
        if not rows:
            return None
        lent = _OWN * np.max(rows, axis=0)
        for step, others in around:
            for piece in others:
                lent = np.maximum(lent, _STEP**step * self._best(piece))
        return max(float((self._weights * np.maximum(row, lent)).sum()) for row in rows) / self._total

    def _best(self, piece: NDArray[np.float32]) -> NDArray[np.float32]:
        """For each word of the question the square of its best cosine."""
        if not len(piece):
            return np.zeros(len(self._question), dtype=np.float32)
        best: NDArray[np.float32] = np.maximum((self._question @ piece.T).max(axis=1), 0.0) ** 2
        return best
