"""`QueueWorker`: the process that works through the queue, and outlives its database; `SessionJob`: one job of it (W17).

procrastinate's worker fetches jobs; beside it, and not behind the jobs, somebody cares: gives signs of life, takes over the sessions of
workers that died, begins what the clock asks for. A failing connection ends procrastinate's worker, so it is begun anew until it stands.
A session that runs meanwhile goes on in its thread: the job that comes for it afterwards joins it.

A job advances a session until it ends or waits, in a thread of the worker, and tells the queue how that went.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast import __version__
from holdfast.durable.postgres_connection import driver
from holdfast.errors import DiskFull, HoldfastError, LimitExceeded, Locked, NotThere, StorageError, StoreUnavailable
from holdfast.workers.session_queue import QUEUE, TASK, Schedules, SessionQueue, Wish, WorkerEvent, engine, engine_version

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
_FULL = 15.0
"""Seconds until it is tried again whether a full disk has room."""


@dataclass(frozen=True, kw_only=True)
class SessionTakenOver(WorkerEvent):
    """The worker that had a session gave no sign of life; another one goes on with it."""

    text: ClassVar[str] = "Session {session} is taken over: its worker gave no sign of life"

    session: str


@dataclass(frozen=True, kw_only=True)
class AdvanceFailed(WorkerEvent):
    """A session could not be advanced, and is tried again later."""

    text: ClassVar[str] = "Session {session} could not be advanced ({failures} of {retries}), again in {seconds} s: {problem}"

    session: str
    failures: int
    retries: int
    seconds: float
    problem: str


@dataclass(frozen=True, kw_only=True)
class SessionWaits(WorkerEvent):
    """The disk of the database is full, which is no failure of the session: it is tried again until there is room."""

    text: ClassVar[str] = "Session {session} waits {seconds} s: {problem}"

    session: str
    seconds: float
    problem: str


@dataclass(frozen=True, kw_only=True)
class SessionGivenUp(WorkerEvent):
    """A session is not tried again until somebody queues it."""

    text: ClassVar[str] = "Session {session} is given up: {problem} `holdfast resume {session}` queues it again"
    level: ClassVar[int] = logging.ERROR

    session: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class DatabaseAway(WorkerEvent):
    """The database cannot be reached; the worker tries again until it can."""

    text: ClassVar[str] = "The database is away ({problem}); trying again until it is back"

    problem: str


@dataclass(frozen=True, kw_only=True)
class DatabaseBack(WorkerEvent):
    """It is there again."""

    text: ClassVar[str] = "The database is back"


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
    _waited: set[str] = field(default_factory=set)
    """Sessions that found a store unavailable, and the queue's own database there: it may just have come back."""

    def advance(self, running: Running) -> float | None:
        """Advance it. None when there is nothing more to do about it, else after how many seconds it is to be tried again.

        Somebody else who has it, and a database that is away or full, are no failures; what is counted are errors that trying again may
        mend, with a back-off, until `retries` are used up. A store that is unavailable again although the queue's database is there is such
        an error.
        """
        try:
            wish = self.queue.wish(running.session)
            if wish is None or not wish.wanted:
                return None
        except StoreUnavailable:
            return _soon()
        try:
            seconds = self._advanced(running, wish)
        except (Locked, StoreUnavailable) as error:
            _log.debug("session %s waits: %s", running.session, error)
            if isinstance(error, Locked) or not self._is_lasting(running.session):
                return _soon()
            return self._failed(running.session, wish, error)
        except DiskFull as error:
            if error.path != self.queue.database.shown:
                return self._failed(running.session, wish, error)
            seconds = _FULL * random.uniform(0.8, 1.2)  # noqa: S311 - so that not all come at once
            self.harness.bus.emit(SessionWaits(session=running.session, seconds=round(seconds, 1), problem=str(error)))
            return seconds
        except NotThere as error:  # announced, and not written yet
            return _soon() if wish.age < _YOUNG else self._failed(running.session, wish, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, counted and tried again, and no other session suffers
            if not isinstance(error, HoldfastError):
                _log.exception("session %s stopped", running.session)
            return self._failed(running.session, wish, error)
        self._waited.discard(running.session)
        return seconds

    def _is_lasting(self, session: str) -> bool:
        """Whether a store was unavailable for this session before, and the queue's database answers: then it is not that which is away."""
        if session not in self._waited:
            self._waited.add(session)
            return False
        try:
            return self.queue.database.one("SELECT 1") is not None
        except StoreUnavailable:
            return False

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
        with store.lease(session, owner=self.owner):
            now = store.load(session)
            return store.commit(replace(now, status="cancelled"), expect=now.revision)

    def _failed(self, session: str, wish: Wish, error: Exception) -> float | None:
        told = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        try:
            failures = self.queue.failed(session, wish.ticket, told[:2000])
            if failures > self.retries:
                self._give_up(session, wish, told[:2000])
                return None
        except StorageError:  # away, or its disk is full: nothing can be noted there now
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


HEARTBEAT, STALE = 1.0, 3.0
"""Seconds between two signs of life of a worker, and without one until another takes over its sessions."""
_TIDY = 60.0
_LONGEST_PAUSE = 2.0
_log = logging.getLogger("holdfast.Worker")


class QueueWorker:
    """Advances up to `concurrency` sessions at once until it is told to stop; with `once`, until nothing is left to be done.

    Told to stop (`stop`, SIGTERM, SIGINT), each session comes to the end of its stage, is committed and left to others; what takes longer
    than `grace` seconds is broken off, and that stage begins anew elsewhere. Told so twice, it ends at once.
    """

    def __init__(
        self,
        harness: Harness,
        queue: SessionQueue,
        *,
        name: str | None = None,
        concurrency: int = 4,
        grace: float = 30.0,
        retries: int = RETRIES,
        once: bool = False,
        agents: Agents | None = None,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._queue = queue
        self._bus = harness.bus
        self._job = SessionJob(harness, queue, f"worker {self.name}", retries, agents)
        self._schedules = Schedules(harness, queue)
        self._concurrency, self._grace, self._once, self._started = concurrency, grace, once, started
        self._running: dict[str, tuple[Running, asyncio.Future[float | None]]] = {}
        self._threads = ThreadPoolExecutor(concurrency, "session")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Any = None
        self._over: asyncio.Event | None = None
        self._nudge = asyncio.Event()
        self._away = False
        self._ahead = timedelta()
        """How far the clock of the server is ahead of this machine's."""

    def run(self) -> None:
        """Work. Returns when it was stopped, or with `once` when nothing is left."""
        for noisy in ("procrastinate", "psycopg.pool"):  # what it has to say is said by us, once
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        try:
            asyncio.run(self._live())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """From any thread: come to an end in order."""
        if self._loop is not None and self._over is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._leave)

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(_quiet)
        pause = 0.1
        with self._signals(self._loop):
            while not self._over.is_set():
                try:
                    await asyncio.to_thread(self._queue.database.one, "SELECT 1")
                    self._back()
                    pause = 0.1
                    await self._work()
                except Exception as error:  # noqa: BLE001 - what the engine raises about a lost connection has many classes
                    self._say_away(error)
                if not self._over.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._over.wait(), pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
            await self._last_ones()

    async def _work(self) -> None:
        """procrastinate's worker on a pool of its own, for as long as the connection stands."""
        package = engine()
        app = package.App(connector=self._connector(package))
        app.task(name=TASK, queue=QUEUE, pass_context=True, retry=_retry(package, lambda: self._ahead))(self._advance)
        async with app.open_async():
            worker = self._worker = app._worker(
                queues=[QUEUE],
                name=self.name,
                concurrency=self._concurrency,
                fetch_job_polling_interval=1.0,
                abort_job_polling_interval=60.0,
                shutdown_graceful_timeout=0.0,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=HEARTBEAT,
                stalled_worker_timeout=STALE * 10,
            )
            if self._over is not None and self._over.is_set():
                return
            care = asyncio.create_task(self._care(app, worker))
            try:
                await worker.run()
            finally:
                self._worker = None
                care.cancel()
                await asyncio.gather(care, return_exceptions=True)

    def _connector(self, package: Any) -> Any:
        database = self._queue.database

        async def configure(connection: Any) -> None:
            await connection.set_autocommit(True)
            await connection.execute("SELECT set_config('search_path', %s, false)", [f'"{database.schema}", public'])

        parts = {key: value for key, value in database.address.parts.items() if value is not None}
        return package.PsycopgConnector(conninfo="", kwargs=parts, configure=configure, min_size=1, max_size=4, timeout=2.0)

    # Jobs

    async def _advance(self, context: Any, session: str) -> None:
        """The job. It waits for the thread that has the session; should the engine go meanwhile, the thread stays."""
        found = self._running.get(session)
        if found is None:
            running = Running(session)
            if self._over is not None and self._over.is_set():
                raise Again(0.0)
            future: asyncio.Future[float | None] = asyncio.get_running_loop().run_in_executor(self._threads, self._job.advance, running)
            found = self._running[session] = running, future
            future.add_done_callback(lambda _: self._done(session))
        seconds = await asyncio.shield(found[1])
        if seconds is not None:
            raise Again(seconds)

    def _done(self, session: str) -> None:
        self._running.pop(session, None)
        if self._once:
            self._nudge.set()

    # Care

    async def _care(self, app: Any, worker: Any) -> None:
        """What is done once a second beside the jobs. A connection that fails is noticed by the engine, which ends."""
        signed, tidied = None, 0.0
        lost: set[int] = set()
        while self._worker is worker:  # a cancellation may be lost inside of a query that fails at that moment
            with suppress(StorageError, app_errors(), driver().Error):
                if worker.worker_id is not None and worker.worker_id != signed:
                    signed = worker.worker_id
                    await asyncio.to_thread(self._sign, signed)
                    self._started()
                    self._started = lambda: None
                self._ahead = await asyncio.to_thread(self._queue.clock) - datetime.now(UTC)
                await self._beat(app, worker)
                await self._take_over(app)
                lost = await self._take_back(app, worker, lost)
                await asyncio.to_thread(self._queue.tend)
                await asyncio.to_thread(self._schedules.begin_due)
                if (now := asyncio.get_running_loop().time()) >= tidied:
                    await asyncio.to_thread(self._queue.tidy)
                    tidied = now + _TIDY
                if self._once and not self._running and await asyncio.to_thread(self._queue.left) == 0:
                    self._leave()
            with suppress(TimeoutError):  # who ends when nothing is left looks when a session has ended
                pause = HEARTBEAT * random.uniform(0.8, 1.2)  # noqa: S311 - so that not all look at once
                await asyncio.wait_for(self._nudge.wait(), pause)
            self._nudge.clear()

    def _sign(self, number: int) -> None:
        values = [number, self.name, socket.gethostname(), os.getpid(), self._concurrency, __version__, engine_version()]
        with self._queue.database.transaction() as step:
            step.execute(self._queue.sql["sign_worker"], values)

    async def _beat(self, app: Any, worker: Any) -> None:
        """A sign of life also while the engine waits for its last jobs: it gives none then."""
        if worker.worker_id is not None:
            await app.job_manager.update_heartbeat(worker.worker_id)

    async def _take_over(self, app: Any) -> None:
        """Put the jobs of dead workers back. Who had one and lives after all is not disturbed: the session is held."""
        for job in await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=STALE):
            with suppress(app_errors()):  # another worker was quicker
                await app.job_manager.retry_job(job)
                session = str(job.task_kwargs.get("session"))
                if session not in self._running and await asyncio.to_thread(self._queue.died, session):
                    self._bus.emit(SessionTakenOver(session=session))

    async def _take_back(self, app: Any, worker: Any, lost: set[int]) -> set[int]:
        """Put back jobs that are this worker's by the tables and that nobody here works at: their end could not be noted.

        One may have been fetched at this very moment, so only those of the round before (`lost`) are; gives those of this one.
        """
        if worker.worker_id is None:
            return set()
        jobs = await app.job_manager.list_jobs_async(queue=QUEUE, status="doing", worker_id=worker.worker_id)
        known = {context.job.id for context in worker._running_jobs.values()}
        found = {job.id: job for job in jobs if job.id not in known}
        for job in [job for id, job in found.items() if id in lost]:
            with suppress(app_errors()):
                await app.job_manager.retry_job(job)
        return set(found)

    # The end

    @contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        known = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in known:
            loop.add_signal_handler(number, self._told, number)
        try:
            yield
        finally:
            for number in known:
                loop.remove_signal_handler(number)

    def _told(self, number: int) -> None:
        if self._over is not None and self._over.is_set():
            os._exit(128 + number)  # told twice: everything that counts is committed, and a dead worker's sessions are taken over
        self._leave()

    def _leave(self) -> None:
        """Take no more jobs, and let each session come to its next commit; after the grace time break off what still runs."""
        if self._over is None or self._loop is None or self._over.is_set():
            return
        self._over.set()
        for running, _ in self._running.values():
            running.leave.set()
        self._loop.call_later(self._grace, self._break_off)
        if self._worker is not None:
            self._worker.shutdown_graceful_timeout = None
            self._worker.stop()

    def _break_off(self) -> None:
        for running, _ in self._running.values():
            running.stop.set()

    async def _last_ones(self) -> None:
        """Sessions that run although the engine is gone: to their next commit, not longer than the grace time and a moment."""
        rest = [future for _, future in self._running.values()]
        if rest:
            await asyncio.wait(rest, timeout=self._grace + 5.0)

    def _say_away(self, error: Exception) -> None:
        if isinstance(error, HoldfastError) and not isinstance(error, StoreUnavailable):
            _log.error("the queue cannot be worked on: %s", error)
        elif not self._away:
            said = error if isinstance(error, HoldfastError) else type(error).__name__
            self._bus.emit(DatabaseAway(problem=str(said)))
        self._away = True

    def _back(self) -> None:
        if self._away:
            self._bus.emit(DatabaseBack())
        self._away = False


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Jobs whose end could not be noted because the database was away: they are taken over, and nobody need be told."""
    if not isinstance(context.get("exception"), app_errors() | driver().Error):
        loop.default_exception_handler(context)


def app_errors() -> Any:
    """What procrastinate raises about its connections."""
    return engine().exceptions.ConnectorException


def _retry(package: Any, ahead: Callable[[], timedelta]) -> Any:
    """When a job comes again: after what it says itself; at once where its worker stopped. The queue counts failures, not it.

    By the clock of the server, which is `ahead` of ours by so much.
    """

    def decide(self: Any, *, exception: BaseException, job: Any) -> Any:
        seconds = exception.seconds if isinstance(exception, Again) else 0.0 if isinstance(exception, asyncio.CancelledError) else 5.0
        return package.RetryDecision(retry_at=datetime.now(UTC) + ahead() + timedelta(seconds=seconds))

    return type("Retry", (package.BaseRetryStrategy,), {"get_retry_decision": decide})()
