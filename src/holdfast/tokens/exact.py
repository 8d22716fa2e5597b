"""Exact counts with the real vocabularies of OpenAI's models (o200k, cl100k), offline, from the package rs-bpe.

A vocabulary is read into memory at the first count (0.1 to 0.3 s), never at import. A model whose vocabulary is not published starts from
the o200k count times the factor of its provider (`providers.py`).
"""

from __future__ import annotations

import importlib
import threading
from typing import Any, Protocol

from holdfast.tokens.counter import BaseCounter, Keep
from holdfast.tokens.providers import factor_of, vocabulary_of

_lock = threading.Lock()
_loaded: dict[str, Vocabulary] = {}


class Vocabulary(Protocol):
    """What is used of a vocabulary. Texts have no lone surrogates; special tokens are ordinary text to it."""

    def count(self, input: str) -> int: ...

    def count_till_limit(self, input: str, limit: int) -> int | None: ...

    def encode(self, input: str) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str | None: ...


def _extension() -> Any:
    """The compiled module, without any vocabulary. Raises ImportError."""
    return importlib.import_module("rs_bpe.bpe").openai  # by name: the package has no types


def _vocabulary(name: str) -> Vocabulary:
    found = _loaded.get(name)
    if found is None:
        with _lock:
            found = _loaded.get(name)
            if found is None:
                extension = _extension()
                found = _loaded[name] = extension.cl100k_base() if name == "cl100k" else extension.o200k_base()
    return found


def _clean(text: str) -> str:
    """Lone surrogates cannot be written as UTF-8 and so are in no request: each counts as a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


class ExactCounter(BaseCounter):
    """Counts with a real vocabulary. Raises ImportError when rs-bpe is not there; `open_counter` falls back then.

    `vocabulary` may be given, to count with another one.
    """

    def __init__(self, *, model: str | None = None, provider: str | None = None, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(model=model, provider=provider, factor=factor_of(model, provider))
        self.vocabulary_name = vocabulary_of(model) or "o200k"
        self._given = vocabulary
        if vocabulary is None:
            _extension()

    @property
    def _vocabulary(self) -> Vocabulary:
        return self._given or _loaded.get(self.vocabulary_name) or _vocabulary(self.vocabulary_name)

    def count_text(self, text: str) -> int:
        vocabulary = self._vocabulary
        try:
            count = vocabulary.count(text)
        except UnicodeEncodeError:
            count = vocabulary.count(_clean(text))
        return count if self.factor == 1.0 else self._scaled(count)

    def bound_text(self, text: str) -> int | None:
        """A token is at least one byte, and a character at most four."""
        size = len(text) if text.isascii() else 4 * len(text)
        return size if self.factor == 1.0 else self._scaled(size)

    def count_until(self, text: str, limit: int) -> int | None:
        if limit < 0:
            return None
        most = self._most(limit)
        try:
            count = self._vocabulary.count_till_limit(text, most)
        except UnicodeEncodeError:
            count = self._vocabulary.count_till_limit(_clean(text), most)
        return None if count is None else self._scaled(count)

    def _most(self, limit: int) -> int:
        """The largest count of the vocabulary that the factor takes to at most `limit`."""
        most = int(limit / self.factor) + 1
        while most > 0 and self._scaled(most) > limit:
            most -= 1
        return most

    def clip(self, text: str, limit: int, keep: Keep = "head") -> str:
        if limit <= 0:
            return ""
        if self.count_until(text, limit) is not None:
            return text
        most = self._most(limit)
        piece, size = text, max(64, most * 8)
        while size < len(text):
            piece = text[:size] if keep == "head" else text[len(text) - size :]
            if self._vocabulary.count_till_limit(_clean(piece), most) is None:
                break
            piece, size = text, size * 2
        tokens = self._vocabulary.encode(_clean(piece))
        return self._fitting(text, self._length(tokens, most, keep), limit, keep)

    def _length(self, tokens: list[int], most: int, keep: Keep) -> int:
        """How many characters the first (or last) tokens hold; a token that ends inside a character is left out with it."""
        for count in range(most, max(0, most - 8), -1):
            try:
                said = self._vocabulary.decode(tokens[:count] if keep == "head" else tokens[len(tokens) - count :])
            except (UnicodeDecodeError, ValueError):
                continue
            if said is not None and "�" not in (said[-1:] if keep == "head" else said[:1]):
                return len(said)
        return most // 2
