"""A knowledge store that is a folder of Markdown files, one for each record, searched by keywords. Nothing to install (K2).

    store = MarkdownStore("knowledge")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

The files are the store. A person may edit, add and remove them with any editor: changes are noticed by the next call. A file without a
head is a record as well. A file whose head does not make sense is named in `stats().problems` and never touched.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from holdfast.clock import Clock, SystemClock
from holdfast.durable.disk import REAL, make_folders, read_whole
from holdfast.durable.lock import Lock
from holdfast.errors import InputError, StorageError
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.knowledge import markdown_files as files
from holdfast.knowledge.lexical import analyse
from holdfast.knowledge.markdown_cache import Cache, Held
from holdfast.knowledge.markdown_form import parse, render
from holdfast.knowledge.markdown_shelf import Shelf
from holdfast.knowledge.records import Hit, Record, merged
from holdfast.knowledge.shortlist import packed
from holdfast.knowledge.store import AddReport, Filter, Needle, Progress, Stats, check_question, summed_up
from holdfast.tokens.counter import TokenCounter

_BATCH = 128  # each of them is an open file for a moment
_WORTH_SAVING = 64  # files read anew before the cache is written again at the end: rewriting it for one note costs more than reading that


@dataclass(frozen=True, kw_only=True)
class RecordUnreadable(Event):
    """A file of a Markdown store cannot be understood. It is left as it is."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path}: {problem}"
    path: str
    problem: str


