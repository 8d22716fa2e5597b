"""Forgetting a text in all that the file store keeps: states, recovery points, raw data, stage files, what killed writers left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.durable.disk import read_whole
from holdfast.durable.replace import is_temp, replace
from holdfast.errors import Damaged, InputError, Locked, StorageError
from holdfast.session.forgetting import Scrub
from holdfast.session.side_files import files_below
from holdfast.session.store import Touched

if TYPE_CHECKING:
    from holdfast.session.files import FileSessionStore

_OURS = ("run.lock", "write.lock", "owner.json", "cancel", "checkpoints.jsonl.lock", "checkpoints.jsonl")


def forget_in_files(store: FileSessionStore, text: str) -> list[Touched]:
    """Take the text out of all sessions; see `SessionStore.forget_text`."""
    touched: list[Touched] = []
    for workflow_id in sorted({*store.layout.ids(), *store.layout.folders()}):
        if not _shows(store, workflow_id, Scrub(text)):
            continue
        try:
            with store.hold(workflow_id, owner="forget"):
                touched += _Session(store, workflow_id, text).forget()
        except Locked as error:
            why = f"it is being run by {error.owner or 'somebody else'}; forget again when it has ended"
            touched.append(Touched(workflow_id, "session", store.layout.file(workflow_id), 0, done=False, why=why))
    return [*touched, *_leftovers(store, Scrub(text))]


def _shows(store: FileSessionStore, workflow_id: str, scrub: Scrub) -> bool:
    """Whether any of its files holds the text. Reads everything and changes nothing, so that most sessions need no lock."""
    paths = [store.layout.file(workflow_id), *files_below(store.disk, store.layout.side(workflow_id))]
    for path in paths:
        with suppress(FileNotFoundError):
            if scrub.in_bytes(read_whole(store.disk, path)):
                return True
    return False


class _Session:
    """One session, held meanwhile."""

    def __init__(self, store: FileSessionStore, workflow_id: str, text: str) -> None:
        self.store = store
        self.id = workflow_id
        self.text = text

    def forget(self) -> list[Touched]:
        return [*self._state(), *self._points(), *self._raw(), *self._files()]

    def _state(self) -> Iterator[Touched]:
        path, scrub = self.store.layout.file(self.id), Scrub(self.text)
        try:
            session = self.store.load(self.id)
        except InputError:
            return  # only its folder is left
        except (Damaged, StorageError) as error:
            if scrub.in_bytes(read_whole(self.store.disk, path)):
                yield Touched(self.id, "session", path, 0, done=False, why=f"it cannot be read: {error.message}")
            return
        after = scrub.session(session)
        if scrub.count:
            self.store.commit(after, expect=session.revision)
            yield Touched(self.id, "session", path, scrub.count)

    def _points(self) -> Iterator[Touched]:
        path, scrub = self.store.layout.side(self.id, "checkpoints.jsonl"), Scrub(self.text)
        with suppress(FileNotFoundError):
            if not scrub.in_bytes(read_whole(self.store.disk, path)):
                return
            points = self.store.points(self.id)
            points.rewrite({name: scrub.session(session) for name, session in points.sessions().items()})
            yield Touched(self.id, "checkpoint", path, max(scrub.count, 1))

    def _raw(self) -> Iterator[Touched]:
        raw, scrub = self.store.raw(self.id), Scrub(self.text)
        for ref in raw.refs():
            with suppress(InputError):
                if _holds(raw.get(ref).data, scrub):
                    raw.remove(ref)
                    yield Touched(self.id, "raw data", ref)
        gone = raw.keep_notes(lambda note: not scrub.in_value(note))
        if gone:
            yield Touched(self.id, "raw data", self.store.layout.side(self.id, "raw", "index.jsonl"), gone)

    def _files(self) -> Iterator[Touched]:
        disk, side = self.store.disk, self.store.layout.side(self.id)
        for path in [*files_below(disk, side)]:
            inner = path.removeprefix(f"{side}/")
            leftover = is_temp(path.rpartition("/")[2]) or ".damaged-" in inner
            if inner in _OURS or (inner.startswith("raw/") and not leftover):
                continue
            with suppress(FileNotFoundError):
                data = read_whole(disk, path)
                if not _holds(data, Scrub(self.text)):
                    continue
                yield Touched(self.id, "leftover" if leftover else "stage file", path, self._clean(path, data, leftover))

    def _clean(self, path: str, data: bytes, leftover: bool) -> int:
        """A text without it. What is no text, or nobody needs, goes as a whole."""
        scrub = Scrub(self.text)
        try:
            rest = scrub.text(data.decode("utf-8"))
        except UnicodeDecodeError:
            leftover = True
        if leftover or scrub.in_bytes(rest.encode()):
            self.store.disk.unlink(path)
            self.store.disk.sync_folder(path.rpartition("/")[0])
            return 1
        replace(path, rest.encode(), disk=self.store.disk)
        return scrub.count


def _holds(data: bytes, scrub: Scrub) -> bool:
    return scrub.in_bytes(data) or scrub.in_text(data.decode("utf-16", "ignore") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "")


def _leftovers(store: FileSessionStore, scrub: Scrub) -> Iterator[Touched]:
    """Copies beside the JSON files: what was set aside as damaged, and what a killed writer never put in place."""
    disk = store.disk
    for folder in sorted({store.layout.folder, *(store.layout.file(id).rpartition("/")[0] for id in store.layout.ids())}):
        try:
            names = disk.list(folder)
        except FileNotFoundError:
            continue
        for name in names:
            path = f"{folder}/{name}"
            if not (is_temp(name) or ".damaged-" in name) or disk.kind(path) != "file":
                continue
            with suppress(FileNotFoundError):
                if scrub.in_bytes(read_whole(disk, path)):
                    disk.unlink(path)
                    disk.sync_folder(folder)
                    yield Touched(name.partition(".json")[0], "leftover", path)
