"""What is special about sessions in PostgreSQL: the export, locks whose connection breaks, opening by a configuration (W1, W6, W16, C3)."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import until
from tests.crash.postgres_server import own_server
from tests.unit.workflow.support import linear

from holdfast.config.loading import config_from_values
from holdfast.durable.disk import REAL
from holdfast.durable.postgres import lock_key
from holdfast.errors import ConfigError, DiskFull, Locked, StoreUnavailable
from holdfast.harness import build
from holdfast.session.document import render_session
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, stage_files
from holdfast.session.store import SessionStore
from holdfast.testing.failing_disk import FailingDisk, Fault
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.launcher import Launcher
from holdfast.workflow.run_settings import SessionBackend, postgres_sessions

ID = "research-001"


@pytest.fixture
def store(postgres: str, tmp_path: Path) -> Iterator[SessionStore]:
    opened = postgres_sessions(postgres, folder=tmp_path / "sessions", path=str(tmp_path / "out" / "{session_id}.json"), beat=0.1)
    yield opened
    opened.close()


def session(**more: Any) -> Session:
    return Session(ID, task="Measure the latency.", **more)


def terminate(dsn: str, backend: int) -> None:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])


def backend_of(store: SessionStore) -> int:
    assert isinstance(store.backend, SessionBackend)
    row = store.backend.database.one("SELECT backend FROM storage_leases WHERE key = %s", [f"sessions/{ID}"])
    assert row is not None
    return int(row[0])


def test_with_a_path_the_file_is_written_after_each_commit(store: SessionStore, tmp_path: Path) -> None:
    file = tmp_path / "out" / f"{ID}.json"
    made = store.create(session())
    assert json.loads(file.read_text())["revision"] == 1
    store.checkpoint(made, "start")
    markdown = stage_files(1, "plan", context="# given", output="# written")
    done = store.commit(
        replace(made, stage_outputs={"plan": StageOutput("plan", "The heron sings. It is loud.")}), expect=1, files=markdown
    )
    assert json.loads(file.read_text())["stage_outputs"]["plan"]["summary"].startswith("The heron")
    stages = tmp_path / "sessions" / ID / "stages" / "01-plan"
    assert [path.read_text() for path in sorted(stages.iterdir())] == ["# given", "# written"]
    store.fork(ID, "copy")
    assert (tmp_path / "sessions" / "copy" / "stages" / "01-plan" / "output.md").read_text() == "# written"
    store.commit(done, expect=2, files=stage_files(2, "listen", output="The heron sings.\n\nAnd more."))
    store.forget_text("the heron sings")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "heron" in path.read_text().lower()]
    store.restore(ID, "start")
    assert json.loads(file.read_text())["stage_outputs"] == {}
    store.remove(ID)
    assert not file.exists()
    assert not stages.exists()


def test_without_a_path_there_are_no_files(postgres: str, tmp_path: Path) -> None:
    store = postgres_sessions(postgres, folder=tmp_path / "sessions")
    made = store.create(session())
    store.commit(made, expect=1, point="p", files=stage_files(1, "plan", context="given"))
    store.fork(ID, "copy")
    assert store.load("copy").revision == 1
    assert store.load_checkpoint(ID, "p").revision == 2
    assert [one.workflow_id for one in store.list()] == ["copy", ID]
    assert store.file(ID) is None
    store.close()
    assert list(tmp_path.rglob("*")) == []


def test_sessions_in_the_tables_of_an_older_version_open_and_go_on(postgres: str, tmp_path: Path) -> None:
    """O7: documents, recovery points, raw data and Markdown are moved behind the storage seam, once."""
    import psycopg

    script = (Path(__file__).parents[1] / "fixtures" / "session" / "tables_of_version_1.sql").read_text()
    old = render_session(session(completed_stages=("plan",), stage_outputs={"plan": StageOutput("plan", "Done.")}, revision=3)).decode()
    ref = "raw:sha256-" + sha256(b"page").hexdigest()
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS holdfast; SET search_path TO holdfast")
        connection.execute("CREATE TABLE IF NOT EXISTS schemas (component text PRIMARY KEY, number integer NOT NULL)")
        connection.execute(script)
        connection.execute("INSERT INTO schemas VALUES ('session', 1)")
        connection.execute("INSERT INTO sessions (id, revision, updated, document) VALUES (%s, 3, '', %s)", [ID, old])
        connection.execute(
            """INSERT INTO session_checkpoints (session, name, at, revision, status, completed, document)
            VALUES (%s, 'p', 't', 3, 'ready', 1, %s)""",
            [ID, old],
        )
        connection.execute("INSERT INTO session_blobs VALUES (%s, %s)", [ref, b"page"])
        connection.execute("INSERT INTO session_raw (session, ref, media_type, at) VALUES (%s, %s, 'text/html', 't')", [ID, ref])
        connection.execute("INSERT INTO session_files VALUES (%s, '01-plan/output.md', 'written')", [ID])
    store = postgres_sessions(postgres, folder=tmp_path / "sessions", path=str(tmp_path / "{session_id}.json"))
    found = store.load(ID)
    assert (found.revision, found.completed_stages) == (3, ("plan",))
    assert [one.workflow_id for one in store.list()] == [ID]
    assert store.load_checkpoint(ID, "p").completed_stages == ("plan",)
    assert store.raw_get(ID, ref).media_type == "text/html"
    done = store.commit(replace(found, status="running"), expect=3)
    assert done.revision == 4
    other = postgres_sessions(postgres, folder=tmp_path / "sessions", path=str(tmp_path / "{session_id}.json"))
    assert other.load(ID) == done
    assert [one.name for one in other.checkpoints(ID)] == ["p"]
    assert (tmp_path / "sessions" / ID / "stages" / "01-plan" / "output.md").read_text() == "written"
    for one in (store, other):
        one.close()


def test_an_export_that_fails_is_said_and_the_commit_stands(postgres: str, tmp_path: Path) -> None:
    """W15."""
    disk = FailingDisk(REAL)
    store = postgres_sessions(postgres, folder=tmp_path, path=str(tmp_path / "{session_id}.json"), disk=disk)
    made = store.create(session())
    disk.plan = (Fault("write", 1, errno.ENOSPC, persistent=True),)
    with pytest.raises(DiskFull):
        store.commit(made, expect=1)
    assert store.load(ID).revision == 2
    store.close()


def test_a_lock_whose_connection_breaks_is_taken_again_by_its_owner(store: SessionStore, postgres: str) -> None:
    made = store.create(session())
    other = postgres_sessions(postgres, beat=0.1)
    with store.lease(ID, owner="first"):
        terminate(postgres, backend_of(store))
        with pytest.raises(Locked, match="first"), other.lease(ID):
            raise AssertionError("a live owner was taken over")
        made = store.commit(made, expect=1)
        owner = other.owner(ID)
        assert owner is not None
        assert owner.name == "first"
    assert other.owner(ID) is None
    with other.lease(ID) as held:
        assert held.taken_over is None
    other.close()


def test_one_who_lost_the_session_to_another_cannot_commit(store: SessionStore, postgres: str) -> None:
    made = store.create(session())
    other = postgres_sessions(postgres, beat=0.1)
    import psycopg

    slow = postgres_sessions(postgres, beat=60)
    with slow.lease(ID, owner="sleeper"):
        with psycopg.connect(postgres, autocommit=True) as connection:  # as if it had been on another machine that went to sleep
            connection.execute("UPDATE holdfast.storage_leases SET host = 'elsewhere', heartbeat = now() - interval '1 day'")
        terminate(postgres, backend_of(slow))
        with other.lease(ID, owner="second") as held:
            assert held.taken_over is not None
            assert held.taken_over.name == "sleeper"
            with pytest.raises(Locked, match="second"):
                slow.commit(made, expect=1)
            other.commit(made, expect=1)
        with pytest.raises(Locked):
            slow.commit(made, expect=1)
    assert store.load(ID).revision == 2
    for one in (slow, other):
        one.close()


def test_a_run_that_lost_its_session_to_another_stops_before_its_agent_is_done(postgres: str, tmp_path: Path) -> None:
    """W16, W17: it learns it at its next sign of life, and what its agent does further would be for nothing."""
    first, other = (postgres_sessions(postgres, folder=tmp_path / name / "sessions", beat=0.1) for name in ("first", "other"))
    cancelled, begun = threading.Event(), threading.Event()

    def endless(request: StageRequest) -> object:
        begun.set()
        until(request.cancelled)
        cancelled.set()
        return {}

    def run() -> None:
        with pytest.raises(Locked, match="second"):
            Launcher(config_from_values({}), store=first, agents={"x": endless}).run(linear("a"), session_id=ID)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(240)
    with psycopg.connect(postgres, autocommit=True) as connection:  # as if it had been on a machine whose network was cut
        connection.execute("UPDATE holdfast.storage_leases SET token = 'another', name = 'second'")
    terminate(postgres, backend_of(first))
    assert cancelled.wait(240)
    thread.join(240)
    assert other.load(ID).completed_stages == ()
    for one in (first, other):
        one.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_dead_owner_is_taken_over_at_once(store: SessionStore) -> None:
    store.create(session())
    store.backend.close()  # no connection may be shared with the child
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with store.lease(ID, owner="doomed"):
            os.write(writer, b"held")
            time.sleep(600)
        os._exit(0)
    assert os.read(reader, 4) == b"held"
    with pytest.raises(Locked, match="doomed"), store.lease(ID):
        raise AssertionError("two run it")
    os.kill(child, 9)
    os.waitpid(child, 0)
    until = time.monotonic() + 240
    while store.owner(ID) is not None and time.monotonic() < until:
        time.sleep(0.02)
    with store.lease(ID) as held:
        assert held.taken_over is not None
        assert (held.taken_over.name, held.taken_over.pid) == ("doomed", child)
    os.close(reader)
    os.close(writer)


def test_a_restart_of_the_server_does_not_take_a_session_from_its_owner() -> None:
    """The server forgets all locks; another machine, which cannot see the process, has to wait until the owner had time to come back."""
    with own_server() as server:
        owner = postgres_sessions(server.dsn, beat=10.0)
        other = postgres_sessions(server.dsn, beat=10.0)
        made = owner.create(session())
        with owner.lease(ID, owner="patient"):
            assert isinstance(owner.backend, SessionBackend)
            owner.backend.database.rows("UPDATE storage_leases SET host = 'elsewhere' RETURNING 1")
            server.kill()
            with pytest.raises(StoreUnavailable):
                other.load(ID)
            server.start()
            with pytest.raises(Locked, match="patient"), other.lease(ID):
                raise AssertionError("a live owner was taken over")
            assert owner.commit(made, expect=1).revision == 2
        with other.lease(ID):
            pass
        owner.close()
        other.close()


def test_somebody_who_only_looks_after_a_restart_does_not_end_a_lease() -> None:
    """W16: the lock alone says nothing. The owner that comes back while a stranger has it is refused then, and goes on when it is free."""
    with own_server() as server:
        owner = postgres_sessions(server.dsn, beat=600.0)
        made = owner.create(session())
        with owner.lease(ID, owner="patient"):
            server.kill()
            server.start()
            with psycopg.connect(server.dsn, autocommit=True) as stranger:
                stranger.execute("SELECT pg_advisory_lock(%s)", [lock_key("holdfast", "lease", f"sessions/{ID}")])
                with pytest.raises(Locked, match="patient"):
                    owner.commit(made, expect=1)
                stranger.execute("SELECT pg_advisory_unlock_all()")
                assert owner.commit(made, expect=1).revision == 2
            with pytest.raises(Locked, match="patient"), postgres_sessions(server.dsn).lease(ID):
                raise AssertionError("the lease was signed again, the lock not taken")
        owner.close()


def test_threads_that_commit_at_once_lose_nothing(store: SessionStore) -> None:
    from holdfast.errors import RevisionConflict

    store.create(session())

    def work(name: str) -> None:
        for _ in range(10):
            while True:
                current = store.load(ID)
                try:
                    store.commit(
                        replace(current, completed_stages=(*current.completed_stages, f"{name}{current.revision}")), expect=current.revision
                    )
                    break
                except RevisionConflict:
                    continue

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.load(ID).completed_stages) == 30


def test_the_configuration_opens_it(postgres: str, tmp_path: Path) -> None:
    home = {"HOLDFAST_HOME": str(tmp_path)}
    values: dict[str, Any] = {"session": {"storage_backend": "postgresql"}}
    with pytest.raises(ConfigError, match=r"session\.connection"):
        build(config_from_values(values, environ=home)).open_sessions()
    values["session"]["vector_store"] = {"provider": "pgvector", "connection": postgres}
    store = build(config_from_values(values, environ=home)).open_sessions()
    assert isinstance(store.backend, SessionBackend)
    assert store.create(session()).revision == 1
    store.close()
