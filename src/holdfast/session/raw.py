"""Raw data of one session: bytes by their hash, and an index that says what they are and where they came from (W10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.durable.append import AppendLog
from holdfast.durable.blobs import Blobs, blob_id
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.records import Entry
from holdfast.errors import InputError
from holdfast.redaction import redact_text
from holdfast.session.store import RawData

_PREFIX = "raw:"


def ref_of(data: bytes) -> str:
    """The reference of these bytes: `raw:sha256-` and 64 hexadecimal digits."""
    return _PREFIX + blob_id(data)


def find_ref(ref: object, known: Callable[[], list[str]]) -> str:
    """The whole reference that `ref` is or begins. InputError if there is none, or more than one; `known` lists them, sorted."""
    if not isinstance(ref, str) or not ref.strip():
        raise InputError(f"{ref!r} is not a raw reference.", hint="It looks like raw:sha256-3f1c...; its first digits are enough.")
    wanted = f"{_PREFIX}sha256-{ref.strip().removeprefix(_PREFIX).removeprefix('sha256-').lower()}"
    found = [one for one in known() if one.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"there is no raw data {ref[:100]!r} in this session.", hint="It may have been forgotten or pruned.")
    raise InputError(f"{ref[:100]!r} begins {len(found)} references: {', '.join(found[:3])}.", hint="Give more digits.")


class RawFolder:
    """The raw data in a folder."""

    def __init__(self, folder: str, *, disk: Disk = REAL, now: Callable[[], str], timeout: float | None = 10.0) -> None:
        self._blobs = Blobs(folder, disk=disk)
        self._log = AppendLog(f"{folder}/index.jsonl", disk=disk, timeout=timeout)
        self._now = now
        self._noted: set[tuple[str, str, str | None]] = set()

    def put(self, data: bytes, media_type: str, source: str | None) -> str:
        """Keep the bytes, then the note about them; on return both survive a power cut."""
        ref = _PREFIX + self._blobs.put(data)
        shown = redact_text(source) if source is not None else None
        facts = (ref, media_type, shown)
        if facts not in self._noted:
            self._noted = self._facts()
            if facts not in self._noted:
                self._log.append({"ref": ref, "media_type": media_type, "source": shown, "size": len(data), "at": self._now()})
            self._noted.add(facts)
        return ref

    def get(self, ref: str) -> RawData:
        """The bytes with what is known of them. A prefix is enough if only one reference begins with it."""
        full = find_ref(ref, self.refs)
        try:
            data = self._blobs.get(full.removeprefix(_PREFIX))
        except FileNotFoundError:
            raise InputError(f"the raw data {full} was removed just now.") from None
        note = self.notes().get(full, {})
        return RawData(full, data, note.get("media_type", "application/octet-stream"), note.get("source"), note.get("at", ""))

    def refs(self) -> list[str]:
        """All references, sorted."""
        return [_PREFIX + key for key in self._blobs.list()]

    def notes(self) -> dict[str, Mapping[str, Any]]:
        """What is known of each reference: the newest note."""
        return {item.record["ref"]: item.record for item in self._log.scan() if isinstance(item, Entry) and "ref" in item.record}

    def remove(self, ref: str) -> None:
        """Forget the bytes and every note about them."""
        self._blobs.remove(ref.removeprefix(_PREFIX))
        self.keep_notes(lambda note: note["ref"] != ref)

    def keep_notes(self, wanted: Callable[[Mapping[str, Any]], bool]) -> int:
        """Drop the notes that are not wanted, and say how many went."""
        with self._log.locked():
            notes = [item.record for item in self._log.scan() if isinstance(item, Entry)]
            kept = [note for note in notes if wanted(note)]
            if len(kept) < len(notes):
                self._log.rewrite(kept)
                self._noted = set()
        return len(notes) - len(kept)

    def _facts(self) -> set[tuple[str, str, str | None]]:
        records = (item.record for item in self._log.scan() if isinstance(item, Entry))
        return {(note["ref"], note["media_type"], note.get("source")) for note in records if "ref" in note}
