"""Checkpoints of conversations in one SQLite file that stays small: `{base}/checkpoints.db` (A14).

LangGraph's saver with what it lacks for long conversations: every commit survives a power cut, sync and async callers share one
connection, nothing in it can name code to run, and a checkpoint that no newer one needs is removed, since the archive holds the past.

LangGraph writes the full list of messages into each checkpoint; a thread of a thousand messages and twelve turns makes twenty megabytes of
them. With `create_agent(..., state_schema=ThreadState)` a checkpoint holds the step's own messages, and all of them only now and then.
"""

from __future__ import annotations

import asyncio
import builtins
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import add_messages
from langgraph.types import Command, Interrupt, Overwrite, Send

from holdfast.durable.database import Database, database_faults, open_database, transaction
from holdfast.errors import Damaged, HoldfastError, Locked, StorageError
from holdfast.text.needle import Needle

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple, DeltaChannelHistory


FORGOTTEN = "(forgotten)"
"""What stands where a forgotten text stood."""

_KEEP = 12
_PARTS = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})
_LOG_PAGES = 200  # the write-ahead log is taken in after this many pages of 4 kB, so that it stays small as well
_LOOSE_PAGES = 64  # free pages at the end that are not worth a rewrite of the file


def open_checkpoints(base: str | PathLike[str], *, keep: int = _KEEP) -> Checkpoints:
    """The checkpoints of a base directory; the file is made if need be. Close it when done."""
    return Checkpoints(Path(base) / "checkpoints.db", keep=keep)


