"""M6, O7, W15: SQLite opened durably: settings, schema numbers, typed errors, backup, setting aside."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.durable.database import Database, backup, database_faults, open_database, transaction
from holdfast.durable.replace import set_aside
from holdfast.errors import Damaged, DiskFull, Locked, NotWritable, StorageError

ONE = """
CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL); -- a comment; with a semicolon
INSERT INTO notes (text) VALUES ('a;b');
"""
TWO = """
CREATE TABLE tags (note INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE, tag TEXT);
CREATE TRIGGER noted AFTER INSERT ON notes BEGIN
    INSERT INTO tags VALUES (new.id, 'new');
    INSERT INTO tags VALUES (new.id, 'unread');
END;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "base" / "store.db"


def opened(path: Path, count: int = 2) -> Database:
    return open_database(path, migrations=[ONE, TWO][:count], timeout=0.05)


def value(connection: sqlite3.Connection, query: str) -> object:
    return connection.execute(query).fetchone()[0]


def test_the_settings_are_those_that_survive_a_power_cut(path: Path) -> None:
    connection = opened(path)
    assert value(connection, "PRAGMA journal_mode") == "wal"
    assert value(connection, "PRAGMA synchronous") == 2
    assert value(connection, "PRAGMA foreign_keys") == 1
    assert value(connection, "PRAGMA busy_timeout") == 50
    connection.close()


def test_migrations_run_once_each_and_the_schema_number_counts_them(path: Path) -> None:
    first = opened(path, 1)
    assert value(first, "PRAGMA user_version") == 1
    first.close()
    second = opened(path)
    assert value(second, "PRAGMA user_version") == 2
    assert value(second, "SELECT group_concat(text) FROM notes") == "a;b"
    with transaction(second):
        second.execute("INSERT INTO notes (text) VALUES ('two')")
    assert value(second, "SELECT count(*) FROM tags") == 2
    second.close()


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    """O7"""
    opened(path).close()
    with pytest.raises(StorageError, match="schema 2, and this version knows up to 1"):
        opened(path, 1)
    opened(path).close()


