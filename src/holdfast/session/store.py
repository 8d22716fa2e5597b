"""The store of sessions. Its docstrings are the promises, and `tests/contract/test_session_store.py` holds it to them over every backend.

    sessions/ID/log.jsonl            the truth: one record for each commit (see `log.py`)
    sessions/ID.json                 a view of it that a person can read, and edit: an input at the next load (see `edits.py`)
    sessions/ID/stages/01-plan/*.md  views as well: what a stage was given, and what it wrote
    sessions/ID/raw/                 raw data by its hash

A session is a value: `load`, make a changed copy, `commit` it with the revision that it came from. Who runs a session holds it
meanwhile (`lease`), so that two processes never run one session at once; committing does not need that, only the right revision.
"""

from __future__ import annotations

import bisect
import builtins
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace as changed
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import Damaged, HoldfastError, InputError, InTheWay, Locked, NotThere, RevisionConflict, StorageError
from holdfast.session.document import parse_session, render_session, session_json
from holdfast.session.edits import Edit, check_completed
from holdfast.session.log import Document, compacted, point_record, points_of, texts_of
from holdfast.session.state import (
    CheckpointBrief,
    Session,
    SessionBrief,
    check_checkpoint_name,
    check_session_id,
    checkpoint_brief,
    evolved,
    forked,
    id_stem,
    is_session_id,
    near,
    no_session,
    restored,
    spare_name,
)
from holdfast.session.stored import RawData, RawStore, ReadAgain, StoredSession, Views, clean_brief
from holdfast.storage.backend import ABSENT, Backend, Delete, Holder, Lease, Put

if TYPE_CHECKING:
    from holdfast.session.editor import Touched

_KEPT = 32  # sessions whose newest state is kept in memory
_TRIES = 50
_AT_ONCE = 50  # sessions that are removed together
_SLACK = 2.0  # seconds by which the clocks of a file system and of its writers may differ