class Checkpoints(SqliteSaver):
    """A saver for `create_agent(checkpointer=...)`, sync and async. Safe for many threads and processes.

    Of each thread at least the newest `keep` checkpoints stay, with all that is needed to read them. Use `durability="sync"`: then a step
    that was reported is on disk.
    """

    conn: Database

    def __init__(self, path: str | PathLike[str] = ":memory:", *, keep: int = _KEEP) -> None:
        connection = open_database(path, migrations=[_sql("001_checkpoints.sql")], threads=True)
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit={_LOG_PAGES * 4096}")
        connection.execute("PRAGMA secure_delete=ON")  # what was deleted is not left readable in free pages
        super().__init__(
            connection, serde=JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)
        )
        self.is_setup = True  # the tables are made by our migration
        self._keep = max(1, keep)
        self._closed = False
        self._oldest_needed = _sql("prune_checkpoints.sql")

    def close(self) -> None:
        """Let go of the file."""
        self._closed = True
        with self.lock:
            self.conn.close()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """A cursor whose changes are all made, durably, or none. Storage errors are ours; so is that it was closed."""
        with self.lock:
            if self._closed:
                raise StorageError.closed(f"the list of conversations in {self.conn.path}", self.conn.path)
            cursor = self.conn.cursor()
            try:
                if not transaction:
                    with database_faults(self.conn.path, "read"):
                        yield cursor
                else:
                    with _transaction(self.conn):
                        yield cursor
            finally:
                cursor.close()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint, the newest if none is named. Damaged if what is kept of it cannot be read."""
        thread = str(config["configurable"]["thread_id"])
        with self._sound(thread):
            found = super().get_tuple(config)
            if found is not None and not (isinstance(found.checkpoint, dict) and found.checkpoint.keys() >= _PARTS):
                raise ValueError("parts of a checkpoint are missing")
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints, newest first. Damaged where one cannot be read."""
        with self._sound(str(config["configurable"]["thread_id"]) if config else "any"):
            yield from super().list(config, filter=filter, before=before, limit=limit)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """What was written to these channels. Damaged where it cannot be read."""
        with self._sound(str(config["configurable"]["thread_id"])):
            found = super().get_delta_channel_history(config=config, channels=channels)
            for _, _, value in found["messages"]["writes"] if "messages" in found else ():
                _check_messages(value)
        return found

    @contextmanager
    def _sound(self, thread: str) -> Iterator[None]:
        try:
            with database_faults(self.conn.path, "read"):
                yield
        except (HoldfastError, sqlite3.ProgrammingError):  # ours already, or a mistake of the caller such as a closed file
            raise
        except Exception as error:  # whatever a decoder makes of bytes that are not those that were written
            told = f"the conversation {thread!r} cannot be read from {self.conn.path}: {type(error).__name__}, {str(error)[:200]}."
            hint = "Restore a backup, or begin another thread; `holdfast history` shows what was said."
            raise Damaged(told, path=self.conn.path, hint=hint) from error

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Save a checkpoint; one that needs none before it lets older ones go."""
        saved = super().put(config, checkpoint, metadata, new_versions)
        if not metadata.get("counters_since_delta_snapshot"):
            self._prune(str(config["configurable"]["thread_id"]), str(config["configurable"].get("checkpoint_ns", "")))
        return saved

    def _prune(self, thread: str, ns: str) -> None:
        with self.cursor() as cursor:
            found = cursor.execute(self._oldest_needed, {"thread": thread, "ns": ns, "keep": self._keep}).fetchone()
            if found is None:
                return
            older = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND rowid < ?"
            where = (thread, ns, found[0])
            cursor.execute(
                f"DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id IN ({older})",  # noqa: S608 - our own text
                (thread, ns, *where),
            )
            cursor.execute("DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND rowid < ?", where)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and give the space back."""
        self.delete_threads([thread_id])

    def delete_threads(self, names: Sequence[str]) -> None:
        """Remove threads, all in one step, and give the space back."""
        with self.cursor() as cursor:
            for table, column in (("checkpoints", "thread_id"), ("writes", "thread_id"), ("threads", "id")):
                cursor.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(name,) for name in names])  # noqa: S608 - our own names
        self.shrink()

    def threads(self) -> builtins.list[str]:
        """The threads that have a checkpoint."""
        with self.cursor(transaction=False) as cursor:
            return [thread for (thread,) in cursor.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")]

    def waiting(self) -> builtins.list[str]:
        """The threads whose newest checkpoint waits for a person."""
        newest = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = writes.thread_id AND checkpoint_ns = writes.checkpoint_ns"
        asked = "SELECT DISTINCT thread_id FROM writes WHERE channel = '__interrupt__' AND checkpoint_ns = ''"
        with self.cursor(transaction=False) as cursor:
            return [thread for (thread,) in cursor.execute(f"{asked} AND checkpoint_id = ({newest}) ORDER BY thread_id")]

    def rows(self, thread: str) -> int:
        """How many checkpoints of a thread are kept now."""
        with self.cursor(transaction=False) as cursor:
            (count,) = cursor.execute("SELECT count(*) FROM checkpoints WHERE thread_id = ?", (thread,)).fetchone()
            return int(count)

    def shrink(self, loose_pages: int = _LOOSE_PAGES) -> None:
        """Give free pages back to the file system, if there are more than so many and nobody else is writing."""
        with self.lock, suppress(sqlite3.OperationalError, Locked):  # somebody else is at it: the pages are used again anyway
            (loose,) = self.conn.execute("PRAGMA freelist_count").fetchone()
            if loose > loose_pages:
                self.conn.execute("VACUUM")
            self.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def forget_text(self, text: str) -> builtins.list[str]:
        """Take a text out of every checkpoint, wherever it stands. Says which threads held it; on return the file does not."""
        needle = Needle(text)
        touched: set[str] = set()
        with self.cursor() as cursor:
            for table, column in (("checkpoints", "checkpoint"), ("writes", "value")):
                for row, thread, kind, blob in _holding(cursor, table, column, needle):
                    value = self.serde.loads_typed((kind, blob))
                    parts = value.get("channel_values") if table == "checkpoints" and isinstance(value, Mapping) else None
                    rest = _scrubbed(value, needle) if parts is None else {**value, "channel_values": _scrubbed(parts, needle)}
                    if rest == value:
                        continue  # only the names of its own parts show it
                    new = self.serde.dumps_typed(rest)
                    cursor.execute(f"UPDATE {table} SET type = ?, {column} = ? WHERE rowid = ?", (*new, row))  # noqa: S608 - our own names
                    touched.add(thread)
            for thread, title in cursor.execute("SELECT id, title FROM threads WHERE title <> ''").fetchall():
                if needle.in_text(title):
                    cursor.execute("UPDATE threads SET title = ? WHERE id = ?", (FORGOTTEN, thread))
                    touched.add(thread)
        self.shrink(-1)
        return sorted(touched)

    # the same for async callers: SQLite is asked in a thread, so that the loop goes on

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in await asyncio.to_thread(lambda: [*self.list(config, filter=filter, before=before, limit=limit)]):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        return await asyncio.to_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))


