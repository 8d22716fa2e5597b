"""Taking a text out of sessions: what goes, and what stays so that a session still fits its contract (M14).

Names that hold a session together (its id, its stages, statuses, times) are not words of anybody and stay. The log is written again from
its scrubbed states, so nothing of the text is left in the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import HoldfastError, InputError, Locked, StorageError
from holdfast.session.log import Record, compacted, points_of, texts_of
from holdfast.session.parser import parse_session
from holdfast.session.renderer import session_json
from holdfast.session.state import Session
from holdfast.storage.backend import Backend, Delete, Put
from holdfast.text.needle import Needle

if TYPE_CHECKING:
    from holdfast.session.store import SessionStore
    from holdfast.session.stored import StoredSession

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
            with store.hold(workflow_id, owner="forget"):
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
        value[name], count = (member, 0) if name in _FIXED else _member(name, member, needle)
        total += count
    return (replace(parse_session(value), mark=session.mark), total) if total else (session, 0)


def _member(name: str, member: Any, needle: Needle) -> tuple[Any, int]:
    if name == "stage_outputs":
        pairs = {stage: _output(output, needle) for stage, output in member.items()}
        return {stage: rest for stage, (rest, _) in pairs.items()}, sum(count for _, count in pairs.values())
    if name == "stages":
        pairs = {stage: needle.out_of(record, _STAGE_FIXED) for stage, record in member.items()}
        return {stage: rest for stage, (rest, _) in pairs.items()}, sum(count for _, count in pairs.values())
    if name in ("memory_snapshots", "error"):
        return needle.out_of(member, _STAGE_FIXED)
    return needle.out_of(member, _DEFINITION_FIXED if name == "workflow" else ())


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
            if stored is not None and self.needle.in_bytes(stored.data):
                return True
        return any(self._holds(backend, item.key, item.kind) for backend in self.store.backends() for item in backend.list(self.start))

    def _holds(self, backend: Backend, key: str, kind: str) -> bool:
        if kind == "log":
            return self._shows_in(backend.read(key).records)
        if kind == "blob":
            below, _, name = key.rpartition("/")
            with suppress(StorageError):
                return self.needle.in_bytes(backend.get_blob(below, name) or b"")
            return False
        stored = backend.get(key)
        return stored is not None and self.needle.in_bytes(stored.data)

    def _shows_in(self, records: Sequence[Record]) -> bool:
        """Whether records hold it, or a text that is put together from several of them."""
        return self.needle.in_value([dict(record) for record in records]) or self.needle.in_value([*texts_of(records).values()])

    def forget(self) -> list[Touched]:
        return [*self._state(), *self._raw(), *self._documents()]

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
            for item in [*backend.list(self.start)]:
                inner = item.key.removeprefix(self.start)
                if inner.startswith("journal/") and self._holds(backend, item.key, item.kind):
                    backend.write(Delete(item.key))  # the stage begins anew; half of its notes would be worse than none
                    yield Touched(self.id, "stage file", backend.where(item.key))
                if item.kind != "document" or inner in _OURS:
                    continue
                stored = backend.get(item.key)
                if stored is not None and self.needle.in_bytes(stored.data):
                    leftover = ".damaged-" in inner
                    _clean(backend, item.key, stored.data, self.needle, leftover)
                    yield Touched(self.id, "leftover" if leftover else "stage file", backend.where(item.key))


def _clean(backend: Backend, key: str, data: bytes, needle: Needle, leftover: bool) -> None:
    try:
        rest = needle.without(data.decode("utf-8")).encode()
    except UnicodeDecodeError:
        leftover, rest = True, b""
    backend.write(Delete(key) if leftover or needle.in_bytes(rest) else Put(key, rest))


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
