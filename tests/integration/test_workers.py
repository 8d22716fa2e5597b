"""W17, O1: sessions that are queued and advanced by workers, over a real PostgreSQL: who may, in which order, again, and until when."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import until
from tests.integration.server_bench import serving
from tests.unit.workflow.support import Agent, linear, output
from typer.testing import CliRunner

from holdfast.app.main import app
from holdfast.config.loading import config_from_values
from holdfast.durable.postgres import Postgres
from holdfast.errors import ConfigError, ExtraMissing, InputError
from holdfast.harness import Harness, build
from holdfast.health import examine
from holdfast.memory.facts import Turn
from holdfast.models.call_limits import CallLimit, SharedLimiter
from holdfast.server.services import standing
from holdfast.session.state import Session
from holdfast.workers.queue_worker import Again, QueueWorker, Running, SessionJob, SessionWaits, _retry
from holdfast.workers.session_queue import Schedules, SessionQueue, engine, next_moment, prepare
from holdfast.workflow import control
from holdfast.workflow.agent import StageRequest

QUIET = {"remember": False}


@pytest.fixture
def harness(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with build(config_from_values({"session": {"storage_backend": "postgresql", "connection": postgres}})) as made:
        yield made


@pytest.fixture
def queue(harness: Harness) -> SessionQueue:
    return SessionQueue.open(harness.sessions)


def put(harness: Harness, queue: SessionQueue, agent: Agent, workflow: dict[str, Any], name: str, **settings: Any) -> Session:
    launcher = harness.launcher(store=queue.store, agents={"x": agent})
    return queue.create(launcher, workflow, session_id=name, options=QUIET, **settings)


def work(harness: Harness, queue: SessionQueue, agent: Agent, **settings: Any) -> None:
    """A worker that ends when nothing is left."""
    QueueWorker(harness, queue, agents={"x": agent}, once=True, **settings).run()


@contextmanager
def working(harness: Harness, queue: SessionQueue, agent: Agent, **settings: Any) -> Iterator[QueueWorker]:
    """A worker in a thread of its own, stopped at the end."""
    worker = QueueWorker(harness, queue, agents={"x": agent}, **settings)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(240)
        assert not thread.is_alive()


def test_queued_sessions_are_completed_higher_priorities_first_and_leave_no_jobs(harness: Harness, queue: SessionQueue) -> None:
    """W17: each stage runs once, and the engine's tables do not grow."""
    agent = Agent()
    for name, priority in (("low", -1), ("usual", 0), ("high", 7)):
        put(harness, queue, agent, linear("a", "b"), name, priority=priority)
    before = queue.overview()
    assert (before["waiting"], before["running"], before["workers"]) == (3, 0, [])
    work(harness, queue, agent, concurrency=1)
    assert [request.session_id for request in agent.requests] == ["high", "high", "usual", "usual", "low", "low"]
    assert all(queue.store.load(name).status == "completed" for name in ("low", "usual", "high"))
    after = queue.overview()
    assert (after["waiting"], after["running"], after["completed_last_hour"], after["workers"]) == (0, 0, 3, [])
    assert queue.database.one("SELECT count(*) FROM procrastinate_jobs") == (0,)
    assert queue.database.one("SELECT count(*) FROM procrastinate_events") == (0,)


def test_a_session_that_waits_for_a_person_goes_on_when_it_is_queued_again(harness: Harness, queue: SessionQueue) -> None:
    """W14, W17: and a job that ends late does not undo the newer wish."""
    agent, workflow = Agent(), linear("a", "b")
    workflow["stages"][0]["approve"] = True
    put(harness, queue, agent, workflow, "s1")
    first = queue.wish("s1")
    assert first is not None
    work(harness, queue, agent)
    assert queue.store.load("s1").status == "paused"
    assert queue.left() == 0
    control.approve(queue.store, "s1")
    queue.put("s1")
    queue.ended("s1", first.ticket, "paused")
    assert queue.left() == 1
    work(harness, queue, agent)
    assert queue.store.load("s1").status == "completed"
    assert agent.ran == ["a", "b"]


