"""`QueueWorker`: the process that works through the queue, and outlives its database (W17).

procrastinate's worker fetches jobs; beside it, and not behind the jobs, somebody cares: gives signs of life, takes over the sessions of
workers that died, begins what the clock asks for. A failing connection ends procrastinate's worker, so it is begun anew until it stands.
A session that runs meanwhile goes on in its thread: the job that comes for it afterwards joins it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.durable.postgres_connection import driver
from holdfast.errors import HoldfastError, StorageError, StoreUnavailable
from holdfast.workers.queue_events import DatabaseAway, DatabaseBack, SessionTakenOver
from holdfast.workers.schedules import Schedules
from holdfast.workers.session_job import RETRIES, Again, Running, SessionJob
from holdfast.workers.session_queue import QUEUE, TASK, SessionQueue, engine, engine_version

if TYPE_CHECKING:
    from holdfast.harness import Harness
    from holdfast.workflow.agent import Agents

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
        app.task(name=TASK, queue=QUEUE, pass_context=True, retry=_retry(package))(self._advance)
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
                if session not in self._running:
                    self._bus.emit(SessionTakenOver(session=session))
                    await asyncio.to_thread(self._queue.died, session)

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


def _retry(package: Any) -> Any:
    """When a job comes again: after what it says itself; at once where its worker stopped. The queue counts failures, not it."""

    def decide(self: Any, *, exception: BaseException, job: Any) -> Any:
        seconds = exception.seconds if isinstance(exception, Again) else 0.0 if isinstance(exception, asyncio.CancelledError) else 5.0
        return package.RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=seconds))

    return type("Retry", (package.BaseRetryStrategy,), {"get_retry_decision": decide})()
