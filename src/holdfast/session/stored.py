"""One session as it is stored: its log and its file, and what is known of both, so that a commit reads and writes only what is new.

The files that people read are views of the log: with files as storage they lie beside it, or where `memory.session_memory.path` says; with
PostgreSQL they are written if that says so. They are made again when they are missing.

`RawStore` keeps the raw data of a session: bytes by their hash, and a log that says what they are and where they came from (W10).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import replace as changed
from typing import Any

from holdfast.durable import strict_json
from holdfast.errors import Damaged, HoldfastError, InputError, NotThere, RevisionConflict, StorageError
from holdfast.redaction import redact_text
from holdfast.session.document import SessionRenderer, go_back, parse_session, render_session, session_json
from holdfast.session.edits import Edit, compare, is_torn
from holdfast.session.log import Document, Folded, Record, TextPacker, commit_record, flat, fold, old_session, states, texts_of, together
from holdfast.session.state import SCHEMA_VERSION, Session, SessionBrief, brief_of, check_session_id, evolved, shown_text
from holdfast.storage.backend import ABSENT, Append, Backend, Delete, Mark, Put, Stored
from holdfast.validation import counted

VIEW_DELAY = 0.25
"""Seconds that the files of a session which is being run may be behind its log: a person does not notice, and a stage may take less.
As long again for every VIEW_SIZE bytes that are to be written each time."""
VIEW_SIZE = 100_000


@dataclass(frozen=True, slots=True)
class Views:
    """The documents `PREFIX/ID.json` and `PREFIX/ID/stages/NN-name/*.md` of a backend, which is one of files."""

    backend: Backend
    prefix: str

    def key(self, workflow_id: str) -> str:
        """The key of the JSON file."""
        return f"{self.prefix}/{check_session_id(workflow_id)}.json"

    def where(self, workflow_id: str) -> str:
        """The JSON file, for messages."""
        return self.backend.where(self.key(workflow_id))

    def get(self, workflow_id: str) -> Stored | None:
        """The JSON file."""
        return self.backend.get(self.key(workflow_id))

    def mark(self, workflow_id: str) -> Mark | None:
        """The mark of the JSON file."""
        return self.backend.mark(self.key(workflow_id))

    def markdown(self, workflow_id: str, texts: Mapping[str, str]) -> list[Put]:
        """The writing of stages' texts, by their names."""
        start = self._stages(workflow_id)
        return [Put(f"{start}{name}", shown_text(text).encode(), durable=False, marked=False) for name, text in texts.items()]

    def missing(self, workflow_id: str, names: set[str]) -> set[str]:
        """Which of the stages' texts are not there, or have nothing in them."""
        if not names:
            return names
        start = self._stages(workflow_id)
        return names - {item.key.removeprefix(start) for item in self.backend.list(start) if item.size}

    def torn(self, workflow_id: str, texts: Mapping[str, str]) -> set[str]:
        """Which of the stages' texts a power cut left half of. What a person wrote there since stays."""
        start, found = self._stages(workflow_id), set[str]()
        for name, text in texts.items():
            stored = self.backend.get(start + name) if self.backend.predates_start(start + name) else None
            whole = shown_text(text).encode()
            if stored is not None and stored.data != whole and is_torn(stored.data, whole):
                found.add(name)
        return found

    def predate_start(self, workflow_id: str, names: set[str]) -> bool:
        """Whether any of the stages' texts was last written before the machine started, so that a power cut may have torn it."""
        return any(self.backend.predates_start(f"{self._stages(workflow_id)}{name}") for name in names)

    def texts(self, workflow_id: str) -> dict[str, str]:
        """The stages' texts that are there."""
        start = self._stages(workflow_id)
        found = {item.key: self.backend.get(item.key) for item in self.backend.list(start) if item.kind == "document"}
        return {key.removeprefix(start): stored.data.decode("utf-8", "replace") for key, stored in found.items() if stored is not None}

    def _stages(self, workflow_id: str) -> str:
        return f"{self.prefix}/{check_session_id(workflow_id)}/stages/"


class ReadAgain(Exception):
    """Somebody else wrote between the reading and the writing, and nothing was written."""