def test_a_worker_that_is_stopped_leaves_its_session_at_the_next_commit(harness: Harness, queue: SessionQueue) -> None:
    """W17: the stage that runs is not lost, the next one is another worker's, and each ran once."""
    begun, go = threading.Event(), threading.Event()

    def slow(request: StageRequest) -> object:
        begun.set()
        assert go.wait(240)
        return output("a")

    agent = Agent({"a": [slow]})
    put(harness, queue, agent, linear("a", "b", "c"), "s1")
    with working(harness, queue, agent) as worker:
        assert begun.wait(240)
        worker.stop()
        time.sleep(0.3)  # it may not be broken off meanwhile
        go.set()
        until(lambda: queue.store.load("s1").status == "ready")
    assert queue.store.load("s1").completed_stages == ("a",)
    assert queue.left() == 1
    work(harness, queue, agent)
    assert (queue.store.load("s1").status, agent.ran) == ("completed", ["a", "b", "c"])


def test_a_stage_that_outlasts_the_grace_time_is_broken_off_and_begins_anew(harness: Harness, queue: SessionQueue) -> None:
    """W6, W17"""
    begun, go = threading.Event(), threading.Event()

    def stuck(request: StageRequest) -> object:
        begun.set()
        go.wait(240)
        return output("a")

    agent = Agent({"a": [stuck]})
    put(harness, queue, agent, linear("a", "b"), "s1")
    with working(harness, queue, agent, grace=0.2) as worker:
        assert begun.wait(240)
        worker.stop()
        until(lambda: queue.store.load("s1").status == "ready")
    go.set()
    work(harness, queue, agent)
    assert (queue.store.load("s1").status, agent.ran) == ("completed", ["a", "a", "b"])


def test_cancelling_takes_a_waiting_session_out_and_stops_a_running_one(harness: Harness, queue: SessionQueue) -> None:
    """W19, W17: and a request that a dead worker did not see is not lost."""
    begun, go = threading.Event(), threading.Event()

    def endless(request: StageRequest) -> object:
        begun.set()
        go.wait(240)
        return output("a")

    agent = Agent({"a": [endless]})
    for name in ("runs", "waits", "unseen"):
        put(harness, queue, agent, linear("a", "b"), name)
    assert queue.withdraw("waits")
    assert control.cancel(queue.store, "waits").status == "cancelled"
    with working(harness, queue, agent, concurrency=1):
        assert begun.wait(240)
        queue.store.request_cancel("unseen")
        queue.withdraw("runs")
        assert control.cancel(queue.store, "runs", wait=60).status == "cancelled"
        until(lambda: queue.left() == 0)
    go.set()
    assert [queue.store.load(name).status for name in ("runs", "waits", "unseen")] == ["cancelled"] * 3
    assert agent.ran == ["a"]
    queue.put("waits")  # whoever resumes it means it
    work(harness, queue, agent)
    assert queue.store.load("waits").status == "completed"


def test_somebody_else_at_the_session_is_no_failure(harness: Harness, queue: SessionQueue) -> None:
    """W17: Locked is tried again and not counted."""
    agent = Agent()
    put(harness, queue, agent, linear("a"), "s1")
    with working(harness, queue, agent):
        with queue.store.lease("s1", owner="somebody"):
            until(lambda: queue.overview()["running"] == 1)
            until(lambda: bool(queue.database.one("SELECT 1 FROM procrastinate_jobs WHERE attempts > 0")))
        until(lambda: queue.left() == 0)
    wish = queue.wish("s1")
    assert wish is not None
    assert (wish.outcome, wish.failures, agent.ran) == ("completed", 0, ["a"])


def test_what_cannot_be_advanced_is_tried_again_and_then_given_up_with_its_reason(harness: Harness, queue: SessionQueue) -> None:
    """W17: retries with back-off; queued again it has all its tries anew."""
    agent = Agent()
    put(harness, queue, agent, linear("a"), "s1")
    QueueWorker(harness, queue, once=True, retries=1).run()  # a machine without the agent
    wish = queue.wish("s1")
    assert wish is not None
    assert (wish.outcome, wish.wanted, wish.failures) == ("given up", False, 2)
    assert wish.problem is not None
    assert "x" in wish.problem
    assert queue.overview()["given_up_last_hour"] == 1
    queue.put("s1")
    work(harness, queue, agent)
    assert queue.store.load("s1").status == "completed"