class MarkdownStore:
    """The records in the Markdown files below `root`. Meets `KnowledgeStore`."""

    def __init__(
        self, root: str | PathLike[str], *, clock: Clock | None = None, bus: Bus | None = None, counter: TokenCounter | None = None
    ) -> None:
        self.root = Path(root).absolute()
        self._clock = clock or SystemClock()
        self._bus = bus or process_bus
        self._counter = counter
        self._threads = threading.RLock()
        self._lock = Lock(self.root / files.OWN_FOLDER / "lock", timeout=60.0)
        self._cache = Cache(self.root)
        self._shelf = Shelf()
        self._problems: dict[str, tuple[files.Stamp, str]] = {}
        self._unsaved = 0
        self._loaded = False
        if self.root.exists() and not self.root.is_dir():
            raise StorageError(f"{self.root} is not a folder.", path=self.root, operation="open", hint="Give a folder for Markdown files.")

    # Writing

    def add(self, records: Iterable[Record], *, progress: Progress | None = None) -> AddReport:
        total = len(records) if isinstance(records, Collection) else None
        pending = iter(records)
        report = AddReport()
        while batch := list(islice(pending, _BATCH)):
            report += self._add(batch)
            if progress is not None:
                progress(len(report.ids), total)
        return report

    def _add(self, batch: list[Record]) -> AddReport:
        with self._threads:
            make_folders(REAL, str(self.root))
            with self._lock:
                self._refresh()
                changed: dict[str, Record] = {}
                for record in batch:
                    old = changed.get(record.id) or self._shelf.record(record.id)
                    new = record if old is None else merged(old, record)
                    if new != old:
                        changed[record.id] = new
                updated = sum(1 for id in changed if self._shelf.record(id) is not None)
                placed = self._placed(changed.values())
                stamps = files.put_all(self.root, {path: render(record) for path, record in placed.items()})
                for path, record in placed.items():
                    self._shelf.put(path, Held(stamps[path], record, analyse(record)))
                self._shelf.settle()
                self._unsaved += len(placed)
        return AddReport(len(changed) - updated, updated, len(batch) - len(changed), ids=tuple(record.id for record in batch))

    def _placed(self, records: Iterable[Record]) -> dict[str, Record]:
        """The file of each record: the one it has, else a new name that nothing else has."""
        found: dict[str, Record] = {}
        for record in records:
            path = self._shelf.path(record.id)
            if path is None:
                path = wanted = files.name_of(record)
                number = 1
                while path in found or (self.root / path).exists():
                    number += 1
                    path = f"{wanted.removesuffix('.md')}-{number}.md"
            found[path] = record
        return found

    def forget(self, ids: Iterable[str]) -> int:
        wanted = list(dict.fromkeys(ids))
        with self._threads:
            if not self.root.is_dir():
                return 0
            with self._lock:
                self._refresh()
                gone = {id: paths for id in wanted if (paths := self._shelf.paths(id))}
                if gone:
                    self._remove([path for paths in gone.values() for path in paths])
        return len(gone)

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        with self._threads:
            if not self.root.is_dir():
                return []
            with self._lock:
                self._refresh()
                gone = {path: held.record.id for path, held in self._shelf.held.items() if held.record in needle}
                unreadable = [path for path in self._problems if needle.shows_in(self._raw(path))]
                self._remove([*gone, *unreadable])
        return [*dict.fromkeys(gone.values()), *unreadable]

    def _remove(self, paths: Collection[str]) -> None:
        """Out of the cache first: when it is interrupted after that, asking again finds the files that are left."""
        self._cache.drop()
        files.sweep_all(self.root)
        files.remove_all(self.root, paths)
        self._refresh()
        self._save()

    def _raw(self, path: str) -> bytes:
        try:
            return read_whole(REAL, str(self.root / path))
        except FileNotFoundError:
            return b""

    # Reading

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        tags: Collection[str] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        session: str | None = None,
        budget: int | None = None,
        now: datetime | None = None,
    ) -> list[Hit]:
        question = check_question(query, top_k, budget)
        chosen = Filter.of(tags, after, before, session)
        with self._threads:
            self._refresh()
            hits = self._shelf.index.search(question, now or self._clock.now(), top_k, None if chosen.empty else chosen.admits)
        return hits if budget is None else packed(hits, budget, self._counter)

    def get(self, id: str) -> Record | None:
        with self._threads:
            self._refresh()
            return self._shelf.record(id)

    def records(
        self, *, tags: Collection[str] = (), after: datetime | None = None, before: datetime | None = None, session: str | None = None
    ) -> Iterator[Record]:
        chosen = Filter.of(tags, after, before, session)
        with self._threads:
            self._refresh()
            found = self._shelf.records()
        return (record for record in found if chosen.admits(record))

    def stats(self) -> Stats:
        with self._threads:
            self._refresh()
            size = sum(held.stamp.size for held in self._shelf.held.values()) + self._cache.size()
            said = [(path, problem) for path, (_, problem) in self._problems.items()]
            said += [(path, f"it has the same id as {other}, which counts.") for path, other in self._shelf.doubles()]
            problems = [f"{self.root / path}: {problem}" for path, problem in sorted(said)]
            return summed_up(self._shelf.records(), "markdown", str(self.root), size, problems)

    def close(self) -> None:
        with self._threads:
            if self._unsaved >= max(_WORTH_SAVING, len(self._shelf.held) // 50) and self.root.is_dir():
                with self._lock:
                    self._refresh()  # somebody may have forgotten something meanwhile, which must not come back by our cache
                    self._save()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _save(self) -> None:
        self._cache.save(self._shelf.held)
        self._unsaved = 0

    # Noticing what changed

    def _refresh(self) -> None:
        """Bring what is held in line with the files."""
        if not self._loaded:
            self._loaded = True
            for path, held in self._cache.load().items():
                self._shelf.put(path, held)
        seen = files.scan(self.root)
        for path in self._shelf.held.keys() - seen.keys():
            self._shelf.put(path, None)
        for path in self._problems.keys() - seen.keys():
            del self._problems[path]
        for path, stamp in seen.items():
            known, problem = self._shelf.held.get(path), self._problems.get(path)
            if stamp != (known.stamp if known is not None else problem[0] if problem is not None else None):
                self._shelf.put(path, self._read(path, stamp))
        self._shelf.settle()

    def _read(self, path: str, stamp: files.Stamp) -> Held | None:
        self._unsaved += 1
        self._problems.pop(path, None)
        try:
            record = parse(read_whole(REAL, str(self.root / path)), path)
        except FileNotFoundError:
            return None
        except (InputError, StorageError) as error:
            self._problems[path] = (stamp, str(error))
            self._bus.emit(RecordUnreadable(path=str(self.root / path), problem=str(error)))
            return None
        if record is None:
            self._problems[path] = (stamp, "it has no text.")
            return None
        return Held(files.settled(stamp), record, analyse(record))
