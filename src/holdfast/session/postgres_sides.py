"""What belongs to a session beside its state, as rows: recovery points, raw data, and the Markdown of its stages."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.durable.postgres import Postgres, Transaction, lock_key
from holdfast.errors import Damaged, InputError
from holdfast.redaction import redact_text
from holdfast.session.names import check_checkpoint_name, near, stage_folder
from holdfast.session.postgres_documents import document_mark
from holdfast.session.raw import find_ref, ref_of
from holdfast.session.reading import decode_session
from holdfast.session.state import Session
from holdfast.session.store import CheckpointBrief, RawData
from holdfast.session.writing import SessionWriter


class Checkpoints:
    """The recovery points of all sessions. Each is the whole document of then; the server compresses it."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def add(self, step: Transaction, session: Session, name: str, at: str, writer: SessionWriter) -> None:
        """Keep this state under that name. Where it is the one that was committed last, the server copies it by itself."""
        check_checkpoint_name(name)
        workflow_id = session.workflow_id
        step.execute("DELETE FROM session_checkpoints WHERE session = %s AND name = %s", [workflow_id, name])
        facts = [workflow_id, name, at, session.revision, session.status, session.current_stage, len(session.completed_stages)]
        columns = "INSERT INTO session_checkpoints (session, name, at, revision, status, current_stage, completed, document)"
        data = writer.encode(session)
        same = "SELECT %s, %s, %s, %s, %s, %s, %s, document FROM sessions WHERE id = %s AND mark = %s"
        copied = step.execute(f"{columns} {same}", [*facts, workflow_id, document_mark(data)])
        if not copied.rowcount:
            step.execute(f"{columns} VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", [*facts, data.decode()])
        step.proof = ("SELECT 1 FROM session_checkpoints WHERE session = %s AND name = %s AND at = %s", [workflow_id, name, at])

    def briefs(self, workflow_id: str) -> list[CheckpointBrief]:
        """All points, oldest first."""
        query = "SELECT name, at, revision, status, current_stage, completed FROM session_checkpoints WHERE session = %s ORDER BY number"
        return [CheckpointBrief(*row) for row in self._database.rows(query, [workflow_id])]

    def load(self, workflow_id: str, name: str) -> Session:
        """The state that was kept under that name. InputError if there is none, Damaged if it cannot be read."""
        check_checkpoint_name(name)
        query = "SELECT document FROM session_checkpoints WHERE session = %s AND name = %s"
        row = self._database.one(query, [workflow_id, name])
        if row is None:
            names = [brief.name for brief in self.briefs(workflow_id)]
            raise InputError(f"there is no recovery point {name!r}.", hint=near(name, reversed(names)))
        return decode_session(row[0].encode(), f"the recovery point {name!r} of {workflow_id!r} in {self._database.shown}")

    def prune(self, step: Transaction, workflow_id: str, keep: int) -> int:
        """Remove all but the newest `keep`."""
        newest = "SELECT number FROM session_checkpoints WHERE session = %s ORDER BY number DESC LIMIT %s"
        gone = step.execute(
            f"DELETE FROM session_checkpoints WHERE session = %s AND number NOT IN ({newest})",  # noqa: S608 - both are ours
            [workflow_id, workflow_id, max(keep, 0)],
        )
        return int(gone.rowcount)


