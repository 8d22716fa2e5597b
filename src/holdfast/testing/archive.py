"""An archive in memory, for tests: the same promises as `FileArchive` but for surviving anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.context.archive import (
    Forgotten,
    Hit,
    Moment,
    Passage,
    Stats,
    check_thread,
    filtered,
    forgotten_of,
    hits_of,
    kinds_for,
    literal_hits,
    moment_text,
    passage_of,
    stats_of,
    wanted,
)
from holdfast.context.forgetting import Oblivion
from holdfast.context.history_index import SHAPE, document_of
from holdfast.context.records import MessageRecord, Record, SummaryRecord, record_from, written
from holdfast.context.thread_log import Catalogue
from holdfast.search.fulltext import FullTextIndex


class MemoryArchive:
    """Keeps everything in this process and forgets it at its end. Safe for many threads."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._records: dict[str, list[Record]] = {}
        self._next: dict[str, int] = {}
        self._indexes: dict[str, tuple[int, FullTextIndex]] = {}

    def add(self, thread: str, records: Iterable[Record]) -> int:
        name = check_thread(thread)
        with self._lock:
            fresh = self._catalogue(name).admit(list(records), time=stamp(self._clock.now()))
            if fresh:
                kept = [record for new in fresh if (record := record_from(written(new))) is not None]  # as it would come back from a file
                self._records.setdefault(name, []).extend(kept)
            return len(fresh)

    def has(self, thread: str, ids: Iterable[str]) -> set[str]:
        catalogue = self._catalogue(check_thread(thread))
        return {id for id in ids if catalogue.holds(id)}

    def read(self, thread: str, id: str, around: int = 0) -> Passage | None:
        messages = self._messages(check_thread(thread))
        return passage_of(self._catalogue(thread), id, around, lambda index: messages[index])

    def originals(self, thread: str, ids: Iterable[str]) -> dict[str, MessageRecord]:
        catalogue, messages = self._catalogue(check_thread(thread)), self._messages(thread)
        return {id: messages[index] for id in ids if (index := catalogue.find(id)) is not None}

    def search(
        self, thread: str, query: str, top_k: int = 5, *, role: str | None = None, after: Moment = None, before: Moment = None
    ) -> list[Hit]:
        name, kinds = check_thread(thread), kinds_for(role)
        since, until = moment_text(after), moment_text(before)
        messages = self._messages(name)
        if top_k < 1 or not query.strip() or not messages:
            return []
        found = self._index(name, messages).search(query, wanted(query, top_k), kinds=kinds, after=since, before=until)
        if found:
            return hits_of(query, found, lambda one: messages[one.ref], top_k)
        return literal_hits(query, filtered(reversed(messages), kinds, since, until), top_k)

    def messages(self, thread: str) -> list[MessageRecord]:
        messages = self._messages(check_thread(thread))
        return [messages[index] for index in self._catalogue(thread).order()]

    def summaries(self, thread: str) -> list[SummaryRecord]:
        return [record for record in self._records.get(check_thread(thread), []) if isinstance(record, SummaryRecord)]

    def threads(self) -> list[str]:
        return sorted(self._records)

    def stats(self, thread: str) -> Stats:
        return stats_of(check_thread(thread), self._catalogue(thread), 0)

    def forget(self, thread: str | None, *, text: str | None = None, ids: Collection[str] | None = None) -> Forgotten:
        oblivion = Oblivion(text=text, ids=ids)
        result = Forgotten()
        for name in self.threads() if thread is None else [check_thread(thread)]:
            result = forgotten_of(result, name, self._take(name, oblivion.takes), 0)
        return result

    def prune(self, older_than: datetime) -> Forgotten:
        limit = moment_text(older_than) or ""
        result = Forgotten()
        for name in self.threads():
            result = forgotten_of(result, name, self._take(name, lambda record: record.time < limit), 0)
            if not self._records[name]:
                del self._records[name]
        return result

    def _take(self, thread: str, matches: Callable[[Record], bool]) -> list[Record]:
        with self._lock:
            records = self._records.get(thread, [])
            gone = [record for record in records if matches(record)]
            if gone:
                self._next[thread] = self._catalogue(thread).next_seq
                self._records[thread] = [record for record in records if not matches(record)]
                self._indexes.pop(thread, None)
            return gone

    def _messages(self, thread: str) -> list[MessageRecord]:
        return [record for record in self._records.get(thread, []) if isinstance(record, MessageRecord)]

    def _catalogue(self, thread: str) -> Catalogue:
        catalogue = Catalogue()
        catalogue.next_seq = self._next.get(thread, 1)
        for number, record in enumerate(self._records.get(thread, [])):
            catalogue.learn(written(record), (number, number + 1))
        return catalogue

    def _index(self, thread: str, messages: list[MessageRecord]) -> FullTextIndex:
        with self._lock:
            count, index = self._indexes.get(thread) or (0, FullTextIndex(":memory:", SHAPE))
            index.add(document_of(record, number) for number, record in enumerate(messages) if number >= count)
            self._indexes[thread] = (len(messages), index)
            return index
