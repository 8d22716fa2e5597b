"""One job: advance a session until it ends or waits, and tell the queue how that went (W17). Runs in a thread of a worker."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, LimitExceeded, Locked, NotThere, StoreUnavailable
from holdfast.workers.queue_events import AdvanceFailed, SessionGivenUp
from holdfast.workers.session_queue import SessionQueue, Wish

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.session.state import Session
    from holdfast.workflow.agent import Agents

RETRIES = 5
"""Failed tries after which a session is given up, where nobody says another number."""
DEATHS = 5
"""Workers that may die at one session before it came further: one that kills its process must not kill them all."""
_LONGEST = 300.0
_YOUNG = 30.0
_log = logging.getLogger("holdfast.Worker")


class Again(Exception):
    """The session is to be advanced again, after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:g} s")
        self.seconds = seconds


@dataclass(eq=False)
class Running:
    """A session in the hands of this process."""

    session: str
    stop: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class SessionJob:
    """Advances sessions for one worker. Safe for many threads."""

    harness: Harness
    queue: SessionQueue
    owner: str
    retries: int = RETRIES
    agents: Agents | None = None
    """Agents of the program's own, by type, beside those of the harness."""

    def advance(self, running: Running) -> float | None:
        """Advance it. None when there is nothing more to do about it, else after how many seconds it is to be tried again.

        Somebody else who has it, and a database that is away, are no failures; what is counted are errors that trying again may mend, with
        a back-off, until `retries` are used up.
        """
        try:
            wish = self.queue.wish(running.session)
            if wish is None or not wish.wanted:
                return None
        except StoreUnavailable:
            return _soon()
        try:
            return self._advanced(running, wish)
        except (Locked, StoreUnavailable) as error:
            _log.debug("session %s waits: %s", running.session, error)
            return _soon()
        except NotThere as error:  # announced, and not written yet
            return _soon() if wish.age < _YOUNG else self._failed(running.session, wish, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, counted and tried again, and no other session suffers
            if not isinstance(error, HoldfastError):
                _log.exception("session %s stopped", running.session)
            return self._failed(running.session, wish, error)

    def _advanced(self, running: Running, wish: Wish) -> float | None:
        store, name = self.queue.store, running.session
        if wish.deaths >= DEATHS:
            self._give_up(name, wish, f"{wish.deaths} workers died at it one after the other, without coming further.")
            return None
        session = store.load(name)
        if session.status not in ("completed", "cancelled") and store.cancel_requested(name):  # whoever ran it died before it noticed
            session = self._cancelled(name)
        if session.status in ("completed", "cancelled"):
            self.queue.ended(name, wish.ticket, session.status)
            return None
        ended = self._resumed(running, wish)
        if ended is not None and ended.status == "ready":
            return 0.0
        self.queue.ended(name, wish.ticket, ended.status if ended is not None else "halted")
        return None

    def _resumed(self, running: Running, wish: Wish) -> Session | None:
        """The session after it was advanced; None where it reached a limit, which it says itself."""

        def started(session: Session, *_: object) -> None:
            self.queue.begun(running.session, worker=self.owner, progress=len(session.completed_stages))

        with ExitStack() as opened:
            launcher = self.harness.launcher(
                store=self.queue.store,
                stop=running.stop,
                leave=running.leave,
                owner=self.owner,
                started=started,
                **self._parts(wish.options, opened),
            )
            try:
                return launcher.resume(running.session, as_started=True)
            except LimitExceeded:
                return None

    def _parts(self, options: Mapping[str, Any], opened: ExitStack) -> Any:
        """How the session was asked to be run. Long-term memory as the configuration says is opened once for all."""
        parts: dict[str, Any] = {"model": options.get("model"), "remember": bool(options.get("remember", True))}
        place = options.get("knowledge")
        if isinstance(place, str):
            parts["knowledge"] = opened.enter_context(self.harness.open_knowledge(place))
        elif parts["remember"]:
            parts["knowledge"] = self.harness.knowledge
        if self.agents:
            parts["agents"] = {**self.harness.stage_agents(parts["model"]), **self.agents}
        return parts

    def _cancelled(self, session: str) -> Session:
        store = self.queue.store
        with store.hold(session, owner=self.owner):
            now = store.load(session)
            return store.commit(replace(now, status="cancelled"), expect=now.revision)

    def _failed(self, session: str, wish: Wish, error: Exception) -> float | None:
        told = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        try:
            failures = self.queue.failed(session, wish.ticket, told[:2000])
            if failures > self.retries:
                self._give_up(session, wish, told[:2000])
                return None
        except StoreUnavailable:
            return _soon()
        seconds = min(_LONGEST, 2.0 ** (failures - 1)) * random.uniform(0.8, 1.2)  # noqa: S311 - so that not all come at once
        again = AdvanceFailed(session=session, failures=failures, retries=self.retries, seconds=round(seconds, 1), problem=told)
        self.harness.bus.emit(again)
        return seconds

    def _give_up(self, session: str, wish: Wish, why: str) -> None:
        self.harness.bus.emit(SessionGivenUp(session=session, problem=why))
        self.queue.ended(session, wish.ticket, "given up", why)


def _soon() -> float:
    return random.uniform(0.8, 1.2)  # noqa: S311 - so that not all come at once
