"""Raw data of one session, as an agent reaches it (W10)."""

from __future__ import annotations

import threading

from holdfast.errors import Cancelled, StorageError
from holdfast.session.store import SessionStore
from holdfast.workflow.agent import RawAccess


class SessionRaw(RawAccess):
    """Reads and keeps raw data in the session's store, for one attempt.

    An attempt that was given up (cancelled, timed out) can keep nothing more. A write that failed is remembered, because it stops the
    run even where the agent swallowed it (W15).
    """

    def __init__(self, store: SessionStore, session: str) -> None:
        self._store = store
        self._session = session
        self._given_up = threading.Event()
        self.failure: StorageError | None = None

    def give_up(self) -> None:
        self._given_up.set()

    def put(self, data: bytes | str, *, source: str | None = None, media_type: str | None = None) -> str:
        if self._given_up.is_set():
            raise Cancelled("this attempt at the stage was given up; nothing more is kept of it.", session=self._session)
        kind = media_type or ("text/plain" if isinstance(data, str) else "application/octet-stream")
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        try:
            return self._store.raw_put(self._session, content, media_type=kind, source=source)
        except StorageError as error:
            self.failure = error
            raise

    def get(self, ref: str) -> bytes:
        return self._store.raw_get(self._session, ref).data

    def text(self, ref: str) -> str:
        return self._store.raw_get(self._session, ref).text()
