"""The archive of conversations: everything that was ever said in a thread, word for word, durable before it leaves the window.

One folder per thread. `archive.jsonl` is the truth: it only grows, each line is a record with a checksum, and a person can read it.
`archive.sqlite` is the full-text index; it may be removed at any time and is made again from the log.

A search result is the message, the sentence that matched, and why.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from os import PathLike

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.context.history_index import SPOKEN, kind_of
from holdfast.context.records import MessageRecord, Record, SummaryRecord
from holdfast.context.thread_log import Doomed, ThreadLog, log_key
from holdfast.durable.disk import REAL, Disk, RealDisk
from holdfast.durable.strict_json import decode, encode
from holdfast.errors import Damaged, InputError, OutsideRoot, StorageError
from holdfast.search.fulltext import Found
from holdfast.search.pieces import snippet_of
from holdfast.storage.backend import Backend, Delete, Put
from holdfast.storage.files import FileBackend
from holdfast.storage.in_memory import MemoryBackend
from holdfast.text.needle import Needle
from holdfast.text.normalise import normalise
from holdfast.validation import THREAD_NOTE, check_thread, thread_folder, thread_in, thread_note

_PHRASE = re.compile(r"[\"“„«]([^\"“”„«»]{2,200})[\"“”»]")
_DEEPER = 40  # hits looked at when a phrase in quotes is asked for


@dataclass(frozen=True)
class Hit:
    """A message that was found. `marks` are the stretches of `snippet` that match, `why` the words that did."""

    record: MessageRecord
    score: float
    snippet: str
    why: tuple[str, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()


def _phrases_in(query: str) -> tuple[str, ...]:
    """What stands in quotes, in its compared form: messages that say exactly that come first."""
    return tuple(found for phrase in _PHRASE.findall(query) if (found := normalise(phrase)))


def _hits_of(query: str, found: Iterable[Found], read: Callable[[Found], MessageRecord | None], top_k: int) -> list[Hit]:
    """The messages that were found, those with the quoted phrases first."""
    pairs = [(one, record) for one in found if (record := read(one)) is not None]
    phrases = _phrases_in(query)
    if phrases:
        pairs.sort(key=lambda pair: -sum(phrase in normalise(pair[1].text) for phrase in phrases))
    hits = []
    for one, record in pairs[:top_k]:
        snippet = snippet_of(record.text, one.matched, within=one.piece, language=one.language)
        terms = sorted(one.matched, key=one.matched.__getitem__, reverse=True)
        why = dict.fromkeys(snippet.said.get(term, f"{term} (in context)") for term in terms)
        hits.append(Hit(record, one.score, snippet.text, tuple(why), snippet.marks))
    return hits


def _literal_hits(query: str, newest_first: Iterable[MessageRecord], top_k: int) -> list[Hit]:
    """Messages that hold the query as it is written: for queries without a word (emoji, signs) and parts of words."""
    needle = normalise(query)
    found: list[Hit] = []
    for record in newest_first if needle else ():
        if len(found) >= top_k:
            break
        if needle in normalise(record.text):
            at = max(record.text.casefold().find(query.strip().casefold()), 0)
            begin = max(at - 80, 0)
            shown = " ".join(record.text[begin : at + len(query) + 160].split())
            found.append(Hit(record, 0.0, shown, (query.strip(),)))
    return found


_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?Z?)?", re.ASCII)
_OPEN_THREADS = 32
Moment = datetime | str | None


@dataclass(frozen=True)
class Passage:
    """A message and what was said around it, in the order of the conversation. `older` are earlier versions of the same message."""

    record: MessageRecord
    before: tuple[MessageRecord, ...] = ()
    after: tuple[MessageRecord, ...] = ()
    older: tuple[MessageRecord, ...] = ()

    @property
    def all(self) -> tuple[MessageRecord, ...]:
        return (*self.before, self.record, *self.after)


@dataclass(frozen=True)
class Stats:
    """What a thread's archive holds. `damage` says, in words, what in it does not check out; the rest can be read."""

    thread: str
    messages: int = 0
    summaries: int = 0
    tokens: int = 0
    bytes: int = 0
    first: str = ""
    last: str = ""
    damage: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forgotten:
    """What `forget` or `prune` took out, and from which threads."""

    messages: int = 0
    summaries: int = 0
    damaged: int = 0
    threads: tuple[str, ...] = ()
    ids: tuple[str, ...] = field(default=(), repr=False)
    titles: int = 0

    def with_thread(self, thread: str, gone: list[Record], damaged: int = 0) -> Forgotten:
        """This, and what went from a further thread."""
        if not gone and not damaged:
            return self
        messages = sum(isinstance(record, MessageRecord) for record in gone)
        return Forgotten(
            self.messages + messages,
            self.summaries + len(gone) - messages,
            self.damaged + damaged,
            (*self.threads, thread),
            (*self.ids, *(record.id for record in gone)),
            self.titles,
        )


