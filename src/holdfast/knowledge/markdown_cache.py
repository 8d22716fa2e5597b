"""What a Markdown store remembers of its files between two openings, so that nothing is read and analysed twice (K5).

The cache may be removed at any time and is then made again. It holds texts, so whoever forgets removes it first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from holdfast.durable.disk import REAL
from holdfast.durable.replace import temp_name
from holdfast.errors import InputError, StorageError
from holdfast.knowledge.lexical import Analysis
from holdfast.knowledge.markdown_files import OWN_FOLDER, Stamp
from holdfast.knowledge.records import SCHEMA, Record, from_json, to_json
from holdfast.text.words import terms

_PROBE = "The users' databases were renamed: parse_url, getUserName, v3.11.7, 2024-05-08, e-mail; Häuser, машины, 数据库"


@dataclass(frozen=True, slots=True)
class Held:
    """A file that was read: when it looked how, and the record in it."""

    stamp: Stamp
    record: Record
    analysis: Analysis


class Cache:
    """The cache of the store in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.path = root / OWN_FOLDER / "cache.json"

    def load(self) -> dict[str, Held]:
        """What was remembered; nothing if the file is not there, is damaged, or was made by another analysis of words."""
        try:
            value = json.loads(self.path.read_bytes())
            if value["form"] != _form():
                return {}
            return {path: _held(entry) for path, entry in value["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, InputError):
            return {}

    def save(self, files: Mapping[str, Held]) -> None:
        """Remember these. Not durable, since it can be made again; but whole, or not at all. A full disk is no error here."""
        entries = {
            path: [list(held.stamp), to_json(held.record), held.analysis.language, dict(held.analysis.counts)]
            for path, held in files.items()
        }
        data = json.dumps({"schema": SCHEMA, "form": _form(), "files": entries}, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        temp = self.path.with_name(temp_name())
        with suppress(OSError, StorageError):
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(data)
                temp.replace(self.path)
            except OSError:
                temp.unlink(missing_ok=True)

    def drop(self) -> None:
        """Remove the file; on return that survives a power cut."""
        with suppress(FileNotFoundError):
            REAL.unlink(str(self.path))
            REAL.sync_folder(str(self.path.parent))

    def size(self) -> int:
        """How many bytes it takes."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0


def _held(entry: Any) -> Held:
    stamp, record, language, counts = entry
    return Held(Stamp(*stamp), from_json(record), Analysis({str(term): int(times) for term, times in counts.items()}, str(language)))


def _form() -> str:
    """A mark of how words are analysed: another one makes what was remembered useless."""
    return blake2b(json.dumps([SCHEMA, terms(_PROBE, "en")]).encode(), digest_size=12).hexdigest()
