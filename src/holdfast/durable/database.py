"""SQLite opened so that a committed transaction survives a power cut, and its errors turned into ours.

WAL with `synchronous=FULL`: with NORMAL, which many call safe, every commit since the last checkpoint is lost in a power cut.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from os import PathLike
from typing import TypeVar

from holdfast.durable.disk import REAL, Disk, closing, faults, make_folders, not_made
from holdfast.durable.replace import temp_name
from holdfast.errors import Damaged, DiskFull, HoldfastError, Locked, NotWritable, StorageError, SyncFailed, WriteFailed

Migration = str | Callable[[sqlite3.Connection], None]
"""One step from a schema number to the next: SQL statements, or a function that runs inside the transaction."""


_LEAST = 64 << 10  # bytes: a side file of SQLite's takes half of that at once
_LOG_LIMIT = 64 << 20  # what one large transaction may leave behind as an empty write-ahead log


_NO_ROOM_BESIDE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
T = TypeVar("T", bound=sqlite3.Connection)


class Database(sqlite3.Connection):
    """A connection that knows its path, and whether a failed sync has put an end to it."""

    path: str = ":memory:"
    given_up: str | None = None
    read_only: bool = False


def open_database(
    path: str | PathLike[str],
    *,
    migrations: Sequence[Migration] = (),
    timeout: float = 10.0,
    threads: bool = False,
    read_only: bool = False,
    or_read_only: bool = False,
) -> Database:
    """Open the database, made if need be, and bring it to the newest schema.

    The schema number, in `user_version`, is the number of migrations done; each is one transaction. A database with a higher
    number is refused: it was written by a newer version. `timeout` is how long a writer waits for another. With `threads` the
    connection may be used from several threads, which then take turns by themselves. Damaged if it is not a sound database;
    `set_aside` then clears the way. Outside of `transaction` every statement commits by itself. With `or_read_only` one that is there and
    cannot be written now (no right to, a read-only file system, a full disk) is opened for reading, and says so by `read_only`.
    """
    name = os.fspath(path)
    if or_read_only and name != ":memory:":
        try:
            return open_database(path, migrations=migrations, timeout=timeout, threads=threads)
        except (NotWritable, DiskFull) as error:
            try:
                return open_database(path, migrations=migrations, timeout=timeout, threads=threads, read_only=True)
            except (OSError, StorageError):
                raise error from None
    if name != ":memory:":
        name = REAL.resolve(name)
        if read_only:
            os.stat(name)  # FileNotFoundError, rather than SQLite's "unable to open"
        else:
            make_folders(REAL, os.path.dirname(name))
            _make_private(name)

    def connect(address: str) -> Database:
        return sqlite3.connect(
            address, timeout=timeout, isolation_level=None, check_same_thread=not threads, factory=Database, uri=name != ":memory:"
        )

    with database_faults(name, "open"):
        connection = _for_reading(name, connect) if read_only else connect(_address(name, read_only=False))
    connection.path, connection.read_only = name, read_only
    try:
        with database_faults(name, "open"):
            _configure(connection, timeout, read_only)
            _migrate(connection, migrations, read_only)
        if not read_only and name != ":memory:":
            REAL.sync_folder(os.path.dirname(name))  # SQLite does not sync the folder for a new database in WAL mode
    except BaseException:
        connection.close()
        raise
    return connection


def open_plain(path: str | PathLike[str]) -> sqlite3.Connection:
    """A connection for reading a database of whatever schema, as it is: for copies. FileNotFoundError if there is none."""
    name = REAL.resolve(os.fspath(path))
    os.stat(name)
    with database_faults(name, "open"):
        return _for_reading(name, partial(sqlite3.connect, uri=True))


def _for_reading(name: str, connect: Callable[[str], T]) -> T:
    """A connection for reading, also where SQLite can put no shared memory beside the file: then the file is read as it is.

    That is sound as long as nobody can write there, and all that was written is in the file itself. What still stands in a write-ahead
    log beside it would be missing without a word, so then the error is raised that SQLite met.
    """
    connection = connect(_address(name, read_only=True))
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _NO_ROOM_BESIDE:
            return connection  # no sound database: whoever reads it meets that
        connection.close()
        if _has_content(f"{name}-wal"):
            raise
        return connect(f"{_address(name, read_only=True)}&immutable=1")
    return connection


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def values_of(connection: sqlite3.Connection) -> Iterator[tuple[str, str, str | bytes]]:
    """Every text and blob in it: table, column, value. What is kept for a full text is in tables of its own, and comes too."""
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'").fetchall()
    for (table,) in tables:
        named = '"' + table.replace('"', '""') + '"'
        cursor = connection.execute(f"SELECT * FROM {named}")  # noqa: S608 - a name in quotes
        columns = [one[0] for one in cursor.description]
        for row in cursor:
            yield from ((table, column, value) for column, value in zip(columns, row, strict=True) if isinstance(value, str | bytes))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All that is done inside happens or none of it; on return it survives a power cut.

    Takes the right to write at once (BEGIN IMMEDIATE), so that nothing read inside can be overtaken. Any exception rolls back.
    After a failed sync the connection is of no more use and says so: close it and open another.
    """
    path, given_up = getattr(connection, "path", "the database"), getattr(connection, "given_up", None)
    if given_up is not None:
        raise SyncFailed(f"{path} is not written to any more: {given_up}", path=path, operation="commit", hint="Open the database anew.")
    try:
        with database_faults(path, "write"):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # after a full disk SQLite has rolled back by itself
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise
    except SyncFailed as error:
        if isinstance(connection, Database):
            connection.given_up = error.message
        raise
    except DiskFull:
        _give_space_back(connection)
        raise


