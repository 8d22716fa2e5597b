"""Who works through the queue: in a thread of its own, on demand, and at the end of the process (M8).

Nothing here is needed for what is queued to survive: it is on disk. This is only about learning from it soon.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
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


class Worker:
    """Runs an updater. Safe for many threads; `start` may be called once."""

    def __init__(self, updater: Updater, *, enabled: bool = True, exit_seconds: float = 10.0) -> None:
        self._updater = updater
        self._enabled = enabled
        self._exit_seconds = exit_seconds
        self._changed = threading.Condition()
        self._busy = 0
        self._stopping = False
        self._drain: float | None = None
        self._drained: Flushed | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._leaves = False

    def start(self, *, signals: bool = True) -> None:
        """Take back what dead processes held, and work in a thread of its own from now on. SIGTERM then ends the process in order."""
        if self._process != os.getpid():  # a child made by fork has no thread yet
            self._thread, self._process, self._busy = None, os.getpid(), 0
        if not self._enabled or self._thread is not None:
            return
        self._flush_at_exit()
        self._updater.queue.recover()
        self._recover()
        if signals:
            _leave_in_order()
        self._thread = threading.Thread(target=self._run, name="holdfast-memory", daemon=True)
        self._thread.start()

    def notice(self) -> None:
        """Something was queued."""
        self._flush_at_exit()
        with self._changed:
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> Flushed:
        """Work on everything that waits, each item at most once, and wait for what another thread is at; until the time is over."""
        if not self._enabled or not self._updater.queue.path.exists():
            return Flushed()
        self._recover()
        deadline = None if timeout is None else time.monotonic() + timeout
        tried: set[str] = set()
        done = failed = 0
        while deadline is None or time.monotonic() < deadline:
            learned = self._one(early=True, besides=tried)
            if learned is not None:
                tried.add(learned.item)
                done, failed = done + (learned.state == "done"), failed + (learned.state == "failed")
                continue
            with self._changed:
                if not self._busy:
                    break
                self._changed.wait(0.05)
        return Flushed(done, failed, len(self._updater.queue))

    def close(self, timeout: float | None = None) -> Flushed:
        """Stop the thread, learn from what waits as long as there is time, and do nothing at the end of the process any more."""
        atexit.unregister(self.close)
        self._leaves = False
        if self._process != os.getpid():  # a child made by fork: the thread and the work are the parent's
            return Flushed()
        seconds = self._exit_seconds if timeout is None else timeout
        thread = self._thread
        if thread is None or not thread.is_alive():
            return self._flushed_aside(seconds)
        with self._changed:  # the thread does it: a call that hangs then keeps nobody from leaving
            self._drain, self._stopping = seconds, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._drained is not None, seconds + 1.0)
        return self._drained or Flushed(left=len(self._updater.queue))

    def _flushed_aside(self, seconds: float) -> Flushed:
        """Flush in a thread of its own, so that a call that hangs keeps nobody from leaving; what is not done stays queued."""
        found: list[Flushed | BaseException] = []

        def work() -> None:
            try:
                found.append(self.flush(seconds))
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                found.append(error)

        aside = threading.Thread(target=work, name="holdfast-memory-close", daemon=True)
        try:
            aside.start()
        except RuntimeError:  # the interpreter is shutting down and starts no thread any more
            return self.flush(seconds)
        aside.join(seconds + 1.0)
        if not found:
            return Flushed(left=len(self._updater.queue))
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _one(self, *, early: bool = False, besides: set[str] | None = None) -> Learned | None:
        item = self._updater.queue.claim(early=early, besides=besides or ())
        if item is None:
            return None
        with self._changed:
            self._busy += 1
        try:
            return self._updater.process(item)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _recover(self) -> None:
        """Finish the changes that processes which died had begun."""
        for agent in self._updater.store.scopes():
            self._updater.store.recover(agent)

    def _pause(self) -> float:
        """Until something is due. What is due and still not to be had waits for another worker: look again soon, but not at once."""
        due = self._updater.queue.next_due()
        return _LOOK_AGAIN if due is None else min(max(due, 0.5), _LOOK_AGAIN)

    def _flush_at_exit(self) -> None:
        """From now on the end of the process waits for what is queued, also when nobody else remembers this object by then."""
        if self._enabled and not self._leaves:
            self._leaves = True
            atexit.register(self.close)

    def _run(self) -> None:
        while not self._stopping:
            try:
                learned = self._one()
                pause = 0.0 if learned is not None else self._pause()
            except StorageError as error:
                _log.error("the memory queue cannot be worked on: %s", error)
                pause = _TROUBLE
            with self._changed:
                if pause > 0.0 and not self._stopping:
                    self._changed.wait(pause)
        drained = Flushed()
        try:
            drained = self.flush(self._drain)
        except StorageError as error:
            _log.error("the memory queue cannot be worked on: %s", error)
        with self._changed:
            self._drained = drained
            self._changed.notify_all()


def _leave_in_order() -> None:
    """Let SIGTERM end the process as `sys.exit` does, so that exit hooks run. Who has a handler of their own keeps it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
