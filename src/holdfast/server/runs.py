"""What runs in this server, turns of conversations and sessions of workflows, and the streams by which it is followed (O3, O4, A13, W6).

A stream is a ring of frames, each encoded once and shared by all who listen. Ids only grow. Who comes back with the id of the last event
it saw gets what came since, or a `reset` if that is gone: fetch the state anew and follow from there. Never silence.
What runs belongs to the server, not to the request that began it: a client that leaves loses nothing, and comes back to its events.
A session that runs elsewhere (a terminal, another machine) is followed in the same way: by its journal, whoever writes it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, IdSource, stamp
from holdfast.errors import HoldfastError, Locked, NotThere
from holdfast.redaction import redact
from holdfast.server.wire import kind_name
from holdfast.talk import ApprovalNeeded, Ended, ModelReplaced, Subagent, Token, ToolCalled, ToolFinished, TurnEvent, as_dict
from holdfast.tracing import bare_context
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow.events import SessionJournal

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.session.state import Session
    from holdfast.talk import Talk
    from holdfast.workflow.definition import Workflow

KEEP_ALIVE = 15.0
"""Seconds after which a comment is sent on a quiet stream, so that nothing on the way thinks it dead."""
MEDIA_TYPE = "text/event-stream"
_RING = 5_000
_PING = b": ping\n\n"


def frame(id: str, kind: str, data: Mapping[str, Any]) -> bytes:
    """One event as it goes over the wire."""
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"id: {id}\nevent: {kind}\ndata: {told}\n\n".encode("utf-8", "replace")


class EventStream:
    """The events of one thing (a run, everything), kept for those who listen. `publish` may be called from any thread and never waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, keep: int = _RING, dropped: Callable[[int], object] = lambda _: None) -> None:
        """`dropped` is told of how many events somebody who listens will not get, because the ring went round meanwhile."""
        self._loop, self._dropped = loop, dropped
        self.epoch = secrets.token_hex(4)
        self._ring: deque[tuple[int, bytes]] = deque(maxlen=keep)
        self._number = 0
        self._listeners: set[asyncio.Event] = set()
        self.ended = False

    @property
    def listeners(self) -> int:
        """How many follow it now."""
        return len(self._listeners)

    def publish(self, kind: str, data: Mapping[str, Any], *, last: bool = False) -> None:
        """Tell everybody. After the `last` one there is nothing more."""
        try:
            self._loop.call_soon_threadsafe(self._put, kind, data, last)
        except RuntimeError:  # the server is gone, and with it all who listened
            return

    def _put(self, kind: str, data: Mapping[str, Any], last: bool) -> None:
        if self.ended:
            return
        self._number += 1
        self._ring.append((self._number, frame(f"{self.epoch}-{self._number}", kind, data)))
        self.ended = last
        for waiting in self._listeners:
            waiting.set()

    async def follow(self, last_id: str | None = None, *, wait: bool = True) -> AsyncIterator[bytes]:
        """The frames after this id as they come, several at once when several are there; without `wait` only those that are there."""
        at, reset = self._place(last_id)
        if reset is not None:
            yield reset
        woken = asyncio.Event()
        self._listeners.add(woken)
        try:
            while True:
                woken.clear()
                if self._ring and self._ring[-1][0] > at:
                    new = list(itertools.islice(self._ring, max(0, at + 1 - self._ring[0][0]), None))
                    if new[0][0] > at + 1:  # this listener was so slow that the ring went round
                        self._dropped(new[0][0] - at - 1)
                        yield self._reset(new[0][0] - 1)
                    at = new[-1][0]
                    yield b"".join(data for _, data in new)
                    continue
                if self.ended or not wait:
                    return
                try:
                    await asyncio.wait_for(woken.wait(), KEEP_ALIVE)
                except TimeoutError:
                    yield _PING
        finally:
            self._listeners.discard(woken)

    def _place(self, last_id: str | None) -> tuple[int, bytes | None]:
        oldest = self._ring[0][0] if self._ring else self._number + 1
        if not last_id:
            return 0 if oldest == 1 else oldest - 1, None
        epoch, _, number = last_id.rpartition("-")
        at = int(number) if number.isdecimal() and len(number) < 18 else -1
        if epoch == self.epoch and oldest - 1 <= at <= self._number:
            return at, None
        if epoch == self.epoch and 0 <= at < oldest:
            self._dropped(oldest - 1 - at)
        return oldest - 1, self._reset(oldest - 1)

    def _reset(self, at: int) -> bytes:
        return frame(f"{self.epoch}-{at}", "reset", {"why": "what you saw last is no longer here: fetch the state anew"})


