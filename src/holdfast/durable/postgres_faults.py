"""PostgreSQL's errors turned into ours, by the SQLSTATE that the server gives. Mistakes in SQL stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.durable.postgres_address import Address, driver
from holdfast.errors import Damaged, DiskFull, Locked, NotWritable, StorageError, StoreUnavailable, WriteFailed

_Maker = Callable[[str, str, str], StorageError]
_AGAIN = "Nothing was written. Try again when the server is back."


@contextmanager
def postgres_faults(address: Address, operation: str) -> Iterator[None]:
    """Turns what psycopg raises about the server, the connection or its storage into our errors, without any password."""
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        mapped = _storage_error(error, address, operation)
        if mapped is None:
            raise
        raise mapped from error


def _storage_error(error: Any, address: Address, operation: str) -> StorageError | None:
    code = error.sqlstate or ""
    said = address.hide(" ".join((error.diag.message_primary or str(error)).split()))
    make = _BY_CODE.get(code) or _BY_CLASS.get(code[:2])
    if make is None and (isinstance(error, driver().OperationalError | driver().InterfaceError)):
        make = next((made for words, made in _BY_WORDS if words in said), _unreachable)  # a refused connection has no SQLSTATE
    return None if make is None else make(f"could not {operation} {address.shown}: {said}.".replace("..", "."), address.shown, operation)


def _unreachable(said: str, path: str, operation: str) -> StorageError:
    return StoreUnavailable(said, path=path, operation=operation, hint=_AGAIN)


def _refused(said: str, path: str, operation: str) -> StorageError:
    return StoreUnavailable(said, path=path, operation=operation, hint="Check user and password, and pg_hba.conf of the server.")


def _no_database(said: str, path: str, operation: str) -> StorageError:
    return StoreUnavailable(said, path=path, operation=operation, hint="Create it with `createdb`, or name another one.")


def _full(said: str, path: str, operation: str) -> StorageError:
    return DiskFull(said, path=path, operation=operation, hint="Free space on the server; what was committed before stands.")


def _forbidden(said: str, path: str, operation: str) -> StorageError:
    return NotWritable(said, path=path, operation=operation, hint="Grant the user the right to create and write in this schema.")


def _read_only(said: str, path: str, operation: str) -> StorageError:
    return NotWritable(said, path=path, operation=operation, hint="This is a standby or a read-only database: name the primary.")


def _held(said: str, path: str, operation: str) -> StorageError:
    return Locked(said, path=path, hint="Somebody else is writing the same thing. Try again.")


def _corrupt(said: str, path: str, operation: str) -> StorageError:
    return Damaged(said, path=path, hint="The server found its own files damaged: restore a backup.")


def _disk_trouble(said: str, path: str, operation: str) -> StorageError:
    return WriteFailed(said, path=path, operation=operation, hint="What was committed before stands. Check the server's disk and log.")


_BY_CODE: dict[str, _Maker] = {
    "25006": _read_only,
    "3D000": _no_database,
    "40001": _held,
    "40P01": _held,
    "42501": _forbidden,
    "53100": _full,
    "55P03": _held,
    "58030": _disk_trouble,
    "XX001": _corrupt,
    "XX002": _corrupt,
}
_BY_WORDS: tuple[tuple[str, _Maker], ...] = (
    ("password authentication failed", _refused),
    ("no password supplied", _refused),
    ("pg_hba.conf", _refused),
    ('FATAL: database "', _no_database),
)
_BY_CLASS: dict[str, _Maker] = {"08": _unreachable, "28": _refused, "53": _unreachable, "57": _unreachable, "58": _disk_trouble}