def moment_text(moment: Moment) -> str | None:
    """A moment as the archive writes it, so that two of them compare as text."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InputError(f"{moment.isoformat()} has no time zone.", hint="Give one, for example UTC.")
        return stamp(moment)
    if _MOMENT.fullmatch(moment) is None:
        raise InputError(f"{moment!r} is not a date.", hint="Write it as 2026-04-19 or 2026-04-19T08:15:00Z.")
    return moment.removesuffix("Z")


class Archive:
    """Keeps what was said, in a storage backend, with full-text indexes as files in `indexes` (in memory without it).

    Safe for many threads and processes. Every method takes the thread's id, which is any text that LangGraph takes for one. A thread that
    nobody has written to is an empty one, never an error. Backend and indexes may be functions, which are called when they are first
    needed: making an archive touches no file. Closing is not needed for anything to be safe; it frees the open indexes, and what is
    closed does not open again by itself.
    """

    def __init__(
        self,
        backend: Backend | Callable[[], Backend],
        *,
        indexes: str | PathLike[str] | Callable[[], str] | None = None,
        clock: Clock | None = None,
        lock_timeout: float | None = 10.0,
    ) -> None:
        self._given = backend
        self._indexes = indexes
        self._clock = clock or SystemClock()
        self._timeout = lock_timeout
        self._lock = threading.Lock()
        self._open: OrderedDict[str, ThreadLog] = OrderedDict()
        self._closed = False

    @property
    def backend(self) -> Backend:
        """Where everything is kept. StorageError if the archive was closed."""
        if self._closed:
            raise StorageError.closed("the archive")
        return self._backend

    @cached_property
    def _backend(self) -> Backend:
        return self._given() if callable(self._given) else self._given

    def add(self, thread: str, records: Iterable[Record]) -> int:
        """Write durably, then return: what was given survives a power cut. Says how many records were new.

        The same message (id and what it says) given again, by a retry or by another process, writes nothing. An edited
        message is kept beside the older version. WriteFailed means that none of the new ones is in.
        """
        given = list(records)
        if not given:
            return 0
        log = self._thread(thread)
        if (note := thread_note(thread)) is not None and log.is_empty():
            self.backend.write(Put(_note_key(thread_folder(thread)), note))
        return log.add(given, stamp(self._clock.now()))

    def has(self, thread: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids whose message is held, whole."""
        known = self._thread(thread).known()
        return {id for id in ids if known.holds(id)}

    def read(self, thread: str, id: str, around: int = 0) -> Passage | None:
        """A message, word for word, and up to `around` messages before and after it; None if it is not held. `#12` is number 12."""
        log = self._thread(thread)
        known = log.known()

        def message(index: int) -> MessageRecord | None:
            return self._message(log, known.messages[index].place, known.messages[index].id)

        index = known.find(id)
        record = message(index) if index is not None else None
        if index is None or record is None:
            return None
        order = known.order()
        at, reach = order.index(index), max(around, 0)
        older = [other for other in known.versions(record.id) if other != index and not known.messages[other].reference]
        earlier, later = order[max(at - reach, 0) : at], order[at + 1 : at + 1 + reach]
        before, after, versions = (tuple(one for other in part if (one := message(other)) is not None) for part in (earlier, later, older))
        return Passage(record, before, after, versions)

    def originals(self, thread: str, ids: Iterable[str]) -> dict[str, MessageRecord]:
        """The newest whole version of each of these messages that is held."""
        log = self._thread(thread)
        known = log.known()
        found = {id: self._message(log, known.messages[index].place, id) for id in ids if (index := known.find(id)) is not None}
        return {id: record for id, record in found.items() if record is not None}

    def search(
        self,
        thread: str,
        query: str,
        top_k: int = 5,
        *,
        role: str | None = None,
        after: Moment = None,
        before: Moment = None,
        meaning: bool = True,
    ) -> list[Hit]:
        """The messages that answer best, best first. Any text is a query; words in quotes are looked for as they stand.

        `role` is `human`, `ai`, `tool` or `system`, or `summary`, `reminder`, `recall` for what else was in the window; `after` and
        `before` are moments or ISO dates: from then on, and earlier than that. Without `meaning` words alone decide the order: for who
        looks through many threads at once.
        """
        log = self._thread(thread)
        kinds = kinds_for(role)
        since, until = moment_text(after), moment_text(before)
        if top_k < 1 or not query.strip() or log.is_empty():
            return []
        most = max(top_k, _DEEPER) if _phrases_in(query) else top_k
        found = log.index.search(query, most, kinds=kinds, after=since, before=until, meaning=meaning)
        if found:
            return _hits_of(query, found, lambda one: self._message(log, one.ref), top_k)
        return _literal_hits(query, filtered(reversed(self.messages(thread)), kinds, since, until), top_k)

    def messages(self, thread: str) -> list[MessageRecord]:
        """Everything that was said, all versions, in the order of the conversation."""
        log = self._thread(thread)
        records = {(record.id, record.mark): record for record in log.records() if isinstance(record, MessageRecord)}
        known = log.known()
        infos = (known.messages[index] for index in known.order())
        return [records[key] for one in infos if (key := (one.id, one.mark)) in records]

    def summaries(self, thread: str) -> list[SummaryRecord]:
        """All summaries, oldest first."""
        return [record for record in self._thread(thread).records() if isinstance(record, SummaryRecord)]

    def covered(self, thread: str, summary: str) -> frozenset[str] | None:
        """Ids of the messages that a summary stands for, with all the summaries before it; None when one of them is not held."""
        log = self._thread(thread)
        held = {info.id: info for info in log.known().summaries}
        ids: set[str] = set()
        while summary:
            info = held.pop(summary, None)
            record = log.read(info.place, info.id) if info is not None else None
            if not isinstance(record, SummaryRecord):
                return None
            ids.update(record.covers)
            summary = record.previous or ""
        return frozenset(ids)

    def threads(self) -> list[str]:
        """The threads that have an archive, by name."""
        found = (thread_in(folder, self._note(folder)) for folder in self.backend.children("threads"))
        return sorted(thread for thread in found if thread is not None and self.backend.mark(log_key(thread)) is not None)

    def title(self, thread: str) -> str:
        """What a person called a conversation that is held without a model, or nothing."""
        stored = self.backend.get(_title_key(thread_folder(check_thread(thread))))
        return (_title_in(stored.data) or "") if stored is not None else ""  # of a damaged one its first words are its title again

    def set_title(self, thread: str, title: str) -> None:
        """Call it so. InputError for a title without a word."""
        clean = " ".join(title.split())[:200]
        if not clean:
            raise InputError("a title needs at least one word.")
        self.backend.write(Put(_title_key(thread_folder(check_thread(thread))), encode({"title": clean})))

    def stats(self, thread: str) -> Stats:
        """Counts, times and damage."""
        log = self._thread(thread)
        if log.is_empty():
            return Stats(thread)
        known = log.known()
        times = sorted(held.time for held in (*known.messages, *known.summaries) if held.time)
        return Stats(
            thread,
            messages=len(known.messages),
            summaries=len(known.summaries),
            tokens=sum(held.tokens for held in known.messages),
            bytes=log.size(),
            first=times[0] if times else "",
            last=times[-1] if times else "",
            damage=tuple(log.damage()),
        )

    def forget(self, thread: str | None, *, text: str | None = None, ids: Collection[str] | None = None) -> Forgotten:
        """Take out every record that holds the text, or has one of the ids, in this thread or (None) in all.

        On return no file of the archive holds any of it: not the log, not the index, nothing that was set aside.
        """
        doomed = Doomed(text=text, ids=ids)
        result = Forgotten(titles=self._forget_titles(thread, Needle(text)) if text is not None else 0)
        for name in self.threads() if thread is None else [check_thread(thread)]:
            result = result.with_thread(name, *self._thread(name).forget(doomed))
        return result

    def _forget_titles(self, thread: str | None, needle: Needle) -> int:
        """Of conversations in which nothing was said yet too."""
        every = [folder for folder in self.backend.children("threads") if thread_in(folder, self._note(folder)) is not None]
        gone = 0
        for key in map(_title_key, every if thread is None else [thread_folder(check_thread(thread))]):
            stored = self.backend.get(key)
            title = _title_in(stored.data) if stored is not None else ""
            if stored is not None and (needle.in_bytes(stored.data) if title is None else needle.in_text(title)):
                self.backend.write(Delete(key))
                gone += 1
        return gone

    def prune(self, older_than: datetime) -> Forgotten:
        """Take out what was archived before this moment."""
        limit = moment_text(older_than) or ""
        result = Forgotten()
        for name in self.threads():
            result = result.with_thread(name, self._thread(name).keep_only(lambda record: record.time >= limit))
        return result

    def close(self) -> None:
        """Let go of all open indexes. Whatever is asked for afterwards is a StorageError."""
        self._closed = True
        self.release()

    def release(self) -> None:
        """Let go of all open indexes, so that folders can be removed; they are opened again when they are next used."""
        with self._lock:
            logs = list(self._open.values())
            self._open.clear()
        for log in logs:
            log.close()

    def _thread(self, thread: str) -> ThreadLog:
        name = check_thread(thread)
        indexes = self._indexes() if callable(self._indexes) else self._indexes
        place = None if indexes is None else os.path.join(indexes, thread_folder(name), "archive.sqlite")  # noqa: PTH118  # text, as disks have it
        with self._lock:
            log = self._open.pop(name, None) or ThreadLog(self.backend, name, place, self._timeout)
            self._open[name] = log
            while len(self._open) > _OPEN_THREADS:
                self._open.popitem(last=False)[1].close()
            return log

    def _note(self, folder: str) -> bytes | None:
        stored = self.backend.get(_note_key(folder)) if folder.startswith("~") else None
        return stored.data if stored is not None else None

    @staticmethod
    def _message(log: ThreadLog, place: int, id: str | None = None) -> MessageRecord | None:
        record = log.read(place, id)
        return record if isinstance(record, MessageRecord) else None


