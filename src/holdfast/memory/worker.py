"""Who works through the queue: in one thread for each store, on demand, and at the end of the process (M8).

Nothing here is needed for what is queued to survive: it is on disk. This is only about learning from it soon.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from holdfast.errors import StorageError
from holdfast.memory.updater import Learned, Updater

_LOOK_AGAIN = 30.0  # seconds after which a waiting worker looks whether another process queued something
_TROUBLE = 5.0  # seconds to wait when the queue itself cannot be read or written
_log = logging.getLogger("holdfast.MemoryQueue")


@dataclass(frozen=True)
class Flushed:
    """What a flush did: items learned from, items that failed and are tried again, and items that still wait."""

    done: int = 0
    failed: int = 0
    left: int = 0


_gate = threading.RLock()
"""Held by a worker while it has anything of ours in its hands, and not while an extractor is at work. Who forks waits for it, so that a
child finds no lock or database held by a thread that it does not have."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_gate.acquire, after_in_parent=_gate.release, after_in_child=_gate.release)


@contextmanager
def _open_gate() -> Iterator[None]:
    _gate.release()
    try:
        yield
    finally:
        _gate.acquire()


class _Store:
    """What the workers of this process on one queue have in common: one thread for all of them, and what is being worked on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.busy = 0
        self.workers: list[Worker] = []
        """Those that were started. The first one has the thread."""

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


_stores: dict[tuple[int, Path], _Store] = {}
"""By process too: a child made by fork has neither the threads nor the work of its parent."""


class _Thread(threading.Thread):
    """A thread that works through the queue until it is told to stop, and then for `drain` seconds more."""

    def __init__(self, work: Callable[[_Thread, _Store], None], store: _Store) -> None:
        super().__init__(target=work, args=(self, store), name="holdfast-memory", daemon=True)
        self.stopping = False
        self.drain: float | None = None
        self.drained: Flushed | None = None


class Worker:
    """Runs an updater. Safe for many threads; `start` may be called as often as one likes.

    Several on one queue share a thread, which belongs to the one that was started first; when it is closed the next one goes on. At the
    end of the process, what waits is learned from for `exit_seconds`; the rest stays queued for the next process.
    """

    def __init__(self, updater: Updater, *, enabled: bool = True, exit_seconds: float = 10.0) -> None:
        self._updater = updater
        self._enabled = enabled
        self._exit_seconds = exit_seconds
        self._place = updater.queue.path.absolute()
        self._thread: _Thread | None = None
        self._leaves: int | None = None

    @property
    def _store(self) -> _Store:
        key = (os.getpid(), self._place)
        return _stores.get(key) or _stores.setdefault(key, _Store())

    @property
    def running(self) -> bool:
        """Whether a thread of this process works through the queue, this worker's or another's."""
        return any(worker._works for worker in self._store.workers)

    @property
    def _works(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._thread.stopping

    def start(self, *, signals: bool = True) -> None:
        """Work in a thread of its own from now on, first of all at what dead processes held. SIGTERM then ends the process in order."""
        store = self._store
        if not self._enabled or (self in store.workers and self.running):
            return
        self._flush_at_exit()
        if signals:
            _leave_in_order()
        with store.changed:
            if self not in store.workers:
                store.workers.append(self)
            if not self.running:
                self._begin()

    def _begin(self) -> None:
        self._thread = _Thread(self._run, self._store)
        self._thread.start()

    def notice(self) -> None:
        """Something was queued."""
        self._flush_at_exit()
        self._store.wake()

    def flush(self, timeout: float | None = None, *, leaving: bool = False) -> Flushed:
        """Work on everything that waits, each item at most once, and wait for what another thread is at; until the time is over."""
        if not self._enabled or not self._updater.queue.path.exists():
            return Flushed()
        self._recover()
        store, deadline = self._store, None if timeout is None else time.monotonic() + timeout
        tried: set[str] = set()
        done = failed = 0
        while deadline is None or time.monotonic() < deadline:
            learned = self._one(early=True, besides=tried, leaving=leaving)
            if learned is not None:
                tried.add(learned.item)
                done, failed = done + (learned.state == "done"), failed + (learned.state == "failed")
                continue
            with store.changed:
                if not store.busy:
                    break
                store.changed.wait(0.05)
        return Flushed(done, failed, len(self._updater.queue))

    def close(self, timeout: float | None = None) -> Flushed:
        """Stop the thread, learn from what waits as long as there is time, and do nothing at the end of the process any more."""
        atexit.unregister(self.close)
        mine = self._leaves in (None, os.getpid())
        self._leaves = None
        if not mine:  # a child made by fork: the thread and the work are the parent's
            return Flushed()
        seconds, store = self._exit_seconds if timeout is None else timeout, self._store
        thread = self._thread if self._works else None
        with store.changed:
            if thread is not None:  # it does the rest: a call that hangs then keeps nobody from leaving
                thread.drain, thread.stopping = seconds, True
                store.changed.notify_all()
                store.changed.wait_for(lambda: thread.drained is not None, seconds + 1.0)
            if self in store.workers:
                store.workers.remove(self)
            if store.workers and not self.running:
                store.workers[0]._begin()
        if thread is None:
            return self._flushed_aside(seconds)
        return thread.drained or Flushed(left=len(self._updater.queue))

    def _flushed_aside(self, seconds: float) -> Flushed:
        """Flush in a thread of its own, so that a call that hangs keeps nobody from leaving; what is not done stays queued."""
        found: list[Flushed | BaseException] = []

        def work() -> None:
            try:
                found.append(self.flush(seconds, leaving=True))
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                found.append(error)

        aside = threading.Thread(target=work, name="holdfast-memory-close", daemon=True)
        try:
            aside.start()
        except RuntimeError:  # the interpreter is shutting down and starts no thread any more
            return self.flush(seconds, leaving=True)
        aside.join(seconds + 1.0)
        if not found:
            return Flushed(left=len(self._updater.queue))
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _one(self, *, early: bool = False, besides: set[str] | None = None, leaving: bool = False) -> Learned | None:
        with _gate:
            queue = self._updater.queue
            item = queue.claim(early=early, besides=besides or ())
            if item is None and queue.recover():  # a process died at it, and whatever came later in its thread waits behind
                item = queue.claim(early=early, besides=besides or ())
            if item is None:
                return None
            store = self._store
            with store.changed:
                store.busy += 1
            try:
                return self._updater.process(item, leaving=leaving, aside=_open_gate)
            finally:
                with store.changed:
                    store.busy -= 1
                    store.changed.notify_all()

    def _recover(self) -> None:
        """Finish the changes that processes which died had begun."""
        with _gate:
            for agent in self._updater.store.scopes():
                self._updater.store.recover(agent)

    def _pause(self) -> float:
        """Until something is due. What is due and still not to be had waits for another worker: look again soon, but not at once."""
        with _gate:
            due = self._updater.queue.next_due()
        return _LOOK_AGAIN if due is None else min(max(due, 0.5), _LOOK_AGAIN)

    def _flush_at_exit(self) -> None:
        """From now on the end of the process waits for what is queued, also when nobody else remembers this object by then."""
        if self._enabled and self._leaves != os.getpid():
            self._leaves = os.getpid()
            atexit.register(self.close)

    def _run(self, thread: _Thread, store: _Store) -> None:
        recovered = False
        while not thread.stopping:
            try:
                if not recovered:
                    self._recover()
                    recovered = True
                learned = self._one()
                pause = 0.0 if learned is not None else self._pause()
            except StorageError as error:
                _log.error("the memory queue cannot be worked on: %s", error)
                pause = _TROUBLE
            with store.changed:
                if pause > 0.0 and not thread.stopping:
                    store.changed.wait(pause)
        drained = Flushed()
        try:
            drained = self.flush(thread.drain, leaving=True)
        except StorageError as error:
            _log.error("the memory queue cannot be worked on: %s", error)
        with store.changed:
            thread.drained = drained
            store.changed.notify_all()


def _leave_in_order() -> None:
    """Let SIGTERM end the process as `sys.exit` does, so that exit hooks run. Who has a handler of their own keeps it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
