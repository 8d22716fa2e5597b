"""The contract of a session store. Its docstrings are the promises, and `tests/contract/test_session_store.py` holds every store to them.

A session is a value: `load`, make a changed copy, `commit` it with the revision that it came from. Who runs a session holds it
meanwhile (`hold`), so that two processes never run one session at once; committing does not need that, only the right revision.
"""

from __future__ import annotations

import builtins
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol

from holdfast.session.state import Session, Status


@dataclass(frozen=True, slots=True)
class SessionBrief:
    """A line of a list of sessions. A damaged one has a `problem` and what could still be read."""

    workflow_id: str
    task: str = ""
    status: Status | None = None
    current_stage: str | None = None
    next_stage: str | None = None
    completed: int = 0
    total: int | None = None
    """How many stages there are; None when the file does not hold the workflow."""
    created_at: str = ""
    updated_at: str = ""
    revision: int = 0
    error: str | None = None
    """Why it stands still, in one line."""
    problem: str | None = None
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who runs a session: a name, the machine, the process, since when, and the last sign of life."""

    name: str
    host: str
    pid: int
    since: str
    heartbeat: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid} on {self.host}, since {self.since}, last sign of life {self.heartbeat})"


@dataclass(frozen=True, slots=True)
class Held:
    """The right to run a session, inside the `with`. `taken_over` is the owner that died without giving it back, if there was one."""

    workflow_id: str
    owner: Owner
    taken_over: Owner | None = None


@dataclass(frozen=True, slots=True)
class CheckpointBrief:
    """A recovery point in a list."""

    name: str
    at: str
    revision: int
    status: Status
    current_stage: str | None
    completed: int


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


@dataclass(frozen=True, slots=True)
class Touched:
    """A place that forgetting a text reached. `done` is False where it could not be taken out, and `why` says the reason."""

    session: str
    kind: Literal["session", "checkpoint", "raw data", "stage file", "leftover"]
    place: str
    count: int = 1
    done: bool = True
    why: str = ""


class SessionStore(Protocol):
    """Keeps sessions. Safe for many threads and processes.

    Every method that takes an id raises InputError for one that no session may have, and, where it needs an existing session, for
    one that is not there, naming near ones. Whatever fails on the medium is a StorageError at that moment (W15): DiskFull,
    NotWritable, SyncFailed, StoreUnavailable; then the old state stands.
    """

    def create(self, session: Session) -> Session:
        """Keep a new session, durably, and return it as revision 1. InputError if the id exists."""

    def load(self, workflow_id: str) -> Session:
        """The session as it is now, also when a person edited it.

        Damaged, with line and column or the place in the document, when it cannot be read: nothing is overwritten then.
        """

    def commit(self, session: Session, *, expect: int) -> Session:
        """Write durably, then return it with revision `expect + 1` and the time: what was returned survives a power cut.

        RevisionConflict if somebody else wrote first, or edited what `session` was read from; nothing is written then. Never leaves a
        mix of old and new: a reader at any moment finds one of the two.
        """

    def list(self) -> builtins.list[SessionBrief]:
        """All sessions, newest first. A damaged one is listed with its problem."""

    def new_session_id(self, workflow_id: str, day: date) -> str:
        """An id `{workflow_id}-{date}-{nnn}` that nobody has and nobody else is given, also not in another process (W2)."""

    def hold(self, workflow_id: str, *, owner: str | None = None) -> AbstractContextManager[Held]:
        """The right to run this session, inside the `with`. Locked, naming the owner, while a live one has it.

        An owner that died is taken over at once; one that lives never is. Not reentrant. `owner` is a name to show; by default that of
        this process. The session need not exist yet.
        """

    def owner(self, workflow_id: str) -> Owner | None:
        """Who holds it now. None if nobody does, or if the owner died."""

    def request_cancel(self, workflow_id: str) -> None:
        """Ask whoever runs it to stop. Stays until `clear_cancel`."""

    def cancel_requested(self, workflow_id: str) -> bool:
        """Whether somebody asked. Cheap enough to be asked several times a second."""

    def clear_cancel(self, workflow_id: str) -> None:
        """Forget the request. Harmless when there is none."""

    def checkpoint(self, session: Session, name: str) -> None:
        """Keep this state as a recovery point of that name, durably. One of the same name is replaced.

        Names have 1 to 128 ASCII letters, digits, dots, hyphens and underscores.
        """

    def checkpoints(self, workflow_id: str) -> builtins.list[CheckpointBrief]:
        """The recovery points, oldest first."""

    def load_checkpoint(self, workflow_id: str, name: str) -> Session:
        """The session as it was then. InputError, naming the ones there are, if there is none of this name."""

    def prune_checkpoints(self, workflow_id: str, *, keep: int) -> int:
        """Remove all recovery points but the newest `keep`, and say how many went."""

    def restore(self, workflow_id: str, name: str) -> Session:
        """Make the recovery point the current state, as a new revision, and return it.

        What was current is kept first as the recovery point `before-restore-NNN`; a current state that cannot be read is set aside as
        it is. Stage outputs that came later are gone from the state, not from the recovery points. A halt or pause of then holds again.
        """

    def fork(self, workflow_id: str, new_id: str, *, checkpoint: str | None = None) -> Session:
        """A new session from the current state or a recovery point of another, with `lineage` {from, checkpoint, revision, at}.

        It has its own recovery points, and every raw reference of the old one works in it. InputError if `new_id` exists.
        """

    def close(self) -> None:
        """Give back connections. Harmless when called twice; what is used afterwards is opened again."""

    def remove(self, workflow_id: str) -> None:
        """Remove the session with its recovery points, raw data and files. Locked while somebody runs it."""

    def raw_put(self, workflow_id: str, data: bytes, *, media_type: str = "text/plain", source: str | None = None) -> str:
        """Keep the bytes, durably, and give their reference `raw:sha256-<hex>`. The same bytes are kept once (W10)."""

    def raw_get(self, workflow_id: str, ref: str) -> RawData:
        """The bytes. A prefix is enough if only one reference begins with it. InputError if there is none, Damaged if they changed."""

    def raw_list(self, workflow_id: str) -> builtins.list[str]:
        """All references of this session, sorted."""

    def write_stage_files(
        self, workflow_id: str, number: int, stage: str, *, context: str | None = None, output: str | None = None
    ) -> None:
        """Keep what a stage was given and what it wrote as Markdown, `stages/NN-name/{context,output}.md` (W7).

        Each is written whole or not at all. They are copies for people: after a power cut the newest may be missing.
        """

    def forget_text(self, text: str) -> builtins.list[Touched]:
        """Take a text out of every session, recovery point, raw data and file, and say what was touched (M14).

        It is found in any case, style of quotes and spacing. Of a text the sentences that hold it go; findings and raw data go as a whole.
        A session that is being run, or is damaged, is not changed, and reported so.
        """
