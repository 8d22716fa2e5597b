"""Raw data of one session: bytes by their hash, and a log that says what they are and where they came from (W10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.amounts import counted
from holdfast.errors import InputError, NotThere
from holdfast.redaction import redact_text
from holdfast.storage.backend import Append, Backend

_PREFIX = "raw:"


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


class RawStore:
    """The raw data below a prefix of a backend."""

    def __init__(self, backend: Backend, prefix: str) -> None:
        self._backend = backend
        self.prefix = prefix
        self.index = f"{prefix}/index.jsonl"

    def put(self, data: bytes, media_type: str, source: str | None, at: str) -> str:
        """Keep the bytes, then the note about them; on return both survive a power cut."""
        ref = _PREFIX + self._backend.put_blob(self.prefix, data)
        shown = redact_text(source) if source is not None else None
        known = self._backend.read(self.index)
        if not any((note.get("ref"), note.get("media_type"), note.get("source")) == (ref, media_type, shown) for note in known.records):
            note = {"ref": ref, "media_type": media_type, "source": shown, "size": len(data), "at": at}
            self._backend.write(Append(self.index, [note]))
        return ref

    def get(self, ref: str) -> RawData:
        """The bytes with what is known of them. A prefix is enough if only one reference begins with it."""
        full = self.find(ref)
        data = self._backend.get_blob(self.prefix, full.removeprefix(_PREFIX))
        if data is None:
            raise InputError(f"the raw data {full} was removed just now.")
        note = self.notes().get(full, {})
        return RawData(full, data, note.get("media_type", "application/octet-stream"), note.get("source"), note.get("at", ""))

    def find(self, ref: object) -> str:
        """The whole reference that `ref` is or begins. InputError if there is none, or more than one."""
        if not isinstance(ref, str) or not ref.strip():
            raise InputError(f"{ref!r} is not a raw reference.", hint="It looks like raw:sha256-3f1c...; its first digits are enough.")
        wanted = f"{_PREFIX}sha256-{ref.strip().removeprefix(_PREFIX).removeprefix('sha256-').lower()}"
        found = [one for one in self.refs() if one.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotThere(f"there is no raw data {ref[:100]!r} in this session.", hint="It may have been forgotten or pruned.")
        raise InputError(f"{ref[:100]!r} begins {counted(len(found), 'reference')}: {', '.join(found[:3])}.", hint="Give more digits.")

    def refs(self) -> list[str]:
        """All references, sorted."""
        return sorted(_PREFIX + item.key.rpartition("/")[2] for item in self._backend.list(f"{self.prefix}/") if item.kind == "blob")

    def notes(self) -> dict[str, Mapping[str, Any]]:
        """What is known of each reference: the newest note."""
        return {str(note["ref"]): note for note in self._backend.read(self.index).records if "ref" in note}

    def copy_to(self, other: RawStore, at: str) -> None:
        """Keep everything there too."""
        for ref in self.refs():
            one = self.get(ref)
            other.put(one.data, one.media_type, one.source, at)

    def remove(self, ref: str) -> None:
        """Forget the bytes and every note about them."""
        self._backend.delete_blob(self.prefix, ref.removeprefix(_PREFIX))
        self.keep_notes(lambda note: note.get("ref") != ref)

    def keep_notes(self, wanted: Callable[[Mapping[str, Any]], bool]) -> int:
        """Drop the notes that are not wanted, and say how many went."""
        reading = self._backend.read(self.index)
        kept = [note for note in reading.records if wanted(note)]
        if len(kept) < len(reading.records):
            self._backend.rewrite(self.index, kept, expect=reading.mark)
        return len(reading.records) - len(kept)