_KEPT = 500
"""Runs whose events can still be read after they ended."""


@dataclass
class ToolUse:
    """A call of a tool in a turn, and what came of it so far. `task` is the newest event of the sub-agent that it started."""

    id: str
    name: str
    args: Mapping[str, Any]
    status: str = "running"
    text: str = ""
    task: Mapping[str, Any] | None = None


@dataclass
class Progress:
    """What a turn has said and done so far, in its order: texts, and uses of tools. For who looks in while it runs."""

    said: str = ""
    """What the user said; empty for a turn that goes on."""
    held: int = 0
    """How many messages the conversation had before it."""
    steps: list[str | ToolUse] = field(default_factory=list)

    def take(self, event: TurnEvent) -> None:
        """Note what happened."""
        if isinstance(event, Token):
            if self.steps and isinstance(self.steps[-1], str):
                self.steps[-1] += event.text
            else:
                self.steps.append(event.text)
        elif isinstance(event, ModelReplaced):
            if self.steps and isinstance(self.steps[-1], str):
                self.steps.pop()
        elif isinstance(event, ToolCalled):
            self.steps.append(ToolUse(event.id, event.name, event.args))
        elif isinstance(event, ToolFinished) and (use := self._use(event.id)) is not None:
            use.status, use.text = event.status, event.text
        elif isinstance(event, Subagent) and (use := self._use(str(event.event.get("call")))) is not None:
            use.task = {**(use.task or {}), **event.event}

    @property
    def text(self) -> str:
        """What was said last, as far as it came: after the newest use of a tool."""
        return next((step for step in reversed(self.steps) if isinstance(step, str)), "")

    def _use(self, id: str) -> ToolUse | None:
        return next((step for step in reversed(self.steps) if isinstance(step, ToolUse) and step.id == id), None)


