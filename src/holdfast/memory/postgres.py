"""Memory documents in PostgreSQL, with their history and quarantine, shared by many machines (M5, M6, M7).

A change is one transaction: document, history and quarantine change together or not at all, so nothing has to be finished after a crash.
Who changes a scope holds its advisory lock and its row, so that neither another process nor somebody with SQL is overwritten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.durable.postgres import Postgres, Row, Transaction, lock_key, scripts
from holdfast.durable.postgres_connection import driver
from holdfast.errors import Damaged, RevisionConflict
from holdfast.memory.changing import Edit, MemoryDamaged, StorageState
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.history import Change, Changes
from holdfast.memory.postgres_rows import PostgresChanges, PostgresHolding, decoded, encoded
from holdfast.memory.quarantine import Holding, held_from
from holdfast.memory.scopes import Scopes, check_agent, scope_name
from holdfast.memory.storage import WholeDocuments

_Mark = tuple[Any, ...]
# xmin and ctid are other ones after any update, also after one that somebody made by hand and that left the revision as it was
_MARK = "SELECT xmin::text, ctid::text, revision FROM memory_documents WHERE scope = %s"
_READ = "SELECT xmin::text, ctid::text, revision, document::text FROM memory_documents WHERE scope = %s"


class _Here(threading.local):
    """What this thread is in the middle of."""

    step: Transaction | None = None
    mark: _Mark | None = None
    written: tuple[str, _Mark, Document] | None = None
    told: tuple[MemoryDamaged, ...] = ()


class PostgresMemoryStorage(WholeDocuments):
    """One row for each scope, changed in one transaction with its history and quarantine, under a lock that machines share.

    `database` is an address, or a `Postgres` that is open already. Reads come from a cache and cost one small query that notices any other
    writer. A document that cannot be read is moved to another table and reported. The queue of conversations stays on the machine that
    heard them.
    """

    def __init__(self, scopes: Scopes | str | Path, database: str | Postgres, *, schema: str = "holdfast", **settings: Any) -> None:
        super().__init__(scopes if isinstance(scopes, Scopes) else Scopes.below(scopes), **settings)
        self.state = StorageState(kind="postgres")
        self._given = database
        self._schema = schema
        self._database: Postgres | None = None
        self._opening = threading.Lock()
        self._cache: dict[str, tuple[_Mark, Document]] = {}
        self._here = _Here()

    @property
    def database(self) -> Postgres:
        """The database, with its tables in their newest form; reached when it is first needed."""
        with self._opening:
            if self._database is None:
                given = self._given
                patience = 60.0 if self._timeout is None else self._timeout
                opened = (
                    Postgres(given, schema=self._schema, base=self.scopes.base, lock_timeout=patience, clock=self.clock)
                    if isinstance(given, str)
                    else given
                )
                opened.migrate("memory", scripts("holdfast.memory"))
                self._database = opened
            return self._database

    def close(self) -> None:
        """Close the connections, where they are ours; the next use opens them again."""
        with self._opening:
            opened, self._database = self._database, None
        if opened is not None and opened is not self._given:
            opened.close()

    def forget_cached(self) -> None:
        self._cache.clear()

    # What Store needs

    def own(self, agent: str | None = None) -> Document | None:
        scope = check_agent(agent) or ""
        row = self._one(_MARK, [scope])
        if row is None:
            self._cache.pop(scope, None)
            return None
        held = self._cache.get(scope)
        if held is not None and held[0] == row:
            return held[1]
        try:
            return self._read(scope, self._one(_READ, [scope]))
        except Damaged:
            if self._here.step is not None:
                return self.fresh(agent)[0]
            with self.locked(agent):
                return self.fresh(agent)[0]

    def where(self, agent: str | None = None) -> str:
        return f"{self.database.shown} ({scope_name(check_agent(agent))})"

    def fresh(self, agent: str | None) -> tuple[Document | None, object]:
        scope = agent or ""
        row = self._step.one(f"{_READ} FOR UPDATE", [scope])
        self._here.mark = row and row[:3]
        held = self._cache.get(scope)
        if row is not None and held is not None and held[0] == self._here.mark:
            return held[1], self._here.mark
        try:
            return self._read(scope, row), self._here.mark
        except Damaged as error:
            self._set_row_aside(scope, error)
            self._here.mark = None
            return None, None

    def mark(self, agent: str | None) -> object:
        return self._here.mark  # the row is locked: nobody has written since

    def put(self, agent: str | None, document: Document) -> None:
        scope = agent or ""
        text = encoded(to_json(document))
        if self._here.mark is not None:
            query = "UPDATE memory_documents SET revision = %s, document = %s, written = now() WHERE scope = %s"
        else:
            query = "INSERT INTO memory_documents (revision, document, scope) VALUES (%s, %s, %s)"
        try:
            row = self._step.one(f"{query} RETURNING xmin::text, ctid::text", [document.revision, text, scope])
        except driver().errors.UniqueViolation as error:
            raise RevisionConflict(f"{self.where(agent)} was just written by somebody else.", path=self.where(agent)) from error
        if row is not None:
            self._here.mark = (*row, document.revision)
            self._here.written = (scope, self._here.mark, document)

    def change(self, agent: str | None, edit: Callable[[Document], Edit | None]) -> Change | None:
        self.own(agent)  # sets aside what is damaged, which must not be rolled back when `edit` refuses
        return super().change(agent, edit)

    def all_scopes(self) -> Iterator[str | None]:
        yield None
        found = "SELECT scope FROM memory_documents UNION SELECT scope FROM memory_changes UNION SELECT scope FROM memory_held ORDER BY 1"
        yield from (scope for (scope,) in self._rows(found) if scope)

    def history(self, agent: str | None = None) -> Changes:
        return PostgresChanges(check_agent(agent) or "", self._rows, self.joined)

    def quarantine(self, agent: str | None = None) -> Holding:
        return PostgresHolding(check_agent(agent) or "", self._rows, self.joined)

    @contextmanager
    def locked(self, agent: str | None) -> Iterator[None]:
        """Keeps every other writer of the scope out, and makes one transaction of what is done inside. Not reentrant."""
        here, scope = self._here, check_agent(agent) or ""
        try:
            with self.database.transaction(lock_key(self._schema, "memory", scope)) as step:
                here.step = step
                yield
            if here.written is not None:  # only now: a mark of a transaction that came to nothing may be given to another one
                self._cache[here.written[0]] = here.written[1:]
            for event in here.told:
                self.state = replace(self.state, set_aside=(*self.state.set_aside, event.aside))
                self.bus.emit(event)
        finally:
            here.step, here.mark, here.written, here.told = None, None, None, ()

    @contextmanager
    def joined(self) -> Iterator[Transaction]:
        """The transaction that this thread is in, or one of its own."""
        if self._here.step is not None:
            yield self._here.step
            return
        with self.database.transaction() as step:
            yield step

    def recover(self, agent: str | None = None) -> None:
        """Nothing to be done: a transaction that was not committed never was."""
        check_agent(agent)

    def finish_pending(self, agent: str | None) -> None:
        """Nothing to be done: a transaction that was not committed never was."""

    def _carry_out(self, agent: str | None, wish: Edit, change: Change) -> None:
        self.history(agent).append(change)
        self._hold(agent, wish.held, wish.released)
        if change.differences:  # a change of the quarantine alone leaves the document, and its revision, as they are
            self.put(agent, replace(wish.document, revision=change.revision, updated=change.time))

    # What cannot be read

    def set_aside_quarantine(self, agent: str | None, error: Damaged) -> None:
        scope = agent or ""
        for number, text in self._step.rows("SELECT number, held::text FROM memory_held WHERE scope = %s", [scope]):
            try:
                held_from(decoded(text))
            except Damaged as broken:
                self._keep_aside(scope, "quarantine", text, broken)
                self._step.execute("DELETE FROM memory_held WHERE number = %s", [number])

    def remove_leavings(self, agent: str | None, which: Callable[[bytes], bool]) -> int:
        rows = self._step.rows("SELECT number, content FROM memory_damaged WHERE scope = %s", [agent or ""])
        gone = [number for number, content in rows if which(content.encode())]
        self._step.execute("DELETE FROM memory_damaged WHERE number = ANY(%s)", [gone])
        return len(gone)

    def _set_row_aside(self, scope: str, error: Damaged) -> None:
        row = self._step.one("DELETE FROM memory_documents WHERE scope = %s RETURNING document::text", [scope])
        self._keep_aside(scope, "document", row[0] if row else "", error)

    def _keep_aside(self, scope: str, kind: str, content: str, error: Damaged) -> None:
        kept = "INSERT INTO memory_damaged (scope, kind, reason, content) VALUES (%s, %s, %s, %s) RETURNING number"
        row = self._step.one(kept, [scope, kind, error.message, content])
        aside = f"{self._schema}.memory_damaged, number {row[0] if row else '?'}"
        path = f"{kind} of {scope_name(scope or None)} in {self.database.shown}"
        self._here.told = (*self._here.told, MemoryDamaged(path=path, aside=aside, reason=error.message))

    # Reading

    @property
    def _step(self) -> Transaction:
        if self._here.step is None:
            raise RuntimeError("this is done under the scope's lock only")
        return self._here.step

    def _rows(self, query: str, values: Sequence[Any] | None = None) -> list[Row]:
        step = self._here.step
        return self.database.rows(query, values) if step is None else step.rows(query, values)

    def _one(self, query: str, values: Sequence[Any]) -> Row | None:
        return next(iter(self._rows(query, values)), None)

    def _read(self, scope: str, row: Row | None) -> Document | None:
        if row is None:
            return None
        document = parse(decoded(row[3]), path=f"the {scope_name(scope or None)} memory in {self.database.shown}")
        document = replace(document, revision=int(row[2])) if document.revision != row[2] else document
        if self._here.step is None:  # what a transaction of ours reads may never be committed
            self._cache[scope] = (row[:3], document)
        return document