class StoredSession:
    """The log `PREFIX/ID/log.jsonl` of a backend and the views of it. For one thread at a time, which holds `guard`."""

    def __init__(self, workflow_id: str, backend: Backend, views: Views | None, prefix: str) -> None:
        self.id = workflow_id
        self.guard = threading.RLock()
        self.folded = Folded()
        self._backend = backend
        self._views = views
        self._key = f"{prefix}/{workflow_id}"
        self._log = f"{self._key}/log.jsonl"
        self._file = views.key(workflow_id) if views is not None else ""
        self._mark: Mark | None = None
        self._view: Mark | None = None
        """The mark of the file while it is known to hold nothing but a state of the log."""
        self._look: str | None = None
        """How the file looked when it last had that mark."""
        self._found: Mark | None = None
        """The mark of the file when it was last looked at."""
        self._old: list[Document] = []
        """What an older version kept, as records: written before the first one of ours (O7)."""
        self._old_mark: Mark | None = None
        self._session: Session | None = None
        self._renderer = SessionRenderer()
        self._texts = TextPacker()
        self._rendered: bytes | None = None
        self._late: dict[str, str] | None = None
        """Markdown that is still to be written, by name, together with the JSON file; None when the files are up to date."""
        self._delay = VIEW_DELAY
        self._viewed = -VIEW_DELAY
        """When the files were last written, by the monotonic clock."""
        self._told: str | None = None
        self._texts_checked = False
        """Whether the Markdown was compared with the log since this process began."""

    @property
    def session(self) -> Session:
        """The state in the log. Damaged if the log is."""
        if self.folded.problem is not None:
            where = self._backend.where(self._log)
            raise Damaged(
                f"{where} is damaged: {self.folded.problem}.",
                path=where,
                hint=f"`holdfast session edit {self.id}` takes the readable file in its place; {go_back(self.id)}",
            )
        if self._session is None:
            self._session = parse_session(self.folded.document, self._backend.where(self._log))
        return self._session

    @property
    def is_old(self) -> bool:
        """Whether an older version wrote it, and nobody since."""
        return bool(self._old)

    @property
    def is_current(self) -> bool:
        """Whether log and file were known when they were last written or looked at. That they still are is seen by their marks."""
        return self._mark is not None and not self._old and (self._views is None or self._view is not None)

    # Reading

    def refresh(self) -> bool:
        """Read what came to the log since the last time; whether there is such a session at all."""
        mark = self._backend.mark(self._log)
        if mark is None:
            return self._read_old()
        if mark == self._mark:
            return True
        reading = self._backend.read(self._log, after=self._mark if self._mark not in (None, ABSENT) else None)
        if reading.whole:
            self.folded = fold(reading.records)
        else:
            for record in flat(reading.records):
                self.folded.add(record)
        self._mark, self._session, self._rendered, self._old = reading.mark, None, None, []
        self._texts = TextPacker()
        return True

    def _read_old(self) -> bool:
        found = old_session(self._backend, self._key, self.id)
        if found is None:
            self._mark, self._old, self._session = None, [], None
            return False
        if not self._old or found.mark != self._old_mark:
            self._session, self._old, self._old_mark = found.session(), found.records(), found.mark
            self.folded, self._mark = fold(self._old), None
            self._view = found.mark if self._is_beside_log else None
        return True

    @property
    def _is_beside_log(self) -> bool:
        """Whether the files are in the same backend as the log."""
        return self._views is not None and self._views.backend is self._backend

    def records(self) -> Sequence[Record]:
        """All records, from the beginning."""
        return self._old or self._backend.read(self._log).records

    def damage(self) -> Sequence[str]:
        """What of the log cannot be read, in words."""
        return () if self._old else self._backend.read(self._log).damage

    def history(self) -> Iterator[Document]:
        """All states in the log, newest first."""
        yield from reversed([state.document for state in states(self.records()) if state.problem is None])

    def compare(self, *, mend: bool = False) -> Edit | None:
        """What a person changed in the file since it was last written; see `edits.compare` for what it raises.

        With `mend` a file that is missing, torn or of an older state is written again, and Markdown of stages that is missing too.
        """
        if self._views is None or (self._old and self._is_beside_log):
            return None
        mend = mend and not self._old
        mark = self._views.mark(self.id)
        if mark is None or mark != self._view:
            verdict = self._verdict()
            if isinstance(verdict, Edit):
                return verdict
            self._view = self._found
            if mend and verdict == "outdated":
                with suppress(StorageError):  # a folder that may not be written: what is read is right all the same
                    self.put_view()
        if mend:
            with suppress(StorageError):
                self._mend_texts(self._views)
        return None

    def _mend_texts(self, views: Views) -> None:
        """Write the Markdown of stages again that is missing, or that a power cut tore: it is put without a sync, and is in the log."""
        missing = views.missing(self.id, self.folded.files)
        is_old = not self._texts_checked and views.predate_start(self.id, self.folded.files)
        if missing or is_old:
            texts = texts_of(self.records())
            again = missing & texts.keys() | (views.torn(self.id, texts) if is_old else set())
            views.backend.write(*views.markdown(self.id, {name: texts[name] for name in again}))
        self._texts_checked = True

    def _verdict(self) -> str | Edit:
        assert self._views is not None  # noqa: S101 - asked by `compare`
        while True:
            stored = self._views.get(self.id)
            self._view, self._found = None, stored.mark if stored is not None else ABSENT
            try:
                if stored is None:
                    return "outdated"
                if stored.data == self._rendered:
                    return "same"
                verdict = compare(stored.data, self.session, self.history, self._views.where(self.id))
            except HoldfastError:
                if self._is_behind():
                    continue
                raise
            if not isinstance(verdict, Edit) or not self._is_behind():
                return verdict

    def _is_behind(self) -> bool:
        """Whether the log went on meanwhile, so that the file may be newer than what was read of it."""
        if self._backend.mark(self._log) == self._mark:
            return False
        return self.refresh()

    # Writing

    def append(
        self,
        new: Session,
        *,
        edit: Edit | None = None,
        before: Sequence[Document] = (),
        point: str | None = None,
        files: Mapping[str, str] | None = None,
        why: str | None = None,
        views_later: float | None = None,
    ) -> Session:
        """Add a state: one record, durably; then the views. ReadAgain if somebody else wrote meanwhile.

        With `views_later`, which is the time by the monotonic clock, the views may be left to `write_views`.
        """
        if new.schema_version != SCHEMA_VERSION or new.mark is not None:
            new = evolved(new, schema_version=SCHEMA_VERSION, mark=None)
        document = self._renderer.document(new)
        old = {} if self.folded.problem is not None else self.folded.document
        records = []
        if edit is not None:
            edited = session_json(edit.session)
            records.append(commit_record(old, edited, why="edited by hand"))
            old = edited
        packed = self._texts.packed(files or {})
        records = [*records, *before, commit_record(old, document, news=self._renderer.news, point=point, files=packed, why=why)]
        texts = {**(self._late or {}), **(files or {})}
        is_late = views_later is not None and self._view is not None and views_later - self._viewed < self._delay
        goes_on = views_later is not None and new.status in ("ready", "running")
        puts = () if self._views is None or is_late else self._puts(document, texts)
        self.write(records, puts, view_later=is_late, growing=goes_on)
        self.folded.document, self.folded.problem, self._session = document, None, new
        if is_late:
            self._late, self._rendered = texts, None
        elif views_later is not None and new.revision > 1:  # the first stage starts at once, and is to be seen
            self._viewed = views_later
        if new.status != self._told:
            self._told = new.status
            if not goes_on and new.status != "running":  # else the next commit comes at once, and nobody would find the line of this one
                self.put_brief(new)
        return new

    def _puts(self, document: Document, texts: Mapping[str, str]) -> list[Put]:
        """The writing of the views for a document that the renderer made last, the JSON file as the last."""
        assert self._views is not None  # noqa: S101 - asked by those who call this
        self._rendered = self._renderer.encode(document)
        self._delay = VIEW_DELAY * (1 + len(self._rendered) / VIEW_SIZE)
        put = Put(self._file, self._rendered, expect=self._view or self._found, durable=False)
        return [*self._views.markdown(self.id, texts), put]

    def write_views(self, at: float | None = None) -> None:
        """Write the views that are late, unless somebody edited the file: then that is found at the next look. `at`: the time now."""
        if self._late is None or self._views is None or self._view is None:
            return
        texts, self._late = self._late, None
        puts = self._puts(self._renderer.document(self.session), texts)
        try:
            self._view = self._views.backend.write(*puts)[-1]
        except RevisionConflict:
            self._view = None
        if at is not None:
            self._viewed = at

    def write(self, records: Sequence[Document], views: Sequence[Put] = (), *, view_later: bool = False, growing: bool = False) -> None:
        """Add records to the log, all or none, durably, then put the views. ReadAgain if somebody else wrote or edited meanwhile.

        With `view_later` there are none now, but the file is looked at as if there were. Where the files are in another backend than the
        log, an edit in the moment between the two is left as it is, and found next time.
        """
        every = [*self._old, *records]
        expect, self._mark = self._mark or ABSENT, None  # unless it comes to its end, what the log holds is to be read again
        texts, self._texts = self._texts, TextPacker()
        view, self._view = self._view, None
        at_once = views if self._is_beside_log else ()
        if (view_later or (views and not at_once)) and view is not None and self._is_file_other_than(view):
            raise ReadAgain
        try:
            marks = self._backend.write(Append(self._log, [together(every)], expect=expect, growing=growing), *at_once)
        except RevisionConflict:
            raise ReadAgain from None
        for record in records:
            self.folded.note(record)
        self._mark, self._texts = marks[0], texts
        if views and not at_once and self._views is not None:
            self._mark = None
            with suppress(RevisionConflict):
                self._view = self._views.backend.write(*views)[-1]
            self._mark = marks[0]
        else:
            self._view = marks[-1] if views else view
        if views:
            self._late = None
        if self._old:
            self._old = []
            self._remove_old()

    def _is_file_other_than(self, view: Mark) -> bool:
        """Whether somebody wrote to the file. Reads it only when it does not look as it did when it was last compared."""
        if self._views is None:
            return False
        look = self._views.backend.glance(self._file)
        if look is None or look != self._look:
            if (self._views.mark(self.id) or ABSENT) != view:
                return True
            self._look = look
        return False

    def rewrite(self, records: Sequence[Document]) -> None:
        """Put other records in place of all. ReadAgain if somebody else wrote since it was read."""
        expect, self._mark = self._mark or ABSENT, None
        try:
            self._backend.rewrite(self._log, records, expect=expect)
        except RevisionConflict:
            raise ReadAgain from None
        if self._old:
            self._old = []
            self._remove_old()
        self.refresh()

    def replace_all(self, new: Session, records: Sequence[Document]) -> None:
        """Put this state, and these records that end in it, in place of everything. ReadAgain if somebody else wrote meanwhile.

        The file comes first and is synced: should the power go before the log, it is taken for an edit that leads to the same state.
        """
        self._session, self._rendered = new, render_session(new)
        self._view = self._view or self._found
        self.put_view(durable=True)
        self.rewrite(records)
        self._view = self._found = None
        self.put_brief(new)

    def _remove_old(self) -> None:
        aside = [f"{self._key}/checkpoints.jsonl"]
        if not self._is_beside_log:
            aside.append(f"{self._key}.json")
            self._backend.remove(f"{self._key}/stages/")
        for key in aside:
            if self._backend.mark(key) is not None:
                self._backend.write(Delete(key))

    def put_view(self, *, durable: bool = False) -> None:
        """Write the file, unless somebody edited it since it was looked at: then that is found at the next look."""
        if self._views is None:
            return
        if self._rendered is None:
            self._rendered = render_session(self.session)
        try:
            put = Put(self._file, self._rendered, expect=self._view or self._found, durable=durable)
            (self._view,) = self._views.backend.write(put)
        except RevisionConflict:
            self._view = None

    # The line in a list

    def put_brief(self, session: Session) -> None:
        """Keep the line for a list, with what it was made from, so that a list reads no logs. Done where the status changes."""
        self._told = session.status
        value = {"brief": asdict(clean_brief(session)), "of": self._made_from()}
        self._backend.write(Put(f"{self._key}/brief.json", strict_json.encode(value), durable=False))

    def kept_brief(self) -> SessionBrief | None:
        """The line that was kept, if log and file are still those that it was made from."""
        stored = self._backend.get(f"{self._key}/brief.json")
        try:
            value: Any = strict_json.decode(stored.data) if stored is not None else None
            return SessionBrief(**value["brief"]) if value is not None and value["of"] == self._made_from() else None
        except (Damaged, TypeError, KeyError):
            return None

    def _made_from(self) -> list[Any]:
        file = self._views.backend.glance(self._file) if self._views is not None else None
        return [self._backend.glance(self._log), file]


