"""The queue of sessions: which ones are to be advanced, by whom they are, and how it goes on (W17); what workers tell about that (O2);
and workflows that the clock puts into it (`Schedules`).

    queue = SessionQueue.open(harness.sessions)
    session = queue.create(harness.launcher(store=harness.sessions), "workflow.yaml", priority=5)
    queue.overview()

A job is "advance this session until it ends or waits". The row in `queued_sessions` says whether there should be one, and is written
together with it; a row without a job (somebody was killed between the two, or a job was lost) gets one from any worker within seconds
(`tend`). That two workers are never in one session is the doing of `SessionStore.lease`; the engine's lock only saves tries.

The engine is procrastinate. Its tables are in our schema, beside those of the sessions, made and upgraded by themselves (O7): a step of an
upgrade that older workers survive is carried out at once; one that they do not waits until the last of them is gone, so that machines are
upgraded one after the other while the others work.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.clock import stamp
from holdfast.durable.postgres import Postgres, Transaction, lock_key, queries, scripts
from holdfast.errors import ConfigError, ExtraMissing, HoldfastError, InputError, NotThere, StorageError, StoreUnavailable
from holdfast.events import Event
from holdfast.models.call_limits import limit_of, slots
from holdfast.session.state import check_session_id
from holdfast.session.store import SessionStore
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.workflow.agent import agent_errors, find_agents
from holdfast.workflow.workflow_file import load_workflow, parse_workflow

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness
    from holdfast.session.state import Session
    from holdfast.workflow.launcher import Launcher, WorkflowSource


@dataclass(frozen=True, kw_only=True)
class WorkerEvent(Event):
    component: ClassVar[str] = "Worker"
    level: ClassVar[int] = logging.WARNING


@dataclass(frozen=True, kw_only=True)
class ScheduleFailed(WorkerEvent):
    """A moment of a schedule has come and its session could not be begun."""

    text: ClassVar[str] = "The schedule {schedule} could not be begun: {problem}"
    level: ClassVar[int] = logging.ERROR

    schedule: str
    problem: str


_ALONE = 5.0
"""Seconds after which a session that is wanted and has no job is given one: whoever queues it may be just about to."""
_NEVER_CAME = 600.0
"""Seconds after which a session that was announced and never written is forgotten."""
_PRIORITIES = 1_000_000


@dataclass(frozen=True)
class Wish:
    """What the queue knows of one session."""

    priority: int
    options: Mapping[str, Any]
    wanted: bool
    ticket: int
    failures: int
    deaths: int
    progress: int
    problem: str | None
    outcome: str | None
    age: float
    """Seconds since it was queued."""


class SessionQueue:
    """Queues sessions of one store. Safe for many threads and processes; every method is one transaction or less."""

    def __init__(self, store: SessionStore, database: Postgres) -> None:
        self.store = store
        self.database = database
        self.sql = queries("holdfast.workers")

    @classmethod
    def open(cls, store: SessionStore) -> SessionQueue:
        """The queue beside these sessions, with its tables in their newest form. ConfigError where they are not in PostgreSQL."""
        if not isinstance(store.backend, PostgresBackend):
            raise ConfigError(
                "a queue that several workers share needs the sessions in PostgreSQL, and they are in files.",
                key="session.storage_backend",
                hint="Write `session: {storage_backend: postgresql, connection: $HOLDFAST_DSN}` into config.yaml.",
            )
        prepare(store.backend.database)
        return cls(store, store.backend.database)

    @classmethod
    def find(cls, store: SessionStore) -> SessionQueue | None:
        """The queue beside these sessions if there is one already; None where nobody ever queued anything. Makes nothing."""
        if not isinstance(store.backend, PostgresBackend):
            return None
        found = cls(store, store.backend.database)
        return found if found.database.one(found.sql["is_there"]) == (True,) else None

    # Putting in and taking out

    def create(
        self, launcher: Launcher, workflow: WorkflowSource, *, priority: int = 0, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> Session:
        """A new session, checked as `Launcher.create` checks it, that the next free worker begins. Higher priorities come first.

        It is announced before it is written, so that one of which the writer was killed in between is found and advanced all the same.
        """
        announced: list[str] = []

        def announce(name: str) -> None:
            if not self.store.exists(name) and self._announce(name, _checked(priority), options):
                announced.append(name)

        try:
            session = launcher.create(workflow, announce=announce, **settings)
        except BaseException:
            with suppress(StorageError):
                for name in announced:
                    with self._changing(name) as step:
                        step.execute(self.sql["retract"], [name])
            raise
        with self._changing(session.workflow_id) as step:
            self._defer(step, session.workflow_id, priority)
        return session

    def put(self, session: str, *, priority: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Let workers go on with a session that is there, from where it stands; also one that was cancelled."""
        loaded = self.store.load(session)
        if loaded.status == "completed":
            raise InputError(f"the session {session} is completed: there is nothing to queue.")
        if loaded.status == "cancelled":
            with self.store.lease(session, owner="queue"):
                now = self.store.load(session)
                if now.status == "cancelled":
                    self.store.commit(replace(now, status="ready"), expect=now.revision)
        self.store.clear_cancel(session)
        with self._changing(session) as step:
            given = {"session": session, "priority": None if priority is None else _checked(priority), "options": _json(options)}
            row = step.one(self.sql["want"], given)
            self._defer(step, session, int(row[0]) if row else 0)

    def follow(self, session: str, other: str) -> bool:
        """Queue another session as this one was; False where this one is not the queue's."""
        wish = self.wish(session)
        if wish is not None:
            self.put(other, priority=wish.priority, options=wish.options)
        return wish is not None

    def withdraw(self, session: str) -> bool:
        """Take a session out. One that runs is not stopped by this: `control.cancel` asks it to. Says whether it was wanted."""
        with self._changing(session) as step:
            wanted = step.one(self.sql["unwant"], [session]) is not None
            for (job,) in step.rows(self.sql["waiting_job"], [session]):
                step.execute(_CANCEL, [job])
        return wanted

    def wish(self, session: str) -> Wish | None:
        """What is known of a session; None for one that was never queued."""
        row = self.database.one(self.sql["row"], [session])
        return None if row is None else Wish(*row)

    # What workers tell

    def begun(self, session: str, *, worker: str, progress: int) -> None:
        """It is being advanced. Failures and deaths are counted anew where it came further than when it was begun last."""
        with self.database.transaction() as step:
            step.execute(self.sql["begun"], {"session": session, "worker": worker, "progress": progress})

    def ended(self, session: str, ticket: int, outcome: str, problem: str | None = None) -> None:
        """It is not to be advanced any more, unless it was queued again meanwhile."""
        with self.database.transaction() as step:
            step.execute(self.sql["ended"], [outcome, problem, session, ticket])

    def failed(self, session: str, ticket: int, problem: str) -> int:
        """A try failed. Gives how many in a row."""
        with self.database.transaction() as step:
            row = step.one(self.sql["failed"], [problem, session, ticket])
        return int(row[0]) if row else 0

    def died(self, session: str, *, settled: float = 30.0) -> bool:
        """Its worker died, and it is given to another. Not counted so many seconds after a start of the server: all were silent then.

        Says whether it was counted.
        """
        with self.database.transaction() as step:
            row = step.one(self.sql["died"], [session, settled])
        return row is not None and bool(row[0])

    def tend(self, *, alone: float = _ALONE) -> list[str]:
        """Give a job to each session that is wanted and has none; which they were."""
        given = []
        for session, priority, age in self.database.rows(self.sql["without_job"], [alone]):
            if self.store.exists(session):
                with self._changing(session) as step:
                    self._defer(step, session, int(priority))
                given.append(session)
            elif age > _NEVER_CAME:
                with self._changing(session) as step:
                    step.execute(self.sql["retract"], [session])
        return given

    def tidy(self) -> None:
        """Forget workers that are gone and sessions that were removed. Where the server's clock was put back, rates go on from now."""
        with self.database.transaction() as step:
            step.execute(self.sql["rates_of_a_later_clock"])
            step.execute(self.sql["forget_workers"])
            step.execute(self.sql["forget_sessions"], [f"{self.store.prefix}/", f"{self.store.prefix}/"])

    def clock(self) -> datetime:
        """The time of the server, by which jobs and schedules come due: this machine's may be another."""
        row = self.database.one("SELECT clock_timestamp()")
        return row[0] if row else datetime.now(UTC)

    def left(self) -> int:
        """How many are to be advanced: waiting, running, and those that are tried again later."""
        row = self.database.one(self.sql["left"])
        return int(row[0]) if row else 0

    # Looking

    def takeovers(self) -> int:
        """How many sessions workers took over from others that had died, since the queue is there."""
        if self.database.one(self.sql["counts_takeovers"]) != (True,):  # its tables are of an older version, and nobody worked since
            return 0
        row = self.database.one(self.sql["takeovers"])
        return int(row[0]) if row else 0

    def places(self, sessions: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Of those that are the queue's: whether each waits or runs, where, and what keeps it."""
        found = {}
        for session, wanted, priority, worker, problem, outcome, failures, running in self.database.rows(self.sql["places"], [[*sessions]]):
            state = "running" if running else "waiting" if wanted else "ended"
            found[session] = {
                "state": state,
                "priority": priority,
                "worker": worker,
                "failures": failures,
                "outcome": outcome,
                "problem": problem,
            }
        return found

    def overview(self, config: Config | None = None) -> dict[str, Any]:
        """The queue, the workers and how fast it goes, as plain values; with the configuration, its models that have limits too.

        Costs a handful of queries, whatever the number of sessions.
        """
        waiting, running, oldest, retried = self.database.one(self.sql["counts"]) or (0, 0, None, 0)
        minute, hour, given_up = self.database.one(self.sql["rates"]) or (0, 0, 0)
        return {
            "waiting": waiting,
            "running": running,
            "oldest_waiting_seconds": None if oldest is None else round(float(oldest), 1),
            "retried": retried,
            "completed_last_minute": minute,
            "completed_last_hour": hour,
            "given_up_last_hour": given_up,
            "workers": [_worker(row) for row in self.database.rows(self.sql["workers"])],
            "schedules": [_schedule(row) for row in self.database.rows(self.sql["schedules"])],
            **({"models": self._models_in_use(config)} if config is not None else {}),
        }

    # Inside

    def _models_in_use(self, config: Config) -> list[dict[str, Any]]:
        """Of each model that has limits: how many calls run now, and how many of this minute's are left at once."""
        found = []
        for limit in filter(None, map(limit_of, config.models)):
            running = left = None
            if limit.concurrent is not None:
                row = self.database.one(self.sql["slots_held"], [slots(self.database.schema, limit)])
                running = int(row[0]) if row else 0
            if limit.per_minute is not None:
                row = self.database.one(self.sql["calls_left"], {"model": limit.model, "burst": limit.burst, "rate": limit.rate})
                left = round(float(row[0]), 1) if row else limit.burst
            calls = {"running": running, "max_concurrent": limit.concurrent, "calls_left": left}
            found.append({"model": limit.model, **calls, "requests_per_minute": limit.per_minute})
        return found

    def _changing(self, session: str) -> Any:
        return self.database.transaction(lock_key(self.database.schema, "queue", session))

    def _announce(self, session: str, priority: int, options: Mapping[str, Any] | None) -> bool:
        with self._changing(session) as step:
            return step.one(self.sql["announce"], [session, priority, _json(options)]) is not None

    def _defer(self, step: Transaction, session: str, priority: int) -> None:
        """A job for the session, in this very transaction, unless one waits already."""
        if step.one(self.sql["waiting_job"], [session]) is not None:
            return
        package = engine()
        job = package.jobs.Job(
            id=None, queue=QUEUE, lock=session, queueing_lock=session, task_name=TASK, priority=priority, task_kwargs={"session": session}
        )
        package.manager.JobManager(package.SyncPsycopgConnector()).defer_job(job=job, connection=step.connection)


_CANCEL = "SELECT procrastinate_cancel_job_v1(%s, false, true)"


def _checked(priority: int) -> int:
    if not -_PRIORITIES <= priority <= _PRIORITIES:
        raise InputError(f"{priority} cannot be a priority.", hint=f"Use a whole number from {-_PRIORITIES} to {_PRIORITIES}; 0 is usual.")
    return priority


def _json(options: Mapping[str, Any] | None) -> str:
    return json.dumps(dict(options or {}))


def _worker(row: tuple[Any, ...]) -> dict[str, Any]:
    number, name, host, pid, concurrency, version, since, quiet, sessions = row
    return {
        "worker": number,
        "name": name,
        "host": host,
        "pid": pid,
        "concurrency": concurrency,
        "version": version,
        "since": stamp(since),
        "last_sign_of_life_seconds": round(float(quiet), 1),
        "sessions": sessions,
    }


def _schedule(row: tuple[Any, ...]) -> dict[str, Any]:
    names = ("name", "cron", "timezone", "task", "priority", "next_at", "last_at", "last_session", "problem", "file")
    found = dict(zip(names, row, strict=True))
    return {**found, "next_at": stamp(found["next_at"]), "last_at": stamp(found["last_at"]) if found["last_at"] else None}


QUEUE = "sessions"
TASK = "holdfast:advance"


def engine() -> Any:
    """The package. ExtraMissing, with the line to type, where it is not installed."""
    try:
        return import_module("procrastinate")
    except ImportError as error:
        raise ExtraMissing("procrastinate", "workers") from error


def engine_version() -> str:
    return version("procrastinate")


def prepare(database: Postgres, *, folder: Path | None = None) -> None:
    """Make the tables, or bring them to their newest form. Harmless when done twice, and by several processes at once.

    `folder` has the steps of the engine's tables, where they are not those of the installed one.
    """
    package = engine()
    database.migrate("workers", scripts("holdfast.workers", prefix="workers"))
    folder = folder or Path(package.schema.SchemaManager.get_migrations_path())
    steps = sorted(path.name for path in folder.glob("*.sql"))
    known = {name for (name,) in database.rows("SELECT name FROM queue_engine_steps")}
    if known.issuperset(steps):
        return
    sql = queries("holdfast.workers")
    with database.transaction(lock_key(database.schema, "migrations")) as step:
        known = {name for (name,) in step.rows("SELECT name FROM queue_engine_steps")}
        if step.one("SELECT to_regclass('procrastinate_jobs')") == (None,):
            step.execute(package.schema.SchemaManager.get_schema())
            _note(step, steps)
            return
        living = [_numbers(found) for (found,) in step.rows(sql["living_engines"])]
        for name in steps:
            if name not in known and not (_is_late(name) and any(one < _numbers(name) for one in living)):
                step.execute((folder / name).read_text(encoding="utf-8"))
                _note(step, [name])


def _note(step: Transaction, names: Sequence[str]) -> None:
    step.many("INSERT INTO queue_engine_steps (name) VALUES (%s) ON CONFLICT DO NOTHING", [(name,) for name in names])


def _is_late(name: str) -> bool:
    """Whether a step is one that workers of an older version do not survive: procrastinate calls them `post`."""
    return "_post_" in name


def _numbers(text: str) -> tuple[int, ...]:
    """The first three numbers of a version, or of the name of a step."""
    found = [int(number) for number in re.findall(r"\d+", text)[:3]]
    return tuple(found + [0] * (3 - len(found)))


def queue_overview(harness: Harness) -> dict[str, Any] | None:
    """The overview of a harness's queue, or None where nothing was ever queued."""
    queue = SessionQueue.find(harness.sessions)
    return None if queue is None else queue.overview(harness.config)


# Schedules


class Schedules:
    """Workflows that are begun by the clock: kept in the database, so that every machine knows them and each is begun once.

    The session of a moment has a name that is made from it, so a worker that is killed while it begins one leaves nothing that begins it
    twice. Moments that passed while no worker ran are made up for once, not one by one. Safe for many threads and processes.
    """

    def __init__(self, harness: Harness, queue: SessionQueue) -> None:
        self._harness = harness
        self._queue = queue

    def put(
        self,
        name: str,
        cron: str,
        file: str | Path,
        *,
        task: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        priority: int = 0,
        timezone: str = "UTC",
    ) -> datetime:
        """Keep a schedule, in place of one of this name, and give when it is due next. The workflow is checked, and kept as it is now."""
        check_session_id(f"{name}-20260101-000000")
        agents = self._harness.stage_agents((options or {}).get("model"))
        workflow = load_workflow(file, further=lambda sound: agent_errors(sound, agents))
        find_agents(workflow, agents)
        if not (task or workflow.task or "").strip():
            raise InputError(f"the workflow {workflow.id} has no task.", hint="Give one: `--task`, or `task:` in its file.")
        due = next_moment(cron, timezone, self._queue.clock())
        values: list[Any] = [name, cron, timezone, json.dumps(workflow.document()), str(Path(file).absolute()), task]
        values += [json.dumps(dict(parameters or {})), json.dumps(dict(options or {})), priority, due]
        with self._queue.database.transaction() as step:
            step.execute(self._queue.sql["put_schedule"], values)
        return due

    def remove(self, name: str) -> None:
        """Forget a schedule. The sessions that it began stay. NotThere if there is none of this name."""
        with self._queue.database.transaction() as step:
            if step.one(self._queue.sql["drop_schedule"], [name]) is None:
                known = ", ".join(row[0] for row in step.rows(self._queue.sql["schedules"]))
                raise NotThere(f"there is no schedule {name!r}.", hint=f"There are: {known}." if known else "There are none.")

    def begin_due(self) -> list[str]:
        """Begin what is due, each by one worker; the sessions that were begun."""
        begun = []
        while (session := self._begin_one()) is not None:
            begun.append(session)
        return begun

    def _begin_one(self) -> str | None:
        sql = self._queue.sql
        if self._queue.database.one("SELECT 1 FROM queue_schedules WHERE next_at <= clock_timestamp() LIMIT 1") is None:
            return None
        with self._queue.database.transaction() as step:
            row = step.one(sql["due_schedule"])  # locked until it is noted: nobody else begins it
            if row is None:
                return None
            name, cron, timezone, workflow, file, task, parameters, options, priority, due, now = row
            session = f"{name}-{due.astimezone(UTC):%Y%m%d-%H%M%S}"
            problem = None
            try:
                if not self._queue.store.exists(session):
                    definition = replace(parse_workflow(workflow, file=f"schedule {name}"), home=Path(file).parent if file else None)
                    launcher = self._harness.launcher(store=self._queue.store, model=options.get("model"))
                    given: dict[str, Any] = {"task": task, "parameters": parameters, "session_id": session}
                    self._queue.create(launcher, definition, priority=priority, options=options, **given)
            except StoreUnavailable:
                raise
            except HoldfastError as error:  # the next moment may go well; a schedule that cannot be begun keeps no other from it
                problem = str(error)[:2000]
                self._harness.bus.emit(ScheduleFailed(schedule=name, problem=problem))
            step.execute(sql["schedule_fired"], [next_moment(cron, timezone, now), now, session, problem, name])
        return session


def next_moment(cron: str, timezone: str, after: datetime) -> datetime:
    """The next moment of a cron expression (minute, hour, day, month, weekday) in a time zone. InputError for what is none."""
    try:
        package = import_module("croniter")
    except ImportError as error:
        raise ExtraMissing("croniter", "workers") from error
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"there is no time zone {timezone!r}.", hint="Write it as Europe/Berlin, or UTC.") from error
    if len(cron.split()) != 5 or not package.croniter.is_valid(cron):
        raise InputError(f"{cron!r} is no schedule.", hint='Write minute, hour, day, month and weekday: "0 7 * * 1-5" is 7:00 on workdays.')
    try:
        found: datetime = package.croniter(cron, after.astimezone(zone)).get_next(datetime)
    except package.CroniterBadDateError as error:
        raise InputError(f"{cron!r} is no schedule: such a day never comes.", hint="Look at day and month.") from error
    return found.astimezone(UTC)
