"""A session store in memory, for tests: the same promises as `FileSessionStore` but for surviving anything."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import date

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.errors import Damaged, InputError, RevisionConflict
from holdfast.redaction import redact_text
from holdfast.session.briefs import brief_of_file
from holdfast.session.forgetting import Scrub
from holdfast.session.holding import locked_by, this_owner
from holdfast.session.names import check_checkpoint_name, check_session_id, id_stem, near, no_session, stage_folder
from holdfast.session.raw import find_ref, ref_of
from holdfast.session.reading import decode_session
from holdfast.session.state import Session
from holdfast.session.store import CheckpointBrief, Held, Owner, RawData, SessionBrief, Touched
from holdfast.session.succession import forked, restored, spare_name
from holdfast.session.writing import SessionWriter, mark_of


@dataclass
class _Kept:
    """Everything of one session. Documents are kept as the bytes that a file would hold, so that nobody shares objects with the store."""

    document: bytes | None = None
    aside: list[bytes] = field(default_factory=list)
    points: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    raw: dict[str, RawData] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    cancel: bool = False


class MemorySessionStore:
    """Keeps sessions in this process and forgets them at its end. Safe for many threads.

    `edit` changes a stored document as a person with an editor would; `files` shows the Markdown of the stages.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._all: dict[str, _Kept] = {}

    def edit(self, workflow_id: str, how: Callable[[bytes], bytes]) -> None:
        """Put other bytes in the place of the document, past every check."""
        with self._lock:
            kept = self._need(workflow_id)
            kept.document = how(kept.document or b"")

    def files(self, workflow_id: str) -> dict[str, str]:
        """The stage files by their path, such as `01-plan/context.md`."""
        return dict(self._need(workflow_id).files)

    # One session

    def create(self, session: Session) -> Session:
        with self._lock:
            kept = self._kept(session.workflow_id)
            if kept.document is not None:
                raise InputError(f"the session {session.workflow_id!r} exists already.", hint="Choose another id.")
            now = stamp(self.clock.now())
            return self._put(changed(session, revision=1, created_at=session.created_at or now, updated_at=now))

    def load(self, workflow_id: str) -> Session:
        with self._lock:
            data = self._need(workflow_id).document or b""
        session = decode_session(data, self._place(workflow_id))
        if session.workflow_id != workflow_id:
            raise Damaged(f"{self._place(workflow_id)} says that it is {session.workflow_id!r}.")
        return changed(session, mark=mark_of(session.revision, data))

    def commit(self, session: Session, *, expect: int) -> Session:
        with self._lock:
            current = self.load(session.workflow_id)
            if current.revision != expect:
                raise RevisionConflict(
                    f"{self._place(session.workflow_id)} has revision {current.revision}, and what is to be written comes from {expect}.",
                    expected=expect,
                    found=current.revision,
                )
            if session.mark is not None and session.mark.startswith(f"{expect}:") and session.mark != current.mark:
                raise RevisionConflict(f"{self._place(session.workflow_id)} was edited since.", expected=expect, found=current.revision)
            return self._put(changed(session, revision=expect + 1, updated_at=stamp(self.clock.now())))

    def list(self) -> builtins.list[SessionBrief]:
        with self._lock:
            kept = {id: one.document for id, one in self._all.items() if one.document is not None}
        found = [brief_of_file(id, document, self._place(id)) for id, document in kept.items()]
        return sorted(found, key=lambda brief: (brief.updated_at, brief.workflow_id), reverse=True)

    def new_session_id(self, workflow_id: str, day: date) -> str:
        stem = f"{id_stem(workflow_id)}-{day.isoformat()}-"
        with self._lock:
            taken = [name.removeprefix(stem) for name in self._all if name.startswith(stem)]
            number = max((int(rest) for rest in taken if rest.isdecimal() and len(rest) < 9), default=0) + 1
            self._kept(f"{stem}{number:03d}")
            return f"{stem}{number:03d}"

    # Who runs it

    @contextmanager
    def hold(self, workflow_id: str, *, owner: str | None = None) -> Iterator[Held]:
        with self._lock:
            kept = self._kept(workflow_id)
            if kept.owner is not None:
                raise locked_by(workflow_id, None, kept.owner)
            kept.owner = this_owner(owner, self.clock)
        try:
            yield Held(workflow_id, kept.owner)
        finally:
            kept.owner = None

    def owner(self, workflow_id: str) -> Owner | None:
        with self._lock:
            return self._kept(workflow_id).owner

    def request_cancel(self, workflow_id: str) -> None:
        with self._lock:
            self._need(workflow_id).cancel = True

    def cancel_requested(self, workflow_id: str) -> bool:
        with self._lock:
            return self._kept(workflow_id).cancel

    def clear_cancel(self, workflow_id: str) -> None:
        with self._lock:
            self._kept(workflow_id).cancel = False

    # Recovery points

    def checkpoint(self, session: Session, name: str) -> None:
        with self._lock:
            points = self._need(session.workflow_id).points
            points.pop(check_checkpoint_name(name), None)
            points[name] = (stamp(self.clock.now()), SessionWriter().encode(session))

    def checkpoints(self, workflow_id: str) -> builtins.list[CheckpointBrief]:
        with self._lock:
            points = [(name, at, decode_session(data, name)) for name, (at, data) in self._need(workflow_id).points.items()]
        return [CheckpointBrief(name, at, s.revision, s.status, s.current_stage, len(s.completed_stages)) for name, at, s in points]

    def load_checkpoint(self, workflow_id: str, name: str) -> Session:
        with self._lock:
            points = self._need(workflow_id).points
            if check_checkpoint_name(name) not in points:
                raise InputError(f"there is no recovery point {name!r}.", hint=near(name, reversed(points)))
            return decode_session(points[name][1], name)

    def prune_checkpoints(self, workflow_id: str, *, keep: int) -> int:
        with self._lock:
            points = self._need(workflow_id).points
            gone = builtins.list(points)[: max(len(points) - max(keep, 0), 0)]
            for name in gone:
                del points[name]
            return len(gone)

    def restore(self, workflow_id: str, name: str) -> Session:
        with self._lock:
            then = restored(self.load_checkpoint(workflow_id, name))
            kept = self._need(workflow_id)
            try:
                current = self.load(workflow_id)
            except Damaged:
                kept.aside.append(kept.document or b"")
                return self._put(changed(then, revision=then.revision + 1, updated_at=stamp(self.clock.now())))
            self.checkpoint(current, spare_name(kept.points))
            return self.commit(changed(then, mark=current.mark), expect=current.revision)

    def fork(self, workflow_id: str, new_id: str, *, checkpoint: str | None = None) -> Session:
        with self._lock:
            origin = self.load(workflow_id) if checkpoint is None else self.load_checkpoint(workflow_id, checkpoint)
            made = self.create(forked(origin, new_id, checkpoint, stamp(self.clock.now())))
            old, new = self._need(workflow_id), self._need(new_id)
            new.raw.update(old.raw)
            new.files.update(old.files)
            return made

    def close(self) -> None:
        """Nothing to give back."""

    def remove(self, workflow_id: str) -> None:
        self._need(workflow_id)
        with self.hold(workflow_id, owner="remove"), self._lock:
            del self._all[workflow_id]

    # Raw data and files

    def raw_put(self, workflow_id: str, data: bytes, *, media_type: str = "text/plain", source: str | None = None) -> str:
        ref = ref_of(data)
        with self._lock:
            shown = redact_text(source) if source is not None else None
            self._kept(workflow_id).raw[ref] = RawData(ref, bytes(data), media_type, shown, stamp(self.clock.now()))
        return ref

    def raw_get(self, workflow_id: str, ref: str) -> RawData:
        with self._lock:
            raw = self._need(workflow_id).raw
            return raw[find_ref(ref, lambda: sorted(raw))]

    def raw_list(self, workflow_id: str) -> builtins.list[str]:
        with self._lock:
            return sorted(self._need(workflow_id).raw)

    def write_stage_files(
        self, workflow_id: str, number: int, stage: str, *, context: str | None = None, output: str | None = None
    ) -> None:
        with self._lock:
            for name, text in (("context", context), ("output", output)):
                if text is not None:
                    self._kept(workflow_id).files[f"{stage_folder(number, stage)}/{name}.md"] = text

    def forget_text(self, text: str) -> builtins.list[Touched]:
        Scrub(text)  # refuses an empty one before anything is looked at
        with self._lock:
            return [one for workflow_id in sorted(self._all) for one in self._forget(workflow_id, text)]

    def _forget(self, workflow_id: str, text: str) -> Iterator[Touched]:
        kept, place = self._all[workflow_id], self._place(workflow_id)
        seen = [kept.document or b"", *(data for _, data in kept.points.values()), *(one.data for one in kept.raw.values())]
        seen += [*kept.aside, *(words.encode() for words in kept.files.values())]
        if not any(Scrub(text).in_bytes(data) for data in seen):
            return
        if kept.owner is not None:
            yield Touched(workflow_id, "session", place, 0, done=False, why=f"it is being run by {kept.owner}")
            return
        yield from self._forget_state(workflow_id, text)
        for name, (at, data) in kept.points.items():
            scrub = Scrub(text)
            after = SessionWriter().encode(scrub.session(decode_session(data, name)))
            if scrub.count:
                kept.points[name] = (at, after)
                yield Touched(workflow_id, "checkpoint", name, scrub.count)
        for ref in [ref for ref, one in kept.raw.items() if Scrub(text).in_bytes(one.data) or Scrub(text).in_text(one.source or "")]:
            del kept.raw[ref]
            yield Touched(workflow_id, "raw data", ref)
        for path, words in kept.files.items():
            scrub = Scrub(text)
            kept.files[path] = scrub.text(words)
            if scrub.count:
                yield Touched(workflow_id, "stage file", path, scrub.count)
        gone = [data for data in kept.aside if Scrub(text).in_bytes(data)]
        kept.aside = [data for data in kept.aside if data not in gone]
        yield from (Touched(workflow_id, "leftover", place) for _ in gone)

    def _forget_state(self, workflow_id: str, text: str) -> Iterator[Touched]:
        kept, place, scrub = self._all[workflow_id], self._place(workflow_id), Scrub(text)
        if kept.document is None:
            return
        try:
            session = self.load(workflow_id)
        except Damaged as error:
            if scrub.in_bytes(kept.document):
                yield Touched(workflow_id, "session", place, 0, done=False, why=f"it cannot be read: {error.message}")
            return
        after = scrub.session(session)
        if scrub.count:
            self.commit(after, expect=session.revision)
            yield Touched(workflow_id, "session", place, scrub.count)

    # Inside

    def _place(self, workflow_id: str) -> str:
        return f"session {workflow_id!r} in memory"

    def _kept(self, workflow_id: str) -> _Kept:
        return self._all.setdefault(check_session_id(workflow_id), _Kept())

    def _need(self, workflow_id: str) -> _Kept:
        kept = self._all.get(check_session_id(workflow_id))
        if kept is None or kept.document is None:
            raise no_session(workflow_id, sorted(id for id, one in self._all.items() if one.document is not None))
        return kept

    def _put(self, session: Session) -> Session:
        data = SessionWriter().encode(session)
        self._kept(session.workflow_id).document = data
        return changed(session, mark=mark_of(session.revision, data))