def clean_brief(session: Session) -> SessionBrief:
    """The line for a session, without secrets."""
    brief = brief_of(session)
    return changed(brief, error=redact_text(brief.error)) if brief.error is not None else brief


# Raw data

_RAW = "raw:"


@dataclass(frozen=True, slots=True)
class RawData:
    """Bytes that a stage stored, with what they are and where they came from. `ref` is the whole reference."""

    ref: str
    data: bytes
    media_type: str
    source: str | None
    at: str

    def text(self) -> str:
        """The bytes as text; what is not UTF-8 shows as a replacement character."""
        return self.data.decode("utf-8", "replace")


class RawStore:
    """The raw data below a prefix of a backend."""

    def __init__(self, backend: Backend, prefix: str) -> None:
        self._backend = backend
        self.prefix = prefix
        self.index = f"{prefix}/index.jsonl"

    def put(self, data: bytes, media_type: str, source: str | None, at: str) -> str:
        """Keep the bytes, then the note about them; on return both survive a power cut."""
        ref = _RAW + self._backend.put_blob(self.prefix, data)
        shown = redact_text(source) if source is not None else None
        known = self._backend.read(self.index)
        if not any((note.get("ref"), note.get("media_type"), note.get("source")) == (ref, media_type, shown) for note in known.records):
            note = {"ref": ref, "media_type": media_type, "source": shown, "size": len(data), "at": at}
            self._backend.write(Append(self.index, [note]))
        return ref

    def get(self, ref: str) -> RawData:
        """The bytes with what is known of them. A prefix is enough if only one reference begins with it."""
        full = self.find(ref)
        data = self._backend.get_blob(self.prefix, full.removeprefix(_RAW))
        if data is None:
            raise InputError(f"the raw data {full} was removed just now.")
        note = self.notes().get(full, {})
        return RawData(full, data, note.get("media_type", "application/octet-stream"), note.get("source"), note.get("at", ""))

    def find(self, ref: object) -> str:
        """The whole reference that `ref` is or begins. InputError if there is none, or more than one."""
        if not isinstance(ref, str) or not ref.strip():
            raise InputError(f"{ref!r} is not a raw reference.", hint="It looks like raw:sha256-3f1c...; its first digits are enough.")
        wanted = f"{_RAW}sha256-{ref.strip().removeprefix(_RAW).removeprefix('sha256-').lower()}"
        found = [one for one in self.refs() if one.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotThere(f"there is no raw data {ref[:100]!r} in this session.", hint="It may have been forgotten or pruned.")
        raise InputError(f"{ref[:100]!r} begins {counted(len(found), 'reference')}: {', '.join(found[:3])}.", hint="Give more digits.")

    def refs(self) -> list[str]:
        """All references, sorted."""
        return sorted(_RAW + item.key.rpartition("/")[2] for item in self._backend.list(f"{self.prefix}/") if item.kind == "blob")

    def notes(self) -> dict[str, Mapping[str, Any]]:
        """What is known of each reference: the newest note."""
        return {str(note["ref"]): note for note in self._backend.read(self.index).records if "ref" in note}

    def copy_to(self, other: RawStore, at: str) -> None:
        """Keep everything there too."""
        for ref in self.refs():
            one = self.get(ref)
            other.put(one.data, one.media_type, one.source, at)

    def remove(self, ref: str) -> None:
        """Forget the bytes and every note about them."""
        self._backend.delete_blob(self.prefix, ref.removeprefix(_RAW))
        self.keep_notes(lambda note: note.get("ref") != ref)

    def keep_notes(self, wanted: Callable[[Mapping[str, Any]], bool]) -> int:
        """Drop the notes that are not wanted, and say how many went."""
        reading = self._backend.read(self.index)
        kept = [note for note in reading.records if wanted(note)]
        if len(kept) < len(reading.records):
            self._backend.rewrite(self.index, kept, expect=reading.mark)
        return len(reading.records) - len(kept)
