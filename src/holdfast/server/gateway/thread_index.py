"""Which thread a request goes on with, by the messages that it holds: every message that a client sent or was given, in their order.

Two requests of one conversation share all messages but the newest, so the longest beginning that is known names the thread. Where it is the
thread's end, the request goes on there; where it is further up, somebody edited or asked again, and a branch begins. A client that drops
its oldest messages is known by the end of what it still has, if that is the end of one thread alone. In doubt it is a new thread: two
conversations are never mixed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from holdfast.durable.database import open_database, transaction

FILE = "gateway.db"
_SCHEMA = (
    """
    CREATE TABLE messages (
        thread TEXT NOT NULL, seq INTEGER NOT NULL, node BLOB NOT NULL, digest BLOB NOT NULL, pair BLOB NOT NULL, message TEXT NOT NULL,
        PRIMARY KEY (thread, seq)
    ) WITHOUT ROWID;
    CREATE INDEX messages_by_node ON messages (node);
    CREATE INDEX messages_by_pair ON messages (pair);
    CREATE TABLE responses (id TEXT PRIMARY KEY, thread TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
    """,
)
_MOST = 200


@dataclass(frozen=True)
class Row:
    """One message of a thread: its place, the name of the beginning up to it, and its id in the thread."""

    thread: str
    seq: int
    node: bytes
    digest: bytes
    message: str


class ThreadIndex:
    """The messages of all threads of the gateway. Safe for many threads and processes; what was written survives a power cut."""

    def __init__(self, base: str | PathLike[str]) -> None:
        self._db = open_database(Path(base) / FILE, migrations=_SCHEMA, threads=True)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def with_node(self, node: bytes) -> list[Row]:
        """The rows of all threads that begin so far in this way, the newest thread first."""
        return self._rows("node = ? ORDER BY thread DESC LIMIT ?", node, _MOST)

    def ending(self, digests: Sequence[bytes]) -> list[Row]:
        """The places where these messages follow each other, of all threads."""
        pair = pair_of(digests[-2] if len(digests) > 1 else b"", digests[-1])
        found = self._rows("pair = ? ORDER BY thread DESC LIMIT ?", pair, _MOST) if len(digests) > 1 else []
        return [row for row in found if self._digests(row.thread, row.seq, len(digests)) == list(digests)]

    def tip(self, thread: str) -> Row | None:
        """The newest message of a thread."""
        found = self._rows("thread = ? ORDER BY seq DESC LIMIT ?", thread, 1)
        return found[0] if found else None

    def row(self, thread: str, seq: int) -> Row | None:
        """One message."""
        found = self._rows("thread = ? AND seq = ?", thread, seq)
        return found[0] if found else None

    def all(self, thread: str) -> list[Row]:
        """All messages of a thread, in their order."""
        return self._rows("thread = ? ORDER BY seq", thread)

    def add(self, thread: str, after: Row | None, digests: Sequence[bytes], nodes: Sequence[bytes], messages: Sequence[str]) -> None:
        """These follow a row, or begin the thread. What stood there before is replaced."""
        seq, before = (after.seq, after.digest) if after is not None else (0, b"")
        rows = []
        for digest, node, message in zip(digests, nodes, messages, strict=True):
            seq += 1
            rows.append((thread, seq, node, digest, pair_of(before, digest), message))
            before = digest
        with self._lock, transaction(self._db) as db:
            db.execute("DELETE FROM messages WHERE thread = ? AND seq > ?", (thread, after.seq if after is not None else 0))
            db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", rows)

    def copy(self, row: Row, thread: str) -> None:
        """A new thread begins as another one up to a row."""
        with self._lock, transaction(self._db) as db:
            db.execute(
                "INSERT INTO messages SELECT ?, seq, node, digest, pair, message FROM messages WHERE thread = ? AND seq <= ?",
                (thread, row.thread, row.seq),
            )

    def note_response(self, id: str, thread: str, seq: int) -> None:
        """An answer has this id, and stands there."""
        with self._lock, transaction(self._db) as db:
            db.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", (id, thread, seq))

    def response(self, id: str) -> Row | None:
        """Where the answer of this id stands."""
        with self._lock:
            found = self._db.execute("SELECT thread, seq FROM responses WHERE id = ?", (id,)).fetchone()
        return self.row(*found) if found is not None else None

    def _rows(self, where: str, *values: object) -> list[Row]:
        with self._lock:
            found = self._db.execute(f"SELECT thread, seq, node, digest, message FROM messages WHERE {where}", values).fetchall()  # noqa: S608 - our own
        return [Row(*one) for one in found]

    def _digests(self, thread: str, seq: int, count: int) -> list[bytes]:
        with self._lock:
            found = self._db.execute(
                "SELECT digest FROM messages WHERE thread = ? AND seq <= ? ORDER BY seq DESC LIMIT ?", (thread, seq, count)
            ).fetchall()
        return [digest for (digest,) in reversed(found)]


def pair_of(before: bytes, digest: bytes) -> bytes:
    """A message and the one before it, as one name."""
    return before + digest
