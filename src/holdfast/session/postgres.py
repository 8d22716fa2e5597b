"""Sessions in PostgreSQL, shared by many machines (W1, W16). The same promises as files keep, by the same tests.

A commit is one transaction. With a `path` the JSON file, and the Markdown of the stages, are written after each commit as an export for
people: the database is what counts, and what somebody changes in an export is overwritten.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as changed
from datetime import date
from os import PathLike, fspath
from pathlib import Path

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.postgres import Postgres, Transaction, lock_key, scripts
from holdfast.errors import Damaged, InputError
from holdfast.session.names import check_checkpoint_name, check_session_id, id_stem, no_session
from holdfast.session.postgres_documents import Documents
from holdfast.session.postgres_export import Export
from holdfast.session.postgres_holding import Hold, holding, who_holds
from holdfast.session.postgres_sides import Checkpoints, RawRows, StageFiles
from holdfast.session.state import Session
from holdfast.session.store import CheckpointBrief, Held, Owner, RawData, SessionBrief, Touched
from holdfast.session.succession import forked, restored, spare_name
from holdfast.session.writing import SessionWriter

_WRITERS = 32  # sessions whose parts are kept in memory


class PostgresSessionStore:
    """The sessions in a database. Keeps every promise of `SessionStore`; reaches the server when it is first needed.

    `database` is an address, or a `Postgres` that is open already. With `path`, a template with `{session_id}`, there is an export: the
    JSON files there, the stages' Markdown below `folder`. `beat` is how often, in seconds, who holds a session gives a sign of life.
    """

    def __init__(
        self,
        database: str | Postgres,
        *,
        folder: str | PathLike[str] = "sessions",
        path: str | None = None,
        schema: str = "holdfast",
        disk: Disk = REAL,
        clock: Clock | None = None,
        lock_timeout: float = 10.0,
        beat: float = 5.0,
    ) -> None:
        self.clock = clock or SystemClock()
        self.export = Export(fspath(folder), path, disk) if path is not None else None
        self._given = database
        self._base = Path(folder).parent  # the base directory, in which `local:` keeps its server
        self._schema = schema
        self._patience = lock_timeout
        self._beat = beat
        self._threads = threading.RLock()
        self._database: Postgres | None = None
        self._writers: dict[str, SessionWriter] = {}
        self._holds: dict[str, Hold] = {}

    @property
    def database(self) -> Postgres:
        """The database, with its tables in their newest form."""
        with self._threads:
            if self._database is None:
                given = self._given
                opened = (
                    Postgres(given, schema=self._schema, base=self._base, lock_timeout=self._patience, clock=self.clock)
                    if isinstance(given, str)
                    else given
                )
                opened.migrate("session", scripts("holdfast.session"))
                self._database = opened
            return self._database

    def close(self) -> None:
        """Close the connections, where they are ours; the next use opens them again."""
        with self._threads:
            opened, self._database = self._database, None
        if opened is not None and opened is not self._given:
            opened.close()

    # One session

    def create(self, session: Session) -> Session:
        check_session_id(session.workflow_id)
        now = stamp(self.clock.now())

        def make(step: Transaction) -> Session:
            if step.one("SELECT 1 FROM sessions WHERE id = %s", [session.workflow_id]) is not None:
                raise InputError(
                    f"the session {session.workflow_id!r} exists already.", hint="Go on with `holdfast resume`, or choose another id."
                )
            return changed(session, revision=1, created_at=session.created_at or now, updated_at=now)

        return self._write(session.workflow_id, make)

    def load(self, workflow_id: str) -> Session:
        return self.documents.load(check_session_id(workflow_id))

    def commit(self, session: Session, *, expect: int) -> Session:
        workflow_id = check_session_id(session.workflow_id)
        hold = self._holds.get(workflow_id)
        if hold is not None:
            hold.check()

        def make(step: Transaction) -> Session:
            self.documents.compare(step, session, expect)
            return changed(session, revision=expect + 1, updated_at=stamp(self.clock.now()))

        return self._write(workflow_id, make)

    def list(self) -> builtins.list[SessionBrief]:
        return self.documents.briefs()

    def new_session_id(self, workflow_id: str, day: date) -> str:
        stem = f"{id_stem(workflow_id)}-{day.isoformat()}-"
        with self.database.transaction(lock_key(self._schema, "ids", stem)) as step:
            rows = step.rows(
                "SELECT id FROM sessions WHERE starts_with(id, %s) UNION SELECT id FROM session_ids WHERE starts_with(id, %s)", [stem, stem]
            )
            taken = {id.removeprefix(stem) for (id,) in rows}
            number = max((int(rest) for rest in taken if rest.isdecimal() and len(rest) < 9), default=0) + 1
            found = f"{stem}{number:03d}"
            step.execute("INSERT INTO session_ids (id) VALUES (%s)", [found])
            step.proof = ("SELECT 1 FROM session_ids WHERE id = %s", [found])
        return found

    # Who runs it

    @contextmanager
    def hold(self, workflow_id: str, *, owner: str | None = None) -> Iterator[Held]:
        check_session_id(workflow_id)
        with holding(self.database, workflow_id, owner=owner, clock=self.clock, beat=self._beat) as hold:
            self._holds[workflow_id] = hold
            try:
                yield hold.held
            finally:
                self._holds.pop(workflow_id, None)

    def owner(self, workflow_id: str) -> Owner | None:
        return who_holds(self.database, check_session_id(workflow_id))

    def request_cancel(self, workflow_id: str) -> None:
        self.need(workflow_id)
        with self.database.transaction() as step:
            step.execute(
                "INSERT INTO session_cancels (id, at) VALUES (%s, %s) ON CONFLICT (id) DO NOTHING", [workflow_id, stamp(self.clock.now())]
            )

    def cancel_requested(self, workflow_id: str) -> bool:
        return self.database.one("SELECT 1 FROM session_cancels WHERE id = %s", [check_session_id(workflow_id)]) is not None

    def clear_cancel(self, workflow_id: str) -> None:
        check_session_id(workflow_id)
        with self.database.transaction() as step:
            step.execute("DELETE FROM session_cancels WHERE id = %s", [workflow_id])

    # Recovery points

    def checkpoint(self, session: Session, name: str) -> None:
        check_checkpoint_name(name)
        self.need(session.workflow_id)
        with self.writing(session.workflow_id) as step:
            self.points.add(step, session, name, stamp(self.clock.now()), self._writer(session.workflow_id))

    def checkpoints(self, workflow_id: str) -> builtins.list[CheckpointBrief]:
        self.need(workflow_id)
        return self.points.briefs(workflow_id)

    def load_checkpoint(self, workflow_id: str, name: str) -> Session:
        self.need(workflow_id)
        return self.points.load(workflow_id, name)

    def prune_checkpoints(self, workflow_id: str, *, keep: int) -> int:
        self.need(workflow_id)
        with self.writing(workflow_id) as step:
            return self.points.prune(step, workflow_id, keep)

    def restore(self, workflow_id: str, name: str) -> Session:
        then = self.load_checkpoint(workflow_id, name)
        try:
            current = self.load(workflow_id)
        except Damaged:
            return self._write(workflow_id, lambda step: self._instead(step, then))
        self.checkpoint(current, spare_name(brief.name for brief in self.checkpoints(workflow_id)))
        return self.commit(changed(restored(then), mark=current.mark), expect=current.revision)

    def _instead(self, step: Transaction, then: Session) -> Session:
        """A state in place of one that cannot be read, which is set aside as it is."""
        workflow_id = then.workflow_id
        step.execute("INSERT INTO session_damaged (session, document) SELECT id, document FROM sessions WHERE id = %s", [workflow_id])
        row = step.one("SELECT revision FROM sessions WHERE id = %s", [workflow_id])
        newest = max(then.revision, int(row[0]) if row else 0)
        return changed(restored(then), revision=newest + 1, updated_at=stamp(self.clock.now()))

    def fork(self, workflow_id: str, new_id: str, *, checkpoint: str | None = None) -> Session:
        check_session_id(new_id)
        origin = self.load(workflow_id) if checkpoint is None else self.load_checkpoint(workflow_id, checkpoint)
        if self.documents.exists(new_id):
            raise InputError(f"the session {new_id!r} exists already.", hint="Choose another id.")
        with self.database.transaction() as step:  # before the session itself: who sees it can read what it refers to
            self.raw.copy(step, workflow_id, new_id)
            self.files.copy(step, workflow_id, new_id)
        if self.export is not None:
            self.export.write_stages(new_id, self.files.texts(new_id))
        return self.create(forked(origin, new_id, checkpoint, stamp(self.clock.now())))

    def remove(self, workflow_id: str) -> None:
        self.need(workflow_id)
        with self.hold(workflow_id, owner="remove"), self.writing(workflow_id) as step:
            for table in ("session_checkpoints", "session_files", "session_damaged"):
                step.execute(f"DELETE FROM {table} WHERE session = %s", [workflow_id])  # noqa: S608 - names of our own
            self.raw.remove(step, workflow_id)
            for table in ("session_cancels", "session_ids", "sessions"):
                step.execute(f"DELETE FROM {table} WHERE id = %s", [workflow_id])  # noqa: S608 - names of our own
        self._writers.pop(workflow_id, None)
        if self.export is not None:
            self.export.remove(workflow_id)

    # Raw data and files

    def raw_put(self, workflow_id: str, data: bytes, *, media_type: str = "text/plain", source: str | None = None) -> str:
        check_session_id(workflow_id)
        return self.raw.put(workflow_id, data, media_type, source, stamp(self.clock.now()))

    def raw_get(self, workflow_id: str, ref: str) -> RawData:
        self.need(workflow_id)
        return self.raw.get(workflow_id, ref)

    def raw_list(self, workflow_id: str) -> builtins.list[str]:
        self.need(workflow_id)
        return self.raw.refs(workflow_id)

    def write_stage_files(
        self, workflow_id: str, number: int, stage: str, *, context: str | None = None, output: str | None = None
    ) -> None:
        check_session_id(workflow_id)
        given = {name: text for name, text in (("context", context), ("output", output)) if text is not None}
        written = self.files.write(workflow_id, number, stage, given)
        if self.export is not None:
            self.export.write_stages(workflow_id, written)

    def forget_text(self, text: str) -> builtins.list[Touched]:
        from holdfast.session.postgres_forgetting import forget_in_database

        return forget_in_database(self, text)

    # What the parts of this store share

    @property
    def documents(self) -> Documents:
        """The states."""
        return Documents(self.database)

    @property
    def points(self) -> Checkpoints:
        """The recovery points."""
        return Checkpoints(self.database)

    @property
    def raw(self) -> RawRows:
        """The raw data."""
        return RawRows(self.database)

    @property
    def files(self) -> StageFiles:
        """What stages were given and wrote, as Markdown."""
        return StageFiles(self.database)

    @contextmanager
    def writing(self, workflow_id: str) -> Iterator[Transaction]:
        """A transaction that keeps other writers of this session out."""
        with self.database.transaction(lock_key(self._schema, "session", workflow_id)) as step:
            yield step

    def need(self, workflow_id: str) -> None:
        """InputError, naming near ones, if there is no such session."""
        if not self.documents.exists(check_session_id(workflow_id)):
            raise no_session(workflow_id, self.documents.ids())

    def _write(self, workflow_id: str, make: Callable[[Transaction], Session]) -> Session:
        """Put the session that `make` gives in place, in one transaction with what it looks at, and export it then."""
        with self.writing(workflow_id) as step:
            session = make(step)
            data = self._writer(workflow_id).encode(session)
            kept = self.documents.put(step, session, data)
        if self.export is not None:
            self.export.write(workflow_id, data)
        return kept

    def _writer(self, workflow_id: str) -> SessionWriter:
        with self._threads:
            writer = self._writers.pop(workflow_id, None) or SessionWriter()
            self._writers[workflow_id] = writer  # the newest is the last
            if len(self._writers) > _WRITERS:
                del self._writers[next(iter(self._writers))]
            return writer
