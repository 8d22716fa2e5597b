"""The history and the quarantine of one scope as rows of PostgreSQL. What is written belongs to the transaction that changes the scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from holdfast.durable import strict_json
from holdfast.durable.postgres import Row, Transaction
from holdfast.durable.records import Damage
from holdfast.errors import Damaged
from holdfast.memory.history import Change, from_record, to_record
from holdfast.memory.quarantine import LIMIT, Held, held_from, held_to_json, is_same

Ask = Callable[[str, Sequence[Any]], list[Row]]
Join = Callable[[], AbstractContextManager[Transaction]]


def encoded(value: Any) -> str:
    """A value as JSON for a column."""
    return strict_json.encode(value, readable=False).decode()


def decoded(text: str) -> Any:
    """The value in a column. Damaged if it is not strict JSON."""
    return strict_json.decode(text.encode())


class PostgresChanges:
    """The changes of one scope. `ask` reads, `join` gives the transaction that the thread is in."""

    def __init__(self, scope: str, ask: Ask, join: Join) -> None:
        self._scope = scope
        self._ask = ask
        self._join = join

    def append(self, change: Change) -> None:
        """Write a change down. From then on it proves that the transaction was committed."""
        with self._join() as step:
            step.execute(
                "INSERT INTO memory_changes (scope, id, item, time, record) VALUES (%s, %s, %s, %s, %s)",
                [self._scope, change.id, change.item, change.time, encoded(to_record(change))],
            )
            step.proof = ("SELECT 1 FROM memory_changes WHERE scope = %s AND id = %s", [self._scope, change.id])

    def changes(self) -> list[Change]:
        """All changes, oldest first. What is damaged is left out; `damage` names it."""
        return [found for _, found, _ in self._scan() if isinstance(found, Change)]

    def has(self, id: str) -> bool:
        """Whether the change of this id is written down."""
        return bool(self._ask("SELECT 1 FROM memory_changes WHERE scope = %s AND id = %s", [self._scope, id]))

    def has_item(self, item: str) -> bool:
        """Whether an update of the queue has been applied."""
        return bool(self._ask("SELECT 1 FROM memory_changes WHERE scope = %s AND item = %s", [self._scope, item]))

    def damage(self) -> list[Damage]:
        """The rows that do not check out; their position is their number."""
        return [Damage(number, len(text), found.message) for number, found, text in self._scan() if isinstance(found, Damaged)]

    def rewrite(self, keep: Callable[[Change], Change | None]) -> int:
        """Put another version of each change in its place, or (None) take it out; says how many are different. What is damaged goes."""
        touched = 0
        with self._join() as step:
            for number, found, _ in list(self._scan()):
                after = keep(found) if isinstance(found, Change) else None
                if after is None:
                    step.execute("DELETE FROM memory_changes WHERE number = %s", [number])
                elif after != found:
                    values = [after.item, after.time, encoded(to_record(after)), number]
                    step.execute("UPDATE memory_changes SET item = %s, time = %s, record = %s WHERE number = %s", values)
                touched += isinstance(found, Change) and after != found
        return touched

    def prune(self, before: str) -> int:
        """Take out the changes that are older than this moment (ISO); says how many. They can no longer be undone."""
        return self.rewrite(lambda change: None if change.time < before else change)

    def _scan(self) -> Iterator[tuple[int, Change | Damaged, str]]:
        rows = self._ask("SELECT number, record::text FROM memory_changes WHERE scope = %s ORDER BY number", [self._scope])
        for number, text in rows:
            try:
                yield number, from_record(decoded(text)), text
            except Damaged as error:
                yield number, error, text


class PostgresHolding:
    """The candidates held in one scope."""

    def __init__(self, scope: str, ask: Ask, join: Join) -> None:
        self._scope = scope
        self._ask = ask
        self._join = join

    def held(self) -> list[Held]:
        """All that wait, oldest first. Damaged if one of them cannot be read."""
        rows = self._ask("SELECT held::text FROM memory_held WHERE scope = %s ORDER BY number", [self._scope])
        return [held_from(decoded(text)) for (text,) in rows]

    def hold(self, new: Iterable[Held]) -> None:
        """Add candidates. One that is there already (same id, or the same words for the same reason) is not held twice."""
        held = self.held()
        with self._join() as step:
            for one in new:
                if not any(is_same(other, one) for other in held):
                    held.append(replace(one))
                    values = [self._scope, one.id, encoded(held_to_json(one))]
                    step.execute("INSERT INTO memory_held (scope, id, held) VALUES (%s, %s, %s)", values)
            if len(held) > LIMIT:
                oldest = "SELECT number FROM memory_held WHERE scope = %s ORDER BY number DESC OFFSET %s"
                step.execute(f"DELETE FROM memory_held WHERE number IN ({oldest})", [self._scope, LIMIT])  # noqa: S608 - both are ours

    def release(self, ids: Iterable[str]) -> list[Held]:
        """Take candidates out, accepted or rejected, and give them back."""
        wanted = set(ids)
        return self.drop(lambda one: one.id in wanted)

    def drop(self, which: Callable[[Held], bool]) -> list[Held]:
        """Take out every candidate that fits, and give them back."""
        gone = [one for one in self.held() if which(one)]
        if gone:
            with self._join() as step:
                step.execute("DELETE FROM memory_held WHERE scope = %s AND id = ANY(%s)", [self._scope, [one.id for one in gone]])
        return gone
