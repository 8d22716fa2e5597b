"""Forgetting a text in everything that the PostgreSQL store keeps: states, recovery points, raw data, stage files, what was set aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import Damaged, InputError, Locked, StorageError
from holdfast.session.forgetting import Scrub
from holdfast.session.reading import decode_session
from holdfast.session.store import Touched
from holdfast.session.writing import SessionWriter

if TYPE_CHECKING:
    from holdfast.session.postgres import PostgresSessionStore

_OWNERS = """
SELECT id FROM sessions UNION SELECT session FROM session_checkpoints UNION SELECT session FROM session_raw
UNION SELECT session FROM session_files UNION SELECT session FROM session_damaged ORDER BY 1
"""


def forget_in_database(store: PostgresSessionStore, text: str) -> list[Touched]:
    """Take the text out of all sessions; see `SessionStore.forget_text`."""
    Scrub(text)  # refuses an empty one before anything is read
    touched: list[Touched] = []
    for (workflow_id,) in store.database.rows(_OWNERS):
        one = _Session(store, workflow_id, text)
        if not one.shows():
            continue
        try:
            with store.hold(workflow_id, owner="forget"):
                touched += one.forget()
        except Locked as error:
            why = f"it is being run by {error.owner or 'somebody else'}; forget again when it has ended"
            touched.append(Touched(workflow_id, "session", store.documents.place(workflow_id), 0, done=False, why=why))
    return touched


class _Session:
    """One session, held while it is changed."""

    def __init__(self, store: PostgresSessionStore, workflow_id: str, text: str) -> None:
        self.store = store
        self.id = workflow_id
        self.text = text

    def shows(self) -> bool:
        """Whether anything of it holds the text. Reads everything and changes nothing, so that most sessions need no lock."""
        scrub, rows = Scrub(self.text), self.store.database.rows
        texts = rows(
            """
            SELECT document FROM sessions WHERE id = %s UNION ALL SELECT document FROM session_checkpoints WHERE session = %s
            UNION ALL SELECT text FROM session_files WHERE session = %s UNION ALL SELECT document FROM session_damaged WHERE session = %s
            UNION ALL SELECT media_type || ' ' || coalesce(source, '') FROM session_raw WHERE session = %s
            """,
            [self.id] * 5,
        )
        return any(scrub.in_bytes(text.encode()) for (text,) in texts) or any(_holds(data, scrub) for _, data in self._blobs())

    def forget(self) -> list[Touched]:
        return [*self._state(), *self._points(), *self._raw(), *self._files(), *self._damaged()]

    def _state(self) -> Iterator[Touched]:
        place, scrub = self.store.documents.place(self.id), Scrub(self.text)
        try:
            session = self.store.load(self.id)
        except InputError:
            return  # only what belonged to it is left
        except (Damaged, StorageError) as error:
            if scrub.in_bytes(self.store.documents.text(self.id).encode()):
                yield Touched(self.id, "session", place, 0, done=False, why=f"it cannot be read: {error.message}")
            return
        after = scrub.session(session)
        if scrub.count:
            self.store.commit(after, expect=session.revision)
            yield Touched(self.id, "session", place, scrub.count)

    def _points(self) -> Iterator[Touched]:
        count = 0
        with self.store.writing(self.id) as step:
            rows = step.rows("SELECT number, name, document FROM session_checkpoints WHERE session = %s ORDER BY number", [self.id])
            for number, name, document in rows:
                scrub = Scrub(self.text)
                if not scrub.in_bytes(document.encode()):
                    continue
                try:
                    session = scrub.session(decode_session(document.encode(), f"the recovery point {name!r}"))
                except StorageError:  # nobody can restore it: it goes as a whole
                    step.execute("DELETE FROM session_checkpoints WHERE number = %s", [number])
                else:
                    rest = SessionWriter().encode(session).decode()
                    step.execute("UPDATE session_checkpoints SET document = %s WHERE number = %s", [rest, number])
                count += max(scrub.count, 1)
        if count:
            yield Touched(self.id, "checkpoint", f"recovery points of {self.store.documents.place(self.id)}", count)

    def _raw(self) -> Iterator[Touched]:
        scrub = Scrub(self.text)
        for ref, data in self._blobs():
            if _holds(data, scrub):
                with self.store.writing(self.id) as step:
                    self.store.raw.remove(step, self.id, ref)
                yield Touched(self.id, "raw data", ref)
        yield from self._notes(scrub)

    def _notes(self, scrub: Scrub) -> Iterator[Touched]:
        """What is known of bytes that stay: where it holds the text, they are known without a name and a source."""
        notes = self.store.database.rows("SELECT number, ref, media_type, source FROM session_raw WHERE session = %s", [self.id])
        for number, ref, media_type, source in notes:
            if scrub.in_value([media_type, source]):
                with self.store.writing(self.id) as step:
                    step.execute("DELETE FROM session_raw WHERE number = %s", [number])
                    unnamed = "INSERT INTO session_raw (session, ref, media_type, at) VALUES (%s, %s, %s, '') ON CONFLICT DO NOTHING"
                    step.execute(unnamed, [self.id, ref, "application/octet-stream"])
                yield Touched(self.id, "raw data", f"what was known of {ref}")

    def _files(self) -> Iterator[Touched]:
        for name, text in self.store.files.texts(self.id).items():
            scrub = Scrub(self.text)
            if not scrub.in_bytes(text.encode()):
                continue
            rest = scrub.text(text)
            with self.store.writing(self.id) as step:
                step.execute("UPDATE session_files SET text = %s WHERE session = %s AND name = %s", [rest, self.id, name])
            if self.store.export is not None:
                self.store.export.write_stages(self.id, {name: rest})
            yield Touched(self.id, "stage file", f"stages/{name} of {self.store.documents.place(self.id)}", max(scrub.count, 1))

    def _damaged(self) -> Iterator[Touched]:
        scrub = Scrub(self.text)
        for number, document in self.store.database.rows("SELECT number, document FROM session_damaged WHERE session = %s", [self.id]):
            if scrub.in_bytes(document.encode()):
                with self.store.writing(self.id) as step:
                    step.execute("DELETE FROM session_damaged WHERE number = %s", [number])
                yield Touched(self.id, "leftover", f"session_damaged, number {number}")

    def _blobs(self) -> Iterator[tuple[str, bytes]]:
        for ref in self.store.raw.refs(self.id):
            with suppress(InputError, Damaged):
                yield ref, self.store.raw.get(self.id, ref).data


def _holds(data: bytes, scrub: Scrub) -> bool:
    return scrub.in_bytes(data) or scrub.in_text(data.decode("utf-16", "ignore") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "")
