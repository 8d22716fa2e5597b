"""The document of a scope twice: as the log of its changes, which is the truth, and as the file that a person reads and edits (M6). Pure.

A change is one record with one sync; the file is put in its place after that without one. A record says in `file` what the file is to be
(`digest`) and how it looked before (`was`), so that a file that is behind is told from one that somebody edited. Where the file is not what
the log says (an edit, a document of an older version) the next record is preceded by one with the whole `state`. Folding the records from
the last `state` on gives the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from holdfast.durable import strict_json
from holdfast.errors import Damaged, StorageError
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.history import SCHEMA, Change, from_record, redone

Record = Mapping[str, Any]


@dataclass(frozen=True)
class FileFacts:
    """What a record says about the file: the digest of what it is to hold, and how the one looked that this takes the place of."""

    digest: str
    was: str | None = None


def written(document: Document) -> bytes:
    """The file of a document."""
    return strict_json.encode(to_json(document))


def digest_of(data: bytes) -> str:
    """Tells the contents of files apart."""
    return blake2b(data, digest_size=16).hexdigest()


def with_file(record: Record, facts: FileFacts | None) -> dict[str, Any]:
    """A record that says what the file is to be after it."""
    if facts is None:
        return dict(record)
    return {**record, "file": {"digest": facts.digest, **({} if facts.was is None else {"was": facts.was})}}


def file_facts(record: Record | None) -> FileFacts | None:
    """What a record says about the file. None if it does not: it is of an older version, or the file was an edit then."""
    value = record.get("file") if record is not None else None
    if not isinstance(value, Mapping) or not isinstance(value.get("digest"), str):
        return None
    return FileFacts(value["digest"], value.get("was"))


def state_record(document: Document, time: str) -> dict[str, Any]:
    """The record that holds a whole document."""
    return {"schema": SCHEMA, "state": to_json(document), "revision": document.revision, "time": time}


def is_state(record: Record) -> bool:
    """Whether a record holds a whole document, and no change."""
    return "state" in record


def states(records: Iterable[Record]) -> Iterator[Document | None]:
    """The whole documents in a log; None for one that cannot be read."""
    return (_state(record) for record in records if is_state(record))


@dataclass
class Folded:
    """What the records amount to: the document, None where they do not hold all of it, and the digests of its files, the newest last."""

    document: Document | None = None
    digests: list[str] = field(default_factory=list)


def fold(records: Iterable[Record]) -> Folded:
    """The document that a log holds. Only from the last `state` on, and only if no change since then is missing."""
    folded = Folded()
    for record in records:
        facts = file_facts(record)
        if is_state(record):
            folded = Folded(_state(record), [])
        elif folded.document is not None:
            folded.document = _next(folded.document, record)
        if facts is not None:
            folded.digests.append(facts.digest)
    return folded


def gathered(records: Iterable[Record]) -> Document:
    """All that a log knows, where it does not hold all of a document: what was ever added, and not removed since."""
    document = Document()
    for record in records:
        if is_state(record):
            document = (_state(record) or Document()).joined(document)
            continue
        change = _change(record)
        document = document if change is None or not change.differences else redone(document, change)
    return document


def _next(document: Document, record: Record) -> Document | None:
    change = _change(record)
    if change is None:
        return None
    if not change.differences:
        return document
    return redone(document, change) if change.revision == document.revision + 1 else None


def _change(record: Record) -> Change | None:
    try:
        return from_record(record)
    except Damaged:
        return None


def _state(record: Record) -> Document | None:
    try:
        return parse(record["state"])
    except StorageError:
        return None
