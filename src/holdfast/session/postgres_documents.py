"""A session as a row: its document, the mark that any edit changes, and the line that stands for it in a list."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import replace as changed
from typing import Any

from holdfast.durable import strict_json
from holdfast.durable.postgres import Postgres, Row, Transaction
from holdfast.errors import Damaged, RevisionConflict
from holdfast.session.briefs import brief_of, brief_of_file
from holdfast.session.names import no_session
from holdfast.session.reading import decode_session
from holdfast.session.secrecy import clean_text
from holdfast.session.state import SCHEMA_VERSION, Session
from holdfast.session.store import SessionBrief


def document_mark(data: bytes) -> str:
    """What the server computes for a document as well: another one after any edit."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class Documents:
    """The documents of all sessions."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def place(self, workflow_id: str) -> str:
        """Where a document is kept, for messages."""
        return f"session {workflow_id!r} in {self._database.shown}"

    def ids(self) -> list[str]:
        """The ids of all sessions, sorted."""
        return [id for (id,) in self._database.rows('SELECT id FROM sessions ORDER BY id COLLATE "C"')]

    def exists(self, workflow_id: str) -> bool:
        """Whether there is such a session."""
        return self._database.one("SELECT 1 FROM sessions WHERE id = %s", [workflow_id]) is not None

    def text(self, workflow_id: str) -> str:
        """The document as it stands there. InputError, naming near ones, if there is none."""
        row = self._database.one("SELECT document FROM sessions WHERE id = %s", [workflow_id])
        if row is None:
            raise no_session(workflow_id, self.ids())
        return str(row[0])

    def load(self, workflow_id: str) -> Session:
        """The session; see `SessionStore.load`."""
        row = self._database.one("SELECT document, revision, mark FROM sessions WHERE id = %s", [workflow_id])
        if row is None:
            raise no_session(workflow_id, self.ids())
        document, revision, mark = row
        session = decode_session(document.encode(), self.place(workflow_id))
        if session.workflow_id != workflow_id:
            raise Damaged(
                f"the {self.place(workflow_id)} says that it is {session.workflow_id!r}.",
                path=self.place(workflow_id),
                hint=f"Set workflow_id to {workflow_id!r} in it.",
            )
        return changed(session, revision=int(revision), mark=f"{revision}:{mark}")

    def put(self, step: Transaction, session: Session, data: bytes) -> Session:
        """Write the document in this transaction, in place of what is there, and give it with its mark."""
        document = data.decode()
        mark = document_mark(data)
        line = brief_of(session)
        line = changed(line, error=None if line.error is None else clean_text(line.error))
        brief = strict_json.encode(asdict(line), readable=False).decode()
        step.execute(
            """
            INSERT INTO sessions (id, revision, updated, document, brief, of) VALUES (%s, %s, %s, %s, %s, %s)
            ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, updated = excluded.updated, document = excluded.document,
                brief = excluded.brief, of = excluded.of
            """,
            [session.workflow_id, session.revision, session.updated_at, document, brief, mark],
        )
        step.proof = ("SELECT 1 FROM sessions WHERE id = %s AND revision = %s AND mark = %s", [session.workflow_id, session.revision, mark])
        return changed(session, schema_version=SCHEMA_VERSION, mark=f"{session.revision}:{mark}")

    def compare(self, step: Transaction, session: Session, expect: int) -> None:
        """RevisionConflict unless the row is what `session` was made from. The row is locked until the transaction ends."""
        known = session.mark if session.mark is not None and session.mark.startswith(f"{expect}:") else None
        row = step.one("SELECT revision, mark FROM sessions WHERE id = %s FOR UPDATE", [session.workflow_id])
        if row is None:
            raise no_session(session.workflow_id, self.ids())
        place, (found, mark) = self.place(session.workflow_id), row
        if found != expect:
            raise RevisionConflict(
                f"the {place} has revision {found}, and what is to be written comes from {expect}: somebody else wrote first.",
                path=place,
                expected=expect,
                found=found,
            )
        if known is not None and known != f"{found}:{mark}":
            raise RevisionConflict(f"the {place} was edited since revision {expect} was read.", path=place, expected=expect, found=found)

    def briefs(self) -> list[SessionBrief]:
        """A line for each session, newest first. The document is fetched only where somebody edited it by hand."""
        query = """
            SELECT id, revision, updated, CASE WHEN of = mark THEN brief END, CASE WHEN of IS DISTINCT FROM mark THEN document END
            FROM sessions
        """
        found = [self._brief(row) for row in self._database.rows(query)]
        return sorted(found, key=lambda brief: (brief.updated_at, brief.workflow_id), reverse=True)

    def _brief(self, row: Row) -> SessionBrief:
        workflow_id, revision, updated, brief, document = row
        if isinstance(brief, Mapping):
            known = SessionBrief.__dataclass_fields__
            facts: dict[str, Any] = {name: member for name, member in brief.items() if name in known}
            return SessionBrief(**facts)
        made = brief_of_file(workflow_id, (document or "").encode(), self.place(workflow_id))
        return changed(made, updated_at=made.updated_at or updated, revision=made.revision and int(revision))