def _check_messages(value: Any) -> None:
    """ValueError for what no message was written as: the serializer makes None of a class that it does not know."""
    inner = value.value if isinstance(value, Overwrite) else value
    for one in inner if isinstance(inner, list) else (inner,):
        if not isinstance(one, BaseMessage | str | tuple | Mapping | list):
            raise ValueError("a message is missing")  # noqa: TRY004 - said as damage by the caller


_transaction = transaction  # the method above has a parameter of this name


def _sql(name: str) -> str:
    return resources.files("holdfast.agents").joinpath("sql", name).read_text(encoding="utf-8")


def _holding(cursor: sqlite3.Cursor, table: str, column: str, needle: Needle) -> list[tuple[int, str, str, bytes]]:
    """The rows whose bytes show the text: MessagePack keeps texts as they are."""
    rows = cursor.connection.execute(f"SELECT rowid, thread_id, type, {column} FROM {table}")  # noqa: S608 - our own names
    return [row for row in rows if row[3] is not None and needle.in_bytes(row[3])]


_NOBODY_SAID = frozenset({"id", "index", "type", "role", "tool_call_id", "status", "finish_reason", "model_name", "model_provider"})
"""Members of messages and calls that programs wrote; without them a conversation could not go on."""


def _scrubbed(value: Any, needle: Needle) -> Any:
    """The value with `FORGOTTEN` for every text in it that holds the one to forget."""
    if isinstance(value, str):
        return FORGOTTEN if needle.in_text(value) else value
    if isinstance(value, Mapping):
        return {key: item if key in _NOBODY_SAID else _scrubbed(item, needle) for key, item in value.items()}
    if isinstance(value, BaseMessage):
        parts = ("content", "additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls", "artifact")
        return value.model_copy(update={name: _scrubbed(getattr(value, name), needle) for name in parts if hasattr(value, name)})
    if isinstance(value, Overwrite):
        return Overwrite(_scrubbed(value.value, needle))
    if isinstance(value, Send):
        return Send(value.node, _scrubbed(value.arg, needle))
    if isinstance(value, Interrupt):
        return Interrupt(_scrubbed(value.value, needle), id=value.id)
    if isinstance(value, Command):
        return Command(graph=value.graph, update=_scrubbed(value.update, needle), resume=_scrubbed(value.resume, needle), goto=value.goto)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a snapshot of a channel is a named tuple
        return type(value)(*(_scrubbed(item, needle) for item in value))
    if isinstance(value, list | tuple | set):
        return type(value)(_scrubbed(item, needle) for item in value)
    return value


def merge_messages(known: Any, updates: Sequence[Any]) -> Any:
    """Apply updates in their order, as LangGraph's own reducer applies each: same ids replace, removals remove, the rest is appended.

    The result does not depend on how the updates were batched, which is what a channel of deltas needs.
    """
    for update in updates:
        known = add_messages(known, update)
    return known


class Rewritten(Overwrite):
    """A whole history for the messages channel that shows itself as the messages that are new in it.

    A node that writes `Rewritten(answers, whole)` replaces the history with `whole` under any reducer, while a stream of updates or
    messages, and a middleware further out, see `answers`: a step that compacts looks like any other. It is stored as LangGraph's own
    `Overwrite`, under whose name it is known to every saver.
    """

    def __init__(self, shown: Iterable[Any], whole: Iterable[Any]) -> None:
        super().__init__(list(whole))
        self.shown = list(shown)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.shown)

    def __len__(self) -> int:
        return len(self.shown)

    def __getitem__(self, index: Any) -> Any:
        return self.shown[index]

    def __setitem__(self, index: int, message: Any) -> None:
        """Another message in the place of one of the new ones, also in the history."""
        old, self.shown[index] = self.shown[index], message
        self.value = [message if one is old else one for one in self.value]


Rewritten.__module__, Rewritten.__name__ = Overwrite.__module__, Overwrite.__name__  # by these a saver finds the class again
Sequence.register(Rewritten)


class ThreadState(AgentState[Any]):
    """The usual agent state with messages kept as deltas."""

    messages: Annotated[list[AnyMessage], DeltaChannel(merge_messages)]
