"""Documents that stand in a vector store, read as records: those of other machines that share theirs, and those of other programs.

What the metadata says in the usual words (tags, date, source, author) is understood; all of it is kept in `extra`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from holdfast.errors import InputError
from holdfast.knowledge.periods import read_moment
from holdfast.knowledge.records import Record, from_json
from holdfast.knowledge.vector_store import Found

RECORD = "holdfast_record"
"""The member of a document's metadata that holds a record which is shared."""
_USUAL = {
    "source": ("source", "url", "file_path", "path"),
    "session": ("session", "session_id", "thread_id"),
    "speaker": ("speaker", "author"),
}


def records_of(found: Iterable[Found]) -> list[Record]:
    """The records that documents of a vector store stand for, each once. What only its owner can read is left out."""
    records: dict[str, Record] = {}
    for one in found:
        record = _shared_record(one) if one.ours else _foreign_record(one)
        if record is not None:
            records.setdefault(record.id, record)
    return list(records.values())


def _shared_record(one: Found) -> Record | None:
    try:
        return from_json(json.loads(str(one.metadata[RECORD])))
    except (KeyError, ValueError, InputError):
        return None


def _foreign_record(one: Found) -> Record | None:
    """A document of another program as a record: its text, and what its metadata says in the usual words."""
    said = {str(name).lower(): value for name, value in one.metadata.items()}
    id = one.key if 0 < len(one.key) <= 200 else blake2b(one.text.encode("utf-8", "replace"), digest_size=12).hexdigest()
    tags = said.get("tags")
    words = tags.split(",") if isinstance(tags, str) else [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    texts: dict[str, Any] = {name: next((str(said[key]) for key in keys if said.get(key)), None) for name, keys in _USUAL.items()}
    try:
        return Record(
            one.text,
            id=id,
            tags=tuple(word.strip() for word in words if word.strip()),
            time=_moment(said),
            kind="document",
            extra=json.loads(json.dumps(dict(one.metadata), default=str)),
            **texts,
        )
    except InputError:
        return None


def _moment(said: Mapping[str, Any]) -> datetime | None:
    for name in ("time", "date", "timestamp", "created_at", "updated_at"):
        value = said.get(name)
        try:
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11:
                return datetime.fromtimestamp(value, UTC)
            if isinstance(value, str) and value:
                return read_moment(value)
        except (InputError, ValueError, OverflowError):
            continue
    return None
