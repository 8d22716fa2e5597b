"""Vectors in the small form in which they are kept: the leading directions only, one byte a number.

What is lost is less than what another sentence of the same meaning would change; what is gained is a store an eighth of the size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.search.embedding import Embedder, Embedding

Floats = NDArray[np.float32]
WORD_SCALE = 127 / 0.6
"""What 1 is in the bytes of a word's vector. Numbers above .6 are cut: in a vector of length 1 with a hundred numbers they are rare."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is kept of a text's pieces.

    `vectors` is a scale for each piece, how many words each has, and then a byte for every number of their vectors; `tokens` is a byte for
    every number of the words' vectors.
    """

    vectors: bytes
    tokens: bytes


_AT_A_TIME = 32  # pieces


class Compact:
    """Makes vectors small, and questions comparable with them. Directions come from the embedder, where it has some."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        directions: Any = getattr(embedder, "directions", None)
        self._sentence: Floats | None
        self._token: Floats | None
        self._sentence, self._token = directions() if directions is not None else (None, None)
        self.dimension = embedder.dimension if self._sentence is None else self._sentence.shape[1]
        self.token_dimension = embedder.dimension if self._token is None else self._token.shape[1]
        self.name = f"{embedder.name}/{self.dimension}/{self.token_dimension}"
        """Changes when what is kept would not fit any more."""

    def embed(self, texts: Mapping[bytes, Sequence[str]]) -> dict[bytes, Meaning]:
        """The small form of these texts, given as their pieces, by the same keys.

        Some at a time, each time in the order of their length: what the model says of a piece is a hundred times its small form.
        """
        found: dict[bytes, Meaning] = {}
        group: dict[bytes, Sequence[str]] = {}
        for key, pieces in texts.items():
            group[key] = pieces
            if sum(map(len, group.values())) >= _AT_A_TIME:
                found |= self._embed(group)
                group = {}
        return found | self._embed(group)

    def _embed(self, texts: Mapping[bytes, Sequence[str]]) -> dict[bytes, Meaning]:
        pieces = [piece for one in texts.values() for piece in one]
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))
        made = dict(zip(order, self.embedder.embed([pieces[place] for place in order]), strict=True)) if pieces else {}
        found: dict[bytes, Meaning] = {}
        at = 0
        for key, one in texts.items():
            found[key] = self.kept([made[at + place] for place in range(len(one))])
            at += len(one)
        return found

    def kept(self, pieces: Sequence[Embedding]) -> Meaning:
        """The small form of a text whose pieces were embedded."""
        vectors = np.stack([piece.vector for piece in pieces]) if pieces else np.zeros((0, self.embedder.dimension), np.float32)
        shorter = vectors if self._sentence is None else vectors @ self._sentence
        scales, numbers = _bytes(shorter)
        tokens = [piece.tokens for piece in pieces if piece.tokens is not None]
        whole = len(tokens) == len(pieces) and bool(pieces)
        counts = np.array([len(one) for one in tokens] if whole else [0] * len(pieces), dtype="<u2")
        vectors_kept = scales.tobytes() + counts.tobytes() + numbers.tobytes()
        if not whole:
            return Meaning(vectors_kept, b"")
        words = np.concatenate(tokens)
        return Meaning(vectors_kept, _word_bytes(unit_length(words if self._token is None else words @ self._token)).tobytes())

    def hash_of(self, pieces: Sequence[str]) -> bytes:
        """The name under which the meaning of a text with these pieces is kept: computed once for equal texts."""
        return blake2b("\0".join((self.name, *pieces)).encode(errors="surrogatepass"), digest_size=16).digest()

    def asked(self, question: Embedding) -> tuple[Floats, Floats | None]:
        """The vectors of a question in the same directions: its own, and those of its words, of length 1."""
        vector = question.vector if self._sentence is None else question.vector @ self._sentence
        if question.tokens is None:
            return vector, None
        words = question.tokens if self._token is None else question.tokens @ self._token
        return vector, unit_length(words)


def read_vectors(kept: bytes, dimension: int) -> tuple[Floats, NDArray[np.uint16], NDArray[np.int8]]:
    """For each piece of a text its scale, how many words it has, and the bytes of its vector. ValueError if these are no such bytes."""
    count, rest = divmod(len(kept), dimension + 6)
    if rest:
        raise ValueError("not the vectors of this embedder")
    scales = np.frombuffer(kept, dtype="<f4", count=count)
    words = np.frombuffer(kept, dtype="<u2", count=count, offset=4 * count)
    return scales, words, np.frombuffer(kept, dtype=np.int8, offset=6 * count).reshape(count, dimension)


def _word_bytes(vectors: Floats) -> NDArray[np.int8]:
    """Vectors of length 1 on one scale for all, so that a product with them needs no division by their length."""
    return np.asarray(np.clip(np.rint(vectors * WORD_SCALE), -127, 127), dtype=np.int8)


def _bytes(vectors: Floats) -> tuple[Floats, NDArray[np.int8]]:
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.maximum(largest, 1e-12) / 127).astype("<f4")
    return scales, np.rint(vectors / scales[:, None]).astype(np.int8)


def unit_length(vectors: Floats) -> Floats:
    """Vectors brought to length 1, one or many."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12), dtype=np.float32)
