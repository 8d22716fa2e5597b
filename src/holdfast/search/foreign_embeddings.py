"""Embeddings of other libraries as an `Embedder`: anything with `embed_documents` and `embed_query`, the form that LangChain gave them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ConfigError
from holdfast.search.embedding import Embedding

_BATCH = 64


class ForeignEmbeddings:
    """Vectors of whole texts, and none of words. `name` tells stores which vectors belong together."""

    def __init__(self, embeddings: Any, name: str) -> None:
        if not callable(getattr(embeddings, "embed_documents", None)) or not callable(getattr(embeddings, "embed_query", None)):
            raise ConfigError(
                f"{name} is no embedder: it has no `embed_documents` and `embed_query`.",
                key="knowledge.embedder",
                hint="Use a class of LangChain's embeddings, or one with `name`, `dimension` and `embed`.",
            )
        self._embeddings = embeddings
        self._path = name

    @property
    def name(self) -> str:
        """The class, and the model that it says it uses."""
        model = next(
            (value for key in ("model", "model_name", "model_id") if isinstance(value := getattr(self._embeddings, key, None), str)), ""
        )
        return f"{self._path}:{model}:{self.dimension}"

    @cached_property
    def dimension(self) -> int:
        """How many numbers a vector has, found out by asking for one."""
        return len(self._embeddings.embed_query("dimension"))

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        """One vector for each text; many texts are sent in batches."""
        if question:
            return [Embedding(_unit(self._embeddings.embed_query(text))) for text in texts]
        found: list[Embedding] = []
        for start in range(0, len(texts), _BATCH):
            found += [Embedding(_unit(vector)) for vector in self._embeddings.embed_documents(list(texts[start : start + _BATCH]))]
        return found


def _unit(vector: Sequence[float]) -> NDArray[np.float32]:
    array = np.asarray(vector, dtype=np.float32)
    return array / max(float(np.linalg.norm(array)), 1e-12)
