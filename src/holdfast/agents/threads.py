"""Conversations as a person knows them: a list with titles and times, and a way to be rid of one (A14).

What a thread is called and whose it is stands beside its checkpoints; what was said is in the checkpoints and in the archive, and its
files are below `{base}/threads/{thread}/`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import InputError, OutsideRoot
from holdfast.ids import check_thread
from holdfast.talk import ThreadInfo

if TYPE_CHECKING:
    from holdfast.agents.checkpoints import Checkpoints
    from holdfast.context.archive import FileArchive


SUBAGENT = "subagent-"
"""How the threads of sub-agents begin (A3)."""


def is_subagent(thread: str) -> bool:
    """Whether the thread is a sub-agent's."""
    return thread.startswith(SUBAGENT)


class Threads:
    """All conversations of a base directory. Safe for many threads and processes."""

    def __init__(self, base: Path, checkpoints: Checkpoints, archive: FileArchive, *, clock: Clock | None = None) -> None:
        self._base, self._checkpoints, self._archive = base, checkpoints, archive
        self._clock = clock or SystemClock()

    def all(self, *, subagents: bool = False, agent: str | None = None) -> list[ThreadInfo]:
        """The conversations, the one that was used last first. `agent` lists only those with that agent."""
        with self._checkpoints.cursor(transaction=False) as cursor:
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM threads ORDER BY updated DESC, id DESC").fetchall()  # noqa: S608 - our own names
        found = [ThreadInfo(*row) for row in rows]
        return [one for one in found if (subagents or not is_subagent(one.id)) and agent in (None, one.agent)]

    def find(self, thread: str) -> ThreadInfo | None:
        """What is known of a thread, or None."""
        with self._checkpoints.cursor(transaction=False) as cursor:
            row = cursor.execute(f"SELECT {_COLUMNS} FROM threads WHERE id = ?", (check_thread(thread),)).fetchone()  # noqa: S608
        return ThreadInfo(*row) if row is not None else None

    def note(self, thread: str, *, agent: str | None = None, parent: str | None = None) -> None:
        """The thread is used now; it is in the list from here on."""
        now = stamp(self._clock.now())
        with self._checkpoints.cursor() as cursor:
            cursor.execute(
                "INSERT INTO threads (id, agent, parent, created, updated) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET updated = excluded.updated",
                (check_thread(thread), agent, parent, now, now),
            )

    def set_title(self, thread: str, title: str, by: str = "user") -> None:
        """Give the thread a title. One that a person gave is not replaced by any other."""
        clean = " ".join(title.split())[:200]
        if not clean:
            raise InputError("a title needs at least one word.")
        with self._checkpoints.cursor() as cursor:
            cursor.execute(
                "UPDATE threads SET title = ?, title_by = ? WHERE id = ? AND (? = 'user' OR title_by <> 'user')",
                (clean, by, check_thread(thread), by),
            )

    def older_than(self, moment: str, *, begins: str = SUBAGENT) -> list[str]:
        """The threads with this beginning that were last used before a moment."""
        with self._checkpoints.cursor(transaction=False) as cursor:
            found = cursor.execute("SELECT id FROM threads WHERE updated < ? AND substr(id, 1, ?) = ?", (moment, len(begins), begins))
            return [id for (id,) in found.fetchall()]

    def delete(self, threads: Sequence[str] | str) -> list[str]:
        """Remove conversations with all that belongs to them: checkpoints, archive, files. Says which there were."""
        names = [check_thread(name) for name in ([threads] if isinstance(threads, str) else threads)]
        gone = []
        known = set(self._checkpoints.threads())
        self._archive.close()  # it is opened again when it is next used
        for name in names:
            folder = self._folder(name)
            if name in known or self.find(name) is not None or folder.exists():
                gone.append(name)
            self._checkpoints.delete_thread(name)
            if folder.exists():
                shutil.rmtree(folder)
        return gone

    def _folder(self, thread: str) -> Path:
        root = self._base / "threads"
        folder = root / thread
        if folder.is_symlink():
            raise OutsideRoot(f"{folder} is a link.", path=folder, operation="delete", hint="Remove the link by hand.")
        return folder


_COLUMNS = "id, title, agent, parent, created, updated, title_by"


def prune_subagents(threads: Threads, archive: FileArchive, *, retain_days: int, now: datetime) -> list[str]:
    """Remove those that were last used longer ago, with their checkpoints, archive and files. Says which."""
    limit = stamp(now - timedelta(days=retain_days))
    old = set(threads.older_than(limit))
    listed = {info.id for info in threads.all(subagents=True)}
    for name in archive.threads():  # of one that was never listed only the archive may be left
        if is_subagent(name) and name not in listed and (last := archive.stats(name).last) and last < limit:
            old.add(name)
    return threads.delete(sorted(old)) if old else []
