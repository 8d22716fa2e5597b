"""Sessions of workflows that this server runs, each in a thread of its own, and journals that anybody follows (W6, O4).

A session that runs elsewhere (a terminal, another machine) is followed in the same way: by its journal, whoever writes it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, Locked
from holdfast.server.event_stream import KEEP_ALIVE, frame
from holdfast.tracing import bare_context
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow.journal import SessionJournal

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.session.state import Session
    from holdfast.workflow.definition import Workflow

_LOOK = 0.2
"""Seconds between two looks at a journal that somebody follows."""
_log = logging.getLogger("holdfast.server")


@dataclass
class _Running:
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


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
        """Go on with a session in a thread of its own. Locked if this server runs it already. One that workers have is left to them."""
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

    def leave_to_workers(self, session: str) -> bool:
        """Let workers go on with a session that is the queue's; False for one that is not."""
        queue = SessionQueue.find(self._harness.sessions)
        if queue is None or queue.wish(session) is None:
            return False
        queue.put(session)
        return True

    def _run(self, session: str, running: _Running, settings: dict[str, Any]) -> None:
        try:
            launcher = self._harness.launcher(store=self._harness.sessions, stop=running.stop, owner="holdfast serve")
            launcher.resume(session, **settings)
        except HoldfastError as error:  # the session has it, and whoever watches sees it there
            _log.warning("session %s: %s", session, error)
        except Exception:  # noqa: BLE001 - an agent of the user's own may raise anything; the session is on disk and can be resumed
            _log.exception("session %s stopped", session)
        finally:
            with self._lock:
                self._running.pop(session, None)

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
                new = self._frames[_after(self._frames, at) :]
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
                    yield b": ping\n\n"
                await self._look()
        finally:
            self.listeners -= 1


def _after(frames: list[tuple[int, bytes]], number: int) -> int:
    """Where those after this number begin."""
    low, high = 0, len(frames)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if frames[middle][0] <= number else (low, middle)
    return low
