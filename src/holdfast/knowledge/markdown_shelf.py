"""What a Markdown store holds of its files in memory: records by path, by id and by session, and the index over them. No files here."""

from __future__ import annotations

from holdfast.knowledge.lexical import LexicalIndex
from holdfast.knowledge.markdown_cache import Held
from holdfast.knowledge.records import Record


class Shelf:
    """Files that were read. Of several with the same id the first by its path counts."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self.index = LexicalIndex()
        self._paths: dict[str, set[str]] = {}
        self._members: dict[str, set[str]] = {}
        self._stale: set[str] = set()

    def put(self, path: str, held: Held | None) -> None:
        """Note what is in a file now; None if there is no record any more. `settle` brings the index after."""
        old = self.held.pop(path, None)
        if old is not None:
            self._note_stale(old.record)
            _take(self._paths, old.record.id, path)
            _take(self._members, _key(old.record), path)
        if held is not None:
            self.held[path] = held
            self._paths.setdefault(held.record.id, set()).add(path)
            self._members.setdefault(_key(held.record), set()).add(path)
            self._note_stale(held.record)

    def _note_stale(self, record: Record) -> None:
        """Its session, and those of files with the same id: another of them may count from now on."""
        self._stale.add(_key(record))
        paths = self._paths.get(record.id, ())
        if len(paths) > 1:
            self._stale.update(_key(self.held[path].record) for path in paths if path in self.held)

    def settle(self) -> None:
        """Index what changed."""
        for key in self._stale:
            counted = (path for path in self._members.get(key, ()) if self.path(self.held[path].record.id) == path)
            self.index.put(key, [(self.held[path].record, self.held[path].analysis) for path in counted])
        self._stale.clear()

    def path(self, id: str) -> str | None:
        """The file that counts for this id."""
        return min(self._paths.get(id, ()), default=None)

    def paths(self, id: str) -> list[str]:
        """All files with this id."""
        return sorted(self._paths.get(id, ()))

    def record(self, id: str) -> Record | None:
        """The record with this id."""
        path = self.path(id)
        return None if path is None else self.held[path].record

    def records(self) -> list[Record]:
        """All records, each once."""
        return [self.held[min(paths)].record for paths in self._paths.values()]

    def doubles(self) -> list[tuple[str, str]]:
        """Files that do not count, each with the one that does."""
        return [(path, min(paths)) for paths in self._paths.values() if len(paths) > 1 for path in sorted(paths)[1:]]


def _take(where: dict[str, set[str]], key: str, path: str) -> None:
    where[key].discard(path)
    if not where[key]:
        del where[key]


def _key(record: Record) -> str:
    return f"s {record.session}" if record.session is not None else f"r {record.id}"
