"""Reads the head of a GGUF file: what model it is, how large, how long its window, how it wants to be talked to.

Only the head is read, from a memory map, and every length in it is checked against the file, so that a cut or foreign
file gives a clear error before a runtime is asked to load it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ModelUnavailable

_SCALARS: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST = 10_000_000  # entries; a head that claims more is not one


@dataclass(frozen=True)
class GgufHead:
    """What the head of a model file says. `window` is the one it was trained with; `kv_bytes` is the cache per token."""

    architecture: str
    name: str
    parameters: int
    window: int
    chat_template: str
    kv_bytes: int
    file_size: int

    @property
    def takes_tools(self) -> bool:
        """Whether its chat template has a place for tools. Says nothing about how well the model uses them."""
        return "tools" in self.chat_template

    def memory(self, window: int, slots: int = 1) -> int:
        """About how many bytes it needs: the weights, the cache of keys and values, and room to compute."""
        return self.file_size + self.kv_bytes * window * slots + 64 * 2**20


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise ValueError("a length leads beyond the end of the file")

    def text(self) -> str:
        start, length = self.at + 8, self.scalar("Q")
        self.skip(length)
        return self.data[start : start + length].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """A value; arrays are passed over, as they are the vocabulary."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._pass_array()
        return self.scalar(_SCALARS[kind])

    def _pass_array(self) -> None:
        kind, count = self.scalar("I"), self.count()
        if kind == _STRING:
            for _ in range(count):
                self.skip(self.scalar("Q"))
        elif kind == _ARRAY:
            for _ in range(count):
                self._pass_array()
        else:
            self.skip(count * struct.calcsize(f"<{_SCALARS[kind]}"))

    def count(self) -> int:
        number = self.scalar("Q")
        if number > _MOST:
            raise ValueError(f"it claims {number} entries")
        return int(number)


def read_head(path: Path) -> GgufHead:
    """Read the head. Raises ModelUnavailable when there is no such file, or it is not a whole GGUF file."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelUnavailable(f"{path} is not a GGUF file.", hint="Local models must be in llama.cpp's GGUF format.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(_Reader(data))
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}.", hint="Give the path of a GGUF file.") from error
    except (struct.error, ValueError, KeyError, RecursionError) as error:
        raise ModelUnavailable(f"{path} is a damaged or cut GGUF file: {error}.", hint="Fetch the file again.") from error


def _parse(reader: _Reader) -> GgufHead:
    reader.skip(4)
    version = reader.scalar("I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of the format is not known")
    tensors, entries = reader.count(), reader.count()
    facts = {reader.text(): reader.value(reader.scalar("I")) for _ in range(entries)}
    parameters = last = 0
    for _ in range(tensors):
        reader.text()
        weights = 1
        for _ in range(reader.scalar("I")):
            weights *= reader.scalar("Q")
        reader.scalar("I")
        last = max(last, reader.scalar("Q"))
        parameters += weights
    if reader.at + last >= len(reader.data):
        raise ValueError("it ends before its last tensor")
    return _head(facts, parameters, len(reader.data))


def _head(facts: Mapping[str, Any], parameters: int, file_size: int) -> GgufHead:
    kind = str(facts.get("general.architecture", ""))

    def number(key: str, default: int = 0) -> int:
        value = facts.get(f"{kind}.{key}", default)
        return int(value) if isinstance(value, int | float) else default

    heads = number("attention.head_count", 1)
    width = number("embedding_length") // max(heads, 1)
    per_head = number("attention.key_length", width) + number("attention.value_length", width)
    return GgufHead(
        architecture=kind,
        name=str(facts.get("general.name") or facts.get("general.basename") or ""),
        parameters=parameters,
        window=number("context_length"),
        chat_template=str(facts.get("tokenizer.chat_template") or ""),
        kv_bytes=2 * number("block_count") * number("attention.head_count_kv", heads) * per_head,
        file_size=file_size,
    )
