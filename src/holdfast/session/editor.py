"""A session changed by somebody else than its run: a corrected output (W4), an edit of the whole by hand, a text that is forgotten (M14).

What a person gives is checked before it takes the place of the old one, and never lost: an edit is made on a copy, which stays if it is
refused. `differences` tells what is different between two states of a session, place by place.

When a text is forgotten, names that hold a session together (its id, its stages, statuses, times) are not words of anybody and stay. The
log is written again from its scrubbed states, so nothing of the text is left in the history.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.beneath import Tree
from holdfast.durable.disk import REAL
from holdfast.durable.replace import replace as replace_file
from holdfast.errors import Damaged, HoldfastError, InputError, Locked, OutputInvalid, RevisionConflict, StorageError
from holdfast.session.document import decode_session, parse_session, session_json
from holdfast.session.edits import check_outputs, check_spelling, fixed
from holdfast.session.edits import edited as noted_edit
from holdfast.session.log import Record, compacted, points_of, texts_of
from holdfast.session.state import Session
from holdfast.session.store import SessionStore, locked_by
from holdfast.storage.backend import Backend, Delete, Item, Put
from holdfast.text.needle import Needle

if TYPE_CHECKING:
    from holdfast.session.stored import StoredSession

Then = Callable[[Session, Session], Session]
"""What becomes of a session that a person changed: given as it was, and as it is."""


def fix_output(
    store: SessionStore,
    id: str,
    stage: str,
    text: str,
    *,
    clock: Clock | None = None,
    done: Callable[[], None] = lambda: None,
    then: Then = lambda before, after: after,
) -> Session:
    """Put a corrected output, as JSON text, in place of what a stage wrote, and commit. InputError says what is wrong with it.

    `done` is called when it is committed and the session is still held; `then` says, from the session before and after, what is committed.
    """
    store.load(id)  # says that there is none before anything is made for it
    with store.lease(id, owner="fix"):
        session = store.load(id)
        changed = then(session, fixed(session, stage, text, at=stamp((clock or SystemClock()).now())))
        committed = store.commit(changed, expect=session.revision)
        done()
        return committed


def draft_of(session: Session, stage: str) -> str:
    """What a person starts from to correct a stage: what it wrote, as JSON; text that is none becomes the summary of an output."""
    said = session_json(session)
    error = said.get("error") or {}
    raw = error.get("raw_output") if error.get("stage") == stage else None
    raw = said.get("stage_outputs", {}).get(stage) if raw is None else raw
    if isinstance(raw, str):
        with suppress(ValueError):
            raw = json.loads(raw)
    if not isinstance(raw, dict):
        text = "" if raw is None else raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
        raw = {"summary": text, "key_findings": [], "confidence": "low", "recommendations": [], "raw_data_refs": []}
    return json.dumps(raw, ensure_ascii=False, indent=2) + "\n"


def fix_in_editor(
    store: SessionStore,
    id: str,
    stage: str,
    *,
    done: Callable[[], None] = lambda: None,
    then: Then = lambda before, after: after,
) -> Session:
    """Put in what the person made of a stage's output in their editor. On any error their text stays in the file that the message names."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fix-"))
    copy = folder / f"{id}-{stage}.json"
    copy.write_text(draft_of(store.load(id), stage), "utf-8")
    try:
        _run_editor(copy)
        fixed_one = fix_output(store, id, stage, copy.read_text("utf-8"), done=done, then=then)
    except HoldfastError as error:
        error.hint = f"{error.hint or ''} Your text is kept in {copy}.".strip()
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return fixed_one


def edit_session(store: SessionStore, id: str, *, then: Then = lambda before, after: after) -> Session | None:
    """The session as it was saved in the editor, and as `then` leaves it, committed; None if nothing was changed.

    On any error the person's text stays in the file that the message names.
    """
    owner = store.owner(id)
    if owner is not None:
        raise locked_by(id, None, owner)
    session, original = _original(store, id)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-edit-"))
    copy = folder / f"{id}.json"
    copy.write_bytes(original)
    try:
        _run_editor(copy)
        edited = copy.read_bytes()
        done = None if edited == original else _commit(store, id, session, original, edited, then)
    except HoldfastError as error:
        error.hint = f"{error.hint or ''} Your text is kept in {copy}.".strip()
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return done


def _original(store: SessionStore, id: str) -> tuple[Session | None, bytes]:
    """What is edited. A session that cannot be read is edited as the text that it is."""
    try:
        session = store.load(id)
    except (Damaged, OutputInvalid, RevisionConflict):
        return None, store.document(id)
    return session, store.document(id)


