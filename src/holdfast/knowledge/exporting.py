"""Writing out everything that a store holds: as JSON lines, or as a folder of Markdown files. Both can be imported again (K1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path

from holdfast.durable.replace import replace
from holdfast.errors import InputError
from holdfast.knowledge.markdown import write_folder
from holdfast.knowledge.records import Record, reading_order, to_json
from holdfast.knowledge.store import KnowledgeStore


def json_lines(store: KnowledgeStore, *, tags: Collection[str] = (), session: str | None = None) -> Iterator[str]:
    """Every record as one line of JSON, conversations together and in their order."""
    for record in _sorted(store, tags, session):
        yield json.dumps(to_json(record), ensure_ascii=False)


def export_lines(store: KnowledgeStore, path: str | PathLike[str], *, tags: Collection[str] = (), session: str | None = None) -> int:
    """Write all records to a file of JSON lines, durably; says how many."""
    lines = list(json_lines(store, tags=tags, session=session))
    replace(Path(path).absolute(), "".join(f"{line}\n" for line in lines).encode("utf-8"))
    return len(lines)


def export_markdown(store: KnowledgeStore, folder: str | PathLike[str], *, tags: Collection[str] = (), session: str | None = None) -> int:
    """Write all records as Markdown files, one for each, into a folder that is new or empty; says how many."""
    place = Path(folder)
    if place.is_dir() and any(place.iterdir()):
        raise InputError(f"{place} is not empty.", hint="Give a new folder: an export never mixes with what is there.")
    return write_folder(place, _sorted(store, tags, session))


def _sorted(store: KnowledgeStore, tags: Collection[str], session: str | None) -> list[Record]:
    return sorted(store.records(tags=tags, session=session), key=reading_order)
