"""Learning from a conversation: take what is due, ask the extractor, let the gate judge, write it down once (M8, M9).

`Updater` learns from one item of the queue. No lock is held while the extractor works. What it proposes is judged against the document as
it is when the answer comes, so nothing that others wrote meanwhile is lost; a summary that was rewritten meanwhile is asked for again.
`Worker` works through the queue: in one thread for each store, on demand, and at the end of the process. Nothing of that is needed for
what is queued to survive, only for learning from it soon.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import ClassVar, Literal, Protocol

from holdfast.clock import IdSource
from holdfast.errors import HoldfastError, StorageError
from holdfast.events import Event, FactsExtracted, MemoryPersisted, MemoryUpdated, UpdateStarted, within
from holdfast.memory.document import Document
from holdfast.memory.facts import Decision, Fact, Proposal, Turn
from holdfast.memory.history import Change, apply_decisions, apply_removals, apply_slots, evict_from, hold_slots
from holdfast.memory.memory_store import Edit, MemoryStore
from holdfast.memory.queue import Item, MemoryQueue
from holdfast.redaction import replace_secrets
from holdfast.tracing import span
from holdfast.validation import counted

Aside = Callable[[], AbstractContextManager[None]]
_ASKS = 3  # how often a proposal is asked for anew because others rewrote the same summaries; after that the newest wins


@dataclass(frozen=True, kw_only=True)
class UpdateLeft(Event):
    """The process ended before a conversation could be learned from. The next one that uses this memory does it."""

    component: ClassVar[str] = "MemoryQueue"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Update for {thread} is left for the next process ({error})"
    thread: str
    error: str


class Extractor(Protocol):
    """Finds in a conversation what is worth knowing."""

    def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
        """What could be learned from these turns, given what is known. May take long; raises when it cannot answer."""


@dataclass(frozen=True)
class Learned:
    """What became of one item: `done` (with the change, if there was one), `failed` (it is tried again), or `lost` to another worker."""

    item: str
    thread: str
    state: Literal["done", "failed", "lost"]
    change: Change | None = None
    error: str = ""
    decisions: tuple[Decision, ...] = ()
    """What the gate decided about each proposed fact."""


class _Taken(Exception):
    """The item belongs to another worker by now."""


class _Overtaken(Exception):
    """Others rewrote a summary that the proposal is about."""


class Updater:
    """Works through the queue. Several may run at once, in threads and processes.

    In place of an extractor a function may be given that makes one for a document: for one that wants to know the summaries too.
    """

    def __init__(
        self,
        store: MemoryStore,
        queue: MemoryQueue,
        extractor: Extractor | Callable[[Document], Extractor],
        *,
        threshold: float = 0.7,
        max_facts: int = 100,
        shown: Callable[[str | None], str] | None = None,
    ) -> None:
        self.store = store
        self.queue = queue
        self.extractor = extractor
        self._threshold = threshold
        self._max_facts = max_facts
        self._shown = shown or (lambda agent: "")
        self._paid: tuple[tuple[str, Sequence[Turn]], Document, Proposal] | None = None
        """The newest answer that could not be written down: the next try of the same turns does not ask a model again."""

    def process(self, item: Item, *, leaving: bool = False, aside: Aside = nullcontext) -> Learned:
        """Learn from an item that was claimed. A failure is a result: the item is tried again later.

        When the process is `leaving`, a failure says nothing about the item, and it is not counted. The extractor works within `aside()`.
        """
        with within(thread=item.thread, agent=item.agent), span("update_memory", item.agent or "user", "CHAIN") as traced:
            learned = self._processed(item, leaving, aside)
            judged = [f"{decision.verdict}/{decision.rule}" for decision in learned.decisions]
            traced.set({"holdfast.status": learned.state, "holdfast.gate": judged})
            return learned

    def _processed(self, item: Item, leaving: bool, aside: Aside) -> Learned:
        self._emit(UpdateStarted(thread=item.thread))
        try:
            change, decisions = self._learn(item, aside)
        except _Taken:
            return Learned(item.id, item.thread, "lost")
        except Exception as error:  # noqa: BLE001 - a provider, a model or an extractor of one's own may raise anything; the turns must stay
            said = replace_secrets(
                str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
            )  # it may show a key
            if leaving:
                self.queue.release(item)
                self.store.bus.emit(UpdateLeft(thread=item.thread, error=said))
            else:
                self.queue.fail(item, said)
            return Learned(item.id, item.thread, "failed", error=said)
        except BaseException:  # the process is being stopped: nobody's fault
            self.queue.release(item)
            raise
        self.queue.complete(item)
        return Learned(item.id, item.thread, "done", change, decisions=tuple(decisions))

    def _learn(self, item: Item, aside: Aside) -> tuple[Change | None, Sequence[Decision]]:
        if item.claims > 1:
            self.store.recover(item.agent)
            if self.store.has_item(item.id, item.agent):
                return None, ()  # a worker died between writing it down and taking it from the queue
        for ask in range(1, _ASKS + 1):
            paid, self._paid = self._paid, None
            seen, proposal = paid[1:] if paid is not None and paid[0] == (item.id, item.turns) else self._asked(item, aside)
            extracted: list[Fact] = []
            decided: list[Decision] = []
            try:
                change = self.store.change(item.agent, self._edit(item, proposal, seen, extracted, decided, last=ask == _ASKS))
            except _Overtaken:
                continue
            except _Taken:
                raise
            except Exception:
                self._paid = ((item.id, item.turns), seen, proposal)
                raise
            self._tell(item, change, extracted)
            return change, decided
        return None, ()  # not reached: the last ask is never overtaken

    def _asked(self, item: Item, aside: Aside) -> tuple[Document, Proposal]:
        """What the extractor makes of an item, and the document that it was shown."""
        seen = self.store.own(item.agent) or Document()
        with aside():
            return seen, self._extractor_for(seen).extract(item.turns, seen.facts)

    def _extractor_for(self, document: Document) -> Extractor:
        return self.extractor(document) if callable(self.extractor) else self.extractor

    def _edit(
        self, item: Item, proposal: Proposal, seen: Document, extracted: list[Fact], decided: list[Decision], *, last: bool
    ) -> Callable[[Document], Edit | None]:
        """What the proposal makes of the document as it is when the lock is held."""
        from holdfast.memory import gate  # their tables of patterns are made when somebody first learns something

        injected = self._shown(item.agent)
        slots, refused = gate.admit_slots(proposal, item.turns, injected=injected)

        def edit(document: Document) -> Edit | None:
            if not self.queue.holds(item):
                raise _Taken
            if item.claims > 1 and self.store.has_item(item.id, item.agent):
                return None
            if not last and any(document.slot(update.slot) != seen.slot(update.slot) for update in slots):
                raise _Overtaken
            now = self.store.clock.now()
            decisions = gate.judge(
                proposal,
                item.turns,
                document.facts,
                threshold=self._threshold,
                injected=injected,
                now=now,
                new_id=lambda: new_fact_id(self.store.ids),
                thread=item.thread,
            )
            outcome = apply_decisions(document, decisions, now=now, thread=item.thread)
            removals, _ = gate.admit_removals(proposal, item.turns, document.facts)
            after, removed = apply_removals(outcome.document, removals, seen.facts)
            after, evicted = evict_from(apply_slots(after, slots, now), document, self._max_facts, now)
            extracted[:], decided[:] = outcome.added, decisions
            reasons = {**outcome.reasons, **{id: ("the user said that it is over or wrong", "removed") for id in removed}, **evicted}
            waiting = hold_slots(refused, item.turns, now=now, new_id=lambda: new_fact_id(self.store.ids), thread=item.thread)
            why = f"learned from {counted(len(item.turns), 'turn')}"
            return Edit(after, "updater", why, reasons, thread=item.thread, item=item.id, held=(*outcome.held, *waiting))

        return edit

    def _tell(self, item: Item, change: Change | None, added: Sequence[Fact]) -> None:
        if added:
            self._emit(FactsExtracted(confidences=tuple(round(fact.confidence, 2) for fact in added)))
        if change is not None and change.differences:
            for difference in change.differences:
                if difference.kind == "slot":
                    self._emit(MemoryUpdated(slot=difference.id))
            self._emit(MemoryPersisted(path=self.store.where(item.agent)))

    def _emit(self, event: UpdateStarted | FactsExtracted | MemoryUpdated | MemoryPersisted) -> None:
        self.store.bus.emit(event)


def new_fact_id(ids: IdSource) -> str:
    """An id for a fact, in the reference's manner."""
    return f"fact_{ids.new()}"