def _commit(store: SessionStore, id: str, session: Session | None, original: bytes, edited: bytes, then: Then) -> Session:
    wanted = decode_session(edited, "what you saved")
    if session is not None:
        check_spelling(edited, session, "what you saved")
    problems = check_outputs(wanted)
    if wanted.workflow_id != id:
        problems.append(f"workflow_id: must stay {id!r}; `holdfast session fork` makes a session of another id")
    if problems:
        raise InputError(f"what you saved does not fit: {'; '.join(problems[:8])}.")
    with store.lease(id, owner="edit"):
        if session is not None:
            noted = then(session, noted_edit(wanted, session, at=store.now()))
            return store.commit(replace(noted, mark=session.mark), expect=session.revision)
        return store.put_document(wanted, instead_of=original)


def _run_editor(path: Path) -> None:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    command = shlex.split(named) if named else [found for found in (shutil.which("nano"), shutil.which("vi")) if found][:1]
    if not command:
        raise InputError("there is no editor.", hint="Set EDITOR, for example `export EDITOR=nano`.")
    try:
        ended = subprocess.run([*command, str(path)], check=False)  # noqa: S603 - the editor that the person chose
    except OSError as error:
        raise InputError(
            f"the editor {command[0]!r} could not be started: {error.strerror}.", hint="Set EDITOR to one that can."
        ) from error
    if ended.returncode != 0:
        raise InputError(f"the editor ended with code {ended.returncode}, so nothing was changed.")


_COUNTED = ("revision", "updated_at", "schema_version")  # always different, and nobody's question


@dataclass(frozen=True, slots=True)
class Difference:
    """One place: `stage_outputs.plan.summary`, what stood there before and what stands there after."""

    place: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def differences(before: Session, after: Session) -> list[Difference]:
    """Every difference in the order of the file; a member that is wholly new or gone is one difference."""
    old, new = ({name: member for name, member in session_json(one).items() if name not in _COUNTED} for one in (before, after))
    return list(_compared(old, new, ""))