def test_a_store_that_stays_unavailable_while_the_queue_is_there_is_counted_and_told(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W17, K2: knowledge that cannot be had is no database that is away: the session is given up with the reason, and does not spin."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    values = {
        "session": {"storage_backend": "postgresql", "connection": postgres},
        "knowledge": {"adapter": "postgres", "dsn": "postgresql://nobody@127.0.0.1:1/none"},
    }
    with build(config_from_values(values)) as harness:
        queue, agent = SessionQueue.open(harness.sessions), Agent()
        queue.create(harness.launcher(store=queue.store, agents={"x": agent}), linear("a"), session_id="s1")
        work(harness, queue, agent, retries=1)
        wish = queue.wish("s1")
        assert wish is not None
        assert (wish.outcome, wish.failures, agent.ran) == ("given up", 2, [])
        assert "127.0.0.1:1" in str(wish.problem)
        told = {one.about: one for one in examine(harness)}
        assert told["knowledge"].state == "bad" and "127.0.0.1:1" in told["knowledge"].text
        assert told["queue"].state == "good" and "0 waiting" in told["queue"].text


def test_a_session_at_which_workers_die_is_given_up(harness: Harness, queue: SessionQueue) -> None:
    """W17, O2: one session that kills its process does not kill them all. How often one was taken over is counted for good."""
    agent = Agent()
    put(harness, queue, agent, linear("a"), "s1")
    for _ in range(5):
        queue.died("s1", settled=0.0)
    work(harness, queue, agent)
    wish = queue.wish("s1")
    assert wish is not None
    assert (wish.outcome, agent.ran) == ("given up", [])
    queue.put("s1")
    assert [one.values for one in standing(harness, 2) if one.name == "takeovers"] == [{"server": 2.0, "workers": 5.0}]


def test_a_session_whose_writer_was_killed_before_the_job_is_advanced_all_the_same(harness: Harness, queue: SessionQueue) -> None:
    """W17: announced first; what never came is forgotten."""
    agent = Agent()
    launcher = harness.launcher(store=queue.store, agents={"x": agent})
    for name in ("came", "never-came"):
        queue._announce(name, 0, QUIET)
    launcher.create(linear("a"), session_id="came")
    assert queue.tend(alone=0.0) == ["came"]
    assert queue.tend(alone=0.0) == []
    with queue.database.transaction() as step:
        step.execute("UPDATE queued_sessions SET queued_at = queued_at - interval '1 day' WHERE session = 'never-came'")
    queue.tend(alone=0.0)
    assert queue.wish("never-came") is None
    work(harness, queue, agent)
    assert queue.store.load("came").status == "completed"


def test_a_name_that_is_taken_is_refused_and_the_other_session_is_left_alone(harness: Harness, queue: SessionQueue) -> None:
    """W17"""
    agent = Agent()
    harness.launcher(store=queue.store, agents={"x": agent}).create(linear("a"), session_id="mine")
    with pytest.raises(InputError, match="mine"):
        put(harness, queue, agent, linear("a"), "mine")
    assert queue.wish("mine") is None
    with pytest.raises(InputError, match="priority"):
        put(harness, queue, agent, linear("a"), "other", priority=10**9)
    assert not queue.store.exists("other")


