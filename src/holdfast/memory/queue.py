"""Conversations that wait to be learned from, kept durably: a crash or a SIGTERM loses none of them (M8).

`put` waits for more of the same thread (debounce) and joins it to what waits already; `claim` gives one item to one worker; `complete`,
`fail` and `release` are the three ways in which work on it ends. A worker that dies is noticed: at once where that can be seen, else when
its lease is over. The rows are in a file of this machine, or with memory in PostgreSQL, where all machines share them (`queue_tables.py`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from os import PathLike
from typing import Any, ClassVar

from holdfast.clock import Backoff, Clock, IdSource, RandomIds, SystemClock
from holdfast.events import Bus, Event, UpdateDebounced, UpdateQueued
from holdfast.events import bus as process_bus
from holdfast.memory.facts import Turn
from holdfast.memory.memory_store import check_agent
from holdfast.memory.queue_tables import QueueTables, Run, SqliteTables, read_turns, write_turns
from holdfast.validation import check_thread

_CRASHES = 20  # an item that so many workers began and none ended takes them down with it
_SKEW = 60.0  # seconds by which clocks differ, or a claim waits for its turn; what seems queued later than that is due: a clock went back
_REMEMBER = 90 * 86400.0
_OWN = 1000  # items that a process remembers to have queued itself


@dataclass(frozen=True, kw_only=True)
class UpdateFailed(Event):
    """Learning from a conversation failed; it is tried again."""

    component: ClassVar[str] = "MemoryQueue"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Update for {thread} failed ({error}); trying again in {seconds}s"
    thread: str
    error: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class UpdateGivenUp(Event):
    """Learning from a conversation failed too often. It stays in the queue until somebody asks for another try (`memory retry`)."""

    component: ClassVar[str] = "MemoryQueue"
    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "Gave up on update for {thread} after {attempts} attempts: {error}"
    thread: str
    attempts: int
    error: str


@dataclass(frozen=True)
class Retry:
    """How often a failed update is tried, and how long it waits: `first` seconds, then twice as long each time, up to `longest`."""

    attempts: int = 6
    first: float = 30.0
    longest: float = 3600.0

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        return Backoff(self.first, self.longest).pause(failures)


@dataclass(frozen=True)
class Item:
    """One update: the turns of a thread that an agent is to learn from."""

    id: str
    thread: str
    agent: str | None
    turns: tuple[Turn, ...]
    queued: float
    due: float
    claims: int = 0
    failures: int = 0
    holder: str | None = None
    error: str | None = None
    gave_up: float | None = None

    @property
    def state(self) -> str:
        """`waiting`, `running`, `failed` (and waiting for its next try) or `given up`."""
        if self.gave_up is not None:
            return "given up"
        return "running" if self.holder else "failed" if self.failures else "waiting"


class MemoryQueue:
    """The queue in the database at `place`, or in tables that are there already. Safe for many threads and processes.

    What `put` returned survives a power cut. `earlier` is a queue whose items are moved into this one when it is first used: what was
    queued before the rows of all machines were in one place.
    """

    def __init__(
        self,
        place: str | PathLike[str] | QueueTables,
        *,
        debounce: float = 30.0,
        lease: float = 900.0,
        retry: Retry | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        bus: Bus | None = None,
        earlier: MemoryQueue | None = None,
    ) -> None:
        self.debounce = debounce
        self.retry = retry or Retry()
        self._bus = bus or process_bus
        self._place = SqliteTables(place, clock=clock or SystemClock(), bus=self._bus) if isinstance(place, str | PathLike) else place
        self._lease = lease
        self._ids = ids or RandomIds()
        self._own: deque[str] = deque(maxlen=_OWN)
        self._earlier = earlier
        self._moving = threading.RLock()
        self._moved = earlier is None

    @property
    def place(self) -> str:
        """Tells this queue from another one."""
        return self._place.place

    def is_there(self) -> bool:
        """Whether anything may be in it: to look at a queue that nobody ever used makes none."""
        return self._place.is_there()

    @property
    def shared(self) -> bool:
        """Whether other machines put into it and work on it too."""
        return not isinstance(self._place, SqliteTables)

    @property
    def own(self) -> tuple[str, ...]:
        """The items that this process queued last."""
        return tuple(self._own)

    # Putting in

    def put(self, thread: str, turns: Sequence[Turn], agent: str | None = None) -> str | None:
        """Queue turns of a thread; gives the id of the item they are in, or None when every one of them was queued before.

        They join the item of the same thread and agent that waits already, if nobody has begun with it, and make it wait anew: for
        `debounce` seconds, but never more than ten times as long in all.
        """
        agent, thread = check_agent(agent), _plain(check_thread(thread))
        now = self._now()
        new: list[Turn] = []

        def work(run: Run) -> str | None:
            new[:] = [turn for turn in turns if _is_new(run, thread, agent, turn, now)]
            return (self._join(run, thread, agent, new, now) or self._add(run, thread, agent, new, now)) if new else None

        id = self._tables.change(work)
        if id is not None:
            self._own.append(id)
            self._bus.emit(UpdateQueued(thread=thread, messages=sum(turn.kind in ("user", "assistant") for turn in new)))
            self._bus.emit(UpdateDebounced(thread=thread, seconds=self.debounce))
        return id

    def _join(self, run: Run, thread: str, agent: str | None, new: Sequence[Turn], now: float) -> str | None:
        """Into the item that waits. Never into one that somebody began with: its changes may be in the memory already."""
        row = run("joinable", thread, agent or "").fetchone()
        if row is None:
            return None
        id, turns, queued = row
        due = min(now + self.debounce, max(queued + 10 * self.debounce, now))
        run("join", write_turns([*read_turns(turns), *new]), due, id)
        return str(id)

    def _add(self, run: Run, thread: str, agent: str | None, new: Sequence[Turn], now: float) -> str:
        id = self._ids.new("update")
        run("add", id, thread, agent or "", write_turns(new), now, now + self.debounce, 0, 0, None, None)
        return id

    # Working

    def claim(self, *, early: bool = False, besides: Collection[str] = (), only: Collection[str] | None = None) -> Item | None:
        """Take the item that is due first, for this process alone; None when there is none.

        With `early` debounce and back-off do not count; `besides` names items that are not wanted, `only` those that are. Items of one
        thread and agent are given out in the order in which they came, one at a time.
        """
        now = self._now()
        holder = f"{self._tables.sign()}|{self._ids.new()}"
        wanted = (json.dumps(list(besides)), only is None, json.dumps(list(only or ())))
        row = self._tables.change(lambda run: run("claim", holder, now + self._lease, now, early, now, now + _SKEW, *wanted).fetchone())
        item = None if row is None else _item(row)
        if item is not None and item.claims > _CRASHES:
            self._give_up(item, f"{item.claims - 1} workers began with it and none came to an end")
            return self.claim(early=early, besides=besides, only=only)
        return item

    def holds(self, item: Item) -> bool:
        """Whether the item is still this worker's: after its lease somebody else may have it."""
        return bool(self._tables.rows("holds", item.id, item.holder))

    def complete(self, item: Item) -> bool:
        """The work is done: the item leaves the queue. False if it is not this worker's any more."""
        return self._run("complete", item.id, item.holder) == 1

    def release(self, item: Item) -> None:
        """The work did not come to its end and nobody is to blame: somebody else may take it at once."""
        self._run("release", item.id, item.holder)

    def fail(self, item: Item, error: str) -> None:
        """The work failed: it is tried again later, each time after a longer pause, until that has been done too often."""
        failures, reason = item.failures + 1, _plain(error[:500])
        if failures >= self.retry.attempts:
            self._give_up(item, reason)
            return
        pause = self.retry.pause(failures)
        self._run("fail", failures, reason, self._now() + pause, item.id, item.holder)
        self._bus.emit(UpdateFailed(thread=item.thread, error=reason, seconds=pause))

    def _give_up(self, item: Item, reason: str) -> None:
        self._run("give_up", reason, self._now(), item.id, item.holder)
        self._bus.emit(UpdateGivenUp(thread=item.thread, attempts=max(item.claims, item.failures + 1), error=reason))

    def recover(self) -> int:
        """Take back what processes held that are no longer there; says how many items."""
        held = [(str(id), str(holder)) for id, holder in self._tables.rows("held")]
        if not held:
            return 0
        living = self._tables.living({_claimant(holder) for _, holder in held})
        dead = [(id, holder) for id, holder in held if _claimant(holder) not in living]
        return self._tables.change(lambda run: sum(run("release", id, holder).rowcount for id, holder in dead)) if dead else 0

    def retry_given_up(self) -> int:
        """Give the items that were given up another round of tries; says how many."""
        return self._run("retry", self._now())

    # Looking

    def items(self) -> list[Item]:
        """Everything in the queue, in the order in which it came."""
        return [_item(row) for row in self._tables.rows("items")]

    def __len__(self) -> int:
        """How many items wait or are being worked on. Those given up do not count."""
        return int(self._tables.rows("count")[0][0])

    def next_due(self) -> float | None:
        """Seconds until something is due, 0 if something is; None if nothing waits."""
        ((moment,),) = self._tables.rows("next_due")
        return None if moment is None else max(float(moment) - self._now(), 0.0)

    # Taking out

    def forget(self, takes: Callable[[str, Turn], bool]) -> int:
        """Take out every turn that `takes(thread, turn)` names, and scrub what they stood in; says how many turns.

        An item without turns goes. From a worker that is at it the item is taken away: what it found may come from those turns.
        """

        def work(run: Run) -> int:
            gone = 0
            for item in map(_item, run("items").fetchall()):
                kept = [turn for turn in item.turns if not takes(item.thread, turn)]
                gone += len(item.turns) - len(kept)
                if not kept:
                    run("remove", item.id)
                elif len(kept) < len(item.turns):
                    run("shorten", write_turns(kept), item.id)
            return gone

        gone = self._tables.change(work)
        self.scrub()
        if self._earlier is not None and self._earlier.is_there():  # whoever began with an item there before it could be moved has it still
            gone += self._earlier.forget(takes)
        return gone

    def prune(self, before: str, *, dry_run: bool = False) -> int:
        """Take out the items that were given up before a moment (ISO); says how many. What waits stays, however old."""
        moment = datetime.fromisoformat(before).timestamp()
        if dry_run:
            return int(self._tables.rows("count_given_up", moment)[0][0])
        gone = self._run("prune", moment)
        if gone:
            self.scrub()
        return gone

    def scrub(self) -> None:
        """Nothing of what left the queue stays where it was, and marks of turns that are long past go."""
        self._run("unmark", self._now() - _REMEMBER)
        self._tables.scrub()

    def close(self) -> None:
        """Close files and connections. The next use opens them again."""
        self._place.close()
        if self._earlier is not None:
            self._earlier.close()

    @property
    def _tables(self) -> QueueTables:
        """The rows, with those of the earlier queue among them."""
        if not self._moved:
            with self._moving:
                if not self._moved and self._earlier is not None:
                    self._moved = True
                    try:
                        self._move(self._earlier)
                    except BaseException:
                        self._moved = False
                        raise
        return self._place

    def _move(self, earlier: MemoryQueue) -> None:
        """Item by item: it is here before it is gone there. One that was moved and learned from, and is moved again because somebody was
        killed in between, is known by its id in the history of the memory, where an item that was begun with is looked for."""
        if not earlier.is_there():
            return
        earlier.recover()
        marks = earlier._tables.rows("marks")
        self._tables.change(lambda run: [run("mark", mark, time) for mark, time in marks])
        moved = 0
        while (item := earlier.claim(early=True)) is not None:
            self._take_in(item)
            moved += earlier.complete(item)
        for item in [item for item in earlier.items() if item.gave_up is not None]:
            self._take_in(item)
            moved += earlier._run("remove", item.id)
        if moved or marks:
            earlier._run("unmark", self._now() + _REMEMBER)
            earlier.scrub()
        earlier.close()

    def _take_in(self, item: Item) -> None:
        times = (item.queued, item.due, max(item.claims, 1), item.failures, item.error, item.gave_up)
        self._run("add", item.id, item.thread, item.agent or "", write_turns(item.turns), *times)

    def _run(self, query: str, *values: Any) -> int:
        """Run one query as a change; says how many rows it met."""
        return int(self._tables.change(lambda run: run(query, *values).rowcount))

    def _now(self) -> float:
        return self._place.clock.now().timestamp()


def _is_new(run: Run, thread: str, agent: str | None, turn: Turn, now: float) -> bool:
    if not turn.id:
        return True  # nothing tells it from another turn with the same words
    words = json.dumps([thread, agent, turn.id, turn.kind, turn.text])
    return bool(run("mark", blake2b(words.encode("utf-8", "replace"), digest_size=16).digest(), now).rowcount == 1)


def _item(row: Sequence[Any]) -> Item:
    id, thread, agent, turns, *rest = row
    return Item(id, thread, agent or None, tuple(read_turns(turns)), *rest)


def _claimant(holder: str) -> str:
    """Who holds it, without the token of the one claim."""
    return "|".join(holder.split("|")[:3])


def _plain(text: str) -> str:
    """A text that every database takes: half characters and NUL are written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