@dataclass
class Run:
    """One turn: what is known of it now. `status` is running, completed, failed, cancelled, or why it ended else."""

    id: str
    thread: str
    agent: str | None
    created: str
    stream: EventStream
    status: str = "running"
    text: str = ""
    tokens: int = 0
    artifacts: tuple[str, ...] = ()
    error: str | None = None
    ended: str | None = None
    progress: Progress = field(default_factory=Progress, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    settled: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when it has its thread to itself, or when it was refused before that."""
    refused: HoldfastError | None = field(default=None, repr=False)


class RunningTurns:
    """The runs of this server. Used on its loop alone, but for `running`."""

    def __init__(
        self,
        ids: IdSource,
        clock: Clock,
        dropped: Callable[[int], object] = lambda _: None,
        in_our_words: Callable[[Exception], HoldfastError | None] = lambda _: None,
    ) -> None:
        """`in_our_words` knows the errors of models that nobody has put into ours."""
        self._ids, self._clock, self._dropped, self._in_our_words = ids, clock, dropped, in_our_words
        self._runs: OrderedDict[str, Run] = OrderedDict()

    async def begin(self, talk: Talk, turn: Callable[[], AsyncIterator[TurnEvent]], *, said: str = "", held: int = 0) -> Run:
        """Start a turn and give its run; `said` is what the user said and `held` how many messages there were before.

        Locked while another one of the same thread runs, here or in another process: what is in the way before the turn has its thread
        to itself is raised here, and there is no run.
        """
        busy = next((run for run in self._runs.values() if run.thread == talk.thread and run.status == "running"), None)
        if busy is not None:
            raise Locked(f"a turn of this thread is under way: {busy.id}.", owner=busy.id, hint="Wait for it, or cancel it.")
        stream = EventStream(asyncio.get_running_loop(), dropped=self._dropped)
        run = Run(self._ids.new("run"), talk.thread, talk.agent_name, stamp(self._clock.now()), stream)
        run.progress = Progress(said, held)
        loop = asyncio.get_running_loop()

        def begun() -> str:
            loop.call_soon_threadsafe(run.settled.set)
            return run.id

        talk.new_run = begun
        self._runs[run.id] = run
        run.task = asyncio.create_task(self._drive(run, talk, turn))
        await run.settled.wait()
        if run.refused is not None:
            del self._runs[run.id]
            raise run.refused
        for id in [id for id, one in self._runs.items() if one.status != "running"][: max(0, len(self._runs) - _KEPT)]:
            del self._runs[id]
        return run

    async def _drive(self, run: Run, talk: Talk, turn: Callable[[], AsyncIterator[TurnEvent]]) -> None:
        self._tell(run, "run_started", {})
        try:
            async for event in turn():
                run.settled.set()
                run.progress.take(event)
                if isinstance(event, Ended):
                    run.status, run.text = event.reason, event.text
                    run.tokens, run.artifacts = event.tokens, event.artifacts
                    self._tell(run, "run_ended", {"reason": event.reason, "text": event.text, "tokens": event.tokens}, last=True)
                else:
                    told = as_dict(event)
                    self._tell(run, told.pop("type"), told, whole=isinstance(event, ApprovalNeeded))
            if run.status == "running":
                self._failed(run, "the turn came to no end.", "failed")
        except asyncio.CancelledError:
            run.text = run.progress.text
            self._failed(run, "the turn was stopped.", "cancelled")
            raise
        except HoldfastError as error:
            run.refused = None if run.settled.is_set() else error
            self._failed(run, error.public, "failed", kind_name(error))
        except Exception as error:  # a model or a tool of the user's own may raise anything; the run tells it, the log has it
            if (failed := self._in_our_words(error)) is not None:
                return self._failed(run, failed.public, "failed", kind_name(failed))
            self._failed(run, f"{type(error).__name__}: the server's log has it.", "failed")
            logging.getLogger("holdfast.server").exception("run %s failed", run.id)
        finally:
            run.ended = stamp(self._clock.now())
            run.settled.set()
            await asyncio.shield(asyncio.to_thread(talk.close))

    def _failed(self, run: Run, why: str, status: str, kind: str = "error") -> None:
        run.status, run.error = status, why
        self._tell(run, "run_failed" if status == "failed" else "run_ended", {"reason": status, "error": why, "kind": kind}, last=True)

    def _tell(self, run: Run, kind: str, data: dict[str, Any], *, last: bool = False, whole: bool = False) -> None:
        """Publish an event. `whole` is for what a person is to agree to: no redactor hides a part of it."""
        scope = {"thread": run.thread, "run": run.id, **({"agent": run.agent} if run.agent else {})}
        envelope = {"v": 1, "at": stamp(self._clock.now()), "kind": kind, "scope": scope, "data": data if whole else redact(data)}
        run.stream.publish(kind, envelope, last=last)

    def find(self, id: str) -> Run:
        """The run of this id. NotThere for one that never was, or that ended long ago."""
        found = self._runs.get(id)
        if found is None:
            raise NotThere(f"there is no run {id[:80]!r} here.", hint="Its conversation has what was said.")
        return found

    def of_thread(self, thread: str) -> list[Run]:
        """The runs of a thread, the newest first."""
        return [run for run in reversed(self._runs.values()) if run.thread == thread]

    @property
    def running(self) -> list[Run]:
        """Those that have not ended."""
        return [run for run in list(self._runs.values()) if run.status == "running"]

    async def cancel(self, run: Run) -> None:
        """Stop it, and wait until it is over. What was said stays in the conversation."""
        if run.task is not None and not run.task.done():
            run.task.cancel()
            await asyncio.wait([run.task])

    async def stop(self, seconds: float) -> None:
        """Stop all of them."""
        tasks = [run.task for run in self.running if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


_LOOK = 0.2
"""Seconds between two looks at a journal that somebody follows."""
_AT_ONCE = 20.0
"""Seconds that whoever starts a session waits for its first stage, or for what is in the way. Agents may have much to import."""
_log = logging.getLogger("holdfast.server")


@dataclass
class _Running:
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    settled: threading.Event = field(default_factory=threading.Event)
    """Set when its first stage is about to start, or when it was refused before that."""
    refused: Exception | None = None


class SessionRuns:
    """Runs sessions until they end, pause, or the server stops. Safe for many threads."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._followers: dict[str, _Follower] = {}

    def create(self, workflow: Workflow | Mapping[str, Any] | str, **settings: Any) -> Session:
        """A new session, on disk and not running yet."""
        return self._harness.launcher(store=self._harness.sessions).create(workflow, **settings)

    def start(self, session: str, **settings: Any) -> None:
        """Go on with a session in a thread of its own. Locked if this server runs it already. One that workers have is left to them.

        What is found before its first stage starts (somebody else runs it, a hand edit that does not fit, a workflow that has changed) is
        raised here: whoever asked is told, and the session stays as it is.
        """
        if not settings.get("accept_changes") and self.leave_to_workers(session):
            return
        running = _Running()
        with self._lock:
            if session in self._running:
                raise Locked(f"the session {session} is running.", owner="this server")
            self._running[session] = running
        run = (self._run, session, running, settings)
        work = threading.Thread(target=bare_context().run, args=run, name=f"session {session}", daemon=True)
        running.thread = work
        work.start()
        running.settled.wait(_AT_ONCE)
        if running.refused is not None:
            raise running.refused

    def leave_to_workers(self, session: str) -> bool:
        """Let workers go on with a session that is the queue's; False for one that is not."""
        queue = SessionQueue.find(self._harness.sessions)
        if queue is None or queue.wish(session) is None:
            return False
        queue.put(session)
        return True

    def _run(self, session: str, running: _Running, settings: dict[str, Any]) -> None:
        try:
            launcher = self._harness.launcher(
                store=self._harness.sessions, stop=running.stop, owner="holdfast serve", started=lambda *_: running.settled.set()
            )
            launcher.resume(session, **settings)
        except HoldfastError as error:  # whoever asked is told, or, once it runs, the session has it and whoever watches sees it there
            _log.warning("session %s: %s", session, error)
            running.refused = None if running.settled.is_set() else error
        except Exception as error:  # noqa: BLE001 - an agent of the user's own may raise anything; the session is on disk
            _log.exception("session %s stopped", session)
            running.refused = None if running.settled.is_set() else error
        finally:
            with self._lock:
                self._running.pop(session, None)
            running.settled.set()

    @property
    def running(self) -> list[str]:
        """The sessions that run here."""
        with self._lock:
            return list(self._running)

    def stop(self, seconds: float) -> None:
        """Tell all of them to stop, and wait for their next commit."""
        with self._lock:
            found = list(self._running.values())
        for running in found:
            running.stop.set()
        for running in found:
            if running.thread is not None:
                running.thread.join(seconds)

    def follow(self, session: str, last_id: str | None, stopping: Callable[[], bool], *, wait: bool = True) -> AsyncIterator[bytes]:
        """The journal of a session as frames, from the event after `last_id` on; ends with the session."""
        follower = self._followers.get(session)
        if follower is None:
            if len(self._followers) > 200:
                self._followers = {name: one for name, one in self._followers.items() if one.listeners}
            follower = self._followers[session] = _Follower(SessionJournal(self._harness.sessions, session))
        return follower.follow(last_id, stopping, wait=wait)


class _Follower:
    """One journal, read once for all who follow it."""

    def __init__(self, journal: SessionJournal) -> None:
        self._journal = journal
        self._place: object = None
        self._frames: list[tuple[int, bytes]] = []
        self._looking = asyncio.Lock()
        self._looked = 0.0
        self._ended = False
        self.listeners = 0

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._looking:
            if loop.time() - self._looked < _LOOK / 2:  # somebody else did just now
                return
            page = await asyncio.to_thread(self._journal.read, self._place)
            self._looked = loop.time()
            self._place = page.place
            for event in page.events:
                number = int(event["id"]) if str(event.get("id", "")).isdecimal() else 0
                if not self._frames or number > self._frames[-1][0]:
                    self._frames.append((number, frame(str(number), str(event["kind"]), event)))
                    self._ended = event["kind"] == "session_ended" and event["data"].get("status") == "completed"

    async def follow(self, last_id: str | None, stopping: Callable[[], bool], *, wait: bool) -> AsyncIterator[bytes]:
        at = int(last_id) if last_id and last_id.isdecimal() and len(last_id) < 18 else 0
        self.listeners += 1
        quiet = 0.0
        try:
            await self._look()
            if self._frames and at > self._frames[-1][0]:
                yield frame("0", "reset", {"why": "there is no such event: fetch the state anew"})
                at = 0
            while True:
                new = self._frames[bisect_right(self._frames, at, key=lambda one: one[0]) :]
                if new:
                    at, quiet = new[-1][0], 0.0
                    yield b"".join(data for _, data in new)
                if self._ended or not wait or stopping():
                    yield frame(str(at), "end", {"reason": "server_stopping" if stopping() else "ended" if self._ended else "all"})
                    return
                await asyncio.sleep(_LOOK)
                quiet += _LOOK
                if quiet >= KEEP_ALIVE:
                    quiet = 0.0
                    yield _PING
                await self._look()
        finally:
            self.listeners -= 1