def _compared(old: Any, new: Any, place: str) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _member(name in old, name in new, old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was, there = index < len(old), index < len(new)
            yield from _member(was, there, old[index] if was else None, new[index] if there else None, f"{place}[{index}]")
    elif old != new:
        yield Difference(place, "changed", old, new)


def _member(was: bool, there: bool, old: Any, new: Any, place: str) -> Iterator[Difference]:
    if was and there:
        yield from _compared(old, new, place)
    else:
        yield Difference(place, "removed" if was else "added", old, new)


_FIXED = frozenset(
    (
        *("workflow_id", "topic_tag", "status", "current_stage", "next_stage", "completed_stages", "created_at", "updated_at"),
        *("workflow_hash", "revision", "schema_version"),
    )
)
_STAGE_FIXED = frozenset(
    ("stage", "stage_name", "kind", "status", "at", "started_at", "ended_at", "model", "added_by", "confidence", "raw_data_refs")
)
_DEFINITION_FIXED = frozenset(("id", "name", "agent_type", "inputs", "needs", "topic_tag", "model"))
_OURS = ("log.jsonl", "brief.json", "cancel", "claim", "checkpoints.jsonl")


@dataclass(frozen=True, slots=True)
class Touched:
    """A place that forgetting a text reached. `done` is False where it could not be taken out, and `why` says the reason."""

    session: str
    kind: Literal["session", "checkpoint", "raw data", "stage file", "leftover"]
    place: str
    count: int = 1
    done: bool = True
    why: str = ""


def forget_text(store: SessionStore, text: str) -> list[Touched]:
    """Take the text out of all sessions; see `SessionStore.forget_text`."""
    needle = Needle(text)
    touched: list[Touched] = []
    for workflow_id in store.ids():
        one = _Forgetting(store, workflow_id, needle)
        if not one.shows():
            continue
        try:
            with store.lease(workflow_id, owner="forget"):
                touched += one.forget()
        except Locked as error:
            why = f"it is being run by {error.owner or 'somebody else'}; forget again when it has ended"
            touched.append(Touched(workflow_id, "session", store.where(workflow_id), 0, done=False, why=why))
    return [*touched, *_leftovers(store, needle)]


def scrubbed(session: Session, needle: Needle) -> tuple[Session, int]:
    """The session without the text, and how many places lost something; the same object if it never held it."""
    value: dict[str, Any] = {}
    total = 0
    for name, member in session_json(session).items():
        value[name], count = (member, 0) if name in _FIXED else _scrubbed_member(name, member, needle)
        total += count
    return (replace(parse_session(value), mark=session.mark), total) if total else (session, 0)


def _scrubbed_member(name: str, member: Any, needle: Needle) -> tuple[Any, int]:
    if name == "stage_outputs":
        pairs = {stage: _output(output, needle) for stage, output in member.items()}
        return {stage: rest for stage, (rest, _) in pairs.items()}, sum(count for _, count in pairs.values())
    if name == "stages":
        pairs = {stage: needle.out_of(record, _STAGE_FIXED) for stage, record in member.items()}
        return {stage: rest for stage, (rest, _) in pairs.items()}, sum(count for _, count in pairs.values())
    if name in ("memory_snapshots", "error"):
        return needle.out_of(member, _STAGE_FIXED)
    return needle.out_of(member, _DEFINITION_FIXED if name == "workflow" else (), name=name)


def _output(output: Mapping[str, Any], needle: Needle) -> tuple[dict[str, Any], int]:
    """A finding that holds it goes as a whole: half a fact is a wrong one."""
    kept = [finding for finding in output["key_findings"] if not needle.in_value(finding)]
    rest, count = needle.out_of({**output, "key_findings": []}, _STAGE_FIXED)
    return {**rest, "key_findings": kept}, count + len(output["key_findings"]) - len(kept)


class _Forgetting:
    """One session, held while it is changed."""

    def __init__(self, store: SessionStore, workflow_id: str, needle: Needle) -> None:
        self.store = store
        self.id = workflow_id
        self.needle = needle
        self.start = f"{store.prefix}/{workflow_id}/"

    def shows(self) -> bool:
        """Whether anything of it holds the text. Reads everything and changes nothing, so that most sessions need no lock."""
        if self.store.views is not None:
            stored = self.store.views.get(self.id)
            if stored is not None and self.needle.in_file(stored.data):
                return True
        if any(self._holds(backend, item.key, item.kind) for backend in self.store.backends() for item in self._items(backend)):
            return True
        return any(data is None or self.needle.in_bytes(data) or self.needle.in_text(path) for path, data, _ in self._own_files())

    def _items(self, backend: Backend) -> list[Item]:
        """What storage keeps of it. Files that agents wrote are looked at where they lie, since not every name is a key."""
        folder = self.store.folder(self.id)
        theirs = f"{self.start}files/" if folder is not None and folder.is_dir() else "\0"
        return [item for item in backend.list(self.start) if not item.key.startswith(theirs)]

    def _holds(self, backend: Backend, key: str, kind: str) -> bool:
        if kind == "log":
            return self._shows_in(backend.read(key).records)
        if kind == "blob":
            below, _, name = key.rpartition("/")
            with suppress(StorageError):
                return self.needle.in_bytes(backend.get_blob(below, name) or b"")
            return False
        stored = backend.get(key)
        return stored is not None and self.needle.in_file(stored.data)

    def _shows_in(self, records: Sequence[Record]) -> bool:
        """Whether records hold it, or a text that is put together from several of them."""
        return self.needle.in_value([dict(record) for record in records]) or self.needle.in_value([*texts_of(records).values()])

    def forget(self) -> list[Touched]:
        return [*self._state(), *self._raw(), *self._documents(), *self._written()]

    def _state(self) -> Iterator[Touched]:
        """The states in the log, and the file: the file first, so that it is never taken for a person's edit that brings the text back."""
        place = self.store.where(self.id)
        try:
            with self.store.current(self.id) as known:
                edit = known.compare(mend=True)
                session = edit.session if edit is not None else known.session
                current, count = scrubbed(session, self.needle)
                in_points = self._rewrite(known, session, current)
        except InputError:
            return  # only what belonged to it is left
        except HoldfastError as error:
            yield Touched(self.id, "session", place, 0, done=False, why=f"it cannot be read: {error.message}")
            return
        if count:
            yield Touched(self.id, "session", place, count)
        if in_points:
            yield Touched(self.id, "checkpoint", f"recovery points of {place}", in_points)

    def _rewrite(self, known: StoredSession, session: Session, current: Session) -> int:
        """Write the log again without the text, if it holds it; how many places in recovery points and older states lost something."""
        records = known.records()
        if current is session and not self._shows_in(records):
            return 0
        total, points = 0, {}
        for name, (at, document) in points_of(records).items():
            state, count = scrubbed(parse_session(document), self.needle)
            points[name] = (at, session_json(state))
            total += count
        texts = {name: self.needle.without(text) for name, text in texts_of(records).items()}
        new = replace(current, revision=session.revision + 1, updated_at=self.store.now(), mark=None)
        known.replace_all(new, compacted(points, session_json(new), texts))
        return total if total or current is not session else 1

    def _raw(self) -> Iterator[Touched]:
        raw = self.store.raw(self.id)
        for ref in raw.refs():
            with suppress(InputError, StorageError):
                if self.needle.in_bytes(raw.get(ref).data):
                    raw.remove(ref)
                    yield Touched(self.id, "raw data", ref)
        gone = raw.keep_notes(lambda note: not self.needle.in_value(dict(note)))
        if gone:
            yield Touched(self.id, "raw data", raw.index, gone)

    def _documents(self) -> Iterator[Touched]:
        """Markdown of stages, files that agents wrote, what was set aside. What is no text, or nobody needs, goes as a whole."""
        for backend in self.store.backends():
            for item in self._items(backend):
                inner = item.key.removeprefix(self.start)
                if inner.startswith("journal/") and self._holds(backend, item.key, item.kind):
                    backend.write(Delete(item.key))  # the stage begins anew; half of its notes would be worse than none
                    yield Touched(self.id, "stage file", backend.where(item.key))
                if item.kind != "document" or inner in _OURS:
                    continue
                stored = backend.get(item.key)
                if stored is not None and self.needle.in_file(stored.data):
                    leftover = ".damaged-" in inner
                    _clean(backend, item.key, stored.data, self.needle, leftover)
                    yield Touched(self.id, "leftover" if leftover else "stage file", backend.where(item.key))

    def _own_files(self) -> Iterator[tuple[str, bytes | None, str]]:
        """What agents wrote to the folder of their stage, under any name: its path there and its content, or None and why not."""
        folder = self.store.folder(self.id)
        if folder is None or not folder.is_dir():
            return
        unread: dict[str, str] = {}
        with Tree(folder) as tree:
            for entry in tree.walk(unread):
                if entry.kind == "file":
                    try:
                        with tree.open(entry.path) as file:
                            yield entry.path, file.read(), ""
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        unread[entry.path] = error.strerror or str(error)
        yield from ((path, None, why) for path, why in unread.items())

    def _written(self) -> Iterator[Touched]:
        """The same without the text. What is no text goes as a whole; a name stays, since others may refer to it."""
        for path, data, why in self._own_files():
            place = f"{self.store.folder(self.id)}/{path}"
            if data is None:
                yield Touched(self.id, "stage file", place, 0, done=False, why=f"it could not be looked at ({why})")
                continue
            if self.needle.in_bytes(data):
                try:
                    _put(place, _without(data, self.needle))
                except (OSError, StorageError) as error:
                    yield Touched(self.id, "stage file", place, 0, done=False, why=str(error))
                    continue
                yield Touched(self.id, "stage file", place)
            if self.needle.in_text(path) and os.path.lexists(place):
                yield Touched(self.id, "stage file", place, 0, done=False, why="its name holds it")


def _clean(backend: Backend, key: str, data: bytes, needle: Needle, leftover: bool) -> None:
    rest = b"" if leftover else _without(data, needle)
    backend.write(Put(key, rest) if rest else Delete(key))


def _put(place: str, rest: bytes) -> None:
    if rest:
        replace_file(place, rest)
    else:
        REAL.unlink(place)
        REAL.sync_folder(os.path.dirname(place))  # noqa: PTH120 - paths of a Disk are texts


def _without(data: bytes, needle: Needle) -> bytes:
    """A text without it; nothing if that is no text, or shows it still."""
    try:
        rest = b"" if b"\0" in data else needle.without(data.decode("utf-8")).encode()
    except UnicodeDecodeError:
        rest = b""
    return b"" if needle.in_bytes(rest) else rest


def _leftovers(store: SessionStore, needle: Needle) -> Iterator[Touched]:
    """Copies beside the JSON files: what was set aside as damaged, and what a killed writer never put in place."""
    prefix = f"{store.prefix}/"
    for backend in store.backends():
        for name in [*backend.children(store.prefix)]:
            stored = backend.get(prefix + name) if ".damaged-" in name else None
            if stored is not None and needle.in_bytes(stored.data):
                backend.write(Delete(prefix + name))
                yield Touched(name.partition(".json")[0], "leftover", backend.where(prefix + name))
        for path in backend.sweep(prefix, holding=needle.in_bytes):
            yield Touched("", "leftover", path)
