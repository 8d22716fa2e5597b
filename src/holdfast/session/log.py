"""The log of a session: one record for each commit, with what changed and nothing else (W2, W5).

A record of a commit is `{"revision", "after", "at", "changes", ...}`: `after` is the revision that it was made from, so that a lost record
is noticed. `point` names the state after it as a recovery point, `files` holds the Markdown of stages, `why` says what was not an ordinary
commit. A record without `revision` only keeps a point, whose own `changes` are not part of the state. `together` holds records that
count all or none. The state is what folding the records gives; a restore is a fold that stops earlier.

A text in `files` that begins or ends as an earlier one (a stage is given what the one before it was given, and one output more) is
`{"like": its name, "first": n, "text": ..., "last": m}`: the first n characters of that one, then the text, then its last m. So the log
grows with what is new, not with the number of stages.

A change is `{"at": [place], ...}` with `set`, `add` (to the end of a list), `drop`, or `order` (of the names of an object).

What older versions kept, a JSON document without a log and recovery points in a log of their own, is read as it is (`old_session`, the only
reading here) and becomes records with the first write (O7). In PostgreSQL old rows were moved there (`workflow/run_settings.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import compress, islice
from operator import is_not
from typing import Any

from holdfast.errors import Damaged
from holdfast.session.document import decode_session, parse_session, session_json
from holdfast.session.state import SESSION_FIELDS, Session
from holdfast.storage.backend import Backend, Mark

Document = dict[str, Any]
Change = dict[str, Any]
Record = Mapping[str, Any]
News = tuple[Document, Mapping[str, Sequence[str]]]

_HEADER = ("revision", "updated_at")  # said by the record itself
_NOTHING = object()
_SMALL, _PLAIN = 8, frozenset((str, int, float, bool, type(None)))  # an object such as a stage's record
_WORTH = 200  # characters: to say what a text is like takes some, too


# Changes


def changes_between(old: Document, new: Document, *, header: bool = False, news: News | None = None) -> list[Change]:
    """What makes `new` of `old`. Revision and time are left out, as a record says them, unless `header`.

    `news` says of some objects which of their members are other ones than in `old`, if that is the document it was made for.
    """
    found: list[Change] = []
    known = news[1] if news is not None and news[0] is old else {}
    if [*old] == [*new]:  # the usual case: only values differ
        for name in compress(old, map(is_not, old.values(), new.values())):
            if name in known:
                _compare_members(old[name], new[name], known[name], name, found)
            elif header or name not in _HEADER:
                _compare(old[name], new[name], [name], found)
        return found
    names = [name for name in old if name in new]
    for name in [*old, *(name for name in new if name not in old)]:
        if header or name not in _HEADER:
            _compare(old.get(name, _NOTHING), new.get(name, _NOTHING), [name], found)
    names += [name for name in new if name not in old]
    if names != [*new] and [name for name in names if name not in SESSION_FIELDS] != [name for name in new if name not in SESSION_FIELDS]:
        found.append({"at": [], "order": [*new]})
    return found


def _compare_members(old: Document, new: Document, names: Iterable[str], at: str, found: list[Change]) -> None:
    for name in names:
        if name in old:
            _compare(old[name], new[name], [at, name], found)
        else:
            found.append({"at": [at, name], "set": new[name]})


def _compare(old: Any, new: Any, at: list[str | int], found: list[Change]) -> None:
    if old is new:
        return
    if type(old) is str and type(new) is str:  # by far the most
        if old != new:
            found.append({"at": at, "set": new})
    elif new is _NOTHING:
        found.append({"at": at, "drop": True})
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        _compare_objects(old, new, at, found)
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) <= len(new):
        _compare_lists(old, new, at, found)
    elif old is _NOTHING or type(old) is not type(new) or old != new:
        found.append({"at": at, "set": new})


def _compare_objects(old: Mapping[str, Any], new: Mapping[str, Any], at: list[str | int], found: list[Change]) -> None:
    if len(old) <= len(new) and [*old] == [*islice(new, len(old))]:  # the usual case, at the speed of C: there may be many stages
        for name in compress(old, map(is_not, old.values(), new.values())):
            _compare(old[name], new[name], [*at, name], found)
        found += [{"at": [*at, name], "set": new[name]} for name in islice(new, len(old), None)]
        return
    if len(new) <= _SMALL and all(type(member) in _PLAIN for member in new.values()):  # to say it anew is shorter, and quicker
        found.append({"at": at, "set": new})
        return
    names = []
    for name, member in old.items():
        there = new.get(name, _NOTHING)
        if there is not _NOTHING:
            names.append(name)
        if there is not member:
            _compare(member, there, [*at, name], found)
    if len(names) < len(new):
        for name, member in new.items():
            if name not in old:
                names.append(name)
                found.append({"at": [*at, name], "set": member})
    if names != [*new]:
        found.append({"at": at, "order": [*new]})


def _compare_lists(old: Any, new: Any, at: list[str | int], found: list[Change]) -> None:
    changed: list[Change] = []
    for index in compress(range(len(old)), map(is_not, old, new)):
        _compare(old[index], new[index], [*at, index], changed)
    if len(changed) > 4 and len(changed) > len(old) // 2:
        found.append({"at": at, "set": new})
        return
    found += changed
    if len(new) > len(old):
        found.append({"at": at, "add": list(new[len(old) :])})


def applied(document: Document, changes: Iterable[Change]) -> Document:
    """The document with the changes; the one given stays as it is. KeyError, IndexError or TypeError if they are not for this one."""
    for change in changes:
        document = _with(document, change["at"], change) if change["at"] else {name: document[name] for name in change["order"]}
    return document


def _with(holder: Any, at: list[str | int], change: Change) -> Any:
    """A copy of an object or a list, of which only what lies on the way to the change is new."""
    first, rest = at[0], at[1:]
    copied: Any = dict(holder) if isinstance(holder, Mapping) else list(holder)
    if rest:
        copied[first] = _with(copied[first], rest, change)
    elif "set" in change:
        copied[first] = change["set"]
    elif "add" in change:
        copied[first] = [*copied[first], *change["add"]]
    elif "drop" in change:
        del copied[first]
    else:
        copied[first] = {name: copied[first][name] for name in change["order"]}
    return copied


# Records


def commit_record(old: Document, new: Document, *, news: News | None = None, **more: Any) -> Document:
    """The record that makes one state of another; `old` is empty for the first. `more`: `point`, `files`, `why`, left out when empty.

    `news`: see `changes_between`.
    """
    said = {name: member for name, member in more.items() if member}
    after = {"after": old.get("revision", 0)} if old else {}
    return {"revision": new["revision"], **after, "at": new.get("updated_at", ""), **said, "changes": changes_between(old, new, news=news)}


def point_record(current: Document, state: Document, name: str, at: str) -> Document:
    """The record that keeps a state as a recovery point beside the current one."""
    return {"point": name, "at": at, "changes": changes_between(current, state, header=True)}


def together(records: list[Document]) -> Document:
    """One record for several, so that all of them are there after a crash or none."""
    return records[0] if len(records) == 1 else {"together": records}


def flat(records: Iterable[Record]) -> Iterator[Record]:
    """The records one by one."""
    for record in records:
        if "together" in record:
            yield from flat(record["together"])
        else:
            yield record


@dataclass(slots=True)
class Folded:
    """What the records of a log amount to. `problem` says what is wrong with it: then `document` is the last sound state."""

    document: Document = field(default_factory=dict)
    points: dict[str, str] = field(default_factory=dict)
    """When each recovery point was made, by name, oldest first."""
    files: set[str] = field(default_factory=set)
    """The names of the stages' Markdown: `01-plan/context.md`. Their texts: `texts_of`."""
    problem: str | None = None

    @property
    def revision(self) -> int:
        return int(self.document.get("revision", 0))

    def add(self, record: Record) -> None:
        """Go on by one record."""
        if "revision" not in record or self._advance(record):
            self.note(record)

    def note(self, record: Record) -> None:
        """Take the point and the files of a record whose changes are known already."""
        self.files.update(record.get("files", ()))
        if "point" in record:
            self.points.pop(record["point"], None)  # one of the same name is replaced, and is the newest again
            self.points[record["point"]] = record["at"]

    def _advance(self, record: Record) -> bool:
        is_first = "after" not in record
        if is_first:
            self.document, self.problem = {}, None
        elif self.problem is not None or record["after"] != self.revision:
            self.problem = self.problem or f"the record after revision {self.revision} is lost"
            return False
        try:
            after = applied(self.document, record["changes"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            self.problem = f"the record of revision {record['revision']} does not fit the one before ({type(error).__name__})"
            return False
        self.document = {**after, "revision": record["revision"], "updated_at": record.get("at", "")}
        return True


def fold(records: Iterable[Record]) -> Folded:
    """The state after all records."""
    folded = Folded()
    for record in flat(records):
        folded.add(record)
    return folded


def texts_of(records: Iterable[Record]) -> dict[str, str]:
    """The Markdown of stages, by name. One whose like was in a record that is lost is left out."""
    found: dict[str, str] = {}
    for record in flat(records):
        for name, text in record.get("files", {}).items():
            if isinstance(text, str):
                found[name] = text
            elif (like := found.get(text["like"])) is not None:
                found[name] = f"{like[: text['first']]}{text['text']}{like[len(like) - text['last'] :]}"
            else:
                found.pop(name, None)
    return found


class TextPacker:
    """Writes Markdown of stages by what is new in it. Knows the texts that it saw last, one for each kind (`context.md`, `output.md`)."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}

    def packed(self, texts: Mapping[str, str]) -> dict[str, str | Document]:
        """The texts as a record holds them; `texts_of` gives them back. They have to be appended, in this order."""
        found: dict[str, str | Document] = {}
        for name, text in texts.items():
            kind = name.rpartition("/")[2]
            like, before = self._last.get(kind, ("", ""))
            first = _shared(before, text)
            last = _shared(before[:first:-1], text[:first:-1])
            worth = first + last > _WORTH
            found[name] = {"like": like, "first": first, "text": text[first : len(text) - last], "last": last} if worth else text
            self._last[kind] = (name, text)
        return found


def _shared(one: str, other: str) -> int:
    """With how many equal characters two texts begin."""
    if other.startswith(one):  # what a stage is given begins as what the one before it was given
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def states(records: Iterable[Record]) -> Iterator[Folded]:
    """The state after each record, oldest first. It is one object that goes on; its `document` is another one each time."""
    folded = Folded()
    for record in flat(records):
        folded.add(record)
        yield folded


def points_of(records: Iterable[Record]) -> dict[str, tuple[str, Document]]:
    """The recovery points by name, oldest first: when each was made, and its state. Those whose records are damaged are left out."""
    folded, found = Folded(), dict[str, tuple[str, Document]]()
    for record in flat(records):
        folded.add(record)
        name = record.get("point")
        if name is None or folded.problem is not None:
            continue
        found.pop(name, None)
        with suppress(KeyError, IndexError, TypeError):
            state = folded.document if "revision" in record else applied(folded.document, record["changes"])
            found[name] = (record["at"], state)
    return found


def compacted(points: Mapping[str, tuple[str, Document]], current: Document, files: Mapping[str, str]) -> list[Document]:
    """The records of a log that holds these recovery points (name to time and state, oldest first) and this state, and no others."""
    records: list[Document] = [commit_record({}, current, files=TextPacker().packed(files))]
    records += [point_record(current, state, name, at) for name, (at, state) in points.items()]
    return records


_SPLIT = ("stage_outputs", "stages", "memory_snapshots", "retrieved", "workflow", "configuration")


# What older versions kept


@dataclass(frozen=True, slots=True)
class OldSession:
    """The document of a session without a log, and its recovery points. `mark` is that of the document."""

    data: bytes
    mark: Mark
    workflow_id: str
    path: str
    points: Mapping[str, tuple[str, Document]]
    files: Mapping[str, str]

    def session(self) -> Session:
        """The state. Damaged, with line and place, if it cannot be read."""
        found = decode_session(self.data, self.path)
        if found.workflow_id != self.workflow_id:
            raise Damaged(
                f"{self.path} holds the session {found.workflow_id!r}.",
                path=self.path,
                hint=f"Give the file its name back, or set workflow_id to {self.workflow_id!r} in it.",
            )
        return replace(found, mark=blake2b(self.data, digest_size=16).hexdigest())

    def records(self) -> list[Document]:
        """All of it as records of a log."""
        return compacted(self.points, session_json(self.session()), self.files)


def old_session(backend: Backend, key: str, workflow_id: str) -> OldSession | None:
    """What an older version kept of a session; None if nothing."""
    stored = backend.get(f"{key}.json")
    if stored is None:
        return None
    points = old_points(backend.read(f"{key}/checkpoints.jsonl").records)
    start = f"{key}/stages/"
    texts = {item.key.removeprefix(start): backend.get(item.key) for item in backend.list(start) if item.kind == "document"}
    files = {name: text.data.decode("utf-8", "replace") for name, text in texts.items() if text is not None}
    return OldSession(stored.data, stored.mark, workflow_id, backend.where(f"{key}.json"), points, files)


def old_points(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, Document]]:
    """Recovery points by name, oldest first: time and document. Those that have lost a part, or cannot be read, are left out.

    A record is a part, `{"part": id, "value"}`, or a point, `{"checkpoint": name, "at", "session"}`, in which large members are ids of
    parts; PostgreSQL kept the whole text, `{"checkpoint": name, "at", "document"}`.
    """
    parts: dict[str, Any] = {}
    points: dict[str, tuple[str, Document]] = {}
    for record in records:
        if "part" in record:
            parts[record["part"]] = record.get("value")
            continue
        name = record.get("checkpoint")
        try:
            document = _point(record, parts)
        except (Damaged, KeyError, TypeError):
            continue
        if isinstance(name, str):
            points.pop(name, None)  # one of the same name is replaced, and is the newest again
            points[name] = (str(record.get("at", "")), document)
    return points


def _point(record: Mapping[str, Any], parts: Mapping[str, Any]) -> Document:
    if "document" in record:
        return session_json(decode_session(str(record["document"]).encode(), "a recovery point"))
    state = dict(record["session"])
    for name in _SPLIT:
        ids = state.get(name)
        if isinstance(ids, str):
            state[name] = parts[ids]
        elif isinstance(ids, dict):
            state[name] = {key: parts[id] for key, id in ids.items()}
        elif isinstance(ids, list):
            state[name] = [parts[id] for id in ids]
    return session_json(parse_session(state))
