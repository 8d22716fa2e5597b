"""What is to be forgotten, and how to tell. No files here, and nothing is half forgotten: a record that matches goes as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.context.records import MessageRecord, Record, restored, written
from holdfast.errors import InputError
from holdfast.text.normalise import normalise

_OURS = frozenset({"schema", "kind", "seq", "time", "mark", "after", "covers", "role", "type", "exact", "tokens"})  # nobody's words


class Oblivion:
    """A text or ids to be forgotten. Text is found in any case, style of quotes and spacing, wherever it stands in a record."""

    def __init__(self, *, text: str | None = None, ids: Collection[str] | None = None) -> None:
        if (text is None) == (ids is None):
            raise InputError("say what to forget: either a text or ids.")
        self._ids = None if ids is None else {ids} if isinstance(ids, str) else set(ids)
        self._needle = normalise(text or "")
        if self._ids is None and not self._needle:
            raise InputError("the text to forget is empty.", hint="Give some words of it.")

    def takes(self, record: Record) -> bool:
        """Whether this record goes."""
        if self._ids is not None:
            return record.id in self._ids
        said = {key: value for key, value in written(record).items() if key not in _OURS}
        return any(self._needle in normalise(string) for string in _strings(restored(said)))

    def scrubbed(self, record: Record) -> Record:
        """A record that stays, without links whose name shows what is forgotten."""
        if self._ids is not None:
            return record
        if isinstance(record, MessageRecord):
            return dataclasses.replace(record, after=None) if self._needle in normalise(record.after or "") else record
        return dataclasses.replace(record, covers=tuple(id for id in record.covers if self._needle not in normalise(id)))

    def shows_in(self, data: bytes) -> bool:
        """Whether bytes that are no sound record any more still show it, as text or in JSON's escapes."""
        readable = data.decode("utf-8", "replace")
        shown = normalise(readable + "\n" + _unescaped(readable))
        needles = [self._needle] if self._ids is None else [normalise(id) for id in self._ids]
        return any(needle in shown for needle in needles if needle)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
