"""Records that the project makes up for its own measurements, and an embedder that costs nothing for them. Seeded: always the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from zlib import crc32

import numpy as np

from holdfast.knowledge.records import Record
from holdfast.search.embedding import Embedding
from holdfast.search.minilm import MiniLM, vocabulary

__all__ = ["Seeded", "questions", "talk"]

_TURNS = 30
_NAMES = ("Ann", "Bob", "Cid", "Dora")
_START = datetime(2024, 1, 1, tzinfo=UTC)


def _words() -> tuple[list[str], list[float]]:
    """Words with the frequencies of a language: the first are said a thousand times as often as the last."""
    found = [word for word in vocabulary() if word.isascii() and word.isalpha() and len(word) > 3][2000:14_000]
    return found, list(accumulate(1 / (place + 10) for place in range(len(found))))


def talk(count: int, seed: int = 5) -> Iterator[Record]:
    """Turns of conversations between two of four people, 30 turns each, two sentences a turn."""
    rng = random.Random(seed)
    words, weights = _words()
    for number in range(count):
        said = rng.choices(words, cum_weights=weights, k=rng.randint(8, 40))
        half = len(said) // 2
        text = f"{' '.join(said[:half]).capitalize()}. {' '.join(said[half:]).capitalize()}."
        session, place = divmod(number, _TURNS)
        name = _NAMES[(2 * session + number % 2) % 4]
        yield Record(text, session=f"talk-{session}", position=place, speaker=name, kind="turn", time=_START + timedelta(hours=session))


def questions(count: int, seed: int = 11) -> list[str]:
    """Questions of ten words about four random things."""
    rng = random.Random(seed)
    words, weights = _words()
    return [f"What did Bob say about the {' and '.join(rng.choices(words, cum_weights=weights, k=4))}?" for _ in range(count)]


class Seeded(MiniLM):
    """The default embedder for questions; a text that is stored gets vectors from a generator that its own characters seed."""

    name = "seeded"

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        return super().embed(texts, question=True) if question else [self._made(text) for text in texts]

    def _made(self, text: str) -> Embedding:
        said = max(1, round(len(text.split()) * 0.6))
        vectors = np.random.default_rng(crc32(text.encode())).standard_normal((said + 1, self.dimension), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Embedding(vectors[0], vectors[1:])