def _give_space_back(connection: sqlite3.Connection) -> None:
    """The write-ahead log keeps the space that a failed transaction took, and nobody else could write meanwhile."""
    with suppress(sqlite3.Error):  # if others are reading, the next checkpoint does it
        (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute("PRAGMA busy_timeout=0")
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.execute(f"PRAGMA busy_timeout={int(patience)}")


def backup(connection: sqlite3.Connection, target: str | PathLike[str], *, disk: Disk = REAL) -> None:
    """Copy a live database to `target`, as it was at one moment; on return the copy survives a power cut. Nobody has to stop.

    Nothing is written to what is copied.
    """
    name = disk.resolve(os.fspath(target))
    folder = os.path.dirname(name)
    make_folders(disk, folder)
    temp = os.path.join(folder, temp_name())
    try:
        _make_private(temp)
        with database_faults(name, "back up to"):
            copy = sqlite3.connect(temp)
            try:
                connection.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, nothing beside it
            finally:
                copy.close()
        with closing(disk, disk.open_log(temp)) as handle:
            disk.sync(handle)
        disk.rename(temp, name)
    except (HoldfastError, OSError):
        with suppress(HoldfastError, OSError):
            disk.unlink(temp)
        raise
    disk.sync_folder(folder)


@contextmanager
def database_faults(path: str, operation: str) -> Iterator[None]:
    """Turns SQLite's errors about storage into ours. Mistakes in SQL, and broken constraints, stay what they are."""
    try:
        yield
    except sqlite3.Error as error:
        mapped = _storage_error(error, path, operation)
        if mapped is None:
            raise
        raise mapped from error


def _storage_error(error: sqlite3.Error, path: str, operation: str) -> StorageError | None:
    code = getattr(error, "sqlite_errorcode", None)
    what = f"could not {operation} {path}: {error}."
    if code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC):
        return SyncFailed(what, path=path, operation=operation, hint="Check the disk, then open the database anew.")
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL or (primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)):
        return DiskFull(what, path=path, operation=operation, hint="Free space; what was committed before stands.")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return NotWritable(what, path=path, operation=operation, hint=_why_not(path))
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Locked(f"{path} is being written by somebody else.", path=path, hint="Try again, or wait longer with a higher `timeout`.")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or (code is None and "Could not decode to UTF-8" in str(error)):
        return Damaged(f"{path} is not a sound database: {error}.", path=path, hint="Set it aside and restore a backup, or start anew.")
    if primary == sqlite3.SQLITE_IOERR:
        return WriteFailed(what, path=path, operation=operation, hint="What was committed before stands. Check the disk.")
    return None


