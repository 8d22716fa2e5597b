"""The file of a memory document beside its history: which of the two counts, and what is written for a change (M6, M7).

The history is the truth, and the file an input: what a person wrote there counts, what a crash left there does not.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.durable import strict_json
from holdfast.errors import Damaged, StorageError
from holdfast.memory.document import Document, parse
from holdfast.memory.document_log import FileFacts, digest_of, file_facts, fold, state_record, with_file, written
from holdfast.memory.history import Change, to_record
from holdfast.storage.backend import ABSENT, Backend, Mark, Put, Stored


@dataclass(frozen=True)
class Found:
    """A document as it is now, and the mark to be given back with the next one. `in_log`: its history amounts to the same document.

    `is_behind`: its file is an older one, and is to be written again.
    """

    document: Document | None
    mark: Mark = ABSENT
    in_log: bool = False
    is_behind: bool = False


class DocumentFile:
    """The document `key` of a backend and the log `history` of its changes. Remembers what it read until one of the two looks different."""

    def __init__(self, backend: Backend, key: str, history: str) -> None:
        self._backend = backend
        self._key = key
        self._history = history
        self._known: tuple[tuple[Mark, str | None], Found] | None = None

    def read(self) -> Found:
        """The document as it is now, without a lock. Damaged if its file is, and not by a power cut."""
        mark, history = self._backend.mark(self._key), self._backend.glance(self._history)
        if mark is None:
            return Found(None)
        known = self._known
        if known is not None and known[0] == (mark, history):
            return known[1]
        stored = self._backend.get(self._key)
        if stored is None:
            return Found(None)
        facts = file_facts(self._backend.last(self._history))
        if facts is None or facts.digest == digest_of(stored.data):
            found = Found(self._parsed(stored), stored.mark, in_log=facts is not None)
        else:
            found = self._ahead(stored, facts) or Found(self._parsed(stored), stored.mark)
        self._known = ((stored.mark, history), found)
        return found

    def _parsed(self, stored: Stored) -> Document:
        path = self._backend.where(self._key)
        return parse(strict_json.decode(stored.data, path=path), path=path)

    def _ahead(self, stored: Stored, facts: FileFacts) -> Found | None:
        """The document that the history amounts to, if the file is behind it; None if the file is somebody's edit.

        It is behind if it is the very one that the last change was to take the place of (its writer was killed, or is at it), or if the
        machine was started anew since and it is an earlier one of ours, or torn.
        """
        is_same = self._backend.glance(self._key) == facts.was
        if not is_same and not self._backend.predates_start(self._key):
            return None
        folded = fold(self._backend.read(self._history).records)
        if folded.document is None:
            return None
        if not is_same and digest_of(stored.data) not in folded.digests:
            with suppress(Damaged):
                self._parsed(stored)
                return None
        return Found(folded.document, stored.mark, in_log=True, is_behind=True)

    # What is written; called with the scope locked

    def put_again(self) -> None:
        """Write the file again if it is behind."""
        found = self.read()
        if found.is_behind and found.document is not None:
            self._backend.write(Put(self._key, written(found.document), expect=found.mark))

    def records(self, change: Change, found: Found, data: bytes | None) -> list[dict[str, Any]]:
        """What goes into the history for a change that makes the file `data` (None: leaves it as it is).

        The document as it was comes first, where the history does not hold it.
        """
        if data is None and not found.in_log:
            return [to_record(change)]
        was = self._backend.glance(self._key)
        if data is None:
            last = file_facts(self._backend.last(self._history))
            return [with_file(to_record(change), last and replace(last, was=was))]
        record = with_file(to_record(change), FileFacts(digest_of(data), was))
        return [record] if found.in_log else [state_record(found.document or Document(), change.time), record]

    def note(self, document: Document, mark: Mark) -> None:
        """Remember what was just written. It stands, so a look that fails now is no error of the one who wrote: nothing is remembered."""
        self._known = None
        with suppress(StorageError):
            self._known = ((mark, self._backend.glance(self._history)), Found(document, mark, in_log=True))

    def state(self, found: Found, time: str) -> list[dict[str, Any]]:
        """The record that holds the document as it is, which is on the disk when this returns; none where there is no document."""
        if found.document is None:
            return []
        data = written(found.document)
        self._backend.write(Put(self._key, data, expect=found.mark))
        facts = FileFacts(digest_of(data), self._backend.glance(self._key))
        return [with_file(state_record(found.document, time), facts)]
