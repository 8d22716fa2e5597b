"""A second, slower look at the best results by a cross-encoder, when one is installed. Without one the ranking word by word stands (K3)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

_LONGEST = 4000  # characters of a text: a cross-encoder reads about 512 word pieces


@runtime_checkable
class Reranker(Protocol):
    """Says how well each text answers a question. Safe for many threads."""

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """A number for each text, higher is better; comparable inside one call only."""


def load_reranker(model: str | None) -> tuple[Reranker | None, str]:
    """The cross-encoder of this name or path, or None and the reason, in words, why there is none."""
    if not model:
        return None, "no rerank_model is named"
    if find_spec("sentence_transformers") is None:
        return None, "sentence-transformers is not installed"
    try:
        return _CrossEncoder(model), ""
    except Exception as error:  # noqa: BLE001  # loading a model from outside fails in many ways: no file, no network, another format
        return None, f"the model could not be loaded ({type(error).__name__})"


class _CrossEncoder:
    """A model of sentence-transformers that reads question and text together."""

    def __init__(self, model: str) -> None:
        import importlib

        library: Any = importlib.import_module("sentence_transformers")
        self._model = library.CrossEncoder(model)

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return [float(value) for value in self._model.predict([(question, text[:_LONGEST]) for text in texts])]
