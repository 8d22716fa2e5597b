"""Files, logs, blobs, locks, databases and folders that survive a crash, a power cut and many writers.

May import `errors`, `events`, `clock` and `ids`, and nothing else of ours.
Start with `disk.py`, the seam below everything here; then `replace.py`, the idiom in five lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.durable.append import AppendLog, Damage, Entry, Reading
from holdfast.durable.aside import set_aside
from holdfast.durable.blobs import Blobs, blob_id
from holdfast.durable.disk import REAL, Disk, RealDisk
from holdfast.durable.folder import Folder, FolderEntry
from holdfast.durable.lock import Lock
from holdfast.durable.probe import Probe, probe
from holdfast.durable.replace import read_json, replace, replace_json, replace_text, sweep

if TYPE_CHECKING:
    from holdfast.durable.database import Database, Migration, backup, database_faults, open_database, transaction

__all__ = [
    "REAL",
    "AppendLog",
    "Blobs",
    "Damage",
    "Database",
    "Disk",
    "Entry",
    "Folder",
    "FolderEntry",
    "Lock",
    "Migration",
    "Probe",
    "Reading",
    "RealDisk",
    "backup",
    "blob_id",
    "database_faults",
    "open_database",
    "probe",
    "read_json",
    "replace",
    "replace_json",
    "replace_text",
    "set_aside",
    "sweep",
    "transaction",
]

_DATABASE = frozenset({"Database", "Migration", "backup", "database_faults", "open_database", "transaction"})


def __getattr__(name: str) -> Any:
    if name not in _DATABASE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.durable import database  # SQLite is loaded when it is first asked for

    return getattr(database, name)
