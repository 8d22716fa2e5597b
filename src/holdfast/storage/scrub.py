"""Taking a text out of everything that is kept: one loop over all keys, whatever room they belong to (M14).

    for touched in scrub(backend, Needle("Elm Street 5"), rules):
        print(touched.where, touched.count if touched.done else touched.why)

A room says by rules how its own keys are cleaned so that they still fit their contract. What nobody has a rule for is cleaned in a general
way, so a new kind of data is forgotten from its first day. What could not be reached is said, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.durable import strict_json
from holdfast.durable.folder import matches
from holdfast.errors import Damaged, Locked, RevisionConflict, StorageError
from holdfast.storage.backend import Backend, Delete, Item, Put

_TRIES = 5
_SQLITE = b"SQLite format 3\0"


class Needle(Protocol):
    """What is to be forgotten; see `holdfast.text.needle`."""

    def in_text(self, text: str) -> bool:
        """Whether the text holds it."""

    def in_value(self, value: Any) -> bool:
        """Whether it stands anywhere in a JSON value."""

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes show it."""

    def in_file(self, data: bytes) -> bool:
        """Whether a file holds it."""

    def without(self, text: str) -> str:
        """The text without the sentences that hold it."""

    def out_of(self, value: Any, fixed: Collection[str] = ()) -> tuple[Any, int]:
        """A JSON value without it, and how many texts lost something."""


@dataclass(frozen=True)
class Touched:
    """A key that held the text: how much went or, if not `done`, why it is still there."""

    key: str
    where: str
    count: int = 1
    done: bool = True
    why: str = ""


@dataclass(frozen=True)
class Rule:
    """How keys that fit `pattern` are cleaned (`*` stands for one part of a key, `**` for any number of parts).

    `document` and `record` give the cleaned one, or None if it goes as a whole; without them the general way is used. `lease` names the
    lease that must be held meanwhile, so that nothing is changed under somebody's hands. With `leave` such keys are not looked at: what is
    in them is forgotten by other means.
    """

    pattern: str
    document: Callable[[bytes, Needle], bytes | None] | None = None
    record: Callable[[Mapping[str, Any], Needle], Mapping[str, Any] | None] | None = None
    lease: Callable[[str], str] | None = None
    leave: bool = False

    def fits(self, key: str) -> bool:
        """Whether this rule is about that key."""
        return matches(self.pattern.split("/"), key.split("/"))


_GENERAL = Rule("**")
DATABASES = (Rule("**/*.db", leave=True), Rule("**/*.sqlite", leave=True))
"""SQLite files: their own rooms forget in them."""


def scrub(backend: Backend, needle: Needle, rules: Sequence[Rule] = (), *, prefix: str = "", dry_run: bool = False) -> Iterator[Touched]:
    """Take the text out of every key below `prefix`, and say of each that held it what was done. The first rule that fits counts.

    What was interrupted is done again by asking again. With `dry_run` nothing is changed.
    """
    for item in [*backend.list(prefix)]:
        rule = next((one for one in (*rules, *DATABASES) if one.fits(item.key)), _GENERAL)
        if rule.leave:
            continue
        yield from _Scrubbing(backend, needle, rule, dry_run=dry_run).scrub(item)
    if not dry_run:
        for name in backend.sweep(prefix, holding=needle.in_bytes):
            yield Touched(name, name)