def test_the_tables_are_made_once_and_upgraded_while_older_workers_live(postgres: str, tmp_path: Path) -> None:
    """W17, O7: by several at once; a step that older workers do not survive waits for them."""
    early, late = "99.01.00_01_pre_early.sql", "99.01.00_50_post_late.sql"
    with Postgres(postgres) as database:
        threads = [threading.Thread(target=prepare, args=(database,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)

        def steps() -> set[str]:
            return {name for (name,) in database.rows("SELECT name FROM queue_engine_steps")}

        def tables() -> tuple[bool, bool]:
            found = database.one("SELECT to_regclass('of_early') IS NOT NULL, to_regclass('of_late') IS NOT NULL")
            assert found is not None
            return found[0], found[1]

        whole = steps()
        assert len(whole) > 20
        for name in whole:  # the folder of a newer version
            (tmp_path / name).write_text("this was carried out already")
        (tmp_path / early).write_text("CREATE TABLE of_early (value text DEFAULT '100 %')")
        (tmp_path / late).write_text("CREATE TABLE of_late ()")
        with database.transaction() as step:
            step.execute("INSERT INTO procrastinate_workers DEFAULT VALUES")
            step.execute("INSERT INTO queue_workers SELECT id, 'old', 'h', 1, 1, '0', '3.10.0' FROM procrastinate_workers")
        prepare(database, folder=tmp_path)
        assert (steps() - whole, tables()) == ({early}, (True, False))
        with database.transaction() as step:
            step.execute("DELETE FROM procrastinate_workers")
        prepare(database, folder=tmp_path)
        assert (steps() - whole, tables()) == ({early, late}, (True, True))
        prepare(database)  # and the older one still opens


def test_a_schedule_begins_each_moment_once_and_makes_up_for_missed_ones_once(
    harness: Harness, queue: SessionQueue, tmp_path: Path
) -> None:
    """W17: by several workers at once."""
    file = tmp_path / "w.yaml"
    file.write_text(json.dumps({"id": "w", "stages": [{"name": "a", "agent_type": "planner"}]}))
    schedules = Schedules(harness, queue)
    with pytest.raises(InputError, match="no task"):
        schedules.put("morning", "0 7 * * *", file)
    schedules.put("morning", "0 7 * * 1-5", file, task="Plan the day.", timezone="Europe/Berlin", priority=3)
    assert schedules.begin_due() == []
    with queue.database.transaction() as step:
        step.execute("UPDATE queue_schedules SET next_at = '2026-03-02T06:00:00Z'")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend(Schedules(harness, queue).begin_due())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert found == ["morning-20260302-060000"]
    session = queue.store.load(found[0])
    assert (session.task, session.status) == ("Plan the day.", "ready")
    wish = queue.wish(found[0])
    assert wish is not None
    assert wish.priority == 3
    (told,) = queue.overview()["schedules"]
    assert told["last_session"] == found[0]
    assert told["next_at"] > "2026-03-02"
    with queue.database.transaction() as step:  # as if its worker had been killed before it noted that
        step.execute("UPDATE queue_schedules SET next_at = '2026-03-02T06:00:00Z'")
    assert schedules.begin_due() == found
    assert queue.left() == 1
    schedules.remove("morning")
    with pytest.raises(InputError, match="no schedule 'morning'"):
        schedules.remove("morning")


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("every day", "UTC"),
        ("* * * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("0 0 31 4 *", "UTC"),
        ("0 7 * * *", "Mars/Base"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(cron: str, zone: str) -> None:
    """W17"""
    with pytest.raises(InputError):
        next_moment(cron, zone, datetime(2026, 1, 1, tzinfo=UTC))


def test_what_is_missing_is_said_with_what_to_write(tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """O1: no PostgreSQL, no extra."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    (tmp_path / "files.yaml").write_text("holdfast_version: 1\n")
    (tmp_path / "pg.yaml").write_text(
        json.dumps({"holdfast_version": 1, "session": {"storage_backend": "postgresql", "connection": postgres}})
    )
    with pytest.raises(ConfigError, match=r"storage_backend: postgresql, connection: \$HOLDFAST_DSN") as raised:
        CliRunner().invoke(app, ["worker", "--once", "--config", str(tmp_path / "files.yaml")], catch_exceptions=False)
    assert raised.value.exit_code == 2
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'holdfast\[workers\]'"):
        CliRunner().invoke(app, ["worker", "--once", "--config", str(tmp_path / "pg.yaml")], catch_exceptions=False)


def test_the_commands_leave_a_queued_session_to_workers(tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """O1, W17: run --queue, sessions, approve, fork, resume, cancel, schedule; and the memory queue is drained."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    config = {
        "holdfast_version": 1,
        "session": {"storage_backend": "postgresql", "connection": postgres},
        "knowledge": {"embedder": "none"},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    stages = [{"name": "plan", "agent_type": "planner", "approve": True}, {"name": "text", "agent_type": "writer"}]
    (tmp_path / "w.yaml").write_text(json.dumps({"id": "w", "task": "Say what the harbour of Rostock has.", "stages": stages}))

    def call(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*words, "--config", "config.yaml", "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    with build("config.yaml") as harness:
        harness.memory.queue.put(
            "t1", [Turn("m1", "user", "My name is Ada and I live in Rostock.")], None
        )  # and nobody in this process learns
        assert harness.memory.status().waiting == 1
    assert call("sessions") == {"sessions": []}  # no queue yet, and looking makes none
    queued = call("run", "w.yaml", "--queue", "--id", "s1", "--no-remember", "--priority", "2")
    assert (queued["session"], queued["status"], queued["waiting"], queued["workers"]) == ("s1", "ready", 1, 0)
    (row,) = call("sessions")["sessions"]
    assert (row["queue"]["state"], row["queue"]["priority"]) == ("waiting", 2)
    plain = CliRunner().invoke(app, ["sessions", "--config", "config.yaml"], catch_exceptions=False)
    assert "queued" in plain.stdout
    assert "Queue: 1 waiting" in plain.stdout
    call("worker", "--once")
    (row,) = call("sessions")["sessions"]
    assert (row["status"], row["queue"]["state"], row["queue"]["outcome"]) == ("paused", "ended", "paused")
    assert call("session", "fork", "s1", "--as", "s2")["queued"] is True
    approved = call("approve", "s1")
    assert (approved["session"], approved["queued"]) == ("s1", True)
    assert call("cancel", "s2")["status"] == "cancelled"
    call("worker", "--once")
    assert {one["session"]: one["status"] for one in call("sessions")["sessions"]} == {"s1": "completed", "s2": "cancelled"}
    assert call("resume", "s2")["queued"] is True
    call("worker", "--once")
    assert {one["session"]: one["status"] for one in call("sessions")["sessions"]} == {"s1": "completed", "s2": "paused"}
    assert call("schedule", "add", "daily", "0 7 * * *", "w.yaml")["schedule"] == "daily"
    assert [one["name"] for one in call("schedule", "list")["schedules"]] == ["daily"]
    assert call("schedule", "remove", "daily") == {"removed": "daily"}
    with build("config.yaml") as harness:
        assert harness.memory.status().waiting == 0


def test_a_job_whose_end_could_not_be_noted_is_put_back(harness: Harness, queue: SessionQueue) -> None:
    """W17: the database went and came back at once, and the worker lives: by the tables the job is still in its hands."""
    agent = Agent()
    with working(harness, queue, agent):
        until(lambda: len(queue.overview()["workers"]) == 1)
        number = queue.overview()["workers"][0]["worker"]
        harness.launcher(store=queue.store, agents={"x": agent}).create(linear("a"), session_id="s1")
        with queue.database.transaction() as step:
            step.execute(queue.sql["want"], {"session": "s1", "priority": 0, "options": json.dumps(QUIET)})
            queue._defer(step, "s1", 0)
            step.execute("UPDATE procrastinate_jobs SET status = 'doing', worker_id = %s", [number])
        until(lambda: queue.left() == 0)
    assert queue.store.load("s1").status == "completed"


def shared(queue: SessionQueue) -> SharedLimiter:
    return SharedLimiter(queue.database, queue.sql["take_call"])


def test_the_limits_of_a_model_hold_over_all_workers_and_what_a_killed_one_had_is_free(harness: Harness, queue: SessionQueue) -> None:
    """W17: slots are shared by processes (here: by limiters with connections of their own), and end with their connection."""
    limit = CallLimit("main", concurrent=2, per_minute=100_000)
    limiters = [shared(queue), shared(queue)]
    running: list[int] = []
    seen: list[int] = []

    def calls(limiter: SharedLimiter) -> None:
        for _ in range(3):
            with limiter.call(limit):
                running.append(1)
                seen.append(len(running))
                time.sleep(0.01)
                running.pop()

    threads = [threading.Thread(target=calls, args=(limiter,)) for limiter in limiters for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(seen) == 12
    assert max(seen) <= 2
    config = config_from_values({"models": [{"name": "main", "use": "x:Y", "max_concurrent": 2, "requests_per_minute": 600}]})
    held = limiters[0].call(limit)
    held.__enter__()
    (told,) = queue.overview(config)["models"]
    assert (told["model"], told["running"], told["max_concurrent"]) == ("main", 1, 2)
    assert told["calls_left"] is not None
    limiters[0].close()  # as a process that is killed
    until(lambda: queue.overview(config)["models"][0]["running"] == 0)
    held.__exit__(None, None, None)
    for limiter in limiters:
        limiter.close()


def test_calls_in_a_minute_are_counted_over_all_workers(queue: SessionQueue) -> None:
    """W17"""
    limit = CallLimit("main", per_minute=20)  # a burst of 2, then 0.3 a second
    limiters = [shared(queue), shared(queue)]
    began = time.monotonic()
    got = sum(limiter._counted(limit) for _ in range(5) for limiter in limiters)
    assert 2 <= got <= limit.burst + limit.rate * (time.monotonic() - began) + 1


def test_a_call_that_runs_over_a_restart_of_the_database_keeps_its_slot(queue: SessionQueue) -> None:
    """W17: the server forgets its locks then, and the call goes on."""
    limit = CallLimit("main", concurrent=1)
    mine, other = shared(queue), shared(queue)
    with mine.call(limit):
        mine._connection.close()
        assert mine._slot(limit) is None
        assert other._slot(limit) is None
    slot = other._slot(limit)
    assert slot is not None
    for limiter in (mine, other):
        limiter.close()


def test_a_clock_that_is_put_back_stops_no_calls(queue: SessionQueue) -> None:
    """W17: nor does one that ran ahead and was then corrected by an hour."""
    limit, limiter = CallLimit("main", per_minute=600), shared(queue)
    assert limiter._counted(limit)
    with queue.database.transaction() as step:
        step.execute("UPDATE queue_rates SET updated = clock_timestamp() + interval '1 hour', available = 1")
    assert limiter._counted(limit)
    assert not limiter._counted(limit)
    with queue.database.transaction() as step:
        step.execute("UPDATE queue_rates SET updated = clock_timestamp() + interval '1 hour'")
    queue.tidy()
    until(lambda: limiter._counted(limit))
    limiter.close()


def test_a_job_comes_again_by_the_clock_of_the_server() -> None:
    """W17: a machine whose clock is an hour ahead does not let its sessions wait for an hour."""
    strategy = _retry(engine(), lambda: timedelta(hours=-1))
    decision = strategy.get_retry_decision(exception=Again(0.0), job=None)
    assert abs(decision.retry_at - datetime.now(UTC) + timedelta(hours=1)) < timedelta(minutes=10)


def test_a_database_whose_disk_is_full_is_no_failure_of_a_session(harness: Harness, queue: SessionQueue) -> None:
    """W15, W17: it is told, and tried again until somebody has freed space."""
    agent = Agent()
    put(harness, queue, agent, linear("a"), "s1")
    with queue.database.transaction() as step:
        step.execute(
            """
            CREATE FUNCTION full() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
            CREATE TRIGGER full_disk BEFORE UPDATE ON queued_sessions EXECUTE FUNCTION full()
            """
        )
    job = SessionJob(harness, queue, "worker", agents={"x": agent})
    with harness.bus.collect() as told:
        seconds = job.advance(Running("s1"))
    assert seconds is not None
    assert [event.problem.partition(": ")[2] for event in told if isinstance(event, SessionWaits)] == [
        "no space left on device. Free space on the server; what was committed before stands."
    ]
    with queue.database.transaction() as step:
        step.execute("DROP TRIGGER full_disk ON queued_sessions")
    wish = queue.wish("s1")
    assert wish is not None
    assert (wish.failures, wish.wanted) == (0, True)
    work(harness, queue, agent)
    assert queue.store.load("s1").status == "completed"


def test_the_queue_over_http(tmp_path: Path, postgres: str) -> None:
    """O3, W17: put in, shown, taken out; approve and resume leave it to workers; without a queue it says so."""
    config = {"session": {"storage_backend": "postgresql", "connection": postgres}, "knowledge": {"embedder": "none"}}
    stages = [{"name": "plan", "agent_type": "planner", "approve": True}, {"name": "text", "agent_type": "writer"}]
    definition = {"id": "w", "task": "Say what the harbour of Rostock has.", "stages": stages}
    with serving(tmp_path / "server", config) as served, served.client() as client:
        assert client.get("/api/v1/queue").json()["there"] is False
        assert client.get("/api/v1/queue/s1").status_code == 404
        made = client.post("/api/v1/queue", json={"workflow": definition, "id": "s1", "priority": 4})
        assert (made.status_code, made.json()) == (202, {"id": "s1", "workflow_id": "s1", "status": "queued", "queued": True})
        assert client.get("/api/v1/queue/s1").json()["state"] == "waiting"
        assert client.post("/api/v1/queue", json={"workflow": definition, "priority": 10**9}).status_code == 422
        told = client.get("/api/v1/queue").json()
        assert (told["there"], told["waiting"], told["workers"]) == (True, 1, [])
        with build(config_from_values(config)) as harness:
            queue = SessionQueue.open(harness.sessions)
            QueueWorker(harness, queue, once=True).run()
            assert harness.sessions.load("s1").status == "paused"
            assert client.post("/api/v1/sessions/s1/approve", json={}).json()["status"] == "running"
            assert queue.left() == 1  # a worker's, not the server's
            assert client.delete("/api/v1/queue/s1").json() == {"id": "s1", "workflow_id": "s1", "withdrawn": True}
            assert client.put("/api/v1/queue/s1", json={"priority": 1}).json() == {"id": "s1", "workflow_id": "s1", "queued": True}
            QueueWorker(harness, queue, once=True).run()
        assert client.get("/api/v1/sessions/s1").json()["status"] == "completed"
        assert client.put("/api/v1/queue/s1", json={}).status_code == 400