class RawRows:
    """The raw data of all sessions: bytes once, and what each session knows of them."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def put(self, workflow_id: str, data: bytes, media_type: str, source: str | None, at: str) -> str:
        """Keep the bytes and the note about them, in one step."""
        ref = ref_of(data)
        with self._database.transaction(self._lock(ref)) as step:
            if step.one("SELECT 1 FROM session_blobs WHERE ref = %s", [ref]) is None:
                step.execute("INSERT INTO session_blobs (ref, data) VALUES (%s, %s)", [ref, data])
            step.execute(
                "INSERT INTO session_raw (session, ref, media_type, source, at) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                [workflow_id, ref, _clean(media_type), _clean(redact_text(source)) if source is not None else None, at],
            )
            step.proof = ("SELECT 1 FROM session_raw WHERE session = %s AND ref = %s", [workflow_id, ref])
        return ref

    def get(self, workflow_id: str, ref: str) -> RawData:
        """The bytes with what is known of them. A prefix is enough if only one reference begins with it."""
        full = find_ref(ref, lambda: self.refs(workflow_id))
        row = self._database.one(
            """
            SELECT b.data, r.media_type, r.source, r.at FROM session_raw r JOIN session_blobs b USING (ref)
            WHERE r.session = %s AND r.ref = %s ORDER BY r.number DESC LIMIT 1
            """,
            [workflow_id, full],
        )
        if row is None:
            raise InputError(f"the raw data {full} was removed just now.")
        data = bytes(row[0])
        if ref_of(data) != full:
            raise Damaged(f"the bytes of {full} in {self._database.shown} are not what they were.", path=self._database.shown)
        return RawData(full, data, row[1], row[2], row[3])

    def refs(self, workflow_id: str) -> list[str]:
        """All references, sorted."""
        query = 'SELECT DISTINCT ref COLLATE "C" FROM session_raw WHERE session = %s ORDER BY 1'
        return [ref for (ref,) in self._database.rows(query, [workflow_id])]

    def copy(self, step: Transaction, old: str, new: str) -> None:
        """Let another session refer to the same bytes."""
        step.execute(
            """
            INSERT INTO session_raw (session, ref, media_type, source, at)
            SELECT %s, ref, media_type, source, at FROM session_raw WHERE session = %s ORDER BY number ON CONFLICT DO NOTHING
            """,
            [new, old],
        )

    def remove(self, step: Transaction, workflow_id: str, ref: str | None = None) -> None:
        """Remove what a session knows of a reference, or of all, and the bytes that no session refers to any more."""
        query = "DELETE FROM session_raw WHERE session = %s AND (ref = %s OR %s::text IS NULL) RETURNING ref"
        gone = sorted({one for (one,) in step.rows(query, [workflow_id, ref, ref])})
        for one in gone:  # who puts the same bytes meanwhile must not find them, and then lose them
            step.execute("SELECT pg_advisory_xact_lock(%s)", [self._lock(one)])
            unused = "DELETE FROM session_blobs b WHERE ref = %s AND NOT EXISTS (SELECT 1 FROM session_raw r WHERE r.ref = b.ref)"
            step.execute(unused, [one])

    def _lock(self, ref: str) -> int:
        return lock_key(self._database.schema, "raw", ref)


class StageFiles:
    """What stages were given and wrote, by the name of a file below `stages/`."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def write(self, workflow_id: str, number: int, stage: str, texts: Mapping[str, str]) -> dict[str, str]:
        """Keep texts of one stage, and give them by the names of their files."""
        folder = stage_folder(number, stage)
        named = {f"{folder}/{name}.md": _clean(text) for name, text in texts.items()}
        with self._database.transaction() as step:
            for name, text in named.items():
                step.execute(
                    """
                    INSERT INTO session_files (session, name, text) VALUES (%s, %s, %s)
                    ON CONFLICT (session, name) DO UPDATE SET text = excluded.text
                    """,
                    [workflow_id, name, text],
                )
        return named

    def texts(self, workflow_id: str) -> dict[str, str]:
        """All texts of a session by the names of their files, sorted."""
        query = 'SELECT name, text FROM session_files WHERE session = %s ORDER BY name COLLATE "C"'
        return dict(self._database.rows(query, [workflow_id]))

    def copy(self, step: Transaction, old: str, new: str) -> None:
        """Give another session the same texts."""
        query = "INSERT INTO session_files SELECT %s, name, text FROM session_files WHERE session = %s ON CONFLICT DO NOTHING"
        step.execute(query, [new, old])


def _clean(text: str) -> str:
    """A text as the server can keep it: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