def test_a_migration_that_fails_leaves_the_schema_before_it(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        open_database(path, migrations=[ONE, "CREATE TABLE half (a); CREATE TABLE notes (again)"])
    connection = opened(path, 1)
    assert value(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == 0
    connection.close()


def test_a_migration_may_be_a_function_and_may_not_leave_rows_that_point_nowhere(path: Path) -> None:
    def orphan(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO tags VALUES (99, 'orphan')")

    with pytest.raises(StorageError, match="point nowhere"):
        open_database(path, migrations=[ONE, TWO, orphan])
    connection = opened(path)
    assert value(connection, "SELECT count(*) FROM tags") == 0
    assert value(connection, "PRAGMA foreign_keys") == 1
    connection.close()


def test_many_openers_at_once_migrate_once(path: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            open_database(path, migrations=[ONE, TWO]).close()
        except BaseException as error:  # noqa: BLE001  # carried to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    connection = opened(path)
    assert value(connection, "SELECT count(*) FROM notes") == 1
    connection.close()


def test_a_transaction_happens_whole_or_not_at_all(path: Path) -> None:
    connection = opened(path)
    with pytest.raises(ZeroDivisionError), transaction(connection):
        connection.execute("INSERT INTO notes (text) VALUES ('x')")
        _ = 1 / 0
    assert not connection.in_transaction
    assert value(connection, "SELECT count(*) FROM notes") == 1
    with pytest.raises(sqlite3.IntegrityError), transaction(connection):
        connection.execute("INSERT INTO notes (id, text) VALUES (1, 'twice')")
    connection.close()


def test_a_second_writer_is_told_that_it_is_locked(path: Path) -> None:
    one, two = opened(path), opened(path)
    with transaction(one), pytest.raises(Locked), transaction(two):
        raise AssertionError("two writers")
    with transaction(two):
        two.execute("INSERT INTO notes (text) VALUES ('x')")
    one.close()
    two.close()


def test_a_full_database_is_a_full_disk_and_what_was_committed_stands(path: Path) -> None:
    """W15"""
    connection = opened(path)
    connection.execute(f"PRAGMA max_page_count={value(connection, 'PRAGMA page_count')}")
    with pytest.raises(DiskFull), transaction(connection):
        connection.execute("INSERT INTO notes (text) VALUES (?)", ["x" * 100_000])
    assert value(connection, "SELECT count(*) FROM notes") == 1
    connection.close()


@pytest.mark.parametrize("content", [b"this is not a database, and longer than a header" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_no_database_is_damaged_and_can_be_set_aside(path: Path, content: bytes) -> None:
    """M6"""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(Damaged):
        opened(path)
    assert path.read_bytes() == content
    aside = Path(set_aside(path))
    opened(path).close()
    assert aside.read_bytes() == content


def test_a_text_that_is_none_is_damage(tmp_path: Path) -> None:
    """D1: a letter that was changed on the disk."""
    connection = open_database(tmp_path / "a.db", migrations=["CREATE TABLE t (x TEXT)"])
    connection.execute("INSERT INTO t VALUES (CAST(x'61ff62' AS TEXT))")
    with pytest.raises(Damaged, match=r"a\.db"), database_faults(str(tmp_path / "a.db"), "read"):
        connection.execute("SELECT x FROM t").fetchall()
    connection.close()


def test_the_write_ahead_log_goes_aside_with_its_database(path: Path) -> None:
    script = """
import os, sys
from holdfast.durable.database import open_database
connection = open_database(sys.argv[1], migrations=["CREATE TABLE old (a); INSERT INTO old VALUES (1)"])
connection.execute("INSERT INTO old VALUES (2)")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert Path(f"{path}-wal").stat().st_size > 0
    aside = set_aside(path)
    fresh = opened(path)
    assert value(fresh, "SELECT count(*) FROM sqlite_schema WHERE name = 'old'") == 0
    fresh.close()
    old = open_database(aside, migrations=["-- the same schema"])
    assert value(old, "SELECT count(*) FROM old") == 2
    old.close()


def test_reading_only_changes_nothing_and_says_what_it_cannot_do(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_database(path, read_only=True)
    opened(path, 1).close()
    reader = open_database(path, migrations=[ONE], read_only=True)
    assert value(reader, "SELECT text FROM notes") == "a;b"
    with pytest.raises(NotWritable), transaction(reader):
        reader.execute("INSERT INTO notes (text) VALUES ('x')")
    reader.close()
    with pytest.raises(NotWritable, match="schema 1 and needs 2"):
        open_database(path, migrations=[ONE, TWO], read_only=True)


def test_a_path_with_signs_that_mean_something_in_an_address_is_just_a_path(tmp_path: Path) -> None:
    for name in ("a?mode=memory", "b#c", "100%25", "é 日"):
        open_database(tmp_path / name, migrations=[ONE]).close()
        assert (tmp_path / name).stat().st_size > 0


def test_a_backup_of_a_live_database_is_whole(path: Path, tmp_path: Path) -> None:
    """O7"""
    connection = opened(path)
    with transaction(connection):
        connection.executemany("INSERT INTO notes (text) VALUES (?)", [["x" * 1000]] * 200)
    target = tmp_path / "copies" / "store.db"
    backup(connection, target)
    with transaction(connection):
        connection.execute("DELETE FROM notes")
    copy = opened(target)
    assert value(copy, "SELECT count(*) FROM notes") == 201
    assert value(copy, "PRAGMA integrity_check") == "ok"
    copy.close()
    connection.close()
    assert [entry.name for entry in target.parent.iterdir()] == ["store.db"]


def test_a_backup_onto_a_folder_fails_and_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    connection = opened(path)
    (tmp_path / "copies" / "store.db").mkdir(parents=True)
    with pytest.raises(StorageError):
        backup(connection, tmp_path / "copies" / "store.db")
    assert [entry.name for entry in (tmp_path / "copies").iterdir()] == ["store.db"]
    connection.close()


def test_a_database_in_memory_works_as_well() -> None:
    connection = open_database(":memory:", migrations=[ONE])
    with transaction(connection):
        connection.execute("INSERT INTO notes (text) VALUES ('x')")
    assert value(connection, "SELECT count(*) FROM notes") == 2
    connection.close()