def _why_not(path: str) -> str:
    with suppress(OSError, AttributeError):
        if os.statvfs(os.path.dirname(path) or ".").f_flag & os.ST_RDONLY:
            left = " What its last writer left beside it has to be taken in first." if _has_content(f"{path}-wal") else ""
            return f"The file system is read-only: mount it for writing.{left}"
    return "Check the owner and the mode of the file and of its folder."


def _is_full(path: str) -> bool:
    """Whether there is hardly any room where a database is: SQLite calls that by other names when its side files meet it first."""
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except (OSError, AttributeError):
        return False
    return found.f_bavail * found.f_frsize < _LEAST or (found.f_files > 0 and found.f_favail == 0)


def _make_private(name: str) -> None:
    """Make the file readable by its owner alone before SQLite makes it for everybody; the files beside it get the same rights.

    Only a file that is not there: closing a second descriptor of a database would drop the locks that this process has on it.
    """
    try:
        with faults(name, "open"), suppress(FileExistsError):
            os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    except FileNotFoundError as error:
        raise not_made(name) from error


def _address(name: str, read_only: bool) -> str:
    if name == ":memory:":
        return name
    from urllib.request import pathname2url

    return f"file:{pathname2url(name)}?mode={'ro' if read_only else 'rwc'}"


def _configure(connection: Database, timeout: float, read_only: bool) -> None:
    connection.execute(f"PRAGMA busy_timeout={int(timeout * 1000)}")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA fullfsync=ON")  # macOS only; harmless elsewhere
    connection.execute("PRAGMA checkpoint_fullfsync=ON")
    if read_only:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # notices here, not later, that it is no database
        return
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode not in ("wal", "memory"):
        raise StorageError(
            f"{connection.path} cannot have a write-ahead log here (it says {mode}).",
            path=connection.path,
            operation="open",
            hint="Put it on a local disk: network file systems do not carry the shared memory that it needs.",
        )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA journal_size_limit={_LOG_LIMIT}")


def _version(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)


def _migrate(connection: Database, migrations: Sequence[Migration], read_only: bool) -> None:
    found, newest = _version(connection), len(migrations)
    if found > newest:
        raise StorageError(
            f"{connection.path} has schema {found}, and this version knows up to {newest}.",
            path=connection.path,
            operation="open",
            hint="It was written by a newer version: use that one.",
        )
    if found == newest:
        return
    if read_only:
        raise NotWritable(
            f"{connection.path} has schema {found} and needs {newest}.",
            path=connection.path,
            operation="open",
            hint="Open it for writing once.",
        )
    connection.execute("PRAGMA foreign_keys=OFF")  # rebuilding a table would otherwise cascade; checked before each commit instead
    try:
        for number in range(found + 1, newest + 1):
            with transaction(connection):
                if _version(connection) < number:  # another process may have done it while we waited
                    _step(connection, migrations[number - 1], number)
    finally:
        connection.execute("PRAGMA foreign_keys=ON")


def _step(connection: Database, migration: Migration, number: int) -> None:
    if callable(migration):
        migration(connection)
    else:
        for statement in _statements(migration):
            connection.execute(statement)
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise StorageError(
            f"migration {number} of {connection.path} leaves rows of {broken[0]} that point nowhere.",
            path=connection.path,
            operation="migrate",
        )
    connection.execute(f"PRAGMA user_version={number}")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the transaction that we are in."""
    pending = ""
    for piece in script.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            if pending.strip(" \t\r\n;"):
                yield pending
            pending = ""