class FileArchive(Archive):
    """The archive in `base/threads/`, one folder for each thread."""

    def __init__(
        self, base: str | PathLike[str], *, disk: Disk = REAL, clock: Clock | None = None, lock_timeout: float | None = 10.0
    ) -> None:
        self.base = os.fspath(base)
        self._disk = disk
        indexes = (lambda: self._root) if isinstance(disk, RealDisk) else None  # SQLite has no other
        backend = partial(FileBackend, self.base, disk=disk, clock=clock, timeout=lock_timeout)
        super().__init__(backend, indexes=indexes, clock=clock, lock_timeout=lock_timeout)

    @cached_property
    def _root(self) -> str:
        return os.path.join(self._disk.resolve(self.base), "threads")  # noqa: PTH118

    def _thread(self, thread: str) -> ThreadLog:
        """OutsideRoot if a link in the thread's folder leads anywhere else."""
        path = os.path.join(self._disk.resolve(self._root), thread_folder(thread), "archive.jsonl")  # noqa: PTH118
        if self._disk.resolve(path) != path:
            raise OutsideRoot(f"{path} leads out of its folder by a link.", path=path, operation="open", hint="Remove the link.")
        return super()._thread(thread)


class MemoryArchive(Archive):
    """The archive in this process's memory, for tests and for conversations that need not be kept."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(MemoryBackend(clock=clock), clock=clock)


def _note_key(folder: str) -> str:
    return f"threads/{folder}/{THREAD_NOTE}"


def _title_key(folder: str) -> str:
    return f"threads/{folder}/title.json"


def _title_in(data: bytes) -> str | None:
    """The title in the bytes of its file; None if they are damaged."""
    try:
        return str(decode(data)["title"])
    except (Damaged, KeyError, TypeError):
        return None


def kinds_for(role: str | None) -> frozenset[str]:
    """The kinds of message that a role stands for; what people and models said without one."""
    if role is None:
        return SPOKEN
    known = {"user": "human", "assistant": "ai"}.get(role, role)
    if known not in SPOKEN | {"summary", "reminder", "recall"}:
        raise InputError(f"{role!r} is not a role.", hint="Use human, ai, tool or system (or summary, reminder, recall).")
    return frozenset({known})


def filtered(records: Iterable[MessageRecord], kinds: frozenset[str], since: str | None, until: str | None) -> Iterator[MessageRecord]:
    """Only those of these kinds and times."""
    for record in records:
        if kind_of(record) in kinds and (since is None or record.time >= since) and (until is None or record.time < until):
            yield record
