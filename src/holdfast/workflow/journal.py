"""What happened in a session, for anybody who wants to follow it, whoever runs it: a terminal, a server, another machine (O2, O4).

    sessions/ID/events.ndjson        one event a line, in the form of `events.envelope_of`; `id` is its number, which only grows

The session itself is the truth and is written durably; the journal is for watching and is not. Where sessions are in a database the journal
is a log there (`sessions/ID/events.jsonl`). Whoever runs the session holds it, so there is one writer at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.durable.line_log import LineLog
from holdfast.errors import StorageError
from holdfast.events import Bus, Event, envelope_of
from holdfast.session.state import check_session_id
from holdfast.session.store import SessionStore
from holdfast.storage.backend import Append
from holdfast.storage.files import FileBackend
from holdfast.workflow.events import WorkflowEvent

_MOMENT = 0.1
"""Seconds for which events wait for others to be written with, where each writing is a transaction."""


@dataclass(frozen=True)
class JournalPage:
    """Events of a journal, and the place from which on `read` finds those that come later."""

    events: tuple[Mapping[str, Any], ...]
    place: object = None


class SessionJournal:
    """The journal of one session. Safe for many threads."""

    def __init__(self, store: SessionStore, session: str) -> None:
        self.session = check_session_id(session)
        self._backend, folder = store.backend, f"{store.prefix}/{session}"
        self._lines = (
            LineLog(store.backend.path(f"{folder}/events.ndjson"), disk=store.backend.disk)
            if isinstance(store.backend, FileBackend)
            else None
        )
        self._key = f"{folder}/events.jsonl"
        self._lock = threading.Lock()
        self._number: int | None = None
        self._waiting: list[Mapping[str, Any]] = []
        self._timer: threading.Timer | None = None

    def read(self, place: object = None) -> JournalPage:
        """The events from a place that an earlier reading gave, or from the beginning."""
        if self._lines is not None:
            found, end = self._lines.read(place if isinstance(place, int) else 0)
            return JournalPage(tuple(found), end)
        log = self._backend.read(self._key, after=place if isinstance(place, str) else None)
        return JournalPage(log.records, log.mark)

    def add(self, event: Event) -> None:
        """Add an event. What cannot be written is said in the log: the run goes on, and stops by itself if its session cannot be kept.

        In a database those of a moment are written together, so that watching costs a run less than its commits do.
        """
        try:
            with self._lock:
                number = (self._newest() if self._number is None else self._number) + 1
                line = envelope_of(event, str(number))
                if self._lines is not None:
                    self._lines.append(line)
                else:
                    self._waiting.append(line)
                    self._write_soon()
                self._number = number
        except StorageError as error:
            self._complain(error)

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(_MOMENT, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def flush(self) -> None:
        """Write what waits to be written together."""
        try:
            with self._lock:
                timer, self._timer = self._timer, None
                lines, self._waiting = self._waiting, []
                if timer is not None:
                    timer.cancel()
                if lines:
                    self._backend.write(Append(self._key, lines, as_one=False))
        except StorageError as error:
            self._complain(error)

    def _complain(self, error: StorageError) -> None:
        logging.getLogger("holdfast.workflow").warning("an event of %s could not be noted: %s", self.session, error.public)

    @contextmanager
    def kept(self, bus: Bus) -> Iterator[None]:
        """Inside of the `with` what is told of the session on the bus is added."""
        unsubscribe = bus.subscribe(_Sink(self))
        try:
            yield
        finally:
            unsubscribe()
            self.flush()

    def _newest(self) -> int:
        last = self._lines.last() if self._lines is not None else next(reversed(self._backend.read(self._key).records), None)
        number = str(last["id"]) if last is not None else "0"
        return int(number) if number.isdecimal() else 0


@dataclass(frozen=True)
class _Sink:
    journal: SessionJournal

    def wants(self, kind: type[Event]) -> bool:
        return issubclass(kind, WorkflowEvent)

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkflowEvent) and event.session == self.journal.session:
            self.journal.add(event)