class _Scrubbing:
    """One key by one rule."""

    def __init__(self, backend: Backend, needle: Needle, rule: Rule, *, dry_run: bool) -> None:
        self.backend = backend
        self.needle = needle
        self.rule = rule
        self.dry_run = dry_run

    def scrub(self, item: Item) -> Iterator[Touched]:
        where = self.backend.where(item.key)
        try:
            count = self._count(item, self._look)
            if count and not self.dry_run:
                with self._leased(item.key):
                    count = self._count(item, self._clean)
        except Locked as error:
            yield Touched(item.key, where, 0, done=False, why=f"it is in use by {error.owner or 'somebody else'}; forget again later")
            return
        except StorageError as error:
            yield Touched(item.key, where, 0, done=False, why=error.message)
            return
        if count < 0:
            yield Touched(item.key, where, 0, done=False, why="it is not text, and nothing here knows how to take something out of it")
        elif count:
            yield Touched(item.key, where, count)
        if self.needle.in_text(item.key) and self.backend.mark(item.key) is not None:
            yield Touched(item.key, where, 0, done=False, why="its name holds it")

    def _leased(self, key: str) -> AbstractContextManager[object]:
        return nullcontext() if self.rule.lease is None else self.backend.lease(self.rule.lease(key), holder="forget")

    def _count(self, item: Item, how: Callable[[Item], int]) -> int:
        for _ in range(_TRIES - 1):
            try:
                return how(item)
            except RevisionConflict:
                continue  # somebody wrote meanwhile: look at what is there now
        return how(item)

    def _look(self, item: Item) -> int:
        """Whether anything of it holds the text. Reads and changes nothing, so that most keys need no lease."""
        if item.kind == "log":
            reading = self.backend.read(item.key)
            return sum(map(self.needle.in_value, reading.records)) + sum(map(self.needle.in_bytes, reading.torn))
        data = self._data(item)
        return int(data is not None and self.needle.in_file(data))

    def _clean(self, item: Item) -> int:
        if item.kind == "log":
            return self._clean_log(item.key)
        if item.kind == "blob":
            below, _, name = item.key.rpartition("/")
            self.backend.delete_blob(below, name)
            return 1
        return self._clean_document(item.key)

    def _data(self, item: Item) -> bytes | None:
        if item.kind == "blob":
            below, _, name = item.key.rpartition("/")
            try:
                return self.backend.get_blob(below, name)
            except Damaged:
                return None
        stored = self.backend.get(item.key)
        return None if stored is None else stored.data

    def _clean_document(self, key: str) -> int:
        stored = self.backend.get(key)
        if stored is None or not self.needle.in_file(stored.data):
            return 0
        if self.rule.document is not None:
            rest, count = self.rule.document(stored.data, self.needle), 1
        else:
            rest, count = _cleaned(key, stored.data, self.needle)
        if count < 0:
            return count
        if rest is None or self.needle.in_file(rest):  # better gone than half forgotten
            self.backend.write(Delete(key, expect=stored.mark))
        else:
            self.backend.write(Put(key, rest, expect=stored.mark))
        return count

    def _clean_log(self, key: str) -> int:
        reading = self.backend.read(key)
        kept: list[Mapping[str, Any]] = []
        count = 0
        for record in reading.records:
            if not self.needle.in_value(record):
                kept.append(record)
                continue
            count += 1
            rest = self.rule.record(record, self.needle) if self.rule.record is not None else self.needle.out_of(record)[0]
            if rest is not None and not self.needle.in_value(rest):
                kept.append(rest)
        showing = [data for data in reading.torn if self.needle.in_bytes(data)]
        if not count and not showing:
            return 0
        for number, data in enumerate(data for data in reading.torn if data not in showing):
            self.backend.write(Put(f"{key}.damaged-{len(reading.records)}-{number}", data))  # rewriting leaves it out of the log
        self.backend.rewrite(key, kept, expect=reading.mark)
        return count + len(showing)


def _cleaned(key: str, data: bytes, needle: Needle) -> tuple[bytes | None, int]:
    """A document without the text by the general way: JSON by its values, text by its sentences. -1 for what is neither."""
    if ".damaged-" in key or ".edited-" in key:
        return None, 1  # nobody reads it any more
    if data.startswith(_SQLITE) or b"\0" in data:
        return data, -1
    try:
        rest, count = needle.out_of(strict_json.decode(data))
        return strict_json.encode(rest, readable=data.count(b"\n") > 1), max(count, 1)
    except Damaged:
        pass  # it is no JSON, or damaged: then it is a text like any other
    try:
        return needle.without(data.decode("utf-8")).encode("utf-8"), 1
    except UnicodeDecodeError:
        return data, -1