class SessionStore:
    """Keeps sessions in a backend. Safe for many threads and processes.

    `views` says where their files are; without it there are none. Every method that takes an id raises InputError for one that no session
    may have, and, where it needs an existing session, for one that is not there, naming near ones. Whatever fails on the medium is a
    StorageError at that moment (W15): DiskFull, NotWritable, SyncFailed, StoreUnavailable; then the old state stands, unless only a view
    could not be written: then the new one does.
    """

    def __init__(self, backend: Backend, *, views: Views | None = None, prefix: str = "sessions", clock: Clock | None = None) -> None:
        self._backend = backend
        self._closed = False
        self.views = views
        self.prefix = prefix
        self.clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._known: OrderedDict[str, StoredSession] = OrderedDict()
        self._leases: dict[str, Lease] = {}
        self._briefs: dict[str, tuple[float, str | None, SessionBrief]] = {}

    def close(self) -> None:
        """Give back connections and threads. Harmless when called twice; everything else afterwards is a StorageError."""
        self._closed = True
        self._backend.close()
        if self.views is not None:
            self.views.backend.close()

    @property
    def backend(self) -> Backend:
        """Where everything is kept. StorageError if the store was closed."""
        if self._closed:
            raise StorageError.closed("the store of sessions")
        return self._backend

    # One session

    def create(self, session: Session, *, files: Mapping[str, str] | None = None) -> Session:
        """Keep a new session, durably, and return it as revision 1. InputError if the id exists."""
        if self.exists(session.workflow_id):
            raise _exists_already(session.workflow_id)
        now = self.now()
        first = changed(session, revision=1, created_at=session.created_at or now, updated_at=now, mark=None)
        known = self._stored(session.workflow_id)
        later = self.clock.monotonic() if session.workflow_id in self._leases else None
        with known.guard:
            known.refresh()
            try:
                return known.append(first, files=files, views_later=later)
            except ReadAgain:
                raise _exists_already(session.workflow_id) from None

    def load(self, workflow_id: str) -> Session:
        """The session as it is now, also when a person edited its file. A file that is missing, torn or older is written again.

        Damaged, with line and column or the place in the document, or OutputInvalid, when an edit does not fit: nothing is overwritten.
        """
        with self.current(workflow_id) as known:
            edit = known.compare(mend=True)
            return edit.session if edit is not None else known.session

    def commit(
        self,
        session: Session,
        *,
        expect: int,
        point: str | None = None,
        files: Mapping[str, str] | None = None,
        views_later: bool = False,
    ) -> Session:
        """Write durably, then return it with revision `expect + 1` and the time: what was returned survives a power cut.

        RevisionConflict if somebody else wrote first, or edited the file that `session` was not read from, OutputInvalid as `check_edit`;
        nothing is written then. Never leaves a mix of old and new: a reader at any moment finds one of the two. With `point` the state is
        a recovery point of that name as well; `files` are the Markdown of stages by their names (see `state.stage_files`). One record and
        one sync for all of it (W5).

        With `views_later` the files that people read may be left as they are for a moment, if they were written less than VIEW_DELAY
        seconds ago: who says so holds the session and calls `write_views` when nothing more is to be committed soon.
        """
        known = self._stored(session.workflow_id)
        if point is not None:
            check_checkpoint_name(point)
        if session.workflow_id in self._leases:
            self._leases[session.workflow_id].check()
        later = self.clock.monotonic() if views_later and session.workflow_id in self._leases else None
        with known.guard:
            looked = not (known.is_current and known.folded.revision == expect and session.mark is None)
            for _ in range(_TRIES):
                edit = None
                if looked:
                    self._refreshed(known)
                    edit = self._expected(known, session, expect)
                if edit is not None:
                    self.check_edit(session)
                new = evolved(session, revision=expect + 1, updated_at=self.now())
                with suppress(ReadAgain):
                    return known.append(new, edit=edit, point=point, files=files, views_later=later)
                looked = True  # the writing itself notices that somebody else wrote or edited; only then is it looked at who
        raise self._never_at_rest(session.workflow_id, expect)

    def check_edit(self, session: Session) -> None:
        """OutputInvalid, with the line, if this came from a person's edit that lists a stage as completed which has no output."""
        if session.mark is not None:
            stored = self.views.get(session.workflow_id) if self.views is not None else None
            check_completed(session, stored.data if stored is not None else None)

    def list(self) -> builtins.list[SessionBrief]:
        """All sessions, newest first. A damaged one is listed with its problem. Who asks again reads only those that were written since."""
        names = dict(self._names())
        with self._guard:
            self._briefs = {name: kept for name, kept in self._briefs.items() if name in names}
        found = [brief for name, written in names.items() if (brief := self._listed(name, written)) is not None]
        return sorted(found, key=lambda brief: (brief.updated_at, brief.workflow_id), reverse=True)

    def newest(self) -> Iterator[SessionBrief]:
        """As `list`, one by one: whoever wants only the first few reads only those, however many there are.

        A session was not changed later than its log was last written; so the order holds where the clock of its writers did.
        """
        waiting: builtins.list[tuple[str, str, SessionBrief]] = []
        for workflow_id, written in self._names():
            latest = stamp(datetime.fromtimestamp(written + _SLACK, UTC))
            while waiting and waiting[-1][0] >= latest:
                yield waiting.pop()[2]
            brief = self._listed(workflow_id, written)
            if brief is not None:
                bisect.insort(waiting, (brief.updated_at, workflow_id, brief), key=lambda one: one[:2])
        yield from (one[2] for one in reversed(waiting))

    def new_session_id(self, workflow_id: str, day: date) -> str:
        """An id `{workflow_id}-{date}-{nnn}` that nobody has and nobody else is given, also not in another process (W2)."""
        stem = f"{id_stem(workflow_id)}-{day.isoformat()}-"
        taken = {name.removeprefix(stem) for name in self.ids() if name.startswith(stem)}
        number = max((int(rest) for rest in taken if rest.isdecimal() and len(rest) < 9), default=0)
        while True:
            number += 1
            found = f"{stem}{number:03d}"
            with suppress(RevisionConflict):
                self.backend.write(Put(self._key(found, "claim"), self.now().encode(), expect=ABSENT))
                return found

    def document(self, workflow_id: str) -> bytes:
        """The bytes of the readable file, whatever they are: for a person who wants to mend them."""
        with self.current(workflow_id) as known:
            stored = self.views.get(workflow_id) if self.views is not None else None
            return stored.data if stored is not None else render_session(known.session)

    def put_document(self, session: Session, *, instead_of: bytes) -> Session:
        """Put a session in place of what could not be read. RevisionConflict if the readable file no longer holds `instead_of`."""
        place = self.where(session.workflow_id)
        with self.current(session.workflow_id) as known:
            with suppress(HoldfastError):  # that it does not fit is why we are here
                known.compare()
            stored = self.views.get(session.workflow_id) if self.views is not None else None
            if stored is not None and stored.data != instead_of:
                raise RevisionConflict(f"{place} was changed meanwhile.", path=place)
            revision = max(known.folded.revision, session.revision) + 1
            try:
                return known.append(changed(session, revision=revision, updated_at=self.now()), why="edited by hand")
            except ReadAgain:
                raise RevisionConflict(f"{place} was changed meanwhile.", path=place) from None

    # Where it is

    def where(self, workflow_id: str) -> str:
        """What to call a session's place in a message."""
        return self.views.where(workflow_id) if self.views is not None else self.backend.where(self._key(workflow_id, "log.jsonl"))

    def file(self, workflow_id: str) -> Path | None:
        """The file in which a person can read a session; None when it is in a database, or in memory, alone."""
        found = self.where(workflow_id) if self.views is not None else ""
        return Path(found) if found.startswith("/") else None

    def folder(self, workflow_id: str) -> Path | None:
        """The folder for files that belong to a session; None where there is none."""
        found = self.views.backend.where(self._key(workflow_id, "files")) if self.views is not None else ""
        return Path(found) if found.startswith("/") else None

    # Who runs it

    @contextmanager
    def lease(self, workflow_id: str, *, owner: str | None = None) -> Iterator[Lease]:
        """The right to run this session, inside the `with`. Locked, naming the owner, while a live one has it.

        An owner that died is taken over at once; one that lives never is. Not reentrant. `owner` is a name to show; by default that of
        this process. The session need not exist yet.
        """
        key = f"{self.prefix}/{check_session_id(workflow_id)}"
        with ExitStack() as stack:
            try:
                lease = stack.enter_context(self.backend.lease(key, holder=owner))
            except Locked as error:
                raise locked_by(workflow_id, error.path, error.owner) from error
            self._leases[workflow_id] = lease
            stack.callback(self._leases.pop, workflow_id, None)
            try:
                yield lease
            finally:
                with suppress(StorageError):  # of a run that broke off; whoever loads the session next writes them
                    self.write_views(workflow_id)

    def is_lost(self, workflow_id: str) -> bool:
        """Whether somebody else is known to hold it by now although it was held here. Asks nobody."""
        lease = self._leases.get(workflow_id)
        return lease is not None and lease.is_lost()

    def write_views(self, workflow_id: str) -> None:
        """Write the files that `commit` left for later. Costs nothing when there are none."""
        known = self._known.get(workflow_id)
        if known is not None:
            with known.guard:
                known.write_views(self.clock.monotonic())

    def owner(self, workflow_id: str) -> Holder | None:
        """Who holds it now. None if nobody does, or if the owner died."""
        return self.backend.holder(f"{self.prefix}/{check_session_id(workflow_id)}")

    def request_cancel(self, workflow_id: str) -> None:
        """Ask whoever runs it to stop. Stays until `clear_cancel`."""
        self._need(workflow_id)
        self.backend.write(Put(self._key(workflow_id, "cancel"), f"{self.now()}\n".encode()))

    def cancel_requested(self, workflow_id: str) -> bool:
        """Whether somebody asked. Cheap enough to be asked several times a second."""
        return self.backend.mark(self._key(workflow_id, "cancel")) is not None

    def clear_cancel(self, workflow_id: str) -> None:
        """Forget the request. Harmless when there is none."""
        if self.cancel_requested(workflow_id):
            self.backend.write(Delete(self._key(workflow_id, "cancel")))

    # Recovery points

    def checkpoint(self, session: Session, name: str) -> None:
        """Keep this state as a recovery point of that name, durably. One of the same name is replaced.

        Names have 1 to 128 ASCII letters, digits, dots, hyphens and underscores.
        """
        check_checkpoint_name(name)
        for _ in range(_TRIES):
            with self.current(session.workflow_id) as known, suppress(ReadAgain):
                state = session_json(changed(session, mark=None))
                known.write([point_record(known.folded.document, state, name, self.now())])
                return
        raise self._never_at_rest(session.workflow_id)

    def damage(self, workflow_id: str) -> builtins.list[str]:
        """What of a session's log cannot be read, in words: recovery points, and what came after them, may be lost by it."""
        with self.current(workflow_id) as known:
            return [*known.damage()]

    def checkpoints(self, workflow_id: str) -> builtins.list[CheckpointBrief]:
        """The recovery points, oldest first."""
        with self.current(workflow_id) as known:
            return [checkpoint_brief(name, at, document) for name, (at, document) in points_of(known.records()).items()]

    def load_checkpoint(self, workflow_id: str, name: str) -> Session:
        """The session as it was then. InputError, naming the ones there are, if there is none of this name."""
        check_checkpoint_name(name)
        with self.current(workflow_id) as known:
            found = points_of(known.records())
            damage = known.damage() if name not in found else ()
        if damage:
            raise Damaged(
                f"there is no recovery point {name!r} that can be read: {'; '.join(damage)}",
                path=self.backend.where(self._key(workflow_id, "log.jsonl")),
                hint=near(name, reversed(found)),
            )
        if name not in found:
            raise NotThere(f"there is no recovery point {name!r}.", hint=near(name, reversed(found)))
        return parse_session(found[name][1], f"the recovery point {name!r} of {workflow_id!r}")

    def prune_checkpoints(self, workflow_id: str, *, keep: int) -> int:
        """Remove all recovery points but the newest `keep`, and say how many went. What only they needed leaves the log."""
        for _ in range(_TRIES):
            with self.current(workflow_id) as known, suppress(ReadAgain):
                records = known.records()
                points = [*points_of(records).items()]
                kept = points[max(len(points) - max(keep, 0), 0) :]
                if len(kept) < len(points):
                    self.keep_view(known)
                    known.rewrite(compacted(dict(kept), known.folded.document, texts_of(records)))
                return len(points) - len(kept)
        raise self._never_at_rest(workflow_id)

    def keep_view(self, known: StoredSession) -> None:
        """Sync the file before the log loses the states that older renderings could be told by; an edit stays as it is."""
        with suppress(HoldfastError):
            if known.compare() is None:
                known.put_view(durable=True)

    def restore(self, workflow_id: str, name: str) -> Session:
        """Make the recovery point the current state, as a new revision, and return it.

        What was current is kept first as the recovery point `before-restore-NNN`; a file that cannot be read is set aside as it is. Stage
        outputs that came later are gone from the state, not from the recovery points. A halt or pause of then holds again.
        """
        then = restored(self.load_checkpoint(workflow_id, name))
        for _ in range(_TRIES):
            with self.current(workflow_id) as known, suppress(ReadAgain):
                before = self._before_restore(known)
                revision = max(known.folded.revision, then.revision) + 1
                return known.append(changed(then, revision=revision, updated_at=self.now()), before=before, why=f"restored {name}")
        raise self._never_at_rest(workflow_id)

    def _before_restore(self, known: StoredSession) -> builtins.list[Document]:
        """The record that keeps what is current as a recovery point. A file that does not fit is set aside."""
        try:
            edit = known.compare()
            if edit is not None:
                self.check_edit(edit.session)
        except HoldfastError:
            if self.views is not None:
                self.views.backend.set_aside(self.views.key(known.id))
            known.compare()
            edit = None
        if known.folded.problem is not None:
            return []
        state = session_json(edit.session) if edit is not None else known.folded.document
        return [point_record(known.folded.document, state, spare_name(known.folded.points), self.now())]

    def fork(self, workflow_id: str, new_id: str, *, checkpoint: str | None = None) -> Session:
        """A new session from the current state or a recovery point of another, with `lineage` {from, checkpoint, revision, at}.

        It has its own recovery points, and every raw reference of the old one works in it. InputError if `new_id` exists.
        """
        check_session_id(new_id)
        origin = self.load(workflow_id) if checkpoint is None else self.load_checkpoint(workflow_id, checkpoint)
        if self.exists(new_id):
            raise _exists_already(new_id)
        now = self.now()
        self.raw(workflow_id).copy_to(self.raw(new_id), now)  # before the session itself: who sees it can read what it refers to
        with self.current(workflow_id) as known:
            texts = (self.views.texts(workflow_id) if self.views is not None else {}) | texts_of(known.records())
        return self.create(forked(origin, new_id, checkpoint, now), files=texts)

    def remove(self, workflow_id: str) -> None:
        """Remove the session with its recovery points, raw data and files. Locked while somebody runs it."""
        self._need(workflow_id)
        for _ in self.remove_all([workflow_id]):
            holder = self.owner(workflow_id)
            raise locked_by(workflow_id, self.where(workflow_id), str(holder) if holder is not None else None)

    def remove_all(self, workflow_ids: Iterable[str], *, told: Callable[[int], None] = lambda _: None) -> Iterator[str]:
        """Remove these sessions, many at once, and give those that stay because somebody runs them. `told` hears how many are done.

        What people read goes first and for good: should the power go before the rest, it would pass for a session of its own.
        """
        rest, done = iter(workflow_ids), 0
        while part := list(islice(rest, _AT_ONCE)):
            ids = {f"{self.prefix}/{check_session_id(one)}": one for one in part}
            with self.backend.idle(list(ids)) as free:
                if self.views is not None:
                    self.views.backend.remove(documents=[self.views.key(ids[key]) for key in free])
                for place in self.backends():
                    place.remove(*(f"{key}/" for key in free))
            with self._guard:
                for key in free:
                    self._known.pop(ids[key], None)
                    self._briefs.pop(ids[key], None)
            done += len(part)
            told(done)
            yield from (one for key, one in ids.items() if key not in free)

    def remove_rest(self, workflow_id: str) -> None:
        """Remove what belongs to a session that is no more."""
        for place in self.backends():
            place.remove(f"{self.prefix}/{check_session_id(workflow_id)}/")

    # Raw data

    def raw_put(self, workflow_id: str, data: bytes, *, media_type: str = "text/plain", source: str | None = None) -> str:
        """Keep the bytes, durably, and give their reference `raw:sha256-<hex>`. The same bytes are kept once (W10)."""
        return self.raw(workflow_id).put(data, media_type, source, self.now())

    def raw_get(self, workflow_id: str, ref: str) -> RawData:
        """The bytes. A prefix is enough if only one reference begins with it. InputError if there is none, Damaged if they changed."""
        self._need(workflow_id)
        return self.raw(workflow_id).get(ref)

    def raw(self, workflow_id: str) -> RawStore:
        """All raw data of a session."""
        return RawStore(self.backend, self._key(workflow_id, "raw"))

    def forget_text(self, text: str) -> builtins.list[Touched]:
        """Take a text out of every session, recovery point, raw data and file, and say what was touched (M14).

        It is found in any case, style of quotes and spacing. Of a text the sentences that hold it go; findings and raw data go as a whole.
        A session that is being run, or is damaged, is not changed, and reported so.
        """
        from holdfast.session.editor import forget_text

        return forget_text(self, text)

    # What its parts share

    @contextmanager
    def current(self, workflow_id: str) -> Iterator[StoredSession]:
        """What is stored of a session, read up to now, for this thread alone. InputError if there is no such session."""
        known = self._stored(workflow_id)
        with known.guard:
            known.write_views()
            self._refreshed(known)
            yield known

    def _refreshed(self, known: StoredSession) -> None:
        if not known.refresh():
            raise no_session(known.id, [id for id in self.ids() if self.exists(id)])

    def _stored(self, workflow_id: str) -> StoredSession:
        check_session_id(workflow_id)
        backend = self.backend
        with self._guard:
            known = self._known.pop(workflow_id, None) or StoredSession(workflow_id, backend, self.views, self.prefix)
            self._known[workflow_id] = known  # the newest is the last
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return known

    def _expected(self, known: StoredSession, session: Session, expect: int) -> Edit | None:
        """RevisionConflict unless what is stored is what `session` was made from. The edit that it was made from, if it was."""
        place = self.where(known.id)
        found = known.folded.revision
        if found != expect:
            raise RevisionConflict(
                f"{place} has revision {found}, and what is to be written comes from {expect}: somebody else wrote first.",
                path=place,
                expected=expect,
                found=found,
            )
        edit = known.compare()
        there = edit.session.mark if edit is not None else known.session.mark
        if there != session.mark:
            raise RevisionConflict(f"{place} was edited since revision {expect} was read.", path=place, expected=expect, found=found)
        return edit

    def _names(self) -> Iterator[tuple[str, float]]:
        """The sessions that are there, and when each was last written, the newest first."""
        names = self.backend.recent(self.prefix, "/log.jsonl", ".json")
        return ((name, written) for name, written in names if is_session_id(name))

    def _listed(self, workflow_id: str, written: float) -> SessionBrief | None:
        """The line of a list. One of a session that was not written since is remembered; a moment must have passed, because files that
        are written twice within a tick of the clock look as if they were written once."""
        elsewhere = self.views is not None and self.views.backend is not self.backend
        file = self.views.backend.glance(self.views.key(workflow_id)) if self.views is not None and elsewhere else None
        kept = self._briefs.get(workflow_id)
        if kept is not None and kept[:2] == (written, file):
            return kept[2]
        brief = self._brief(workflow_id)
        if brief is not None and brief.problem is None and time.time() - written > _SLACK:
            with self._guard:
                self._briefs[workflow_id] = written, file, brief
        return brief

    def _brief(self, workflow_id: str) -> SessionBrief | None:
        known = self._stored(workflow_id)
        with known.guard:
            kept = known.kept_brief()
            if kept is not None:
                return kept
            try:
                if not known.refresh():
                    return None  # an id that was given out, or removed just now
                edit = known.compare()
                brief = clean_brief(edit.session if edit is not None else known.session)
            except HoldfastError as error:
                task = known.folded.document.get("task", "")
                return SessionBrief(workflow_id, task, updated_at=known.folded.document.get("updated_at", ""), problem=error.message)
            if brief.status != "running" and edit is None and not known.is_old:
                with suppress(StorageError):  # a folder that may not be written: the list is right all the same
                    known.put_brief(known.session)
            return brief

    def remnants(self) -> builtins.list[str]:
        """Names without a session: given out and not used yet, or what is left of sessions whose removing was killed half-way."""
        return sorted({*self.ids()}.difference(name for name, _ in self._names()))

    def ids(self) -> builtins.list[str]:
        """The ids of all sessions, and those that were given out, sorted."""
        names = {name.removesuffix(".json") for name in self.backend.children(self.prefix)}
        return sorted(name for name in names if is_session_id(name))

    def backends(self) -> builtins.list[Backend]:
        """The backend of the state, and that of the views where it is another."""
        views = self.views
        return [self.backend] if views is None or views.backend is self.backend else [self.backend, views.backend]

    def exists(self, workflow_id: str) -> bool:
        """Whether there is such a session; also one that cannot be read."""
        known = self._stored(workflow_id)
        with known.guard:
            try:
                return known.refresh()
            except StorageError:
                return True

    def _need(self, workflow_id: str) -> None:
        if not self.exists(workflow_id):
            raise no_session(workflow_id, [id for id in self.ids() if self.exists(id)])

    def _never_at_rest(self, workflow_id: str, expect: int | None = None) -> RevisionConflict:
        place = self.where(workflow_id)
        return RevisionConflict(f"{place} is being written all the time.", path=place, expected=expect)

    def _key(self, workflow_id: str, name: str) -> str:
        return f"{self.prefix}/{check_session_id(workflow_id)}/{name}"

    def now(self) -> str:
        """The time, as it is kept."""
        return stamp(self.clock.now())


def locked_by(workflow_id: str, path: str | None, owner: object) -> Locked:
    """That somebody runs it, and who."""
    return Locked(
        f"session {workflow_id!r} is being run by {owner or 'somebody else'}.",
        path=path,
        owner=str(owner) if owner is not None else None,
        hint=f"Wait until it is done, or stop it with `holdfast cancel {workflow_id}`.",
    )


def _exists_already(workflow_id: str) -> InputError:
    hint = f"Go on with `holdfast resume {workflow_id}`, or choose another id."
    return InTheWay(f"the session {workflow_id!r} exists already.", hint=hint)