# Who works through the queue: in one thread for each store, on demand, and at the end of the process

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


_stores: dict[tuple[int, str], _Store] = {}
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
        self._place = updater.queue.place
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
        queue = self._updater.queue
        if not self._enabled or not queue.is_there():
            return Flushed()
        self._recover()
        only = queue.own if leaving and queue.shared else None  # what others queued is waited for elsewhere too
        store, deadline = self._store, None if timeout is None else time.monotonic() + timeout
        tried: set[str] = set()
        done = failed = 0
        while deadline is None or time.monotonic() < deadline:
            learned = self._one(early=True, besides=tried, only=only, leaving=leaving)
            if learned is not None:
                tried.add(learned.item)
                done, failed = done + (learned.state == "done"), failed + (learned.state == "failed")
                continue
            with store.changed:
                if not store.busy:
                    break
                store.changed.wait(0.05)
        return Flushed(done, failed, len(queue))

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

    def _one(
        self, *, early: bool = False, besides: Collection[str] = (), only: Collection[str] | None = None, leaving: bool = False
    ) -> Learned | None:
        with _gate:
            queue = self._updater.queue
            item = queue.claim(early=early, besides=besides, only=only)
            if item is None and queue.recover():  # a process died at it, and whatever came later in its thread waits behind
                item = queue.claim(early=early, besides=besides, only=only)
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
